"""redis: a cart as a hash"""

import os

import redis

shop = redis.Redis(port=int(os.environ["PORT"]), decode_responses=True)
assert shop.hset("cart:ann", mapping={"apple": 2, "pear": 1}) == 2
assert shop.hincrby("cart:ann", "apple", 3) == 5 and shop.hget("cart:ann", "pear") == "1"
shop.connection_pool.disconnect()
assert shop.hgetall("cart:ann") == {"apple": "5", "pear": "1"} and shop.hdel("cart:ann", "pear")
