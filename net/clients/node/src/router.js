// Which node a call goes to, and whether it is sent again.

import { RetryBudget, busyPause, movedPause } from './budget.js';
import { Call } from './call.js';
import {
  Busy, DeadlineExceeded, No, NotSent, ProtocolError, Refused, Unfit,
} from './errors.js';
import { Node } from './node.js';
import { ServerTime } from './server-time.js';
import { BEHIND_TOKEN, OUTCOME_UNKNOWN } from './wire/status.js';

const PARTITIONS = 256;
const SLOTS_OF_PARTITION = 64;
const DOWN_MIN_MS = 10;
const DOWN_MAX_MS = 500;
const GENERATION_SHIFT = 18;
/** Bytes of items that wait or are under way, at most. */
const PENDING_BYTES_MAX = 256 << 20;
const NODES_MAX = 256;
const NO = new Set(['GUARD_FAILED', 'NOT_FOUND', 'EXISTS', 'VERSION_MISMATCH', 'NOT_KEPT']);
const LATER = new Set(['FULL', 'DRAINING', 'BUSY']);

/** The nodes, what is known of who writes what, and the rules of sending again. */
export class Router {
  #options;
  #nodes = new Map();
  #home;
  #placement = new Array(PARTITIONS).fill(null);
  #budget = new RetryBudget();
  #pending = new Set();
  #pendingBytes = 0;
  #timers = new Set();
  #watch = null;
  #isClosed = false;

  time = new ServerTime();
  features = 0;

