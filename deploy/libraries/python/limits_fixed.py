"""limits: FixedWindowRateLimiter, and SlidingWindowCounterRateLimiter"""

import os

from limits import parse, storage, strategies

store = storage.storage_from_string(f"redis://127.0.0.1:{os.environ['PORT']}")
assert store.check()
for kind in (strategies.FixedWindowRateLimiter, strategies.SlidingWindowCounterRateLimiter):
    limiter, three = kind(store), parse("3 per hour")
    assert [limiter.hit(three, kind.__name__, "ann") for _ in range(4)] == [True] * 3 + [False]
    assert not limiter.test(three, kind.__name__, "ann") and limiter.hit(three, "other", "bob")
    assert limiter.get_window_stats(three, kind.__name__, "ann").remaining == 0
    limiter.clear(three, kind.__name__, "ann")
    assert limiter.hit(three, kind.__name__, "ann")
