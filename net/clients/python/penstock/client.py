"""The blocking client: safe to share between threads, and usable behind a fork."""

import json
import os
import select
import socket
import ssl
import threading
import time
import weakref
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _wire, login
from ._core import Answers, Call, Core, Node, Options
from ._verbs import Bytes, Verbs
from .errors import DeadlineExceeded, NotSent, PenstockError, ProtocolError, Refused, Unfit, Unknown
from .programs import Program, Schema
from .tls import binding_of
from .values import Changed

#: A connection that was idle for so long is looked at before it is used, in seconds.
_LOOK_AFTER = 0.005
#: Bytes of requests that are under way on one connection of a pipeline. More might fill the buffers
#: of both sides, and then neither would read.
_WINDOW = 64 << 10
_RECEIVE = 64 << 10
Target = Tuple[str, int]


class _Silent(Exception):
    """The node has not said anything for too long."""


class _Connection:
    """An open connection, which one call or pipeline uses at a time."""

    __slots__ = ("node", "target", "socket", "hello", "features", "used", "_buffer", "_next_id",
                 "_timeout", "_poll", "_silence")

    def __init__(self, core: Core, node: Node, target: Target, left: float):
        self.node = node
        self.target = target
        self._buffer = bytearray()
        self._next_id = 16
        self._timeout = left
        self._silence = core.options.silence_max
        began = time.monotonic()
        plain = socket.create_connection(target, left)
        self.socket: Any = plain
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._greet(core, node, began + left)
        except BaseException:
            self.socket.close()
            raise
        self._poll = select.poll()
        self._poll.register(self.socket.fileno(), select.POLLIN)
        self.used = time.monotonic()

    def _greet(self, core: Core, node: Node, until: float) -> None:
        options, tls, binding = core.options, core.options.tls, None
        if tls is not None:
            name = tls.server_name or node.host
            try:
                if options.identity is None:
                    self.socket = tls.shared().wrap_socket(self.socket, server_hostname=name)
                else:
                    with binding_of(tls) as bound:
                        self.socket = bound.context.wrap_socket(self.socket, server_hostname=name)
                        binding = bound.read(self.socket)
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
                raise ConnectionError(f"the handshake was ended: {error}") from error
            except ssl.SSLError as error:
                raise Unfit(f"{node.address}: {error}") from error
        steps = login.greet(options.name, options.identity, tls is not None, binding)
        sends = next(steps)
        while True:
            self.socket.sendall(sends)
            answer = self.read_frame(until)
            while answer.opcode == _wire.PING:
                answer = self.read_frame(until)
            try:
                sends = steps.send(answer)
            except StopIteration as done:
                self.hello: _wire.ServerHello = done.value
                self.features = self.hello.features
                return

    def is_usable(self, now: float) -> bool:
        """Whether the server has kept it. Nothing may have come while nobody waited."""
        if self._buffer:
            return False
        return now - self.used < _LOOK_AFTER or not self._poll.poll(0)

    def next_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def read_frame(self, until: float, watches: bool = False) -> _wire.Frame:
        """The next frame. `watches`: a silent node is asked by PING, and then given up."""
        buffer = self._buffer
        while True:
            if buffer:
                frame = _wire.read_frame(buffer)
                if frame is not None:
                    del buffer[: frame.length]
                    self._check(frame)
                    return frame
            data = self._receive(until, watches)
            if not buffer:
                frame = _wire.read_frame(data)
                if frame is not None and frame.length == len(data):
                    self._check(frame)
                    return frame
            buffer += data

    def _check(self, frame: _wire.Frame) -> None:
        if frame.request_id == 0 and frame.level_or_status:
            text = _wire.text_of(frame.body)
            status = _wire.STATUSES.get(frame.level_or_status)
            raise ConnectionError(f"the server turns the connection away: {status} {text}")

    def _receive(self, until: float, watches: bool) -> bytes:
        if watches:
            data = self._receive_watching(until)
        else:
            self._wait_until(until)
            data = self.socket.recv(_RECEIVE)
        if not data:
            raise ConnectionError("the server has ended the connection")
        return data

    def _wait_until(self, until: float) -> None:
        left = until - time.monotonic()
        if left <= 0:
            raise socket.timeout("the deadline passed")
        # Each change costs a system call; some of the deadline more or less is made good below.
        if not left <= self._timeout <= left * 1.01 + 0.001:
            self._timeout = left
            self.socket.settimeout(left)

    def _receive_watching(self, until: float) -> bytes:
        half = self._silence / 2
        for step in (1, 2):
            self._wait_until(min(until, time.monotonic() + half))
            try:
                return self.socket.recv(_RECEIVE)
            except socket.timeout:
                if time.monotonic() >= until:
                    raise
                if step == 1:
                    self.socket.sendall(_wire.frame(_wire.PING, self.next_id(), b""))
        raise _Silent("the server is silent")

    def send(self, data: bytes, until: float) -> None:
        self._wait_until(until)
        self.socket.sendall(data)

    def close(self) -> None:
        try:
            self.socket.close()
        except OSError:
            pass


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Client(Verbs):
    """A client that blocks. Threads may share it: each call has a connection for itself meanwhile.

    `addresses` is one HOST:PORT or several. Options are those of VERBS.md, times in seconds.
    """

    def __init__(self, addresses: Union[str, Sequence[str]] = "127.0.0.1:7411", **options: Any):
        addresses = [addresses] if isinstance(addresses, str) else list(addresses)
        self._core = Core(addresses, Options(**options))
        self._idle: Dict[Target, List[_Connection]] = {}
        self._lock = threading.RLock()
        self._is_closed = False
        self._schema: Optional[Schema] = None
        _clients.add(self)

    # Connections

    def connect(self) -> "Client":
        """Connects now, so that errors of addresses and logins show here. A call does it, too."""
        self._frame(_wire.PING, b"", None)
        return self

    def close(self) -> None:
        """Closes the connections. Calls of other threads that are under way end with an error."""
        self._is_closed = True
        self._drop_all()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _drop_all(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()

    def _forked(self) -> None:
        """In a child: the connections are those of the parent. No byte is sent on them."""
        self._lock = threading.RLock()
        self._core.budget._lock = threading.Lock()
        self._drop_all()

    def _take(self, call: Call) -> Optional[_Connection]:
        """A connection for a call; None if that settles the call, or another node is to be asked.
        """
        node, target = self._core.route(call)
        idle = self._idle.get(target)
        while idle:
            try:
                connection = idle.pop()
            except IndexError:
                break
            if connection.is_usable(time.monotonic()):
                return connection
            connection.close()
        if self._is_closed:
            call.fail(NotSent("the client is closed"))
            return None
        left = call.until - time.monotonic()
        if left <= 0:
            call.fail(DeadlineExceeded("the deadline passed before a connection"))
            return None
        try:
            connection = _Connection(self._core, node, target,
                                     self._core.connect_time(node, target, left))
        except (OSError, ProtocolError) as error:
            self._core.unreachable(call, node, target, error)
            return None
        except PenstockError as error:
            call.fail(error)
            return None
        if node.is_other(target, connection.hello):
            connection.close()
            error = ProtocolError("another server has the port of a core")
            self._core.unreachable(call, node, target, error)
            return None
        with self._lock:
            self._core.greeted(node, connection.hello)
        return connection

    def _put_back(self, connection: _Connection) -> None:
        if self._is_closed:
            connection.close()
            return
        connection.used = time.monotonic()
        idle = self._idle.get(connection.target)
        if idle is None:
            with self._lock:
                idle = self._idle.setdefault(connection.target, [])
        idle.append(connection)

    # Calls

    def _ask(self, call: Call) -> Any:
        self._core.begin(call)
        while True:
            pause = self._try(call)
            if call.is_settled:
                return call.result()
            if pause > 0:
                time.sleep(pause)

    def _try(self, call: Call) -> float:
        """One try: settles the call, or returns the pause before the next one."""
        connection = self._take(call)
        if connection is None:
            return 0.0
        core = self._core
        item = call.encode(connection.features, core)
        if item is None:
            self._put_back(connection)
            return 0.0
        if len(item) + 48 > connection.hello.frame_bytes_max:
            self._put_back(connection)
            call.fail(Refused(f"a request of {len(item)} bytes is too long", "TOO_LARGE"))
            return 0.0
        request_id = connection.next_id()
        answers = Answers(1)
        try:
            connection.send(_wire.frame(
                _wire.BATCH, request_id, _wire.batch_body([item]), call.level,
                call.deadline_ms(time.monotonic())), call.until)
            watches = len(core.nodes) > 1 and (call.is_read or call.takes_token)
            while answers.left:
                frame = connection.read_frame(call.until, watches)
                if frame.request_id == request_id:
                    answers.take(frame)
        except socket.timeout:
            connection.close()
            core.lost(call, connection.features, "the deadline passed before the answer", False)
            return 0.0
        except (OSError, ProtocolError, _Silent) as error:
            connection.close()
            if isinstance(error, _Silent):
                connection.node.down_until = time.monotonic() + 1.0
            return core.lost(call, connection.features, f"{connection.node.address}: {error}")
        except BaseException:
            # The caller gave it up: what still comes belongs to nobody.
            connection.close()
            raise
        self._put_back(connection)
        return core.answered(call, answers.replies[0], answers.retry_after_ms[0])

    def _frame(self, opcode: int, body: bytes, deadline: Optional[float]) -> _wire.Frame:
        """Asks a frame that is no BATCH."""
        call = Call(b"", None, lambda reply: None, 0, True)
        call.deadline = self._core.options.deadline if deadline is None else deadline
        self._core.begin(call)
        connection = None
        while connection is None:
            connection = self._take(call)
            if call.is_settled:
                call.result()
        request_id = connection.next_id()
        try:
            connection.send(_wire.frame(opcode, request_id, body), call.until)
            frame = connection.read_frame(call.until)
            while frame.request_id != request_id:
                frame = connection.read_frame(call.until)
        except socket.timeout:
            connection.close()
            raise Unknown("the deadline passed before the answer") from None
        except (OSError, ProtocolError) as error:
            connection.close()
            raise Unknown(f"{connection.node.address}: {error}") from error
        except BaseException:
            connection.close()
            raise
        self._put_back(connection)
        if frame.level_or_status:
            status = _wire.STATUSES.get(frame.level_or_status)
            raise Refused(f"{status}: {_wire.text_of(frame.body)}", status)
        return frame

    # Verbs beside those of every client

    def ping(self, *, deadline: Optional[float] = None) -> None:
        """Asks whether the server is there."""
        self._frame(_wire.PING, b"", deadline)

    def info(self, *, deadline: Optional[float] = None) -> Dict[str, Any]:
        """What the server is doing."""
        return json.loads(_wire.text_of(self._frame(_wire.INFO, b"", deadline).body))

    def schema(self, *, deadline: Optional[float] = None) -> Schema:
        """Asks for the layouts and programs of the server, and keeps them for `run`."""
        self._frame(_wire.PING, b"", deadline)
        hello = self._core.home.hello
        if hello is not None and not hello.features & _wire.RUN:
            raise Refused("the server is too old for this", "UNSUPPORTED")
        body = self._frame(_wire.INFO, (1).to_bytes(8, "little"), deadline).body
        try:
            told = json.loads(_wire.text_of(body))
        except ValueError:
            raise ProtocolError("the schema that INFO tells is no JSON") from None
        self._schema = Schema(told, self.run)
        return self._schema

    @property
    def layouts(self) -> Mapping[str, type]:
        """The layouts of the server by name, as classes."""
        return (self._schema or self.schema()).layouts

    @property
    def programs(self) -> Mapping[str, Program]:
        """The programs of the server by name, as functions."""
        return (self._schema or self.schema()).programs

    def _program(self, name: str) -> Program:
        program = self.programs.get(name) or self.schema().programs.get(name)
        if program is None:
            raise Refused(f"the server has no program {name!r}", "UNKNOWN_PROGRAM")
        return program

    def run(self, program: str, keys: Mapping[str, Bytes], arguments: Mapping[str, Any] = {}, *,
            token=None, level: Optional[str] = None, deadline: Optional[float] = None) -> Changed:
        """Runs a program of the server: `Changed`, its numbers by name."""
        known = self._program(program)
        try:
            return self._ask(self._run(known, keys, arguments, token, level, deadline))
        except Refused as error:
            if error.status != "UNKNOWN_PROGRAM":
                raise
            # The server has other files by now.
            newer = self.schema().programs.get(program)
            if newer is None or newer.id == known.id:
                raise
            return self._ask(self._run(newer, keys, arguments, token, level, deadline))

    def scan(self, prefix: Bytes = b"", *, with_values: bool = False, page_keys: int = 256,
             level: Optional[str] = None,
             deadline: Optional[float] = None) -> Iterator[_wire.PageEntry]:
        """All keys that begin with the prefix, in no order. The deadline is that of each page.

        A key that is there from begin to end comes at least once.
        """
        prefix = prefix.encode() if isinstance(prefix, str) else bytes(prefix)
        cursor, node, begun = 0, None, False
        while cursor or not begun:
            call = self._scan_step(prefix, cursor, with_values, page_keys, node, level, deadline)
            cursor, entries = self._ask(call)
            node, begun = call.node, True
            yield from entries

    def pipeline(self) -> "Pipeline":
        """Many calls in few frames: see `Pipeline`."""
        return Pipeline(self)


class Later:
    """The outcome of a call of a pipeline."""

    __slots__ = ("_call",)

    def __init__(self, call: Call):
        self._call = call

    def result(self) -> Any:
        """The outcome, or its error, when the pipeline was sent."""
        if not self._call.is_settled:
            raise RuntimeError("the pipeline is not sent yet")
        return self._call.result()

    def error(self) -> Optional[PenstockError]:
        """The error, if there is one."""
        return self._call.error


class Pipeline(Verbs):
    """Calls that leave together, each with its own outcome. It is not atomic.

        with db.pipeline() as many:
            stock, order = many.get("stock:42"), many.get("order:7")
        print(stock.result(), order.result())

    Calls on one key run in their order, unless one of them is sent again.
    """

    def __init__(self, client: Client):
        self._client = client
        self._core = client._core
        self._calls: List[Call] = []

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.send()

    def _ask(self, call: Call) -> Later:
        self._calls.append(call)
        return Later(call)

    def run(self, program: str, keys: Mapping[str, Bytes], arguments: Mapping[str, Any] = {}, *,
            token=None, level: Optional[str] = None, deadline: Optional[float] = None) -> Later:
        """Runs a program of the server."""
        known = self._client._program(program)
        return self._ask(self._run(known, keys, arguments, token, level, deadline))

    def send(self) -> List[Later]:
        """Sends all calls, and waits until each has its outcome."""
        calls, self._calls = self._calls, []
        for call in calls:
            self._core.begin(call)
        waiting = calls
        while waiting:
            pause = self._round(waiting)
            waiting = [call for call in waiting if not call.is_settled]
            if waiting and pause > 0:
                time.sleep(pause)
        return [Later(call) for call in calls]

    def _round(self, calls: List[Call]) -> float:
        """Each call is tried once. Returns the longest pause that one of them needs."""
        lanes: Dict[Tuple[Target, int, float], _Lane] = {}
        pause = 0.0
        try:
            for call in calls:
                target = self._core.route(call)[1]
                lane = lanes.get((target, call.level, call.deadline))
                if lane is None:
                    connection = self._client._take(call)
                    if connection is None:
                        continue
                    lane = lanes.setdefault((target, call.level, call.deadline),
                                            _Lane(self._core, connection))
                lane.add(call)
            for lane in lanes.values():
                lane.begin()
            for lane in lanes.values():
                pause = max(pause, lane.finish())
        except BaseException:
            for lane in lanes.values():
                lane.connection.close()
            raise
        for lane in lanes.values():
            if not lane.is_broken:
                self._client._put_back(lane.connection)
        return pause


class _Lane:
    """The calls of a pipeline that take one connection."""

    def __init__(self, core: Core, connection: _Connection):
        self.core = core
        self.connection = connection
        self.is_broken = False
        self._frames: List[Tuple[List[Call], List[bytes]]] = []
        self._frame_bytes = 1 << 62
        self._sent = 0
        #: By request id: its calls, their answers, its bytes.
        self._asked: Dict[int, Tuple[List[Call], Answers, int]] = {}
        self._under_way = 0
        self._pause = 0.0

    def add(self, call: Call) -> None:
        item = call.encode(self.connection.features, self.core)
        if item is None:
            return
        hello, size = self.connection.hello, len(item) + 8
        if size + 40 > hello.frame_bytes_max:
            call.fail(Refused(f"a request of {size} bytes is too long", "TOO_LARGE"))
            return
        most = min(_WINDOW, hello.frame_bytes_max)
        full = self._frames and len(self._frames[-1][0]) >= min(hello.items_max, _wire.ITEMS_MAX)
        if full or self._frame_bytes + size > most:
            self._frames.append(([], []))
            self._frame_bytes = 40
        self._frames[-1][0].append(call)
        self._frames[-1][1].append(item)
        self._frame_bytes += size

    def begin(self) -> None:
        """Sends what the window allows."""
        self._guarded(self._send_some)

    def finish(self) -> float:
        """Sends the rest and takes all answers; what is lost is settled or waits for a retry."""
        while not self.is_broken and (self._asked or self._sent < len(self._frames)):
            self._guarded(self._step)
        return self._pause

    def _step(self) -> None:
        self._send_some()
        until = max(call.until for calls, _, _ in self._asked.values() for call in calls)
        frame = self.connection.read_frame(until)
        asked = self._asked.get(frame.request_id)
        if asked is None:
            return
        calls, answers, size = asked
        for number in answers.take(frame):
            pause = self.core.answered(calls[number], answers.replies[number],
                                       answers.retry_after_ms[number])
            self._pause = max(self._pause, pause)
        if not answers.left:
            del self._asked[frame.request_id]
            self._under_way -= size

    def _send_some(self) -> None:
        while self._sent < len(self._frames):
            calls, items = self._frames[self._sent]
            body = _wire.batch_body(items)
            if self._under_way and self._under_way + len(body) > _WINDOW:
                return
            request_id = self.connection.next_id()
            self._asked[request_id] = (calls, Answers(len(calls)), len(body))
            self._sent += 1
            self._under_way += len(body)
            self.connection.send(
                _wire.frame(_wire.BATCH, request_id, body, calls[0].level,
                            calls[0].deadline_ms(time.monotonic())), calls[0].until)

    def _guarded(self, step) -> None:
        try:
            step()
        except (OSError, ProtocolError, _Silent) as error:
            self.is_broken = True
            self.connection.close()
            may_retry = not isinstance(error, socket.timeout)
            cause = f"{self.connection.node.address}: {error}"
            for calls, answers, _ in self._asked.values():
                for call, reply in zip(calls, answers.replies):
                    if reply is None:
                        pause = self.core.lost(call, self.connection.features, cause, may_retry)
                        self._pause = max(self._pause, pause)
            # What was not sent is not in doubt: it is tried again, unless its time is over.
            for calls, _ in self._frames[self._sent :]:
                for call in calls:
                    if time.monotonic() >= call.until:
                        call.fail(DeadlineExceeded("the deadline passed before it was sent"))
