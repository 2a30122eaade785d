"""limits: reset() of a storage, which deletes its keys in a script"""

import os

from limits import parse, storage, strategies

store = storage.storage_from_string(f"redis://127.0.0.1:{os.environ['PORT']}")
limiter, once = strategies.FixedWindowRateLimiter(store), parse("1 per hour")
assert limiter.hit(once, "ann") and not limiter.hit(once, "ann")
assert store.reset() == 1 and limiter.hit(once, "ann")
