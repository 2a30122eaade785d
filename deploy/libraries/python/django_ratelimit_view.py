"""django-ratelimit: a view that may be asked three times a minute, counted in RedisCache"""

import os

import django
from django.conf import settings

BACKEND = "django.core.cache.backends.redis.RedisCache"
settings.configure(
    SECRET_KEY="of a test",
    CACHES={
        "default": {"BACKEND": BACKEND, "LOCATION": f"redis://127.0.0.1:{os.environ['PORT']}"}
    },
)
django.setup()
from django.http import HttpResponse  # noqa: E402
from django.test import RequestFactory  # noqa: E402
from django_ratelimit.decorators import ratelimit  # noqa: E402
from django_ratelimit.exceptions import Ratelimited  # noqa: E402


@ratelimit(key="ip", rate="3/h", block=True)
def buy(request):
    return HttpResponse("sold")


request = RequestFactory().get("/buy")
assert [buy(request).status_code for _ in range(3)] == [200] * 3
try:
    buy(request)
    raise AssertionError("a fourth time")
except Ratelimited:
    pass
