// How often and when something is sent again: a budget, and pauses with full jitter.

const PARTS = 10;
const SAVED_MAX = 10;
const PAUSE_MIN_MS = 1;
const PAUSE_MAX_MS = 1000;
const MOVED_MIN_MS = 2;
const MOVED_MAX_MS = 160;

/** Ten operations earn one retry, and ten are kept at most. It begins empty. */
export class RetryBudget {
  #parts = 0;

  earn() {
    this.#parts = Math.min(this.#parts + 1, SAVED_MAX * PARTS);
  }

  /** Takes one retry out, if one is there. */
  take() {
    if (this.#parts < PARTS) return false;
    this.#parts -= PARTS;
    return true;
  }
}

/** A random part of a bound that doubles with each try. */
export function busyPause(retryAfterMs, tries, random = Math.random()) {
  const bound = Math.max(retryAfterMs, PAUSE_MIN_MS) * 2 ** Math.min(tries, 16);
  return Math.min(bound, PAUSE_MAX_MS) * random;
}

/** The pause before the node is asked that an answer names once more. */
export function movedPause(tries, random = Math.random()) {
  const bound = Math.min(MOVED_MIN_MS * 1.5 ** Math.min(tries, 16), MOVED_MAX_MS);
  return bound * (0.5 + random / 2);
}
