"""taskiq-redis: a PubSubBroker with results"""

import asyncio
import os

from taskiq.receiver import Receiver
from taskiq_redis import PubSubBroker, RedisAsyncResultBackend

URL = f"redis://127.0.0.1:{os.environ['PORT']}"
broker = PubSubBroker(URL).with_result_backend(RedisAsyncResultBackend(URL, result_ex_time=60))


@broker.task(task_name="price")
async def price(units: int) -> int:
    return units * 7


async def work(receiver):
    async for message in broker.listen():
        await receiver.callback(message)
        return


async def main():
    await broker.startup()
    worker = asyncio.create_task(work(Receiver(broker, run_startup=False, max_async_tasks=1)))
    await asyncio.sleep(0.5)
    task = await price.kiq(6)
    assert (await task.wait_result(timeout=10)).return_value == 42
    await worker
    await broker.shutdown()


asyncio.run(main())
