"""redis: scan_iter, keys, rename, copy, touch, randomkey, object encoding, memory usage"""

import os

import redis

shop = redis.Redis(port=int(os.environ["PORT"]), decode_responses=True)
assert all(shop.set(f"user:{number}", "x" * number) for number in range(1, 301))
assert set(shop.scan_iter("user:*")) == {f"user:{number}" for number in range(1, 301)}
assert set(shop.scan_iter("user:1?", _type="string")) == {f"user:1{n}" for n in range(10)}
assert sorted(shop.keys("user:*00")) == ["user:100", "user:200", "user:300"]
assert shop.keys("user:[23]00") and shop.randomkey().startswith("user:")
shop.set("{a}old", "kept", ex=100)
assert shop.rename("{a}old", "{a}new") and shop.get("{a}new") == "kept" and shop.ttl("{a}new") > 0
assert shop.copy("{a}new", "{a}copy") and not shop.copy("{a}new", "{a}copy")
assert not shop.renamenx("{a}new", "{a}copy") and shop.touch("{a}new", "{a}none") == 1
assert shop.object("encoding", "user:300") == "raw" and shop.memory_usage("user:300") > 300
assert shop.unlink(*shop.scan_iter("user:*")) == 300 and shop.keys("user:*") == []
