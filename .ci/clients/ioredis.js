// ioredis against the RESP port: what its users do on the first day. Usage: node ioredis.js PORT,
// where node_modules has ioredis.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import Redis from "ioredis";

const redis = new Redis({ host: "127.0.0.1", port: Number(process.argv[2]) });
await redis.del("io:k", "io:n");
assert.equal(await redis.set("io:k", "v", "EX", 100), "OK");
assert.equal(await redis.get("io:k"), "v");
assert.equal(await redis.incrby("io:n", 5), 5);
assert.deepEqual(await redis.mget("io:k", "io:n", "io:none"), ["v", "5", null]);
const piped = await redis.pipeline().set("io:k", "w").get("io:k").exec();
assert.deepEqual(piped, [[null, "OK"], [null, "w"]]);
const multi = await redis.multi().incr("{io}a").incr("{io}a").exec();
assert.equal(multi.length, 2);
await assert.rejects(redis.incr("io:k"), /not an integer/);
const found = [];
for await (const keys of redis.scanStream({ match: "io:*", count: 100 })) found.push(...keys);
assert.deepEqual(found.sort(), ["io:k", "io:n"]);
await redis.quit();
const { version } = JSON.parse(readFileSync("node_modules/ioredis/package.json"));
console.log(`ioredis ${version}: commands, pipeline, MULTI, SCAN`);
