// ioredis: multi() with WATCH, keys of one tag, and one that is null
const assert = require("assert");
const Redis = require("ioredis");

async function main() {
  const shop = new Redis(+process.env.PORT);
  const other = new Redis(+process.env.PORT);
  await shop.set("{7}units", 2);
  assert.deepEqual(await shop.multi().decr("{7}units").set("{7}buyer", "ann").exec(), [
    [null, 1],
    [null, "OK"],
  ]);
  await shop.watch("{7}units");
  await other.set("{7}units", 9);
  assert.equal(await shop.multi().decr("{7}units").exec(), null);
  await shop.watch("{7}units");
  assert.deepEqual(await shop.multi({ pipeline: false }), "OK");
  await shop.decr("{7}units");
  assert.deepEqual(await shop.exec(), [[null, 8]]);
  shop.disconnect(true);
  assert.equal(await shop.get("{7}buyer"), "ann");
  shop.disconnect();
  other.disconnect();
}

main();
