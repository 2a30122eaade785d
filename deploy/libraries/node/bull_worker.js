// bull: a queue and its processor
const assert = require("assert");
const Bull = require("bull");

async function main() {
  const queue = new Bull("orders", { redis: { port: +process.env.PORT } });
  queue.on("error", (error) => { throw error; });
  queue.process(async (job) => job.data.units * 7);
  const job = await queue.add({ units: 6 });
  assert.equal(await job.finished(), 42);
  await queue.close();
}

main();
