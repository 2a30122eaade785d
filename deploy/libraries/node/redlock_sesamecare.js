// @sesamecare-oss/redlock: using(), extend, a lock of several names, one that is refused
const assert = require("assert");
const Redis = require("ioredis");
const { Redlock } = require("@sesamecare-oss/redlock");

async function main() {
  const client = new Redis(+process.env.PORT);
  const redlock = new Redlock([client], { retryCount: 1, retryDelay: 20 });
  let lock = await redlock.acquire(["{sale}boot", "{sale}hat"], 5000);
  await assert.rejects(redlock.acquire(["{sale}hat"], 5000));
  lock = await lock.extend(9000);
  assert.ok((await client.pttl("{sale}boot")) > 5000);
  await lock.release();
  assert.equal(await client.exists("{sale}boot", "{sale}hat"), 0);
  let sum = 0;
  const many = new Redlock([client], { retryCount: -1, retryDelay: 10 });
  await Promise.all([...Array(10).keys()].map(() =>
    many.using(["{sale}sum"], 5000, async () => {
      const before = sum;
      await new Promise((done) => setTimeout(done, 2));
      sum = before + 1;
    })));
  assert.equal(sum, 10);
  client.disconnect();
}

main();
