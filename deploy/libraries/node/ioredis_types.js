// ioredis: a hash, a list, a set, a sorted set and a stream
const assert = require("assert");
const Redis = require("ioredis");

async function main() {
  const shop = new Redis({ port: +process.env.PORT, maxRetriesPerRequest: 0 });
  assert.equal(await shop.hset("cart", { boot: 1, hat: 2 }), 2);
  assert.deepEqual(await shop.hgetall("cart"), { boot: "1", hat: "2" });
  assert.equal(await shop.rpush("queue", "a", "b"), 2);
  assert.equal(await shop.lpop("queue"), "a");
  assert.equal(await shop.sadd("buyers", "ann", "bob"), 2);
  assert.equal(await shop.zadd("bids", 3, "ann", 5, "bob"), 2);
  assert.deepEqual(await shop.zrange("bids", 0, -1), ["ann", "bob"]);
  assert.ok(await shop.xadd("orders", "*", "buyer", "ann"));
  shop.disconnect();
}

main();
