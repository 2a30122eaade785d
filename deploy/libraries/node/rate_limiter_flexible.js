// rate-limiter-flexible: consume, penalty, reward, block, with ioredis and node-redis
const assert = require("assert");
const Redis = require("ioredis");
const { createClient } = require("redis");
const { RateLimiterRedis } = require("rate-limiter-flexible");

async function check(storeClient, useRedisPackage, keyPrefix) {
  const limiter = new RateLimiterRedis({
    storeClient, useRedisPackage, keyPrefix, points: 3, duration: 60, blockDuration: 100,
  });
  assert.equal((await limiter.consume("ann")).remainingPoints, 2);
  assert.equal((await limiter.penalty("ann", 1)).consumedPoints, 2);
  assert.equal((await limiter.reward("ann", 1)).consumedPoints, 1);
  await limiter.consume("ann", 2);
  const refused = await limiter.consume("ann").catch((refused) => refused);
  assert.ok(refused.msBeforeNext > 60_000, JSON.stringify(refused));
  assert.equal((await limiter.get("ann")).remainingPoints, 0);
  assert.equal(await limiter.delete("ann"), true);
  assert.equal((await limiter.consume("ann")).consumedPoints, 1);
}

async function main() {
  const io = new Redis({ port: +process.env.PORT, enableOfflineQueue: false, lazyConnect: true });
  await io.connect();
  await check(io, false, "io");
  io.disconnect();
  const node = await createClient({ url: `redis://127.0.0.1:${process.env.PORT}` }).connect();
  await check(node, true, "node");
  node.destroy();
}

main();
