/** A whole number. Answers have a Number up to 2^53 - 1, from -(2^53 - 1), and a BigInt beyond. */
export type WholeNumber = number | bigint;
/** A key or a value: bytes, or a text that is sent in UTF-8. */
export type Bytes = Uint8Array | string;
/** How durable an operation is before its answer (PROTOCOL.md, *Ack levels*). */
export type Level = 'none' | 'interval' | 'disk' | 'replica' | 'all';
/** The name of a status (PROTOCOL.md, *Status*). */
export type Status =
  | 'GUARD_FAILED' | 'NOT_FOUND' | 'EXISTS' | 'VERSION_MISMATCH' | 'NOT_KEPT' | 'TOKEN_REUSED'
  | 'MOVED' | 'NOT_PRIMARY' | 'STALE' | 'BUSY' | 'DEADLINE' | 'DRAINING' | 'FULL' | 'MALFORMED'
  | 'TOO_LARGE' | 'CROSS_SLOT' | 'UNSUPPORTED' | 'BAD_KEY' | 'BAD_FIELD' | 'HELLO_EXPECTED'
  | 'AUTH' | 'UNKNOWN_PROGRAM' | 'DENIED' | 'WRONG_TYPE' | 'IO' | 'CORRUPT' | 'SHARD_DOWN'
  | 'INDETERMINATE' | 'NOREPLICAS' | 'TOKEN_TOO_OLD';

/** A version of a key. */
export interface Version {
  epoch: number;
  sequence: WholeNumber;
}

/** A value with its version. */
export interface Value {
  data: Buffer;
  version: Version;
  /** Unix milliseconds; null for never, and if `withExpiry` did not ask. */
  expiresAt: number | null;
}

/** When a key expires. */
export interface Expiry {
  /** Unix milliseconds; null for never. */
  expiresAt: number | null;
  /** The server's time in unix milliseconds. */
  serverTime: number;
}

/** What a write has done. */
export interface Changed {
  version: Version;
  /** The new value of each number that an effect changed, in their order. */
  numbers: WholeNumber[];
  /** An earlier try was executed, and this is its answer again. */
  replayed: boolean;
  /** The level that was reached. */
  level: Level;
  /** The node began to write the key behind the time of the token: a lost node may have it, too. */
  mayBeLost: boolean;
}

/** What a program has done. */
export interface Ran extends Omit<Changed, 'numbers'> {
  /** The numbers by their names, such as `stock.available`. */
  numbers: Record<string, WholeNumber>;
}

/** A key of a scan. */
export interface Entry {
  key: Buffer;
  version: Version;
  /** The value, if `withValues` asked and it is not too long for a page. */
  data: Buffer | null;
  isValueTooLong: boolean;
}

/** Options of what is asked of a node. */
export interface AskOptions {
  /** Milliseconds from the call to its outcome, 1 to 65535. */
  deadline?: number;
  /** Gives the call up. */
  signal?: AbortSignal;
}

/** Options of every verb on keys. */
export interface VerbOptions extends AskOptions {
  level?: Level;
}

/** Options of every write. */
export interface WriteOptions extends VerbOptions {
  /** A token of the caller, a UUID of version 7: `newToken` makes one. */
  token?: string;
}

/** Options of `get`. */
export interface GetOptions extends VerbOptions {
  withExpiry?: boolean;
}

/** Options of `set`: one condition and one expiry at most. */
export interface SetOptions extends WriteOptions {
  ifAbsent?: boolean;
  ifPresent?: boolean;
  ifVersion?: Version;
  /** A no tells the value that kept the condition from holding. */
  show?: boolean;
  /** A Date or unix milliseconds. */
  expiresAt?: Date | number;
  /** Milliseconds. */
  expiresIn?: number;
  keepExpiry?: boolean;
}

/** Options of `delete`. */
export interface DeleteOptions extends WriteOptions {
  ifVersion?: Version;
  show?: boolean;
}

/** Options of `setExpiry`: one of the three. */
export interface ExpiryOptions extends WriteOptions {
  expiresAt?: Date | number;
  expiresIn?: number;
  never?: boolean;
}

/** Options of `updateIf`. */
export interface UpdateOptions extends ExpiryOptions {
  /** A second key of the same `{tag}`: `Field.ofSecondKey` names its numbers. */
  secondKey?: Bytes;
  /** What a missing key starts from. */
  start?: Bytes;
}

/** Options of `scan`. */
export interface ScanOptions extends VerbOptions {
  withValues?: boolean;
  /** Keys of a page, 1 to 1024. */
  pageKeys?: number;
}

