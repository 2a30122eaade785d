"""redis: RedisCluster over all slots: pipeline, MGET, a script and a transaction of one tag"""

import os

from redis.cluster import RedisCluster

PORT = int(os.environ["PORT"])
for protocol in (2, 3):
    shop = RedisCluster(host="127.0.0.1", port=PORT, protocol=protocol, decode_responses=True)
    assert all(shop.set(f"k:{number}", number) for number in range(100))
    assert shop.mget_nonatomic(*(f"k:{n}" for n in range(100))) == [str(n) for n in range(100)]
    with shop.pipeline() as pipe:
        for number in range(100):
            pipe.incrby(f"k:{number}", 1)
        assert pipe.execute() == list(range(1, 101))
    assert len(set(shop.scan_iter("k:*"))) == 100
    shop.set("{s}units", 5)
    take = shop.register_script("return redis.call('DECRBY', KEYS[1], ARGV[1])")
    assert take(keys=["{s}units"], args=[2]) == 3
    with shop.pipeline(transaction=True) as pipe:
        pipe.decr("{s}units").set("{s}buyer", "ann")
        assert pipe.execute() == [2, "OK"]
    shop.close()
    again = RedisCluster(host="127.0.0.1", port=PORT, decode_responses=True)
    assert again.get("{s}units") == "2" and again.get("k:99") == "100"
    assert again.delete(*(f"k:{number}" for number in range(100))) == 100
    again.close()
