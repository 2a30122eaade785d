// Errors: VERBS.md, *Errors*. Each says whether the request was executed.

import { readI64, readU64 } from './wire/numbers.js';
import { isSigned } from './fields.js';

/** The base of all errors of this client. */
export class PenstockError extends Error {
  constructor(message, { status = null, isExecuted = 'no', cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    /** The status of the answer by its name in PROTOCOL.md, or null. */
    this.status = status;
    /** `no`, or `unknown`. */
    this.isExecuted = isExecuted;
  }
}

/** A no: a guard or a condition did not hold, or there is no such key. Nothing has changed. */
export class No extends PenstockError {
  constructor(reply, types) {
    super(`${reply.status}${reply.reason ? `, reason ${reply.reason}` : ''}`,
      { status: reply.status });
    this.reason = reply.reason;
    /** Which instruction did not hold, or null. */
    this.instruction = reply.instruction;
    /** Of GUARD_FAILED the number that was there, otherwise null. */
    this.actual = actualOf(reply, types);
    /** The version that the key has; of VERSION_MISMATCH of `apply` that of the key in question. */
    this.version = versionOf(reply);
    /** The value that kept the condition from holding, if `show` asked for it; otherwise null. */
    this.shown = reply.isShown ? Buffer.from(reply.value) : null;
  }
}

function actualOf(reply, types) {
  if (reply.status !== 'GUARD_FAILED' || reply.value.length !== 8) return null;
  const type = reply.instruction === null ? undefined : types?.[reply.instruction];
  const signed = type !== undefined && isSigned(type);
  return signed ? readI64(reply.value, 0) : readU64(reply.value, 0);
}

function versionOf(reply) {
  const isOfApply = reply.status === 'VERSION_MISMATCH' && !reply.isShown &&
    reply.value.length === 16;
  if (!isOfApply) return reply.version;
  return { epoch: reply.value.readUInt32LE(0), sequence: readU64(reply.value, 8) };
}

/** Not executed, and later it may be: the server or this client has too much to do. */
export class Busy extends PenstockError {}

/** Not executed: there was no connection. */
export class NotSent extends PenstockError {}

/** Not executed: the deadline passed before a try. */
export class DeadlineExceeded extends PenstockError {}

/** Perhaps executed: the connection or the time ended before the answer came. */
export class Unknown extends PenstockError {
  #write;

  constructor(message, { token = null, write, status, cause } = {}) {
    super(message, { status, isExecuted: 'unknown', cause });
    /** The token of the write, a UUID; null of a read and of a write without one. */
    this.token = token;
    this.#write = write;
  }

  /**
   * Asks the same write once more, by its token: what it answers is what became of it. Options are
   * `deadline` and `signal`.
   */
  resolve(options) {
    if (this.token === null || !this.#write) {
      return Promise.reject(new TypeError('what has no token cannot be resolved'));
    }
    return this.#write(options);
  }
}

/** Not executed: the request is wrong, or is not allowed. */
export class Refused extends PenstockError {}

/** Nothing was sent: server and options of the client do not go together (TLS, users, login). */
export class Unfit extends PenstockError {}

/** The peer does not speak this protocol. */
export class ProtocolError extends PenstockError {
  constructor(message, options) {
    super(message, { isExecuted: 'unknown', ...options });
  }
}
