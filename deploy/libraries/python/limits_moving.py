"""limits: MovingWindowRateLimiter"""

import os

from limits import parse, storage, strategies

store = storage.storage_from_string(f"redis://127.0.0.1:{os.environ['PORT']}")
limiter, three = strategies.MovingWindowRateLimiter(store), parse("3 per hour")
assert [limiter.hit(three, "moving", "ann") for _ in range(4)] == [True, True, True, False]
