// The steps of net/clients/scenarios, done by this client (SCENARIOS.md).

import { readFileSync, readdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import assert from 'node:assert/strict';

import { Apply, BY_SIGN, Field, PenstockError, connect } from '../src/index.js';

const FOLDER = new URL('../../scenarios/', import.meta.url);

/** All scenarios, by the names of their files. */
export function readScenarios() {
  return readdirSync(FOLDER).filter((name) => name.endsWith('.json')).sort()
    .map((name) => JSON.parse(readFileSync(new URL(name, FOLDER), 'utf8')));
}

const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

/** Values and times in the words of a scenario, as this client takes them. */
function readOptions(given = {}, outcomes) {
  const options = {};
  for (const [name, value] of Object.entries(given)) {
    if (name === 'if_version') options.ifVersion = outcomes.get(value).answer.version;
    else if (name === 'start') options.start = readValue(value);
    else options[camel(name.replace(/_ms$/, ''))] = value;
  }
  return options;
}

function readValue(value) {
  if (value.text !== undefined) return Buffer.from(value.text);
  if (value.hex !== undefined) return Buffer.from(value.hex, 'hex');
  const bytes = Buffer.alloc(value.u64 === undefined ? 4 : 8);
  if (value.u64 === undefined) bytes.writeUInt32LE(value.u32);
  else bytes.writeBigUInt64LE(BigInt(value.u64));
  return bytes;
}

function readInstruction([type, offset, sign, operand, reason = 0]) {
  return new Field(type, offset).instruction(BY_SIGN[sign], operand).orElse(reason);
}

function readApply(step) {
  const apply = new Apply();
  const keys = step.keys.map((key) => apply.key(key));
  for (const [number, ...words] of step.instructions) {
    const key = keys[number];
    const [what, second] = words;
    if (what === 'EXISTS') apply.do(key.exists().orElse(second ?? 0));
    else if (what === 'ABSENT') apply.do(key.absent().orElse(second ?? 0));
    else if (what === 'DEL') apply.do(key.delete());
    else if (what === 'PUT') apply.do(key.put(readValue(second)));
    else if (what === 'START') apply.do(key.start(readValue(second)));
    else apply.do(readInstruction(words).ofKey(number));
  }
  return apply;
}

/** One scenario with its proxy and its clients. */
export class Stage {
  #outcomes = new Map();
  #proxied;
  #direct;
  #proxy;

  constructor(proxy, proxied, direct) {
    this.#proxy = proxy;
    this.#proxied = proxied;
    this.#direct = direct;
  }

  static async play(scenario, proxy, serverAddress) {
    const mark = Math.random().toString(36).slice(2);
    const told = JSON.parse(JSON.stringify(scenario).replaceAll('$', mark));
    const { hello = {}, faults = [], client = {} } = told;
    await proxy.ask({ hello, faults });
    const { deadline_ms: deadline = 2000, shard_ports: shardPorts, ...others } = client;
    const proxied = await connect(proxy.address, { deadline, shardPorts, ...others });
    const direct = await connect(serverAddress, { deadline: 5000, tokens: false });
    const stage = new Stage(proxy, proxied, direct);
    try {
      await stage.steps(told.steps);
      const last = told.steps.findLast((step) => step.do === 'faults');
      const expected = (last ? last.faults ?? [] : faults).filter(({ nth }) => nth !== 'each');
      const count = expected.reduce((sum, { nth }) => sum + (nth?.length ?? 1), 0);
      const { fired } = await proxy.ask({ seen: true });
      if (!told.may_not_fire) assert.ok(fired >= count, `${fired} of ${count} faults took place`);
    } finally {
      proxied.close();
      direct.close();
    }
  }

  async steps(steps) {
    for (const step of steps) await this.#step(step);
  }

  async #step(step) {
    switch (step.do) {
      case 'together':
        await Promise.all(step.steps.map((one) => this.#asked(one)));
        break;
      case 'repeat':
        for (let time = 0; time < step.times; time += 1) await this.steps(step.steps);
        break;
      case 'wait':
        await sleep(step.ms);
        break;
      case 'end':
        await this.#proxy.ask({ end: true });
        break;
      case 'faults':
        await this.#proxy.ask({ faults: step.faults ?? [], hello: step.hello ?? {} });
        break;
      case 'cancel':
        await this.#cancel(step);
        break;
      default:
        await this.#asked(step);
    }
  }

  async #cancel({ step, after_ms: afterMs }) {
    const giving = new AbortController();
    const call = this.#ask(step, { signal: giving.signal });
    setTimeout(() => giving.abort(), afterMs);
    const isGivenUp = (error) => error.name === 'AbortError' || error.name === 'Unknown';
    await assert.rejects(call, isGivenUp);
  }

  async #asked(step) {
    const begin = performance.now();
    const outcome = { answer: undefined, error: null };
    try {
      outcome.answer = await this.#ask(step);
    } catch (error) {
      if (!(error instanceof PenstockError)) throw error;
      outcome.error = error;
    }
    if (step.as) this.#outcomes.set(step.as, outcome);
    compare(step, outcome, performance.now() - begin);
  }

  async #ask(step, more = {}) {
    const client = step.via === 'direct' ? this.#direct : this.#proxied;
    const options = { ...readOptions(step.options, this.#outcomes), ...more };
    switch (step.do) {
      case 'set':
        return client.set(step.key, readValue(step.value), options);
      case 'update_if':
        return client.updateIf(step.key, step.instructions.map(readInstruction), options);
      case 'apply':
        return client.apply(readApply(step), options);
      case 'run':
        return client.run(step.program, step.keys, step.arguments, options);
      case 'scan': {
        const keys = [];
        for await (const { key } of client.scan(step.prefix, options)) keys.push(key.toString());
        return keys.sort();
      }
      case 'resolve':
        return client.resolve(this.#outcomes.get(step.of).error, options);
      case 'get':
      case 'expiry':
      case 'delete':
      case 'set_expiry':
        return client[camel(step.do)](step.key, options);
      default:
        throw new Error(`a scenario has a step that this runner does not know: ${step.do}`);
    }
  }
}

const COMPARED = new Set(['outcome', 'status', 'value', 'numbers', 'was_there', 'replayed',
  'has_token', 'reason', 'actual', 'instruction', 'shown', 'keys', 'within_ms', 'after_ms']);

function compare(step, { answer, error }, tookMs) {
  const { expect = {} } = step;
  const text = JSON.stringify(step);
  for (const name of Object.keys(expect)) assert.ok(COMPARED.has(name), `${name} in ${text}`);
  const outcomes = [expect.outcome ?? 'ok'].flat();
  const said = error ? `${error.name} (${error.message})` : 'ok';
  assert.ok(outcomes.includes(error ? error.name : 'ok'), `${said}, not ${outcomes}: ${text}`);
  if (expect.within_ms !== undefined) assert.ok(tookMs <= expect.within_ms, `${tookMs}: ${text}`);
  if (expect.after_ms !== undefined) assert.ok(tookMs >= expect.after_ms, `${tookMs}: ${text}`);
  const of = { text, error, answer };
  same(of, expect, 'status', () => error.status);
  same(of, expect, 'reason', () => error.reason);
  same(of, expect, 'actual', () => error.actual);
  same(of, expect, 'instruction', () => error.instruction);
  same(of, expect, 'has_token', () => error.token !== null);
  same(of, expect, 'was_there', () => answer);
  same(of, expect, 'replayed', () => answer.replayed);
  same(of, expect, 'keys', () => answer);
  if (expect.numbers !== undefined) {
    const numbers = Array.isArray(expect.numbers)
      ? Object.values(answer.numbers)
      : Object.fromEntries(Object.keys(expect.numbers).map((name) => [name, answer.numbers[name]]));
    assert.deepEqual(numbers, expect.numbers, text);
  }
  if (expect.value !== undefined) assert.deepEqual(answer?.data ?? null, bytes(expect.value), text);
  if (expect.shown !== undefined) assert.deepEqual(error.shown, bytes(expect.shown), text);
}

function same({ text }, expect, name, actual) {
  if (expect[name] !== undefined) assert.deepEqual(actual(), expect[name], `${name}: ${text}`);
}

const bytes = (value) => (value === null ? null : readValue(value));
