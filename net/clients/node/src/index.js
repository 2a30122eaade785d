// Penstock's client for Node: what README.md describes.

export { Apply, Key, before, since } from './apply.js';
export { Client, connect } from './client.js';
export {
  Busy, DeadlineExceeded, No, NotSent, PenstockError, ProtocolError, Refused, Unfit, Unknown,
} from './errors.js';
export { BY_SIGN, Field, Instruction, Now, now } from './fields.js';
export { Layout } from './layout.js';
export { Identity } from './login.js';
export { Program } from './schema.js';
