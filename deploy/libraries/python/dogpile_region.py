"""dogpile.cache: a region with a distributed lock, get_or_create_multi and invalidation"""

import os

from dogpile.cache import make_region

region = make_region().configure(
    "dogpile.cache.redis",
    expiration_time=60,
    arguments={
        "port": int(os.environ["PORT"]),
        "redis_expiration_time": 120,
        "distributed_lock": True,
        "thread_local_lock": False,
        "lock_timeout": 10,
    },
)
made = []


@region.cache_on_arguments()
def price(units):
    made.append(units)
    return units * 7


assert price(6) == price(6) == 42 and made == [6]
price.invalidate(6)
assert price(6) == 42 and made == [6, 6]
assert region.get_or_create_multi(["a", "b"], lambda *keys: [key * 2 for key in keys]) == [
    "aa",
    "bb",
]
assert region.get_multi(["a", "b", "none"])[:2] == ["aa", "bb"]
region.delete_multi(["a", "b"])
assert not region.get("a")
