// Items of replies, and pages of SCAN.

import { check } from './fault.js';
import { isZero, padded, readU64 } from './numbers.js';
import { LEVELS, statusName } from './status.js';

const FIXED_BYTES = 24;
const NO_INSTRUCTION = 0xff;
const FLAG_LEFT_RANGE = 0x01;
const FLAG_EXPIRY = 0x02;
const FLAG_STANDING = 0x04;
const FLAG_SHOWN = 0x08;
const FLAG_REPLAYED = 0x10;
const FLAG_LATER_WRITER = 0x20;

/** One item of a reply. */
export function decodeReply(item) {
  check(item.length >= FIXED_BYTES, () => `item of ${item.length} bytes; it needs 24`);
  const code = item.readUInt16LE(0);
  const status = statusName(code);
  check(status !== undefined, () => `status 0x${code.toString(16)} is not known`);
  const level = LEVELS[item[3]];
  check(level !== undefined, () => `ack level is 0 to 4, not ${item[3]}`);
  const flags = item[7];
  let at = FIXED_BYTES;
  const length = item.readUInt32LE(8);
  if (flags & FLAG_EXPIRY) at += 16;
  if (flags & FLAG_STANDING) at += 24;
  const needed = at + padded(length);
  check(item.length === needed, () => `item of ${item.length} bytes; it needs ${needed}`);
  const reply = {
    status,
    reason: item[2],
    level,
    item: item.readUInt16LE(4),
    instruction: item[6] === NO_INSTRUCTION ? null : item[6],
    leftRange: (flags & FLAG_LEFT_RANGE) !== 0,
    isShown: (flags & FLAG_SHOWN) !== 0,
    isReplayed: (flags & FLAG_REPLAYED) !== 0,
    byLaterWriter: (flags & FLAG_LATER_WRITER) !== 0,
    version: { epoch: item.readUInt32LE(12), sequence: readU64(item, 16) },
    expiry: null,
    standing: null,
    value: item.subarray(at, at + length),
  };
  if (flags & FLAG_EXPIRY) {
    reply.expiry = { expiryMs: readU64(item, FIXED_BYTES), timeMs: readU64(item, 32) };
  }
  if (flags & FLAG_STANDING) reply.standing = decodeStanding(item, at - 24);
  return reply;
}

function decodeStanding(item, at) {
  check(item.readUInt32LE(at + 12) === 0, 'the word behind the epoch is 0');
  return {
    ageUs: readU64(item, at),
    through: { epoch: item.readUInt32LE(at + 8), sequence: readU64(item, at + 16) },
  };
}

/** The value of the reply to a SCAN. */
export function decodePage(page) {
  check(page.length >= 16, () => `page of ${page.length} bytes; it needs 16`);
  const count = page.readUInt32LE(8);
  const keys = [];
  let at = 16;
  for (let entry = 0; entry < count; entry += 1) {
    const told = decodeEntry(page, at);
    check(told !== null, () => `entry ${entry} of a page does not fit the page`);
    keys.push(told.entry);
    at = told.end;
  }
  check(at === page.length && isZero(page, 12, 16),
    () => `entry ${count} of a page does not fit the page`);
  return { cursor: readU64(page, 0), keys };
}

function decodeEntry(page, at) {
  if (page.length < at + 24) return null;
  const keyBytes = page.readUInt16LE(at);
  const flags = page[at + 2];
  const valueBytes = page.readUInt32LE(at + 4);
  const valueAt = at + 24 + padded(keyBytes);
  const end = valueAt + padded(valueBytes);
  const isFit = keyBytes >= 1 && keyBytes <= 1024 && end <= page.length && flags <= 2 &&
    page[at + 3] === 0 && page.readUInt32LE(at + 12) === 0 && (flags === 1 || valueBytes === 0);
  if (!isFit) return null;
  return {
    end,
    entry: {
      key: page.subarray(at + 24, at + 24 + keyBytes),
      version: { epoch: page.readUInt32LE(at + 8), sequence: readU64(page, at + 16) },
      value: flags === 1 ? page.subarray(valueAt, valueAt + valueBytes) : null,
      isValueTooLong: flags === 2,
    },
  };
}
