// A strict decoder of request items, which a client does not need: the vectors hold the encoders
// against it, and it refuses what a server refuses, in the order of PROTOCOL.md, *Rare cases*.

import { WireFault, check } from '../src/wire/fault.js';
import { isZero, padded } from '../src/wire/numbers.js';
import { LEVELS } from '../src/wire/status.js';
import { tokenText } from '../src/wire/token.js';

export const VALUE_BYTES_MAX = 1024;
const KEY_BYTES_MAX = 1024;
const TIME_MS_MAX = 2n ** 48n - 1n;
const OWN_KEYS = Buffer.from('\0\0penstock/');
const NAMES = new Map([[1, 'GET'], [2, 'SET'], [3, 'DEL'], [4, 'UPDATE_IF'], [6, 'GET_AT'],
  [7, 'HISTORY'], [8, 'KEYSPACE']]);
const TYPES = ['u8', 'u16', 'u32', 'u64', 'i8', 'i16', 'i32', 'i64'];
const UPDATE_OPERATIONS = new Map([[1, 'EXISTS'], [2, 'ABSENT'], [3, '='], [4, '!='], [5, '<'],
  [6, '<='], [7, '>'], [8, '>='], [16, 'set'], [17, 'add'], [18, 'subtract']]);
const APPLY_OPERATIONS = new Map([...UPDATE_OPERATIONS, [9, 'VERSION'], [10, 'BEFORE'],
  [11, 'SINCE'], [12, 'ALL_BITS'], [13, 'ANY_BIT'], [14, 'NO_BITS'],
  [19, 'add up to the border'], [20, 'subtract down to the border'], [21, 'min'], [22, 'max'],
  [23, 'and'], [24, 'or'], [25, 'xor'], [26, 'PUT'], [27, 'START'], [28, 'DEL'], [29, 'EXPIRE'],
  [30, 'RATE'], [31, 'RETURN'], [32, 'ON_EXPIRE'], [33, 'REPLACE'], [35, 'ABSENT_SINCE']]);
const EXISTS = 1;
const ABSENT = 2;

const hex = (bytes) => bytes.toString('hex');
const u64 = (bytes, at) => bytes.readBigUInt64LE(at);
const version = (bytes, at) => ({
  epoch: bytes.readUInt32LE(at), sequence: String(u64(bytes, at + 8)),
});

function checkPadding(item, begin, length, what) {
  check(isZero(item, begin + length, begin + padded(length)), `padding behind ${what} is zero`);
}

function checkKey(length, number) {
  check(length >= 1 && length <= KEY_BYTES_MAX, `key ${number} has ${length} bytes`, 'BAD_KEY');
}

function checkOwn(key) {
  check(!key.subarray(0, OWN_KEYS.length).equals(OWN_KEYS), 'a key of the server', 'BAD_KEY');
}

function checkExpiry(ms) {
  check(ms >= 1n && ms <= TIME_MS_MAX, `an expiry of ${ms}`);
}

/** The type of a number by its code. */
function typeName(code) {
  if ((code & ~0x17) !== 0) return undefined;
  return TYPES[code & 7] + (code & 0x10 ? 'be' : '');
}

/** Whether a type holds what 64 bits mean beside it. */
function holds(code, bits) {
  const width = 8 << (code & 3);
  const extended = code & 4 ? BigInt.asIntN(width, bits) : BigInt.asUintN(width, bits);
  return BigInt.asUintN(64, extended) === bits;
}

