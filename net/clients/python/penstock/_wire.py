"""The bytes of frames, batches and answers, as net/PROTOCOL.md has them."""

import binascii
import struct
import zlib
from typing import Dict, List, NamedTuple, Optional, Tuple

from .errors import ProtocolError, Unfit
from .values import Version

HEADER_BYTES = 32
HELLO, PING, INFO, BATCH, AUTH = 0x01, 0x02, 0x03, 0x10, 0x13
LEVELS = {"none": 0, "interval": 1, "disk": 2, "replica": 3, "all": 4}
LEVEL_NAMES = {code: name for name, code in LEVELS.items()}
STATUSES = {
    0x0000: "OK",
    0x0101: "GUARD_FAILED",
    0x0102: "NOT_FOUND",
    0x0103: "EXISTS",
    0x0104: "VERSION_MISMATCH",
    0x0105: "NOT_KEPT",
    0x0106: "TOKEN_REUSED",
    0x0201: "MOVED",
    0x0202: "NOT_PRIMARY",
    0x0203: "STALE",
    0x0301: "BUSY",
    0x0302: "DEADLINE",
    0x0303: "DRAINING",
    0x0304: "FULL",
    0x0401: "MALFORMED",
    0x0402: "TOO_LARGE",
    0x0403: "CROSS_SLOT",
    0x0404: "UNSUPPORTED",
    0x0405: "BAD_KEY",
    0x0406: "BAD_FIELD",
    0x0407: "HELLO_EXPECTED",
    0x0408: "AUTH",
    0x0409: "UNKNOWN_PROGRAM",
    0x040A: "DENIED",
    0x040B: "WRONG_TYPE",
    0x0501: "IO",
    0x0502: "CORRUPT",
    0x0503: "SHARD_DOWN",
    0x0601: "INDETERMINATE",
    0x0602: "NOREPLICAS",
    0x0603: "TOKEN_TOO_OLD",
}
#: Bits of HELLO's features.
(EXPIRY, SCAN, KEYSPACES, CLUSTER, MEMBER, SHOW, PING_ITEM, APPLY, TOKENS, ON_EXPIRE, RUN, REPLACE,
 ABSENT_SINCE, TOLD_LOSS, LEVEL_ALL, _, MANY_KEYS, TEXT_TOKENS, MEMBERS) = (
    1 << bit for bit in range(19))
#: What this client asks HELLO for: reply flag 0x20, level `all`, WRONG_TYPE.
WANTED = TOLD_LOSS | LEVEL_ALL | MEMBERS
REPLY, MORE = 0x01, 0x04
LEFT_RANGE, HAS_EXPIRY, HAS_STANDING, SHOWN, REPLAYED, MAY_BE_LOST = 1, 2, 4, 8, 16, 32
SLOTS, PARTITIONS = 16384, 256
ITEMS_MAX = 1024
#: No server sends longer frames than this client can be made to hold.
FRAME_BYTES_MAX = 64 << 20

_HEAD = struct.Struct("<IBBBBQHHHHI")
_READ = struct.Struct("<IBBBBQHHHHII")
_U32 = struct.Struct("<I")
_U32X2 = struct.Struct("<II")
_U64 = struct.Struct("<Q")
_ITEM = struct.Struct("<HBBHBBIIQ")
_ONE = struct.Struct("<IIII")
_PADS = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")
_crc32 = zlib.crc32


def padded(data: bytes) -> bytes:
    """The bytes, and zeros up to a multiple of 8."""
    return data + _PADS[len(data) & 7]


def slot_of(key: bytes) -> int:
    """The slot of a key; what stands between the first `{` and `}` decides, if there is any."""
    begin = key.find(b"{")
    if begin >= 0:
        end = key.find(b"}", begin + 1)
        if end > begin + 1:
            key = key[begin + 1 : end]
    return binascii.crc_hqx(key, 0) & (SLOTS - 1)


def frame(opcode: int, request_id: int, body: bytes, level: int = 0, deadline_ms: int = 0) -> bytes:
    """A request frame."""
    head = _HEAD.pack(
        HEADER_BYTES + len(body), 0xE7, 1, opcode, 0, request_id, level, 0xFFFF, 0, deadline_ms,
        _crc32(body))
    return head + _U32.pack(_crc32(head)) + body


def batch_body(items: List[bytes]) -> bytes:
    """The body of a BATCH."""
    if len(items) == 1:
        return _ONE.pack(1, 0, 16, len(items[0])) + items[0]
    index = [_U32X2.pack(len(items), 0)]
    at = 8 + 8 * len(items)
    for item in items:
        index.append(_U32X2.pack(at, len(item)))
        at += len(item)
    return b"".join(index + items)


class Frame(NamedTuple):
    """A frame that was read. Its header and body are whole."""

    length: int
    opcode: int
    flags: int
    request_id: int
    level_or_status: int
    slot_or_shard: int
    topology: int
    deadline_or_retry_ms: int
    body: bytes


