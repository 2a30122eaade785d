// Frames that are cut anywhere, numbers, slots, tokens, fields and layouts.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';

import { Field, Layout, now } from '../src/index.js';
import { RetryBudget, busyPause, movedPause } from '../src/budget.js';
import { ServerTime } from '../src/server-time.js';
import { encodeInstructions, readNumber, TYPES } from '../src/fields.js';
import { FrameReader, decodeFrame, encodeFrame } from '../src/wire/frame.js';
import { encodeBatch, decodeBatch } from '../src/wire/batch.js';
import { decodeReply } from '../src/wire/reply.js';
import { encodePlain, OPERATIONS } from '../src/wire/request.js';
import { readU64, readI64, writeU64, writeBits } from '../src/wire/numbers.js';
import { crc16, slotOf } from '../src/wire/slot.js';
import { newTokenBytes, tokenBytes, tokenText } from '../src/wire/token.js';

const BYTES_MAX = 1 << 20;

/** The blocks of bytes of SESSION.md. */
function session() {
  const text = readFileSync(new URL('../../../SESSION.md', import.meta.url), 'utf8');
  const blocks = text.split('```')[1].split(/^\S.*$/m);
  return blocks.map((block) => Buffer.from(block.replace(/\s/g, ''), 'hex'))
    .filter((block) => block.length > 0);
}

describe('frames', () => {
  test('a stream of frames that is cut at every byte gives the same frames', () => {
    const frames = session();
    assert.equal(frames.length, 10);
    const stream = Buffer.concat(frames);
    for (let cut = 0; cut <= stream.length; cut += 1) {
      const reader = new FrameReader(BYTES_MAX);
      const got = [];
      reader.push(stream.subarray(0, cut), (frame) => got.push(frame.body.toString('hex')));
      reader.push(stream.subarray(cut), (frame) => got.push(frame.body.toString('hex')));
      assert.deepEqual(got, frames.map((frame) => frame.toString('hex', 32)), `cut at ${cut}`);
    }
  });

  test('a stream that comes byte by byte gives the same frames', () => {
    const frames = session();
    const reader = new FrameReader(BYTES_MAX);
    const got = [];
    for (const byte of Buffer.concat(frames)) {
      reader.push(Buffer.of(byte), (frame) => got.push(frame.length));
    }
    assert.deepEqual(got, frames.map((frame) => frame.length));
  });

  test('a flipped bit anywhere in a frame is found', () => {
    const [, , , answer] = session();
    for (let bit = 0; bit < answer.length * 8; bit += 1) {
      const damaged = Buffer.from(answer);
      damaged[bit >> 3] ^= 1 << (bit & 7);
      assert.throws(() => decodeFrame(damaged, 0, BYTES_MAX), undefined, `bit ${bit}`);
    }
  });

  test('a frame that is longer than is allowed is refused by its header', () => {
    const reader = new FrameReader(64);
    const frame = encodeFrame(2, 1, Buffer.alloc(64));
    assert.throws(() => reader.push(frame.subarray(0, 40), () => {}), { status: 'TOO_LARGE' });
  });

  test('an item that is cut anywhere is refused', () => {
    const items = decodeBatch(decodeFrame(session().at(-1), 0, BYTES_MAX).body);
    for (let cut = 0; cut < items[0].length; cut += 1) {
      assert.throws(() => decodeReply(items[0].subarray(0, cut)), { name: 'WireFault' });
    }
  });

  test('the bytes of the session are those that this client sends', () => {
    const [, , set, , update] = session();
    const value = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]);
    const key = Buffer.from('stock:42');
    assert.deepEqual(encodeBatch([encodePlain(OPERATIONS.SET, { key, value })], 2, 2, 0), set);
    const stock = new Field('u64');
    const instructions = encodeInstructions([stock.atLeast(1).orElse(7), stock.decrease(1)]);
    const item = encodePlain(OPERATIONS.UPDATE_IF, { key, instructions });
    assert.deepEqual(encodeBatch([item], 3, 2, 0), update);
  });
});

