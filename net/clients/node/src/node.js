// One node of the server: its main port, and the ports of its cores.

import { Busy, NotSent } from './errors.js';
import { Connection } from './connection.js';
import { notSent } from './call.js';

/** To connect to one of several nodes, with its login. */
const CONNECT_MS = 2000;
const SHARD_CONNECT_MS = 1000;
const SHARD_PAUSE_MS = 10_000;

/** Reads HOST:PORT; an address of IPv6 stands in brackets. */
export function readAddress(address) {
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(address);
  const port = Number(match?.[3]);
  if (!match || port < 1 || port > 65535) {
    throw new TypeError(`an address is HOST:PORT, not ${address}`);
  }
  return { host: match[1] ?? match[2], port };
}

/**
 * A node. The owner has `greeted(node, hello)`, `unreached(call, node, error)`, and what a
 * `Connection` asks of its owner.
 */
export class Node {
  #owner;
  #target;
  #pendingMax;
  #usesShardPorts;
  #main = null;
  #isReady = false;
  #held = [];
  #shards = new Map();

  /** Until then it is not asked, if there is another one; and the bound of the next pause. */
  downUntil = 0;
  downs = 0;
  hello = null;

  constructor(address, options, owner) {
    const { host, port } = readAddress(address);
    this.address = address;
    this.#owner = owner;
    this.#pendingMax = options.pendingMax;
    this.#usesShardPorts = options.shardPorts;
    this.#target = {
      host,
      port,
      name: options.name,
      tls: options.tls,
      identity: options.identity,
      identityMayWait: options.identityMayWait,
      connectMs: options.deadline,
    };
  }

  /** Another node is known: a connection that does not come is not waited for so long. */
  hasOthers() {
    this.#target.connectMs = Math.min(this.#target.connectMs, CONNECT_MS);
  }

  /** Resolves when the main port and the ports of the cores have answered, or cannot. */
  async open() {
    await this.#openMain().opened;
    await Promise.allSettled(this.#portsOfCores().map((range) => this.#openShard(range).opened));
  }

  /** Sends a call by the port of its core, or holds it until there is a connection. */
  send(call) {
    if (this.#isReady) {
      const shard = this.#shardFor(call.slot);
      if (shard && !shard.connection.hello) shard.held.push(call);
      else this.#sendBy(shard ? shard.connection : this.#main, call);
      return;
    }
    this.#held.push(call);
    this.#openMain();
  }

  /** Asks whether silent connections are alive. */
  watch(silenceMs, nowMs) {
    this.#main?.watch(silenceMs, nowMs);
    for (const { connection } of this.#shards.values()) connection?.watch(silenceMs, nowMs);
  }

  close(error) {
    const shards = [...this.#shards.values()];
    this.#main?.close(error);
    for (const { connection } of shards) connection?.close(error);
    const held = this.#held;
    this.#held = [];
    for (const call of held) this.#owner.unreached(call, this, error ?? new NotSent('closed'));
  }

  #sendBy(connection, call) {
    if (connection.underWay >= this.#pendingMax) {
      call.fail(new Busy('too much is under way on this connection'));
    } else {
      connection.send(call);
    }
  }

  #openMain() {
    if (this.#main) return this.#main;
    const main = new Connection(this.#target, this.#ownerOf((connection) => {
      this.#forget(connection);
    }));
    this.#main = main;
    main.opened.then((hello) => {
      if (main.isClosed) return;
      this.#isReady = true;
      this.hello = hello;
      this.downs = 0;
      this.downUntil = 0;
      this.#owner.greeted(this, hello);
      this.#drain(this.#held.splice(0), (call) => this.send(call));
    }, (error) => {
      this.#forget(main);
      const told = error instanceof NotSent ? notSent(this.address, error) : error;
      this.#drain(this.#held.splice(0), (call) => this.#owner.unreached(call, this, told));
    });
    return main;
  }

  #forget(main) {
    if (this.#main !== main) return;
    this.#main = null;
    this.#isReady = false;
  }

  #drain(calls, take) {
    for (const call of calls) {
      if (!call.isSettled) take(call);
    }
  }

  /** The port of the core that has a slot, if that is another one than the main port reached. */
  #shardFor(slot) {
    if (slot === null || !this.#usesShardPorts) return null;
    const hello = this.#main.hello;
    const range = hello.slots.find(({ first, last }) => first <= slot && slot <= last);
    if (!range || range.port === 0 || range.shard === hello.shard) return null;
    const shard = this.#openShard(range);
    return shard.connection ? shard : null;
  }

  #portsOfCores() {
    if (!this.#usesShardPorts || !this.#isReady) return [];
    const { slots, shard } = this.#main.hello;
    return slots.filter((range) => range.port !== 0 && range.shard !== shard);
  }

  #openShard({ shard: number, port }) {
    const known = this.#shards.get(number);
    if (known && (known.connection || performance.now() < known.failedUntil)) return known;
    const shard = { connection: null, held: [], failedUntil: 0, opened: null };
    const connectMs = Math.min(SHARD_CONNECT_MS, this.#target.connectMs);
    const target = { ...this.#target, port, connectMs };
    const { nodeId } = this.#main.hello;
    shard.connection = new Connection(target, this.#ownerOf(() => {
      shard.connection = null;
    }));
    this.#shards.set(number, shard);
    const connection = shard.connection;
    shard.opened = connection.opened.then((hello) => {
      if (hello.nodeId !== nodeId || hello.shard !== number) {
        connection.close(new NotSent(`port ${port} is not that of shard ${number}`));
        throw new NotSent('another server has the port');
      }
      this.#drain(shard.held.splice(0), (call) => this.send(call));
    }).catch(() => {
      // The main port answers meanwhile.
      shard.connection = null;
      shard.failedUntil = performance.now() + SHARD_PAUSE_MS;
      this.#drain(shard.held.splice(0), (call) => this.send(call));
    });
    return shard;
  }

  #ownerOf(closed) {
    return {
      answered: (call, reply, retryAfterMs) => this.#owner.answered(call, reply, retryAfterMs),
      lost: (call, wasSent, error) => this.#owner.lost(call, wasSent, error, this),
      closed,
    };
  }
}