/** An item of operations 1 to 4 and 6 to 8. */
export function decodeRequest(item) {
  check(item.length >= 16, `item of ${item.length} bytes`);
  const operation = item[2];
  check(NAMES.has(operation), `operation ${operation}`, 'UNSUPPORTED');
  const flags = item[3];
  checkFlags(operation, flags);
  const keys = item[4];
  check(keys === 1 || (operation === 4 && keys === 2), `${keys} keys`);
  const keyBytes = item.readUInt16LE(8);
  const secondBytes = item.readUInt16LE(10);
  check(keys === 2 || secondBytes === 0, 'the length of a second key');
  const instructions = item[5];
  check(operation === 4 ? instructions <= 64 : instructions === 0, 'instructions');
  const extension = item.readUInt16LE(6);
  const head = headOf(operation, flags);
  const block = 16 + head.version + head.expiry + head.history + 16 * instructions + extension;
  check(item.readUInt16LE(0) === block, 'block length');
  checkKeyOf(operation, keyBytes);
  if (keys === 2) checkKey(secondBytes, 1);
  const valueBytes = item.readUInt32LE(12);
  checkValueLength(operation, flags, valueBytes);
  const secondAt = block + padded(keyBytes);
  const valueAt = secondAt + padded(secondBytes);
  check(item.length === valueAt + padded(valueBytes), 'length of the item');
  const at = 16 + head.version;
  const extensionAt = at + head.expiry + head.history + 16 * instructions;
  const extra = decodeExtension(item, extensionAt, extension, operation);
  checkPadding(item, block, keyBytes, 'the key');
  checkPadding(item, secondAt, secondBytes, 'the second key');
  checkPadding(item, valueAt, valueBytes, 'the value');
  const key = item.subarray(block, block + keyBytes);
  checkOwn(key);
  const second = keys === 2 ? item.subarray(secondAt, secondAt + secondBytes) : null;
  if (second) checkOwn(second);
  const takesValue = operation === 2 || (flags & 0x10) !== 0;
  const value = item.subarray(valueAt, valueAt + valueBytes);
  return {
    operation: NAMES.get(operation),
    condition: conditionOf(item, operation, flags),
    shows: (flags & 0x08) !== 0,
    key: hex(key),
    second_key: second && hex(second),
    value: takesValue ? hex(value) : null,
    expiry: expiryOf(item, at, operation, flags),
    wanted: operation === 1 ? WANTED.get(flags & 0x60) : null,
    at: operation === 6 ? momentOf(item, flags) : null,
    history: operation === 7 ? historyOf(item) : null,
    keyspace: operation === 8 ? keyspaceOf(flags, value, key) : null,
    instructions: instructionsOf(item, at + head.expiry, instructions, keys),
    member: extra.member ?? null,
    token: extra.token ?? null,
  };
}

const WANTED = new Map([[0, 'value'], [0x20, 'value and expiry'], [0x40, 'expiry']]);

function checkFlags(operation, flags) {
  const condition = flags & 0x07;
  const isOne = [0, 1, 2, 4].includes(condition);
  const showsAlone = (flags & 0x08) !== 0 && condition === 0;
  const allowed = {
    1: (flags & ~0x60) === 0 && flags !== 0x60,
    2: (flags & ~0x6f) === 0 && isOne && !showsAlone,
    3: (flags & ~0x0e) === 0 && isOne && !showsAlone,
    4: (flags & ~0x70) === 0,
    6: flags === 0x20 || flags === 0x04,
    7: flags === 0,
    8: [0, 1, 2, 4].includes(flags),
  }[operation];
  check(allowed, `flags ${flags}`);
}

function headOf(operation, flags) {
  const isMoment = operation === 6;
  const takesExpiry = operation === 2 || operation === 4;
  const expiry = flags & 0x60;
  return {
    version: operation !== 8 && (flags & 0x04) !== 0 ? 16 : 0,
    expiry: (takesExpiry && (expiry === 0x20 || expiry === 0x40)) || (isMoment && expiry) ? 8 : 0,
    history: operation === 7 ? 16 : 0,
  };
}

function checkKeyOf(operation, length) {
  if (operation === 8) check(length <= 64, `a prefix of ${length} bytes`, 'BAD_KEY');
  else checkKey(length, 0);
}

function checkValueLength(operation, flags, length) {
  if (operation === 8) {
    check(length === (flags <= 1 ? 32 : 0), `settings of ${length} bytes`);
    return;
  }
  check(length <= VALUE_BYTES_MAX, `value of ${length} bytes`, 'TOO_LARGE');
  const takesValue = operation === 2 || (operation === 4 && (flags & 0x10) !== 0);
  check(takesValue || length === 0, 'no value is taken here');
}

function conditionOf(item, operation, flags) {
  if (operation !== 2 && operation !== 3) return null;
  if (flags & 0x01) return 'absent';
  if (flags & 0x02) return 'present';
  if ((flags & 0x04) === 0) return null;
  check(item.readUInt32LE(20) === 0, 'the word behind the epoch');
  return version(item, 16);
}

