"""dramatiq: WindowRateLimiter of thirty seconds, which watches a key for each"""

import os

from dramatiq.rate_limits import RateLimitExceeded, WindowRateLimiter
from dramatiq.rate_limits.backends import RedisBackend

store = RedisBackend(url=f"redis://127.0.0.1:{os.environ['PORT']}/0")
window = WindowRateLimiter(store, "window", limit=2, window=30)
for _ in range(2):
    with window.acquire():
        pass
try:
    with window.acquire():
        raise AssertionError("a third time")
except RateLimitExceeded:
    pass
