"""redis: who has bought, as a set"""

import os

import redis

shop = redis.Redis(port=int(os.environ["PORT"]), decode_responses=True)
assert shop.sadd("buyers", "ann", "bob") == 2 and shop.sadd("buyers", "ann") == 0
shop.connection_pool.disconnect()
assert shop.sismember("buyers", "bob") and shop.smembers("buyers") == {"ann", "bob"}
