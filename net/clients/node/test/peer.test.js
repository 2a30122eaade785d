// What the client does with peers that are slow, wrong, or say that another one is right.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { afterEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import {
  Apply, Busy, Client, DeadlineExceeded, Field, NotSent, ProtocolError, Refused, Unfit, Unknown,
  connect,
} from '../src/index.js';
import { batchReply, echo, startPeer } from './peer.js';
import { slotOf } from '../src/wire/slot.js';

const open = [];
const decrease = [new Field('u64').decrease(1)];

async function peerOf(parts) {
  const peer = await startPeer(parts);
  open.push(() => peer.stop());
  return peer;
}

async function clientOf(addresses, options) {
  const client = await connect(addresses, { deadline: 3000, ...options });
  open.push(() => client.close());
  return client;
}

afterEach(() => {
  while (open.length > 0) open.pop()();
});

const all = { status: 'OK' };

test('calls of one turn leave in one frame, and each gets its own answer', async () => {
  const peer = await peerOf({
    onBatch(frame, items, socket) {
      const answers = items.map((item, number) => ({ item: number, value: `v${number}` }));
      socket.write(batchReply(frame.requestId, answers.slice(5).reverse(), { flags: 5 }));
      socket.write(batchReply(frame.requestId, answers.slice(0, 5)));
    },
  });
  const client = await clientOf(peer.address);
  const values = await Promise.all(Array.from({ length: 12 }, (_, n) => client.get(`k${n}`)));
  assert.deepEqual(values.map(({ data }) => data.toString()),
    Array.from({ length: 12 }, (_, n) => `v${n}`));
  assert.equal(peer.batches, 1);
});

test('a call follows MOVED, and the next one knows the way', async () => {
  const right = await peerOf({ onBatch: echo });
  const wrong = await peerOf({
    onBatch: (frame, items, socket) => socket.write(batchReply(frame.requestId, [{
      status: 'MOVED', epoch: (3 << 18) + 1, sequence: 0, value: `another node: ${right.address}`,
    }])),
  });
  const client = await clientOf(wrong.address);
  assert.equal((await client.get('stock:1')).data.toString(), 'stock:1');
  assert.equal((await client.get('stock:1')).data.toString(), 'stock:1');
  assert.equal(wrong.batches, 1);
  assert.equal(right.batches, 2);
});

test('MOVED in a circle ends at the deadline as Busy', async () => {
  let address = '';
  const peer = await peerOf({
    onBatch: (frame, items, socket) => socket.write(batchReply(frame.requestId, [{
      status: 'MOVED', epoch: 1 << 18, sequence: 0, value: `another node: ${address}`,
    }])),
  });
  ({ address } = peer);
  const client = await clientOf(peer.address, { deadline: 300 });
  await assert.rejects(client.get('a'), Busy);
  assert.ok(peer.batches < 60, `${peer.batches} tries`);
});

test('BUSY is asked again while the budget lasts', async () => {
  let isBusy = false;
  const peer = await peerOf({
    onBatch(frame, items, socket) {
      const answers = items.map(() => ({ status: isBusy ? 'BUSY' : 'OK', value: 'x' }));
      socket.write(batchReply(frame.requestId, answers, { retryMs: isBusy ? 1 : 0 }));
    },
  });
  const client = await clientOf(peer.address);
  for (let count = 0; count < 24; count += 1) await client.get('a');
  isBusy = true;
  await assert.rejects(client.get('a'), { name: 'Busy', status: 'BUSY', isExecuted: 'no' });
  assert.equal(peer.batches, 24 + 1 + 2, '25 calls earn two retries');
});

test('a call that is given up before it is sent is never sent', async () => {
  const peer = await peerOf({ onBatch: echo });
  const client = await clientOf(peer.address);
  const giving = new AbortController();
  const call = client.updateIf('a', decrease, { signal: giving.signal });
  giving.abort();
  await assert.rejects(call, { name: 'AbortError' });
  await assert.rejects(client.get('a', { signal: giving.signal }), { name: 'AbortError' });
  await sleep(30);
  assert.equal(peer.batches, 0);
});

test('a write that is given up behind its request is Unknown, with its token', async () => {
  const peer = await peerOf({});
  const client = await clientOf(peer.address);
  const giving = new AbortController();
  const write = client.updateIf('a', decrease, { signal: giving.signal });
  const read = client.get('a', { signal: AbortSignal.timeout(60) });
  setTimeout(() => giving.abort(new Error('enough')), 60);
  const [{ reason: error }, { reason: timeout }] = await Promise.allSettled([write, read]);
  assert.ok(error instanceof Unknown);
  assert.match(error.token, /^[0-9a-f-]{36}$/);
  assert.equal(error.cause.message, 'enough');
  assert.equal(timeout.name, 'TimeoutError');
});

