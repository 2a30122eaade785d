"""redis: a leader board as a sorted set"""

import os

import redis

shop = redis.Redis(port=int(os.environ["PORT"]), decode_responses=True)
assert shop.zadd("bids", {"ann": 10, "bob": 12}) == 2 and shop.zincrby("bids", 5, "ann") == 15
shop.connection_pool.disconnect()
assert shop.zrevrange("bids", 0, -1, withscores=True) == [("ann", 15.0), ("bob", 12.0)]
