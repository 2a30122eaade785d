// Numbers in values, and the guards and effects about them that UPDATE_IF and APPLY take.

import { readI64, readU64, whole, writeBits, writeU64, zeros } from './wire/numbers.js';

const PLAIN = ['u8', 'u16', 'u32', 'u64', 'i8', 'i16', 'i32', 'i64'];
const BIG_ENDIAN = 0x10;
const DECIMAL = 8;
/** Types of numbers by their names, with the code on the wire. */
export const TYPES = new Map([
  ...PLAIN.map((name, code) => [name, code]),
  ...PLAIN.map((name, code) => [`${name}be`, code | BIG_ENDIAN]),
  ['decimal', DECIMAL],
]);

const GUARDS = {
  equals: 3, differs: 4, below: 5, atMost: 6, above: 7, atLeast: 8,
  allBits: 12, anyBit: 13, noBits: 14,
};
const EFFECTS = {
  becomes: 16, increase: 17, decrease: 18, increaseToBorder: 19, decreaseToBorder: 20,
  lower: 21, raise: 22, and: 23, or: 24, xor: 25,
};
const FROM_NUMBER = 0x20;
const FROM_TIME = 0x40;
const LAST_OF_UPDATE_IF = 18;

/** Code of an operation by the sign that people write. */
export const BY_SIGN = Object.freeze({
  '=': 3, '!=': 4, '<': 5, '<=': 6, '>': 7, '>=': 8, set: 16, add: 17, subtract: 18,
});

/** Whether numbers of this type can be negative. */
export const isSigned = (type) => type === DECIMAL || (type & 4) !== 0;

/** Eight bytes of an answer, as the type has them. */
export function readNumber(bytes, at, type) {
  return isSigned(type) ? readI64(bytes, at) : readU64(bytes, at);
}

/** The time of the shard when the operation runs, plus so many milliseconds. */
export class Now {
  constructor(plusMs = 0) {
    this.plusMs = plusMs;
    Object.freeze(this);
  }
}

/** The time of the shard when the operation runs, plus so many milliseconds: an operand. */
export const now = (plusMs = 0) => new Now(plusMs);

/** A guard or an effect. It is made by `Field` and `Key`, and never changes. */
export class Instruction {
  constructor(parts) {
    this.operation = parts.operation;
    this.type = parts.type ?? 0;
    this.key = parts.key ?? 0;
    this.reason = parts.reason ?? 0;
    this.offset = parts.offset ?? 0;
    this.operand = parts.operand ?? 0;
    /** Bytes that PUT, START and REPLACE give. */
    this.data = parts.data ?? null;
    /** Instructions that run when the key expires. */
    this.later = parts.later ?? null;
    Object.freeze(this);
  }

  /** The same with a reason, 0 to 255, which a no tells. */
  orElse(reason) {
    if (!Number.isInteger(reason) || reason < 0 || reason > 255) {
      throw new RangeError(`a reason is 0 to 255, not ${reason}`);
    }
    return new Instruction({ ...this, reason });
  }

  /** The same about the key with this number. */
  ofKey(key) {
    return new Instruction({ ...this, key });
  }

  get isGuard() {
    return this.operation < 16 || this.operation === 35;
  }

  /** Whether an OK tells a number of it. */
  get tellsNumber() {
    return (this.operation >= 16 && this.operation <= 25) || this.operation === 30 ||
      this.operation === 31;
  }

  /** Writes its 16 bytes; `dataAt` is where its bytes begin in the data of APPLY. */
  write(bytes, at, dataAt = 0) {
    bytes[at] = this.operation;
    bytes[at + 1] = this.type;
    bytes[at + 2] = this.key;
    bytes[at + 3] = this.reason;
    bytes.writeUInt32LE(this.data ? dataAt : this.offset, at + 4);
    if (this.data) {
      writeU64(bytes, at + 8, this.data.length);
    } else if (this.operand instanceof Field) {
      bytes[at + 1] |= FROM_NUMBER;
      bytes.writeUInt32LE(this.operand.offset, at + 8);
      bytes.writeUInt16LE(this.operand.type | (this.operand.key << 8), at + 12);
      bytes.writeUInt16LE(0, at + 14);
    } else if (this.operand instanceof Now) {
      bytes[at + 1] |= FROM_TIME;
      writeBits(bytes, at + 8, this.operand.plusMs);
    } else {
      writeBits(bytes, at + 8, this.operand);
    }
  }
}

/**
 * A number in a value: its type, where it begins, and of which key. Guards and effects are made by
 * its methods. An operand is a number, a boolean, another `Field`, or `now()`.
 */
export class Field {
  constructor(type, offset = 0, key = 0) {
    const code = typeof type === 'string' ? TYPES.get(type) : type;
    if (code === undefined) throw new TypeError(`no type of a number: ${type}`);
    this.type = code;
    this.offset = offset;
    this.key = key;
    Object.freeze(this);
  }

  /** The same number of the second key of UPDATE_IF. */
  ofSecondKey() {
    return new Field(this.type, this.offset, 1);
  }

  /** The same number of the key with this number. */
  ofKey(key) {
    return new Field(this.type, this.offset, key);
  }

  /** Takes units from a rate that a u64 keeps. */
  take({ intervalUs, burst, quantity = 1 }) {
    const isFit = intervalUs >= 1 && intervalUs < 2 ** 40 && burst >= 1 && burst <= 0xffff &&
      quantity >= 1 && quantity <= Math.min(burst, 255);
    if (!isFit) {
      throw new RangeError('a rate has an interval of 1 to 2^40 - 1 microseconds, a burst of 1 ' +
        'to 65535 and a quantity of 1 to 255 and at most the burst');
    }
    const operand = whole(intervalUs) | (whole(burst) << 40n) | (whole(quantity) << 56n);
    return this.#instruction(30, operand);
  }

  /** Tells the number. */
  returned() {
    return this.#instruction(31, 0);
  }

  /** An operation by its code. */
  instruction(operation, operand = 0) {
    return this.#instruction(operation, operand);
  }

  #instruction(operation, operand) {
    const { type, key, offset } = this;
    if (!(operand instanceof Field) && !(operand instanceof Now)) whole(operand);
    return new Instruction({ operation, type, key, offset, operand });
  }
}

for (const [name, operation] of Object.entries({ ...GUARDS, ...EFFECTS })) {
  Object.defineProperty(Field.prototype, name, {
    value(operand) {
      return this.instruction(operation, operand);
    },
  });
}

/** The bytes of instructions that stand alone, without data, as those of UPDATE_IF. */
export function encodeInstructions(instructions) {
  const bytes = zeros(16 * instructions.length);
  instructions.forEach((instruction, number) => {
    if (!(instruction instanceof Instruction)) {
      throw new TypeError(`instruction ${number} is no Instruction: a Field makes them`);
    }
    if (instruction.operation > LAST_OF_UPDATE_IF || instruction.operation === 9 ||
        (instruction.operation > 9 && instruction.operation < 16) ||
        typeof instruction.operand === 'object') {
      throw new TypeError(`instruction ${number} is for apply, not for updateIf`);
    }
    instruction.write(bytes, 16 * number);
  });
  return bytes;
}