/** Options of a client. */
export interface ClientOptions {
  /** For the server's log, 64 bytes at most. */
  name?: string;
  /** The level of verbs that name none: `disk`. */
  level?: Level;
  /** The deadline of verbs that name none, in milliseconds: 5000. */
  deadline?: number;
  /** Whether each write that is not the same twice as once gets a token: true. */
  tokens?: boolean;
  /** Whether what may be sent again is sent again: true. */
  retries?: boolean;
  /** Whether the port of the core that has the key is asked: true. */
  shardPorts?: boolean;
  /** Of several nodes: PING after half of this silence, another node behind it; 400 ms, 0 never. */
  silenceMax?: number;
  /** Who logs in by SCRAM-SHA-256. */
  identity?: Identity | { name: string; secret: Bytes } | null;
  /** Whether an encrypted connection goes on at a server without users, as nobody: false. */
  identityMayWait?: boolean;
  /** Options of `tls.connect`, such as `ca` and `servername`; true for none. TLS 1.3 alone. */
  tls?: import('node:tls').ConnectionOptions | true | null;
  /** Calls that may wait or be under way; beyond it a call is `Busy`: 16384. */
  pendingMax?: number;
}

/** A user and a secret: a password, or the key of `USER/KEY`. */
export class Identity {
  constructor(name: string, secret: Bytes);
  readonly name: string;
}

/** A client of one server, or of the nodes of a cluster. */
export class Client {
  /** A client that has reached one of the addresses, HOST:PORT. */
  static connect(addresses: string | Iterable<string>, options?: ClientOptions): Promise<Client>;
  private constructor();
  /** The value of a key, or null. */
  get(key: Bytes, options?: GetOptions): Promise<Value | null>;
  /** When a key expires; null if there is no such key. */
  expiry(key: Bytes, options?: VerbOptions): Promise<Expiry | null>;
  /** Stores a value. */
  set(key: Bytes, value: Bytes, options?: SetOptions): Promise<Changed>;
  /** Deletes a key. Answers whether it was there. */
  delete(key: Bytes, options?: DeleteOptions): Promise<boolean>;
  /** Gives a key an expiry, or takes it away, and leaves its value. */
  setExpiry(key: Bytes, options: ExpiryOptions): Promise<Changed>;
  /** Checks and changes numbers of one value, or of two: all of it or nothing. */
  updateIf(
    key: Bytes, instructions: readonly Instruction[], options?: UpdateOptions,
  ): Promise<Changed>;
  /** Guards and effects on several keys of one `{tag}`: all of them or none. */
  apply(apply: Apply, options?: WriteOptions): Promise<Changed>;
  /** Runs a program of the server, by its name or as `schema` gives it. */
  run(
    program: string | Program, keys: Record<string, Bytes>,
    values?: Record<string, WholeNumber | boolean | Bytes>, options?: WriteOptions,
  ): Promise<Ran>;
  /** The keys with a prefix, one after the other, page by page. */
  scan(prefix?: Bytes, options?: ScanOptions): AsyncGenerator<Entry, void, undefined>;
  /** Asks the write of an `Unknown` once more: what it answers is what became of it. */
  resolve(unknown: Unknown, options?: AskOptions): Promise<Changed | Ran | boolean>;
  /** Asks whether a node answers. */
  ping(options?: AskOptions): Promise<void>;
  /** What the server counts (PROTOCOL.md, *PING and INFO*). */
  info(options?: AskOptions): Promise<Record<string, unknown>>;
  /** Layouts and programs of the server by their names. */
  schema(options?: AskOptions): Promise<Schema>;
  /** The programs of the server as functions. */
  programs(options?: AskOptions): Promise<Record<string, ProgramFunction>>;
  /** A new token by the server's time, to be stored before the write is asked. */
  newToken(): string;
  /** Ends all connections. What waits fails. */
  close(): void;
}

/** A client that has reached one of the addresses: HOST:PORT, several with commas, or a list. */
export function connect(
  addresses: string | Iterable<string>, options?: ClientOptions,
): Promise<Client>;

/** What a server says of its schema. */
export interface Schema {
  layouts: Record<string, Layout>;
  programs: Record<string, Program>;
}

/** A program as a function of its keys and arguments by name. */
export type ProgramFunction = (
  keys: Record<string, Bytes>, values?: Record<string, WholeNumber | boolean | Bytes>,
  options?: WriteOptions,
) => Promise<Ran>;

