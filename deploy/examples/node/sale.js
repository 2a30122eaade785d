// A ticket sale with node-redis: 60 buyers want 20 tickets, each may have one, and each asks twice,
// as a client does that got no answer. Usage: node sale.js PORT
//
// node-redis sends nothing again by itself: a command whose answer is lost fails, and nobody knows
// whether it was executed. ioredis does send it again, and a DECR counts twice, unless it has
// maxRetriesPerRequest: 0. So each purchase has a token.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createClient, ErrorReply } from "redis";

const TICKETS = 20;
const BUYERS = 60;
const SALE = `{sale:node:${process.pid}}`; // all keys of a sale are of one slot

// A UUID of version 7: the name of one purchase, the same for each try.
function newToken() {
  const time = Date.now().toString(16).padStart(12, "0");
  const random = randomBytes(10).toString("hex");
  const digits = `${time}7${random.slice(0, 3)}8${random.slice(3, 18)}`;
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

// RESP3 tells a map, RESP2 its keys and values in turn.
function asObject(reply) {
  if (reply instanceof Map) return Object.fromEntries(reply);
  if (!Array.isArray(reply)) return reply;
  const object = {};
  for (let at = 0; at < reply.length; at += 2) object[reply[at]] = reply[at + 1];
  return object;
}

// Sells a ticket, or says why not. All of it happens, or nothing does. Without an answer it asks
// again with the same token: what was executed is answered, and not executed again.
async function buy(client, buyer, token, tries = 3) {
  try {
    return await ask(client, buyer, token);
  } catch (error) {
    // What the server refuses is no lost answer.
    if (error instanceof ErrorReply || tries === 1) throw error;
    return buy(client, buyer, token, tries - 1);
  }
}

async function ask(client, buyer, token) {
  const reply = await client.sendCommand([
    "KV.APPLY", `${SALE}:stock`, "KEY", `${SALE}:buyer:${buyer}`, "TOKEN", token,
    "k2 absent else 1", // one for each buyer
    "k1.decimal >= 1 else 2", // none is left
    "k1.decimal -= 1",
    "k2 put", "one ticket",
  ]);
  return asObject(reply);
}

const client = createClient({ socket: { host: "127.0.0.1", port: Number(process.argv[2]) } });
// It connects again by itself, and what was under way fails where it is waited for.
client.on("error", () => {});
await client.connect();
await client.set(`${SALE}:stock`, TICKETS.toString());

const buyers = [...Array(BUYERS).keys()];
const answers = await Promise.all(
  buyers.map(async (buyer) => {
    const token = newToken();
    const first = await buy(client, buyer, token);
    return { buyer, first, again: await buy(client, buyer, token) };
  }),
);

const sold = answers.filter(({ first }) => first.status === "OK");
assert.equal(sold.length, TICKETS);
assert.equal(await client.get(`${SALE}:stock`), "0");
for (const { buyer, first, again } of answers) {
  if (first.status === "OK") {
    // The second try bought nothing: it got the first answer again.
    assert.equal(Number(again.replayed), 1);
    assert.deepEqual(again.numbers, first.numbers);
    assert.equal(await client.get(`${SALE}:buyer:${buyer}`), "one ticket");
  } else {
    assert.deepEqual([Number(first.reason), Number(again.reason)], [2, 2]);
    assert.equal(await client.exists(`${SALE}:buyer:${buyer}`), 0);
  }
}
// A buyer who has a ticket gets no second one, with whatever token.
assert.equal(Number((await buy(client, sold[0].buyer, newToken())).reason), 1);
// The way of Redis: commands behind MULTI happen together or not at all.
const [count, left] = await client.multi().incr(`${SALE}:closed`).get(`${SALE}:stock`).exec();
assert.deepEqual([count, left], [1, "0"]);
await client.close();
const { version } = JSON.parse(readFileSync("node_modules/redis/package.json"));
console.log(`node-redis ${version}: ${TICKETS} tickets, ${BUYERS} buyers, each asked twice`);
