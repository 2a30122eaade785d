// A server of a few lines, whose answers a test chooses.

import { createServer } from 'node:net';
import { crc32 } from 'node:zlib';

import { FrameReader, OPCODES, encodeFrame } from '../src/wire/frame.js';
import { decodeBatch } from '../src/wire/batch.js';
import { padded } from '../src/wire/numbers.js';
import { readJson } from './programs.js';

const ALL_FEATURES = (1n << 19n) - 1n - (1n << 3n);
const STATUSES = {
  OK: 0, GUARD_FAILED: 0x0101, NOT_FOUND: 0x0102, MOVED: 0x0201, BUSY: 0x0301, DEADLINE: 0x0302,
  DENIED: 0x040a, NOREPLICAS: 0x0602,
};

/** The body of HELLO's reply, from a vector. */
export function helloBody({
  features = ALL_FEATURES, shard = 0, slots = [], nodeId = 0xabcd, methods = 1,
} = {}) {
  const vector = readJson('net/vectors/server-hello.json')[0];
  const fixed = Buffer.from(vector.hex, 'hex').subarray(0, 120);
  fixed.writeUInt16LE(shard, 2);
  fixed.writeUInt16LE(methods, 6);
  fixed.fill(0, 24, 40);
  fixed.writeUInt32LE(nodeId, 24);
  fixed.writeBigUInt64LE(features, 48);
  fixed.writeUInt16LE(slots.length, 112);
  const ranges = slots.map(([first, last, of, port]) => {
    const range = Buffer.alloc(8);
    [first, last, of, port].forEach((word, at) => range.writeUInt16LE(word, 2 * at));
    return range;
  });
  return Buffer.concat([fixed, ...ranges]);
}

/** A frame of a reply: a status for the frame, and bytes 22 and 23. */
export function reply(opcode, requestId, body, { status = 0, retryMs = 0, flags = 1 } = {}) {
  const frame = encodeFrame(opcode, requestId, body, status, retryMs);
  frame[7] = flags;
  return encodeAgain(frame);
}

/** A frame whose header was changed gets a CRC anew. */
function encodeAgain(frame) {
  frame.writeUInt32LE(crc32(frame.subarray(0, 28)), 28);
  return frame;
}

/** Items of a reply: {status, item, value, epoch, sequence, flags}. */
export function batchReply(requestId, items, parts) {
  const encoded = items.map((one, number) => {
    const value = Buffer.from(one.value ?? '');
    const item = Buffer.alloc(24 + padded(value.length));
    item.writeUInt16LE(STATUSES[one.status ?? 'OK'], 0);
    item[3] = 2;
    item.writeUInt16LE(one.item ?? number, 4);
    item[6] = 0xff;
    item[7] = one.flags ?? 0;
    item.writeUInt32LE(value.length, 8);
    item.writeUInt32LE(one.epoch ?? 256, 12);
    item.writeUInt32LE(one.sequence ?? 1, 16);
    item.set(value, 24);
    return item;
  });
  const index = Buffer.alloc(8 + 8 * encoded.length);
  index.writeUInt32LE(encoded.length, 0);
  let place = index.length;
  encoded.forEach((item, number) => {
    index.writeUInt32LE(place, 8 + 8 * number);
    index.writeUInt32LE(item.length, 12 + 8 * number);
    place += item.length;
  });
  return reply(OPCODES.BATCH, requestId, Buffer.concat([index, ...encoded]), parts);
}

/**
 * A peer on a free port. `onBatch(frame, items, socket, peer)` answers each batch; without it
 * nothing does. `hello` are the parts of HELLO's reply, or false for no answer.
 */
export async function startPeer({ hello = {}, onBatch, onConnect } = {}) {
  const sockets = new Set();
  const peer = { batches: 0, connections: 0, hello };
  const server = createServer((socket) => {
    peer.connections += 1;
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => sockets.delete(socket));
    onConnect?.(socket);
    const reader = new FrameReader(1 << 20);
    socket.on('data', (chunk) => reader.push(chunk, (frame) => {
      if (frame.opcode === OPCODES.HELLO && peer.hello) {
        socket.write(reply(OPCODES.HELLO, frame.requestId, helloBody(peer.hello)));
      } else if (frame.opcode === OPCODES.BATCH) {
        peer.batches += 1;
        onBatch?.(frame, decodeBatch(frame.body), socket, peer);
      }
    }));
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  peer.port = server.address().port;
  peer.address = `127.0.0.1:${peer.port}`;
  peer.stop = () => {
    for (const socket of sockets) socket.destroy();
    server.close();
  };
  return peer;
}

/** Answers each item OK, with the key as its value. */
export function echo(frame, items, socket) {
  const values = items.map((item) => {
    const begin = item.readUInt16LE(0);
    return { value: item.subarray(begin, begin + item.readUInt16LE(8)) };
  });
  socket.write(batchReply(frame.requestId, values));
}
