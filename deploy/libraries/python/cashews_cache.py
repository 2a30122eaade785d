"""cashews: cache decorator, a lock, a rate limit, counters, delete_match"""

import asyncio
import os

from cashews import cache
from cashews.exceptions import RateLimitError

cache.setup(f"redis://127.0.0.1:{os.environ['PORT']}/0", suppress=False)
made = []


@cache(ttl="1m", key="price:{product}")
async def price(product):
    made.append(product)
    return {"euro": 7}


@cache.rate_limit(limit=2, period="1m", key="ask:{buyer}")
async def ask(buyer):
    return True


async def main():
    assert await price("boot") == await price("boot") == {"euro": 7} and made == ["boot"]
    assert await cache.incr("units") == 1 and await cache.set("one", 1, expire=60, exist=False)
    async with cache.lock("sale", expire=10):
        assert await cache.is_locked("sale")
    assert not await cache.is_locked("sale")
    assert await ask("ann") and await ask("ann")
    try:
        await ask("ann")
        raise AssertionError("a third time")
    except RateLimitError:
        pass
    await cache.set_many({"m:1": 1, "m:2": 2}, expire=60)
    assert await cache.get_many("m:1", "m:2", "m:3") == (1, 2, None)
    await cache.delete_match("m:*")
    assert await cache.get("m:1") is None and await cache.get("one") == 1
    await cache.clear()
    await cache.close()


asyncio.run(main())