function expiryOf(item, at, operation, flags) {
  if (operation !== 2 && operation !== 4) return null;
  const bits = flags & 0x60;
  if (bits === 0x60) return operation === 2 ? 'keep' : 'never';
  if (bits === 0) return operation === 2 ? 'never' : 'keep';
  checkExpiry(u64(item, at));
  return { [bits === 0x20 ? 'at_ms' : 'in_ms']: String(u64(item, at)) };
}

function momentOf(item, flags) {
  if (flags === 0x04) {
    check(item.readUInt32LE(20) === 0, 'the word behind the epoch');
    return version(item, 16);
  }
  checkExpiry(u64(item, 16));
  return { time_ms: String(u64(item, 16)) };
}

function historyOf(item) {
  const most = item.readUInt32LE(16);
  check(most >= 1 && most <= 1024, `a history of ${most} versions`);
  check(item.readUInt32LE(20) === 0, 'the word behind the limit');
  return { versions_max: most, before: String(u64(item, 24)) };
}

function keyspaceOf(flags, settings, prefix) {
  const action = { 0: 'set', 1: 'make', 2: 'drop', 4: 'tell' }[flags];
  if (flags === 4) check(prefix.length === 0, 'all keyspaces are told', 'BAD_KEY');
  return { action, settings: flags <= 1 ? settingsOf(settings) : null };
}

function settingsOf(settings) {
  const least = settings[0];
  const byDefault = settings[24];
  check(least <= 4 && byDefault <= 5, 'an ack level');
  check(least !== 3 && byDefault !== 4, 'level replica', 'UNSUPPORTED');
  check(settings.readUInt32LE(4) <= 16 << 20, 'a value of a keyspace', 'TOO_LARGE');
  check(u64(settings, 8) <= TIME_MS_MAX, 'a retention');
  check(u64(settings, 16) < 2n ** 47n, 'a lifetime');
  check(isZero(settings, 25, 32), 'the end of settings');
  return {
    level_min: LEVELS[least],
    level_default: byDefault === 0 ? null : LEVELS[byDefault - 1],
    versions: settings[1],
    layout: settings.readUInt16LE(2),
    value_bytes_max: settings.readUInt32LE(4),
    retention_ms: String(u64(settings, 8)),
    lifetime_ms: String(u64(settings, 16)),
  };
}

function instructionsOf(item, at, count, keys) {
  return Array.from({ length: count },
    (_, number) => decodeInstruction(item.subarray(at + 16 * number, at + 16 * number + 16), keys));
}

/** An instruction of UPDATE_IF. */
export function decodeInstruction(bytes, keys = 2) {
  const operation = UPDATE_OPERATIONS.get(bytes[0]);
  check(operation !== undefined, `operation ${bytes[0]}`);
  const type = typeName(bytes[1]);
  check(type !== undefined, `type ${bytes[1]}`);
  check(bytes[2] < keys, `key ${bytes[2]}`);
  const immediate = u64(bytes, 8);
  if (bytes[0] === EXISTS || bytes[0] === ABSENT) {
    check(bytes[1] === 0 && isZero(bytes, 4, 16), 'about a whole key');
  } else if (bytes[0] <= 16) {
    check(holds(bytes[1], immediate), 'out of the range of its type');
  }
  return {
    operation, type, key: bytes[2], reason: bytes[3],
    offset: bytes.readUInt32LE(4), immediate: String(immediate),
  };
}

function decodeExtension(item, at, length, operation) {
  if (length === 0) return {};
  const isWhole = length >= 24 && item.readUInt16LE(at) === length &&
    item.readUInt16LE(at + 2) === 1 && item.readUInt32LE(at + 4) === 0 &&
    item.readUInt32LE(at + 12) === 0;
  const tag = length >= 16 ? item.readUInt16LE(at + 8) : 0;
  if (length >= 16) {
    const takesToken = [2, 3, 4, 10, 11].includes(operation);
    check(tag >= 1 && tag <= 3, `extension tag ${tag}`, 'UNSUPPORTED');
    check(tag !== 2 || operation === 1, 'a member', 'UNSUPPORTED');
    check(tag === 2 || takesToken, 'a token', 'UNSUPPORTED');
  }
  const dataBytes = { 1: 16, 2: 24, 3: 40 }[tag];
  check(isWhole && item.readUInt16LE(at + 10) === dataBytes && length === 16 + dataBytes,
    'the form of an extension area');
  if (tag === 2) {
    check(item.readUInt32LE(at + 28) === 0, 'the word behind the epoch');
    return {
      member: { staleness_us: String(u64(item, at + 16)), version: version(item, at + 24) },
    };
  }
  if (tag === 3) {
    const sent = u64(item, at + 16);
    check(sent <= TIME_MS_MAX, 'the time of a text token');
    return { token: hex(item.subarray(at + 24, at + 56)) };
  }
  const bytes = item.subarray(at + 16, at + 32);
  check(bytes[6] >> 4 === 7 && bytes[8] >> 6 === 2, 'a UUID of version 7');
  return { token: tokenText(bytes) };
}

