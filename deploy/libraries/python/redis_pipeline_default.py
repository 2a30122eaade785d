"""redis: pipeline() as it is, a MULTI over a hundred keys without a tag"""

import os

import redis

shop = redis.Redis(port=int(os.environ["PORT"]), decode_responses=True)
with shop.pipeline() as pipe:
    for number in range(100):
        pipe.set(f"product:{number}", number, ex=300)
    assert pipe.execute() == [True] * 100
    for number in range(100):
        pipe.incrby(f"product:{number}", 1000)
    assert pipe.execute() == [1000 + number for number in range(100)]
shop.connection_pool.disconnect()
assert shop.mget([f"product:{number}" for number in (0, 50, 99)]) == ["1000", "1050", "1099"]
