// iovalkey: counters, a transaction, a script and a subscriber
const assert = require("assert");
const { once } = require("events");
const Valkey = require("iovalkey");

async function main() {
  const shop = new Valkey(+process.env.PORT);
  assert.equal(await shop.set("{v}units", 5, "EX", 60), "OK");
  assert.deepEqual(await shop.multi().decr("{v}units").get("{v}units").exec(), [
    [null, 4],
    [null, "4"],
  ]);
  assert.equal(await shop.eval("return redis.call('DECR', KEYS[1])", 1, "{v}units"), 3);
  const listener = shop.duplicate();
  await listener.subscribe("news");
  const came = once(listener, "message");
  assert.equal(await shop.publish("news", "sold"), 1);
  assert.deepEqual(await came, ["news", "sold"]);
  listener.disconnect();
  shop.disconnect();
}

main();