/** Checks the head that APPLY and RUN share, and gives the lengths of the first eight keys. */
function headOfMany(item, most) {
  check(item[3] === 0, 'flags');
  const keys = item[4];
  check(keys >= 1 && keys <= most, `${keys} keys`);
  return keys;
}

function firstLengths(item, keys) {
  const lengths = [8, 10, 16, 18, 20, 22, 24, 26].map((at) => item.readUInt16LE(at));
  lengths.forEach((length, number) => check(number < keys || length === 0, 'no such key'));
  check(item.readUInt32LE(28) === 0, 'the word behind the lengths');
  return lengths.slice(0, keys);
}

function takeKeys(item, begin, lengths, firstNumber) {
  let at = begin;
  return lengths.map((length, index) => {
    checkPadding(item, at, length, `key ${firstNumber + index}`);
    const key = item.subarray(at, at + length);
    at += padded(length);
    return key;
  });
}

const sumOf = (lengths) => lengths.reduce((sum, length) => sum + padded(length), 0);

/** An item of APPLY. */
export function decodeApply(item) {
  check(item.length >= 32, `item of ${item.length} bytes`);
  check(item[2] === 10, `operation ${item[2]}`, 'UNSUPPORTED');
  const count = headOfMany(item, 255);
  const instructions = item[5];
  check(count > 8 || instructions <= 64, 'instructions');
  const lengths = firstLengths(item, count);
  const extension = item.readUInt16LE(6);
  const block = 32 + 16 * instructions + extension;
  check(item.readUInt16LE(0) === block, 'block length');
  lengths.forEach(checkKey);
  const dataBytes = item.readUInt32LE(12);
  check(dataBytes <= 2 * VALUE_BYTES_MAX, `data of ${dataBytes} bytes`, 'TOO_LARGE');
  let moreAt = block + sumOf(lengths);
  const more = [];
  if (count > 8) {
    check(item.length >= moreAt + padded(2 * (count - 8)), 'length of the item');
    for (let number = 8; number < count; number += 1) {
      more.push(item.readUInt16LE(moreAt + 2 * (number - 8)));
    }
    more.forEach((length, index) => checkKey(length, 8 + index));
    checkPadding(item, moreAt, 2 * more.length, 'the lengths');
    moreAt += padded(2 * more.length);
  }
  const dataAt = moreAt + sumOf(more);
  check(item.length === dataAt + padded(dataBytes), 'length of the item');
  const extra = decodeExtension(item, block - extension, extension, 10);
  const keys = [...takeKeys(item, block, lengths, 0), ...takeKeys(item, moreAt, more, 8)];
  checkPadding(item, dataAt, dataBytes, 'the data');
  const seen = new Set();
  for (const key of keys) {
    checkOwn(key);
    check(!seen.has(hex(key)), 'a key that stands twice');
    seen.add(hex(key));
  }
  const list = [];
  for (let number = 0; number < instructions; number += 1) {
    const at = 32 + 16 * number;
    list.push(decodeOfApply(item.subarray(at, at + 16), keys.length, dataBytes));
  }
  checkEffects(list, keys);
  return {
    keys: keys.map(hex),
    data: hex(item.subarray(dataAt, dataAt + dataBytes)),
    instructions: list,
    token: extra.token ?? null,
  };
}