describe('numbers', () => {
  test('64 bits are a Number up to 2^53 - 1 and a BigInt beyond', () => {
    const bytes = Buffer.alloc(8);
    const beyond = [2n ** 53n, 2n ** 63n, 2n ** 64n - 1n];
    for (const number of [0, 1, 2 ** 32, Number.MAX_SAFE_INTEGER, ...beyond]) {
      writeU64(bytes, 0, number);
      assert.strictEqual(readU64(bytes, 0), number);
      assert.equal(bytes.readBigUInt64LE(0), BigInt(number));
    }
    for (const number of [0, -1, -Number.MAX_SAFE_INTEGER, -(2n ** 53n), -(2n ** 63n)]) {
      writeBits(bytes, 0, number);
      assert.strictEqual(readI64(bytes, 0), number);
    }
    for (const number of [-1, 1.5, 2 ** 53, Number.NaN, -1n, 2n ** 64n]) {
      assert.throws(() => writeU64(bytes, 0, number), RangeError);
    }
    for (const number of [1.5, 2 ** 53, 2n ** 64n, -(2n ** 63n) - 1n, '1', null]) {
      assert.throws(() => writeBits(bytes, 0, number), RangeError);
    }
  });

  test('a number of an answer has the sign of its type', () => {
    const bytes = Buffer.alloc(8, 0xff);
    assert.equal(readNumber(bytes, 0, TYPES.get('i32')), -1);
    assert.equal(readNumber(bytes, 0, TYPES.get('i64be')), -1);
    assert.equal(readNumber(bytes, 0, TYPES.get('decimal')), -1);
    assert.equal(readNumber(bytes, 0, TYPES.get('u64')), 2n ** 64n - 1n);
  });

  test('slots are those of PROTOCOL.md', () => {
    assert.equal(crc16(Buffer.from('123456789')), 0x31c3);
    assert.equal(slotOf(Buffer.from('foo')), 12182);
    assert.equal(slotOf(Buffer.from('a{foo}b')), 12182);
    assert.equal(slotOf(Buffer.from('{foo}{bar}')), 12182);
    assert.notEqual(slotOf(Buffer.from('{}foo')), 12182);
    assert.equal(slotOf(Buffer.from('{}foo')), crc16(Buffer.from('{}foo')) & 0x3fff);
    assert.equal(slotOf(Buffer.from('}{foo}')), 12182);
  });

  test('tokens are UUIDs of version 7 of their time, and none comes twice', () => {
    const seen = new Set();
    for (let count = 0; count < 2000; count += 1) {
      const bytes = newTokenBytes(0x0123456789ab);
      const text = tokenText(bytes);
      assert.match(text, /^01234567-89ab-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
      assert.deepEqual(tokenBytes(text), bytes);
      seen.add(text);
    }
    assert.equal(seen.size, 2000);
    for (const bad of ['', 'x', '01234567-89ab-4abc-8abc-0123456789ab', null]) {
      assert.throws(() => tokenBytes(bad), TypeError);
    }
  });
});

describe('fields', () => {
  test('what is for apply is refused by updateIf', () => {
    const stock = new Field('u32');
    for (const one of [stock.allBits(1), stock.lower(1), stock.equals(new Field('u32', 4)),
      stock.becomes(now()), stock.returned()]) {
      assert.throws(() => encodeInstructions([one]), TypeError);
    }
    assert.throws(() => encodeInstructions([{}]), TypeError);
    assert.throws(() => stock.atLeast(1.5), RangeError);
    assert.throws(() => stock.atLeast(1).orElse(256), RangeError);
    assert.throws(() => new Field('f32'), TypeError);
  });
});

describe('layouts', () => {
  const text = 'stock:u32@0;price_cents:u32@4;is_open:bool@8;name:text@9;=17';
  test('fields become bytes and come back, with texts behind the fixed fields', () => {
    const product = Layout.of('Product', text);
    const value = product.encode({ stock: 100, price_cents: 23_000, is_open: true, name: 'Yéti' });
    assert.equal(value.length, 17 + 5);
    assert.deepEqual(product.decode(value),
      { stock: 100, price_cents: 23_000, is_open: true, name: 'Yéti' });
    assert.deepEqual(product.decode(product.encode()),
      { stock: 0, price_cents: 0, is_open: false, name: '' });
    assert.deepEqual(product.fields.price_cents, new Field('u32', 4));
    assert.throws(() => product.field('name'), TypeError);
    assert.throws(() => product.encode({ stok: 1 }), TypeError);
    assert.throws(() => product.encode({ stock: 2 ** 32 }), RangeError);
    assert.throws(() => product.encode({ stock: -1 }), RangeError);
  });

  test('all types come back as they were', () => {
    const all = Layout.of('All', ['a:i64be@0', 'b:u16be@8', 'c:f64be@10', 'd:u8[4]@18',
      'e:i16[2]@22', 'f:{x:u8@0;y:i32@1;=5}[2]@26', 'g:f32@36', 'h:u64@40']);
    const fields = {
      a: -(2n ** 63n), b: 0xfeff, c: -0.1, d: Buffer.from('abcd'), e: [-1, 2],
      f: [{ x: 1, y: -1 }, { x: 2, y: 2 ** 31 - 1 }], g: 0.5, h: 2n ** 64n - 1n,
    };
    assert.equal(all.bytes, 48);
    const value = all.encode(fields);
    assert.deepEqual(all.decode(value), fields);
    assert.equal(value.readUInt16BE(8), 0xfeff);
    assert.deepEqual(all.field('f[1].y'), new Field('i32', 32));
    assert.deepEqual(all.field('e[1]'), new Field('i16', 24));
  });

  test('a shorter value tells the fields that it has, a broken one none', () => {
    const product = Layout.of('Product', text);
    assert.deepEqual(product.decode(Buffer.alloc(8)), { stock: 0, price_cents: 0 });
    const value = product.encode({ name: 'x' });
    value.writeUInt32LE(3, 9);
    assert.throws(() => product.decode(value), RangeError);
    value.writeUInt32LE(17, 9);
    value.writeUInt32LE(2 ** 32 - 1, 13);
    assert.throws(() => product.decode(value), RangeError);
    assert.throws(() => product.decode(Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 2])), RangeError);
    assert.throws(() => Layout.of('Bad', 'a:u99@0'), TypeError);
  });
});

