"""dramatiq: a broker and a worker"""

import os

import dramatiq
from dramatiq import Worker
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=f"redis://127.0.0.1:{os.environ['PORT']}/0")
dramatiq.set_broker(broker)
done = []


@dramatiq.actor
def price(units):
    done.append(units * 7)


price.send(6)
worker = Worker(broker, worker_threads=1)
worker.start()
broker.join("default", timeout=15_000)
worker.join()
worker.stop()
assert done == [42]
