"""valkey: counters, a transaction, a script and a subscriber"""

import os

import valkey

shop = valkey.Valkey(port=int(os.environ["PORT"]), protocol=3, decode_responses=True)
assert shop.set("{v}units", 5, ex=60) and shop.decr("{v}units") == 4
with shop.pipeline() as pipe:
    assert pipe.decr("{v}units").ttl("{v}units").execute() == [3, 60]
assert shop.eval("return {KEYS[1], ARGV[1]}", 1, "{v}units", "x") == ["{v}units", "x"]
listener = shop.pubsub(ignore_subscribe_messages=True)
listener.subscribe("news")
assert listener.get_message(timeout=5) is None
assert shop.publish("news", "sold") == 1 and listener.get_message(timeout=5)["data"] == "sold"
listener.close()
with shop.lock("{v}lock", timeout=10):
    assert shop.exists("{v}lock")
