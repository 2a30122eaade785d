// The schema of a server: layouts, and programs that are called by names (RUN.md, SCHEMA.md).

import { Field, readNumber } from './fields.js';
import { bytesOf, keyBytes } from './bytes.js';
import { Layout } from './layout.js';
import { ProtocolError } from './errors.js';
import { padded, whole, writeBits } from './wire/numbers.js';

const PLAIN_NUMBER = /^([A-Za-z0-9_-]+)\.(decimal|([ui](?:8|16|32|64)(?:be)?)@(\d+))$/;
const TELLS = /^(\S+?)\s+(?:=(?!=)|\+=|-=|min=|max=|&=|\|=|\^=|rate\s)/;
const RETURNS = /^(?:return\s+)?(\S+)$/;

/** A program of a server: its keys and arguments by name, in their order. */
export class Program {
  #keys;
  #arguments;
  #numbers;

  constructor(name, told, layouts) {
    this.name = name;
    this.id = BigInt(told.id);
    this.#keys = told.keys.map(readKey);
    this.#arguments = told.arguments.map(readArgument);
    this.#numbers = numbersTold(told).map((text) => ({
      name: text, type: typeOf(text, this.#keys, layouts),
    }));
    this.keys = Object.freeze(this.#keys.map((key) => key.name));
    this.arguments = Object.freeze(this.#arguments.map((argument) => argument.name));
    this.numbers = Object.freeze(this.#numbers.map((number) => number.name));
    Object.freeze(this);
  }

  /** What RUN sends: keys and arguments as bytes. */
  encode(keys, values) {
    checkNames(this.name, 'key', this.keys, keys);
    checkNames(this.name, 'argument', this.arguments, values);
    return {
      id: this.id,
      keys: this.#keys.map(({ name }) => keyBytes(keys[name])),
      values: Buffer.concat(this.#arguments.map((argument) => (
        encodeArgument(this.name, argument, values[argument.name])
      ))),
      argumentCount: this.#arguments.length,
    };
  }

  /** The numbers of an OK by name. One that is told twice has its last value. */
  decode(value) {
    const numbers = {};
    for (let at = 0; at + 8 <= value.length; at += 8) {
      const { name, type } = this.#numbers[at / 8] ?? { name: String(at / 8), type: 3 };
      numbers[name] = readNumber(value, at, type);
    }
    return numbers;
  }
}

function readKey(text) {
  const [name, layout = null] = text.split(':');
  return { name, layout };
}

function readArgument(text) {
  const match = /^([^:]+):(bool|[ui](?:8|16|32|64)|u8\[(\d+)\])(?: (-?\d+)\.\.(-?\d+))?$/
    .exec(text);
  if (!match) throw new ProtocolError(`an argument of a program is of another form: ${text}`);
  const [, name, type, bytesMax, least, most] = match;
  if (bytesMax !== undefined) return { name, bytesMax: Number(bytesMax) };
  const bits = BigInt(type === 'bool' ? 1 : Number(type.slice(1)));
  const isSigned = type.startsWith('i');
  return {
    name,
    least: least === undefined ? (isSigned ? -(1n << (bits - 1n)) : 0n) : BigInt(least),
    most: most === undefined
      ? (1n << (isSigned ? bits - 1n : bits)) - 1n : BigInt(most),
  };
}

function encodeArgument(program, argument, value) {
  const { name, bytesMax } = argument;
  if (bytesMax === undefined) {
    const number = whole(value);
    if (number < argument.least || number > argument.most) {
      throw new RangeError(
        `${name} of ${program} is ${argument.least} to ${argument.most}, not ${number}`,
      );
    }
    const bytes = Buffer.alloc(8);
    writeBits(bytes, 0, number);
    return bytes;
  }
  const from = bytesOf(value);
  if (from.length > bytesMax) {
    throw new RangeError(`${name} of ${program} has ${bytesMax} bytes at most`);
  }
  const bytes = Buffer.alloc(8 + padded(from.length));
  bytes.writeUInt32LE(from.length, 0);
  bytes.set(from, 8);
  return bytes;
}

function checkNames(program, what, names, given) {
  for (const name of names) {
    if (!Object.hasOwn(given, name)) throw new TypeError(`${program} needs the ${what} ${name}`);
  }
  for (const name of Object.keys(given)) {
    if (!names.includes(name)) throw new TypeError(`${program} has no ${what} ${name}`);
  }
}

/** The names of the numbers that an OK tells: effects on numbers, then what is returned. */
function numbersTold({ instructions, returns }) {
  const told = [];
  for (const text of instructions) {
    const match = TELLS.exec(text.trim());
    if (match && !text.trim().startsWith('when ')) told.push(match[1]);
  }
  return [...told, ...returns.map((text) => RETURNS.exec(text.trim())?.[1] ?? text)];
}

/** The type of a number by its name, `stock.available` or `order.u32@0`; u64 if it has none. */
function typeOf(text, keys, layouts) {
  const plain = PLAIN_NUMBER.exec(text);
  if (plain) return new Field(plain[3] ?? 'decimal').type;
  const dot = text.indexOf('.');
  const key = keys.find(({ name }) => name === text.slice(0, dot));
  return layouts[key?.layout]?.fields[text.slice(dot + 1)]?.type ?? 3;
}

/** Reads what INFO tells of a schema: layouts and programs by name. */
export function readSchema(text) {
  try {
    const told = JSON.parse(text);
    const layouts = mapped(told.layouts, (name, layout) => (
      Layout.of(name, layout.fields, layout.bytes)
    ));
    const programs = mapped(told.programs, (name, program) => (
      new Program(name, program, layouts)
    ));
    return { layouts, programs };
  } catch (error) {
    throw new ProtocolError(`the schema of the server is of another form: ${error.message}`,
      { cause: error });
  }
}

/** Without a prototype: names of a server are no names of Object. */
function mapped(members, make) {
  const all = Object.create(null);
  for (const [name, member] of Object.entries(members)) all[name] = make(name, member);
  return all;
}
