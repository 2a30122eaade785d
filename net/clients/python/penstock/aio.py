"""The asyncio client: one connection to each core, which all tasks share.

    db = await penstock.aio.connect("127.0.0.1:7411")
    stock, order = await asyncio.gather(db.get("stock:42"), db.get("order:7"))

Calls that begin in one turn of the event loop leave in one frame, so `asyncio.gather` is the
pipeline. A task may be cancelled in the middle of a call: its answer reaches nobody else.
"""

import asyncio
import json
import os
import ssl
import time
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _wire, login
from ._core import Answers, Call, Core, Node, Options
from ._verbs import Bytes, Verbs
from .errors import Busy, DeadlineExceeded, NotSent, PenstockError, ProtocolError, Refused, Unfit
from .errors import Unknown
from .programs import Program, Schema
from .tls import binding_of

Target = Tuple[str, int]
#: Calls that may wait or be under way on one connection; beyond it the answer is Busy.
_PENDING_MAX = 16 * 1024
#: A connection that was silent is kept for so long for writes that wait for it, in seconds.
_SPARED_MAX = 66


class _Link(asyncio.Protocol):
    """A connection, and the calls that wait for answers on it."""

    def __init__(self, core: Core, node: Node, target: Target):
        self.core = core
        self.node = node
        self.target = target
        self.loop = asyncio.get_running_loop()
        self.transport: Any = None
        self.features = 0
        self.hello: Optional[_wire.ServerHello] = None
        self.is_open = True
        self._buffer = bytearray()
        self._next_id = 16
        self._refusal: Optional[PenstockError] = None
        #: The frames that are read before the connection is open, or are no BATCH.
        self._frames: "asyncio.Queue[_wire.Frame]" = asyncio.Queue()
        self._single: Dict[int, asyncio.Future] = {}
        self._queue: List[Tuple[Call, bytes, asyncio.Future]] = []
        self._asked: Dict[int, Tuple[List[asyncio.Future], Answers]] = {}
        self._pending = 0
        self._is_scheduled = self._is_paused = False
        self._heard = self._probed = 0.0
        self._watch: Optional[asyncio.TimerHandle] = None

    # Of asyncio.Protocol

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._heard, self._probed = self.loop.time(), 0.0
        buffer = self._buffer
        if buffer:
            buffer += data
            data = buffer
        at = 0
        try:
            while True:
                frame = _wire.read_frame(data, at)
                if frame is None:
                    break
                at += frame.length
                self._take(frame)
        except PenstockError as error:
            self._refusal = error
            self.end(f"{self.node.address}: {error}")
            return
        if data is buffer:
            del buffer[:at]
        else:
            buffer += data[at:]

    def connection_lost(self, error: Optional[Exception]) -> None:
        self.end(f"{self.node.address}: {error or 'the server has ended the connection'}")

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._schedule()

    # Frames

    def _take(self, frame: _wire.Frame) -> None:
        if frame.request_id == 0 and frame.level_or_status:
            status = _wire.STATUSES.get(frame.level_or_status)
            raise ProtocolError(f"the server turns the connection away: {status} "
                                f"{_wire.text_of(frame.body)}")
        if self.hello is None:
            self._frames.put_nowait(frame)
            return
        single = self._single.pop(frame.request_id, None)
        if single is not None:
            if not single.done():
                single.set_result(frame)
            return
        asked = self._asked.get(frame.request_id)
        if asked is None:
            return
        futures, answers = asked
        numbers = answers.take(frame)
        if not answers.left:
            del self._asked[frame.request_id]
            if not self._asked and not self.is_open:
                self.transport.abort()
        self._pending -= len(numbers)
        for number in numbers:
            if not futures[number].done():
                futures[number].set_result(
                    (answers.replies[number], answers.retry_after_ms[number]))

    async def greet(self, binding: Optional[bytes]) -> None:
        """Says HELLO and logs in."""
        options = self.core.options
        steps = login.greet(options.name, options.identity, options.tls is not None, binding)
        sends = next(steps)
        while True:
            self.transport.write(sends)
            answer = await self._frames.get()
            if answer is None:
                raise self._refusal or ConnectionError("the server has ended the connection")
            try:
                sends = steps.send(answer)
            except StopIteration as done:
                self.hello = done.value
                self.features = done.value.features
                return

    def submit(self, call: Call, item: bytes) -> asyncio.Future:
        """Sends an item in this turn of the loop. The future has the reply."""
        future = self.loop.create_future()
        self._queue.append((call, item, future))
        self._pending += 1
        if not self._is_scheduled and not self._is_paused:
            self._schedule()
        return future

    @property
    def is_full(self) -> bool:
        """Whether too much waits here."""
        return self._pending >= _PENDING_MAX

    def _schedule(self) -> None:
        self._is_scheduled = True
        self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        queue, self._queue = self._queue, []
        if not self.is_open:
            return
        now = time.monotonic()
        groups: Dict[Tuple[int, int], Tuple[List[bytes], List[asyncio.Future]]] = {}
        sizes: Dict[Tuple[int, int], int] = {}
        for call, item, future in queue:
            if future.done():
                # It was cancelled before it was sent.
                self._pending -= 1
                continue
            left = call.deadline_ms(now)
            # One frame has one deadline: long ones are cut to a tenth of a second.
            key = (call.level, left if left < 1000 else left - left % 100)
            size = sizes.get(key, 40) + len(item) + 8
            if key in groups and (size > self.hello.frame_bytes_max
                                  or len(groups[key][0]) >= min(1024, self.hello.items_max)):
                self._send(*key, *groups.pop(key))
                size = 48 + len(item)
            sizes[key] = size
            items, futures = groups.setdefault(key, ([], []))
            items.append(item)
            futures.append(future)
        for key, group in groups.items():
            self._send(*key, *group)

    def _send(self, level: int, deadline_ms: int, items: List[bytes],
              futures: List[asyncio.Future]) -> None:
        self._next_id += 1
        self._asked[self._next_id] = (futures, Answers(len(items)))
        for future in futures:
            # From here on the item may be executed.
            future.was_sent = True
        self.transport.write(_wire.frame(_wire.BATCH, self._next_id, _wire.batch_body(items),
                                         level, deadline_ms))
        if len(self.core.nodes) > 1 and self._watch is None:
            self._heard = self.loop.time()
            self._watch_later()

    async def ask_frame(self, opcode: int, body: bytes) -> _wire.Frame:
        """Asks a frame that is no BATCH."""
        self._next_id += 1
        request_id = self._next_id
        future = self.loop.create_future()
        self._single[request_id] = future
        self.transport.write(_wire.frame(opcode, request_id, body))
        try:
            return await future
        finally:
            self._single.pop(request_id, None)

    # Silence: one of several nodes that owes an answer and says nothing

    def _watch_later(self) -> None:
        self._watch = self.loop.call_later(self.core.options.silence_max / 4, self._look)

    def _look(self) -> None:
        self._watch = None
        if not self._asked or not self.is_open:
            return
        now, half = self.loop.time(), self.core.options.silence_max / 2
        if self._probed and now - self._probed >= half:
            self.node.down_until = time.monotonic() + 1.0
            self.end(f"{self.node.address}: the server is silent", spares_plain_writes=True)
            return
        if not self._probed and now - self._heard >= half:
            self._probed = now
            self._next_id += 1
            self.transport.write(_wire.frame(_wire.PING, self._next_id, b""))
        self._watch_later()

    def end(self, cause: str, spares_plain_writes: bool = False) -> None:
        """The connection is over: whoever waits for an answer is told so.

        `spares_plain_writes`: the node is silent and may answer yet, so writes without a token wait
        for it until their deadline.
        """
        waiting = [future for futures, _ in self._asked.values() for future in futures]
        waiting += [future for _, _, future in self._queue]
        if spares_plain_writes:
            waiting = [future for future in waiting if getattr(future, "may_repeat", False)]
            self.loop.call_later(_SPARED_MAX, self.transport.abort)
        else:
            self._asked, self._queue = {}, []
            if self.transport is not None:
                self.transport.abort()
        self.is_open = False
        self._frames.put_nowait(None)
        for future in [*waiting, *self._single.values()]:
            if not future.done():
                future.set_exception(ConnectionError(cause))


