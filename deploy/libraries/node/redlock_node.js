// redlock: lock, extend, unlock, one that is refused
const assert = require("assert");
const Redis = require("ioredis");
const Redlock = require("redlock");

async function main() {
  const client = new Redis(+process.env.PORT);
  const redlock = new Redlock([client], { retryCount: 1, retryDelay: 20 });
  const lock = await redlock.lock("sale", 5000);
  await assert.rejects(redlock.lock("sale", 5000), /attempts to lock/);
  await lock.extend(9000);
  assert.ok((await client.pttl("sale")) > 5000);
  await lock.unlock();
  assert.equal(await client.exists("sale"), 0);
  client.disconnect();
}

main();
