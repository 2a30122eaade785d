"""redis: redis.asyncio.RedisCluster, gather over all nodes, a lock and a pipeline"""

import asyncio
import os

from redis.asyncio.cluster import RedisCluster


async def main():
    shop = RedisCluster(host="127.0.0.1", port=int(os.environ["PORT"]), decode_responses=True)
    # Without this the first commands go to any node, and redis-py 8.1 closes what others use.
    await shop.initialize()
    await asyncio.gather(*(shop.set(f"a:{number}", number) for number in range(100)))
    assert await asyncio.gather(*(shop.get(f"a:{n}") for n in range(100))) == [
        str(number) for number in range(100)
    ]
    async with shop.pipeline() as pipe:
        for number in range(20):
            pipe.incr(f"a:{number}")
        assert await pipe.execute() == list(range(1, 21))
    async with shop.lock("a:lock", timeout=10):
        assert await shop.exists("a:lock") == 1
    assert await shop.exists("a:lock") == 0
    await shop.aclose()


asyncio.run(main())