def read_frame(data, at: int = 0, bytes_max: int = FRAME_BYTES_MAX) -> Optional[Frame]:
    """The frame that begins there, or None while it is not whole."""
    if len(data) - at < HEADER_BYTES:
        if data[at : at + 2] == b"\x15\x03":
            # An alert of TLS, which is shorter than a header.
            raise Unfit("the server speaks TLS at this port: give tls")
        if len(data) - at > 4 and data[at + 4] != 0xE7:
            raise ProtocolError("this is not the Penstock protocol")
        return None
    (length, magic, protocol, opcode, flags, request_id, status, shard, topology, retry_ms,
     body_crc, head_crc) = _READ.unpack_from(data, at)
    if magic != 0xE7:
        raise ProtocolError("this is not the Penstock protocol")
    if _crc32(data[at : at + 28]) != head_crc:
        raise ProtocolError("the header of a frame is damaged")
    if protocol != 1:
        raise ProtocolError(f"protocol version is 1, not {protocol}")
    if length < HEADER_BYTES or length & 7:
        raise ProtocolError(f"frame length is a multiple of 8 and at least 32, not {length}")
    if length > bytes_max:
        raise ProtocolError(f"frame of {length} bytes; at most {bytes_max} are accepted")
    if len(data) - at < length:
        return None
    body = bytes(data[at + HEADER_BYTES : at + length])
    if _crc32(body) != body_crc:
        raise ProtocolError("the body of a frame is damaged")
    return Frame(length, opcode, flags, request_id, status, shard, topology, retry_ms, body)


def batch_items(body: bytes) -> List[bytes]:
    """The items of a BATCH."""
    if len(body) < 16:
        raise ProtocolError(f"batch body of {len(body)} bytes; it needs 16")
    count, zero = _U32X2.unpack_from(body)
    if not 1 <= count <= ITEMS_MAX or zero:
        raise ProtocolError(f"a batch has 1 to {ITEMS_MAX} items, not {count}")
    at = 8 + 8 * count
    if at > len(body):
        raise ProtocolError("the index of a batch is cut off")
    items = []
    for number in range(count):
        start, length = _U32X2.unpack_from(body, 8 + 8 * number)
        if start != at or not length or length & 7 or length > len(body) - at:
            raise ProtocolError(f"item {number} of the batch is out of place")
        items.append(body[at : at + length])
        at += length
    if at != len(body):
        raise ProtocolError("bytes stand behind the last item of a batch")
    return items


class Reply:
    """The answer to one item."""

    __slots__ = ("status", "reason", "level", "item", "instruction", "flags", "version", "value",
                 "expiry", "standing")

    def __init__(self, data: bytes):
        if len(data) < 24:
            raise ProtocolError(f"item of {len(data)} bytes; its fields need 24")
        (code, self.reason, level, self.item, instruction, flags, length, epoch,
         sequence) = _ITEM.unpack_from(data)
        self.status = STATUSES.get(code)
        self.level = LEVEL_NAMES.get(level)
        if self.status is None or self.level is None:
            raise ProtocolError(f"status 0x{code:04x} or ack level {level} is not known")
        self.instruction = None if instruction == 0xFF else instruction
        self.flags = flags
        self.version = Version(epoch, sequence)
        at = 24
        self.expiry = self.standing = None
        if flags & (HAS_EXPIRY | HAS_STANDING):
            at = self._read_extras(data, at)
        if len(data) != at + (length + 7 & ~7):
            raise ProtocolError(f"item of {len(data)} bytes; its fields need {at + length}")
        self.value = data[at : at + length]

    @classmethod
    def refused(cls, status: str, text: bytes) -> "Reply":
        """The answer to each item of a frame that was refused as a whole."""
        reply = cls.__new__(cls)
        reply.status, reply.value, reply.version = status, text, Version(0, 0)
        reply.reason = reply.item = reply.flags = 0
        reply.level, reply.instruction, reply.expiry, reply.standing = "none", None, None, None
        return reply

    def _read_extras(self, data: bytes, at: int) -> int:
        if self.flags & HAS_EXPIRY:
            if len(data) < at + 16:
                raise ProtocolError("an expiry is cut off")
            self.expiry = struct.unpack_from("<QQ", data, at)
            at += 16
        if self.flags & HAS_STANDING:
            if len(data) < at + 24:
                raise ProtocolError("an age is cut off")
            age, epoch, zero, sequence = struct.unpack_from("<QIIQ", data, at)
            if zero:
                raise ProtocolError("the word behind the epoch is 0")
            self.standing = (age, Version(epoch, sequence))
            at += 24
        return at

    @property
    def text(self) -> str:
        """The message of a refusal."""
        return self.value.decode("utf-8", "replace")


def text_of(body: bytes) -> str:
    """A *text*: the body of INFO, and of a frame that is refused."""
    if len(body) < 8:
        return ""
    return body[8 : 8 + _U32.unpack_from(body)[0]].decode("utf-8", "replace")


