// ioredis: defineCommand sells with a script, also in a pipeline and behind SCRIPT FLUSH
const assert = require("assert");
const Redis = require("ioredis");

async function main() {
  const shop = new Redis(+process.env.PORT);
  shop.defineCommand("buy", {
    numberOfKeys: 2,
    lua: `
      local left = tonumber(redis.call('GET', KEYS[1]) or '0')
      if left < 1 or redis.call('EXISTS', KEYS[2]) == 1 then return {0, left} end
      redis.call('SET', KEYS[2], ARGV[1], 'EX', 600)
      return {1, redis.call('DECR', KEYS[1])}`,
  });
  await shop.set("{7}units", 3);
  assert.deepEqual(await shop.buy("{7}units", "{7}ann", "order1"), [1, 2]);
  assert.deepEqual(await shop.buy("{7}units", "{7}ann", "order2"), [0, 2]);
  await shop.script("FLUSH");
  assert.deepEqual(await shop.buy("{7}units", "{7}bob", "order3"), [1, 1]);
  assert.deepEqual(
    await shop.pipeline().buy("{7}units", "{7}bob", "order4").get("{7}bob").exec(),
    [[null, [0, 1]], [null, "order3"]],
  );
  shop.disconnect(true);
  const sold = await Promise.all([...Array(20).keys()].map((n) => shop.buy("{7}units", `{7}${n}`, "o")));
  assert.equal(sold.filter(([sold]) => sold).length, 1);
  shop.disconnect();
}

main();
