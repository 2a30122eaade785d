// One connection: HELLO, login, frames out, answers in.

import { connect as connectPlain, isIP } from 'node:net';
import { connect as connectTls } from 'node:tls';

import { Busy, NotSent, ProtocolError, Unfit } from './errors.js';
import { logIn, methodOf } from './login.js';
import { ITEMS_MAX, decodeBatch, encodeBatch } from './wire/batch.js';
import {
  FLAG_MORE, FLAG_REPLY, FrameReader, OPCODES, decodeText, encodeFrame,
} from './wire/frame.js';
import { WireFault, check } from './wire/fault.js';
import { decodeServerHello, encodeHello } from './wire/hello.js';
import { decodeReply } from './wire/reply.js';
import { statusName } from './wire/status.js';

const HELLO_BYTES_MAX = 1 << 20;
/** Whatever a server says, no frame that is longer is kept. */
const FRAME_BYTES_MAX = 64 << 20;
const BATCH_HEAD_BYTES = 40;
const ENTRY_BYTES = 8;
const EXPORTER = 'EXPORTER-Channel-Binding';
const BINDING_BYTES = 32;
/** Codes of errors by which Node says that a handshake or a certificate is wrong. */
const OF_TLS = /^(ERR_TLS|ERR_SSL|EPROTO|CERT_|SELF_SIGNED|DEPTH_ZERO|UNABLE_TO)/;
/** Calls whose deadlines are as near as this share a frame, which has the earliest one. */
const NEAR_MS = 20;

/**
 * A connection to one port. The owner has `answered(call, reply, retryAfterMs)`, `lost(call,
 * wasSent, error)` and `closed(connection, error)`.
 */
export class Connection {
  #owner;
  #socket;
  #reader = new FrameReader(HELLO_BYTES_MAX);
  #requests = new Map();
  #nextId = 1;
  #waiting = [];
  #isFlushing = false;
  #isBlocked = false;
  #underWay = 0;
  #heardAt = 0;
  #pingAt = 0;
  #error = null;
  #failOpening;

  /** What the server said in HELLO, once it is open. */
  hello = null;
  /** Resolves with HELLO when calls may be sent. */
  opened;

  constructor(target, owner) {
    this.#owner = owner;
    this.opened = this.#open(target);
    this.opened.catch(() => {});
  }

  get isClosed() {
    return this.#error !== null;
  }

  /** Items that are not answered. */
  get underWay() {
    return this.#underWay + this.#waiting.length;
  }

