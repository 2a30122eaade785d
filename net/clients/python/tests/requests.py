"""Reads request items back, so that the vectors of requests can be held against the encoder.

The form of an item is canonical. So a lenient reader and the encoder together are a strict reader:
what is not encoded to the same bytes again is refused.
"""

import struct
import uuid

from penstock import _items, _wire
from penstock.errors import PenstockError, ProtocolError
from penstock.fields import TYPES
from penstock.values import Version

VALUE_MAX = 1024
TYPE_NAMES = {code: name for name, code in TYPES.items() if name != "decimal"}
UPDATE_NAMES = {1: "EXISTS", 2: "ABSENT", 3: "=", 4: "!=", 5: "<", 6: "<=", 7: ">", 8: ">=",
                16: "set", 17: "add", 18: "subtract"}
APPLY_NAMES = {
    **UPDATE_NAMES, 9: "VERSION", 10: "BEFORE", 11: "SINCE", 12: "ALL_BITS", 13: "ANY_BIT",
    14: "NO_BITS", 19: "add up to the border", 20: "subtract down to the border", 21: "min",
    22: "max", 23: "and", 24: "or", 25: "xor", 26: "PUT", 27: "START", 28: "DEL", 29: "EXPIRE",
    30: "RATE", 31: "RETURN", 32: "ON_EXPIRE", 33: "REPLACE", 35: "ABSENT_SINCE"}
U48 = 1 << 48


class Refusal(Exception):
    """The bytes are no item."""


def need(holds, what="malformed"):
    if not holds:
        raise Refusal(what)


