"""redis: fifty buyers of redis.asyncio over one pool, none of the stock is sold twice"""

import asyncio
import os

import redis.asyncio as redis

URL = f"redis://127.0.0.1:{os.environ['PORT']}/0?protocol=3&decode_responses=True"


async def buy(shop, buyer):
    left = await shop.decr("units")
    if left < 0:
        await shop.incr("units")
        return False
    async with shop.pipeline(transaction=False) as pipe:
        answers = await pipe.set(f"order:{buyer}", left, ex=60).get(f"order:{buyer}").execute()
    assert answers == [True, str(left)]
    return True


async def main():
    pool = redis.BlockingConnectionPool.from_url(URL, max_connections=8)
    shop = redis.Redis(connection_pool=pool)
    await shop.set("units", 20)
    sold = await asyncio.gather(*(buy(shop, buyer) for buyer in range(50)))
    assert sum(sold) == 20 and await shop.get("units") == "0"
    await pool.disconnect()
    assert sorted([key async for key in shop.scan_iter("order:*")]) == sorted(
        f"order:{buyer}" for buyer in range(50) if sold[buyer]
    )
    await shop.aclose()


asyncio.run(main())
