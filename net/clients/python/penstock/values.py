"""What answers are made of."""

from typing import Dict, List, NamedTuple, Optional


class Version(NamedTuple):
    """The version of a value. Equality is what counts; of one partition the greater is the newer.

    >>> Version(256, 2) > Version(256, 1)
    True
    """

    epoch: int
    sequence: int


class Value(NamedTuple):
    """A value that was read.

    `expires_at` is unix time in seconds; None if the key never expires or it was not asked for.
    """

    data: bytes
    version: Version
    expires_at: Optional[float] = None


class Expiry(NamedTuple):
    """When a key expires, in unix seconds (None: never), and the server's time beside it."""

    expires_at: Optional[float]
    server_time: float


class Changed:
    """A write took effect.

    `numbers` are those that the answer tells, in the order of the effects. `named` has those of a
    program by their names. `replayed`: an earlier try was executed, and this is its answer again.
    `level` is the durability that was reached. `may_be_lost`: the node has taken over since the
    token was made, so what an earlier node had answered may be lost.
    """

    __slots__ = ("version", "numbers", "named", "replayed", "level", "may_be_lost")

    def __init__(self, version: Version, numbers: List[int], named: Dict[str, int], replayed: bool,
                 level: str, may_be_lost: bool):
        self.version = version
        self.numbers = numbers
        self.named = named
        self.replayed = replayed
        self.level = level
        self.may_be_lost = may_be_lost

    def __getattr__(self, name: str) -> int:
        try:
            return self.named[name]
        except KeyError:
            raise AttributeError(f"the answer tells no number {name!r}") from None

    def __getitem__(self, name: str) -> int:
        return self.named[name]

    def __repr__(self) -> str:
        numbers = self.named or self.numbers
        return f"Changed(version={self.version}, numbers={numbers}, replayed={self.replayed})"