  /** Sends a call with the others of this turn of the event loop. */
  send(call) {
    this.#waiting.push(call);
    if (this.#isFlushing || this.#isBlocked) return;
    this.#isFlushing = true;
    setImmediate(() => {
      this.#isFlushing = false;
      this.#flush();
    });
  }

  /** Ends it. What was sent and not answered is lost. */
  close(error = new NotSent('the client is closed')) {
    if (this.#error) return;
    this.#error = error;
    this.#socket?.destroy();
    this.#failOpening?.(error);
    const sent = [...this.#requests.values()];
    this.#requests.clear();
    const unsent = this.#waiting;
    this.#waiting = [];
    this.#underWay = 0;
    this.#owner.closed(this, error);
    for (const { calls, isAnswered, fail } of sent) {
      fail?.(error);
      calls?.forEach((call, number) => {
        if (!isAnswered[number]) this.#lose(call, true, error);
      });
    }
    for (const call of unsent) this.#lose(call, false, error);
  }

  /** Asks a peer that owes answers and is silent whether it is there, and ends it if it is not. */
  watch(silenceMs, nowMs) {
    if (this.isClosed || !this.hello || this.#underWay === 0) return;
    const silent = nowMs - this.#heardAt;
    if (this.#pingAt === 0) {
      if (silent < silenceMs / 2) return;
      this.#pingAt = nowMs;
      this.#write(encodeFrame(OPCODES.PING, this.#enter({}), Buffer.alloc(0)));
    } else if (silent >= silenceMs && nowMs - this.#pingAt >= silenceMs / 2) {
      const error = new NotSent('the node is silent');
      error.isSilence = true;
      this.close(error);
    }
  }

  async #open(target) {
    const hello = await new Promise((resolve, reject) => {
      this.#failOpening = reject;
      const timer = setTimeout(
        () => this.close(new NotSent('nothing came in time')), target.connectMs,
      );
      this.#begin(target).then(resolve, (error) => {
        this.close(asError(error));
        reject(this.#error);
      }).finally(() => clearTimeout(timer));
    });
    this.#failOpening = null;
    this.#reader.bytesMax = Math.min(hello.frameBytesMax, FRAME_BYTES_MAX);
    this.hello = hello;
    return hello;
  }

  async #begin(target) {
    await this.#dial(target);
    const body = await this.#exchange(OPCODES.HELLO, encodeHello(target.name));
    const first = decodeServerHello(body);
    const isEncrypted = target.tls !== null;
    const method = methodOf(
      first.authMethods, target.identity, isEncrypted, target.identityMayWait,
    );
    if (method === 'nobody') return first;
    const binding = isEncrypted
      ? this.#socket.exportKeyingMaterial(BINDING_BYTES, EXPORTER, Buffer.alloc(0)) : null;
    const send = (message) => this.#exchange(OPCODES.AUTH, message);
    return decodeServerHello(await logIn({ method, identity: target.identity, binding, send }));
  }

  #dial({ host, port, tls }) {
    return new Promise((resolve, reject) => {
      const socket = tls
        ? connectTls({
          ...(isIP(host) ? {} : { servername: host }), ...tls, host, port,
          minVersion: 'TLSv1.3',
        })
        : connectPlain({ host, port });
      this.#socket = socket;
      socket.setNoDelay(true);
      socket.on(tls ? 'secureConnect' : 'connect', resolve);
      socket.on('error', (error) => {
        const isOfTls = tls && !this.hello && OF_TLS.test(error.code);
        const told = isOfTls ? new Unfit(`TLS: ${error.message}`, { cause: error }) : error;
        reject(told);
        this.close(asError(told));
      });
      socket.on('end', () => this.close(new NotSent('the server ended the connection')));
      socket.on('close', () => this.close(new NotSent('the connection ended')));
      socket.on('data', (chunk) => this.#take(chunk));
      socket.on('drain', () => {
        this.#isBlocked = false;
        this.#flush();
      });
    });
  }

  /** Sends a frame before the connection is open, and gives the body of its answer. */
  #exchange(opcode, body) {
    return new Promise((resolve, reject) => {
      if (this.#error) {
        reject(this.#error);
        return;
      }
      const id = this.#enter({ done: resolve, fail: reject });
      this.#write(encodeFrame(opcode, id, body));
    });
  }

  #enter(request) {
    const id = this.#nextId;
    this.#nextId += 1;
    this.#requests.set(id, request);
    return id;
  }

  #write(frame) {
    if (!this.#socket.write(frame)) this.#isBlocked = true;
  }

  #flush() {
    const calls = this.#waiting;
    let at = 0;
    if (calls.length > 1) this.#socket.cork();
    const nowMs = performance.now();
    while (at < calls.length && !this.#isBlocked && !this.#error) {
      at = this.#sendFrom(calls, at, nowMs);
    }
    if (this.#error) return;
    this.#waiting = at < calls.length ? calls.slice(at) : [];
    this.#socket.uncork();
  }