def client_hello(name: str) -> bytes:
    """The body of the first frame of a connection."""
    encoded = name.encode()[:64]
    while encoded and encoded[-1] & 0x80:
        try:
            encoded.decode()
            break
        except UnicodeDecodeError:
            encoded = encoded[:-1]
    return struct.pack("<HHIQHHI", 1, 1, 0, WANTED, len(encoded), 0, 0) + padded(encoded)


class Placement(NamedTuple):
    """What a node of a cluster knows of who writes what."""

    version: int
    nodes: Dict[int, str]
    #: First and last partition, the number of the node, the generation.
    ranges: List[Tuple[int, int, int, int]]


_HELLO = struct.Struct("<HHHH16s16sQQ32sIIHHHHIIH6s")


class ServerHello:
    """What the server says of itself."""

    __slots__ = ("protocol", "shard", "shards", "auth_methods", "cluster_id", "node_id",
                 "incarnation", "features", "nonce", "frame_bytes_max", "value_bytes_max",
                 "key_bytes_max", "items_max", "instructions_max", "topology", "interval_ms",
                 "time_ms", "slots", "placement")

    def __init__(self, body: bytes):
        if len(body) < 120:
            raise ProtocolError(f"HELLO body of {len(body)} bytes; its fields need 120")
        (self.protocol, self.shard, self.shards, self.auth_methods, self.cluster_id, self.node_id,
         self.incarnation, self.features, self.nonce, self.frame_bytes_max, self.value_bytes_max,
         self.key_bytes_max, self.items_max, self.instructions_max, self.topology,
         self.interval_ms, _, count, time) = _HELLO.unpack_from(body)
        self.time_ms = int.from_bytes(time, "little")
        end = 120 + 8 * count
        if len(body) < end:
            raise ProtocolError(f"HELLO body of {len(body)} bytes; its fields need {end}")
        #: First slot, last slot, shard, port of that shard alone.
        self.slots = [struct.unpack_from("<HHHH", body, at) for at in range(120, end, 8)]
        self.placement = _placement(body[end:]) if self.features & CLUSTER else None


def _placement(rest: bytes) -> Placement:
    """The part of HELLO behind the slot ranges."""
    if len(rest) < 8:
        raise ProtocolError("the placement in HELLO is shorter than its head")
    version, node_count, range_count = struct.unpack_from("<IHH", rest)
    at, nodes = 8, {}
    for _ in range(node_count):
        if len(rest) < at + 8 or not rest[at + 1]:
            raise ProtocolError("the placement in HELLO: a node is cut off or has no address")
        number, length = rest[at], rest[at + 1]
        at += 8
        end = at + (length + 7 & ~7)
        if end > len(rest):
            raise ProtocolError("the placement in HELLO: an address is cut off")
        try:
            nodes[number] = rest[at : at + length].decode()
        except UnicodeDecodeError:
            raise ProtocolError("the placement in HELLO: an address is not UTF-8") from None
        at = end
    if len(rest) < at + 16 * range_count:
        raise ProtocolError("the placement in HELLO: ranges are cut off")
    ranges = []
    for begin in range(at, at + 16 * range_count, 16):
        first, last, number, generation = struct.unpack_from("<HHB3xI", rest, begin)
        if first > last or last >= PARTITIONS:
            raise ProtocolError("the placement in HELLO: a range names partitions that cannot be")
        ranges.append((first, last, number, generation))
    return Placement(version, nodes, ranges)


class PageEntry(NamedTuple):
    """A key of a page of a scan."""

    key: bytes
    version: Version
    data: Optional[bytes]
    is_value_too_long: bool


def scan_page(data: bytes) -> Tuple[int, List[PageEntry]]:
    """The cursor of the next page, and the keys of this one."""
    if len(data) < 16:
        raise ProtocolError("a page is cut off")
    cursor, count, zero = struct.unpack_from("<QII", data)
    if zero:
        raise ProtocolError("a reserved word of a page is not 0")
    at, entries = 16, []
    for number in range(count):
        wrong = f"entry {number} of a page does not fit the page"
        if len(data) < at + 24:
            raise ProtocolError(wrong)
        length, flags, zero, value_length, epoch, word, sequence = struct.unpack_from(
            "<HBBIIIQ", data, at)
        at += 24
        if not 1 <= length <= 1024 or flags & ~3 or zero or word or (value_length and flags != 1):
            raise ProtocolError(wrong)
        value_at = at + (length + 7 & ~7)
        end = value_at + (value_length + 7 & ~7)
        if end > len(data):
            raise ProtocolError(wrong)
        value = data[value_at : value_at + value_length] if flags & 1 else None
        version = Version(epoch, sequence)
        entries.append(PageEntry(data[at : at + length], version, value, bool(flags & 2)))
        at = end
    if at != len(data):
        raise ProtocolError("bytes stand behind the last entry of a page")
    return cursor, entries