function decodeOfApply(bytes, keys, dataBytes) {
  const code = bytes[0];
  const operation = APPLY_OPERATIONS.get(code);
  check(operation !== undefined, `operation ${code}`);
  check(bytes[2] < keys, `key ${bytes[2]}`);
  const told = {
    operation, key: bytes[2], reason: bytes[3],
    number: null, operand: null, version: null, data: null, rate: null,
  };
  const offset = bytes.readUInt32LE(4);
  const bits = u64(bytes, 8);
  const noType = () => check(bytes[1] === 0, 'the type is 0');
  if (code <= 2 || code === 28) {
    check(bytes[1] === 0 && isZero(bytes, 4, 16), 'about a whole key');
  } else if (code === 9 || code === 35) {
    noType();
    told.version = { epoch: offset, sequence: String(bits) };
  } else if (code === 26 || code === 27 || code === 33) {
    noType();
    check(BigInt(offset) + bits <= BigInt(dataBytes), 'bytes outside of the data');
    check(bits <= BigInt(VALUE_BYTES_MAX), 'a value', 'TOO_LARGE');
    told.data = { start: offset, length: Number(bits) };
  } else if (code === 32) {
    noType();
    check(bits === 0n && offset <= 63, 'ON_EXPIRE');
    told.effects = offset;
  } else if (code === 10 || code === 11 || code === 29) {
    decodeTime(told, code, bytes, keys, offset, bits);
  } else {
    decodeNumber(told, code, bytes, keys, bits);
  }
  return told;
}

function decodeTime(told, code, bytes, keys, offset, bits) {
  check((bytes[1] & 0x1f) === 0 && offset === 0, 'a time has no type and no offset');
  const source = bytes[1] & ~0x1f;
  check(source === 0 || source === 0x20 || (source === 0x40 && code === 29), 'a source');
  if (source === 0) check(bits <= TIME_MS_MAX && (bits > 0n || code === 29), 'a time');
  told.operand = operandOf(bytes, source, keys, bits);
}

function decodeNumber(told, code, bytes, keys, bits) {
  const type = bytes[1] & 0x1f;
  const source = bytes[1] & ~0x1f;
  told.number = numberOf(type, bytes.readUInt32LE(4));
  if (code === 30) {
    check(source === 0 && (type & 0x0f) === 3, 'a rate is kept in a u64');
    const interval = bits & (2n ** 40n - 1n);
    const burst = Number((bits >> 40n) & 0xffffn);
    const quantity = Number(bits >> 56n);
    check(interval > 0n && burst > 0 && quantity > 0 && quantity <= burst, 'a rate');
    told.rate = { interval_us: String(interval), burst, quantity };
    return;
  }
  if (code === 31) {
    check(source === 0 && bits === 0n, 'RETURN has no operand');
    return;
  }
  check([0, 0x20, 0x40].includes(source), 'a source');
  const isRanged = code <= 8 || (code >= 12 && code <= 14) || code === 16 ||
    (code >= 23 && code <= 25);
  if (source === 0 && isRanged && type !== 8) check(holds(type, bits), 'out of range');
  told.operand = operandOf(bytes, source, keys, bits);
}

function numberOf(type, offset) {
  const name = type === 8 ? 'decimal' : typeName(type);
  check(name !== undefined, `type ${type}`);
  check(type !== 8 || offset === 0, 'a decimal at an offset');
  return { type: name, offset };
}

function operandOf(bytes, source, keys, bits) {
  if (source === 0) return { immediate: String(bits) };
  if (source === 0x40) return { now_plus_ms: String(BigInt.asIntN(64, bits)) };
  check(bytes.readUInt16LE(14) === 0, 'the word behind the key');
  const number = numberOf(bytes[12], bytes.readUInt32LE(8));
  check(bytes[13] < keys, `key ${bytes[13]}`);
  return { key: bytes[13], number };
}

function checkEffects(list, keys) {
  const armed = new Set();
  list.forEach((one, number) => {
    if (one.effects === undefined) return;
    const effects = list.slice(number + 1, number + 1 + one.effects);
    check(effects.length === one.effects, 'effects behind the end');
    for (const { operation } of effects) {
      const code = [...APPLY_OPERATIONS].find(([, name]) => name === operation)[0];
      check(code >= 16 && code <= 30, 'no effect');
    }
    check(!armed.has(one.key), 'a key is armed twice');
    armed.add(one.key);
    const named = new Set([one.key]);
    effects.forEach((effect) => {
      named.add(effect.key);
      if (effect.operand?.key !== undefined) named.add(effect.operand.key);
    });
    check(named.size <= 8, 'more than 8 keys');
    const bytes = 32 + 16 * effects.length +
      [...named].reduce((sum, key) => sum + padded(keys[key].length), 0) +
      effects.reduce((sum, { data }) => sum + padded(data?.length ?? 0), 0);
    check(bytes <= 2944, 'effects of too many bytes', 'TOO_LARGE');
  });
}

