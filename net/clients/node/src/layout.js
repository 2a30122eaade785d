// Layouts: what the bytes of a value mean, as objects with named fields (LAYOUTS.md, SCHEMA.md).

import { Field, TYPES } from './fields.js';
import { bytesOf } from './bytes.js';
import { readI64, readU64, whole, writeBits } from './wire/numbers.js';

const UTF8 = new TextDecoder('utf-8', { fatal: true });
const TEXT_BYTES = 8;

/** A layout: fields by name, with a type and a place each. */
export class Layout {
  #parts;

  constructor(name, parts, bytes) {
    this.name = name;
    /** Length of the fixed fields. */
    this.bytes = bytes;
    this.#parts = parts;
    /** The whole numbers among the fields by name: they make guards and effects. */
    this.fields = Object.freeze(Object.fromEntries(numbersOf(parts, '', 0)));
    Object.freeze(this);
  }

  /**
   * A layout of fields such as `stock:u32@0`, a list or a text with `;` between them. The length
   * is `bytes`, or what `=N` at the end of the text says, or where the last field ends.
   */
  static of(name, fields, bytes) {
    const texts = typeof fields === 'string' ? splitFields(fields) : [...fields];
    const { parts, length } = readLayout(name, texts, bytes);
    return new Layout(name, parts, length);
  }

  /** A number by its name: `stock`, `sizes[2]`, `buyer.bought`. */
  field(name) {
    const field = Object.hasOwn(this.fields, name) ? this.fields[name] : undefined;
    if (!field) throw new TypeError(`the layout ${this.name} has no number ${name}`);
    return field;
  }

