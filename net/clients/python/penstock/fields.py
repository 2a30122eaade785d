"""Guards and effects on the numbers of a value, and the keys that an APPLY is about.

    stock = u32(0)                      # four bytes at the beginning of the value
    db.update_if("stock:42", [(stock >= 1).because(7), stock.subtract(1)])
"""

from typing import Dict, List, Optional, Tuple, Union

from . import _items
from ._wire import SLOTS, slot_of
from .errors import Refused

TYPES: Dict[str, int] = {
    name + order: code + extra
    for code, name in enumerate(("u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"))
    for order, extra in (("", 0), ("be", 0x10))
}
TYPES["decimal"] = 8
COMPARISONS = {"=": 3, "!=": 4, "<": 5, "<=": 6, ">": 7, ">=": 8}
EFFECTS = {
    "set": 16, "add": 17, "subtract": 18, "add_up_to_limit": 19, "subtract_down_to_limit": 20,
    "at_most": 21, "at_least": 22, "and": 23, "or": 24, "xor": 25,
}
BITS = {"all_bits": 12, "any_bit": 13, "no_bits": 14}
#: Operations whose number an OK tells.
_TELLING = frozenset([*range(16, 26), 30, 31])
_EFFECTS = frozenset([*range(16, 31), 32, 33])


class Now:
    """The server's time in unix milliseconds, as an operand of `apply`: `Now() + 5000`."""

    def __init__(self, plus_ms: int = 0):
        self.plus_ms = plus_ms

    def __add__(self, ms: int) -> "Now":
        return Now(self.plus_ms + ms)

    def __sub__(self, ms: int) -> "Now":
        return Now(self.plus_ms - ms)


class Instruction:
    """A guard or an effect. `because` gives it the reason that a failure tells."""

    __slots__ = ("operation", "kind", "key", "offset", "operand", "reason", "data", "body")

    def __init__(self, operation, kind=0, key=None, offset=0, operand=0, data=None, body=()):
        self.operation = operation
        self.kind = kind
        self.key = key
        self.offset = offset
        self.operand = operand
        self.reason = 0
        self.data = data
        self.body = body

    def because(self, reason: int) -> "Instruction":
        """The same with a reason, 1 to 255."""
        self.reason = reason
        return self

    @property
    def tells(self) -> bool:
        """Whether an OK tells its number."""
        return self.operation in _TELLING

    @property
    def is_effect(self) -> bool:
        """Whether it changes something."""
        return self.operation in _EFFECTS

    @property
    def is_signed(self) -> bool:
        """Whether its number may be negative."""
        return self.kind & 0x0F in (4, 5, 6, 7, 8)


Operand = Union[int, "Number", Now]


class Number:
    """A number within a value: its type and where it begins. Comparisons make guards."""

    __slots__ = ("type", "offset", "key")
    __hash__ = None

    def __init__(self, type: str, offset: int = 0, key: Optional["Key"] = None):
        if type not in TYPES:
            raise ValueError(f"no type of a number: {type}")
        self.type = type
        self.offset = offset
        self.key = key

    def of(self, key: "Key") -> "Number":
        """The same number in the value of this key of an `Apply`."""
        return Number(self.type, self.offset, key)

    def do(self, operation: int, operand: Operand = 0) -> Instruction:
        """An instruction by its number in PROTOCOL.md."""
        kind = TYPES[self.type]
        if isinstance(operand, Now):
            return Instruction(operation, kind | 0x40, self.key, self.offset, operand.plus_ms)
        if isinstance(operand, Number):
            return Instruction(operation, kind | 0x20, self.key, self.offset, operand)
        return Instruction(operation, kind, self.key, self.offset, int(operand))

    def compare(self, operator: str, operand: Operand) -> Instruction:
        """A guard by its operator: `=`, `!=`, `<`, `<=`, `>` or `>=`."""
        return self.do(COMPARISONS[operator], operand)

    def __eq__(self, operand):
        return self.compare("=", operand)

    def __ne__(self, operand):
        return self.compare("!=", operand)

    def __lt__(self, operand):
        return self.compare("<", operand)

    def __le__(self, operand):
        return self.compare("<=", operand)

    def __gt__(self, operand):
        return self.compare(">", operand)

    def __ge__(self, operand):
        return self.compare(">=", operand)

    def set(self, operand: Operand) -> Instruction:
        """Makes it this number."""
        return self.do(16, operand)

    def add(self, operand: Operand) -> Instruction:
        """Adds. Leaving the range of the type is a guard that does not hold."""
        return self.do(17, operand)

    def subtract(self, operand: Operand) -> Instruction:
        """Subtracts. Leaving the range of the type is a guard that does not hold."""
        return self.do(18, operand)

    def effect(self, name: str, operand: Operand) -> Instruction:
        """An effect of `apply` by its name in `EFFECTS`."""
        return self.do(EFFECTS[name], operand)

    def bits(self, name: str, operand: Operand) -> Instruction:
        """A guard of `apply` on bits by its name in `BITS`."""
        return self.do(BITS[name], operand)

    def take(self, interval_us: int, burst: int, quantity: int = 1) -> Instruction:
        """Takes units of a rate that this u64 keeps: one each interval, so many at once."""
        return self.do(30, _items.rate(interval_us, burst, quantity))

    def tell(self) -> Instruction:
        """Tells the number in the answer of `apply`."""
        return self.do(31)


def u8(offset: int) -> Number:
    """A u8 at this offset."""
    return Number("u8", offset)


def u16(offset: int) -> Number:
    """A u16 at this offset, little-endian."""
    return Number("u16", offset)


def u32(offset: int) -> Number:
    """A u32 at this offset, little-endian."""
    return Number("u32", offset)


