"""What a client knows and decides, without sockets: nodes, routes, retries, outcomes.

The blocking and the asyncio client send what a `Call` says, and hand answers and lost connections
to the `Core`, which settles the call or says when it is sent again.
"""

import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple
from uuid import UUID

from . import _items, _wire
from ._wire import Reply, ServerHello
from .errors import (Busy, DeadlineExceeded, No, NotSent, PenstockError, ProtocolError, Refused,
                     Unknown)
from .login import Identity
from .retry import Budget, ask_again_after
from .tls import Tls
from .tokens import ServerTime, new_token
from .values import Value, Version

#: A node or port that could not be reached is passed over for so long, in seconds.
_NODE_DOWN, _PORT_DOWN = 1.0, 10.0
#: The time in which a port of a shard, or one of several nodes, must accept a connection.
CONNECT_MAX = 1.0
_NODES_MAX = 512
#: Statuses that a server tells behind the look-up of a token.
_NAMES_EARLIER_TRIES = frozenset(["OK", "GUARD_FAILED", "NOT_FOUND", "EXISTS", "VERSION_MISMATCH",
                                  "BAD_FIELD", "WRONG_TYPE", "TOKEN_REUSED"])
_NO = frozenset(["GUARD_FAILED", "NOT_FOUND", "EXISTS", "VERSION_MISMATCH", "NOT_KEPT"])
_LATER = frozenset(["BUSY", "DRAINING", "FULL", "MOVED", "NOT_PRIMARY"])
_UNKNOWN = frozenset(["IO", "SHARD_DOWN", "INDETERMINATE", "NOREPLICAS", "TOKEN_TOO_OLD"])
#: In place of a value for a missing key: a missing key is a `No`.
RAISES = object()


class Options(NamedTuple):
    """The options of a client: the table in net/clients/VERBS.md."""

    name: str = "penstock-python"
    level: str = "disk"
    deadline: float = 5.0
    tokens: bool = True
    retries: bool = True
    shard_ports: bool = True
    silence_max: float = 0.4
    identity: Optional[Identity] = None
    tls: Optional[Tls] = None


class Call:
    """One operation on its way, over all of its tries."""

    __slots__ = ("item", "slot", "read", "missing", "needs", "is_read", "takes_token", "by_caller",
                 "token", "level", "deadline", "until", "tries", "retries", "passed_over",
                 "in_doubt", "node", "outcome", "error", "is_settled")

    def __init__(self, item: bytes, slot: Optional[int], read: Callable[[Reply], Any], needs: int,
                 is_read: bool):
        self.item = item
        self.slot = slot
        self.read = read
        self.missing = RAISES
        self.needs = needs
        self.is_read = is_read
        self.takes_token = self.by_caller = self.in_doubt = self.is_settled = False
        self.token: Optional[UUID] = None
        self.level = 2
        self.deadline = self.until = 0.0
        self.tries = self.retries = self.passed_over = 0
        self.node: Optional["Node"] = None
        self.outcome: Any = None
        self.error: Optional[PenstockError] = None

    def again(self) -> "Call":
        """The same write asked anew, of which an earlier try may have been executed."""
        call = Call(self.item, self.slot, self.read, self.needs, False)
        call.missing = self.missing
        call.takes_token = call.by_caller = call.in_doubt = True
        call.token, call.level, call.deadline = self.token, self.level, self.deadline
        return call

    def encode(self, features: int, core: "Core") -> Optional[bytes]:
        """The item for a server with these features; None if that settles the call."""
        if self.needs & ~features:
            self.fail(Refused("the server is too old for this", "UNSUPPORTED"))
            return None
        if not self.takes_token:
            return self.item
        if features & _wire.TOKENS:
            if self.token is None:
                self.token = core.new_token()
            return _items.with_token(self.item, self.token)
        if self.by_caller or self.in_doubt:
            self.fail(Refused("the server knows no tokens", "UNSUPPORTED"))
            return None
        self.token = None
        return self.item

    def deadline_ms(self, now: float) -> int:
        """What is left of the deadline, for the header of a frame."""
        return max(1, min(65535, int((self.until - now) * 1000)))

    def settle(self, reply: Reply) -> None:
        """The outcome of the last try."""
        status = reply.status
        if self.in_doubt and status not in _NAMES_EARLIER_TRIES:
            text = f"an earlier try was sent and not answered; the last one: {status} {reply.text}"
            return self._end(Unknown(text, status, self))
        if status == "OK":
            self.is_settled = True
            try:
                self.outcome = self.read(reply)
            except PenstockError as error:
                self.error = error
            return None
        if status == "NOT_FOUND" and self.missing is not RAISES:
            self.is_settled = True
            self.outcome = self.missing
            return None
        return self._end(error_of(reply, self))

    def fail(self, error: PenstockError) -> None:
        """Gives the call up. What the last try says is not true of a try before it."""
        if self.in_doubt and not isinstance(error, Unknown):
            text = f"an earlier try was sent and not answered; the last one: {error}"
            error = Unknown(text, error.status, self)
        self._end(error)

    def _end(self, error: PenstockError) -> None:
        self.is_settled = True
        self.error = error

    def result(self) -> Any:
        """The outcome, or its error."""
        if self.error is not None:
            raise self.error
        return self.outcome


