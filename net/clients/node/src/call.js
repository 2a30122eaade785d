// One call of a verb, from its begin to its outcome.

import { DeadlineExceeded, NotSent, Unknown } from './errors.js';
import { tokenText } from './wire/token.js';

/** What a call asks for, and what became of it so far. */
export class Call {
  /** When it must have its outcome, as `performance.now()` counts. */
  endsAt;
  isSettled = false;
  /** A try was sent, and its answer did not come: it may have been executed. */
  isUncertain = false;
  /** It is written to a connection that is open, and not answered. */
  isUnderWay = false;
  /** Tries that were answered BUSY, that were answered MOVED, whose connection ended. */
  busy = 0;
  moved = 0;
  losses = 0;
  /** The last node could not be reached, for this reason. */
  unreached = null;
  /** The node that an answer named. */
  target = null;
  #timer;
  #signal;
  #onAbort;
  #onSettled;
  #resolve;
  #reject;

  /**
   * `ask`: opcode, item, slot, level, isRead, mayRepeat, token, decode, takesMissing,
   * types, write.
   */
  constructor(ask, { deadline, signal, onSettled }) {
    this.opcode = ask.opcode;
    this.item = ask.item;
    this.slot = ask.slot ?? null;
    this.level = ask.level;
    this.isRead = ask.isRead;
    this.mayRepeat = ask.mayRepeat;
    /** The bytes of its token, or null. */
    this.token = ask.token ?? null;
    this.decode = ask.decode;
    /** NOT_FOUND is an answer that `decode` takes. */
    this.takesMissing = ask.takesMissing === true;
    /** Of each instruction the type of its number. */
    this.types = ask.types;
    this.write = ask.write;
    this.endsAt = performance.now() + deadline;
    this.#onSettled = onSettled;
    this.outcome = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#timer = setTimeout(() => this.#expire(), deadline);
    if (signal) {
      this.#signal = signal;
      this.#onAbort = () => this.#abort(signal.reason);
      signal.addEventListener('abort', this.#onAbort, { once: true });
    }
  }

  get bytes() {
    return this.item.length;
  }

  /** Whole milliseconds that are left, at least 1. */
  leftMs(nowMs) {
    return Math.max(1, Math.floor(this.endsAt - nowMs));
  }

  succeed(answer) {
    if (this.#settle()) this.#resolve(answer);
  }

  /** Fails it with an error that says that this try was not executed. */
  fail(error) {
    if (!this.#settle()) return;
    const hidesTry = this.isUncertain && error.isExecuted === 'no';
    this.#reject(hidesTry ? this.#unknown(error.message, { cause: error }) : error);
  }

  /** Fails it with an error that is its outcome, whatever came before. */
  failFinally(error) {
    if (this.#settle()) this.#reject(error);
  }

  /** Fails it: it may have been executed. */
  failUnknown(message, parts) {
    if (this.#settle()) this.#reject(this.#unknown(message, parts));
  }

  #unknown(message, parts) {
    const { write } = this;
    const token = this.token && tokenText(this.token);
    return new Unknown(`the outcome is not known: ${message}`, { token, write, ...parts });
  }

  #expire() {
    if (this.isUncertain || this.isUnderWay) {
      this.failUnknown('the deadline passed before the answer');
    } else if (this.unreached) {
      this.fail(this.unreached);
    } else {
      this.fail(new DeadlineExceeded('the deadline passed before a try'));
    }
  }

  #abort(reason) {
    const isPerhapsDone = !this.isRead && (this.isUncertain || this.isUnderWay);
    if (isPerhapsDone) this.failUnknown('the call was given up', { cause: reason });
    else this.failFinally(reason);
  }

  #settle() {
    if (this.isSettled) return false;
    this.isSettled = true;
    clearTimeout(this.#timer);
    if (this.#signal) this.#signal.removeEventListener('abort', this.#onAbort);
    this.#onSettled(this);
    return true;
  }
}

/** The error of a node that cannot be reached. */
export const notSent = (address, cause) =>
  new NotSent(`no connection to ${address}: ${cause.message || cause.code || cause}`, { cause });
