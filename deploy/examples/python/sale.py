"""A ticket sale with redis-py: 60 buyers want 20 tickets, each may have one, and each asks twice, as
a client does that got no answer. Usage: sale.py PORT

redis-py sends a command again by itself when its answer is lost: up to ten times, and a DECR counts
each time. So each purchase has a token. To have redis-py send nothing twice:
redis.Redis(retry=Retry(NoBackoff(), 0))."""

import os
import sys
import threading
import time

import redis

TICKETS, BUYERS = 20, 60
SALE = f"{{sale:python:{os.getpid()}}}"  # all keys of a sale are of one slot


def new_token():
    """A UUID of version 7: the name of one purchase, the same for each try."""
    digits = f"{int(time.time() * 1000):012x}7{os.urandom(2).hex()[1:]}8{os.urandom(8).hex()[1:]}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def buy(r, buyer, token, tries=3):
    """Sells a ticket, or says why not. All of it happens, or nothing does. Without an answer it asks
    again with the same token: what was executed is answered, and not executed again."""
    while True:
        try:
            return ask(r, buyer, token)
        except redis.ConnectionError:
            tries -= 1
            if tries == 0:
                raise


def ask(r, buyer, token):
    told = r.execute_command(
        "KV.APPLY", f"{SALE}:stock", "KEY", f"{SALE}:buyer:{buyer}", "TOKEN", token,
        "k2 absent else 1",  # one for each buyer
        "k1.decimal >= 1 else 2",  # none is left
        "k1.decimal -= 1",
        "k2 put", "one ticket",
    )  # fmt: skip
    return {name.decode(): value for name, value in told.items()}


def main(port):
    # Without decode_responses: values are bytes. The u32 100 happens to be UTF-8, and the u32 200
    # is not: decode_responses=True raises at it, on the day on which the stock is so large.
    r = redis.Redis(host="127.0.0.1", port=port, protocol=3)
    stock = (200).to_bytes(4, "little")
    r.set(f"{SALE}:u32", stock)
    assert r.get(f"{SALE}:u32") == stock
    r.set(f"{SALE}:stock", TICKETS)
    answers = {}

    def run(buyer):
        token = new_token()
        first, again = buy(r, buyer, token), buy(r, buyer, token)
        answers[buyer] = (first, again)

    threads = [threading.Thread(target=run, args=(buyer,)) for buyer in range(BUYERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    sold = [buyer for buyer, (first, _) in answers.items() if first["status"] == b"OK"]
    assert len(answers) == BUYERS and len(sold) == TICKETS, f"{len(sold)} tickets were sold"
    assert r.get(f"{SALE}:stock") == b"0"
    for buyer, (first, again) in answers.items():
        if buyer in sold:
            # The second try bought nothing: it got the first answer again.
            assert again["replayed"] == 1 and again["numbers"] == first["numbers"]
            assert r.get(f"{SALE}:buyer:{buyer}") == b"one ticket"
        else:
            assert first["reason"] == again["reason"] == 2
            assert not r.exists(f"{SALE}:buyer:{buyer}")
    # A buyer who has a ticket gets no second one, with whatever token.
    assert buy(r, sold[0], new_token())["reason"] == 1
    print(f"redis-py {redis.__version__}: {TICKETS} tickets, {BUYERS} buyers, each asked twice")


main(int(sys.argv[1]))
