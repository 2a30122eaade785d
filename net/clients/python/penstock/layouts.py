"""Layouts of the server's schema as classes: named fields in place of bytes.

    Stock = db.layouts["Stock"]
    db.set("stock:42", Stock(available=100).pack())
    db.update_if("stock:42", [Stock.available >= 1, Stock.available.subtract(1)])
    print(Stock.unpack(db.get("stock:42").data).available)
"""

import re
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .fields import TYPES, Number

_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i8": "b", "i16": "h", "i32": "i",
          "i64": "q", "f32": "f", "f64": "d", "bool": "?"}
_ARRAY = re.compile(r"^(.*)\[(\d+)\]$", re.S)


class _Kind:
    """How a field lies in the value."""

    def __init__(self, name: str):
        self.name = name
        self.element: Optional["_Kind"] = None
        self.count = 0
        self.inner: Optional[type] = None
        array = _ARRAY.match(name)
        if array:
            self.element, self.count = _Kind(array[1]), int(array[2])
            self.size = self.element.size * self.count
        elif name.startswith("{"):
            self.inner = layout("Inner", *_inner(name))
            self.size = self.inner._size
        elif name == "text":
            self.size = 8
        else:
            plain, order = (name[:-2], ">") if name.endswith("be") else (name, "<")
            if plain not in _CODES:
                raise ValueError(f"no type of a field: {name}")
            self.struct = struct.Struct(order + _CODES[plain])
            self.size = self.struct.size

    def read(self, data: bytes, at: int) -> Any:
        if self.name == "u8[%d]" % self.count:
            return data[at : at + self.size]
        if self.element:
            step = self.element.size
            return [self.element.read(data, at + step * each) for each in range(self.count)]
        if self.inner:
            return self.inner.unpack(data[at : at + self.size])
        if self.name == "text":
            begin, length = struct.unpack_from("<II", data, at)
            if length and begin + length > len(data):
                raise ValueError(f"a text ends behind the value, at {begin + length}")
            return data[begin : begin + length].decode()
        if self.name == "bool" and data[at] > 1:
            raise ValueError(f"a bool is 0 or 1, not {data[at]}")
        return self.struct.unpack_from(data, at)[0]

    def write(self, data: bytearray, at: int, value: Any) -> None:
        if self.name == "u8[%d]" % self.count:
            if len(value) > self.count:
                raise ValueError(f"{len(value)} bytes; the field has {self.count}")
            data[at : at + len(value)] = value
        elif self.element:
            if len(value) > self.count:
                raise ValueError(f"{len(value)} elements; the field has {self.count}")
            for each, element in enumerate(value):
                self.element.write(data, at + self.element.size * each, element)
        elif self.inner:
            data[at : at + self.size] = value.pack()
        elif self.name == "text":
            encoded = value.encode()
            if encoded:
                struct.pack_into("<II", data, at, len(data), len(encoded))
                data += encoded
        else:
            self.struct.pack_into(data, at, value)


class _Field(NamedTuple):
    name: str
    kind: _Kind
    offset: int


class _Member:
    """A field of a layout: a `Number` of the class, a value of an object."""

    def __init__(self, field: _Field):
        self.field = field

    def __get__(self, value, owner):
        if value is not None:
            if self.field.name not in value._values:
                raise AttributeError(f"the value is too short for {self.field.name}")
            return value._values[self.field.name]
        if self.field.name not in owner._numbers:
            raise AttributeError(f"{self.field.name} is no number for guards and effects")
        return owner._numbers[self.field.name]

    def __set__(self, value, new):
        value._values[self.field.name] = new


class Layout:
    """The base of the classes of layouts. What a constructor does not name is zero."""

    _fields: List[_Field] = []
    _numbers: Dict[str, Number] = {}
    _size = 0

    def __init__(self, **values):
        zeros = bytes(self._size)
        self._values = {each.name: each.kind.read(zeros, each.offset) for each in self._fields}
        for name, value in values.items():
            if name not in self._values:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
            self._values[name] = value

    def pack(self) -> bytes:
        """The bytes of the value."""
        data = bytearray(self._size)
        for each in self._fields:
            if each.name in self._values:
                each.kind.write(data, each.offset, self._values[each.name])
        return bytes(data)

    @classmethod
    def unpack(cls, data: bytes) -> "Layout":
        """Reads a value. A shorter one has the fields that it holds, a longer one is accepted."""
        value = cls.__new__(cls)
        value._values = {
            each.name: each.kind.read(data, each.offset)
            for each in cls._fields
            if each.offset + each.kind.size <= len(data)
        }
        return value

    def __eq__(self, other):
        return type(self) is type(other) and self._values == other._values

    __hash__ = None

    def __repr__(self):
        inside = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        return f"{type(self).__name__}({inside})"


def layout(name: str, fields: List[str], size: int) -> type:
    """A class from the texts of a schema: `available:u32@0`."""
    read = [_field(text) for text in fields]
    members: Dict[str, Any] = {}
    numbers: Dict[str, Number] = {}
    for each in read:
        # A field with the name of a method has an underscore behind it.
        members[each.name + "_" * (each.name in ("pack", "unpack"))] = _Member(each)
        number = "u8" if each.kind.name == "bool" else each.kind.name
        if number in TYPES:
            numbers[each.name] = Number(number, each.offset)
    members.update(_fields=read, _size=size, _numbers=numbers, __module__=__name__,
                   __doc__=f"A value of the layout {name}.")
    return type(name, (Layout,), members)


def _field(text: str) -> _Field:
    name, _, rest = text.partition(":")
    kind, _, offset = rest.rpartition("@")
    return _Field(name.strip(), _Kind(kind.strip()), int(offset))


def _inner(text: str) -> Tuple[List[str], int]:
    """The fields and the length of a layout in braces: `{a:u8@0;=1}`."""
    parts, depth, begin = [], 0, 0
    inside = text[1:-1]
    for at, letter in enumerate(inside):
        depth += (letter == "{") - (letter == "}")
        if letter == ";" and not depth:
            parts.append(inside[begin:at].strip())
            begin = at + 1
    return parts, int(inside[begin:].strip().lstrip("="))
