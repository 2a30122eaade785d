"""redis: counters, expiries and values of bytes, by RESP2 and RESP3, over a reconnect"""

import os

import redis

PORT = int(os.environ["PORT"])
for protocol in (2, 3):
    shop = redis.Redis(port=PORT, protocol=protocol)
    assert shop.ping() and shop.delete("units", "cart", "photo") >= 0
    assert shop.set("units", 10) and shop.decr("units") == 9 and shop.incrby("units", 5) == 14
    assert shop.set("cart", "ann", ex=60, nx=True) and shop.set("cart", "bob", nx=True) is None
    assert 0 < shop.ttl("cart") <= 60 and shop.expire("cart", 100, gt=True)
    assert shop.set("photo", bytes(range(256))) and shop.strlen("photo") == 256
    assert shop.getrange("photo", 250, -1) == bytes(range(250, 256))
    assert shop.set("cart", "eve", get=True, keepttl=True) == b"ann" and shop.ttl("cart") > 60
    assert shop.incrbyfloat("price", 2.5) == 2.5 and shop.getdel("price") == b"2.5"
    shop.close()

    again = redis.Redis(port=PORT, protocol=protocol, decode_responses=True)
    assert again.get("units") == "14" and again.get("cart") == "eve"
    assert again.mget("units", "none", "cart") == ["14", None, "eve"]
    assert again.exists("units", "cart", "none") == 2 and again.type("units") == "string"
    assert again.getex("cart", persist=True) == "eve" and again.ttl("cart") == -1
    try:
        again.incr("cart")
        raise AssertionError("a name was counted")
    except redis.ResponseError as error:
        assert "not an integer" in str(error)
    again.close()
