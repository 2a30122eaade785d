"""rq: a queue and a worker that ends with it"""

import os

import redis
from rq import Queue, SimpleWorker

client = redis.Redis(port=int(os.environ["PORT"]))
queue = Queue("orders", connection=client)
job = queue.enqueue(divmod, 17, 5)
SimpleWorker([queue], connection=client).work(burst=True)
assert job.latest_result().return_value == (3, 2)
