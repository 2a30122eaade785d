"""redis: pipeline(transaction=False) of five thousand commands, read back with MGET and SCAN"""

import os

import redis

shop = redis.Redis(port=int(os.environ["PORT"]), decode_responses=True)
with shop.pipeline(transaction=False) as pipe:
    for number in range(5000):
        pipe.set(f"seat:{number}", "free")
    assert all(pipe.execute())
    for number in range(0, 5000, 2):
        pipe.delete(f"seat:{number}")
    assert sum(pipe.execute()) == 2500
shop.connection_pool.disconnect()
left = set(shop.scan_iter(match="seat:*", count=300))
assert len(left) == 2500 and all(int(key[5:]) % 2 for key in left)
values = shop.mget([f"seat:{number}" for number in range(1000)])
assert values == [None, "free"] * 500 and shop.dbsize() >= 2500
