// redis: node-redis by RESP2 and RESP3: counters, options of SET, bytes, an iterator of SCAN
const assert = require("assert");
const { createClient, RESP_TYPES } = require("redis");

async function main(RESP) {
  const url = `redis://127.0.0.1:${process.env.PORT}`;
  const shop = await createClient({ url, RESP }).connect();
  await shop.del(["units", "hold", "photo"]);
  assert.equal(await shop.set("units", "10"), "OK");
  assert.equal(await shop.decrBy("units", 3), 7);
  const options = { condition: "NX", expiration: { type: "EX", value: 60 } };
  assert.equal(await shop.set("hold", "ann", options), "OK");
  assert.equal(await shop.set("hold", "bob", options), null);
  assert.equal(await shop.set("hold", "bob", { GET: true }), "ann");
  await shop.set("photo", Buffer.from([0, 255]));
  shop.destroy();

  const again = await createClient({ url, RESP }).connect();
  const bytes = again.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  assert.deepEqual([...(await bytes.get("photo"))], [0, 255]);
  assert.deepEqual(await again.mGet(["units", "none"]), ["7", null]);
  await Promise.all([...Array(200).keys()].map((n) => again.set(`seat:${n}`, String(n))));
  const found = new Set();
  for await (const keys of again.scanIterator({ MATCH: "seat:*", COUNT: 50 })) {
    keys.forEach((key) => found.add(key));
  }
  assert.equal(found.size, 200);
  await assert.rejects(again.incr("hold"), /not an integer/);
  await again.close();
}

main(2).then(() => main(3));