test('an answer to a call that was given up reaches no other call', async () => {
  const late = [];
  const peer = await peerOf({
    onBatch(frame, items, socket) {
      if (late.length === 0) late.push(() => echo(frame, items, socket));
      else echo(frame, items, socket);
    },
  });
  const client = await clientOf(peer.address);
  await assert.rejects(client.get('first', { signal: AbortSignal.timeout(40) }));
  const second = client.get('second');
  late[0]();
  assert.equal((await second).data.toString(), 'second');
  assert.equal((await client.get('third')).data.toString(), 'third');
});

test('an answer to what was never asked ends the connection', async () => {
  let count = 0;
  const peer = await peerOf({
    onBatch(frame, items, socket) {
      count += 1;
      socket.write(batchReply(count === 1 ? frame.requestId + 5 : frame.requestId, [all]));
    },
  });
  const client = await clientOf(peer.address, { tokens: false });
  await assert.rejects(client.updateIf('a', decrease), (error) => {
    assert.ok(error instanceof Unknown);
    assert.ok(error.cause instanceof ProtocolError);
    assert.equal(error.token, null);
    return true;
  });
  await assert.rejects(client.resolve(new Unknown('none')), TypeError);
  await client.set('a', 'b');
});

test('bytes of any kind end a call with an error, and the client goes on', async () => {
  let bytes = null;
  const peer = await peerOf({
    onBatch(frame, items, socket) {
      if (bytes) socket.end(bytes);
      else echo(frame, items, socket);
    },
  });
  const client = await clientOf(peer.address, { retries: false });
  for (let round = 0; round < 80; round += 1) {
    bytes = randomBytes(round);
    if (round % 2) {
      const whole = batchReply(2, [{ value: 'abc' }, { value: 'd' }]);
      bytes = Buffer.from(whole.subarray(0, whole.length - (round % 3)));
      bytes[(round * 7) % bytes.length] ^= 1 << (round % 8);
    }
    await assert.rejects(client.updateIf('a', decrease), Unknown);
  }
  bytes = null;
  await client.set('a', 'b');
});

test('the port of a core that belongs to another server is not asked', async () => {
  const stranger = await peerOf({ hello: { nodeId: 7, shard: 1 }, onBatch: echo });
  const slots = [[0, 8191, 0, 1], [8192, 16383, 1, stranger.port]];
  const peer = await peerOf({ hello: { slots }, onBatch: echo });
  const client = await clientOf(peer.address);
  for (const key of ['foo', 'bar', 'baz', 'a', 'b']) await client.get(key);
  assert.equal(stranger.batches, 0);
  assert.equal(stranger.connections, 1);
});

test('keys go to the ports of their cores, and to the main port while one is closed', async () => {
  const core = await peerOf({ hello: { shard: 1 }, onBatch: echo });
  const peer = await peerOf({
    hello: { slots: [[0, 8191, 0, 9], [8192, 16383, 1, core.port]] }, onBatch: echo,
  });
  const client = await clientOf(peer.address);
  assert.ok(slotOf(Buffer.from('foo')) > 8191);
  await client.get('foo');
  assert.deepEqual([peer.batches, core.batches], [0, 1]);
  core.stop();
  await sleep(20);
  await client.get('foo');
  await client.get('foo');
  assert.deepEqual([peer.batches, core.batches], [2, 1]);
});

test('a node that falls silent is left for another one', async () => {
  const silent = await peerOf({});
  const good = await peerOf({ onBatch: echo });
  const client = await clientOf([silent.address, good.address], { silenceMax: 200 });
  const begin = performance.now();
  const [read, write] = await Promise.all([client.get('a'), client.updateIf('b', [])]);
  assert.equal(read.data.toString(), 'a');
  assert.ok(write.version);
  assert.ok(performance.now() - begin < 2500);
  assert.equal(silent.batches, 1);
});

test('a write without a token is Unknown when its node falls silent', async () => {
  const silent = await peerOf({});
  const good = await peerOf({ onBatch: echo });
  const client = await clientOf([silent.address, good.address],
    { silenceMax: 100, tokens: false, deadline: 600 });
  await assert.rejects(client.updateIf('a', decrease), { name: 'Unknown', token: null });
  assert.equal(good.batches, 0);
});

test('the next address is asked when the first one cannot be reached', async () => {
  const gone = await startPeer({});
  gone.stop();
  const peer = await peerOf({ onBatch: echo });
  const client = await clientOf(`${gone.address}, ${peer.address}`);
  assert.equal((await client.get('a')).data.toString(), 'a');
  await assert.rejects(connect(gone.address), NotSent);
});

test('what is not sent has its own error, and what is sent another one', async () => {
  const peer = await peerOf({});
  const client = await clientOf(peer.address, { deadline: 150 });
  await assert.rejects(client.get('a'), { name: 'Unknown', token: null, isExecuted: 'unknown' });
  peer.stop();
  await sleep(20);
  await assert.rejects(client.set('a', 'b'), { name: 'NotSent', isExecuted: 'no' });
  const quick = await clientOf((await peerOf({})).address, { retries: false, deadline: 150 });
  quick.close();
  await assert.rejects(quick.get('a'), NotSent);
});