def error_of(reply: Reply, call: Optional[Call] = None) -> PenstockError:
    """The error that an answer means."""
    status = reply.status
    if status in _NO:
        failed = status == "GUARD_FAILED" and len(reply.value) >= 8
        actual = int.from_bytes(reply.value[:8], "little") if failed else None
        version = reply.version
        if status == "VERSION_MISMATCH" and reply.instruction is not None:
            value = reply.value
            version = Version(int.from_bytes(value[:4], "little"),
                              int.from_bytes(value[8:16], "little"))
        shown = Value(reply.value, version) if reply.flags & _wire.SHOWN else None
        return No(status, reply.reason, reply.instruction, actual, version, shown)
    text = f"{status}: {reply.text}"
    if status in _LATER:
        return Busy(text, status)
    if status == "DEADLINE":
        return DeadlineExceeded(text, status)
    if status in _UNKNOWN:
        return Unknown(text, status, call)
    return Refused(text, status)


class Node:
    """A server, and what it has said of itself."""

    def __init__(self, address: str):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"an address is HOST:PORT, not {address!r}")
        self.address = address
        self.host = host.strip("[]")
        self.target = (self.host, int(port))
        self.down_until = 0.0
        self.hello: Optional[ServerHello] = None
        #: The address that is asked about each slot, if the ports of the cores are known.
        self.by_slot: Optional[List[Tuple[str, int]]] = None
        self.ports_down: Dict[Tuple[str, int], float] = {}

    def is_other(self, target: Tuple[str, int], hello: ServerHello) -> bool:
        """Whether the port of a core is another server's: its HELLO names another node."""
        if target == self.target or self.hello is None:
            return False
        mine = (self.hello.cluster_id, self.hello.node_id)
        return (hello.cluster_id, hello.node_id) != mine

    def greeted(self, hello: ServerHello) -> None:
        """Takes the HELLO of a connection that is open."""
        before = self.hello
        self.hello = hello
        if before is not None and before.slots == hello.slots:
            return
        by_slot = [self.target] * _wire.SLOTS
        for first, last, _, port in hello.slots:
            if port and first <= last < _wire.SLOTS:
                by_slot[first : last + 1] = [(self.host, port)] * (last - first + 1)
        self.by_slot = by_slot


