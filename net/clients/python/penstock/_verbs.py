"""What a client can be asked: the table in net/clients/VERBS.md, written once for all clients.

Each verb makes a `Call` and hands it to `_ask`: a blocking client returns its outcome, an asyncio
client something to await, a pipeline an outcome for later.
"""

from typing import Any, Mapping, Optional, Sequence, Union
from uuid import UUID

from . import _items, _wire
from ._core import Call, Core
from ._items import key_bytes
from ._wire import Reply, slot_of
from .errors import ProtocolError, Refused, Unknown
from .fields import Apply, Instruction, pack_update
from .programs import Program
from .values import Changed, Expiry, Value

Bytes = Union[str, bytes, bytearray, memoryview]


def _value(data: Bytes) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(data)


def _seconds(unix_ms: int) -> Optional[float]:
    return unix_ms / 1000 if unix_ms else None


def read_value(reply: Reply) -> Value:
    """The answer to a GET."""
    expiry = reply.expiry
    return Value(reply.value, reply.version, _seconds(expiry[0]) if expiry else None)


def read_expiry(reply: Reply) -> Expiry:
    """The answer to a GET of the expiry."""
    if reply.expiry is None:
        raise ProtocolError("the answer lacks the expiry")
    return Expiry(_seconds(reply.expiry[0]), reply.expiry[1] / 1000)


def read_true(reply: Reply) -> bool:
    """The answer to a DEL."""
    return True


class ReadChanged:
    """Reads the answer to a write."""

    __slots__ = ("signed", "program")

    def __init__(self, signed: Sequence[bool] = (), program: Optional[Program] = None):
        self.signed = signed
        self.program = program

    def __call__(self, reply: Reply) -> Changed:
        numbers = _items.split_numbers(reply.value, self.signed) if reply.value else []
        named = self.program.named(numbers) if self.program else {}
        flags = reply.flags
        return Changed(reply.version, numbers, named, bool(flags & _wire.REPLAYED), reply.level,
                       bool(flags & _wire.MAY_BE_LOST))


_read_plain = ReadChanged()


def _lifetime(seconds: float) -> int:
    """Seconds as milliseconds."""
    ms = round(seconds * 1000)
    if not 1 <= ms < 1 << 48:
        raise ValueError(f"an expiry is 1 to {(1 << 48) - 1} ms, not {ms}")
    return ms


def _expiry(at, after, third: bool):
    """The flags and the bytes of an expiry."""
    if (at is not None) + (after is not None) + third > 1:
        raise ValueError("one expiry at most")
    if at is not None:
        return _items.AT, _items.u64(_lifetime(at))
    if after is not None:
        return _items.IN, _items.u64(_lifetime(after))
    return (_items.OTHER if third else 0), b""


def _condition(absent: bool, present: bool, version, show: bool):
    """The flags and the bytes of a condition."""
    if absent + present + (version is not None) > 1:
        raise ValueError("one condition at most")
    flags = absent * _items.IF_ABSENT | present * _items.IF_PRESENT
    extra = b""
    if version is not None:
        flags, extra = _items.IF_VERSION, _items.version_bytes(version)
    if show:
        if not flags:
            raise ValueError("`show` stands beside a condition")
        flags |= _items.SHOW
    return flags, extra


