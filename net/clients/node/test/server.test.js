// The client at a real server: each verb, and the ways of the keys.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Apply, Field, Layout, No, before as beforeTime, connect, now } from '../src/index.js';
import { noServer, startServer } from './programs.js';

const u64 = new Field('u64');

function bytesOf(number) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(number));
  return bytes;
}

describe('a server', { skip: noServer }, () => {
  let server;
  let client;

  before(async () => {
    server = await startServer();
    client = await connect(server.address);
  });

  after(async () => {
    client?.close();
    await server?.stop();
  });

  test('calls at the ports of their cores go from core to core by none', async () => {
    const forwarded = async () => {
      // What INFO tells is up to 100 ms old.
      await sleep(250);
      return (await client.info()).counters.forwarded;
    };
    const asked = async (one) => {
      const from = await forwarded();
      await Promise.all(Array.from({ length: 200 }, (_, n) => one.get(`way:${n}`)));
      return (await forwarded()) - from;
    };
    assert.equal(await asked(client), 0);
    const byMain = await connect(server.address, { shardPorts: false });
    assert.ok(await asked(byMain) > 50);
    byMain.close();
  });

  test('an expiry is told, moved and taken away', async () => {
    const set = await client.set('e', 'v', { expiresIn: 60_000 });
    assert.equal(set.level, 'disk');
    const first = await client.expiry('e');
    assert.ok(first.expiresAt > first.serverTime && first.expiresAt <= first.serverTime + 60_001);
    const later = new Date(Date.now() + 3_600_000);
    await client.setExpiry('e', { expiresAt: later });
    assert.equal((await client.get('e', { withExpiry: true })).expiresAt, later.getTime());
    await client.set('e', 'w', { keepExpiry: true });
    assert.equal((await client.expiry('e')).expiresAt, later.getTime());
    await client.setExpiry('e', { never: true });
    assert.equal((await client.expiry('e')).expiresAt, null);
    assert.equal(await client.expiry('none'), null);
    await assert.rejects(client.setExpiry('none', { never: true }), { status: 'NOT_FOUND' });
  });

  test('numbers beyond 2^53 come back as BigInt, and go there', async () => {
    await client.set('big', bytesOf(2n ** 64n - 2n));
    const { numbers } = await client.updateIf('big', [u64.atLeast(2n ** 63n), u64.increase(1)]);
    assert.deepEqual(numbers, [2n ** 64n - 1n]);
    await assert.rejects(client.updateIf('big', [u64.increase(1)]), (error) => {
      assert.ok(error instanceof No);
      assert.deepEqual([error.status, error.actual], ['GUARD_FAILED', 2n ** 64n - 1n]);
      return true;
    });
  });

  test('apply has all of its instructions', async () => {
    const apply = new Apply();
    const stock = apply.key('stock:{a}');
    const order = apply.key('order:{a}');
    const count = apply.key('count:{a}');
    const field = stock.field('i32', 4);
    apply.do(
      beforeTime(2 ** 47), order.absent(), stock.start(Buffer.alloc(8)), field.equals(0),
      field.decrease(5), field.increaseToBorder(2 ** 31 - 1), field.lower(7), field.raise(-3),
      field.xor(1), field.anyBit(6), order.put(Buffer.alloc(16)),
      order.field('u64', 8).becomes(now(1000)), order.field('u64').becomes(field),
      order.expiresIn(60_000), order.onExpire(field.increase(1), count.start('0')),
      count.put('41'), count.decimal().increase(1), count.decimal().returned(),
    );
    const { numbers } = await client.apply(apply);
    const [time] = numbers.splice(5, 1);
    assert.deepEqual(numbers, [-5, 2 ** 31 - 6, 7, 7, 6, 6, 42, 42]);
    assert.ok(Math.abs(time - Date.now()) < 60_000);
    assert.equal((await client.get('count:{a}')).data.toString(), '42');
    const { version } = await client.get('count:{a}');
    const guarded = new Apply();
    const key = guarded.key('count:{a}');
    guarded.do(key.hasVersion(version), key.exists(), key.replace('43'));
    await client.apply(guarded);
    await assert.rejects(client.apply(guarded), (error) => {
      assert.equal(error.status, 'VERSION_MISMATCH');
      assert.notDeepEqual(error.version, version);
      return true;
    });
    const rate = new Apply();
    const calls = rate.key('calls:{a}');
    rate.do(calls.start(Buffer.alloc(8)), calls.field('u64').take({ intervalUs: 1e6, burst: 1 }));
    await client.apply(rate);
    await assert.rejects(client.apply(rate), (error) => error.actual > 0 && error.actual <= 1e6);
    const many = new Apply();
    for (let number = 0; number < 12; number += 1) many.do(many.key(`m{a}${number}`).put('x'));
    await client.apply(many);
    assert.equal((await client.get('m{a}11')).data.toString(), 'x');
  });

  test('two keys of updateIf, a start value, and a token that is used twice', async () => {
    const token = client.newToken();
    const write = () => client.updateIf('from:{b}', [
      u64.atLeast(3), u64.decrease(3), u64.ofSecondKey().increase(3),
    ], { secondKey: 'to:{b}', token });
    await client.set('from:{b}', bytesOf(10));
    await client.set('to:{b}', bytesOf(0));
    const first = await write();
    assert.deepEqual([first.numbers, first.replayed], [[7, 3], false]);
    const second = await write();
    assert.deepEqual(second, { ...first, replayed: true });
    await assert.rejects(client.set('from:{b}', 'x', { token }),
      { name: 'Refused', status: 'TOKEN_REUSED' });
    const started = await client.updateIf('n', [u64.increase(1)], { start: bytesOf(4) });
    assert.deepEqual(started.numbers, [5]);
  });

  test('programs are functions, and layouts read what they write', async () => {
    const { restock, buy } = await client.programs();
    await restock({ stock: 'stock:{c}' }, { quantity: 7, limit_per_buyer: 2 });
    const keys = { stock: 'stock:{c}', order: 'order:{c}:1', buyer: 'buyer:{c}:ann' };
    const bought = await buy(keys, { quantity: 2, hold_ms: 60_000 });
    assert.deepEqual(bought.numbers,
      { 'buyer.units': 2, 'stock.available': 5, 'stock.held': 2 });
    const { layouts } = await client.schema();
    const { data } = await client.get('stock:{c}');
    assert.deepEqual(layouts.Stock.decode(data),
      { available: 5, held: 2, sold: 0, limit_per_buyer: 2 });
    assert.ok(layouts.Stock instanceof Layout);
    const { available } = layouts.Stock.fields;
    const changed = await client.updateIf('stock:{c}', [available.decrease(1)]);
    assert.deepEqual(changed.numbers, [4]);
    await assert.rejects(buy(keys, { quantity: 1 }), TypeError);
    await assert.rejects(buy({ ...keys, more: 'x' }, { quantity: 1, hold_ms: 1 }), TypeError);
    await assert.rejects(buy(keys, { quantity: 1001, hold_ms: 1 }), RangeError);
    await assert.rejects(client.run('sell', keys), { status: 'UNKNOWN_PROGRAM' });
  });

  test('a scan tells values and long ones', async () => {
    await client.set('scan:short', 'x');
    await client.set('scan:long', Buffer.alloc(500_000));
    const entries = [];
    for await (const entry of client.scan('scan:', { withValues: true })) entries.push(entry);
    entries.sort((a, b) => Buffer.compare(b.key, a.key));
    assert.deepEqual(entries.map(({ key, data, isValueTooLong }) => (
      [key.toString(), data?.toString() ?? null, isValueTooLong]
    )), [['scan:short', 'x', false], ['scan:long', null, true]]);
    assert.equal((await client.get('scan:long')).data.length, 500_000);
    await client.ping();
  });

  test('values that are longer than a frame together go in several', async () => {
    const value = Buffer.alloc(700_000, 7);
    await Promise.all(Array.from({ length: 8 }, (_, n) => client.set(`w{d}${n}`, value)));
    const values = await Promise.all(Array.from({ length: 8 }, (_, n) => client.get(`w{d}${n}`)));
    assert.ok(values.every(({ data }) => data.equals(value)));
    await assert.rejects(client.set('w', Buffer.alloc(64 << 20)), { status: 'TOO_LARGE' });
  });
});