class Core:
    """The state that all calls of a client share."""

    def __init__(self, addresses: Sequence[str], options: Options):
        if not addresses:
            raise ValueError("no address was given")
        if options.level not in _wire.LEVELS:
            raise ValueError(f"a level is one of {', '.join(_wire.LEVELS)}, not {options.level}")
        self.options = options
        self.level = _wire.LEVELS[options.level]
        self.nodes = [Node(address) for address in addresses]
        self.home = self.nodes[0]
        #: Partition to the generation and the node that writes it.
        self.writers: Dict[int, Tuple[int, Node]] = {}
        self.budget = Budget()
        self.time = ServerTime()

    def new_token(self) -> UUID:
        """A token by the server's time."""
        return new_token(self.time.now_ms())

    def begin(self, call: Call) -> None:
        """A call is asked."""
        call.until = time.monotonic() + call.deadline
        self.budget.earn()

    def route(self, call: Call) -> Tuple[Node, Tuple[str, int]]:
        """The node to ask, and its address for this slot."""
        slot = call.slot
        node = call.node or self.home
        if slot is not None and self.writers:
            writer = self.writers.get(slot >> 6)
            if writer is not None:
                node = writer[1]
        if node.down_until:
            node = self._up(node)
        if slot is None or node.by_slot is None or not self.options.shard_ports:
            return node, node.target
        target = node.by_slot[slot]
        if node.ports_down and node.ports_down.get(target, 0) > time.monotonic():
            target = node.target
        return node, target

    def _up(self, first: Node) -> Node:
        now = time.monotonic()
        at = self.nodes.index(first)
        for node in self.nodes[at:] + self.nodes[:at]:
            if node.down_until <= now:
                return node
        return first

    def greeted(self, node: Node, hello: ServerHello) -> None:
        """A connection to a node is open."""
        node.down_until = 0.0
        node.greeted(hello)
        self.time.note(hello.time_ms)
        if hello.placement is None:
            return
        for first, last, number, generation in hello.placement.ranges:
            named = self.node_at(hello.placement.nodes.get(number))
            for partition in range(first, last + 1):
                self._writes(partition, generation, named)
        for address in hello.placement.nodes.values():
            self.node_at(address)

    def node_at(self, address: Optional[str]) -> Optional[Node]:
        """The node with this address, which may be new."""
        for node in self.nodes:
            if node.address == address:
                return node
        if not address or len(self.nodes) >= _NODES_MAX:
            return None
        try:
            self.nodes.append(Node(address))
        except ValueError:
            return None
        return self.nodes[-1]

    def _writes(self, partition: int, generation: int, node: Optional[Node]) -> bool:
        known = self.writers.get(partition)
        if node is None or known is not None and known[0] >= generation:
            return False
        self.writers[partition] = (generation, node)
        return True

    def connect_time(self, node: Node, target: Tuple[str, int], left: float) -> float:
        """How long a connection may take."""
        is_one_of_several = len(self.nodes) > 1 or target != node.target
        return min(left, CONNECT_MAX) if is_one_of_several else left

    def unreachable(self, call: Call, node: Node, target: Tuple[str, int],
                    error: Exception) -> None:
        """A connection cannot be made: settles the call if nothing else can be asked."""
        now = time.monotonic()
        if target != node.target:
            node.ports_down[target] = now + _PORT_DOWN
            return
        node.down_until = now + _NODE_DOWN
        call.passed_over += 1
        if now >= call.until:
            call.fail(DeadlineExceeded(f"{node.address}: no connection in time: {error}"))
        elif call.passed_over >= len(self.nodes):
            call.fail(NotSent(f"{node.address}: {error}"))

    def answered(self, call: Call, reply: Reply, retry_after_ms: int) -> float:
        """Takes an answer: settles the call, or returns the pause before it is sent again."""
        status = reply.status
        if status == "MOVED" or status == "NOT_PRIMARY":
            pause = self._moved(call, reply)
            if pause is not None:
                return pause
        elif status == "BUSY" and self.options.retries:
            left = call.until - time.monotonic()
            pause = self.budget.pause(call.retries, retry_after_ms, left)
            if pause is not None:
                call.retries += 1
                return pause
        call.settle(reply)
        return 0.0

    def _moved(self, call: Call, reply: Reply) -> Optional[float]:
        is_news, version = False, reply.version
        is_named = reply.status == "NOT_PRIMARY"
        if version.epoch:
            node = self.node_at(reply.text.rpartition(" ")[2])
            if node is not None:
                is_named = True
                if call.slot is None:
                    is_news = call.node is not node and not call.tries
                    call.node = node
                else:
                    is_news = self._writes(call.slot >> 6, version.epoch >> 18, node)
        pause = 0.0 if is_news else ask_again_after(call.tries)
        if not is_named or time.monotonic() + pause >= call.until:
            return None
        call.tries += 1
        return pause

    def lost(self, call: Call, features: int, cause: str, may_retry: bool = True) -> float:
        """A try was sent and will not be answered. As `answered`."""
        is_named = call.takes_token and call.token is not None and features & _wire.TOKENS
        call.in_doubt = call.in_doubt or bool(is_named)
        left = call.until - time.monotonic()
        if may_retry and self.options.retries and (call.is_read or is_named):
            if len(self.nodes) > 1 and not call.retries:
                pause = self.budget.free_pause(left)
            else:
                pause = self.budget.pause(call.retries, 0, left)
            if pause is not None:
                call.retries += 1
                return pause
        call.fail(Unknown(cause, None, call if call.in_doubt else None))
        return 0.0


class Answers:
    """Gathers the answers to one request frame, which may come in several frames."""

    __slots__ = ("replies", "retry_after_ms", "left")

    def __init__(self, count: int):
        self.replies: List[Optional[Reply]] = [None] * count
        self.retry_after_ms = [0] * count
        self.left = count

    def take(self, frame: _wire.Frame) -> List[int]:
        """Takes a frame, and returns the numbers of the items that it answers."""
        if not frame.flags & _wire.REPLY:
            raise ProtocolError("the server sends a request")
        code = frame.level_or_status
        if code:
            status = _wire.STATUSES.get(code)
            if status is None:
                raise ProtocolError(f"status 0x{code:04x} is not known")
            refused = Reply.refused(status, _wire.text_of(frame.body).encode())
            numbers = [at for at, reply in enumerate(self.replies) if reply is None]
            for number in numbers:
                self.replies[number] = refused
                self.retry_after_ms[number] = frame.deadline_or_retry_ms
            self.left = 0
            return numbers
        # All of a frame counts or none: an item that was answered in part of a frame is in doubt.
        replies = {}
        for item in _wire.batch_items(frame.body):
            reply = Reply(item)
            is_asked = reply.item < len(self.replies) and self.replies[reply.item] is None
            if not is_asked or reply.item in replies:
                raise ProtocolError(f"an answer to item {reply.item}, which is not asked")
            replies[reply.item] = reply
        left = self.left - len(replies)
        if not left and frame.flags & _wire.MORE or left and not frame.flags & _wire.MORE:
            raise ProtocolError("a request is not answered whole")
        self.left = left
        for number, reply in replies.items():
            self.replies[number] = reply
            self.retry_after_ms[number] = frame.deadline_or_retry_ms
        return list(replies)
