"""redis-py's RedisCluster at the ports of the cores. Usage: redis_py_cores.py ENTRY PORT PORT...

ENTRY is the port that the cores share, the others are theirs.
"""

import sys

import redis
from redis.cluster import RedisCluster


def check(port, ports, protocol):
    r = RedisCluster(
        host="127.0.0.1", port=port, protocol=protocol, decode_responses=True
    )
    assert sorted(node.port for node in r.get_primaries()) == ports
    for number in range(200):
        assert r.set(f"core:{number}", number)
    assert all(r.get(f"core:{number}") == str(number) for number in range(200))
    assert r.mget_nonatomic(*[f"core:{number}" for number in range(50)]) == [
        str(number) for number in range(50)
    ]
    # Each core tells its own keys, so each key is found once.
    assert len(list(r.scan_iter(match="core:*", count=100))) == 200
    with r.pipeline() as pipe:
        for number in range(50):
            pipe.incr(f"core:{number}")
        assert pipe.execute() == [number + 1 for number in range(50)]
    for number in range(200):
        r.delete(f"core:{number}")
    r.close()


ports = [int(port) for port in sys.argv[2:]]
for port in map(int, sys.argv[1:]):
    for protocol in (2, 3):
        check(port, ports, protocol)
print(f"redis-py {redis.__version__}: RedisCluster over {len(ports)} cores")
