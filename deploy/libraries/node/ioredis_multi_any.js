// ioredis: multi() of keys without a tag
const assert = require("assert");
const Redis = require("ioredis");

async function main() {
  const shop = new Redis(+process.env.PORT);
  const sale = shop.multi();
  for (let number = 0; number < 20; number++) sale.incr(`sold:${number}`);
  assert.deepEqual(await sale.exec(), Array(20).fill([null, 1]));
  shop.disconnect();
}

main();
