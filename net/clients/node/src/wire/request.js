// Items of requests, as bytes.

import { padded, writeU64, zeros } from './numbers.js';

export const OPERATIONS = Object.freeze({
  GET: 1, SET: 2, DEL: 3, UPDATE_IF: 4, SCAN: 5, APPLY: 10, RUN: 11,
});
export const FLAGS = Object.freeze({
  ABSENT: 0x01, PRESENT: 0x02, VERSION: 0x04, SHOWS: 0x08, START: 0x10,
  AT: 0x20, IN: 0x40, OTHER: 0x60,
});
const NOTHING = Buffer.alloc(0);
const TAG_TOKEN = 1;
const INSTRUCTION_BYTES = 16;
const LENGTHS_AT_ONCE = 8;

/** Bytes behind a token in the extension area. */
export const TOKEN_AREA_BYTES = 32;

/** GET, SET, DEL and UPDATE_IF. `ask` has `key`, and what else there is. */
export function encodePlain(operation, ask) {
  const { key, flags = 0, second = NOTHING, value = NOTHING, version, expiryMs, token } = ask;
  const instructions = ask.instructions ?? NOTHING;
  const extension = token === undefined ? 0 : TOKEN_AREA_BYTES;
  const block = 16 + (version ? 16 : 0) + (expiryMs === undefined ? 0 : 8) +
    instructions.length + extension;
  const behindKeys = block + padded(key.length) + padded(second.length);
  const item = zeros(behindKeys + padded(value.length));
  item.writeUInt16LE(block, 0);
  item[2] = operation;
  item[3] = flags;
  item[4] = second.length > 0 ? 2 : 1;
  item[5] = instructions.length / INSTRUCTION_BYTES;
  item.writeUInt16LE(extension, 6);
  item.writeUInt16LE(key.length, 8);
  item.writeUInt16LE(second.length, 10);
  item.writeUInt32LE(value.length, 12);
  let at = 16;
  if (version) {
    item.writeUInt32LE(version.epoch, at);
    writeU64(item, at + 8, version.sequence);
    at += 16;
  }
  if (expiryMs !== undefined) {
    writeU64(item, at, expiryMs);
    at += 8;
  }
  item.set(instructions, at);
  if (token !== undefined) writeToken(item, at + instructions.length, token);
  item.set(key, block);
  item.set(second, block + padded(key.length));
  item.set(value, behindKeys);
  return item;
}

function writeToken(item, at, token) {
  item.writeUInt16LE(TOKEN_AREA_BYTES, at);
  item.writeUInt16LE(1, at + 2);
  item.writeUInt16LE(TAG_TOKEN, at + 8);
  item.writeUInt16LE(token.length, at + 10);
  item.set(token, at + 16);
}

/** APPLY of up to 255 keys. */
export function encodeApply({ keys, instructions, data, token }) {
  const extension = token === undefined ? 0 : TOKEN_AREA_BYTES;
  const block = 32 + instructions.length + extension;
  const more = keys.slice(LENGTHS_AT_ONCE);
  const item = zeros(
    block + bytesOf(keys) + padded(2 * more.length) + padded(data.length),
  );
  writeHead(item, OPERATIONS.APPLY, block, keys, extension);
  item[5] = instructions.length / INSTRUCTION_BYTES;
  item.writeUInt32LE(data.length, 12);
  item.set(instructions, 32);
  if (token !== undefined) writeToken(item, 32 + instructions.length, token);
  let at = writeKeys(item, block, keys.slice(0, LENGTHS_AT_ONCE));
  more.forEach((key, number) => item.writeUInt16LE(key.length, at + 2 * number));
  at = writeKeys(item, at + padded(2 * more.length), more);
  item.set(data, at);
  return item;
}

/** RUN of a program. `values` are the bytes of its arguments. */
export function encodeRun({ id, keys, values, argumentCount, token }) {
  const extension = token === undefined ? 0 : TOKEN_AREA_BYTES;
  const block = 40 + extension;
  const item = zeros(block + bytesOf(keys) + values.length);
  writeHead(item, OPERATIONS.RUN, block, keys, extension);
  item[5] = argumentCount;
  item.writeUInt32LE(values.length, 12);
  writeU64(item, 32, id);
  if (token !== undefined) writeToken(item, 40, token);
  item.set(values, writeKeys(item, block, keys));
  return item;
}

const bytesOf = (keys) => keys.reduce((bytes, key) => bytes + padded(key.length), 0);

function writeHead(item, operation, block, keys, extension) {
  item.writeUInt16LE(block, 0);
  item[2] = operation;
  item[4] = keys.length;
  item.writeUInt16LE(extension, 6);
  for (let number = 0; number < Math.min(keys.length, LENGTHS_AT_ONCE); number += 1) {
    const at = number < 2 ? 8 + 2 * number : 12 + 2 * number;
    item.writeUInt16LE(keys[number].length, at);
  }
}

function writeKeys(item, begin, keys) {
  let at = begin;
  for (const key of keys) {
    item.set(key, at);
    at += padded(key.length);
  }
  return at;
}

/** SCAN of one page. */
export function encodeScan({ prefix, cursor, keysMax, bytesMax, withValues }) {
  const item = zeros(32 + padded(prefix.length));
  item.writeUInt16LE(32, 0);
  item[2] = OPERATIONS.SCAN;
  item[3] = withValues ? 1 : 0;
  item[4] = 1;
  item.writeUInt16LE(prefix.length, 8);
  writeU64(item, 16, cursor);
  item.writeUInt32LE(keysMax, 24);
  item.writeUInt32LE(bytesMax, 28);
  item.set(prefix, 32);
  return item;
}
