// The vectors of net/vectors: bytes, and what is made of them.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { Field, Instruction, Now } from '../src/index.js';
import { encodeInstructions } from '../src/fields.js';
import { decodeBatch, encodeBatch } from '../src/wire/batch.js';
import { decodeFrame, encodeFrame } from '../src/wire/frame.js';
import { WireFault } from '../src/wire/fault.js';
import { decodeServerHello, encodeHello } from '../src/wire/hello.js';
import { decodePage, decodeReply } from '../src/wire/reply.js';
import {
  encodeApply, encodePlain, encodeRun, encodeScan, FLAGS, OPERATIONS,
} from '../src/wire/request.js';
import { tokenBytes } from '../src/wire/token.js';
import * as requests from './decode-requests.js';
import { readJson } from './programs.js';

const FRAME_BYTES_MAX = 4096;
const hex = (bytes) => bytes.toString('hex');
const unhex = (text) => Buffer.from(text, 'hex');
const text64 = (number) => String(number);
const version = ({ epoch, sequence }) => ({ epoch, sequence: text64(sequence) });

/** How each kind is decoded, in the words of net/vectors/README.md. */
const DECODERS = {
  frame(bytes) {
    const frame = decodeFrame(bytes, 0, FRAME_BYTES_MAX);
    return {
      length: frame.length, opcode: frame.opcode, flags: frame.flags,
      level_or_status: frame.levelOrStatus, slot_or_shard: frame.slotOrShard,
      topology: frame.topology, deadline_or_retry_ms: frame.deadlineOrRetryMs,
      request_id: text64(frame.requestId), body: hex(frame.body),
    };
  },
  batch: (bytes) => ({ items: decodeBatch(bytes).map(hex) }),
  'reply-item': (bytes) => {
    const reply = decodeReply(bytes);
    return {
      status: reply.status, reason: reply.reason, item: reply.item, level: reply.level,
      instruction: reply.instruction, left_range: reply.leftRange, is_shown: reply.isShown,
      is_replayed: reply.isReplayed, version: version(reply.version),
      expiry: reply.expiry && {
        expiry_ms: text64(reply.expiry.expiryMs), time_ms: text64(reply.expiry.timeMs),
      },
      standing: reply.standing && {
        age_us: text64(reply.standing.ageUs), through: version(reply.standing.through),
      },
      value: hex(reply.value),
    };
  },
  'scan-page': (bytes) => {
    const page = decodePage(bytes);
    return {
      cursor: text64(page.cursor),
      keys: page.keys.map((one) => ({
        key: hex(one.key), version: version(one.version), value: one.value && hex(one.value),
        is_value_too_long: one.isValueTooLong,
      })),
    };
  },
  'server-hello': (bytes) => {
    const hello = decodeServerHello(bytes);
    return {
      protocol: hello.protocol, shard: hello.shard, shards: hello.shards,
      auth_methods: hello.authMethods, frame_bytes_max: hello.frameBytesMax,
      value_bytes_max: hello.valueBytesMax, key_bytes_max: hello.keyBytesMax,
      items_max: hello.itemsMax, instructions_max: hello.instructionsMax,
      topology: hello.topology, interval_ms: hello.intervalMs, cluster_id: hello.clusterId,
      node_id: hello.nodeId, nonce: hex(hello.nonce), incarnation: text64(hello.incarnation),
      features: text64(hello.features), slots: hello.slots, placement: hello.placement,
    };
  },
  'request-item': requests.decodeRequest,
  'apply-item': requests.decodeApply,
  'run-item': requests.decodeRun,
  'scan-item': requests.decodeScan,
  'ping-item': requests.decodePing,
  'client-hello': requests.decodeClientHello,
  instruction: (bytes) => requests.decodeInstruction(bytes),
};

/** How each kind that a client sends is encoded again; null where this client sends no such. */
const ENCODERS = {
  frame(told) {
    // The words that a client does not choose are 0, and it sends no reply.
    if (told.flags !== 0 || told.topology !== 0 || told.slot_or_shard !== 0xffff) return null;
    return encodeFrame(told.opcode, BigInt(told.request_id), unhex(told.body),
      told.level_or_status, told.deadline_or_retry_ms);
  },
  batch: (told) => encodeBatch(told.items.map(unhex), 1, 2, 0).subarray(32),
  'client-hello': (told) => encodeHello(told.name, BigInt(told.features), told.protocol_min,
    told.protocol_max),
  'scan-item': (told) => encodeScan({
    prefix: unhex(told.prefix), cursor: BigInt(told.cursor), keysMax: told.keys_max,
    bytesMax: told.bytes_max, withValues: told.wants_values,
  }),
  'run-item': (told) => encodeRun({
    id: BigInt(told.program), keys: told.keys.map(unhex), values: unhex(told.arguments),
    argumentCount: told.argument_count, token: tokenOf(told),
  }),
  'request-item': encodeRequest,
  'apply-item': encodeOfApply,
  instruction: (told) => encodeInstructions([instructionOf(told)]),
};

const isTextToken = (token) => /^[0-9a-f]{64}$/.test(token);
const tokenOf = (told) => (told.token === null ? undefined : tokenBytes(told.token));

