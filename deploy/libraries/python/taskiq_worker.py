"""taskiq-redis: a ListQueueBroker with results"""

import asyncio
import os

from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

URL = f"redis://127.0.0.1:{os.environ['PORT']}"
broker = ListQueueBroker(URL).with_result_backend(RedisAsyncResultBackend(URL, result_ex_time=60))


@broker.task(task_name="price")
async def price(units: int) -> int:
    return units * 7


async def main():
    from taskiq.receiver import Receiver

    await broker.startup()
    task = await price.kiq(6)
    receiver = Receiver(broker, run_startup=False, max_async_tasks=1)
    async for message in broker.listen():
        await receiver.callback(message)
        break
    assert (await task.wait_result(timeout=10)).return_value == 42
    await broker.shutdown()


asyncio.run(main())
