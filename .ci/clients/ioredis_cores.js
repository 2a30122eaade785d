// ioredis' Cluster at the ports of the cores. Usage: node ioredis_cores.js ENTRY PORT PORT..., where
// node_modules has ioredis. ENTRY is the port that the cores share, the others are theirs.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import Redis from "ioredis";

const [entry, ...ports] = process.argv.slice(2).map(Number);
for (const port of [entry, ...ports]) {
    const cluster = new Redis.Cluster([{ host: "127.0.0.1", port }]);
    const keys = [...Array(200).keys()].map((number) => `io-core:${number}`);
    for (const key of keys) assert.equal(await cluster.set(key, key), "OK");
    for (const key of keys) assert.equal(await cluster.get(key), key);
    const nodes = cluster.nodes("master");
    assert.deepEqual(nodes.map((node) => node.options.port).sort(), ports);
    const found = [];
    for (const node of nodes)
        for await (const some of node.scanStream({ match: "io-core:*" })) found.push(...some);
    assert.deepEqual(found.sort(), keys.sort());
    for (const key of keys) await cluster.del(key);
    await cluster.quit();
}
const { version } = JSON.parse(readFileSync("node_modules/ioredis/package.json"));
console.log(`ioredis ${version}: Cluster over ${ports.length} cores`);
