// This client beside ioredis at one server: `node bench/compare.js HOST:PORT RESP_HOST:RESP_PORT`.
// ioredis is no dependency: it is taken from PENSTOCK_BENCH_MODULES, a folder of node_modules.
//
// Both do the same by turns, so that other work of the machine strikes both: one call after the
// other, then calls a hundred at a time. GET is answered from memory; SET is on the server's disk
// when it is answered, or in its memory with PENSTOCK_BENCH_LEVEL=none and `--durability none`.
// Printed are medians of the turns: calls in a second with the median of the ratio of neighbouring
// turns, and CPU microseconds of this process for a call, likewise. Where other programs want the
// machine, the second ratio is the one to read.

import { createRequire } from 'node:module';
import { join } from 'node:path';

import { Field, connect } from '../src/index.js';

const [address, resp] = process.argv.slice(2);
if (!resp) {
  console.error('usage: node bench/compare.js HOST:PORT RESP_HOST:RESP_PORT');
  process.exit(2);
}
const modules = process.env.PENSTOCK_BENCH_MODULES ?? 'node_modules';
const load = createRequire(join(modules, 'compare.cjs'));
const { Redis } = load('ioredis');
const { version } = load('ioredis/package.json');

const TURNS = 9;
const TURN_MS = 300;
const VALUE = Buffer.alloc(64, 7);
const KEYS = Array.from({ length: 1000 }, (_, number) => `compare:${number}`);

async function turn(call, width) {
  const cpu = process.cpuUsage();
  const begin = performance.now();
  let count = 0;
  let took = 0;
  while (took < TURN_MS) {
    const calls = [];
    for (let one = 0; one < width; one += 1) calls.push(call(KEYS[(count + one) % KEYS.length]));
    await Promise.all(calls);
    count += width;
    took = performance.now() - begin;
  }
  const { user, system } = process.cpuUsage(cpu);
  return { rate: (count * 1000) / took, cpuUs: (user + system) / count };
}

const median = (numbers) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1];
const cell = (number, digits) => number.toFixed(digits).padStart(8);

async function compare(name, width, ours, theirs) {
  await turn(ours, width);
  await turn(theirs, width);
  const turns = [];
  for (let number = 0; number < TURNS; number += 1) {
    const own = await turn(ours, width);
    turns.push([own, await turn(theirs, width)]);
  }
  const of = (read) => median(turns.map(read));
  console.log(name.padEnd(36) +
    cell(of(([own]) => own.rate), 0) + cell(of(([, other]) => other.rate), 0) +
    cell(of(([own, other]) => own.rate / other.rate), 2) +
    cell(of(([own]) => own.cpuUs), 2) + cell(of(([, other]) => other.cpuUs), 2) +
    cell(of(([own, other]) => own.cpuUs / other.cpuUs), 2));
}

// The least level of the server, as the port for clients of Redis has it.
const level = process.env.PENSTOCK_BENCH_LEVEL ?? 'disk';
const client = await connect(address, { level });
const plain = await connect(address, { level, tokens: false });
const [host, port] = resp.split(':');
const redis = new Redis({ host, port: Number(port), enableAutoPipelining: true });
const counter = new Field('u64');
const take = [counter.atLeast(1), counter.decrease(1)];
const stock = Buffer.alloc(8, 0x7f);
await Promise.all(KEYS.map((key) => client.set(`n:${key}`, stock)));
await Promise.all(KEYS.map((key) => client.set(key, VALUE)));
await Promise.all(KEYS.map((key) => redis.set(`d:${key}`, '1000000000')));

console.log(`node ${process.version}, ioredis ${version}, medians of ${TURNS} turns`);
console.log(['calls/s', 'ioredis', 'ratio', 'CPU us', 'ioredis', 'ratio']
  .reduce((line, word) => line + word.padStart(8), ''.padEnd(36)));
for (const width of [1, 100]) {
  const way = width === 1 ? 'single' : `${width} at a time`;
  await compare(`GET, ${way}`, width, (key) => client.get(key), (key) => redis.getBuffer(key));
  await compare(`SET, ${way}`, width,
    (key) => client.set(key, VALUE), (key) => redis.set(key, VALUE));
  await compare(`a sale with a token / DECR, ${way}`, width,
    (key) => client.updateIf(`n:${key}`, take), (key) => redis.decr(`d:${key}`));
  await compare(`a sale without / DECR, ${way}`, width,
    (key) => plain.updateIf(`n:${key}`, take), (key) => redis.decr(`d:${key}`));
}
client.close();
plain.close();
redis.disconnect();
