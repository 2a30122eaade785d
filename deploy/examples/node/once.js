// A write that counts once, whoever sends it again. Usage: node once.js node-redis PORT, or
// node once.js ioredis PORT, sells seven of ten units.
//
// `once` makes the token before the first try, and each try has it: those of the caller, and those
// of ioredis, which sends again by itself. KV.OPTS and the write leave in one pipeline: a client
// that connects anew in between would send the write alone, without a token.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { Redis } from "ioredis";
import { createClient, ErrorReply } from "redis";

// A UUID of version 7: the name of one write, the same for each try.
function newToken() {
  const time = Date.now().toString(16).padStart(12, "0");
  const random = randomBytes(10).toString("hex");
  const digits = `${time}7${random.slice(0, 3)}8${random.slice(3, 18)}`;
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

// Executes one write of one key once, and returns its answer. `send` sends commands in one pipeline
// and returns their answers. Give the token of an order that outlives this process.
async function once(send, command, token = newToken(), tries = 3) {
  try {
    const answers = await send([["KV.OPTS", `token=${token}`], command]);
    return answers[1];
  } catch (error) {
    // What the server refuses is no lost answer.
    if (error instanceof ErrorReply || error.name === "ReplyError" || tries === 1) throw error;
    return once(send, command, token, tries - 1);
  }
}

// By node-redis: it sends nothing again by itself.
const byNodeRedis = (client) => (commands) => {
  const pipeline = client.multi();
  for (const command of commands) pipeline.addCommand(command);
  return pipeline.execAsPipeline();
};

// By ioredis: it sends a pipeline again.
const byIoredis = (client) => async (commands) => {
  const pipeline = client.pipeline();
  for (const [name, ...words] of commands) pipeline.call(name, ...words);
  const answers = await pipeline.exec();
  return answers.map(([error, answer]) => {
    if (error) throw error;
    return answer;
  });
};

async function sell(name, send) {
  const stock = `{once:${name}:${process.pid}}`;
  await send([["SET", stock, "10"]]);
  const answers = [];
  for (let sold = 0; sold < 6; sold += 1) answers.push(Number(await once(send, ["DECR", stock])));
  assert.deepEqual(answers, [9, 8, 7, 6, 5, 4]);
  const token = newToken();
  for (let asked = 0; asked < 2; asked += 1) {
    assert.equal(Number(await once(send, ["DECR", stock], token)), 3);
  }
  console.log(`${name}: seven writes, each once`);
}

const [name, port] = [process.argv[2], Number(process.argv[3])];
if (name === "ioredis") {
  const client = new Redis(port);
  client.on("error", () => {});
  await sell(name, byIoredis(client));
  client.disconnect();
} else {
  const client = createClient({ socket: { host: "127.0.0.1", port } });
  client.on("error", () => {});
  await client.connect();
  await sell(name, byNodeRedis(client));
  client.destroy();
}
