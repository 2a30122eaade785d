"""django-redis: LOCATION with database 1, as its documents have it"""

import os

from django.conf import settings

URL = f"redis://127.0.0.1:{os.environ['PORT']}/1"
BACKEND = "django_redis.cache.RedisCache"
settings.configure(CACHES={"default": {"BACKEND": BACKEND, "LOCATION": URL}})

from django.core.cache import cache  # noqa: E402

assert cache.set("price", 7) and cache.get("price") == 7
