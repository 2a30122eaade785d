// cacheable: a memory above a store of Redis, wrap and get over both layers
const assert = require("assert");

async function main() {
  const { Cacheable } = await import("cacheable");
  const { default: KeyvRedis } = await import("@keyv/redis");
  const url = `redis://127.0.0.1:${process.env.PORT}`;
  const cache = new Cacheable({ secondary: new KeyvRedis(url) });
  let made = 0;
  const price = cache.wrap(async (units) => ((made += 1), units * 7), { keyPrefix: "price", ttl: "1m" });
  assert.equal(await price(6), 42);
  assert.equal(await price(6), 42);
  assert.equal(made, 1);
  await cache.set("name", "ann", "1m");
  const second = new Cacheable({ secondary: new KeyvRedis(url) });
  assert.equal(await second.get("name"), "ann");
  await cache.disconnect();
  await second.disconnect();
}

main();
