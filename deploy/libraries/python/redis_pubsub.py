"""redis: pubsub() of channels and patterns, run_in_thread, and a subscriber that comes back"""

import os
import queue
import time

import redis

PORT = int(os.environ["PORT"])
for protocol in (2, 3):
    shop = redis.Redis(port=PORT, protocol=protocol, decode_responses=True)
    came = queue.Queue()
    listener = shop.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(**{"sale:open": came.put})
    listener.psubscribe(**{"stock:*": came.put})
    thread = listener.run_in_thread(sleep_time=0.1, daemon=True)
    deadline = time.monotonic() + 20
    while shop.pubsub_numsub("sale:open")[0][1] < 1 or shop.pubsub_numpat() < 1:
        assert time.monotonic() < deadline
    assert shop.publish("sale:open", "now") == 1 and shop.publish("stock:7", "3") == 1
    first, second = sorted((came.get(timeout=10) for _ in range(2)), key=lambda m: m["data"])
    assert (second["type"], second["channel"], second["data"]) == ("message", "sale:open", "now")
    assert (first["type"], first["pattern"], first["channel"]) == ("pmessage", "stock:*", "stock:7")
    thread.stop()
    thread.join()
    # The server ends the subscription when it sees that the connection has ended.
    while shop.publish("sale:open", "later"):
        assert time.monotonic() < deadline

    back = shop.pubsub()
    back.subscribe("sale:open")
    assert back.get_message(timeout=5)["type"] == "subscribe"
    back.connection.disconnect()
    # The next read connects and subscribes again.
    assert back.get_message(timeout=5)["type"] == "subscribe"
    # The connection of before may still count.
    assert shop.publish("sale:open", "again") >= 1
    assert back.get_message(timeout=5)["data"] == "again"
    back.close()
    shop.close()
