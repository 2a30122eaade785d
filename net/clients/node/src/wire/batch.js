// The body of a BATCH: an index, and items behind it.

import { check } from './fault.js';
import { HEADER_BYTES, OPCODES, sealFrame } from './frame.js';

export const ITEMS_MAX = 1024;

/** Bytes of a frame with these items. */
export function batchFrameBytes(items) {
  let bytes = HEADER_BYTES + 8 + 8 * items.length;
  for (const item of items) bytes += item.length;
  return bytes;
}

/** A whole frame with these items. */
export function encodeBatch(items, requestId, level, deadlineMs, slot) {
  const frame = Buffer.allocUnsafe(batchFrameBytes(items));
  frame.writeUInt32LE(items.length, HEADER_BYTES);
  frame.writeUInt32LE(0, HEADER_BYTES + 4);
  let entry = HEADER_BYTES + 8;
  let place = 8 + 8 * items.length;
  for (const item of items) {
    frame.writeUInt32LE(place, entry);
    frame.writeUInt32LE(item.length, entry + 4);
    frame.set(item, HEADER_BYTES + place);
    entry += 8;
    place += item.length;
  }
  return sealFrame(frame, OPCODES.BATCH, requestId, level, deadlineMs, slot);
}

/** The items of a body. */
export function decodeBatch(body) {
  check(body.length >= 16, () => `batch body of ${body.length} bytes; it needs 16`);
  const count = body.readUInt32LE(0);
  check(count >= 1 && count <= ITEMS_MAX, () => `a batch has 1 to 1024 items, not ${count}`);
  check(body.readUInt32LE(4) === 0, 'the word behind the count of a batch is 0');
  let place = 8 + 8 * count;
  check(body.length >= place, () => `batch body of ${body.length} bytes; it needs ${place}`);
  const items = new Array(count);
  for (let at = 0; at < count; at += 1) {
    const start = body.readUInt32LE(8 + 8 * at);
    const length = body.readUInt32LE(12 + 8 * at);
    const fits = length > 0 && length % 8 === 0 && length <= body.length - place;
    check(start === place && fits, () => `item ${at} of a batch is out of its place`);
    items[at] = body.subarray(start, start + length);
    place += length;
  }
  check(place === body.length, 'bytes stand behind the last item of a batch');
  return items;
}
