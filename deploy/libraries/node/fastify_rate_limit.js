// @fastify/rate-limit: a page that may be asked twice a minute
const assert = require("assert");
const Redis = require("ioredis");
const fastify = require("fastify");

async function main() {
  const redis = new Redis({ port: +process.env.PORT });
  const app = fastify();
  await app.register(require("@fastify/rate-limit"), { max: 2, timeWindow: "1 minute", redis });
  app.get("/buy", async () => "sold");
  const buy = async () => (await app.inject("/buy")).statusCode;
  assert.deepEqual([await buy(), await buy(), await buy()], [200, 200, 429]);
  await app.close();
  redis.disconnect();
}

main();