describe('pauses', () => {
  test('ten operations earn one retry, and ten are kept', () => {
    const budget = new RetryBudget();
    const spent = () => {
      let count = 0;
      while (budget.take()) count += 1;
      return count;
    };
    assert.equal(spent(), 0);
    for (const [earned, retries] of [[9, 0], [1, 1], [25, 2], [5, 1], [10_000, 10]]) {
      for (let one = 0; one < earned; one += 1) budget.earn();
      assert.equal(spent(), retries);
    }
  });

  test('a pause is a random part of a bound that doubles', () => {
    assert.equal(busyPause(40, 0, 0.5), 20);
    assert.equal(busyPause(40, 1, 0.5), 40);
    assert.equal(busyPause(0, 0, 0.5), 0.5);
    assert.equal(busyPause(40, 1000, 0.5), 500);
    assert.equal(movedPause(0, 1), 2);
    assert.equal(movedPause(1, 1), 3);
    assert.equal(movedPause(1000, 1), 160);
  });

  test('a token has the time of a server that is far away, and drifts with it', () => {
    const here = 1_800_000_000_000;
    const time = new ServerTime();
    for (const server of [here + 8 * 3_600_000, here - 3_600_000]) {
      time.note(server, here, 0);
      assert.equal(time.now(here, 0), server);
      assert.equal(time.now(here, 64_000), server - Math.sign(server - here) * 1000);
      assert.equal(time.now(here, 1e13), here);
    }
    for (const near of [0, here, here + 60_000, here - 60_000]) {
      time.note(near, here, 0);
      assert.equal(time.now(here, 0), here);
    }
  });
});
