// redis-semaphore: Mutex and RedlockMutex with refresh
const assert = require("assert");
const Redis = require("ioredis");
const { Mutex, RedlockMutex } = require("redis-semaphore");

async function main() {
  const client = new Redis(+process.env.PORT);
  const mutex = new Mutex(client, "sale", { lockTimeout: 1500 });
  await mutex.acquire();
  assert.equal(await new Mutex(client, "sale").tryAcquire(), false);
  await new Promise((done) => setTimeout(done, 2000));
  assert.equal(mutex.isAcquired, true);
  assert.equal(await client.exists("mutex:sale"), 1);
  await mutex.release();
  const redlock = new RedlockMutex([client], "sale");
  await redlock.acquire();
  await redlock.release();
  client.disconnect();
}

main();
