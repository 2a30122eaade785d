"""Measures this client beside redis-py without hiredis, at the same server in the same run.

Usage: bench.py HOST:PORT RESP_PORT [SECONDS]. Needs redis-py in PYTHONPATH. Each row alternates
between the two clients in short rounds, and tells the medians of the rounds: operations a second,
microseconds of this process's CPU for one operation, and this client's rate divided by that of
redis-py: above 1 it is faster.
"""

import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import redis  # noqa: E402

import penstock  # noqa: E402

ROUND_S = 0.25
PIPELINED = 100


def measure(operation, count):
    """Operations a second, and CPU microseconds of one."""
    done, began, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < ROUND_S:
        operation()
        done += count
    took = time.perf_counter() - began
    return done / took, (time.process_time() - cpu) / done * 1e6


def row(name, ours, theirs, count, rounds):
    measured = [[], []]
    for _ in range(rounds):
        for which, operation in enumerate((ours, theirs)):
            measured[which].append(measure(operation, count))
    rates = [statistics.median(each[0] for each in one) for one in measured]
    cpus = [statistics.median(each[1] for each in one) for one in measured]
    print(f"{name:<28}{rates[0]:>10.0f}{rates[1]:>10.0f}{rates[0] / rates[1]:>8.2f}"
          f"{cpus[0]:>10.1f}{cpus[1]:>10.1f}{cpus[1] / cpus[0]:>8.2f}")
    return rates[0] / rates[1]


def main(address, resp_port, seconds):
    ours = penstock.connect(address)
    without = penstock.connect(address, tokens=False)
    theirs = redis.Redis(host=address.rpartition(":")[0], port=resp_port)
    parser = type(theirs.connection_pool.make_connection()._parser).__name__
    print(f"redis-py {redis.__version__} with {parser}, Python {sys.version.split()[0]}")
    print(f"{'':<28}{'ours/s':>10}{'redis/s':>10}{'ratio':>8}{'ours us':>10}{'redis us':>10}"
          f"{'ratio':>8}")
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
    rounds = max(1, round(seconds / len(rows) / 2 / ROUND_S))
    ratios = [row(*each, rounds) for each in rows]
    print(f"least ratio of the rates: {min(ratios):.2f}; goal 1.0")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 15)
