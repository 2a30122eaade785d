// What is wrong with bytes.

/** Bytes that are not as PROTOCOL.md says. `status` is the status that a server answers. */
export class WireFault extends Error {
  constructor(message, status = 'MALFORMED') {
    super(message);
    this.name = 'WireFault';
    this.status = status;
  }
}

export function check(holds, message, status) {
  if (!holds) throw new WireFault(typeof message === 'function' ? message() : message, status);
}
