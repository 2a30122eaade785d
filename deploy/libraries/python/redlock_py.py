"""redlock-py: a lock, and one that is refused while it is held"""

import os

from redlock import Redlock

locks = Redlock([{"host": "127.0.0.1", "port": int(os.environ["PORT"])}], retry_count=2)
held = locks.lock("sale", 10_000)
assert held and not locks.lock("sale", 10_000)
locks.unlock(held)
assert locks.lock("sale", 10_000)
