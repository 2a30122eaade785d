"""python-redis-lock: a lock with expiry, renewal and a signal in a list"""

import os

import redis
import redis_lock

client = redis.Redis(port=int(os.environ["PORT"]))
with redis_lock.Lock(client, "sale", expire=10, auto_renewal=True) as lock:
    assert lock.locked() and not redis_lock.Lock(client, "sale").acquire(blocking=False)
assert not redis_lock.Lock(client, "sale").locked()
