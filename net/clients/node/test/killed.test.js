// A server that is killed in the middle of a sale, and starts again.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { Field, No, Unknown, connect } from '../src/index.js';
import { noServer, startServer } from './programs.js';

const u64 = new Field('u64');

function bytesOf(number) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(number));
  return bytes;
}

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
