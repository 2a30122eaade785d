// bottleneck: jobs of a limiter over all processes
const assert = require("assert");
const Bottleneck = require("bottleneck");

async function main() {
  const limiter = new Bottleneck({
    id: "shop",
    datastore: "ioredis",
    maxConcurrent: 1,
    clientOptions: { port: +process.env.PORT },
    Redis: require("ioredis"),
  });
  limiter.on("error", (error) => { throw error; });
  await limiter.ready();
  const prices = await Promise.all([1, 2, 3].map((n) => limiter.schedule(async () => n * 7)));
  assert.deepEqual(prices, [7, 14, 21]);
  await limiter.disconnect();
}

main();
