// The time of the server, by which tokens are too old or ahead, as HELLO tells it.

const APART_MS_MAX = 60_000;
/** A server's time follows its clock by this part of the time that passes. */
const SLEW = 64;

/** How far the time of the server is from the clock of this machine. */
export class ServerTime {
  #apartMs = 0;
  #seenMs = 0;

  /** A server told its time; 0 if it does not. */
  note(serverMs, hereMs = Date.now(), monotonicMs = performance.now()) {
    const apartMs = serverMs - hereMs;
    this.#apartMs = serverMs > 0 && Math.abs(apartMs) > APART_MS_MAX ? apartMs : 0;
    this.#seenMs = monotonicMs;
  }

  /** The time that a new token has, in unix milliseconds. */
  now(hereMs = Date.now(), monotonicMs = performance.now()) {
    if (this.#apartMs === 0) return hereMs;
    const drifted = Math.max(0, Math.floor((monotonicMs - this.#seenMs) / SLEW));
    const apart = Math.max(0, Math.abs(this.#apartMs) - drifted);
    return Math.max(0, hereMs + Math.sign(this.#apartMs) * apart);
  }
}
