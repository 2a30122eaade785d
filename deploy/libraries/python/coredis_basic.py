"""coredis: typed answers, a pipeline in a transaction, a script and a lock"""

import asyncio
import os

import coredis


async def main():
    client = coredis.Redis(port=int(os.environ["PORT"]), decode_responses=True)
    async with client:
        assert await client.set("{c}units", "5", ex=60) and await client.decr("{c}units") == 4
        assert 0 < await client.ttl("{c}units") <= 60
        async with client.pipeline(transaction=True) as pipe:
            first = pipe.incr("{c}units")
            second = pipe.get("{c}units")
        assert await first == 5 and await second == "5"
        take = client.register_script("return redis.call('DECRBY', KEYS[1], ARGV[1])")
        assert await take(["{c}units"], [2]) == 3
        assert {key async for key in client.scan_iter("{c}*")} == {"{c}units"}


asyncio.run(main())
