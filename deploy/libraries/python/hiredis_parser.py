"""hiredis: the parser under redis-py: a megabyte of replies in one pipeline"""

import os

import hiredis
import redis
from redis._parsers import _HiredisParser

assert hiredis.__version__
shop = redis.Redis(port=int(os.environ["PORT"]))
parser = shop.connection_pool.get_connection()._parser
assert isinstance(parser, _HiredisParser), parser
with shop.pipeline(transaction=False) as pipe:
    for number in range(64):
        pipe.set(f"big:{number}", bytes([number]) * 16_384)
    for number in range(64):
        pipe.get(f"big:{number}")
    answers = pipe.execute()
assert answers == [True] * 64 + [bytes([number]) * 16_384 for number in range(64)]
