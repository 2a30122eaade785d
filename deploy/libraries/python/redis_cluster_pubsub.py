"""redis: RedisCluster: sharded channels of three names, and a channel of a node"""

import os
import time

from redis.cluster import RedisCluster

shop = RedisCluster(host="127.0.0.1", port=int(os.environ["PORT"]), decode_responses=True)
sharded = shop.pubsub(ignore_subscribe_messages=True)
names = [f"stock:{number}" for number in range(3)]
for name in names:
    sharded.ssubscribe(name)
deadline, came = time.monotonic() + 20, {}
while len(came) < 3:
    assert time.monotonic() < deadline, came
    for name in names:
        if name not in came:
            shop.spublish(name, f"of {name}")
    while message := sharded.get_sharded_message(timeout=0.1):
        came[message["channel"]] = message["data"]
assert came == {name: f"of {name}" for name in names}
sharded.close()

node = shop.get_node_from_key("open")
listener = shop.pubsub(node=node, ignore_subscribe_messages=True)
listener.subscribe("open")
told = None
while told is None:
    assert time.monotonic() < deadline
    shop.publish("open", "now", target_nodes=node)
    told = listener.get_message(timeout=0.2)
assert told["data"] == "now"
listener.close()
shop.close()
