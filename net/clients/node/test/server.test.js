// The client at a real server: ways of the keys, logins, a server that is killed.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import {
  Apply, Field, Layout, No, Unfit, Unknown, before as beforeTime, connect, now,
} from '../src/index.js';
import { SERVER, newFolder, noServer, startServer } from './programs.js';

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

describe('a server that is killed', { skip: noServer }, () => {
  test('in the middle of a sale sells each unit once', { timeout: 120_000 }, async () => {
    const units = 300;
    let server = await startServer();
    const client = await connect(server.address, { deadline: 20_000 });
    try {
      await client.set('stock', bytesOf(units));
      let sold = 0;
      let killed = null;
      const buyer = async () => {
        for (;;) {
          let sale = client.updateIf('stock', [u64.atLeast(1), u64.decrease(1)]);
          for (;;) {
            try {
              await sale;
              sold += 1;
              break;
            } catch (error) {
              if (error instanceof No) return;
              if (!(error instanceof Unknown)) throw error;
              sale = error.resolve();
            }
          }
          if (sold > units / 3 && !killed) {
            const { address: listen, folder } = server;
            killed = server.kill().then(async () => {
              server = await startServer({ listen, folder });
            });
          }
        }
      };
      await Promise.all(Array.from({ length: 16 }, buyer));
      await killed;
      assert.ok(killed);
      assert.equal(sold, units);
      assert.deepEqual((await client.get('stock')).data, bytesOf(0));
    } finally {
      client.close();
      await server.stop();
    }
  });
});

const noTls = noServer ||
  (spawnSync('openssl', ['version']).status === 0 ? false : 'no openssl for a certificate');

describe('a server with users', { skip: noTls }, () => {
  const folder = newFolder();
  const path = (name) => join(folder, name);
  let password;
  let key;
  let plain;
  let secure;
  let ca;

  before(async () => {
    const penstock = (...words) => execFileSync(SERVER, words, {
      env: { PATH: process.env.PATH, PENSTOCK_USERS: path('users') },
    }).toString().trim();
    password = penstock('user', 'add', 'ann');
    key = penstock('user', 'key', 'ann', 'till-1');
    penstock('user', 'grant', 'ann', 'read', '');
    penstock('user', 'grant', 'ann', 'write', '');
    execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt',
      'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', '/CN=localhost',
      '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1',
      '-keyout', path('key.pem'), '-out', path('cert.pem')], { stdio: 'ignore' });
    ca = readFileSync(path('cert.pem'));
    plain = await startServer({ more: ['--users', path('users')] });
    secure = await startServer({
      more: ['--users', path('users'), '--tls-cert', path('cert.pem'),
        '--tls-key', path('key.pem')],
    });
  });

  after(async () => {
    await plain?.stop();
    await secure?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const works = async (address, options) => {
    const client = await connect(address, options);
    try {
      await Promise.all(Array.from({ length: 20 }, (_, n) => client.set(`k${n}`, 'v')));
      assert.equal((await client.get('k7')).data.toString(), 'v');
    } finally {
      client.close();
    }
  };

  test('lets a user with a password or a key in', async () => {
    await works(plain.address, { identity: { name: 'ann', secret: password } });
    await works(plain.address, { identity: { name: 'ann/till-1', secret: key } });
  });

  test('lets nobody else in', async () => {
    const wrong = { name: 'ann', secret: 'wrong' };
    await assert.rejects(connect(plain.address, { identity: wrong }),
      (error) => error instanceof Unfit && error.status === 'AUTH');
    await assert.rejects(connect(plain.address), Unfit);
    const none = { name: 'bob', secret: password };
    await assert.rejects(connect(plain.address, { identity: none }), Unfit);
  });

  test('binds a login to its encrypted connection', async () => {
    const identity = { name: 'ann', secret: password };
    await works(secure.address, { identity, tls: { ca } });
    const { port } = new URL(`tcp://${secure.address}`);
    await works(`localhost:${port}`, { identity, tls: { ca } });
  });

  test('with a certificate that is not trusted, or without TLS, gets nothing', async () => {
    const identity = { name: 'ann', secret: password };
    await assert.rejects(connect(secure.address, { identity, tls: true }), Unfit);
    const elsewhere = { ca, servername: 'shop.example' };
    await assert.rejects(connect(secure.address, { identity, tls: elsewhere }), Unfit);
    await assert.rejects(connect(secure.address, { identity, deadline: 5000 }),
      (error) => ['NotSent', 'ProtocolError'].includes(error.name));
    await assert.rejects(
      connect(plain.address, { identity, tls: { ca }, deadline: 3000 }),
      (error) => ['NotSent', 'Unfit'].includes(error.name),
    );
  });

  test('refuses what the user may not do, and the client says so', async () => {
    const client = await connect(plain.address, { identity: { name: 'ann', secret: password } });
    await assert.rejects(client.info(), { name: 'Refused', status: 'DENIED' });
    client.close();
  });
});
