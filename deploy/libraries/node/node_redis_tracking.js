// redis: node-redis: client-side cache (clientSideCache), a write of another client is seen
const assert = require("assert");
const { createClient } = require("redis");

async function main() {
  const url = `redis://127.0.0.1:${process.env.PORT}`;
  const clientSideCache = { ttl: 0, maxEntries: 100 };
  const shop = await createClient({ url, RESP: 3, clientSideCache }).connect();
  const other = await createClient({ url }).connect();
  await other.set("price", "10");
  assert.equal(await shop.get("price"), "10");
  assert.equal(await shop.get("price"), "10");
  await other.set("price", "12");
  while ((await shop.get("price")) !== "12") await new Promise((done) => setTimeout(done, 10));
  shop.destroy();
  other.destroy();
}

main();
