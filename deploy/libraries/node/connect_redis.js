// connect-redis: express-session: a cart over requests, touch, all, length, destroy, clear
const assert = require("assert");
const express = require("express");
const session = require("express-session");
const { createClient } = require("redis");

async function main() {
  const { RedisStore } = await import("connect-redis");
  const client = await createClient({ url: `redis://127.0.0.1:${process.env.PORT}` }).connect();
  const store = new RedisStore({ client, prefix: "shop:", ttl: 600 });
  const app = express();
  app.use(session({ store, secret: "s", resave: false, saveUninitialized: false }));
  app.get("/add", (request, response) => {
    request.session.units = (request.session.units || 0) + 1;
    response.send(String(request.session.units));
  });
  app.get("/end", (request, response) => request.session.destroy(() => response.send("0")));
  const server = app.listen(0);
  await new Promise((done) => server.once("listening", done));
  let cookie;
  const ask = async (path) => {
    const answer = await fetch(`http://127.0.0.1:${server.address().port}${path}`, {
      headers: cookie ? { cookie } : {},
    });
    cookie = answer.headers.get("set-cookie")?.split(";")[0] ?? cookie;
    return answer.text();
  };
  assert.deepEqual([await ask("/add"), await ask("/add"), await ask("/add")], ["1", "2", "3"]);
  assert.equal(await store.length(), 1);
  assert.equal((await store.all())[0].units, 3);
  assert.ok((await client.ttl((await client.keys("shop:*"))[0])) > 500);
  assert.equal(await ask("/end"), "0");
  assert.equal(await store.length(), 0);
  assert.equal(await ask("/add"), "1");
  await store.clear();
  assert.equal(await store.length(), 0);
  server.close();
  server.closeAllConnections();
  client.destroy();
}

main();
