"""cachelib: RedisCache: add, inc, set_many, delete_many, clear"""

import os

from cachelib import RedisCache

cache = RedisCache(port=int(os.environ["PORT"]), key_prefix="shop:", default_timeout=60)
assert cache.set("price", [1, 2]) and cache.get("price") == [1, 2]
assert cache.add("hold", "ann") and not cache.add("hold", "bob")
assert cache.inc("units", 3) == 3 and cache.dec("units") == 2
assert cache.set_many({"a": 1, "b": 2}) and cache.get_dict("a", "b") == {"a": 1, "b": 2}
assert cache.has("a") and cache.delete_many("a", "b") and not cache.has("a")
assert cache.clear() and cache.get("price") is None
