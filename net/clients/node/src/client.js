// The client: verbs, and what becomes of their answers.

import { Apply } from './apply.js';
import { bytesOf, keyBytes, prefixBytes } from './bytes.js';
import { Refused, Unknown } from './errors.js';
import { encodeInstructions, readNumber } from './fields.js';
import { checkOptions, clientOptions, deadlineOf, oneOf, timeMs } from './options.js';
import { Router } from './router.js';
import { Program, readSchema } from './schema.js';
import { FEATURES, hasFeature } from './wire/hello.js';
import { OPCODES, decodeText } from './wire/frame.js';
import { decodePage } from './wire/reply.js';
import {
  FLAGS, OPERATIONS, encodeApply, encodePlain, encodeRun, encodeScan,
} from './wire/request.js';
import { slotOf } from './wire/slot.js';
import { levelCode } from './wire/status.js';
import { newTokenBytes, tokenBytes, tokenText } from './wire/token.js';

const BY_CONNECT = Symbol('connect');
const NOTHING = Buffer.alloc(0);
const NO_OPTIONS = Object.freeze({});
const SCHEMA_ASKED = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]);
const PAGE_BYTES = 65_536;
const PAGE_KEYS = 256;
const COMMON = ['level', 'deadline', 'signal'];
const named = (...names) => new Set([...COMMON, ...names]);
const WRITE = ['token'];
const CONDITIONS = ['ifAbsent', 'ifPresent', 'ifVersion'];
/** The options of each verb. */
export const OPTIONS = Object.freeze({
  get: named('withExpiry'),
  expiry: named(),
  set: named(...WRITE, ...CONDITIONS, 'show', 'expiresAt', 'expiresIn', 'keepExpiry'),
  delete: named(...WRITE, 'ifVersion', 'show'),
  setExpiry: named(...WRITE, 'expiresAt', 'expiresIn', 'never'),
  updateIf: named(...WRITE, 'secondKey', 'start', 'expiresAt', 'expiresIn', 'never'),
  apply: named(...WRITE),
  run: named(...WRITE),
  scan: named('withValues', 'pageKeys'),
  resolve: new Set(['deadline', 'signal']),
  ping: new Set(['deadline', 'signal']),
  info: new Set(['deadline', 'signal']),
  schema: new Set(['deadline', 'signal']),
});

/** A client of one server, or of the nodes of a cluster. `connect` makes one. */
export class Client {
  #options;
  #router;
  #schema = null;

  /** For `connect` alone: what HELLO tells must be known before anything is asked. */
  constructor(made, addresses, options) {
    if (made !== BY_CONNECT) throw new TypeError('connect(...) makes a client');
    this.#options = clientOptions(options);
    const list = typeof addresses === 'string' ? addresses.split(',') : [...addresses];
    this.#router = new Router(list.map((address) => address.trim()), this.#options);
  }

  /** A client that has reached one of the addresses. */
  static async connect(addresses, options) {
    const client = new Client(BY_CONNECT, addresses, options);
    try {
      await client.#router.open();
    } catch (error) {
      client.close();
      throw error;
    }
    return client;
  }

