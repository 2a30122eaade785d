// What ioredis and node-redis do when an answer is lost, as net/RETRIES.md says it.
// Usage: node retries.js WAY PORT
//
// Runs behind lost_answers.py, which takes the first answer to a request with "decr" away. WAY is
// `default`, `setting`, `watch`, or `node-redis`; each sells one unit, of one where it watches.

import assert from "node:assert/strict";
import { Redis } from "ioredis";
import { createClient } from "redis";

const [way, port] = [process.argv[2], Number(process.argv[3])];
const stock = `{retries:${process.pid}}`;

// Sells one unit, if there is one, unless another one has changed the stock meanwhile.
async function sellWatched(client) {
  await client.watch(stock);
  if (Number(await client.get(stock)) < 1) return;
  await client.multi().decr(stock).exec();
}

const outcome = (promise) => promise.then(() => "an answer", () => "an error");
let answer;
let left;
if (way === "node-redis") {
  const client = createClient({ socket: { host: "127.0.0.1", port } });
  client.on("error", () => {});
  await client.connect();
  await client.set(stock, "10");
  answer = await outcome(client.sendCommand(["decr", stock]));
  left = Number(await client.get(stock));
  client.destroy();
} else {
  const setting = way === "setting" ? { maxRetriesPerRequest: 0 } : {};
  const client = new Redis(port, setting);
  client.on("error", () => {});
  await client.set(stock, way === "watch" ? "1" : "10");
  answer = await outcome(way === "watch" ? sellWatched(client) : client.decr(stock));
  client.disconnect();
  const other = new Redis(port);
  left = Number(await other.get(stock));
  other.disconnect();
}
const expected = {
  default: [8, "an answer"],
  setting: [9, "an error"],
  watch: [-1, "an answer"],
  "node-redis": [9, "an error"],
}[way];
assert.deepEqual([left, answer], expected);
console.log(`${way}: ${left} left, ${answer}`);
