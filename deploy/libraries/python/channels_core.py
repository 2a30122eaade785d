"""channels-redis: RedisChannelLayer, which keeps messages in sorted sets"""

import asyncio
import os

from channels_redis.core import RedisChannelLayer


async def main():
    layer = RedisChannelLayer(hosts=[f"redis://127.0.0.1:{os.environ['PORT']}"])
    await layer.send("orders", {"type": "order", "units": 3})
    assert (await asyncio.wait_for(layer.receive("orders"), 10))["units"] == 3


asyncio.run(main())
