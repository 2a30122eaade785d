// redis-semaphore: Semaphore of two places, which is a sorted set
const assert = require("assert");
const Redis = require("ioredis");
const { Semaphore } = require("redis-semaphore");

async function main() {
  const client = new Redis(+process.env.PORT);
  const places = [...Array(3).keys()].map(() => new Semaphore(client, "sale", 2));
  const taken = [];
  for (const place of places) taken.push(await place.tryAcquire());
  assert.deepEqual(taken, [true, true, false]);
  await places[0].release();
  await places[1].release();
  client.disconnect();
}

main();