const UPDATE_CODES = {
  EXISTS: 1, ABSENT: 2, '=': 3, '!=': 4, '<': 5, '<=': 6, '>': 7, '>=': 8,
  set: 16, add: 17, subtract: 18,
};

function instructionOf(told) {
  const { type, offset } = new Field(told.type, told.offset);
  return new Instruction({
    operation: UPDATE_CODES[told.operation], type, offset, key: told.key, reason: told.reason,
    operand: BigInt(told.immediate),
  });
}

function encodeRequest(told) {
  const operation = OPERATIONS[told.operation];
  if (operation === undefined || told.member || isTextToken(told.token)) return null;
  const { condition, expiry } = told;
  let flags = told.shows ? FLAGS.SHOWS : 0;
  if (condition === 'absent') flags |= FLAGS.ABSENT;
  else if (condition === 'present') flags |= FLAGS.PRESENT;
  else if (condition) flags |= FLAGS.VERSION;
  if (told.wanted === 'value and expiry') flags |= FLAGS.AT;
  if (told.wanted === 'expiry') flags |= FLAGS.IN;
  if (expiry?.at_ms) flags |= FLAGS.AT;
  if (expiry?.in_ms) flags |= FLAGS.IN;
  if (expiry === (told.operation === 'SET' ? 'keep' : 'never')) flags |= FLAGS.OTHER;
  if (told.operation === 'UPDATE_IF' && told.value !== null) flags |= FLAGS.START;
  const ask = { key: unhex(told.key), flags, token: tokenOf(told) };
  if (told.second_key !== null) ask.second = unhex(told.second_key);
  if (told.value !== null) ask.value = unhex(told.value);
  if (condition?.sequence) ask.version = { ...condition, sequence: BigInt(condition.sequence) };
  const expiryMs = expiry?.at_ms ?? expiry?.in_ms;
  if (expiryMs) ask.expiryMs = BigInt(expiryMs);
  if (told.operation === 'UPDATE_IF') {
    ask.instructions = encodeInstructions(told.instructions.map(instructionOf));
  }
  return encodePlain(operation, ask);
}

const APPLY_CODES = {
  ...UPDATE_CODES, VERSION: 9, BEFORE: 10, SINCE: 11, ALL_BITS: 12, ANY_BIT: 13, NO_BITS: 14,
  'add up to the border': 19, 'subtract down to the border': 20, min: 21, max: 22, and: 23,
  or: 24, xor: 25, PUT: 26, START: 27, DEL: 28, EXPIRE: 29, RATE: 30, RETURN: 31, ON_EXPIRE: 32,
  REPLACE: 33, ABSENT_SINCE: 35,
};

function encodeOfApply(told) {
  if (isTextToken(told.token)) return null;
  const bytes = Buffer.alloc(16 * told.instructions.length);
  told.instructions.forEach((one, number) => {
    const field = one.number ? new Field(one.number.type, one.number.offset) : {};
    const parts = {
      operation: APPLY_CODES[one.operation], key: one.key, reason: one.reason,
      type: field.type, offset: field.offset, operand: operandOf(one),
    };
    if (one.version) parts.offset = one.version.epoch;
    if (one.operation === 'ON_EXPIRE') parts.offset = one.effects;
    if (one.data) parts.data = Buffer.alloc(one.data.length);
    new Instruction(parts).write(bytes, 16 * number, one.data?.start);
  });
  return encodeApply({
    keys: told.keys.map(unhex), instructions: bytes, data: unhex(told.data), token: tokenOf(told),
  });
}

function operandOf({ operand, version: told, rate }) {
  if (told) return BigInt(told.sequence);
  if (rate) {
    return BigInt(rate.interval_us) | (BigInt(rate.burst) << 40n) | (BigInt(rate.quantity) << 56n);
  }
  if (operand?.immediate !== undefined) return BigInt(operand.immediate);
  if (operand?.now_plus_ms !== undefined) return new Now(BigInt(operand.now_plus_ms));
  if (operand) return new Field(operand.number.type, operand.number.offset, operand.key);
  return 0;
}

for (const [kind, decode] of Object.entries(DECODERS)) {
  describe(`vectors: ${kind}`, () => {
    const vectors = readJson(`net/vectors/${kind}.json`);
    test('all of them are as they must be', () => {
      assert.ok(vectors.length > 0);
      for (const vector of vectors) {
        const what = `${vector.id}, ${vector.description}`;
        const bytes = unhex(vector.hex);
        if (vector.must === 'reject') {
          assert.throws(() => decode(bytes), (error) => {
            assert.ok(error instanceof WireFault, `${what}: ${error.stack}`);
            assert.equal(error.status, vector.error.status, `${what}: ${error.message}`);
            return true;
          }, what);
          continue;
        }
        assert.deepEqual(decode(bytes), vector.decoded, what);
      }
    });
    test('what this client sends is the same bytes again', { skip: !ENCODERS[kind] }, () => {
      let count = 0;
      for (const vector of vectors.filter(({ must }) => must === 'accept')) {
        const again = ENCODERS[kind](vector.decoded);
        if (again === null) continue;
        assert.equal(hex(again), vector.hex, `${vector.id}, ${vector.description}`);
        count += 1;
      }
      assert.ok(count > 0, 'none is sent by this client');
    });
  });
}
