// The scenarios that all native clients pass, against a real server and through the proxy.

import { after, before, describe, test } from 'node:test';

import { hasPython, noServer, startProxy, startServer } from './programs.js';
import { Stage, readScenarios } from './scenarios.js';

const skip = noServer || (hasPython ? false : 'no python3 for the proxy');

describe('scenarios', { skip }, () => {
  let server;
  let proxy;

  before(async () => {
    server = await startServer();
    proxy = await startProxy(server.address);
  });

  after(async () => {
    proxy?.stop();
    await server?.stop();
  });

  for (const scenario of readScenarios()) {
    const forks = scenario.steps.some((step) => step.do === 'fork');
    const skipped = forks && 'Node has no fork that keeps a client';
    const options = { timeout: 30_000, skip: skipped };
    test(`${scenario.name}: ${scenario.about}`, options,
      () => Stage.play(scenario, proxy, server.address));
  }
});
