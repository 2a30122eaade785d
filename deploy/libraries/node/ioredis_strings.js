// ioredis: counters, expiries, buffers, SCAN as a stream, over a reconnect
const assert = require("assert");
const Redis = require("ioredis");

async function main() {
  const shop = new Redis(+process.env.PORT);
  assert.equal(await shop.set("units", 10), "OK");
  assert.equal(await shop.decrby("units", 3), 7);
  assert.equal(await shop.set("hold", "ann", "EX", 60, "NX"), "OK");
  assert.equal(await shop.set("hold", "bob", "EX", 60, "NX"), null);
  assert.ok((await shop.ttl("hold")) > 0);
  await shop.set("photo", Buffer.from([0, 255, 13, 10]));
  shop.disconnect(true);
  assert.deepEqual([...(await shop.getBuffer("photo"))], [0, 255, 13, 10]);
  assert.deepEqual(await shop.mget("units", "none", "hold"), ["7", null, "ann"]);
  await shop.mset(Object.fromEntries([...Array(300).keys()].map((n) => [`seat:${n}`, n])));
  const found = new Set();
  for await (const keys of shop.scanStream({ match: "seat:*", count: 50 })) {
    keys.forEach((key) => found.add(key));
  }
  assert.equal(found.size, 300);
  await assert.rejects(shop.incr("hold"), /not an integer/);
  await shop.quit();
}

main();
