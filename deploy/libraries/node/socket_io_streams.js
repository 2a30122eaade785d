// @socket.io/redis-streams-adapter: a message from one server reaches clients of two
const assert = require("assert");
const { createServer } = require("http");
const { once } = require("events");
const { createClient } = require("redis");
const { createAdapter } = require("@socket.io/redis-streams-adapter");
const { Server } = require("socket.io");
const { io } = require("socket.io-client");

async function node() {
  const redis = await createClient({ url: `redis://127.0.0.1:${process.env.PORT}` }).connect();
  const http = createServer().listen(0);
  const server = new Server(http, { adapter: createAdapter(redis) });
  server.on("connection", (socket) => socket.join("sale"));
  const client = io(`http://127.0.0.1:${http.address().port}`, { transports: ["websocket"] });
  await once(client, "connect");
  return { server, client, redis };
}

async function main() {
  const [one, two] = [await node(), await node()];
  assert.ok(await one.redis.xAdd("socket.io", "*", { first: "1" }));
  while ((await one.server.in("sale").fetchSockets()).length < 2);
  const both = [once(one.client, "left"), once(two.client, "left")];
  one.server.to("sale").emit("left", 3);
  assert.deepEqual(await Promise.all(both), [[3], [3]]);
  process.exit(0);
}

main();