test('a server that speaks something else is no server of Penstock', async () => {
  for (const words of ['-ERR this is Redis, and it says more than a header has\r\n',
    'HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n']) {
    const peer = await peerOf({ hello: false, onConnect: (socket) => socket.write(words) });
    await assert.rejects(connect(peer.address), ProtocolError);
  }
});

test('a server that says nothing, or has too much to do, or has users, is told apart', async () => {
  const mute = await peerOf({ hello: false });
  await assert.rejects(connect(mute.address, { deadline: 100 }), NotSent);
  const users = await peerOf({ hello: { methods: 2 } });
  await assert.rejects(connect(users.address), Unfit);
  const nobody = await peerOf({ hello: { methods: 1 } });
  const identity = { name: 'ann', secret: 'x' };
  await assert.rejects(connect(nobody.address, { identity }), Unfit);
});

test('a verb without its feature bit is refused before anything is sent', async () => {
  const peer = await peerOf({ hello: { features: 0n }, onBatch: echo });
  const client = await clientOf(peer.address);
  const apply = new Apply();
  apply.key('a');
  const refused = { name: 'Refused', status: 'UNSUPPORTED' };
  await assert.rejects(client.apply(apply), refused);
  await assert.rejects(client.run('buy', {}), refused);
  await assert.rejects(client.schema(), refused);
  await assert.rejects(client.expiry('a'), refused);
  await assert.rejects(client.set('a', 'b', { expiresIn: 5 }), refused);
  await assert.rejects(client.set('a', 'b', { ifAbsent: true, show: true }), refused);
  await assert.rejects(client.set('a', 'b', { token: client.newToken() }), refused);
  await assert.rejects(client.scan().next(), refused);
  assert.equal(peer.batches, 0);
});

test('too much under way is Busy, and costs the peer nothing', async () => {
  const peer = await peerOf({});
  const client = await clientOf(peer.address, { pendingMax: 10, deadline: 200 });
  const calls = Array.from({ length: 20 }, () => client.get('a'));
  const outcomes = await Promise.allSettled(calls);
  const busy = outcomes.filter(({ reason }) => reason instanceof Busy);
  assert.equal(busy.length, 10);
  await assert.rejects(client.get('a'), Busy, 'ten answers are owed still');
});

test('arguments that cannot be are refused by the client', async () => {
  const peer = await peerOf({ onBatch: echo });
  const client = await clientOf(peer.address);
  await assert.rejects(client.get(''), RangeError);
  await assert.rejects(client.get('x'.repeat(1025)), RangeError);
  await assert.rejects(client.get(5), TypeError);
  await assert.rejects(client.set('a'), TypeError);
  await assert.rejects(client.set('a', 'b', { ifAbsent: true, ifPresent: true }), TypeError);
  await assert.rejects(client.set('a', 'b', { expiresIn: 5, keepExpiry: true }), TypeError);
  await assert.rejects(client.set('a', 'b', { show: true }), TypeError);
  await assert.rejects(client.set('a', 'b', { expiresIn: 0 }), RangeError);
  await assert.rejects(client.set('a', 'b', { ttl: 5 }), TypeError);
  await assert.rejects(client.set('a', 'b', { level: 'most' }), RangeError);
  await assert.rejects(client.get('a', { deadline: 70_000 }), RangeError);
  await assert.rejects(client.setExpiry('a', {}), TypeError);
  await assert.rejects(client.apply({}), TypeError);
  await assert.rejects(connect('nowhere'), TypeError);
  await assert.rejects(connect(peer.address, { tokes: true }), TypeError);
  assert.throws(() => new Client(peer.address), TypeError);
  assert.equal(peer.batches, 0);
});

test('a refusal of a second try leaves the outcome unknown, a no is one', async () => {
  const answers = [];
  const peer = await peerOf({
    onBatch(frame, items, socket) {
      const answer = answers.shift() ?? 'OK';
      if (answer === 'end') socket.destroy();
      else socket.write(batchReply(frame.requestId, [{ status: answer, value: 'text' }]));
    },
  });
  const client = await clientOf(peer.address);
  for (let count = 0; count < 60; count += 1) await client.get('a');
  answers.push('end', 'DENIED');
  await assert.rejects(client.updateIf('a', decrease), (error) => {
    assert.ok(error instanceof Unknown);
    assert.ok(error.cause instanceof Refused);
    return true;
  });
  answers.push('end', 'GUARD_FAILED');
  await assert.rejects(client.updateIf('a', decrease), { name: 'No', status: 'GUARD_FAILED' });
  answers.push('DENIED');
  await assert.rejects(client.updateIf('a', decrease), { name: 'Refused', status: 'DENIED' });
  answers.push('NOREPLICAS');
  await assert.rejects(client.updateIf('a', decrease), { name: 'Unknown', status: 'NOREPLICAS' });
  answers.push('DEADLINE');
  await assert.rejects(client.updateIf('a', decrease), DeadlineExceeded);
});
