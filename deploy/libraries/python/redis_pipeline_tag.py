"""redis: pipeline() of keys with one tag: all happens or nothing, an error stands in its place"""

import os

import redis

shop = redis.Redis(port=int(os.environ["PORT"]), decode_responses=True)
with shop.pipeline(transaction=True) as pipe:
    pipe.set("{7}units", 5).decrby("{7}units", 2).set("{7}buyer", "ann", px=60_000)
    pipe.append("{7}log", "sold;").get("{7}units").ttl("{7}buyer")
    assert pipe.execute() == [True, 3, True, 5, "3", 60]
    pipe.incr("{7}buyer").incr("{7}units")
    error, number = pipe.execute(raise_on_error=False)
    assert isinstance(error, redis.ResponseError) and number == 4
    pipe.incr("{7}units").execute_command("NO.SUCH.COMMAND")
    try:
        pipe.execute()
        raise AssertionError("a wrong command was executed")
    except redis.ResponseError as error:
        assert "unknown command" in str(error).lower(), error
shop.connection_pool.disconnect()
assert shop.get("{7}units") == "4" and shop.get("{7}log") == "sold;"
