// Frames: a header of 32 bytes and a body, each with a CRC.

import { crc32 } from 'node:zlib';

import { WireFault, check } from './fault.js';
import { readU64, writeU64 } from './numbers.js';

export const HEADER_BYTES = 32;
export const OPCODES = Object.freeze({ HELLO: 1, PING: 2, INFO: 3, BATCH: 0x10, AUTH: 0x13 });
export const FLAG_REPLY = 0x01;
export const FLAG_MORE = 0x04;
const MAGIC = 0xe7;
const PROTOCOL = 1;
const NO_SLOT = 0xffff;

/** Writes the header of a frame whose body stands in it already. */
export function sealFrame(frame, opcode, requestId, level = 0, deadlineMs = 0, slot = NO_SLOT) {
  frame.writeUInt32LE(frame.length, 0);
  frame[4] = MAGIC;
  frame[5] = PROTOCOL;
  frame[6] = opcode;
  frame[7] = 0;
  writeU64(frame, 8, requestId);
  frame.writeUInt16LE(level, 16);
  frame.writeUInt16LE(slot, 18);
  frame.writeUInt16LE(0, 20);
  frame.writeUInt16LE(deadlineMs, 22);
  const body = frame.length > HEADER_BYTES ? crc32(frame.subarray(HEADER_BYTES)) : 0;
  frame.writeUInt32LE(body, 24);
  frame.writeUInt32LE(crc32(frame.subarray(0, 28)), 28);
  return frame;
}

/** A frame with this body. */
export function encodeFrame(opcode, requestId, body, level, deadlineMs) {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + body.length);
  frame.set(body, HEADER_BYTES);
  return sealFrame(frame, opcode, requestId, level, deadlineMs);
}

/** The length that a frame tells in its header, which is checked. */
export function frameLength(bytes, at, bytesMax) {
  check(bytes[at + 4] === MAGIC, () => 'this is not the Penstock protocol');
  const headerCrc = crc32(bytes.subarray(at, at + 28));
  check(headerCrc === bytes.readUInt32LE(at + 28), 'the header CRC of a frame is wrong');
  check(bytes[at + 5] === PROTOCOL, () => `protocol version is 1, not ${bytes[at + 5]}`);
  const length = bytes.readUInt32LE(at);
  check(length >= HEADER_BYTES && length % 8 === 0, () => `a frame has no ${length} bytes`);
  check(length <= bytesMax, () => `frame of ${length} bytes; at most ${bytesMax} are accepted`,
    'TOO_LARGE');
  return length;
}

/** The frame that begins at a place. INCOMPLETE if more bytes are needed. */
export function decodeFrame(bytes, at, bytesMax) {
  const there = bytes.length - at;
  check(there >= HEADER_BYTES, '32 bytes are needed', 'INCOMPLETE');
  const length = frameLength(bytes, at, bytesMax);
  check(there >= length, () => `${length} bytes are needed`, 'INCOMPLETE');
  return wholeFrame(bytes, at, length);
}

/** The frame of this length, whose header is checked. */
function wholeFrame(bytes, at, length) {
  const body = bytes.subarray(at + HEADER_BYTES, at + length);
  const bodyCrc = body.length > 0 ? crc32(body) : 0;
  check(bodyCrc === bytes.readUInt32LE(at + 24), 'the body CRC of a frame is wrong');
  return {
    length,
    opcode: bytes[at + 6],
    flags: bytes[at + 7],
    requestId: readU64(bytes, at + 8),
    levelOrStatus: bytes.readUInt16LE(at + 16),
    slotOrShard: bytes.readUInt16LE(at + 18),
    topology: bytes.readUInt16LE(at + 20),
    deadlineOrRetryMs: bytes.readUInt16LE(at + 22),
    body,
  };
}

/** Takes bytes as they arrive, cut anywhere, and gives whole frames. */
export class FrameReader {
  #parts = [];
  #bytes = 0;
  #needed = HEADER_BYTES;

  /** Bytes of a frame, at most. */
  bytesMax;

  constructor(bytesMax) {
    this.bytesMax = bytesMax;
  }

  /** Calls `take` with each frame that is whole now, in their order. */
  push(chunk, take) {
    this.#parts.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes < this.#needed) return;
    const bytes = this.#parts.length === 1 ? chunk : Buffer.concat(this.#parts, this.#bytes);
    let at = 0;
    this.#needed = HEADER_BYTES;
    while (bytes.length - at >= HEADER_BYTES) {
      const length = frameLength(bytes, at, this.bytesMax);
      if (bytes.length - at < length) {
        this.#needed = length;
        break;
      }
      take(wholeFrame(bytes, at, length));
      at += length;
    }
    this.#bytes = bytes.length - at;
    this.#parts = this.#bytes > 0 ? [bytes.subarray(at)] : [];
  }
}

/** A text with its length in front, as INFO and refusals of frames have it. */
export function decodeText(body) {
  if (body.length < 8) throw new WireFault('a text is cut off');
  const length = body.readUInt32LE(0);
  check(length <= body.length - 8, 'a text is cut off');
  return body.toString('utf8', 8, 8 + length);
}
