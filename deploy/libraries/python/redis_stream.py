"""redis: orders as a stream with a consumer group"""

import os

import redis

shop = redis.Redis(port=int(os.environ["PORT"]), decode_responses=True)
order = shop.xadd("orders", {"buyer": "ann"})
assert shop.xgroup_create("orders", "packers", id="0")
came = shop.xreadgroup("packers", "one", {"orders": ">"}, count=10)
assert (came[0][1] if isinstance(came, list) else came["orders"][0])
shop.connection_pool.disconnect()
assert shop.xack("orders", "packers", order) == 1 and shop.xlen("orders") == 1
