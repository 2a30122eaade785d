"""Measures this client beside redis-py without hiredis, at the same server in the same run.

Usage: bench.py HOST:PORT RESP_PORT [SECONDS]. Needs redis-py in PYTHONPATH. In each row the two
clients take turns, one operation each, so both meet the same machine. It prints the median of the
microseconds that one operation takes, and of those for which this process works, and of both the
figure of redis-py divided by that of this client: above 1 this client is faster.
"""

import asyncio
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import redis  # noqa: E402
import redis.asyncio  # noqa: E402

import penstock  # noqa: E402

PIPELINED = 100


def timed(operation, times, cpus):
    began, cpu = time.perf_counter(), time.process_time()
    operation()
    cpus.append(time.process_time() - cpu)
    times.append(time.perf_counter() - began)


def row(name, ours, theirs, count, seconds):
    times, cpus = ([], []), ([], [])
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends or len(times[0]) < 20:
        for which, operation in enumerate((ours, theirs)):
            timed(operation, times[which], cpus[which])
    took = [statistics.median(one) / count * 1e6 for one in times]
    worked = [statistics.median(one) / count * 1e6 for one in cpus]
    print(f"{name:<28}{took[0]:>10.1f}{took[1]:>10.1f}{took[1] / took[0]:>8.2f}"
          f"{worked[0]:>10.1f}{worked[1]:>10.1f}{worked[1] / worked[0]:>8.2f}")
    return took[1] / took[0]


def main(address, resp_port, seconds):
    ours = penstock.connect(address)
    without = penstock.connect(address, tokens=False)
    theirs = redis.Redis(host=address.rpartition(":")[0], port=resp_port)
    parser = type(theirs.connection_pool.make_connection()._parser).__name__
    print(f"redis-py {redis.__version__} with {parser}, Python {sys.version.split()[0]}")
    print(f"{'':<28}{'ours us':>10}{'redis us':>10}{'ratio':>8}{'CPU':>10}{'CPU':>10}{'ratio':>8}")
    stock, value = penstock.u64(0), b"v" * 64
    ours.set("bench:get", value)
    ours.set("bench:stock", (1 << 62).to_bytes(8, "little"))
    theirs.set("bench:decr", 1 << 62)

    def many(verb):
        with ours.pipeline() as pipeline:
            for number in range(PIPELINED):
                verb(pipeline, number)

    def many_of_redis(verb):
        with theirs.pipeline(transaction=False) as pipeline:
            for number in range(PIPELINED):
                verb(pipeline, number)
            pipeline.execute()

    sale = [stock.subtract(1)]
    rows = [
        ("GET", lambda: ours.get("bench:get"), lambda: theirs.get("bench:get"), 1),
        ("SET", lambda: ours.set("bench:set", value), lambda: theirs.set("bench:set", value), 1),
        ("one less, with a token", lambda: ours.update_if("bench:stock", sale),
         lambda: theirs.decr("bench:decr"), 1),
        ("one less, without", lambda: without.update_if("bench:stock", sale),
         lambda: theirs.decr("bench:decr"), 1),
        (f"GET, {PIPELINED} at once", lambda: many(lambda p, n: p.get(f"bench:{n}")),
         lambda: many_of_redis(lambda p, n: p.get(f"bench:{n}")), PIPELINED),
        (f"SET, {PIPELINED} at once", lambda: many(lambda p, n: p.set(f"bench:{n}", value)),
         lambda: many_of_redis(lambda p, n: p.set(f"bench:{n}", value)), PIPELINED),
    ]
    loop = asyncio.new_event_loop()
    db = loop.run_until_complete(penstock.aio.connect(address))

    tasks_of_redis = redis.asyncio.Redis(host=address.rpartition(":")[0], port=resp_port)

    def gathered(client):
        async def all_of_them():
            await asyncio.gather(*[client.get(f"bench:{number}") for number in range(PIPELINED)])

        loop.run_until_complete(all_of_them())

    rows.append((f"GET, {PIPELINED} tasks of asyncio", lambda: gathered(db),
                 lambda: gathered(tasks_of_redis), PIPELINED))
    ratios = [row(*each, seconds / len(rows)) for each in rows]
    loop.run_until_complete(db.close())
    loop.run_until_complete(tasks_of_redis.aclose())
    print(f"least ratio: {min(ratios):.2f}; goal 1.0")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 15)
