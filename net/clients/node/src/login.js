// The login of a connection: SCRAM-SHA-256, or its certificate (AUTH.md).

import { createHash, createHmac, pbkdf2, randomBytes, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';

import { Unfit } from './errors.js';
import { padded } from './wire/numbers.js';

const derive = promisify(pbkdf2);
const NAME = /^[A-Za-z0-9_.-]{1,96}(\/[A-Za-z0-9_.-]{1,96})?$/;
const KEY_PREFIX = 'penstock_key_';
const KEY_SALT = Buffer.from('penstock machine');
const ITERATIONS_MIN = 4096;
const ITERATIONS_MAX = 1_000_000;
const SALT_BYTES = 16;
const METHODS = { NONE: 1, SCRAM: 2, BOUND: 4, CERTIFICATE: 8 };

/** Who logs in: a name and a secret. Connections share the last hash of a password. */
export class Identity {
  #secret;
  #salted = null;

  constructor(name, secret) {
    if (!NAME.test(name)) {
      throw new TypeError('a user is NAME or NAME/KEY, of 1 to 96 of A-Z a-z 0-9 _ . -');
    }
    this.name = name;
    this.#secret = Buffer.from(secret);
  }

  /** The slow hash that a server asks for. */
  async salted(salt, iterations) {
    const isKey = this.#secret.subarray(0, KEY_PREFIX.length).equals(Buffer.from(KEY_PREFIX));
    const isFit = isKey
      ? iterations === 1 && salt.equals(KEY_SALT)
      : iterations >= ITERATIONS_MIN && iterations <= ITERATIONS_MAX;
    if (!isFit) throw new Unfit(`the server asks for ${iterations} iterations of a hash`);
    const mark = `${iterations}:${salt.toString('base64')}`;
    if (this.#salted?.mark !== mark) {
      this.#salted = { mark, hash: derive(this.#secret, salt, iterations, 32, 'sha256') };
    }
    return this.#salted.hash;
  }
}

/** What HELLO's methods mean for a client: `nobody`, `certificate` or `scram`. */
export function methodOf(methods, identity, isEncrypted, mayBeNobody) {
  if (!identity) {
    if (methods & METHODS.NONE) return 'nobody';
    if (methods & METHODS.CERTIFICATE) return 'certificate';
    throw new Unfit('the server has users, and the client has no identity');
  }
  if (methods & METHODS.NONE) {
    if (isEncrypted && mayBeNobody) return 'nobody';
    throw new Unfit('the server has no users, so it proves nothing to the client');
  }
  if (!(methods & (isEncrypted ? METHODS.BOUND : METHODS.SCRAM))) {
    throw new Unfit('the server does not bind logins to this connection as the client does');
  }
  return 'scram';
}

/**
 * Logs in. `send(body)` gives the answer's body. `binding` are the 32 bytes of an encrypted
 * connection, or null. Returns the body of HELLO behind it.
 */
export async function logIn({ method, identity, binding, send }) {
  if (method === 'certificate') return readStage(await send(encodeAuth(2, '-')), 2).rest;
  const channel = Buffer.concat([
    Buffer.from(binding ? 'p=tls-exporter,,' : 'n,,'), binding ?? Buffer.alloc(0),
  ]);
  const nonce = randomBytes(24).toString('base64url');
  const bare = `n=${identity.name},r=${nonce}`;
  const begin = binding ? 'p=tls-exporter,,' : 'n,,';
  const challenge = readStage(await send(encodeAuth(1, begin + bare)), 1).message;
  const { joint, salt, iterations } = readChallenge(challenge, nonce);
  const salted = await identity.salted(salt, iterations);
  const withoutProof = `c=${channel.toString('base64')},r=${joint}`;
  const transcript = `${bare},${challenge},${withoutProof}`;
  const clientKey = hmac(salted, 'Client Key');
  const stored = createHash('sha256').update(clientKey).digest();
  const proof = xor(clientKey, hmac(stored, transcript)).toString('base64');
  const last = readStage(await send(encodeAuth(1, `${withoutProof},p=${proof}`)), 2);
  const signature = hmac(hmac(salted, 'Server Key'), transcript);
  const told = /^v=([A-Za-z0-9+/=]+)$/.exec(last.message);
  const bytes = Buffer.from(told?.[1] ?? '', 'base64');
  if (bytes.length !== signature.length || !timingSafeEqual(bytes, signature)) {
    throw new Unfit('the server does not know the secret: its signature is wrong');
  }
  return last.rest;
}

function readChallenge(text, nonce) {
  const match = /^r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([1-9]\d{0,9})$/.exec(text);
  const salt = Buffer.from(match?.[2] ?? '', 'base64');
  if (!match || !match[1].startsWith(nonce) || match[1].length === nonce.length ||
      salt.length !== SALT_BYTES) {
    throw new Unfit('the challenge of the server is of another form');
  }
  return { joint: match[1], salt, iterations: Number(match[3]) };
}

const hmac = (key, text) => createHmac('sha256', key).update(text).digest();

function xor(a, b) {
  return Buffer.from(a.map((byte, at) => byte ^ b[at]));
}

function encodeAuth(method, message) {
  const bytes = Buffer.from(message, 'utf8');
  const body = Buffer.alloc(8 + padded(bytes.length));
  body.writeUInt16LE(method, 0);
  body.writeUInt32LE(bytes.length, 4);
  body.set(bytes, 8);
  return body;
}

function readStage(body, stage) {
  const length = body.length >= 8 ? body.readUInt32LE(4) : 0;
  if (body.length < 8 + padded(length) || body.readUInt16LE(0) !== stage) {
    throw new Unfit('the answer of the server to a login is of another form');
  }
  return {
    message: body.toString('utf8', 8, 8 + length),
    rest: body.subarray(8 + padded(length)),
  };
}
