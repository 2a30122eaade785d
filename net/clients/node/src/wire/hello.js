// HELLO: what client and server tell of themselves.

import { check } from './fault.js';
import { padded, readU64, writeU64 } from './numbers.js';

/** Feature bits of the server that this client asks about. */
export const FEATURES = Object.freeze({
  EXPIRY: 0, SCAN: 1, PLACEMENT: 3, MEMBER: 4, SHOWS: 5, APPLY: 7, TOKENS: 8, ON_EXPIRE: 9,
  RUN: 10, REPLACE: 11, ABSENT_SINCE: 12, LATER_WRITER: 13, LEVEL_ALL: 14, MANY_KEYS: 16,
  TEXT_TOKENS: 17, MEMBERS: 18,
});
/** What this client wants: flag 0x20 of replies, level `all`, and WRONG_TYPE. */
export const WANTED = (1 << 13) | (1 << 14) | (1 << 18);
const FIXED_BYTES = 120;
const SLOTS = 16384;
const PARTITIONS = 256;

/** Whether the bit is set in features, a Number or a BigInt. */
export const hasFeature = (features, bit) => ((BigInt(features) >> BigInt(bit)) & 1n) === 1n;

/** The body of a HELLO request. */
export function encodeHello(name, features = WANTED, lowest = 1, highest = 1) {
  const text = Buffer.from(name, 'utf8');
  if (text.length > 64) throw new RangeError('the name of a client has at most 64 bytes');
  const body = Buffer.alloc(24 + padded(text.length));
  body.writeUInt16LE(lowest, 0);
  body.writeUInt16LE(highest, 2);
  writeU64(body, 8, features);
  body.writeUInt16LE(text.length, 16);
  body.set(text, 24);
  return body;
}

/** The body of a HELLO reply. */
export function decodeServerHello(body) {
  check(body.length >= FIXED_BYTES, () => `HELLO body of ${body.length} bytes; it needs 120`);
  const ranges = body.readUInt16LE(112);
  const behind = FIXED_BYTES + 8 * ranges;
  check(body.length >= behind, () => `HELLO body of ${body.length} bytes; it needs ${behind}`);
  const features = readU64(body, 48);
  const slots = [];
  for (let at = FIXED_BYTES; at < behind; at += 8) {
    const first = body.readUInt16LE(at);
    const last = body.readUInt16LE(at + 2);
    check(first <= last && last < SLOTS, () => `a range of slots from ${first} to ${last}`);
    slots.push({
      first, last, shard: body.readUInt16LE(at + 4), port: body.readUInt16LE(at + 6),
    });
  }
  return {
    protocol: body.readUInt16LE(0),
    shard: body.readUInt16LE(2),
    shards: body.readUInt16LE(4),
    authMethods: body.readUInt16LE(6),
    clusterId: body.toString('hex', 8, 24),
    nodeId: body.toString('hex', 24, 40),
    incarnation: readU64(body, 40),
    features,
    nonce: Buffer.from(body.subarray(56, 88)),
    frameBytesMax: body.readUInt32LE(88),
    valueBytesMax: body.readUInt32LE(92),
    keyBytesMax: body.readUInt16LE(96),
    itemsMax: body.readUInt16LE(98),
    instructionsMax: body.readUInt16LE(100),
    topology: body.readUInt16LE(102),
    intervalMs: body.readUInt32LE(104),
    timeMs: body.readUIntLE(114, 6),
    slots,
    placement: hasFeature(features, FEATURES.PLACEMENT) ? decodePlacement(body, behind) : null,
  };
}

function decodePlacement(body, begin) {
  check(body.length >= begin + 8, 'the placement in HELLO is shorter than its head');
  const nodeCount = body.readUInt16LE(begin + 4);
  const rangeCount = body.readUInt16LE(begin + 6);
  check(rangeCount <= PARTITIONS, 'the placement tells more ranges than there are partitions');
  check(nodeCount <= PARTITIONS, 'the placement tells more nodes than there can be');
  let at = begin + 8;
  const nodes = [];
  for (let node = 0; node < nodeCount; node += 1) {
    check(body.length >= at + 8, 'the placement tells more nodes than it has room for');
    const length = body[at + 1];
    const end = at + 8 + padded(length);
    check(length > 0, 'the address of a node is empty');
    check(body.length >= end, 'the address of a node is cut off');
    nodes.push({ number: body[at], address: decodeUtf8(body.subarray(at + 8, at + 8 + length)) });
    at = end;
  }
  check(body.length >= at + 16 * rangeCount, 'the ranges of the placement are cut off');
  const ranges = [];
  for (let range = 0; range < rangeCount; range += 1, at += 16) {
    const first = body.readUInt16LE(at);
    const last = body.readUInt16LE(at + 2);
    check(first <= last && last < PARTITIONS, 'a range names partitions that cannot be');
    ranges.push({ first, last, node: body[at + 4], generation: body.readUInt32LE(at + 8) });
  }
  return { version: body.readUInt32LE(begin), nodes, ranges };
}

const UTF8 = new TextDecoder('utf-8', { fatal: true });

function decodeUtf8(bytes) {
  try {
    return UTF8.decode(bytes);
  } catch {
    return check(false, 'the address of a node is not UTF-8');
  }
}
