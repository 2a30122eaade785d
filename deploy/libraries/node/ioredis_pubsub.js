// ioredis: subscribe and psubscribe, messages as buffers, and a subscriber that reconnects
const assert = require("assert");
const { once } = require("events");
const Redis = require("ioredis");

async function main() {
  const shop = new Redis(+process.env.PORT);
  const listener = new Redis(+process.env.PORT);
  assert.equal(await listener.subscribe("open", "close"), 2);
  assert.equal(await listener.psubscribe("stock:*"), 3);
  const message = once(listener, "message");
  const pattern = once(listener, "pmessage");
  assert.equal(await shop.publish("open", "now"), 1);
  assert.equal(await shop.publish("stock:7", "3"), 1);
  assert.deepEqual(await message, ["open", "now"]);
  assert.deepEqual(await pattern, ["stock:*", "stock:7", "3"]);
  const ready = once(listener, "ready");
  listener.disconnect(true);
  await ready;
  const again = once(listener, "message");
  while ((await shop.publish("open", "again")) === 0);
  assert.deepEqual(await again, ["open", "again"]);
  assert.equal(await listener.unsubscribe("open", "close"), 1);
  assert.equal(await shop.publish("open", "later"), 0);
  listener.disconnect();
  shop.disconnect();
}

main();
