"""redis: Retry with backoff behind CLIENT KILL, one try without it, and a pool that is full"""

import os

import redis
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.retry import Retry

PORT = int(os.environ["PORT"])
admin = redis.Redis(port=PORT, decode_responses=True)
patient = redis.Redis(port=PORT, retry=Retry(ExponentialBackoff(cap=0.1, base=0.01), 3))
once = redis.Redis(port=PORT, retry=Retry(NoBackoff(), 0))
patient.set("stock", 10)
for client, name in ((patient, "patient"), (once, "once")):
    client.client_setname(name)
    ids = [row["id"] for row in admin.client_list() if row["name"] == name]
    assert len(ids) == 1 and admin.client_kill_filter(_id=ids[0]) == 1
assert patient.get("stock") == b"10"
try:
    once.get("stock")
except redis.ConnectionError:
    pass
assert once.get("stock") == b"10"

pool = redis.BlockingConnectionPool(port=PORT, max_connections=1, timeout=0.1)
held = pool.get_connection()
try:
    redis.Redis(connection_pool=pool).ping()
    raise AssertionError("two connections")
except redis.ConnectionError:
    pass
pool.release(held)
assert redis.Redis(connection_pool=pool, health_check_interval=1).ping()
