"""redis: a queue of orders as a list, with BLPOP"""

import os

import redis

shop = redis.Redis(port=int(os.environ["PORT"]), decode_responses=True)
assert shop.rpush("orders", "1", "2", "3") == 3 and shop.llen("orders") == 3
assert shop.lpop("orders") == "1" and shop.blpop("orders", timeout=1) == ("orders", "2")
shop.connection_pool.disconnect()
assert shop.lrange("orders", 0, -1) == ["3"]
