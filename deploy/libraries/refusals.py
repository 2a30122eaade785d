"""A way to the server that notes the first command that it refuses.

A program connects to `Passage.port`, and what it says goes on to the server. Its scripts are kept,
because the server names no command that a script calls: it names the line of the call.
"""

import hashlib
import re
import socket
import threading

UNKNOWN = re.compile(rb"-ERR unknown command '([^']*)'")
SUBCOMMAND = re.compile(rb"-ERR unknown subcommand '([^']*)'\. Try ([A-Z]+) HELP")
IN_SCRIPT = re.compile(
    rb"-ERR (?:Unknown command called|This \w+ command is not allowed) from script"
    rb"[^\r]*on @user_script:(\d+)"
)
SLOTS = re.compile(rb"-CROSSSLOT ")
CALL = re.compile(rb"""call\s*\(\s*['"](\w+)['"]""", re.IGNORECASE)
HASH = re.compile(rb"\$\d+\r\nEVALSHA(?:_RO)?\r\n\$40\r\n([0-9a-f]{40})\r\n", re.IGNORECASE)
TEXT = re.compile(
    rb"(?:\$\d+\r\nEVAL(?:_RO)?|\$\d+\r\nSCRIPT\r\n\$\d+\r\nLOAD)\r\n\$(\d+)\r\n", re.IGNORECASE
)
# What clients ask for and do without.
PROBES = {"CLIENT MAINT_NOTIFICATIONS", "CLIENT SETINFO", "CLIENT CAPA"}
# Of what a program has sent, so much is kept to find the script of an error.
SENT_BYTES_MAX = 1 << 20


class Passage:
    def __init__(self, port, is_known):
        self.to = port
        self.is_known = is_known
        self.refused = None
        # Redisson tries keys of two slots and does without.
        self.is_crossed = False
        self.texts = {}
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.to))
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sent = bytearray()
            for pair in ((client, server, sent, self.note_sent), (server, client, sent, self.note)):
                threading.Thread(target=self.carry, args=pair, daemon=True).start()

    def carry(self, source, target, sent, note):
        last = b""
        try:
            while data := source.recv(65_536):
                # An error that is cut in two is found with what came before it.
                note(sent, last + data, data)
                target.sendall(data)
                last = data[-512:]
        except OSError:
            pass
        for side in (source, target):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def note_sent(self, sent, _, data):
        sent += data
        del sent[:-SENT_BYTES_MAX]
        if b"EVAL" in data.upper() or b"SCRIPT" in data.upper():
            self.keep_texts(sent)

    def keep_texts(self, sent):
        for found in TEXT.finditer(bytes(sent)):
            text = bytes(sent[found.end() : found.end() + int(found[1])])
            self.texts[hashlib.sha1(text).hexdigest().encode()] = text

    def note(self, sent, answer, _):
        if self.refused is not None:
            return
        if found := UNKNOWN.search(answer):
            self.refused = found[1].decode().upper()
        elif found := SUBCOMMAND.search(answer):
            named = f"{found[2].decode()} {found[1].decode().upper()}"
            self.refused = None if named in PROBES else named
        elif found := IN_SCRIPT.search(answer):
            self.refused = self.call_at(sent, int(found[1]))
        elif SLOTS.search(answer):
            self.is_crossed = True

    def call_at(self, sent, line):
        """The first command of this line that the server does not know, or the first."""
        self.keep_texts(sent)
        asked = [self.texts.get(digest) for digest in HASH.findall(bytes(sent))]
        texts = [text for text in asked if text] or list(self.texts.values())
        for text in reversed(texts):
            lines = text.split(b"\n")
            here = b"\n".join(lines[line - 1 : line + 1]) if line <= len(lines) else b""
            calls = [name.decode().upper() for name in CALL.findall(here)]
            if calls:
                unknown = [name for name in calls if not self.is_known(name)]
                return f"{(unknown or calls)[0]} in a script"
        return "a command in a script"
