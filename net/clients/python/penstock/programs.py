"""Programs of the server's schema as functions with named arguments.

    buy = db.programs["buy"]
    sold = buy(stock="stock:{42}", order="order:{42}:7", buyer="buyer:{42}:ann",
               quantity=2, hold_ms=600_000)
    print(sold["stock.available"])
"""

import inspect
import re
import struct
from typing import Any, Callable, Dict, List, Mapping, Tuple

from . import _items
from .errors import ProtocolError, Refused
from .fields import one_slot
from .layouts import layout

_ARGUMENT = re.compile(r"^\s*(\w[\w-]*)\s*:\s*(\S+)(?:\s+(-?\d+)\s*\.\.\s*(-?\d+))?\s*$")
_TELLING = re.compile(r"^(\S+)\s*(?:\s(?:=|\+=|-=|min=|max=|&=|\|=|\^=)\s|\s+rate\s)")
_BYTES = re.compile(r"^u8\[(\d+)\]$")


class Argument:
    """An argument of a program."""

    def __init__(self, text: str):
        match = _ARGUMENT.match(text)
        if not match:
            raise ProtocolError(f"an argument of the schema is of another form: {text}")
        self.name, self.type = match[1], match[2]
        array = _BYTES.match(self.type)
        self.bytes_max = int(array[1]) if array else None

    def encode(self, value: Any) -> bytes:
        """The bytes of a RUN's argument."""
        if self.bytes_max is not None:
            value = value.encode() if isinstance(value, str) else bytes(value)
            return struct.pack("<II", len(value), 0) + _items.padded(value)
        number = int(value)
        if not -(1 << 63) <= number < 1 << 64:
            raise Refused(f"{self.name} is {self.type}, not {number}", "MALFORMED")
        return struct.pack("<Q", number & (1 << 64) - 1)


class Program:
    """A program of the server. Call it with its keys and arguments by name."""

    def __init__(self, name: str, told: Mapping[str, Any], signed: Callable[[str, str], bool],
                 ask: Callable):
        self.name = name
        self.id = int(told["id"], 16)
        keys = [each.split(":") for each in told["keys"]]
        #: The names of its keys, in their order.
        self.keys: List[str] = [each[0].strip() for each in keys]
        #: Its arguments, in their order.
        self.arguments = [Argument(each) for each in told["arguments"]]
        layouts = {each[0].strip(): each[1].strip() for each in keys if len(each) > 1}
        self.returns = _told_names(told.get("instructions", ()), told.get("returns", ()))
        self.signed = [_is_signed(each, layouts, signed) for each in self.returns]
        self._ask = ask
        self.__doc__ = "\n".join([f"Runs {name}.", "", *told.get("instructions", ())])
        self.__signature__ = inspect.Signature([
            inspect.Parameter(each.replace("-", "_"), inspect.Parameter.KEYWORD_ONLY)
            for each in dict.fromkeys([*self.keys, *(each.name for each in self.arguments)])
        ]) if all(each.replace("-", "_").isidentifier() for each in
                  [*self.keys, *(each.name for each in self.arguments)]) else None

    def __call__(self, *, token=None, level=None, deadline=None, **named):
        """Runs it. What is named as a key is a key, all else an argument."""
        named = {name.replace("-", "_"): value for name, value in named.items()}
        own = [name.replace("-", "_") for name in self.keys]
        keys = {name: named.pop(own[at]) for at, name in enumerate(self.keys) if own[at] in named}
        arguments = {each.name: named.pop(each.name.replace("-", "_")) for each in self.arguments
                     if each.name.replace("-", "_") in named}
        if named:
            raise TypeError(f"{self.name} has no key or argument {sorted(named)[0]!r}")
        return self._ask(self.name, keys, arguments, token=token, level=level, deadline=deadline)

    def encode(self, keys: Mapping[str, Any], arguments: Mapping[str, Any]) -> Tuple[bytes, int]:
        """The item of a RUN, and its slot."""
        self._check("key", self.keys, keys)
        self._check("argument", [each.name for each in self.arguments], arguments)
        packed = [_items.key_bytes(keys[name]) for name in self.keys]
        values = b"".join(each.encode(arguments[each.name]) for each in self.arguments)
        return _items.run(self.id, packed, values, len(self.arguments)), one_slot(packed)

    def named(self, numbers: List[int]) -> Dict[str, int]:
        """The numbers of an answer by their names; of one that is told twice the later one."""
        return dict(zip(self.returns, numbers))

    def _check(self, what: str, names: List[str], given: Mapping[str, Any]) -> None:
        for name in names:
            if name not in given:
                raise TypeError(f"{self.name} needs the {what} {name!r}")
        for name in given:
            if name not in names:
                raise TypeError(f"{self.name} has no {what} {name!r}: it has {', '.join(names)}")


class Schema:
    """The layouts and programs that a server has."""

    def __init__(self, told: Mapping[str, Any], ask: Callable):
        try:
            self.layouts = {name: layout(name, each["fields"], each["bytes"])
                            for name, each in told["layouts"].items()}
            self.programs = {name: Program(name, each, self._is_signed, ask)
                             for name, each in told["programs"].items()}
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise ProtocolError(f"the schema that INFO tells is of another form: {error}") from None

    def _is_signed(self, name: str, field: str) -> bool:
        numbers = self.layouts[name]._numbers if name in self.layouts else {}
        return field in numbers and numbers[field].type.startswith("i")


def _told_names(instructions, returns) -> List[str]:
    names = []
    for text in instructions:
        match = _TELLING.match(text.strip())
        if match:
            names.append(match[1])
    return names + [text.strip() for text in returns]


def _is_signed(name: str, layouts: Dict[str, str], signed: Callable[[str, str], bool]) -> bool:
    key, _, field = name.partition(".")
    if key in layouts:
        return signed(layouts[key], field)
    return field == "decimal" or field.startswith("i")
