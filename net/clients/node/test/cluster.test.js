// Two nodes with TLS and users, whose writer changes in the middle of a sale.

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Field, No, PenstockError, Unknown, connect } from '../src/index.js';
import { launch, newFolder, noServer, run } from './programs.js';

const u64 = new Field('u64');
const STOCK = 1_000_000;

/** So many free ports. */
async function freePorts(count) {
  const servers = await Promise.all(Array.from({ length: count }, () => (
    new Promise((resolve) => {
      const server = createServer();
      server.listen(0, '127.0.0.1', () => resolve(server));
    })
  )));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((done) => { server.close(done); })));
  return ports;
}

describe('a cluster', { skip: noServer }, () => {
  const folder = newFolder();
  const path = (...names) => join(folder, ...names);
  const nodes = [];
  let addresses;
  let tls;
  let identity;

  before(async () => {
    const ports = await freePorts(6);
    addresses = [ports[1], ports[4]].map((port) => `127.0.0.1:${port}`);
    const plan = path('cluster.toml');
    run('cluster', 'init', '--file', plan, '--node', `1,127.0.0.1:${ports[0]},${addresses[0]}`,
      '--node', `2,127.0.0.1:${ports[3]},${addresses[1]}`);
    run('cluster', 'certs', '--file', plan);
    run('cluster', 'certs', '--file', plan, '--client', 'desk');
    const users = path('users');
    identity = { name: 'ann', secret: run('user', 'add', '--users', users, 'ann') };
    run('user', 'add', '--users', users, 'desk', '--certificate', 'desk');
    for (const name of ['ann', 'desk']) {
      run('user', 'grant', '--users', users, name, 'read', '');
      run('user', 'grant', '--users', users, name, 'write', '');
    }
    tls = { ca: readFileSync(path('certs', 'ca.pem')) };
    for (const node of [1, 2]) {
      mkdirSync(path(`node-${node}`));
      nodes.push(await launch([
        '--data', path(`node-${node}`), '--cluster', plan, '--cluster-node', String(node),
        '--shards', '1', '--listen', addresses[node - 1], '--shard-ports',
        String(ports[3 * node - 1]), '--users', users,
        '--tls-cert', path('certs', `node-${node}.pem`),
        '--tls-key', path('certs', `node-${node}.key`),
        '--tls-client-ca', path('certs', 'ca.pem'), ...(node === 1 ? ['--cluster-new'] : []),
      ], () => true));
    }
  });

  after(async () => {
    for (const node of nodes) await node.kill();
    rmSync(folder, { recursive: true, force: true });
  });

  test('is asked by the certificate of the connection, too', { timeout: 60_000 }, async () => {
    const shown = {
      ...tls,
      cert: readFileSync(path('certs', 'client-desk.pem')),
      key: readFileSync(path('certs', 'client-desk.key')),
    };
    const client = await connect(addresses[0], { tls: shown, deadline: 20_000 });
    await client.set('by', 'desk');
    assert.equal((await client.get('by')).data.toString(), 'desk');
    client.close();
  });

  test('sells each unit once over a change of its writer', { timeout: 60_000 }, async () => {
    // One address is enough, also that of the node that does not write.
    const client = await connect(addresses[1], { tls, identity, deadline: 20_000 });
    const stock = Buffer.alloc(8);
    stock.writeBigUInt64LE(BigInt(STOCK));
    await client.set('stock', stock);
    let sold = 0;
    let isOver = false;
    const sellers = Array.from({ length: 4 }, async () => {
      while (!isOver) {
        let sale = client.updateIf('stock', [u64.atLeast(1), u64.decrease(1)]);
        for (;;) {
          try {
            await sale;
            sold += 1;
            break;
          } catch (error) {
            if (!(error instanceof Unknown)) throw error;
            sale = error.resolve();
          }
        }
      }
    });
    await sleep(300);
    const before = sold;
    run('cluster', 'switch', '--file', path('cluster.toml'), '--to', '2', '--no-wait');
    const behindSwitch = await connect(addresses[1], { tls, identity, deadline: 20_000 });
    const generation = (await behindSwitch.get('stock')).version.epoch >>> 18;
    for (let tries = 0; ; tries += 1) {
      const { version } = await behindSwitch.get('stock');
      if (version.epoch >>> 18 !== generation || tries > 400) break;
      await sleep(25);
    }
    const atSwitch = sold;
    for (let tries = 0; sold < atSwitch + 20 && tries < 400; tries += 1) await sleep(25);
    isOver = true;
    await Promise.all(sellers);
    const left = await behindSwitch.get('stock');
    assert.equal(left.data.readBigUInt64LE(), BigInt(STOCK - sold));
    assert.ok(before > 0 && sold >= atSwitch + 20, `${before}, ${atSwitch}, ${sold}`);
    client.close();
    behindSwitch.close();
  });

  test('whose writer is gone says so in time, and nothing else', { timeout: 60_000 }, async () => {
    const client = await connect(addresses, { tls, identity, deadline: 20_000 });
    await client.get('stock');
    await Promise.all(nodes.splice(0).map((node) => node.kill()));
    const begin = performance.now();
    const call = client.get('stock', { deadline: 800 });
    await assert.rejects(call, (error) => error instanceof PenstockError && !(error instanceof No));
    assert.ok(performance.now() - begin < 3000);
    client.close();
  });
});
