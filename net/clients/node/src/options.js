// Options of a client and of its verbs.

import { Identity } from './login.js';
import { levelCode } from './wire/status.js';

/** A frame has 16 bits for its deadline. */
const DEADLINE_MS_MAX = 65_535;
const TIME_MS_MAX = 2 ** 48 - 1;
const DEFAULTS = Object.freeze({
  name: 'penstock-node',
  level: 'disk',
  deadline: 5000,
  tokens: true,
  retries: true,
  shardPorts: true,
  silenceMax: 400,
  identity: null,
  identityMayWait: false,
  tls: null,
  pendingMax: 16_384,
});

/** The options of a client, with the defaults of what is missing. */
export function clientOptions(given = {}) {
  const known = new Set(Object.keys(DEFAULTS));
  for (const name of Object.keys(given)) {
    if (!known.has(name)) throw new TypeError(`a client has no option ${name}`);
  }
  const options = { ...DEFAULTS };
  for (const [name, value] of Object.entries(given)) {
    if (value !== undefined) options[name] = value;
  }
  levelCode(options.level);
  options.deadline = deadlineOf(options.deadline);
  if (options.identity && !(options.identity instanceof Identity)) {
    options.identity = new Identity(options.identity.name, options.identity.secret);
  }
  if (options.tls === true) options.tls = {};
  return Object.freeze(options);
}

/** A deadline in whole milliseconds. */
export function deadlineOf(ms) {
  if (!(ms >= 1 && ms <= DEADLINE_MS_MAX)) {
    throw new RangeError(`a deadline is 1 to ${DEADLINE_MS_MAX} milliseconds, not ${ms}`);
  }
  return Math.floor(ms);
}

/** Checks the names of the options of a verb. */
export function checkOptions(verb, options, names) {
  if (options === null || typeof options !== 'object') {
    throw new TypeError(`options of ${verb} are an object`);
  }
  for (const name of Object.keys(options)) {
    if (!names.has(name)) throw new TypeError(`${verb} has no option ${name}`);
  }
}

/** The one of several options that is given, or null; two are one too many. */
export function oneOf(verb, options, names) {
  const given = names.filter((name) => options[name] !== undefined && options[name] !== false);
  if (given.length > 1) {
    throw new TypeError(`${verb} takes one of ${names.join(', ')}, not ${given.join(' and ')}`);
  }
  return given[0] ?? null;
}

/** Milliseconds of a time or a lifetime. A Date is a time. */
export function timeMs(name, time) {
  const ms = time instanceof Date ? time.getTime() : time;
  if (!Number.isInteger(ms) || ms < 1 || ms > TIME_MS_MAX) {
    throw new RangeError(`${name} is 1 to 2^48 - 1 milliseconds, not ${String(time)}`);
  }
  return ms;
}
