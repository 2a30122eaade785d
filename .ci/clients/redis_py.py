"""redis-py against the RESP port: what its users do on the first day. Usage: redis_py.py PORT"""

import sys

import redis


def check(port, protocol):
    r = redis.Redis(host="127.0.0.1", port=port, protocol=protocol, decode_responses=True)
    assert r.ping()
    r.delete("k", "n", "{sale}stock", "{sale}sold")
    assert r.set("k", "v", ex=100) and r.get("k") == "v"
    assert 0 < r.ttl("k") <= 100 and r.persist("k") and r.ttl("k") == -1
    assert r.set("k", "w", nx=True) is None and r.set("k", "w", get=True) == "v"
    assert r.append("k", "x") == 2 and r.getrange("k", 0, -1) == "wx"
    assert r.incr("n") == 1 and r.decrby("n", 3) == -2
    assert r.mset({"k": "1", "n": "2"}) and r.mget("k", "n", "none") == ["1", "2", None]
    try:
        r.set("k", "text")
        r.incr("k")
        raise AssertionError("text was counted")
    except redis.ResponseError as error:
        assert "not an integer" in str(error)

    # pipeline() is a MULTI unless it is told otherwise: keys of one slot.
    with r.pipeline() as pipe:
        pipe.set("{sale}stock", 2).incr("{sale}sold").get("{sale}stock")
        assert pipe.execute() == [True, 1, "2"]
    with r.pipeline(transaction=False) as pipe:
        for number in range(3000):
            pipe.set(f"key:{number}", number)
        assert all(pipe.execute())
    assert len(set(r.scan_iter(match="key:*", count=500))) == 3000

    # A guarded sale, as the documents of redis-py have it.
    def buy(pipe):
        left = int(pipe.get("{sale}stock"))
        pipe.multi()
        if left > 0:
            pipe.decr("{sale}stock")
            pipe.incr("{sale}sold")

    for left in (1, 0):
        assert r.transaction(buy, "{sale}stock") == [left, 3 - left]
    assert r.transaction(buy, "{sale}stock") == []
    with r.pipeline() as pipe:
        pipe.watch("{sale}stock")
        r.set("{sale}stock", 9)
        pipe.multi()
        pipe.set("{sale}stock", 0)
        try:
            pipe.execute()
            raise AssertionError("a watched key had changed")
        except redis.WatchError:
            pass
    assert r.get("{sale}stock") == "9"
    # A program of the schema by its name: the server has deploy/programs.
    r.delete("stock:{py}", "order:{py}:1", "buyer:{py}:ann")
    r.execute_command("KV.RUN", "restock", "stock:{py}", "quantity=2", "limit_per_buyer=5")
    keys = ("stock:{py}", "KEY", "order:{py}:1", "KEY", "buyer:{py}:ann")
    for status in ("OK", "GUARD_FAILED"):
        told = r.execute_command("KV.RUN", "buy", *keys, "quantity=2", "hold_ms=60000")
        told = told if protocol == 3 else dict(zip(told[::2], told[1::2]))
        assert told["status"] == status, told
    assert told["reason"] == 3
    try:
        r.execute_command("KV.RUN", "buy", *keys, "quantity=0", "hold_ms=60000")
        raise AssertionError("nothing was bought")
    except redis.ResponseError as error:
        assert "quantity = '0': allowed is a number, 1..1000" in str(error)
    assert r.dbsize() >= 0 and r.info()["redis_version"] and r.config_get("save") == {"save": ""}
    assert r.client_setname("me") and r.client_getname() == "me" and r.client_list()
    assert r.eval("return {KEYS[1], ARGV[1], 3}", 1, "k", "v") == ["k", "v", 3]
    take = r.register_script("return redis.call('DECRBY', KEYS[1], ARGV[1])")
    r.set("{s}units", 5)
    assert take(keys=["{s}units"], args=[2]) == 3 and r.get("{s}units") == "3"
    r.close()


def check_cluster(port):
    r = redis.RedisCluster(host="127.0.0.1", port=port, decode_responses=True)
    assert r.set("cluster", "1") and r.get("cluster") == "1"
    r.close()


for protocol in (2, 3):
    check(int(sys.argv[1]), protocol)
check_cluster(int(sys.argv[1]))
print(f"redis-py {redis.__version__}: RESP2, RESP3, RedisCluster")
