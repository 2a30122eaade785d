// The slot of a key: CRC-16/XMODEM of its tag, modulo 16384.

const TABLE = new Uint16Array(256);
for (let byte = 0; byte < 256; byte += 1) {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  TABLE[byte] = crc;
}
const OPEN = 0x7b;
const CLOSE = 0x7d;

/** CRC-16/XMODEM of some of the bytes. */
export function crc16(bytes, from = 0, to = bytes.length) {
  let crc = 0;
  for (let at = from; at < to; at += 1) {
    crc = ((crc << 8) & 0xffff) ^ TABLE[(crc >> 8) ^ bytes[at]];
  }
  return crc;
}

/** The slot of a key. */
export function slotOf(key) {
  const open = key.indexOf(OPEN);
  if (open >= 0) {
    const close = key.indexOf(CLOSE, open + 1);
    if (close > open + 1) return crc16(key, open + 1, close) & 0x3fff;
  }
  return crc16(key) & 0x3fff;
}
