"""saq: a job that waits in a queue"""

import asyncio
import os

from saq import Queue


async def main():
    queue = Queue.from_url(f"redis://127.0.0.1:{os.environ['PORT']}")
    await queue.connect()
    job = await queue.enqueue("price", units=6)
    assert job and await queue.count("queued") == 1
    await queue.disconnect()


asyncio.run(main())
