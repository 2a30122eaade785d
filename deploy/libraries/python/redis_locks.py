"""redis: lock() with extend, reacquire, a lock that is lost and one that waits"""

import os
import threading

import redis
from redis.exceptions import LockError, LockNotOwnedError

PORT = int(os.environ["PORT"])
ann, bob = redis.Redis(port=PORT), redis.Redis(port=PORT)
with ann.lock("sale", timeout=20, blocking_timeout=5) as lock:
    assert lock.owned() and lock.extend(5) and ann.pttl("sale") > 20_000
    assert lock.reacquire() and ann.pttl("sale") <= 20_000
    assert not bob.lock("sale", timeout=20).acquire(blocking=False)
assert not ann.exists("sale")

lost = ann.lock("sale", timeout=20)
assert lost.acquire()
bob.delete("sale")
taken = bob.lock("sale", timeout=20)
assert taken.acquire(blocking=False)
for late in (lost.release, lambda: ann.lock("sale").release()):
    try:
        late()
        raise AssertionError("a lock of another was released")
    except LockNotOwnedError:
        pass
    except LockError:
        pass
taken.release()

ann.set("sum", 0)


def add():
    client = redis.Redis(port=PORT)
    for _ in range(10):
        with client.lock("sum:lock", timeout=20, sleep=0.005):
            client.set("sum", int(client.get("sum")) + 1)
    client.close()


threads = [threading.Thread(target=add) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert ann.get("sum") == b"40"
