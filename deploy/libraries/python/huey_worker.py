"""huey: a task queue and its results in RedisHuey"""

import os

from huey import RedisHuey

huey = RedisHuey("shop", port=int(os.environ["PORT"]))


@huey.task()
def price(units):
    return units * 7


answer = price(6)
huey.execute(huey.dequeue())
assert answer(blocking=True, timeout=10) == 42
