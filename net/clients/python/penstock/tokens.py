"""Tokens of writes, by the time of the server."""

import os
import time
from typing import Optional, Tuple
from uuid import UUID

_APART_MS_MAX = 60_000
_SLEW = 64


def new_token(unix_ms: Optional[int] = None) -> UUID:
    """A UUID of version 7. `Client.new_token` takes the server's time for it."""
    if unix_ms is None:
        unix_ms = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    number = (unix_ms & (1 << 48) - 1) << 80 | random
    number = number & ~(0xF << 76) | 7 << 76
    return UUID(int=number & ~(3 << 62) | 2 << 62)


class ServerTime:
    """How far the server's time is from the clock here. A minute is left alone."""

    def __init__(self, clock=lambda: time.time_ns() // 1_000_000, monotonic=time.monotonic):
        self._clock = clock
        self._monotonic = monotonic
        self._apart: Optional[Tuple[int, float]] = None

    def note(self, server_ms: int) -> None:
        """HELLO has told the time; 0 if it does not."""
        apart = server_ms - self._clock()
        is_far = server_ms and abs(apart) > _APART_MS_MAX
        self._apart = (apart, self._monotonic()) if is_far else None

    def now_ms(self) -> int:
        """The time of a new token. The server drifts towards its clock, so the difference falls."""
        here = self._clock()
        apart = self._apart
        if apart is None:
            return here
        ms, seen = apart
        left = max(0, abs(ms) - int((self._monotonic() - seen) * 1000) // _SLEW)
        return here + (left if ms > 0 else -left)
