// The programs that the tests run: a server, and the proxy of net/clients.

import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';

const ROOT = new URL('../../../../', import.meta.url);
const PROXY = fileURLToPath(new URL('../../proxy.py', import.meta.url));
export const PROGRAMS = fileURLToPath(new URL('deploy/programs', ROOT));
const START_MS = 60_000;

/** The program of the server: what PENSTOCK_SERVER names. */
export const SERVER = process.env.PENSTOCK_SERVER;

/** Why tests with a server are not run; false if they are. */
export const noServer = SERVER ? false : 'PENSTOCK_SERVER names no program';

/** Whether Python, which the proxy needs, is there. */
export const hasPython = spawnSync('python3', ['--version']).status === 0;

/** A folder that is removed with `rmSync` by whoever asked for it. */
export const newFolder = () => mkdtempSync(join(tmpdir(), 'penstock-node-'));

/**
 * A server on free ports, with a data directory of its own, or again on `listen` with that of
 * `folder`. `more` are words of its command.
 */
export async function startServer({ more = [], folder = newFolder(), listen } = {}) {
  const server = await launch([
    '--data', join(folder, 'data'), '--listen', listen ?? '127.0.0.1:0', '--shards', '2',
    '--shard-ports', '0', '--schema', PROGRAMS, ...more,
  ]);
  const stop = async () => {
    await server.kill();
    rmSync(folder, { recursive: true, force: true });
  };
  return { ...server, folder, stop };
}

/** Runs the program, and gives what it prints. */
export const run = (...words) => execFileSync(SERVER, words, {
  env: { PATH: process.env.PATH }, stdio: ['ignore', 'pipe', 'ignore'],
}).toString().trim();

/** A server by the words of its command, when it is ready; `isUp` says by what it has printed. */
export async function launch(words, isUp = (said) => /^ready$/m.test(said)) {
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !name.startsWith('PENSTOCK_')),
  );
  const child = spawn(SERVER, [
    'serve', '--cache-bytes', '64MiB', '--segment-bytes', '16MiB', '--admin-listen', 'off',
    ...words,
  ], { stdio: ['ignore', 'pipe', 'pipe'], env });
  let said = '';
  child.stdout.on('data', (chunk) => { said += chunk; });
  child.stderr.on('data', (chunk) => { said += chunk; });
  const ended = new Promise((resolve) => { child.once('exit', resolve); });
  const kill = async () => {
    child.kill('SIGKILL');
    await ended;
  };
  const begin = performance.now();
  for (;;) {
    const address = /^listening *(\S+:\d+)/m.exec(said)?.[1];
    if (address && isUp(said)) return { address, kill, pid: child.pid };
    if (child.exitCode !== null || performance.now() - begin > START_MS) {
      await kill();
      throw new Error(`the server did not come up: ${said}`);
    }
    await sleep(20);
  }
}

/** The proxy before a server. `ask` gives it a line and returns its answer. */
export async function startProxy(serverAddress) {
  const child = spawn('python3', [PROXY, serverAddress], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const first = (await lines.next()).value ?? '';
  const address = /^proxy (\S+)$/.exec(first)?.[1];
  if (!address) throw new Error(`the proxy did not come up: ${first}`);
  return {
    address,
    async ask(line) {
      child.stdin.write(`${JSON.stringify(line)}\n`);
      return JSON.parse((await lines.next()).value);
    },
    stop() {
      child.stdin.end();
      child.kill();
    },
  };
}

export const readJson = (path) => JSON.parse(readFileSync(new URL(path, ROOT), 'utf8'));
