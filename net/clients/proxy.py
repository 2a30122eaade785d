"""A proxy that loses, delays, doubles and damages frames at named places: see SCENARIOS.md.

Usage: proxy.py HOST:PORT. It prints `proxy HOST:PORT`, then reads one JSON command a line.
"""

import asyncio
import json
import struct
import sys
import zlib

HEADER = 32
FRAMES = {0x01: "HELLO", 0x02: "PING", 0x03: "INFO", 0x13: "AUTH"}
ITEMS = {1: "GET", 2: "SET", 3: "DEL", 4: "UPDATE_IF", 5: "SCAN", 6: "GET_AT", 7: "HISTORY",
         8: "KEYSPACE", 9: "PING", 10: "APPLY", 11: "RUN"}
BATCH, HELLO = 0x10, 0x01
MORE = 0x04


def operations(frame):
    """The names of the operations of a request frame."""
    opcode = frame[6]
    if opcode != BATCH:
        return {FRAMES.get(opcode, "other")}
    names = {"any"}
    count = struct.unpack_from("<I", frame, HEADER)[0]
    for number in range(min(count, 1024)):
        at, _ = struct.unpack_from("<II", frame, HEADER + 8 + 8 * number)
        names.add(ITEMS.get(frame[HEADER + at + 2], "other"))
    return names


def sealed(frame):
    """The frame with its checksums as they have to be."""
    frame = bytearray(frame)
    struct.pack_into("<I", frame, 24, zlib.crc32(frame[HEADER:]) if len(frame) > HEADER else 0)
    struct.pack_into("<I", frame, 28, zlib.crc32(frame[:28]))
    return bytes(frame)


class Faults:
    """The faults in force, and what they have done."""

    def __init__(self):
        self.set([], {})

    def set(self, faults, hello):
        self.faults = faults
        self.hello = hello
        self.seen = {"request": {}, "answer": {}}
        self.fired = 0

    def of(self, on, names):
        """Counts a frame, and returns the fault that strikes it."""
        seen = self.seen[on]
        for name in names:
            seen[name] = seen.get(name, 0) + 1
        for fault in self.faults:
            if fault["on"] != on or fault["op"] not in names:
                continue
            nth = fault["nth"]
            numbers = nth if isinstance(nth, list) else [nth]
            if nth == "each" or seen[fault["op"]] in numbers:
                self.fired += 1
                return fault
        return None


class Proxy:
    """Listens for each port of the server that is known."""

    def __init__(self, host, port):
        self.server = (host, port)
        self.faults = Faults()
        self.ports = {}
        self.links = set()
        self.connections = 0

    async def listen(self, port):
        """The port of this proxy that leads to a port of the server."""
        if port not in self.ports:
            self.ports[port] = None
            listener = await asyncio.start_server(
                lambda reader, writer: self.accept(port, reader, writer), "127.0.0.1", 0)
            self.ports[port] = listener.sockets[0].getsockname()[1]
        while self.ports[port] is None:
            await asyncio.sleep(0.001)
        return self.ports[port]

    async def accept(self, port, reader, writer):
        self.connections += 1
        link = Link(self, reader, writer)
        self.links.add(link)
        try:
            await link.run(self.server[0], port)
        except asyncio.CancelledError:
            # The proxy ends. Who accepts a connection must not be cancelled in the eyes of asyncio.
            pass
        finally:
            self.links.discard(link)

    def end(self):
        for link in list(self.links):
            link.close()

    async def obey(self, line):
        command = json.loads(line)
        if "faults" in command or "hello" in command:
            self.faults.set(command.get("faults", []), command.get("hello", {}))
        if command.get("end"):
            self.end()
        if command.get("seen"):
            return {"seen": self.faults.seen["request"], "fired": self.faults.fired,
                    "connections": self.connections}
        return {"ok": True}


class Link:
    """A connection of a client, and the one to the server behind it."""

    def __init__(self, proxy, reader, writer):
        self.proxy = proxy
        self.client = (reader, writer)
        self.server = None
        # The operations of each request that is not answered whole, and whether its first frame
        # has come.
        self.asked = {}

    async def run(self, host, port):
        try:
            self.server = await asyncio.open_connection(host, port)
        except OSError:
            return self.close()
        ways = [asyncio.ensure_future(self.carry("request", self.client[0], self.server[1])),
                asyncio.ensure_future(self.carry("answer", self.server[0], self.client[1]))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        self.close()
        await asyncio.gather(*ways, return_exceptions=True)

    def close(self):
        for side in (self.client, self.server):
            if side:
                side[1].close()

    async def carry(self, on, reader, writer):
        """Carries frames one way until one end is closed."""
        try:
            while True:
                head = await reader.readexactly(HEADER)
                length = struct.unpack_from("<I", head)[0]
                if head[4] != 0xE7 or length < HEADER:
                    return await self.carry_rest(head, reader, writer)
                frame = head + await reader.readexactly(length - HEADER)
                if not await self.forward(on, frame, writer):
                    return
        except asyncio.IncompleteReadError as rest:
            # What is no whole frame is passed on as it is.
            writer.write(rest.partial)
        except (OSError, ConnectionError):
            pass

    async def carry_rest(self, head, reader, writer):
        writer.write(head)
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()

    async def forward(self, on, frame, writer):
        """Passes a frame on, or has its fault done. False: the connection is over."""
        fault = self.fault_of(on, frame)
        if on == "answer" and frame[6] == HELLO and len(frame) >= HEADER + 120:
            frame = await self.change_hello(frame)
        todo = fault["do"] if fault else "pass"
        if todo == "close":
            return False
        if todo == "drop":
            return True
        if todo == "cut":
            writer.write(frame[: fault["bytes"]])
            await writer.drain()
            return False
        if todo == "delay":
            await asyncio.sleep(fault["ms"] / 1000)
        if todo == "damage":
            frame = frame[:-1] + bytes([frame[-1] ^ 0xFF])
        writer.write(frame * 2 if todo == "double" else frame)
        await writer.drain()
        return True

    def fault_of(self, on, frame):
        faults = self.proxy.faults
        request_id = struct.unpack_from("<Q", frame, 8)[0]
        if on == "request":
            names = operations(frame)
            self.asked[request_id] = names
            return faults.of(on, names)
        names = self.asked.get(request_id, set())
        if frame[7] & MORE:
            self.asked[request_id] = set()
        else:
            self.asked.pop(request_id, None)
        return faults.of(on, names)

    async def change_hello(self, frame):
        """HELLO with the ports of this proxy, and with the changes that a scenario asks for."""
        frame = bytearray(frame)
        changes = self.proxy.faults.hello
        body = HEADER
        features = struct.unpack_from("<Q", frame, body + 48)[0]
        for bit in changes.get("features_off", []):
            features &= ~(1 << bit)
        struct.pack_into("<Q", frame, body + 48, features)
        time = int.from_bytes(frame[body + 114 : body + 120], "little")
        if time:
            time += changes.get("time_add_ms", 0)
            frame[body + 114 : body + 120] = time.to_bytes(6, "little")
        for number in range(struct.unpack_from("<H", frame, body + 112)[0]):
            at = body + 120 + 8 * number + 6
            port = struct.unpack_from("<H", frame, at)[0]
            named = 1 if changes.get("ports") == "closed" else await self.proxy.listen(port)
            struct.pack_into("<H", frame, at, named)
        return sealed(frame)


async def main(address):
    host, port = address.rsplit(":", 1)
    proxy = Proxy(host, int(port))
    print(f"proxy 127.0.0.1:{await proxy.listen(int(port))}", flush=True)
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        print(json.dumps(await proxy.obey(line)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
