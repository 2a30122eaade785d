// @keyv/redis: Keyv with a namespace: ttl, many, iterator, clear
const assert = require("assert");

async function main() {
  const { default: Keyv } = await import("keyv");
  const { default: KeyvRedis } = await import("@keyv/redis");
  const url = `redis://127.0.0.1:${process.env.PORT}`;
  const cart = new Keyv({ store: new KeyvRedis(url), namespace: "cart" });
  const other = new Keyv({ store: new KeyvRedis(url), namespace: "other" });
  cart.on("error", (error) => { throw error; });
  assert.equal(await cart.set("ann", { boot: 2 }, 60_000), true);
  await other.set("ann", 1);
  assert.deepEqual(await cart.get("ann"), { boot: 2 });
  await cart.setMany([{ key: "bob", value: 1 }, { key: "eve", value: 2 }]);
  assert.deepEqual(await cart.getMany(["bob", "none", "eve"]), [1, undefined, 2]);
  assert.equal(await cart.has("bob"), true);
  const found = [];
  for await (const [key] of cart.iterator()) found.push(key);
  assert.deepEqual(found.sort(), ["ann", "bob", "eve"]);
  assert.equal(await cart.delete("bob"), true);
  await cart.clear();
  assert.equal(await cart.get("ann"), undefined);
  assert.equal(await other.get("ann"), 1);
  await cart.disconnect();
  await other.disconnect();
}

main();
