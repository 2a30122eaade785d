"""redis: client-side caching (CacheConfig), a write of another client is seen"""

import os
import time

import redis
from redis.cache import CacheConfig

PORT = int(os.environ["PORT"])
cached = redis.Redis(port=PORT, protocol=3, cache_config=CacheConfig(), decode_responses=True)
other = redis.Redis(port=PORT)
other.set("price", "10")
assert cached.get("price") == "10" and cached.get("price") == "10"
assert cached.get_cache().size == 1
other.set("price", "12")
deadline = time.monotonic() + 10
while cached.get("price") != "12":
    assert time.monotonic() < deadline, "the old price is still shown"
cached.close()
