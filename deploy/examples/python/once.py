"""A write that counts once, whoever sends it again. Usage: once.py PORT sells seven of ten units.

`once` makes the token before the first try, and each try has it: those of the caller, and those of
redis-py, which sends a whole pipeline again. KV.OPTS and the write leave in one pipeline: a client
that connects anew in between would send the write alone, without a token.
"""

import os
import sys
import time

import redis


def new_token():
    """A UUID of version 7: the name of one write, the same for each try."""
    digits = f"{int(time.time() * 1000):012x}7{os.urandom(2).hex()[1:]}8{os.urandom(8).hex()[1:]}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def once(r, *command, token=None, tries=3):
    """Executes one write of one key once, and returns its answer. Give the token of an order that
    outlives this process: who asks again after a restart then gets the first answer, too."""
    token = token or new_token()
    while True:
        try:
            both = r.pipeline(transaction=False)
            both.execute_command("KV.OPTS", f"token={token}")
            both.execute_command(*command)
            return both.execute()[1]
        except redis.ConnectionError:
            tries -= 1
            if tries == 0:
                raise


def main(port):
    r = redis.Redis(host="127.0.0.1", port=port)
    stock = f"{{once:python:{os.getpid()}}}"
    r.set(stock, 10)
    answers = [int(once(r, "DECR", stock)) for _ in range(6)]
    assert answers == [9, 8, 7, 6, 5, 4], answers
    assert r.get(stock) == b"4"
    token = new_token()
    assert once(r, "DECR", stock, token=token) == once(r, "DECR", stock, token=token) == 3
    print(f"redis-py {redis.__version__}: seven writes, each once")


main(int(sys.argv[1]))
