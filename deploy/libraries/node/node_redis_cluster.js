// redis: node-redis: createCluster, multi of one tag, a reconnect
const assert = require("assert");
const { createCluster } = require("redis");

async function main() {
  const rootNodes = [{ url: `redis://127.0.0.1:${process.env.PORT}` }];
  const shop = await createCluster({ rootNodes }).connect();
  const numbers = [...Array(100).keys()];
  await Promise.all(numbers.map((n) => shop.set(`k:${n}`, String(n))));
  assert.deepEqual(await Promise.all(numbers.map((n) => shop.get(`k:${n}`))), numbers.map(String));
  await shop.set("{s}units", "5");
  assert.deepEqual(await shop.multi().decr("{s}units").set("{s}buyer", "ann").exec(), [4, "OK"]);
  assert.equal(await shop.eval("return redis.call('DECR', KEYS[1])", { keys: ["{s}units"] }), 3);
  await shop.close();
  const again = await createCluster({ rootNodes }).connect();
  assert.equal(await again.get("{s}units"), "3");
  again.destroy();
}

main();
