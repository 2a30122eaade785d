// APPLY: guards and effects on several keys of one slot, all of them or none.

import { Field, Instruction, Now } from './fields.js';
import { bytesOf, keyBytes } from './bytes.js';

const KEYS_MAX = 255;
const NOTHING = Buffer.alloc(0);

/** One key of an `Apply`. Its methods make guards and effects. */
export class Key {
  constructor(number) {
    this.number = number;
    Object.freeze(this);
  }

  /** A number of its value: a type with a place, or a field of a layout. */
  field(typeOrField, offset = 0) {
    if (typeOrField instanceof Field) return typeOrField.ofKey(this.number);
    return new Field(typeOrField, offset, this.number);
  }

  /** The whole value as a number in decimals. */
  decimal() {
    return new Field('decimal', 0, this.number);
  }

  /** Guard: the key existed before the request. */
  exists() {
    return this.#whole(1);
  }

  /** Guard: the key did not exist before the request. */
  absent() {
    return this.#whole(2);
  }

  /** Guard: the key had this version before the request. */
  hasVersion({ epoch, sequence }) {
    return this.#whole(9, { offset: epoch, operand: sequence });
  }

  /** Effect: the value becomes these bytes, and the expiry goes. */
  put(value) {
    return this.#whole(26, { data: bytesOf(value) });
  }

  /** Effect: as `put` if the key has no value now. */
  start(value) {
    return this.#whole(27, { data: bytesOf(value) });
  }

  /** Effect: the value becomes these bytes, and the expiry stays. */
  replace(value) {
    return this.#whole(33, { data: bytesOf(value) });
  }

  /** Effect: the key is deleted. */
  delete() {
    return this.#whole(28);
  }

  /** Effect: the key is gone from then on: a Date, unix milliseconds, a `Field`; 0 for never. */
  expiresAt(time) {
    const operand = time instanceof Date ? time.getTime() : time;
    return this.#whole(29, { operand });
  }

  /** Effect: the key is gone in so many milliseconds. */
  expiresIn(ms) {
    return this.#whole(29, { operand: new Now(ms) });
  }

  /** Effect: these effects run when the key expires. */
  onExpire(...effects) {
    return this.#whole(32, { later: effects, offset: effects.length });
  }

  #whole(operation, parts = {}) {
    return new Instruction({ operation, key: this.number, ...parts });
  }
}

/** Guards and effects on up to 255 keys of one `{tag}`. */
export class Apply {
  #keys = [];
  #instructions = [];

  /** Adds a key; the first one decides the slot. */
  key(key) {
    if (this.#keys.length === KEYS_MAX) throw new RangeError('APPLY has at most 255 keys');
    this.#keys.push(keyBytes(key));
    return new Key(this.#keys.length - 1);
  }

  /** Adds guards and effects, which run in their order. */
  do(...instructions) {
    for (const instruction of instructions) {
      if (!(instruction instanceof Instruction)) {
        throw new TypeError('a guard or an effect is made by a Key or a Field');
      }
      this.#instructions.push(instruction);
      if (instruction.later) this.do(...instruction.later);
    }
    return this;
  }

  get keys() {
    return this.#keys;
  }

  get instructions() {
    return this.#instructions;
  }

  /** Whether it may change anything. */
  get hasEffect() {
    return this.#instructions.some((one) => !one.isGuard && one.operation !== 31);
  }

  /** Instructions and data as bytes. */
  encode() {
    const instructions = Buffer.alloc(16 * this.#instructions.length);
    const parts = [];
    let dataAt = 0;
    this.#instructions.forEach((instruction, number) => {
      instruction.write(instructions, 16 * number, dataAt);
      if (instruction.data) {
        parts.push(instruction.data);
        dataAt += instruction.data.length;
      }
    });
    return { instructions, data: parts.length > 0 ? Buffer.concat(parts) : NOTHING };
  }

  /** The types of the numbers that an OK tells, in their order. */
  get numberTypes() {
    const types = [];
    let later = 0;
    for (const instruction of this.#instructions) {
      const isLater = later > 0;
      later = instruction.later ? instruction.later.length : Math.max(0, later - 1);
      if (instruction.tellsNumber && !isLater) types.push(instruction.type);
    }
    return types;
  }
}

/** Guard: the shard's time is before this one, unix milliseconds or a `Field`. */
export const before = (time) => new Instruction({ operation: 10, operand: time });

/** Guard: the shard's time is this one or later. */
export const since = (time) => new Instruction({ operation: 11, operand: time });