/** A program of a server. */
export class Program {
  private constructor();
  readonly name: string;
  readonly id: bigint;
  /** The names of its keys, in their order. */
  readonly keys: readonly string[];
  /** The names of its arguments, in their order. */
  readonly arguments: readonly string[];
  /** The names of the numbers that it tells, in their order. */
  readonly numbers: readonly string[];
}

/** What a guard or an effect compares a number with, or changes it by. */
export type Operand = WholeNumber | boolean | Field | Now;
/** The type of a number in a value. */
export type FieldType =
  | 'u8' | 'u16' | 'u32' | 'u64' | 'i8' | 'i16' | 'i32' | 'i64'
  | 'u8be' | 'u16be' | 'u32be' | 'u64be' | 'i8be' | 'i16be' | 'i32be' | 'i64be' | 'decimal';

/** A guard or an effect. A `Field` or a `Key` makes it. */
export class Instruction {
  private constructor();
  /** The same with a reason, 0 to 255, which a no tells. */
  orElse(reason: number): Instruction;
  /** The same about the key with this number. */
  ofKey(key: number): Instruction;
  /** Whether it changes nothing. */
  readonly isGuard: boolean;
  /** Whether an OK tells a number of it. */
  readonly tellsNumber: boolean;
}

/** A number in a value. `apply` takes all of its methods, `updateIf` those that are marked. */
export class Field {
  constructor(type: FieldType, offset?: number, key?: number);
  readonly type: number;
  readonly offset: number;
  readonly key: number;
  /** The same number of the second key of `updateIf`. */
  ofSecondKey(): Field;
  /** The same number of the key with this number. */
  ofKey(key: number): Field;
  /** Guard, also of `updateIf`: =. */
  equals(operand: Operand): Instruction;
  /** Guard, also of `updateIf`: !=. */
  differs(operand: Operand): Instruction;
  /** Guard, also of `updateIf`: <. */
  below(operand: Operand): Instruction;
  /** Guard, also of `updateIf`: <=. */
  atMost(operand: Operand): Instruction;
  /** Guard, also of `updateIf`: >. */
  above(operand: Operand): Instruction;
  /** Guard, also of `updateIf`: >=. */
  atLeast(operand: Operand): Instruction;
  /** Guard: all of these bits are set. */
  allBits(operand: Operand): Instruction;
  /** Guard: one of these bits is set. */
  anyBit(operand: Operand): Instruction;
  /** Guard: none of these bits is set. */
  noBits(operand: Operand): Instruction;
  /** Effect, also of `updateIf`: the number becomes this one. */
  becomes(operand: Operand): Instruction;
  /** Effect, also of `updateIf`: adds; leaving the type's range fails. */
  increase(operand: Operand): Instruction;
  /** Effect, also of `updateIf`: subtracts; leaving the type's range fails. */
  decrease(operand: Operand): Instruction;
  /** Effect: adds, up to the border of the type. */
  increaseToBorder(operand: Operand): Instruction;
  /** Effect: subtracts, down to the border of the type. */
  decreaseToBorder(operand: Operand): Instruction;
  /** Effect: the lesser of both. */
  lower(operand: Operand): Instruction;
  /** Effect: the greater of both. */
  raise(operand: Operand): Instruction;
  /** Effect: the bits that both have. */
  and(operand: Operand): Instruction;
  /** Effect: the bits that one has. */
  or(operand: Operand): Instruction;
  /** Effect: the bits that only one has. */
  xor(operand: Operand): Instruction;
  /** Effect: takes units from a rate that a u64 keeps (PROTOCOL.md, *APPLY*, RATE). */
  take(rate: { intervalUs: number; burst: number; quantity?: number }): Instruction;
  /** Tells the number. */
  returned(): Instruction;
  /** An operation by its code: `BY_SIGN` has those with a sign. */
  instruction(operation: number, operand?: Operand): Instruction;
}

/** The codes of operations by the signs that PROTOCOL.md writes: `=`, `>=`, `add` and so on. */
export const BY_SIGN: Readonly<Record<
  '=' | '!=' | '<' | '<=' | '>' | '>=' | 'set' | 'add' | 'subtract', number
>>;

/** The time of the shard when the operation runs: `now` makes it. */
export class Now {
  constructor(plusMs?: WholeNumber);
  readonly plusMs: WholeNumber;
}

/** The time of the shard when the operation runs, plus so many milliseconds: an operand. */
export function now(plusMs?: WholeNumber): Now;

/** Guard of `apply`: the shard's time is before this one, unix milliseconds or a `Field`. */
export function before(time: WholeNumber | Field): Instruction;