  /** The value of a key with its version, or null. */
  get(key, options = NO_OPTIONS) {
    return this.#asked('get', options, () => {
      if (options.withExpiry) this.#needs(FEATURES.EXPIRY, 'expiries');
      const flags = options.withExpiry ? FLAGS.AT : 0;
      return this.#read(key, flags, options, (reply) => ({
        data: Buffer.from(reply.value),
        version: reply.version,
        expiresAt: reply.expiry ? reply.expiry.expiryMs || null : null,
      }));
    });
  }

  /** When a key expires, and the server's time; null if there is no such key. */
  expiry(key, options = NO_OPTIONS) {
    return this.#asked('expiry', options, () => {
      this.#needs(FEATURES.EXPIRY, 'expiries');
      return this.#read(key, FLAGS.IN, options, (reply) => ({
        expiresAt: reply.expiry.expiryMs || null, serverTime: reply.expiry.timeMs,
      }));
    });
  }

  /** Stores a value. */
  set(key, value, options = NO_OPTIONS) {
    return this.#asked('set', options, () => {
      const condition = oneOf('set', options, CONDITIONS);
      const ask = { key: keyBytes(key), value: bytesOf(value), flags: 0 };
      this.#condition(ask, condition, options);
      const expiry = oneOf('set', options, ['expiresAt', 'expiresIn', 'keepExpiry']);
      this.#expiry(ask, expiry, options);
      return this.#write(OPERATIONS.SET, ask, condition !== null, options, {
        decode: (reply) => changed(reply, []),
      });
    });
  }

  /** Deletes a key. Answers whether it was there. */
  delete(key, options = NO_OPTIONS) {
    return this.#asked('delete', options, () => {
      const condition = oneOf('delete', options, ['ifVersion']);
      const ask = { key: keyBytes(key), flags: 0 };
      this.#condition(ask, condition, options);
      return this.#write(OPERATIONS.DEL, ask, condition !== null, options, {
        decode: (reply) => reply.status === 'OK', takesMissing: true,
      });
    });
  }

  /** Gives a key an expiry, or takes it away, and leaves its value. */
  setExpiry(key, options = NO_OPTIONS) {
    return this.#asked('setExpiry', options, () => {
      const expiry = oneOf('setExpiry', options, ['expiresAt', 'expiresIn', 'never']);
      if (expiry === null) {
        throw new TypeError('setExpiry takes one of expiresAt, expiresIn, never');
      }
      const ask = { key: keyBytes(key), flags: 0 };
      this.#expiry(ask, expiry, options);
      return this.#write(OPERATIONS.UPDATE_IF, ask, true, options, {
        decode: (reply) => changed(reply, []),
      });
    });
  }

  /** Checks and changes numbers of one value, or of two: all of it or nothing. */
  updateIf(key, instructions, options = NO_OPTIONS) {
    return this.#asked('updateIf', options, () => {
      const ask = { key: keyBytes(key), flags: 0, instructions: encodeInstructions(instructions) };
      if (options.secondKey !== undefined) ask.second = keyBytes(options.secondKey);
      if (options.start !== undefined) {
        ask.flags |= FLAGS.START;
        ask.value = bytesOf(options.start);
      }
      const expiry = oneOf('updateIf', options, ['expiresAt', 'expiresIn', 'never']);
      this.#expiry(ask, expiry, options);
      const hasEffect = ask.flags !== 0 || instructions.some((one) => !one.isGuard);
      const types = instructions.filter((one) => one.tellsNumber).map((one) => one.type);
      return this.#write(OPERATIONS.UPDATE_IF, ask, hasEffect, options, {
        decode: (reply) => changed(reply, types), types: instructions.map((one) => one.type),
      });
    });
  }

  /** Guards and effects on several keys of one `{tag}`: all of them or none. */
  apply(apply, options = NO_OPTIONS) {
    return this.#asked('apply', options, () => {
      if (!(apply instanceof Apply)) throw new TypeError('apply takes an Apply');
      const { keys, numberTypes, instructions } = apply;
      if (keys.length === 0) throw new TypeError('an Apply has a key at least');
      this.#needs(FEATURES.APPLY, 'APPLY');
      if (keys.length > 8) this.#needs(FEATURES.MANY_KEYS, 'APPLY of more than 8 keys');
      const ask = { key: keys[0], keys: [...keys], ...apply.encode() };
      return this.#write(OPERATIONS.APPLY, ask, apply.hasEffect, options, {
        decode: (reply) => changed(reply, numberTypes),
        types: instructions.map((one) => one.type),
      });
    });
  }

  /** Runs a program of the server, by its name or as `schema` gives it. */
  run(program, keys, values = {}, options = NO_OPTIONS) {
    return this.#asked('run', options, async () => {
      this.#needs(FEATURES.RUN, 'RUN');
      const endsAt = performance.now() + (options.deadline ?? this.#options.deadline);
      const found = program instanceof Program ? program : await this.#program(program, options);
      const left = { ...options, deadline: Math.max(1, endsAt - performance.now()) };
      const encoded = found.encode(keys, values);
      const ask = { key: encoded.keys[0], ...encoded };
      try {
        return await this.#write(OPERATIONS.RUN, ask, true, left, {
          decode: (reply) => ({ ...changed(reply, []), numbers: found.decode(reply.value) }),
        });
      } catch (error) {
        // The files of the server have changed: the next call asks for them.
        if (error.status === 'UNKNOWN_PROGRAM') this.#schema = null;
        throw error;
      }
    });
  }

  /** The keys with a prefix, one after the other, page by page. */
  async* scan(prefix = '', options = NO_OPTIONS) {
    checkOptions('scan', options, OPTIONS.scan);
    const { withValues = false, pageKeys = PAGE_KEYS } = options;
    if (!Number.isInteger(pageKeys) || pageKeys < 1 || pageKeys > 1024) {
      throw new RangeError(`pageKeys is 1 to 1024, not ${pageKeys}`);
    }
    this.#needs(FEATURES.SCAN, 'SCAN');
    const bytes = prefixBytes(prefix);
    let cursor = 0;
    let target = null;
    do {
      const item = encodeScan({
        prefix: bytes, cursor, keysMax: pageKeys, bytesMax: PAGE_BYTES, withValues,
      });
      const call = this.#call({ item, isRead: true, mayRepeat: true, decode: readPage }, options);
      call.target = target;
      this.#router.begin(call);
      const page = await call.outcome;
      target = call.target;
      cursor = page.cursor;
      yield* page.keys;
    } while (BigInt(cursor) !== 0n);
  }

  /** Asks the write of an `Unknown` once more: what it answers is what became of it. */
  resolve(unknown, options = NO_OPTIONS) {
    return this.#asked('resolve', options, () => {
      if (!(unknown instanceof Unknown)) throw new TypeError('resolve takes an Unknown');
      return unknown.resolve(options);
    });
  }

  /** Asks whether a node answers. */
  ping(options = NO_OPTIONS) {
    return this.#frame('ping', OPCODES.PING, NOTHING, options, () => undefined);
  }

  /** What the server counts, as an object. */
  info(options = NO_OPTIONS) {
    return this.#frame('info', OPCODES.INFO, NOTHING, options,
      (reply) => JSON.parse(decodeText(reply.value)));
  }

  /** Layouts and programs of the server by their names. `run` takes the programs. */
  schema(options = NO_OPTIONS) {
    return this.#asked('schema', options, async () => {
      this.#needs(FEATURES.RUN, 'INFO of the schema');
      const told = await this.#frame('schema', OPCODES.INFO, SCHEMA_ASKED, options,
        (reply) => decodeText(reply.value));
      this.#schema = readSchema(told);
      return this.#schema;
    });
  }

  /** The programs of the server as functions: `buy({ stock: KEY }, { quantity: 1 })`. */
  async programs(options = NO_OPTIONS) {
    const { programs } = await this.schema(options);
    const functions = Object.create(null);
    for (const [name, program] of Object.entries(programs)) {
      functions[name] = (keys, values, more) => this.run(program, keys, values, more);
    }
    return functions;
  }

  /** A new token by the server's time, to be stored before the write is asked. */
  newToken() {
    return tokenText(newTokenBytes(this.#router.time.now()));
  }

  /** Ends all connections. What waits fails. */
  close() {
    this.#router.close();
  }

  #needs(bit, what) {
    if (hasFeature(this.#router.features, bit)) return;
    throw new Refused(`this server has no ${what} (feature bit ${bit})`,
      { status: 'UNSUPPORTED' });
  }

  /** Checks options, and makes what a verb throws a rejection. */
  async #asked(verb, options, ask) {
    checkOptions(verb, options, OPTIONS[verb]);
    return ask();
  }

  #call(ask, options) {
    options.signal?.throwIfAborted();
    const level = levelCode(options.level ?? this.#options.level);
    const deadline = options.deadline === undefined
      ? this.#options.deadline : deadlineOf(options.deadline);
    return this.#router.newCall({ opcode: OPCODES.BATCH, level, ...ask },
      { deadline, signal: options.signal });
  }

  #send(ask, options) {
    const call = this.#call(ask, options);
    this.#router.begin(call);
    return call.outcome;
  }

  #frame(verb, opcode, item, options, decode) {
    return this.#asked(verb, options, () => this.#send({
      opcode, item, isRead: true, mayRepeat: opcode === OPCODES.INFO, decode,
    }, options));
  }

  #read(key, flags, options, decode) {
    const bytes = keyBytes(key);
    return this.#send({
      item: encodePlain(OPERATIONS.GET, { key: bytes, flags }),
      slot: slotOf(bytes),
      isRead: true,
      mayRepeat: true,
      decode: (reply) => (reply.status === 'NOT_FOUND' ? null : decode(reply)),
      takesMissing: true,
    }, options);
  }

  #condition(ask, condition, options) {
    if (options.show) {
      if (condition === null) throw new TypeError('show stands beside a condition');
      this.#needs(FEATURES.SHOWS, 'values beside a no');
      ask.flags |= FLAGS.SHOWS;
    }
    if (condition === 'ifAbsent') ask.flags |= FLAGS.ABSENT;
    if (condition === 'ifPresent') ask.flags |= FLAGS.PRESENT;
    if (condition === 'ifVersion') {
      ask.flags |= FLAGS.VERSION;
      ask.version = options.ifVersion;
    }
  }

  #expiry(ask, expiry, options) {
    if (expiry === null) return;
    this.#needs(FEATURES.EXPIRY, 'expiries');
    if (expiry === 'expiresAt' || expiry === 'expiresIn') {
      ask.flags |= expiry === 'expiresAt' ? FLAGS.AT : FLAGS.IN;
      ask.expiryMs = timeMs(expiry, options[expiry]);
    } else {
      ask.flags |= FLAGS.OTHER;
    }
  }

  #write(operation, ask, needsToken, options, reading) {
    const knowsTokens = hasFeature(this.#router.features, FEATURES.TOKENS);
    let token;
    if (options.token !== undefined) {
      if (!knowsTokens) this.#needs(FEATURES.TOKENS, 'tokens');
      token = tokenBytes(options.token);
    } else if (needsToken && knowsTokens && this.#options.tokens) {
      token = newTokenBytes(this.#router.time.now());
    }
    const encode = ENCODERS.get(operation) ?? ((parts) => encodePlain(operation, parts));
    // UPDATE_IF and APPLY of guards alone change nothing.
    const isRead = !needsToken && operation !== OPERATIONS.SET && operation !== OPERATIONS.DEL;
    const asked = {
      item: encode({ ...ask, token }),
      slot: slotOf(ask.key),
      isRead,
      mayRepeat: token !== undefined || isRead,
      token: token ?? null,
      level: levelCode(options.level ?? this.#options.level),
      ...reading,
    };
    asked.write = (again = NO_OPTIONS) => this.#again(asked, again);
    return this.#send(asked, options);
  }

  /** The same write once more: an earlier try may have been executed. */
  async #again(asked, { deadline = this.#options.deadline, signal } = NO_OPTIONS) {
    let call;
    try {
      call = this.#call(asked, { deadline, signal });
    } catch (cause) {
      // Nothing was sent now, which says nothing of the try before.
      const token = asked.token && tokenText(asked.token);
      const { write } = asked;
      throw new Unknown(`the outcome is not known: ${cause.message}`, { token, write, cause });
    }
    call.isUncertain = true;
    this.#router.begin(call);
    return call.outcome;
  }

  async #program(name, { deadline, signal }) {
    if (!this.#schema) await this.schema({ deadline, signal });
    const program = this.#schema.programs[name];
    if (!program) {
      throw new Refused(`this server has no program ${name}`, { status: 'UNKNOWN_PROGRAM' });
    }
    return program;
  }
}

const ENCODERS = new Map([[OPERATIONS.APPLY, encodeApply], [OPERATIONS.RUN, encodeRun]]);

/** What a write has done. */
function changed(reply, types) {
  return {
    version: reply.version,
    numbers: types.map((type, number) => readNumber(reply.value, 8 * number, type)),
    replayed: reply.isReplayed,
    level: reply.level,
    mayBeLost: reply.byLaterWriter,
  };
}

function readPage(reply) {
  const { cursor, keys } = decodePage(reply.value);
  return {
    cursor,
    keys: keys.map(({ key, version, value, isValueTooLong }) => ({
      key: Buffer.from(key),
      version,
      data: value ? Buffer.from(value) : null,
      isValueTooLong,
    })),
  };
}

/** A client that has reached one of the addresses: `HOST:PORT`, several with commas, or a list. */
export const connect = (addresses, options) => Client.connect(addresses, options);
