"""redis: visitors of a day as bits (SETBIT, GETBIT, BITCOUNT), SETRANGE, MSETNX, GETSET"""

import os

import redis

shop = redis.Redis(port=int(os.environ["PORT"]))
for visitor in (3, 7, 1000, 7):
    shop.setbit("visits", visitor, 1)
assert shop.bitcount("visits") == 3 and shop.getbit("visits", 7) == 1
assert shop.getbit("visits", 8) == 0 and shop.bitcount("visits", 0, 0) == 2
assert shop.strlen("visits") == 126
assert shop.setrange("ticket", 3, "42") == 5 and shop.get("ticket") == b"\0\0\0" + b"42"
assert shop.msetnx({"{m}a": 1, "{m}b": 2}) and not shop.msetnx({"{m}b": 3, "{m}c": 3})
assert shop.mget("{m}a", "{m}b", "{m}c") == [b"1", b"2", None]
assert shop.getset("{m}a", 9) == b"1" and shop.get("{m}a") == b"9"
