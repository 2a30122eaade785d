"""The native client of Penstock, a durable key-value server for things that sell out in seconds."""

from . import aio
from ._core import Options
from ._wire import LEVELS, PageEntry
from .client import Client, Later, Pipeline
from .errors import (Busy, DeadlineExceeded, No, NotSent, PenstockError, ProtocolError, Refused,
                     Unfit, Unknown)
from .fields import (SECOND, Apply, Instruction, Key, Now, Number, absent, exists, i32, i64, u8,
                     u16, u32, u64)
from .layouts import Layout
from .login import Identity
from .programs import Program, Schema
from .tls import Tls
from .tokens import new_token
from .values import Changed, Expiry, Value, Version

__version__ = "0.1.0"


def connect(addresses="127.0.0.1:7411", **options) -> Client:
    """A blocking client that is connected."""
    return Client(addresses, **options).connect()


__all__ = [
    "LEVELS", "SECOND", "Apply", "Busy", "Changed", "Client", "DeadlineExceeded", "Expiry",
    "Identity", "Instruction", "Key", "Later", "Layout", "No", "NotSent", "Now", "Number",
    "Options", "PageEntry", "PenstockError", "Pipeline", "Program", "ProtocolError", "Refused",
    "Schema", "Tls", "Unfit", "Unknown", "Value", "Version", "absent", "aio", "connect", "exists",
    "i32", "i64", "new_token", "u16", "u32", "u64", "u8",
]
