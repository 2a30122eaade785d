// redis: node-redis: subscribe, pSubscribe and sSubscribe by RESP2 and RESP3
const assert = require("assert");
const { createClient } = require("redis");

async function main(RESP) {
  const url = `redis://127.0.0.1:${process.env.PORT}`;
  const shop = await createClient({ url, RESP }).connect();
  const listener = await shop.duplicate().connect();
  const came = [];
  const waits = [];
  const take = (message, channel) => {
    came.push(`${channel}=${message}`);
    if (came.length === 3) waits.forEach((done) => done());
  };
  await listener.subscribe("open", take);
  await listener.pSubscribe("stock:*", take);
  await listener.sSubscribe("shard", take);
  const all = new Promise((done) => waits.push(done));
  assert.equal(await shop.publish("open", "now"), 1);
  assert.equal(await shop.publish("stock:7", "3"), 1);
  assert.equal(await shop.sPublish("shard", "s"), 1);
  await all;
  assert.deepEqual(came.sort(), ["open=now", "shard=s", "stock:7=3"]);
  await listener.unsubscribe("open");
  assert.equal(await shop.publish("open", "later"), 0);
  listener.destroy();
  shop.destroy();
}

main(2).then(() => main(3));
