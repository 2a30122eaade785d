"""Pauses and the budget of retries, as VERBS.md has them."""

import random
import threading
from typing import Optional

PAUSE_MIN, PAUSE_MAX = 0.001, 1.0
_PARTS, _SAVED_MAX = 10, 10
_ASK_AGAIN_MIN, _ASK_AGAIN_MAX = 0.002, 0.160


class Budget:
    """The retries that a client may make: one for every ten operations, ten saved at most."""

    def __init__(self, rand=random.random):
        self._parts = 0
        self._lock = threading.Lock()
        self._random = rand

    def earn(self) -> None:
        """An operation is asked. Its retries are no operations."""
        with self._lock:
            if self._parts < _PARTS * _SAVED_MAX:
                self._parts += 1

    def pause(self, retries: int, retry_after_ms: int, left: float) -> Optional[float]:
        """The pause before an operation is sent again; None without budget or time."""
        bound = min(PAUSE_MAX, max(PAUSE_MIN, retry_after_ms / 1000) * 2 ** min(retries, 16))
        pause = bound * self._random()
        if pause >= left:
            return None
        with self._lock:
            if self._parts < _PARTS:
                return None
            self._parts -= _PARTS
        return pause

    def free_pause(self, left: float) -> Optional[float]:
        """A pause that costs nothing: another node is asked for one that is gone."""
        pause = PAUSE_MIN * self._random()
        return pause if pause < left else None


def ask_again_after(tries: int) -> float:
    """The wait before a node is asked once more who writes a key."""
    return min(_ASK_AGAIN_MAX, _ASK_AGAIN_MIN * 1.5 ** min(tries, 12))