class AsyncClient(Verbs):
    """A client for asyncio. Each verb is awaited; the names are those of `Client`.

    Its connections belong to the running event loop. Behind a fork, or in a new loop when the old
    one is over, it makes new ones.
    """

    def __init__(self, addresses: Union[str, Sequence[str]] = "127.0.0.1:7411", **options: Any):
        addresses = [addresses] if isinstance(addresses, str) else list(addresses)
        self._core = Core(addresses, Options(**options))
        self._links: Dict[Target, "asyncio.Future[_Link]"] = {}
        self._owner: Tuple[Any, int] = (None, 0)
        self._is_closed = False
        self._schema: Optional[Schema] = None

    # Connections

    async def connect(self) -> "AsyncClient":
        """Connects now, so that errors of addresses and logins show here. A call does it, too."""
        await self.ping()
        return self

    async def close(self) -> None:
        """Closes the connections. Calls that are under way end with an error."""
        self._is_closed = True
        links, self._links = self._links, {}
        for opening in links.values():
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().end("the client is closed")
            else:
                opening.cancel()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    def _own(self) -> Any:
        """The running loop, which the connections belong to from here on."""
        loop = asyncio.get_running_loop()
        if self._owner[0] is not loop or self._owner[1] != os.getpid():
            before, process = self._owner
            if before is not None and process == os.getpid() and before.is_running():
                raise RuntimeError("the client belongs to another event loop, which is running")
            self._owner = (loop, os.getpid())
            self._links = {}
        return loop

    def _link(self, loop: Any, node: Node, target: Target, left: float) -> asyncio.Future:
        """The connection to an address, or the task that opens it for all who want it."""
        opening = self._links.get(target)
        if opening is not None and opening.done():
            is_over = opening.cancelled() or opening.exception() is not None
            if is_over or not opening.result().is_open:
                opening = None
        if opening is None:
            limit = self._core.connect_time(node, target, left)
            opening = loop.create_task(self._open(node, target, limit))
            # Nobody may be left who waits for it.
            opening.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._links[target] = opening
        return opening

    async def _open(self, node: Node, target: Target, limit: float) -> _Link:
        return await asyncio.wait_for(self._open_link(node, target), limit)

    async def _open_link(self, node: Node, target: Target) -> _Link:
        loop, core = asyncio.get_running_loop(), self._core
        link, tls, binding = _Link(core, node, target), core.options.tls, None
        try:
            if tls is None:
                await loop.create_connection(lambda: link, *target)
            elif core.options.identity is None:
                await loop.create_connection(lambda: link, *target, ssl=tls.shared(),
                                             server_hostname=tls.server_name or node.host)
            else:
                with binding_of(tls) as bound:
                    transport, _ = await loop.create_connection(
                        lambda: link, *target, ssl=bound.context,
                        server_hostname=tls.server_name or node.host)
                    binding = bound.read(transport.get_extra_info("ssl_object"))
            await link.greet(binding)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            link.end("no TLS")
            raise ConnectionError(f"the handshake was ended: {error}") from error
        except ssl.SSLError as error:
            link.end("no TLS")
            raise Unfit(f"{node.address}: {error}") from error
        except BaseException:
            link.end("it was not opened")
            raise
        if node.is_other(target, link.hello):
            link.end("another server has the port of a core")
            raise ConnectionError("another server has the port of a core")
        core.greeted(node, link.hello)
        return link

    async def _take(self, call: Call) -> Optional[_Link]:
        """An open connection for a call; None if that settles it, or another node is to be asked.
        """
        if self._is_closed:
            call.fail(NotSent("the client is closed"))
            return None
        loop = self._own()
        node, target = self._core.route(call)
        left = call.until - time.monotonic()
        if left <= 0:
            call.fail(DeadlineExceeded("the deadline passed before it was sent"))
            return None
        opening = self._link(loop, node, target, left)
        if opening.done() and opening.exception() is None:
            return opening.result()
        try:
            return await asyncio.wait_for(asyncio.shield(opening), left)
        except asyncio.CancelledError:
            if not opening.cancelled():
                raise
            call.fail(NotSent("the client is closed"))
        except (OSError, ProtocolError, asyncio.TimeoutError) as error:
            self._core.unreachable(call, node, target, error)
        except PenstockError as error:
            call.fail(error)
        return None

    # Calls

    async def _ask(self, call: Call) -> Any:
        self._core.begin(call)
        while True:
            pause = await self._try(call)
            if call.is_settled:
                return call.result()
            if pause > 0:
                await asyncio.sleep(pause)

    async def _try(self, call: Call) -> float:
        """One try: settles the call, or returns the pause before the next one."""
        link = await self._take(call)
        if link is None:
            return 0.0
        core = self._core
        item = call.encode(link.features, core)
        if item is None:
            return 0.0
        if len(item) + 48 > link.hello.frame_bytes_max:
            call.fail(Refused(f"a request of {len(item)} bytes is too long", "TOO_LARGE"))
            return 0.0
        if link.is_full:
            call.fail(Busy(f"{_PENDING_MAX} calls are pending, which is the limit"))
            return 0.0
        future = link.submit(call, item)
        future.may_repeat = call.is_read or call.takes_token
        left = call.until - time.monotonic()
        timer = link.loop.call_later(max(left, 0), _time_is_over, future)
        try:
            reply, retry_after_ms = await future
        except asyncio.TimeoutError:
            if not getattr(future, "was_sent", False):
                call.fail(DeadlineExceeded("the deadline passed before it was sent"))
                return 0.0
            return core.lost(call, link.features, "the deadline passed before the answer", False)
        except ConnectionError as error:
            if not getattr(future, "was_sent", False):
                return 0.0
            return core.lost(call, link.features, str(error))
        finally:
            timer.cancel()
        return core.answered(call, reply, retry_after_ms)

    async def _frame(self, opcode: int, body: bytes, deadline: Optional[float]) -> _wire.Frame:
        """Asks a frame that is no BATCH."""
        call = Call(b"", None, lambda reply: None, 0, True)
        call.deadline = self._core.options.deadline if deadline is None else deadline
        self._core.begin(call)
        link = None
        while link is None:
            link = await self._take(call)
            if call.is_settled:
                call.result()
        try:
            left = call.until - time.monotonic()
            frame = await asyncio.wait_for(link.ask_frame(opcode, body), left)
        except asyncio.TimeoutError:
            raise Unknown("the deadline passed before the answer") from None
        except ConnectionError as error:
            raise Unknown(str(error)) from error
        if frame.level_or_status:
            status = _wire.STATUSES.get(frame.level_or_status)
            raise Refused(f"{status}: {_wire.text_of(frame.body)}", status)
        return frame

    # Verbs beside those of every client

    async def ping(self, *, deadline: Optional[float] = None) -> None:
        """Asks whether the server is there."""
        await self._frame(_wire.PING, b"", deadline)

    async def info(self, *, deadline: Optional[float] = None) -> Dict[str, Any]:
        """What the server is doing."""
        return json.loads(_wire.text_of((await self._frame(_wire.INFO, b"", deadline)).body))

    async def schema(self, *, deadline: Optional[float] = None) -> Schema:
        """Asks for the layouts and programs of the server, and keeps them for `run`."""
        await self.ping(deadline=deadline)
        hello = self._core.home.hello
        if hello is not None and not hello.features & _wire.RUN:
            raise Refused("the server is too old for this", "UNSUPPORTED")
        frame = await self._frame(_wire.INFO, (1).to_bytes(8, "little"), deadline)
        try:
            told = json.loads(_wire.text_of(frame.body))
        except ValueError:
            raise ProtocolError("the schema that INFO tells is no JSON") from None
        self._schema = Schema(told, self.run)
        return self._schema

    async def layouts(self) -> Mapping[str, type]:
        """The layouts of the server by name, as classes."""
        return (self._schema or await self.schema()).layouts

    async def programs(self) -> Mapping[str, Program]:
        """The programs of the server by name, as functions to await."""
        return (self._schema or await self.schema()).programs

    async def run(self, program: str, keys: Mapping[str, Bytes],
                  arguments: Mapping[str, Any] = {}, *, token=None, level: Optional[str] = None,
                  deadline: Optional[float] = None) -> Any:
        """Runs a program of the server: `Changed`, its numbers by name."""
        known = (await self.programs()).get(program)
        if known is None:
            known = (await self.schema()).programs.get(program)
        if known is None:
            raise Refused(f"the server has no program {program!r}", "UNKNOWN_PROGRAM")
        try:
            return await self._ask(self._run(known, keys, arguments, token, level, deadline))
        except Refused as error:
            if error.status != "UNKNOWN_PROGRAM":
                raise
            # The server has other files by now.
            newer = (await self.schema()).programs.get(program)
            if newer is None or newer.id == known.id:
                raise
            return await self._ask(self._run(newer, keys, arguments, token, level, deadline))

    async def scan(self, prefix: Bytes = b"", *, with_values: bool = False, page_keys: int = 256,
                   level: Optional[str] = None,
                   deadline: Optional[float] = None) -> AsyncIterator[_wire.PageEntry]:
        """All keys that begin with the prefix, in no order. The deadline is that of each page."""
        prefix = prefix.encode() if isinstance(prefix, str) else bytes(prefix)
        cursor, node, begun = 0, None, False
        while cursor or not begun:
            call = self._scan_step(prefix, cursor, with_values, page_keys, node, level, deadline)
            cursor, entries = await self._ask(call)
            node, begun = call.node, True
            for entry in entries:
                yield entry


def _time_is_over(future: asyncio.Future) -> None:
    if not future.done():
        future.set_exception(asyncio.TimeoutError())


async def connect(addresses: Union[str, Sequence[str]] = "127.0.0.1:7411",
                  **options: Any) -> AsyncClient:
    """An asyncio client that is connected."""
    return await AsyncClient(addresses, **options).connect()