def u64(offset: int) -> Number:
    """A u64 at this offset, little-endian."""
    return Number("u64", offset)


def i32(offset: int) -> Number:
    """An i32 at this offset, little-endian."""
    return Number("i32", offset)


def i64(offset: int) -> Number:
    """An i64 at this offset, little-endian."""
    return Number("i64", offset)


def exists() -> Instruction:
    """A guard: the key of `update_if` is there."""
    return Instruction(1)


def absent() -> Instruction:
    """A guard: the key of `update_if` is missing."""
    return Instruction(2)


class Key:
    """A key of an `Apply`. With a layout its fields are attributes: `stock.available >= 1`."""

    __slots__ = ("number", "key", "layout")

    def __init__(self, number: int, key: bytes, layout=None):
        self.number = number
        self.key = key
        self.layout = layout

    def __getattr__(self, name: str) -> Number:
        if self.layout is None or name not in self.layout._numbers:
            raise AttributeError(f"no number {name!r}")
        return self.layout._numbers[name].of(self)

    def field(self, type: str, offset: int = 0) -> Number:
        """A number of its value."""
        return Number(type, offset, self)

    def exists(self) -> Instruction:
        """A guard: it was there before."""
        return Instruction(1, key=self)

    def absent(self) -> Instruction:
        """A guard: it was missing before."""
        return Instruction(2, key=self)

    def has_version(self, version) -> Instruction:
        """A guard: it had this version before."""
        return Instruction(9, 0, self, version[0], version[1])

    def put(self, value: bytes) -> Instruction:
        """Its value becomes this; an expiry goes."""
        return Instruction(26, key=self, data=bytes(value))

    def start(self, value: bytes) -> Instruction:
        """Its value becomes this if it has none."""
        return Instruction(27, key=self, data=bytes(value))

    def replace(self, value: bytes) -> Instruction:
        """Its value becomes this; an expiry stays."""
        return Instruction(33, key=self, data=bytes(value))

    def delete(self) -> Instruction:
        """Deletes it."""
        return Instruction(28, key=self)

    def expires_in(self, seconds: float) -> Instruction:
        """It expires so many seconds from now."""
        return Instruction(29, 0x40, self, 0, round(seconds * 1000))

    def expires_at(self, unix_seconds: float) -> Instruction:
        """It expires at this time; 0 for never."""
        return Instruction(29, 0, self, 0, round(unix_seconds * 1000))

    def on_expiry(self, *effects: Instruction) -> Instruction:
        """These effects run when it expires. Give it an expiry before."""
        return Instruction(32, key=self, body=effects)


class Apply:
    """Guards and effects on 1 to 255 keys of one `{tag}`: all of them take effect, or none.

        sale = Apply()
        stock, order = sale.key("stock:{tee}"), sale.key("order:{tee}:7")
        sale.do(order.absent(), stock.field("u32").subtract(1), order.put(b"ann"))
        db.apply(sale)
    """

    def __init__(self):
        self._keys: List[Key] = []
        self._steps: List[Instruction] = []

    def key(self, key: Union[str, bytes], layout=None) -> Key:
        """Names a key. No key may stand twice."""
        key = Key(len(self._keys), _items.key_bytes(key), layout)
        self._keys.append(key)
        return key

    def do(self, *instructions: Instruction) -> "Apply":
        """Adds instructions. They run in their order."""
        self._steps.extend(instructions)
        return self

    def encode(self) -> Tuple[bytes, int, List[Instruction]]:
        """The item, the slot, and the instructions as they run now."""
        data, packed = bytearray(), []
        for step in self._steps:
            packed.append(self._pack(step, data))
            packed += [self._pack(effect, data) for effect in step.body]
        keys = [key.key for key in self._keys]
        return _items.apply(keys, packed, bytes(data)), one_slot(keys), list(self._steps)

    def operations(self) -> set:
        """The numbers of the operations in it."""
        return {each.operation for step in self._steps for each in (step, *step.body)}

    @property
    def key_count(self) -> int:
        """How many keys it names."""
        return len(self._keys)

    def _pack(self, step: Instruction, data: bytearray) -> bytes:
        if step.key is None or step.key.number >= len(self._keys):
            raise ValueError("an instruction of an Apply is about one of its keys")
        offset, operand = step.offset, step.operand
        if step.data is not None:
            offset, operand = len(data), len(step.data)
            data += step.data
        if step.body:
            offset = len(step.body)
        if isinstance(operand, Number):
            of = operand.key if operand.key is not None else step.key
            operand = operand.offset | TYPES[operand.type] << 32 | of.number << 40
        return _items.instruction(step.operation, step.kind, step.key.number, step.reason, offset,
                                  operand)


def one_slot(keys: List[bytes]) -> int:
    """The slot of all of these keys."""
    slots = [slot_of(key) for key in keys]
    for slot in slots:
        if slot != slots[0]:
            raise Refused(f"keys of two of {SLOTS} slots: give them one {{tag}}", "CROSS_SLOT")
    return slots[0]


def pack_update(instructions: List[Instruction]) -> List[bytes]:
    """The instructions of an UPDATE_IF. A number `of` no key is about the first one."""
    packed = []
    for step in instructions:
        if step.operation not in (1, 2, *range(3, 9), 16, 17, 18) or step.kind & 0x68:
            raise ValueError("update_if takes comparisons, set, add and subtract of a plain number")
        key = 0 if step.key is None else step.key.number
        packed.append(_items.instruction(step.operation, step.kind, key, step.reason, step.offset,
                                         step.operand))
    return packed


#: The second key of `update_if`: `u32(0).of(SECOND)`.
SECOND = Key(1, b"")
