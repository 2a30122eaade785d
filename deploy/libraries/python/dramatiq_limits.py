"""dramatiq: rate limiters: a mutex and a bucket in RedisBackend"""

import os

from dramatiq.rate_limits import BucketRateLimiter, ConcurrentRateLimiter, RateLimitExceeded
from dramatiq.rate_limits.backends import RedisBackend

store = RedisBackend(url=f"redis://127.0.0.1:{os.environ['PORT']}/0")
mutex = ConcurrentRateLimiter(store, "{m}mutex", limit=1)
with mutex.acquire():
    with mutex.acquire(raise_on_failure=False) as second:
        assert not second
with mutex.acquire() as third:
    assert third
bucket = BucketRateLimiter(store, "bucket", limit=2, bucket=60_000)
for _ in range(2):
    with bucket.acquire():
        pass
try:
    with bucket.acquire():
        raise AssertionError("a third time")
except RateLimitExceeded:
    pass