  constructor(addresses, options) {
    this.#options = options;
    for (const address of addresses) this.#nodeAt(address);
    if (this.#nodes.size === 0) throw new TypeError('a client needs an address');
    [this.#home] = this.#nodes.values();
  }

  /** Resolves when one of the nodes is open. */
  async open() {
    let failure;
    for (const node of [...this.#nodes.values()]) {
      try {
        await node.open();
        this.#home = node;
        return;
      } catch (error) {
        failure = error;
      }
    }
    throw failure;
  }

  newCall(ask, { deadline, signal }) {
    if (this.#isClosed) throw new NotSent('the client is closed');
    const bytes = ask.item.length;
    if (this.#pending.size >= this.#options.pendingMax ||
        this.#pendingBytes + bytes > PENDING_BYTES_MAX) {
      throw new Busy('too much is under way');
    }
    const call = new Call(ask, {
      deadline,
      signal,
      onSettled: () => {
        this.#pending.delete(call);
        this.#pendingBytes -= bytes;
      },
    });
    this.#pending.add(call);
    this.#pendingBytes += bytes;
    return call;
  }

  /** Sends a call for the first time. */
  begin(call) {
    this.#budget.earn();
    this.#dispatch(call);
  }

  close() {
    this.#isClosed = true;
    clearInterval(this.#watch);
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
    const error = new NotSent('the client is closed');
    for (const node of this.#nodes.values()) node.close(error);
    for (const call of [...this.#pending]) call.fail(error);
  }

  /** A node said HELLO. */
  greeted(node, hello) {
    this.features = hello.features;
    this.time.note(hello.timeMs);
    for (const { first, last, node: number, generation } of hello.placement?.ranges ?? []) {
      const named = hello.placement.nodes.find((one) => one.number === number);
      for (let partition = first; named && partition <= last; partition += 1) {
        this.#learn(partition, generation, named.address);
      }
    }
    for (const { address } of hello.placement?.nodes ?? []) this.#nodeAt(address);
  }

  /** A node could not be reached; nothing of the call was sent this time. */
  unreached(call, node, error) {
    if (this.#isClosed || error instanceof Unfit) {
      call.fail(error);
      return;
    }
    this.#isDown(node);
    call.target = null;
    call.unreached = error instanceof ProtocolError
      ? new NotSent(`${node.address}: ${error.message}`, { cause: error }) : error;
    if (!this.#options.retries) call.fail(call.unreached);
    else if (this.#home.downUntil <= performance.now()) this.#dispatch(call);
    else this.#later(call, this.#home.downUntil - performance.now());
  }

  /** A connection ended before the answer. */
  lost(call, wasSent, error, node) {
    if (this.#isClosed) {
      if (wasSent) call.failUnknown(error.message, { cause: error });
      else call.fail(error);
      return;
    }
    if (error.isSilence) this.#isDown(node);
    const again = call.losses;
    call.losses += 1;
    if (!wasSent) {
      this.#later(call, again === 0 ? 0 : busyPause(1, again));
      return;
    }
    call.isUncertain ||= !call.isRead;
    const mayRepeat = call.mayRepeat && this.#options.retries;
    const isFree = this.#nodes.size > 1 && again === 0;
    if (mayRepeat && (isFree || this.#budget.take())) this.#later(call, busyPause(1, again));
    else call.failUnknown(error.message, { cause: error });
  }

  /** An answer came. */
  answered(call, reply, retryAfterMs) {
    const { status } = reply;
    if (status === 'OK' || (status === 'NOT_FOUND' && call.takesMissing)) {
      this.#succeed(call, reply);
    } else if (status === 'MOVED' || status === 'NOT_PRIMARY') {
      this.#moved(call, reply);
    } else if (OUTCOME_UNKNOWN.has(status)) {
      call.failUnknown(textOf(reply), { status });
    } else if (status === 'BUSY' || status === 'DRAINING') {
      this.#busy(call, reply, retryAfterMs);
    } else {
      this.#refused(call, reply);
    }
  }

  #succeed(call, reply) {
    try {
      call.succeed(call.decode(reply));
    } catch (error) {
      call.failUnknown(`the answer is of another form: ${error.message}`, { cause: error });
    }
  }

  #refused(call, reply) {
    const { status } = reply;
    const isProof = call.token !== null && (BEHIND_TOKEN.has(status) || status === 'WRONG_TYPE');
    const text = `${status}: ${textOf(reply)}`;
    let error;
    if (NO.has(status)) error = new No(reply, call.types);
    else if (status === 'DEADLINE') error = new DeadlineExceeded(text, { status });
    else if (LATER.has(status)) error = new Busy(text, { status });
    else error = new Refused(text, { status });
    if (isProof) call.failFinally(error);
    else call.fail(error);
  }

  #busy(call, reply, retryAfterMs) {
    const pause = busyPause(retryAfterMs, call.busy);
    const left = call.endsAt - performance.now();
    if (!this.#options.retries || pause >= left || !this.#budget.take()) {
      this.#refused(call, reply);
      return;
    }
    call.busy += 1;
    this.#later(call, pause);
  }

  #moved(call, reply) {
    const generation = (reply.version?.epoch ?? 0) >>> GENERATION_SHIFT;
    const text = textOf(reply);
    const address = text.slice(text.lastIndexOf(' ') + 1);
    const partition = call.slot === null ? null : Math.floor(call.slot / SLOTS_OF_PARTITION);
    let isNews = false;
    if (reply.status === 'MOVED') {
      call.target = this.#nodeAt(address);
      if (partition !== null) isNews = this.#learn(partition, generation, address);
      else isNews = call.target !== null;
    }
    call.unreached = new Busy(`${reply.status}: ${text}`, { status: reply.status });
    const pause = isNews && call.moved === 0 ? 0 : movedPause(call.moved);
    call.moved += 1;
    this.#later(call, pause);
  }

  /** Whether this is news of who writes a partition. */
  #learn(partition, generation, address) {
    const known = this.#placement[partition];
    if (known && known.generation >= generation) return false;
    const node = this.#nodeAt(address);
    if (node) this.#placement[partition] = { generation, node };
    return node !== null;
  }

  /** The node at an address, a new one if it is not known; null if it is no address. */
  #nodeAt(address) {
    const known = this.#nodes.get(address);
    if (known) return known;
    if (this.#nodes.size >= NODES_MAX) return null;
    let node;
    try {
      node = new Node(address, this.#options, this);
    } catch (error) {
      if (this.#home === undefined) throw error;
      return null;
    }
    this.#nodes.set(address, node);
    if (this.#nodes.size > 1) {
      for (const one of this.#nodes.values()) one.hasOthers();
      if (this.#watch === null && this.#options.silenceMax > 0) this.#watchNodes();
    }
    return node;
  }

  #watchNodes() {
    const { silenceMax } = this.#options;
    this.#watch = setInterval(() => {
      const now = performance.now();
      for (const node of this.#nodes.values()) node.watch(silenceMax, now);
    }, Math.max(1, silenceMax / 8));
    this.#watch.unref();
  }

  #isDown(node) {
    const bound = Math.min(DOWN_MIN_MS * 2 ** Math.min(node.downs, 16), DOWN_MAX_MS);
    const now = performance.now();
    if (node.downUntil <= now) {
      node.downs += 1;
      node.downUntil = now + bound * (0.5 + Math.random() / 2);
    }
    if (this.#home === node) this.#home = this.#nextOf(node);
  }

  /** The node behind this one that is not down; else the one that is up first. */
  #nextOf(node) {
    const nodes = [...this.#nodes.values()];
    const at = nodes.indexOf(node);
    const others = [...nodes.slice(at + 1), ...nodes.slice(0, at + 1)];
    const now = performance.now();
    return others.find((one) => one.downUntil <= now) ??
      others.reduce((first, one) => (one.downUntil < first.downUntil ? one : first));
  }

  #nodeFor(call) {
    const now = performance.now();
    if (call.target && call.target.downUntil <= now) return call.target;
    if (call.slot !== null) {
      const known = this.#placement[Math.floor(call.slot / SLOTS_OF_PARTITION)];
      if (known && known.node.downUntil <= now) return known.node;
    }
    return this.#home;
  }

  #dispatch(call) {
    if (!call.isSettled) this.#nodeFor(call).send(call);
  }

  #later(call, ms) {
    if (ms === 0) {
      queueMicrotask(() => this.#dispatch(call));
      return;
    }
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      this.#dispatch(call);
    }, ms);
    this.#timers.add(timer);
  }
}

const textOf = (reply) => reply.value.toString('utf8');
