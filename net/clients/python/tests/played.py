"""A server that plays what a test says: HELLO, and then the answers that the test makes."""

import pathlib
import socket
import struct
import threading

from penstock import _wire

SESSION = pathlib.Path(__file__).resolve().parents[3] / "SESSION.md"
#: All features but those of a cluster, so the answer to HELLO needs no placement.
FEATURES = (1 << 19) - 1 & ~_wire.CLUSTER


def hello_body(slots=(), features=FEATURES, time_ms=0, methods=1):
    """The body of HELLO's answer."""
    body = _wire._HELLO.pack(1, 0, 1, methods, b"c" * 16, b"n" * 16, 1, features, b"\0" * 32,
                             1 << 21, 1 << 20, 1024, 1024, 64, 0, 100, 0, len(slots),
                             time_ms.to_bytes(6, "little"))
    return body + b"".join(struct.pack("<HHHH", *each) for each in slots)


def frame(opcode, request_id, body, status=0, flags=0x01, retry_ms=0):
    """A frame of an answer."""
    head = struct.pack("<IBBBBQHHHHI", 32 + len(body), 0xE7, 1, opcode, flags, request_id, status,
                       0, 0, retry_ms, _wire._crc32(body))
    return head + struct.pack("<I", _wire._crc32(head)) + body


def item(status=0, value=b"", number=0, flags=0, version=(256, 1), instruction=0xFF):
    """An item of an answer."""
    head = struct.pack("<HBBHBBIIQ", status, 0, 2, number, instruction, flags, len(value),
                       *version)
    return head + _wire.padded(value)


def answer(request_id, *items, **kwargs):
    """The frame that answers a BATCH."""
    return frame(_wire.BATCH, request_id, _wire.batch_body(list(items)), **kwargs)


class Played:
    """Listens, says HELLO, and asks `play(frame, connection_number)` for the bytes of each answer.

    None ends the connection; a list is sent piece by piece.
    """

    def __init__(self, play, hello=None):
        self.play = play
        self.hello = hello or hello_body()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.connections = 0
        self.frames = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.talk, args=(peer, self.connections), daemon=True).start()

    def talk(self, peer, number):
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = b""
        try:
            while True:
                data = peer.recv(1 << 16)
                if not data:
                    return
                buffer += data
                while True:
                    asked = _wire.read_frame(buffer)
                    if asked is None:
                        break
                    buffer = buffer[asked.length :]
                    if asked.opcode == _wire.HELLO:
                        peer.sendall(frame(_wire.HELLO, asked.request_id, self.hello))
                        continue
                    self.frames.append(asked)
                    said = self.play(asked, number)
                    if said is None:
                        return
                    for piece in said if isinstance(said, list) else [said]:
                        peer.sendall(piece)
        except OSError:
            pass
        finally:
            peer.close()

    def close(self):
        self.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
