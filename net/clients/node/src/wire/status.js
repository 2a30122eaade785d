// Statuses and levels by their codes and names.

const NAMES = [
  [0x0000, 'OK'], [0x0101, 'GUARD_FAILED'], [0x0102, 'NOT_FOUND'], [0x0103, 'EXISTS'],
  [0x0104, 'VERSION_MISMATCH'], [0x0105, 'NOT_KEPT'], [0x0106, 'TOKEN_REUSED'],
  [0x0201, 'MOVED'], [0x0202, 'NOT_PRIMARY'], [0x0203, 'STALE'], [0x0301, 'BUSY'],
  [0x0302, 'DEADLINE'], [0x0303, 'DRAINING'], [0x0304, 'FULL'], [0x0401, 'MALFORMED'],
  [0x0402, 'TOO_LARGE'], [0x0403, 'CROSS_SLOT'], [0x0404, 'UNSUPPORTED'], [0x0405, 'BAD_KEY'],
  [0x0406, 'BAD_FIELD'], [0x0407, 'HELLO_EXPECTED'], [0x0408, 'AUTH'],
  [0x0409, 'UNKNOWN_PROGRAM'], [0x040a, 'DENIED'], [0x040b, 'WRONG_TYPE'], [0x0501, 'IO'],
  [0x0502, 'CORRUPT'], [0x0503, 'SHARD_DOWN'], [0x0601, 'INDETERMINATE'],
  [0x0602, 'NOREPLICAS'], [0x0603, 'TOKEN_TOO_OLD'],
];

const BY_CODE = new Map(NAMES);

/** The name of a status, or undefined. */
export const statusName = (code) => BY_CODE.get(code);

/** Answers that say "executed: unknown" (PROTOCOL.md, *Status*). */
export const OUTCOME_UNKNOWN = new Set(
  ['IO', 'SHARD_DOWN', 'INDETERMINATE', 'NOREPLICAS', 'TOKEN_TOO_OLD'],
);

/** Answers behind the look-up of the token: no earlier try was executed (*Tokens*). */
export const BEHIND_TOKEN = new Set(
  ['GUARD_FAILED', 'NOT_FOUND', 'EXISTS', 'VERSION_MISMATCH', 'BAD_FIELD', 'TOKEN_REUSED'],
);

/** Levels of durability by their codes. */
export const LEVELS = ['none', 'interval', 'disk', 'replica', 'all'];

/** The code of a level. */
export function levelCode(name) {
  const code = LEVELS.indexOf(name);
  if (code < 0) throw new RangeError(`a level is one of ${LEVELS.join(', ')}, not ${name}`);
  return code;
}
