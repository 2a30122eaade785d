"""channels-redis: RedisPubSubChannelLayer: a channel, a group, one that left it"""

import asyncio
import os

from channels_redis.pubsub import RedisPubSubChannelLayer


async def main():
    layer = RedisPubSubChannelLayer(hosts=[f"redis://127.0.0.1:{os.environ['PORT']}"])
    ann, bob = await layer.new_channel(), await layer.new_channel()
    await layer.group_add("sale", ann)
    await layer.group_add("sale", bob)
    await layer.group_send("sale", {"type": "left", "units": 3})
    for name in (ann, bob):
        told = await asyncio.wait_for(layer.receive(name), 10)
        assert told == {"type": "left", "units": 3}
    await layer.group_discard("sale", bob)
    await layer.group_send("sale", {"type": "left", "units": 2})
    assert (await asyncio.wait_for(layer.receive(ann), 10))["units"] == 2
    await layer.send(bob, {"type": "bye"})
    assert (await asyncio.wait_for(layer.receive(bob), 10))["type"] == "bye"
    await layer.flush()


asyncio.run(main())
