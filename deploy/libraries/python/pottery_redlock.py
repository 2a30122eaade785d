"""pottery: Redlock, extended and released, and refused meanwhile"""

import os

import redis
from pottery import Redlock

masters = {redis.Redis(port=int(os.environ["PORT"]))}
lock = Redlock(key="sale", masters=masters, auto_release_time=10)
assert lock.acquire() and 0 < lock.locked() <= 10
assert not Redlock(key="sale", masters=masters).acquire(blocking=False)
lock.extend()
lock.release()
assert not lock.locked()
