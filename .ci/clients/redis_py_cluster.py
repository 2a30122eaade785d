"""redis-py's RedisCluster against three nodes. Usage: redis_py_cluster.py PORT-OF-ONE"""

import sys

import redis
from redis.cluster import RedisCluster


def check(port, protocol):
    r = RedisCluster(
        host="127.0.0.1", port=port, protocol=protocol, decode_responses=True
    )
    writers = {node.port for node in r.get_primaries()}
    assert len(writers) == 2 and len(r.get_nodes()) == 3
    for number in range(200):
        assert r.set(f"key:{number}", number)
    assert all(r.get(f"key:{number}") == str(number) for number in range(200))
    assert r.mget_nonatomic(*[f"key:{number}" for number in range(50)]) == [
        str(number) for number in range(50)
    ]
    assert len(set(r.scan_iter(match="key:*", count=100))) == 200
    with r.pipeline() as pipe:
        for number in range(50):
            pipe.incr(f"key:{number}")
        assert pipe.execute() == [number + 1 for number in range(50)]
    assert r.delete("{sale}a", "{sale}b") >= 0
    for number in range(200):
        r.delete(f"key:{number}")
    r.close()


def check_replicas(port):
    r = RedisCluster(
        host="127.0.0.1", port=port, decode_responses=True, read_from_replicas=True
    )
    assert r.set("read:often", "1")
    # A member that is not new enough sends to the writer.
    assert all(r.get("read:often") in ("1", None) for _ in range(30))
    r.close()


def check_channels(port, protocol):
    """Messages of all nodes at a subscriber of one, each once."""
    r = RedisCluster(
        host="127.0.0.1", port=port, protocol=protocol, decode_responses=True
    )
    nodes = r.get_nodes()
    subscriber = r.pubsub(node=nodes[0])
    subscriber.subscribe("news")
    subscriber.psubscribe("n?ws")
    connections = [redis.Redis(host=node.host, port=node.port) for node in nodes]
    for number in range(100):
        for node, connection in enumerate(connections):
            connection.publish("news", f"{node} {number}")
    came = {"message": [], "pmessage": []}
    while any(len(data) < 100 * len(nodes) for data in came.values()):
        told = subscriber.get_message(ignore_subscribe_messages=True, timeout=20)
        if told:
            came[told["type"]].append(told["data"])
    for data in came.values():
        for node in range(len(nodes)):
            of_node = [text for text in data if text.startswith(f"{node} ")]
            assert of_node == [f"{node} {number}" for number in range(100)]
    assert subscriber.get_message(timeout=0.2) is None
    subscriber.close()
    r.close()


for protocol in (2, 3):
    check(int(sys.argv[1]), protocol)
    check_channels(int(sys.argv[1]), protocol)
check_replicas(int(sys.argv[1]))
print(f"redis-py {redis.__version__}: RedisCluster over three nodes")
