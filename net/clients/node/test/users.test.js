// Logins: a password, a key, TLS, and who is not let in.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { Unfit, connect } from '../src/index.js';
import { newFolder, noServer, run, startServer } from './programs.js';

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
    const user = (verb, ...words) => run('user', verb, '--users', path('users'), ...words);
    password = user('add', 'ann');
    key = user('key', 'ann', 'till-1');
    user('grant', 'ann', 'read', '');
    user('grant', 'ann', 'write', '');
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
