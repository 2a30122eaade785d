"""celery: a worker with the queue in lists"""

import os

from celery import Celery
from celery.contrib.testing.worker import start_worker

URL = f"redis://127.0.0.1:{os.environ['PORT']}/0"
app = Celery("shop", broker=URL, backend=URL)
app.conf.broker_transport_options = {"max_retries": 1}


@app.task
def price(units):
    return units * 7


app.conf.broker_connection_retry_on_startup = False
answer = price.apply_async((6,), retry=False)
with start_worker(app, perform_ping_check=False, pool="solo"):
    assert answer.get(timeout=15) == 42
