"""redis: WATCH, MULTI and transaction() of six threads that raise one bid"""

import os
import threading

import redis

PORT = int(os.environ["PORT"])
shop = redis.Redis(port=PORT, decode_responses=True)
shop.set("{lot}bid", 0)
won = []


def bid(name):
    client = redis.Redis(port=PORT, decode_responses=True)

    def raise_it(pipe):
        highest = int(pipe.get("{lot}bid"))
        pipe.multi()
        pipe.set("{lot}bid", highest + 1).set("{lot}who", name)

    for _ in range(10):
        won.append(client.transaction(raise_it, "{lot}bid"))
    client.close()


threads = [threading.Thread(target=bid, args=(f"buyer{n}",)) for n in range(6)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert won == [[True, True]] * 60 and shop.get("{lot}bid") == "60"
with shop.pipeline() as pipe:
    pipe.watch("{lot}bid", "{lot}none")
    shop.set("{lot}none", "there")
    pipe.multi()
    pipe.set("{lot}bid", 0)
    try:
        pipe.execute()
        raise AssertionError("a watched key had come")
    except redis.WatchError:
        pass
assert shop.get("{lot}bid") == "60"
