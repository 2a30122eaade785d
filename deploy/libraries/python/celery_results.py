"""celery: a result backend of tasks that run in the caller, read by a second app"""

import os

from celery import Celery
from celery.result import AsyncResult

URL = f"redis://127.0.0.1:{os.environ['PORT']}/0"
app = Celery("shop", broker="memory://", backend=URL)
app.conf.update(task_always_eager=True, task_store_eager_result=True, result_expires=600)


@app.task
def price(units):
    return units * 7


@app.task
def fail():
    raise ValueError("sold out")


done, failed = price.delay(6), fail.delay()
again = Celery("other", broker="memory://", backend=URL)
assert AsyncResult(done.id, app=again).get(timeout=10) == 42
told = AsyncResult(failed.id, app=again)
assert told.state == "FAILURE" and "sold out" in str(told.result)
AsyncResult(done.id, app=again).forget()
assert AsyncResult(done.id, app=again).state == "PENDING"