  /** Sends a frame with the calls from a place on, and gives the place behind them. */
  #sendFrom(calls, begin, nowMs) {
    const first = calls[begin];
    if (first.isSettled) return begin + 1;
    if (this.#underWay === 0) {
      this.#heardAt = nowMs;
      this.#pingAt = 0;
    }
    if (first.opcode !== OPCODES.BATCH) {
      this.#mark(first);
      const id = this.#enter({ calls: [first], isAnswered: [false], left: 1 });
      this.#write(encodeFrame(first.opcode, id, first.item, 0, first.leftMs(nowMs)));
      return begin + 1;
    }
    const together = [];
    const most = Math.min(this.hello.itemsMax, ITEMS_MAX);
    let bytes = BATCH_HEAD_BYTES;
    let endsAt = first.endsAt;
    let at = begin;
    for (; at < calls.length && together.length < most; at += 1) {
      const call = calls[at];
      if (call.isSettled) continue;
      bytes += ENTRY_BYTES + call.bytes;
      const isFit = call.opcode === first.opcode && call.level === first.level &&
        Math.abs(call.endsAt - first.endsAt) <= NEAR_MS;
      if (together.length > 0 && (!isFit || bytes > this.hello.frameBytesMax)) break;
      endsAt = Math.min(endsAt, call.endsAt);
      this.#mark(call);
      together.push(call);
    }
    const id = this.#enter({
      calls: together, isAnswered: new Array(together.length).fill(false), left: together.length,
    });
    const leftMs = Math.max(1, Math.floor(endsAt - nowMs));
    const items = together.map((call) => call.item);
    this.#write(encodeBatch(items, id, first.level, leftMs));
    return at;
  }

  #mark(call) {
    call.isUnderWay = true;
    this.#underWay += 1;
  }

  #take(chunk) {
    this.#heardAt = performance.now();
    this.#pingAt = 0;
    try {
      this.#reader.push(chunk, (frame) => this.#answer(frame));
    } catch (error) {
      this.close(asError(error));
    }
  }

  #answer(frame) {
    if (this.#error) return;
    check((frame.flags & FLAG_REPLY) !== 0, 'a frame of the server is no reply');
    const status = statusName(frame.levelOrStatus);
    check(status !== undefined, 'the status of a frame is not known');
    const request = this.#requests.get(frame.requestId);
    if (!request) {
      this.#answerToNothing(frame, status);
    } else if (request.calls === undefined) {
      this.#requests.delete(frame.requestId);
      if (status === 'OK') request.done?.(frame.body);
      else request.fail?.(refusalOf(status, frame));
    } else {
      this.#answerCalls(request, frame, status);
    }
  }

  /** An answer that comes twice is dropped; one to what was never asked is a fault. */
  #answerToNothing(frame, status) {
    if (frame.requestId === 0) throw refusalOf(status, frame);
    check(frame.requestId < this.#nextId, 'an answer to what was not asked');
  }

  #answerCalls(request, frame, status) {
    const { calls } = request;
    const retryAfterMs = frame.deadlineOrRetryMs;
    if (status !== 'OK') {
      const value = Buffer.from(decodeText(frame.body));
      const reply = { status, value, reason: 0, instruction: null, version: null };
      calls.forEach((_, number) => this.#settleItem(request, number, reply, retryAfterMs));
    } else if (calls[0].opcode !== OPCODES.BATCH) {
      this.#settleItem(request, 0, { status, value: frame.body }, retryAfterMs);
    } else {
      for (const bytes of decodeBatch(frame.body)) {
        const reply = decodeReply(bytes);
        check(reply.item < calls.length, 'an answer names an item that was not asked');
        this.#settleItem(request, reply.item, reply, retryAfterMs);
      }
      check(request.left === 0 || (frame.flags & FLAG_MORE) !== 0, 'an item has no answer');
    }
    if (request.left === 0) this.#requests.delete(frame.requestId);
  }

  #settleItem(request, number, reply, retryAfterMs) {
    if (request.isAnswered[number]) return;
    request.isAnswered[number] = true;
    request.left -= 1;
    this.#underWay -= 1;
    const call = request.calls[number];
    call.isUnderWay = false;
    if (!call.isSettled) this.#owner.answered(call, reply, retryAfterMs);
  }

  #lose(call, wasSent, error) {
    call.isUnderWay = false;
    if (!call.isSettled) this.#owner.lost(call, wasSent, error);
  }
}

function refusalOf(status, frame) {
  const text = `${status}: ${decodeText(frame.body)}`;
  if (status === 'BUSY' || status === 'DRAINING') return new Busy(text, { status });
  if (status === 'AUTH' || status === 'UNSUPPORTED') return new Unfit(text, { status });
  return new ProtocolError(text, { status });
}

/** What ends a connection, as an error of this client. */
function asError(error) {
  if (error instanceof WireFault) return new ProtocolError(error.message, { cause: error });
  if (error instanceof NotSent || error instanceof Unfit || error instanceof Busy ||
      error instanceof ProtocolError) {
    return error;
  }
  return new NotSent(error.message || error.code || String(error), { cause: error });
}
