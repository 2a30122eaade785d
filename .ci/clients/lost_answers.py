"""Runs a client of Redis behind a proxy that takes some answers away. Usage:
lost_answers.py PORT WORD[@READS] COMMAND... : the command gets the port of the proxy as its last
argument.

A request with the word in it reaches the server, and the server answers; then the proxy closes the
connection in place of the answer: at the first, second and fifth such request, or at those that
READS numbers. So the write was executed, and its client does not know that. Ends as the command does, and with 1 if fewer answers were lost.
"""

import socket
import subprocess
import sys
import threading

WORD, _, READS = sys.argv[2].partition("@")
WORD = WORD.encode()
# Which reads with the word lose their answer, counted over all connections.
LOST = [int(read) for read in (READS or "1,2,5").split(",")]


class Proxy:
    def __init__(self, port):
        self.port = port
        self.lock = threading.Lock()
        self.seen = self.lost = 0
        self.listener = socket.create_server(("127.0.0.1", 0))

    def serve(self):
        while True:
            peer, _ = self.listener.accept()
            threading.Thread(target=self.pass_on, args=(peer,), daemon=True).start()

    def is_lost(self, data):
        with self.lock:
            self.seen += WORD in data
            lost = WORD in data and self.seen in LOST
            self.lost += lost
            return lost

    def pass_on(self, peer):
        server = socket.create_connection(("127.0.0.1", self.port))
        ends = threading.Event()

        def requests():
            try:
                while data := peer.recv(1 << 16):
                    if self.is_lost(data):
                        ends.set()
                    server.sendall(data)
                server.shutdown(socket.SHUT_WR)
            except OSError:
                pass

        threading.Thread(target=requests, daemon=True).start()
        try:
            while data := server.recv(1 << 16):
                if ends.is_set():
                    break
                peer.sendall(data)
        except OSError:
            pass
        for side in (peer, server):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            side.close()


proxy = Proxy(int(sys.argv[1]))
threading.Thread(target=proxy.serve, daemon=True).start()
code = subprocess.call([*sys.argv[3:], str(proxy.listener.getsockname()[1])])
if proxy.lost < len(LOST):
    sys.exit(code or f"only {proxy.lost} answers were lost")
print(f"  with {proxy.lost} lost answers")
sys.exit(code)
