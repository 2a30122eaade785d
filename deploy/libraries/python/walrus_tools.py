"""walrus: Cache, Counter, Lock and a rate limit"""

import os

from walrus import Walrus

shop = Walrus(port=int(os.environ["PORT"]))
cache = shop.cache(name="shop")
made = []


@cache.cached(timeout=60)
def price(units):
    made.append(units)
    return units * 7


assert price(6) == price(6) == 42 and made == [6]
shop.lock("sale", ttl=10_000).acquire()
limit = shop.rate_limit("buy", limit=2, per=60)
assert [limit.limit("ann") for _ in range(3)] == [False, False, True]
