"""redis: register_script sells with a limit for each buyer, also in a pipeline, and is reloaded"""

import os

import redis

PORT = int(os.environ["PORT"])
shop = redis.Redis(port=PORT)
buy = shop.register_script("""
local units = tonumber(redis.call('GET', KEYS[1]) or '0')
if units < tonumber(ARGV[1]) then return {0, units} end
if redis.call('INCRBY', KEYS[2], ARGV[1]) > 2 then
    redis.call('DECRBY', KEYS[2], ARGV[1])
    return redis.error_reply('LIMIT two for each buyer')
end
redis.call('EXPIRE', KEYS[2], 600)
return {1, redis.call('DECRBY', KEYS[1], ARGV[1])}
""")
shop.set("{drop}units", 3)
assert buy(keys=["{drop}units", "{drop}ann"], args=[2]) == [1, 1]
try:
    buy(keys=["{drop}units", "{drop}ann"], args=[1])
    raise AssertionError("a third unit")
except redis.ResponseError as error:
    assert "LIMIT" in str(error)
assert shop.get("{drop}units") == b"1" and shop.get("{drop}ann") == b"2"
shop.script_flush()
with shop.pipeline() as pipe:
    buy(keys=["{drop}units", "{drop}bob"], args=[1], client=pipe)
    pipe.get("{drop}units")
    assert pipe.execute() == [[1, 0], b"0"]
assert shop.script_exists(buy.sha) == [True]
shop.close()
again = redis.Redis(port=PORT)
assert again.evalsha(buy.sha, 2, "{drop}units", "{drop}eve", 1) == [0, 0]
assert 0 < again.ttl("{drop}bob") <= 600