class Reader:
    """Takes bytes from the front."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        need(count >= 0 and self.at + count <= len(self.data), "cut off")
        self.at += count
        return self.data[self.at - count : self.at]

    def fields(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def padded(self, count):
        data = self.take(count)
        need(not any(self.take(-count % 8)), "padding")
        return data

    def end(self):
        need(self.at == len(self.data), "bytes behind the end")


def version(epoch, sequence):
    return {"epoch": epoch, "sequence": str(sequence)}


def fits(kind, operand):
    """Whether a number of 64 bits is one that the type can hold."""
    bits = 8 << (kind & 3)
    if kind & 4:
        signed = operand - (1 << 64) if operand >> 63 else operand
        return -(1 << bits - 1) <= signed < 1 << bits - 1
    return operand < 1 << bits


def update_instruction(data, keys):
    operation, kind, key, reason, offset, operand = struct.unpack("<BBBBIQ", data)
    need(operation in UPDATE_NAMES and key < keys)
    if operation in (1, 2):
        need(not kind and not offset and not operand)
        kind_name = "u8"
    else:
        need(kind & ~0x17 == 0 and kind in TYPE_NAMES)
        need(operation in (17, 18) or fits(kind, operand))
        kind_name = TYPE_NAMES[kind]
    return {"operation": UPDATE_NAMES[operation], "type": kind_name, "key": key, "reason": reason,
            "offset": offset, "immediate": str(operand)}


def extension(data):
    """The tag and the data of an extension area, or none."""
    if not data:
        return None, b""
    reader = Reader(data)
    length, count, zero, tag, size, zero2 = reader.fields("<HHIHHI")
    need(length == len(data) and count == 1 and not zero and not zero2)
    inside = reader.take(size)
    reader.end()
    need((tag, size) in ((1, 16), (2, 24), (3, 40)))
    return tag, inside


def token_of(tag, inside):
    if tag == 3:
        need(int.from_bytes(inside[:8], "little") < U48)
        return inside[8:].hex()
    if tag != 1:
        return None
    token = uuid.UUID(bytes=inside)
    need(token.version == 7 and token.variant == uuid.RFC_4122)
    return str(token)


def key_ok(key):
    need(1 <= len(key) <= 1024 and not key.startswith(b"\0\0penstock/"), "BAD_KEY")
    return key


def request_item(data):
    """An item that is neither SCAN, APPLY, RUN nor PING."""
    reader = Reader(data)
    block, operation, flags, keys, count, ext, first, second, size = reader.fields("<HBBBBHHHI")
    names = {1: "GET", 2: "SET", 3: "DEL", 4: "UPDATE_IF", 6: "GET_AT", 7: "HISTORY", 8: "KEYSPACE"}
    need(operation in names, "UNSUPPORTED")
    name = names[operation]
    need(keys == 1 or name == "UPDATE_IF" and keys == 2)
    need(not count or name == "UPDATE_IF" and count <= 64)
    need((keys == 2) == (second > 0) or keys == 2)
    need(size <= VALUE_MAX, "TOO_LARGE")
    out = dict.fromkeys(["at", "condition", "expiry", "history", "keyspace", "member",
                         "second_key", "value", "wanted", "token"])
    out.update(operation=name, shows=False, instructions=[])
    bits = flags & 0x60
    allowed = {"GET": 0x60, "SET": 0x6F, "DEL": 0x0E, "UPDATE_IF": 0x70, "GET_AT": 0x24,
               "HISTORY": 0, "KEYSPACE": 0x07}[name]
    need(not flags & ~allowed)
    extra = b""
    if name in ("SET", "DEL"):
        conditions = flags & 7
        need(conditions in (0, 1, 2, 4) and (not flags & 8 or conditions))
        out["shows"] = bool(flags & 8)
        out["condition"] = {0: None, 1: "absent", 2: "present", 4: None}[conditions]
        if conditions == 4:
            epoch, zero, sequence = reader.fields("<IIQ")
            need(not zero)
            out["condition"] = version(epoch, sequence)
            extra += _items.version_bytes(Version(epoch, sequence))
    if name in ("SET", "UPDATE_IF"):
        default, other = ("never", "keep") if name == "SET" else ("keep", "never")
        if bits in (0x20, 0x40):
            at, = reader.fields("<Q")
            need(0 < at < U48)
            out["expiry"] = {"at_ms" if bits == 0x20 else "in_ms": str(at)}
            extra += _items.u64(at)
        else:
            out["expiry"] = other if bits else default
    if name == "GET":
        need(bits != 0x60)
        out["wanted"] = {0: "value", 0x20: "value and expiry", 0x40: "expiry"}[bits]
    if name == "GET_AT":
        need(flags in (0x20, 0x04))
        if flags == 0x20:
            at, = reader.fields("<Q")
            need(0 < at < U48)
            out["at"], extra = {"time_ms": str(at)}, _items.u64(at)
        else:
            epoch, zero, sequence = reader.fields("<IIQ")
            need(not zero)
            out["at"] = version(epoch, sequence)
            extra = _items.version_bytes(Version(epoch, sequence))
    if name == "HISTORY":
        most, zero, before = reader.fields("<IIQ")
        need(1 <= most <= 1024 and not zero)
        out["history"] = {"versions_max": most, "before": str(before)}
        extra = struct.pack("<IIQ", most, 0, before)
    packed = [reader.take(16) for _ in range(count)]
    out["instructions"] = [update_instruction(each, keys) for each in packed]
    tag, inside = extension(reader.take(ext))
    need(tag != 2 or name == "GET")
    need(tag not in (1, 3) or name in ("SET", "DEL", "UPDATE_IF"))
    need(block == reader.at)
    key = reader.padded(first)
    if name != "KEYSPACE":
        key_ok(key)
    second_key = reader.padded(second)
    if keys == 2:
        key_ok(second_key)
        out["second_key"] = second_key.hex()
    value = reader.padded(size)
    reader.end()
    out["token"] = token_of(tag, inside)
    if tag == 2:
        staleness, epoch, zero, sequence = struct.unpack("<QIIQ", inside)
        need(not zero)
        out["member"] = {"staleness_us": str(staleness), "version": version(epoch, sequence)}
    if name == "SET" or name == "UPDATE_IF" and flags & 0x10:
        out["value"] = value.hex()
    elif name != "KEYSPACE":
        need(not value)
    if name == "KEYSPACE":
        out["keyspace"] = keyspace(flags, key, value)
    out["key"] = key.hex()
    again = _items.keyed(operation, flags, key, value, second_key, extra, packed)
    if tag:
        again = _items.extended(again, tag, inside)
    need(again == data, "not canonical")
    return out


def keyspace(flags, prefix, value):
    action = {0: "set", 1: "make", 2: "drop", 4: "tell"}.get(flags)
    need(action and len(prefix) <= 64)
    need(action != "tell" or not prefix)
    need(not prefix.startswith(b"\0\0penstock/"))
    if action in ("drop", "tell"):
        need(not value)
        return {"action": action, "settings": None}
    need(len(value) == 32)
    least, kept, layout, most, retention, lifetime, default, zeros = struct.unpack("<BBHIQQB7s",
                                                                                   value)
    names = {code: name for name, code in _wire.LEVELS.items() if code != 3}
    need(least in names and not any(zeros) and (not default or default - 1 in names))
    need(most <= 16 << 20 and retention < U48 and lifetime < U48 // 2)
    return {"action": action, "settings": {
        "level_min": names[least], "level_default": names[default - 1] if default else None,
        "versions": kept, "layout": layout, "value_bytes_max": most,
        "retention_ms": str(retention), "lifetime_ms": str(lifetime)}}


def keys_of(reader, count, lengths):
    need(all(lengths[:count]) or count == 0, "BAD_KEY")
    need(not any(lengths[min(count, 8):]))
    keys = [key_ok(reader.padded(each)) for each in lengths[:min(count, 8)]]
    if count > 8:
        more = reader.fields(f"<{count - 8}H")
        need(not any(reader.take(-2 * (count - 8) % 8)))
        keys += [key_ok(reader.padded(each)) for each in more]
    return keys


def apply_item(data):
    reader = Reader(data)
    head = reader.fields("<HBBBBHHHI6HI")
    block, operation, flags, count, instructions, ext = head[:6]
    lengths, size, zero = [*head[6:8], *head[9:15]], head[8], head[15]
    need(operation == 10 and not flags and not zero and 1 <= count)
    need(instructions <= (255 if count > 8 else 64))
    packed = [reader.take(16) for _ in range(instructions)]
    tag, inside = extension(reader.take(ext))
    need(tag != 2 and block == reader.at)
    keys = keys_of(reader, count, lengths)
    need(len(set(keys)) == count)
    need(size <= 2 * VALUE_MAX, "TOO_LARGE")
    told = reader.padded(size)
    reader.end()
    out = {"keys": [key.hex() for key in keys], "data": told.hex(),
           "instructions": [apply_instruction(each, count, told) for each in packed],
           "token": token_of(tag, inside)}
    check_on_expiry(packed, keys, told)
    again = _items.apply(keys, packed, told)
    need((_items.extended(again, tag, inside) if tag else again) == data, "not canonical")
    return out


def check_on_expiry(packed, keys, data):
    """Effects that run at an expiry: net/PROTOCOL.md, ON_EXPIRE."""
    at, armed = 0, set()
    while at < len(packed):
        operation, _, key, _, count, _ = struct.unpack("<BBBBIQ", packed[at])
        at += 1
        if operation != 32:
            continue
        need(count <= 63 and at + count <= len(packed) and key not in armed)
        armed.add(key)
        named, size = {key}, 32 + 16 * count
        for each in packed[at : at + count]:
            effect, kind, of, _, _, operand = struct.unpack("<BBBBIQ", each)
            need(16 <= effect <= 30)
            named.add(of)
            if kind & 0x60 == 0x20:
                named.add(operand >> 40 & 0xFF)
            if effect in (26, 27):
                size += operand + 7 & ~7
        need(len(named) <= 8)
        need(size + sum(len(keys[each]) + 7 & ~7 for each in named) <= 2944, "TOO_LARGE")
        at += count


def number_of(kind, offset):
    need(kind in TYPE_NAMES or kind == 8 and not offset)
    return {"type": "decimal" if kind == 8 else TYPE_NAMES[kind], "offset": offset}


def apply_instruction(data, keys, told):
    operation, kind, key, reason, offset, operand = struct.unpack("<BBBBIQ", data)
    need(operation in APPLY_NAMES and key < keys)
    out = dict.fromkeys(["number", "operand", "version", "data", "rate"])
    out.update(operation=APPLY_NAMES[operation], key=key, reason=reason)
    number, source = operation in (*range(3, 9), 12, 13, 14, *range(16, 26), 30, 31), kind & 0x60
    kind &= ~0x60
    need(source != 0x60)
    if operation in (1, 2, 28):
        need(not kind and not source and not offset and not operand)
    elif operation in (9, 35):
        need(not kind and not source)
        out["version"] = version(offset, operand)
    elif operation in (26, 27, 33):
        need(not kind and not source and offset + operand <= len(told))
        need(operand <= VALUE_MAX, "TOO_LARGE")
        out["data"] = {"start": offset, "length": operand}
    elif operation == 32:
        need(not kind and not source and not operand)
        out["effects"] = offset
    elif operation == 31:
        need(not source and not operand)
    elif operation == 30:
        need(not source and kind in (3, 0x13))
        interval, burst, quantity = operand & (1 << 40) - 1, operand >> 40 & 0xFFFF, operand >> 56
        need(interval and burst and quantity and quantity <= burst)
        need(_items.rate(interval, burst, quantity) == operand)
        out["rate"] = {"interval_us": str(interval), "burst": burst, "quantity": quantity}
    else:
        if operation in (10, 11, 29):
            need(not kind and not offset)
            need(source != 0x40 or operation == 29)
            if not source:
                need((operation == 29 or operand) and operand < U48)
        out["operand"] = operand_of(operation, kind, source, operand, keys)
    if number:
        out["number"] = number_of(kind, offset)
    return out


def operand_of(operation, kind, source, operand, keys):
    if source == 0x20:
        offset, type_, key, zero = struct.unpack("<IBBH", struct.pack("<Q", operand))
        need(not zero and key < keys)
        return {"key": key, "number": number_of(type_, offset)}
    if source == 0x40:
        return {"now_plus_ms": str(operand - (1 << 64) if operand >> 63 else operand)}
    held = operation in (*range(3, 9), 12, 13, 14, 16, 23, 24, 25)
    need(not held or kind == 8 or kind not in TYPE_NAMES or fits(kind, operand))
    return {"immediate": str(operand)}


def run_item(data):
    reader = Reader(data)
    head = reader.fields("<HBBBBHHHI6HIQ")
    block, operation, flags, count, arguments, ext = head[:6]
    lengths, size, zero, program = [*head[6:8], *head[9:15]], head[8], head[15], head[16]
    need(operation == 11 and not flags and not zero and 1 <= count <= 8 and arguments <= 16)
    need(not size % 8)
    tag, inside = extension(reader.take(ext))
    need(tag != 2 and block == reader.at)
    keys = keys_of(reader, count, lengths)
    need(len(set(keys)) == count)
    told = reader.take(size)
    reader.end()
    again = _items.run(program, keys, told, arguments)
    need((_items.extended(again, tag, inside) if tag else again) == data, "not canonical")
    return {"program": f"0x{program:016x}", "keys": [key.hex() for key in keys],
            "argument_count": arguments, "arguments": told.hex(), "token": token_of(tag, inside)}


def scan_item(data):
    reader = Reader(data)
    (block, operation, flags, one, zero, zero2, length, zero3, zero4, cursor, keys,
     size) = reader.fields("<HBBBBHHHIQII")
    need(operation == 5 and flags <= 1 and 1 <= keys <= 1024 and 4096 <= size <= 262144)
    need(length <= 1024)
    prefix = reader.padded(length)
    reader.end()
    need(_items.scan(prefix, cursor, keys, size, bool(flags)) == data, "not canonical")
    return {"cursor": str(cursor), "prefix": prefix.hex(), "keys_max": keys, "bytes_max": size,
            "wants_values": bool(flags)}


def ping_item(data):
    reader = Reader(data)
    size = reader.fields("<HBBBBHHHI")[8]
    need(size <= VALUE_MAX, "TOO_LARGE")
    value = reader.padded(size)
    reader.end()
    need(_items.ping(value) == data, "not canonical")
    return {"value": value.hex()}


def client_hello(data):
    reader = Reader(data)
    least, most, zero, features, length, zero2, zero3 = reader.fields("<HHIQHHI")
    need(least <= 1 <= most and not zero and not zero2 and not zero3 and length <= 64)
    name = reader.padded(length)
    reader.end()
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise Refusal("not UTF-8") from None
    need(_wire.client_hello(text)[16:] == data[16:], "not canonical")
    return {"protocol_min": least, "protocol_max": most, "features": str(features), "name": text}


def instruction(data):
    need(len(data) == 16)
    return update_instruction(data, 2)


def refuses(read, data):
    """Whether the reader refuses the bytes."""
    try:
        read(data)
    except (Refusal, PenstockError, ProtocolError):
        return True
    return False
