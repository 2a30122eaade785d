"""What redis-py does when an answer is lost, as net/RETRIES.md says it. Usage: retries.py WAY PORT

Runs behind lost_answers.py, which takes the first answer to a request with DECR away. WAY is
`default`, `setting`, `watch` or `watch-default`; each sells one unit of ten.
"""

import os
import sys

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


def sell_watched(r, stock):
    """The loop of redis-py's documents: begins anew when a watched key has changed."""
    with r.pipeline() as both:
        while True:
            try:
                both.watch(stock)
                if int(both.get(stock)) < 1:
                    return
                both.multi()
                both.decr(stock)
                both.execute()
                return
            except redis.WatchError:
                continue


way, port = sys.argv[1], int(sys.argv[2])
stock = f"{{retries:{os.getpid()}}}"
settings = {} if way.endswith("default") else {"retry": Retry(NoBackoff(), 0)}
r = redis.Redis(host="127.0.0.1", port=port, **settings)
r.set(stock, 10)
try:
    sell_watched(r, stock) if way.startswith("watch") else r.decr(stock)
    answer = "an answer"
except redis.ConnectionError:
    answer = "an error"
left = int(r.get(stock))
expected = {
    "default": (8, "an answer"),
    "setting": (9, "an error"),
    "watch": (8, "an answer"),
    "watch-default": (8, "an answer"),
}[way]
assert (left, answer) == expected, f"{way}: {left} left, {answer}; not {expected}"
print(f"redis-py {redis.__version__}, {way}: {left} of 10 left, {answer}")