/** Guard of `apply`: the shard's time is this one or later. */
export function since(time: WholeNumber | Field): Instruction;

/** One key of an `Apply`. */
export class Key {
  private constructor();
  readonly number: number;
  /** A number of its value: a type with a place, or a field of a layout. */
  field(type: FieldType | Field, offset?: number): Field;
  /** The whole value as a number in decimals. */
  decimal(): Field;
  /** Guard: the key existed before the request. */
  exists(): Instruction;
  /** Guard: the key did not exist before the request. */
  absent(): Instruction;
  /** Guard: the key had this version before the request. */
  hasVersion(version: Version): Instruction;
  /** Effect: the value becomes these bytes, and the expiry goes. */
  put(value: Bytes): Instruction;
  /** Effect: as `put` if the key has no value now. */
  start(value: Bytes): Instruction;
  /** Effect: the value becomes these bytes, and the expiry stays. */
  replace(value: Bytes): Instruction;
  /** Effect: the key is deleted. */
  delete(): Instruction;
  /** Effect: the key is gone from then on: a Date, unix milliseconds, a `Field`; 0 for never. */
  expiresAt(time: Date | WholeNumber | Field): Instruction;
  /** Effect: the key is gone in so many milliseconds. */
  expiresIn(ms: WholeNumber): Instruction;
  /** Effect: these effects run when the key expires. */
  onExpire(...effects: Instruction[]): Instruction;
}

/** Guards and effects on up to 255 keys of one `{tag}`, all of them or none. */
export class Apply {
  constructor();
  /** Adds a key; the first one decides the slot. */
  key(key: Bytes): Key;
  /** Adds guards and effects, which run in their order. */
  do(...instructions: Instruction[]): this;
  /** The keys, in their order. */
  readonly keys: readonly Uint8Array[];
  /** The instructions, in their order. */
  readonly instructions: readonly Instruction[];
  /** Whether it may change anything. */
  readonly hasEffect: boolean;
}

/** What the bytes of a value mean: fields by name (SCHEMA.md). */
export class Layout {
  private constructor();
  /** A layout of fields such as `stock:u32@0`, a list or a text with `;` between them. */
  static of(name: string, fields: string | readonly string[], bytes?: number): Layout;
  readonly name: string;
  /** Length of the fixed fields. */
  readonly bytes: number;
  /** The whole numbers among the fields by name: they make guards and effects. */
  readonly fields: Readonly<Record<string, Field>>;
  /** A number by its name: `stock`, `sizes[2]`, `buyer.bought`. */
  field(name: string): Field;
  /** The value of these fields. Those that are not named are zero. */
  encode(values?: Record<string, unknown>): Buffer;
  /** The fields of a value. A shorter value tells the fields that it has. */
  decode(value: Bytes): Record<string, any>;
}

/** The base of all errors of this client. */
export class PenstockError extends Error {
  /** The status of the answer, or null. */
  readonly status: Status | null;
  readonly isExecuted: 'no' | 'unknown';
}

/** A no: a guard or a condition did not hold, or there is no such key. Nothing has changed. */
export class No extends PenstockError {
  /** The reason of the guard that did not hold; 0 without one. */
  readonly reason: number;
  /** Which instruction did not hold, or null. */
  readonly instruction: number | null;
  /** Of GUARD_FAILED the number that was there, otherwise null. */
  readonly actual: WholeNumber | null;
  /** The version that the key has. */
  readonly version: Version;
  /** The value that kept the condition from holding, if `show` asked for it. */
  readonly shown: Buffer | null;
}

/** Not executed, and later it may be: the server or this client has too much to do. */
export class Busy extends PenstockError {}
/** Not executed: there was no connection. */
export class NotSent extends PenstockError {}
/** Not executed: the deadline passed before a try. */
export class DeadlineExceeded extends PenstockError {}
/** Perhaps executed: the connection or the time ended before the answer came. */
export class Unknown extends PenstockError {
  /** The token of the write; null of a read and of a write without one. */
  readonly token: string | null;
  /** Asks the same write once more, by its token: what it answers is what became of it. */
  resolve(options?: AskOptions): Promise<Changed | Ran | boolean>;
}
/** Not executed: the request is wrong, or is not allowed. */
export class Refused extends PenstockError {}
/** Server and options of the client do not go together: TLS, users, login. */
export class Unfit extends PenstockError {}
/** The peer does not speak this protocol. */
export class ProtocolError extends PenstockError {}
