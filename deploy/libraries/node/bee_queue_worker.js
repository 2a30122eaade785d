// bee-queue: a queue and its processor
const assert = require("assert");
const Queue = require("bee-queue");

async function main() {
  const queue = new Queue("orders", { redis: { port: +process.env.PORT } });
  queue.on("error", (error) => { throw error; });
  queue.process(async (job) => job.data.units * 7);
  const job = queue.createJob({ units: 6 });
  const done = new Promise((done) => job.on("succeeded", done));
  await job.save();
  assert.equal(await done, 42);
  await queue.close(1000);
}

main();
