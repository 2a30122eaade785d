// ioredis: Cluster with autopipelining, a script, a pipeline and a transaction of one tag
const assert = require("assert");
const { Cluster } = require("ioredis");

async function main() {
  const shop = new Cluster([{ host: "127.0.0.1", port: +process.env.PORT }], {
    enableAutoPipelining: true,
  });
  const numbers = [...Array(100).keys()];
  await Promise.all(numbers.map((n) => shop.set(`k:${n}`, n)));
  assert.deepEqual(await Promise.all(numbers.map((n) => shop.get(`k:${n}`))), numbers.map(String));
  assert.deepEqual(await shop.pipeline().set("{s}units", 5).decr("{s}units").exec(), [
    [null, "OK"],
    [null, 4],
  ]);
  assert.deepEqual(await shop.multi().decr("{s}units").set("{s}buyer", "ann").exec(), [
    [null, 3],
    [null, "OK"],
  ]);
  shop.defineCommand("take", { numberOfKeys: 1, lua: "return redis.call('DECR', KEYS[1])" });
  assert.equal(await shop.take("{s}units"), 2);
  shop.disconnect();
  const again = new Cluster([{ host: "127.0.0.1", port: +process.env.PORT }]);
  assert.equal(await again.get("{s}units"), "2");
  again.disconnect();
}

main();
