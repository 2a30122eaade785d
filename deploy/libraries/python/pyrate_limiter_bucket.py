"""pyrate-limiter: RedisBucket, the store of fastapi-limiter"""

import os

import redis
from pyrate_limiter import Duration, Limiter, Rate, RedisBucket

client = redis.Redis(port=int(os.environ["PORT"]))
limiter = Limiter(RedisBucket.init([Rate(2, Duration.HOUR)], client, "bucket"))
assert limiter.try_acquire("ann", blocking=False) and limiter.try_acquire("ann", blocking=False)
assert not limiter.try_acquire("ann", blocking=False)
