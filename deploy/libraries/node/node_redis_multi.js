// redis: node-redis: multi(), WATCH that fails, an isolated pool, execAsPipeline
const assert = require("assert");
const { createClient, createClientPool, WatchError } = require("redis");

async function main() {
  const url = `redis://127.0.0.1:${process.env.PORT}`;
  const shop = await createClient({ url }).connect();
  const other = await createClient({ url }).connect();
  await shop.set("{7}units", "2");
  assert.deepEqual(await shop.multi().decr("{7}units").set("{7}buyer", "ann").exec(), [1, "OK"]);
  await shop.watch("{7}units");
  await other.set("{7}units", "9");
  await assert.rejects(shop.multi().decr("{7}units").exec(), WatchError);
  assert.deepEqual(await shop.multi().get("a").get("b").execAsPipeline(), [null, null]);
  const pool = createClientPool({ url }, { maximum: 3 });
  await pool.connect();
  const left = await Promise.all([...Array(9).keys()].map(() => pool.decr("{7}units")));
  assert.deepEqual(left.sort((a, b) => a - b), [...Array(9).keys()]);
  await pool.close();
  shop.destroy();
  other.destroy();
}

main();
