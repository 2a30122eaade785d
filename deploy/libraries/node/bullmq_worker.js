// bullmq: a queue and a worker
const assert = require("assert");
const { Queue, QueueEvents, Worker } = require("bullmq");

async function main() {
  const connection = { port: +process.env.PORT, maxRetriesPerRequest: null };
  const queue = new Queue("orders", { connection });
  const events = new QueueEvents("orders", { connection });
  const worker = new Worker("orders", async (job) => job.data.units * 7, { connection });
  for (const part of [queue, events, worker]) part.on("error", (error) => { throw error; });
  const job = await queue.add("price", { units: 6 });
  assert.equal(await job.waitUntilFinished(events, 15_000), 42);
  await worker.close();
  await events.close();
  await queue.close();
}

main();