  /** The value of these fields. Those that are not named are zero. */
  encode(values = {}) {
    const fixed = Buffer.alloc(this.bytes);
    const texts = [];
    let textAt = this.bytes;
    const addText = (text) => {
      const bytes = Buffer.from(text, 'utf8');
      const begin = bytes.length > 0 ? textAt : 0;
      texts.push(bytes);
      textAt += bytes.length;
      return { begin, length: bytes.length };
    };
    writeParts(this.name, this.#parts, fixed, 0, values, addText);
    return texts.length > 0 ? Buffer.concat([fixed, ...texts]) : fixed;
  }

  /** The fields of a value. A shorter value tells the fields that it has. */
  decode(value) {
    return readParts(this.#parts, bytesOf(value), 0, this.bytes);
  }
}

function readLayout(name, texts, bytes) {
  let length = bytes;
  if (texts.length > 0 && /^=\d+$/.test(texts.at(-1))) length ??= Number(texts.pop().slice(1));
  const parts = texts.map(readPart);
  const end = parts.reduce((most, part) => Math.max(most, part.offset + part.kind.bytes), 0);
  length ??= end;
  if (end > length) throw new TypeError(`the fields of ${name} end at ${end}, not ${length}`);
  return { parts, length };
}

function splitFields(text) {
  const parts = [];
  let depth = 0;
  let begin = 0;
  for (let at = 0; at <= text.length; at += 1) {
    if (text[at] === '{') depth += 1;
    if (text[at] === '}') depth -= 1;
    if (at === text.length || (text[at] === ';' && depth === 0)) {
      const part = text.slice(begin, at).trim();
      if (part) parts.push(part);
      begin = at + 1;
    }
  }
  return parts;
}

function readPart(text) {
  const match = /^([^:]+):(.+)@(\d+)$/.exec(text.trim());
  if (!match) throw new TypeError(`a field is NAME:TYPE@OFFSET, not ${text}`);
  return { name: match[1], kind: kindOf(match[2]), offset: Number(match[3]) };
}

/** What a type is: `is` says which of the kinds, `bytes` how long. */
function kindOf(type) {
  const array = /^(.+)\[(\d+)\]$/.exec(type);
  if (array) {
    const element = kindOf(array[1]);
    const count = Number(array[2]);
    const is = array[1] === 'u8' ? 'bytes' : 'array';
    return { is, element, count, bytes: count * element.bytes };
  }
  if (type.startsWith('{') && type.endsWith('}')) {
    const { parts, length } = readLayout('a nested layout', splitFields(type.slice(1, -1)));
    return { is: 'layout', parts, bytes: length };
  }
  if (type === 'bool') return { is: 'bool', code: TYPES.get('u8'), bytes: 1 };
  if (type === 'text') return { is: 'text', bytes: TEXT_BYTES };
  const float = /^f(32|64)(be)?$/.exec(type);
  if (float) return { is: 'float', bytes: Number(float[1]) / 8, isBig: Boolean(float[2]) };
  const code = type === 'decimal' ? undefined : TYPES.get(type);
  if (code === undefined) throw new TypeError(`no type of a field: ${type}`);
  return { is: 'number', code, bytes: 1 << (code & 3) };
}

function* numbersOf(parts, prefix, base) {
  for (const { name, kind, offset } of parts) {
    yield* numbersIn(kind, prefix + name, base + offset);
  }
}

function* numbersIn(kind, name, at) {
  if (kind.is === 'number' || kind.is === 'bool') yield [name, new Field(kind.code, at)];
  if (kind.is === 'layout') yield* numbersOf(kind.parts, `${name}.`, at);
  if (kind.is === 'array' || kind.is === 'bytes') {
    for (let element = 0; element < kind.count; element += 1) {
      const place = at + element * kind.element.bytes;
      yield* numbersIn(kind.element, `${name}[${element}]`, place);
    }
  }
}

function writeParts(layout, parts, bytes, base, values, addText) {
  for (const name of Object.keys(values)) {
    if (!parts.some((part) => part.name === name)) {
      throw new TypeError(`the layout ${layout} has no field ${name}`);
    }
  }
  for (const { name, kind, offset } of parts) {
    const value = Object.hasOwn(values, name) ? values[name] : undefined;
    if (value !== undefined) {
      writeValue(`${layout}.${name}`, kind, bytes, base + offset, value, addText);
    }
  }
}

function writeValue(name, kind, bytes, at, value, addText) {
  switch (kind.is) {
    case 'bool':
      bytes[at] = value ? 1 : 0;
      break;
    case 'number':
      writeNumber(name, kind, bytes, at, value);
      break;
    case 'float':
      if (kind.bytes === 4) bytes[kind.isBig ? 'writeFloatBE' : 'writeFloatLE'](value, at);
      else bytes[kind.isBig ? 'writeDoubleBE' : 'writeDoubleLE'](value, at);
      break;
    case 'text': {
      const { begin, length } = addText(String(value));
      bytes.writeUInt32LE(begin, at);
      bytes.writeUInt32LE(length, at + 4);
      break;
    }
    case 'bytes': {
      const from = bytesOf(value);
      checkCount(name, from.length, kind.count);
      bytes.set(from, at);
      break;
    }
    case 'array':
      checkCount(name, value.length, kind.count);
      value.forEach((one, number) => {
        const place = at + number * kind.element.bytes;
        writeValue(`${name}[${number}]`, kind.element, bytes, place, one, addText);
      });
      break;
    default:
      writeParts(name, kind.parts, bytes, at, value, addText);
  }
}

function checkCount(name, count, most) {
  if (count > most) throw new RangeError(`${name} has ${most} elements at most, not ${count}`);
}

function writeNumber(name, kind, bytes, at, value) {
  const number = whole(value);
  const bits = BigInt(8 * kind.bytes);
  const least = kind.code & 4 ? -(1n << (bits - 1n)) : 0n;
  const most = kind.code & 4 ? (1n << (bits - 1n)) - 1n : (1n << bits) - 1n;
  if (number < least || number > most) {
    throw new RangeError(`${name} is ${least} to ${most}, not ${number}`);
  }
  const eight = Buffer.alloc(8);
  writeBits(eight, 0, number);
  const low = eight.subarray(0, kind.bytes);
  if (kind.code & 0x10) low.reverse();
  bytes.set(low, at);
}

function readParts(parts, bytes, base, fixedBytes) {
  const fields = {};
  for (const { name, kind, offset } of parts) {
    if (base + offset + kind.bytes <= bytes.length) {
      Object.defineProperty(fields, name, {
        value: readValue(name, kind, bytes, base + offset, fixedBytes),
        enumerable: true,
        writable: true,
        configurable: true,
      });
    }
  }
  return fields;
}

function readValue(name, kind, bytes, at, fixedBytes) {
  switch (kind.is) {
    case 'bool':
      if (bytes[at] > 1) throw new RangeError(`${name} is 0 or 1, not ${bytes[at]}`);
      return bytes[at] === 1;
    case 'number':
      return readFixed(kind, bytes, at);
    case 'float':
      if (kind.bytes === 4) return bytes[kind.isBig ? 'readFloatBE' : 'readFloatLE'](at);
      return bytes[kind.isBig ? 'readDoubleBE' : 'readDoubleLE'](at);
    case 'text': {
      const begin = bytes.readUInt32LE(at);
      const length = bytes.readUInt32LE(at + 4);
      if (length === 0) return '';
      if (begin < fixedBytes || begin + length > bytes.length) {
        throw new RangeError(`the text ${name} lies outside of its value`);
      }
      return UTF8.decode(bytes.subarray(begin, begin + length));
    }
    case 'bytes':
      return Buffer.from(bytes.subarray(at, at + kind.count));
    case 'array':
      return Array.from({ length: kind.count }, (_, number) => readValue(
        `${name}[${number}]`, kind.element, bytes, at + number * kind.element.bytes, fixedBytes,
      ));
    default:
      return readParts(kind.parts, bytes, at, fixedBytes);
  }
}

function readFixed(kind, bytes, at) {
  const isBig = (kind.code & 0x10) !== 0;
  const low = Buffer.from(bytes.subarray(at, at + kind.bytes));
  if (isBig) low.reverse();
  const isNegative = (kind.code & 4) !== 0 && (low[kind.bytes - 1] & 0x80) !== 0;
  const eight = Buffer.alloc(8, isNegative ? 0xff : 0);
  eight.set(low);
  return kind.code & 4 ? readI64(eight, 0) : readU64(eight, 0);
}
