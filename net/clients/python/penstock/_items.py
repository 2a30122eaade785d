"""Request items, as net/PROTOCOL.md and net/RUN.md have them."""

import struct
from typing import List, Optional, Sequence
from uuid import UUID

from ._wire import padded
from .errors import Refused
from .values import Version

GET, SET, DEL, UPDATE_IF, SCAN, PING_ITEM, APPLY, RUN = 1, 2, 3, 4, 5, 9, 10, 11
IF_ABSENT, IF_PRESENT, IF_VERSION, SHOW = 0x01, 0x02, 0x04, 0x08
START_VALUE = 0x10
WITH_EXPIRY, EXPIRY_ALONE = 0x20, 0x40
AT, IN, OTHER = 0x20, 0x40, 0x60
KEY_BYTES_MAX = 1024
ABSENT_SINCE, ON_EXPIRE, REPLACE = 35, 32, 33
_TOKEN = struct.Struct("<HHIHHI")
_BLOCK = struct.Struct("<HBBBBHHHI")
_INSTRUCTION = struct.Struct("<BBBBIQ")
_MASK = (1 << 64) - 1


def key_bytes(key) -> bytes:
    """A key, given as text or bytes."""
    key = key.encode() if isinstance(key, str) else bytes(key)
    if not 1 <= len(key) <= KEY_BYTES_MAX:
        raise Refused(f"key of {len(key)} bytes; 1 to {KEY_BYTES_MAX} are accepted", "BAD_KEY")
    return key


def keyed(operation: int, flags: int, key: bytes, value: bytes = b"", second: bytes = b"",
          extra: bytes = b"", instructions: Sequence[bytes] = ()) -> bytes:
    """An item of one or two keys. `extra`: version and expiry, as the flags tell them."""
    if len(instructions) > 64:
        raise Refused(f"{len(instructions)} instructions; at most 64 are accepted", "MALFORMED")
    block = 16 + len(extra) + 16 * len(instructions)
    head = _BLOCK.pack(block, operation, flags, 2 if second else 1, len(instructions), 0, len(key),
                       len(second), len(value))
    if not extra and not instructions and not second:
        return head + padded(key) + padded(value)
    return b"".join([head, extra, *instructions, padded(key), padded(second), padded(value)])


def get(key: bytes, flags: int = 0) -> bytes:
    """GET."""
    return _BLOCK.pack(16, GET, flags, 1, 0, 0, len(key), 0, 0) + padded(key)


def version_bytes(version: Version) -> bytes:
    """A version that a condition names."""
    return struct.pack("<IIQ", version[0], 0, version[1])


def u64(number: int) -> bytes:
    """A u64."""
    return struct.pack("<Q", number)


def instruction(operation: int, kind: int, key: int, reason: int, offset: int,
                operand: int) -> bytes:
    """An instruction of UPDATE_IF or APPLY; a negative operand becomes its two's complement."""
    if not 0 <= reason <= 255:
        raise ValueError(f"a reason is 0 to 255, not {reason}")
    if not -(1 << 63) <= operand <= _MASK:
        raise ValueError(f"an operand has 64 bits, not {operand}")
    if not 0 <= offset < 1 << 32:
        raise ValueError(f"an offset has 32 bits, not {offset}")
    return _INSTRUCTION.pack(operation, kind, key, reason, offset, operand & _MASK)


def scan(prefix: bytes, cursor: int, keys: int, page_bytes: int, wants_values: bool) -> bytes:
    """A step of a scan."""
    head = struct.pack("<HBBBBHHHIQII", 32, SCAN, wants_values, 1, 0, 0, len(prefix), 0, 0, cursor,
                       keys, page_bytes)
    return head + padded(prefix)


def ping(value: bytes) -> bytes:
    """PING as an item."""
    return _BLOCK.pack(16, PING_ITEM, 0, 0, 0, 0, 0, 0, len(value)) + padded(value)


def _lengths(keys: Sequence[bytes]) -> List[int]:
    lengths = [len(key) for key in keys[:8]]
    return lengths + [0] * (8 - len(lengths))


def apply(keys: Sequence[bytes], instructions: Sequence[bytes], data: bytes) -> bytes:
    """APPLY. A token comes in by `with_token`."""
    many = len(keys) > 8
    if not 1 <= len(keys) <= 255:
        raise Refused(f"{len(keys)} keys; 1 to 255 are accepted", "MALFORMED")
    if len(instructions) > (255 if many else 64):
        raise Refused(f"{len(instructions)} instructions are too many", "MALFORMED")
    lengths = _lengths(keys)
    head = struct.pack("<HBBBBHHHI6HI", 32 + 16 * len(instructions), APPLY, 0, len(keys),
                       len(instructions), 0, *lengths[:2], len(data), *lengths[2:], 0)
    first = [padded(key) for key in keys[:8]]
    if many:
        rest = keys[8:]
        first.append(padded(struct.pack(f"<{len(rest)}H", *map(len, rest))))
        first += [padded(key) for key in rest]
    return b"".join([head, *instructions, *first, padded(data)])


def run(program: int, keys: Sequence[bytes], arguments: bytes, count: int) -> bytes:
    """RUN. A token comes in by `with_token`."""
    lengths = _lengths(keys)
    head = struct.pack("<HBBBBHHHI6HIQ", 40, RUN, 0, len(keys), count, 0, *lengths[:2],
                       len(arguments), *lengths[2:], 0, program)
    return b"".join([head, *map(padded, keys), arguments])


def extended(item: bytes, tag: int, data: bytes) -> bytes:
    """The item with an extension area of one item."""
    block = struct.unpack_from("<H", item)[0]
    area = _TOKEN.pack(16 + len(data), 1, 0, tag, len(data), 0) + data
    head = struct.pack("<H", block + len(area)) + item[2:6] + struct.pack("<H", len(area))
    return b"".join([head, item[8:block], area, item[block:]])


def with_token(item: bytes, token: Optional[UUID]) -> bytes:
    """The item, with its token if it has one."""
    return item if token is None else extended(item, 1, token.bytes)


def split_numbers(value: bytes, signed: Sequence[bool]) -> List[int]:
    """The numbers of an answer, each signed or not."""
    count = len(value) // 8
    numbers = list(struct.unpack_from(f"<{count}Q", value))
    for at, is_signed in enumerate(signed[:count]):
        if is_signed and numbers[at] >> 63:
            numbers[at] -= 1 << 64
    return numbers


def rate(interval_us: int, burst: int, quantity: int) -> int:
    """The operand of RATE."""
    for name, number, bits in (("interval", interval_us, 40), ("burst", burst, 16),
                               ("quantity", quantity, 8)):
        if not 1 <= number < 1 << bits:
            raise ValueError(f"the {name} of a rate is 1 to {(1 << bits) - 1}, not {number}")
    return interval_us | burst << 40 | quantity << 56
