"""django-redis: cache with nx, ttl, lock, incr, set_many, iter_keys and delete_pattern"""

import os

from django.conf import settings

URL = f"redis://127.0.0.1:{os.environ['PORT']}/0"
settings.configure(
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": URL}}
)

from django.core.cache import cache  # noqa: E402

assert cache.set("hold:1", "ann", timeout=60, nx=True) and not cache.set("hold:1", "bob", nx=True)
assert 0 < cache.ttl("hold:1") <= 60 and cache.persist("hold:1") and cache.ttl("hold:1") is None
assert cache.expire("hold:1", timeout=30) and cache.set("units", 7) and cache.incr("units") == 8
with cache.lock("sale", timeout=10):
    assert not cache.lock("sale", timeout=10).acquire(blocking=False)
cache.set_many({"hold:2": "bob", "hold:3": "eve"}, timeout=60)
assert sorted(cache.iter_keys("hold:*")) == ["hold:1", "hold:2", "hold:3"]
cache.close()
assert cache.get_many(["hold:2", "hold:3", "none"]) == {"hold:2": "bob", "hold:3": "eve"}
assert cache.delete_pattern("hold:*") == 3 and cache.get("units") == 8
cache.clear()
assert cache.get("units") is None
