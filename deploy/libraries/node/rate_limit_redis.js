// rate-limit-redis: the store of express-rate-limit: 429 behind two requests, resetKey
const assert = require("assert");
const express = require("express");
const { rateLimit } = require("express-rate-limit");
const { createClient } = require("redis");

async function main() {
  const { RedisStore } = await import("rate-limit-redis");
  const client = await createClient({ url: `redis://127.0.0.1:${process.env.PORT}` }).connect();
  const sendCommand = (...args) => client.sendCommand(args);
  const limiter = rateLimit({
    windowMs: 60_000,
    limit: 2,
    standardHeaders: "draft-7",
    keyGenerator: () => "ann",
    store: new RedisStore({ sendCommand }),
  });
  const app = express();
  app.get("/buy", limiter, (request, response) => response.send("sold"));
  const server = app.listen(0);
  await new Promise((done) => server.once("listening", done));
  const buy = async () => (await fetch(`http://127.0.0.1:${server.address().port}/buy`)).status;
  assert.deepEqual([await buy(), await buy(), await buy()], [200, 200, 429]);
  await limiter.resetKey("ann");
  assert.equal(await buy(), 200);
  assert.equal((await limiter.getKey("ann")).totalHits, 1);
  server.close();
  server.closeAllConnections();
  client.destroy();
}

main();
