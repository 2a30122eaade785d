"""django: the built-in RedisCache: set, add, incr, get_or_set, set_many, touch, clear"""

import os

from django.conf import settings

URL = f"redis://127.0.0.1:{os.environ['PORT']}"
BACKEND = "django.core.cache.backends.redis.RedisCache"
settings.configure(CACHES={"default": {"BACKEND": BACKEND, "LOCATION": URL}})

from django.core.cache import cache  # noqa: E402

cache.set("product", {"name": "boot", "price": 10}, timeout=60)
assert cache.get("product")["price"] == 10 and cache.get("none", "else") == "else"
assert cache.add("product", 1) is False and cache.add("units", 5) and cache.incr("units") == 6
assert cache.decr("units", 2) == 4 and cache.get_or_set("made", lambda: "now", 60) == "now"
assert cache.set_many({"a": 1, "b": 2, "c": 3}, timeout=60) == []
assert cache.get_many(["a", "b", "none"]) == {"a": 1, "b": 2}
cache.close()
assert cache.touch("product", 600) and cache.has_key("product") and cache.delete("product")
cache.delete_many(["a", "b"])
assert cache.get_many(["a", "b", "c"]) == {"c": 3}
cache.clear()
assert cache.get("units") is None
