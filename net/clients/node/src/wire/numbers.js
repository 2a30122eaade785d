// Numbers of the wire. One of 64 bits is a Number up to 2^53 - 1 (and from -(2^53 - 1)), and a
// BigInt beyond. Callers may give either.

const U32 = 0x1_0000_0000;
const HIGH_OF_SAFE = 0x20_0000;

/** The length with its padding. */
export const padded = (length) => Math.ceil(length / 8) * 8;

/** A BigInt as a Number if that holds it. */
export function narrow(big) {
  const number = Number(big);
  return Number.isSafeInteger(number) ? number : big;
}

/** Zeros. Short ones come from the pool of Buffer, which is much cheaper than `Buffer.alloc`. */
export const zeros = (length) => Buffer.allocUnsafe(length).fill(0);

export function readU64(bytes, at) {
  const high = bytes.readUInt32LE(at + 4);
  const low = bytes.readUInt32LE(at);
  return high < HIGH_OF_SAFE ? high * U32 + low : (BigInt(high) << 32n) | BigInt(low);
}

export const readI64 = (bytes, at) => narrow(bytes.readBigInt64LE(at));

export function writeU64(bytes, at, number) {
  if (typeof number === 'number') {
    if (!Number.isSafeInteger(number) || number < 0) {
      throw new RangeError(`a number of 64 bits is 0 to 2^64 - 1, not ${number}; ` +
        'beyond 2^53 - 1 it is a BigInt');
    }
    bytes.writeUInt32LE(number % U32, at);
    bytes.writeUInt32LE(Math.floor(number / U32), at + 4);
    return;
  }
  bytes.writeBigUInt64LE(number, at);
}

/** Eight bytes of a whole number from -2^63 to 2^64 - 1, in two's complement. */
export function writeBits(bytes, at, number) {
  if (typeof number === 'number' && number >= 0) {
    writeU64(bytes, at, number);
    return;
  }
  const big = whole(number);
  if (big < -(1n << 63n) || big >= 1n << 64n) {
    throw new RangeError(`a number of 64 bits is -2^63 to 2^64 - 1, not ${number}`);
  }
  bytes.writeBigUInt64LE(BigInt.asUintN(64, big), at);
}

/** A whole number as a BigInt. A boolean is 0 or 1. */
export function whole(number) {
  if (typeof number === 'bigint') return number;
  if (typeof number === 'boolean') return number ? 1n : 0n;
  if (Number.isSafeInteger(number)) return BigInt(number);
  throw new RangeError(`a whole number is needed, not ${String(number)}; ` +
    'beyond 2^53 - 1 it is a BigInt');
}

/** Whether bytes that have no meaning are zero. */
export function isZero(bytes, from, to) {
  for (let at = from; at < to; at += 1) {
    if (bytes[at] !== 0) return false;
  }
  return true;
}
