// ioredis: enableAutoPipelining, a hundred buyers at once
const assert = require("assert");
const Redis = require("ioredis");

async function main() {
  const shop = new Redis({ port: +process.env.PORT, enableAutoPipelining: true });
  await shop.set("units", 40);
  const left = await Promise.all([...Array(100).keys()].map(() => shop.decr("units")));
  assert.deepEqual(left.sort((a, b) => b - a), [...Array(100).keys()].map((n) => 39 - n));
  await Promise.all([...Array(100).keys()].map((n) => shop.set(`k:${n}`, n)));
  const values = await Promise.all([...Array(100).keys()].map((n) => shop.get(`k:${n}`)));
  assert.deepEqual(values, [...Array(100).keys()].map(String));
  shop.disconnect();
}

main();
