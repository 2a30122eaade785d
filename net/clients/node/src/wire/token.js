// Tokens: UUIDs of version 7, which name a write.

import { randomFillSync } from 'node:crypto';

const POOL_BYTES = 4096;
const pool = Buffer.allocUnsafe(POOL_BYTES);
let poolAt = POOL_BYTES;
const FORM = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** The bytes of a new token of this time. */
export function newTokenBytes(timeMs) {
  if (poolAt + 10 > POOL_BYTES) {
    randomFillSync(pool);
    poolAt = 0;
  }
  const token = Buffer.allocUnsafe(16);
  token.writeUIntBE(timeMs, 0, 6);
  pool.copy(token, 6, poolAt, poolAt + 10);
  pool.fill(0, poolAt, poolAt + 10);
  poolAt += 10;
  token[6] = 0x70 | (token[6] & 0x0f);
  token[8] = 0x80 | (token[8] & 0x3f);
  return token;
}

/** A token in its usual form. */
export function tokenText(bytes) {
  const hex = bytes.toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-` +
    `${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** The bytes of a token in its usual form. */
export function tokenBytes(text) {
  const lower = String(text).toLowerCase();
  if (!FORM.test(lower)) throw new TypeError(`a token is a UUID of version 7, not ${text}`);
  return Buffer.from(lower.replaceAll('-', ''), 'hex');
}