/** An item of RUN. */
export function decodeRun(item) {
  check(item.length >= 40, `item of ${item.length} bytes`);
  check(item[2] === 11, `operation ${item[2]}`, 'UNSUPPORTED');
  const count = headOfMany(item, 8);
  check(item[5] <= 16, 'arguments');
  const lengths = firstLengths(item, count);
  const extension = item.readUInt16LE(6);
  check(item.readUInt16LE(0) === 40 + extension, 'block length');
  lengths.forEach(checkKey);
  const argumentBytes = item.readUInt32LE(12);
  check(argumentBytes % 8 === 0, 'length of the arguments');
  const argumentsAt = 40 + extension + sumOf(lengths);
  check(item.length === argumentsAt + argumentBytes, 'length of the item');
  const extra = decodeExtension(item, 40, extension, 11);
  const keys = takeKeys(item, 40 + extension, lengths, 0);
  keys.forEach(checkOwn);
  return {
    program: `0x${u64(item, 32).toString(16).padStart(16, '0')}`,
    keys: keys.map(hex),
    argument_count: item[5],
    arguments: hex(item.subarray(argumentsAt)),
    token: extra.token ?? null,
  };
}

/** An item of SCAN. */
export function decodeScan(item) {
  check(item.length >= 32, `item of ${item.length} bytes`);
  check(item[2] === 5, `operation ${item[2]}`, 'UNSUPPORTED');
  check(item[3] <= 1 && item[4] === 1 && item[5] === 0, 'flags, keys, instructions');
  check(item.readUInt16LE(0) === 32, 'block length');
  check(isZero(item, 6, 8) && isZero(item, 10, 16), 'what stands around the prefix length');
  const prefixBytes = item.readUInt16LE(8);
  const keysMax = item.readUInt32LE(24);
  const bytesMax = item.readUInt32LE(28);
  check(prefixBytes <= 1024 && keysMax >= 1 && keysMax <= 1024, 'prefix, keys');
  check(bytesMax >= 4096 && bytesMax <= 262144, 'bytes of a page');
  check(item.length === 32 + padded(prefixBytes), 'length of the item');
  checkPadding(item, 32, prefixBytes, 'the prefix');
  return {
    cursor: String(u64(item, 16)),
    prefix: hex(item.subarray(32, 32 + prefixBytes)),
    keys_max: keysMax,
    bytes_max: bytesMax,
    wants_values: item[3] === 1,
  };
}

/** PING as an item. */
export function decodePing(item) {
  check(item.length >= 16, `item of ${item.length} bytes`);
  check(item[2] === 9, `operation ${item[2]}`, 'UNSUPPORTED');
  check(item.readUInt16LE(0) === 16 && isZero(item, 3, 12), 'what stands before the length');
  const length = item.readUInt32LE(12);
  check(length <= VALUE_BYTES_MAX, `value of ${length} bytes`, 'TOO_LARGE');
  check(item.length === 16 + padded(length), 'length of the item');
  checkPadding(item, 16, length, 'the value');
  return { value: hex(item.subarray(16, 16 + length)) };
}

const UTF8 = new TextDecoder('utf-8', { fatal: true });

/** The body of a HELLO request. */
export function decodeClientHello(body) {
  check(body.length >= 24, `HELLO body of ${body.length} bytes`);
  const lowest = body.readUInt16LE(0);
  const highest = body.readUInt16LE(2);
  check(isZero(body, 4, 8) && isZero(body, 18, 24), 'what stands around the fields');
  const length = body.readUInt16LE(16);
  check(length <= 64, `a name of ${length} bytes`);
  check(body.length === 24 + padded(length), 'length of HELLO');
  checkPadding(body, 24, length, 'the name');
  check(lowest <= 1 && highest >= 1, 'no version that is spoken', 'UNSUPPORTED');
  let name;
  try {
    name = UTF8.decode(body.subarray(24, 24 + length));
  } catch {
    throw new WireFault('a name that is not UTF-8');
  }
  return {
    protocol_min: lowest, protocol_max: highest, features: String(u64(body, 8)), name,
  };
}
