"""aiocache: cached(), add, increment, multi_set, expire, a lock against many that compute"""

import asyncio
import os

from aiocache import Cache, cached
from aiocache.lock import RedLock
from aiocache.serializers import JsonSerializer

PORT = int(os.environ["PORT"])
OPTIONS = {"endpoint": "127.0.0.1", "port": PORT, "namespace": "shop"}
made = []


@cached(ttl=60, cache=Cache.REDIS, serializer=JsonSerializer(), key="{p}price", **OPTIONS)
async def price():
    made.append(1)
    return {"euro": 7}


async def main():
    assert await price() == await price() == {"euro": 7} and len(made) == 1
    cache = Cache(Cache.REDIS, **OPTIONS)
    assert await cache.set("name", "ann", ttl=60) and await cache.increment("units", 2) == 2
    assert await cache.add("hold", "ann") and await cache.expire("hold", 30)
    try:
        await cache.add("hold", "bob")
        raise AssertionError("two holds")
    except ValueError:
        pass
    await cache.multi_set([["a", "1"], ["b", "2"]])
    assert await cache.multi_get(["a", "b", "none"]) == ["1", "2", None]
    async with RedLock(cache, "hold", lease=10):
        assert await cache.exists("hold-lock")
    assert not await cache.exists("hold-lock")
    await cache.clear(namespace="shop")
    assert await cache.get("units") is None
    await cache.close()


asyncio.run(main())
