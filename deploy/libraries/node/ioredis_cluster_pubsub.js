// ioredis: Cluster with shardedSubscribers: a sharded channel
const assert = require("assert");
const { once } = require("events");
const { Cluster } = require("ioredis");

async function main() {
  const start = [{ host: "127.0.0.1", port: +process.env.PORT }];
  const shop = new Cluster(start, { shardedSubscribers: true });
  await once(shop, "ready");
  const sharded = once(shop, "smessage");
  await shop.ssubscribe("stock:7");
  while ((await shop.spublish("stock:7", "3")) === 0) await new Promise((done) => setTimeout(done, 50));
  assert.deepEqual((await sharded).slice(0, 2), ["stock:7", "3"]);
  shop.disconnect();
}

main();
