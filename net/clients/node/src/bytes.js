// Keys and values as callers give them.

const KEY_BYTES_MAX = 1024;
const EMPTY = Buffer.alloc(0);

/** The bytes of a value: bytes as they are, a text in UTF-8. */
export function bytesOf(value) {
  if (typeof value === 'string') return Buffer.from(value, 'utf8');
  if (value instanceof Uint8Array) {
    return Buffer.isBuffer(value)
      ? value : Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  }
  if (value === undefined) throw new TypeError('a value is missing');
  throw new TypeError(`a value is a Uint8Array or a string, not ${typeof value}`);
}

/** The bytes of a key: 1 to 1024, as a text or as they are. */
export function keyBytes(key) {
  const bytes = bytesOf(key);
  if (bytes.length < 1 || bytes.length > KEY_BYTES_MAX) {
    throw new RangeError(`a key has 1 to ${KEY_BYTES_MAX} bytes, not ${bytes.length}`);
  }
  return bytes;
}

/** The bytes of a prefix: 0 to 1024. */
export const prefixBytes = (prefix) => (prefix.length === 0 ? EMPTY : keyBytes(prefix));