class Verbs:
    """The verbs. `deadline` is in seconds; `level` is a durability; `token` names a write."""

    _core: Core

    def _ask(self, call: Call) -> Any:
        raise NotImplementedError

    def _call(self, item, slot, read, needs, is_read, level, deadline) -> Call:
        call = Call(item, slot, read, needs, is_read)
        core = self._core
        if level is None:
            call.level = core.level
        elif level in _wire.LEVELS:
            call.level = _wire.LEVELS[level]
        else:
            raise ValueError(f"a level is one of {', '.join(_wire.LEVELS)}, not {level}")
        if call.level == 4:
            call.needs |= _wire.LEVEL_ALL
        call.deadline = core.options.deadline if deadline is None else deadline
        return call

    def _write(self, item, slot, read, needs, level, deadline, token, needs_token) -> Call:
        call = self._call(item, slot, read, needs, False, level, deadline)
        if token is not None:
            call.token = token if isinstance(token, UUID) else UUID(str(token))
            call.takes_token = call.by_caller = True
        else:
            call.takes_token = needs_token and self._core.options.tokens
        return call

    def get(self, key: Bytes, *, with_expiry: bool = False, level: Optional[str] = None,
            deadline: Optional[float] = None):
        """Reads a value: a `Value`, or None if the key is missing."""
        key = key_bytes(key)
        flags, needs = (_items.WITH_EXPIRY, _wire.EXPIRY) if with_expiry else (0, 0)
        call = self._call(_items.get(key, flags), slot_of(key), read_value, needs, True, level,
                          deadline)
        call.missing = None
        return self._ask(call)

    def expiry(self, key: Bytes, *, level: Optional[str] = None, deadline: Optional[float] = None):
        """When a key expires: an `Expiry`, or None if the key is missing."""
        key = key_bytes(key)
        item = _items.get(key, _items.EXPIRY_ALONE)
        call = self._call(item, slot_of(key), read_expiry, _wire.EXPIRY, True, level, deadline)
        call.missing = None
        return self._ask(call)

    def set(self, key: Bytes, value: Bytes, *, if_absent: bool = False, if_present: bool = False,
            if_version=None, show: bool = False, expires_at: Optional[float] = None,
            expires_in: Optional[float] = None, keep_expiry: bool = False,
            token=None, level: Optional[str] = None, deadline: Optional[float] = None):
        """Writes a value: `Changed`. Without an expiry it never expires.

        A condition that does not hold is `No`; with `show` the error has the value that is there.
        `expires_at` is in unix seconds, `expires_in` in seconds.
        """
        key = key_bytes(key)
        flags, extra = _condition(if_absent, if_present, if_version, show)
        bits, expiry = _expiry(expires_at, expires_in, keep_expiry)
        needs = (_wire.EXPIRY if bits else 0) | (_wire.SHOW if show else 0)
        item = _items.keyed(_items.SET, flags | bits, key, _value(value), b"", extra + expiry)
        return self._ask(self._write(item, slot_of(key), _read_plain, needs, level, deadline,
                                     token, bool(flags)))

    def delete(self, key: Bytes, *, if_version=None, show: bool = False, token=None,
               level: Optional[str] = None, deadline: Optional[float] = None):
        """Deletes a key, and returns whether it was there. Another version is `No`."""
        key = key_bytes(key)
        flags, extra = _condition(False, False, if_version, show)
        item = _items.keyed(_items.DEL, flags, key, b"", b"", extra)
        call = self._write(item, slot_of(key), read_true, _wire.SHOW if show else 0, level,
                           deadline, token, bool(flags))
        call.missing = False
        return self._ask(call)

    def set_expiry(self, key: Bytes, *, expires_at: Optional[float] = None,
                   expires_in: Optional[float] = None, never: bool = False, token=None,
                   level: Optional[str] = None, deadline: Optional[float] = None):
        """Says when a key expires, and leaves its value. A missing key is `No`."""
        if expires_at is None and expires_in is None and not never:
            raise ValueError("one of expires_at, expires_in and never")
        return self.update_if(key, (), expires_at=expires_at, expires_in=expires_in, never=never,
                              token=token, level=level, deadline=deadline)

    def update_if(self, key: Bytes, instructions: Sequence[Instruction], *,
                  second_key: Optional[Bytes] = None, start: Optional[Bytes] = None,
                  expires_at: Optional[float] = None, expires_in: Optional[float] = None,
                  never: bool = False, token=None, level: Optional[str] = None,
                  deadline: Optional[float] = None):
        """Checks and changes numbers of one value, all or nothing: `Changed` with its numbers.

        A guard that does not hold is `No` with the number that was there. A missing key is `No`,
        or begins as `start`. Instructions on the second key are of `SECOND`.
        """
        key = key_bytes(key)
        second = b"" if second_key is None else key_bytes(second_key)
        bits, expiry = _expiry(expires_at, expires_in, never)
        packed = pack_update(instructions)
        flags = bits | (0 if start is None else _items.START_VALUE)
        item = _items.keyed(_items.UPDATE_IF, flags, key, b"" if start is None else _value(start),
                            second, expiry, packed)
        effects = [each for each in instructions if each.is_effect]
        read = ReadChanged([each.is_signed for each in effects])
        changes = bool(effects or flags)
        call = self._write(item, slot_of(key), read, _wire.EXPIRY if bits else 0, level, deadline,
                           token, changes)
        call.is_read = not changes
        return self._ask(call)

    def apply(self, apply: Apply, *, token=None, level: Optional[str] = None,
              deadline: Optional[float] = None):
        """Checks and changes up to 255 keys of one `{tag}`, all or nothing: `Changed`."""
        item, slot, steps = apply.encode()
        operations = apply.operations()
        needs = _wire.APPLY | (_wire.MANY_KEYS if apply.key_count > 8 else 0)
        needs |= _wire.ON_EXPIRE if _items.ON_EXPIRE in operations else 0
        needs |= _wire.REPLACE if _items.REPLACE in operations else 0
        read = ReadChanged([each.is_signed for each in steps if each.tells])
        changes = any(each.is_effect for each in steps)
        call = self._write(item, slot, read, needs, level, deadline, token, changes)
        call.is_read = not changes
        return self._ask(call)

    def _run(self, program: Program, keys: Mapping[str, Bytes], arguments: Mapping[str, Any],
             token, level, deadline) -> Call:
        item, slot = program.encode(keys, arguments)
        return self._write(item, slot, ReadChanged(program.signed, program), _wire.RUN, level,
                           deadline, token, True)

    def resolve(self, unknown: Unknown, *, deadline: Optional[float] = None):
        """Asks the write of an `Unknown` again, with its token: its outcome is that of the write.

        It may be asked as often as it takes. An `Unknown` without a token is a ValueError.
        """
        call = unknown._call
        if call is None or call.token is None:
            raise ValueError("the write had no token, so it cannot be asked again")
        call = call.again()
        if deadline is not None:
            call.deadline = deadline
        return self._ask(call)

    def new_token(self) -> UUID:
        """A token by the server's time: store it with the order, then write with it."""
        return self._core.new_token()

    def _scan_step(self, prefix: bytes, cursor: int, with_values: bool, page_keys: int, node,
                   level, deadline) -> Call:
        if len(prefix) > 1024:
            raise Refused(f"prefix of {len(prefix)} bytes; at most 1024", "BAD_KEY")
        item = _items.scan(prefix, cursor, page_keys, 1 << 18, with_values)
        call = self._call(item, None, lambda reply: _wire.scan_page(reply.value), _wire.SCAN, True,
                          level, deadline)
        call.node = node
        return call
