#!/usr/bin/env python3
"""The scripts of deploy/examples/scripts by EVALSHA: Penstock beside Valkey, each server on CPU 0
and redis-benchmark on CPU 1.

  VALKEY_SERVER=PATH benches/sale_scripts.py [--quick] [--rounds N] [--seconds S] [--only NAME,...]

PENSTOCK names the server (default: target/release/penstock, which is built if it is not named),
VALKEY_SERVER a valkey-server, REDIS_BENCHMARK the load (default: on the PATH). Four servers are
there at once, and one of them is loaded at a time:

  Penstock disk    an answer leaves when its change is on the disk
  Penstock none    an answer waits for no disk
  Valkey volatile  --save '' --appendonly no
  Valkey always    --appendonly yes --appendfsync always

All take turns in each round, each second round in the opposite order. A ratio is of two figures of
one round; the table has medians. 50 connections, 16 commands of each under way. Prints the table as
markdown. Bounded: rounds x scripts x 4 x seconds, about 5 minutes; --quick half a minute.
"""

import argparse
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "../deploy/examples/scripts")
CONNECTIONS, DEPTH = 50, 16
FEW, MANY = 100_000, 10_000_000  # keys of buyers and orders
UNITS = 1_000_000_000
HOUR_MS = 3_600_000
GOALS = {"Valkey volatile": 1.0, "Valkey always": 2.0}
BUYER, ORDER, LOCK = "{s}:buyer:__rand_int__", "{s}:order:__rand_int__", "{s}:lock:__rand_int__"
HELD = f"held 2 {1 << 43}"  # until the year 2248

# Script: keys, arguments, from how many keys __rand_int__ draws, what each of these keys has before
# the run. Of 10 million orders few come twice; of 100,000 with a value a third comes again, and is
# answered as paid, as given back, or as no lock.
CALLS = {
    "take_one": (["{s}:stock"], [], MANY, None),
    "take_units": (["{s}:stock"], [2], MANY, None),
    "one_each": (["{s}:stock", BUYER], ["order-7"], MANY, None),
    "limit_each": (["{s}:stock", BUYER], [1, 1000], FEW, None),
    "order_once": (["{s}:stock", ORDER], [2, HOUR_MS], MANY, None),
    "basket": ([ORDER, "{s}:stock", "{s}:second", "{s}:third"], [1, 2, 3], MANY, None),
    "hold": (["{s}:stock", ORDER], [2, HOUR_MS], MANY, None),
    "pay": (["{s}:sold", ORDER], [], FEW, HELD),
    "give_back": (["{s}:stock", "{s}:sold", ORDER], ["cancel", HOUR_MS], FEW, HELD),
    "rate_fixed": (["{s}:calls:__rand_int__"], [100, HOUR_MS], FEW, None),
    "unlock": ([LOCK], ["me"], FEW, "me"),
    "ticket": (["{s}:tickets", BUYER], [UNITS], MANY, None),
}


class Client:
    """As much of RESP as the preparation of a run needs."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.replies = self.socket.makefile("rb")

    def ask(self, *words):
        self.socket.sendall(command(words))
        return self.reply()

    def reply(self):
        line = self.replies.readline()
        if line[:1] == b"-" or not line:
            sys.exit(f"the server answered {line}")
        if line[:1] == b"$" and line != b"$-1\r\n":
            return self.replies.read(int(line[1:]) + 2)[:-2].decode()
        return line[1:-2].decode()

    def fill(self, pattern, value):
        """A key for each number."""
        for first in range(0, FEW, 1000):
            numbers = range(first, first + 1000)
            names = [pattern.replace("__rand_int__", f"{number:012}") for number in numbers]
            self.socket.sendall(b"".join(command(("SET", name, value)) for name in names))
            for _ in names:
                self.reply()


def command(words):
    parts = [str(word).encode() for word in words]
    head = b"*%d\r\n" % len(parts)
    return head + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Server:
    def __init__(self, name, words, port, folder):
        self.name, self.port = name, port
        self.log = open(os.path.join(folder, name.replace(" ", "-") + ".log"), "wb")
        self.process = subprocess.Popen(
            ["taskset", "-c", "0", *words], stdout=self.log, stderr=self.log, cwd=folder
        )
        until = time.monotonic() + 30
        while True:
            try:
                self.client = Client(port)
                assert self.client.ask("PING") == "PONG"
                return
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    with open(self.log.name) as log:
                        sys.exit(f"{name} did not come up:\n{log.read()[-2000:]}")
                time.sleep(0.05)

    def prepare(self, run):
        """The stocks are full, and none of these keys was there before."""
        for name in ("stock", "second", "third"):
            self.client.ask("SET", f"{run.tag}:{name}", UNITS)
        if run.before:
            self.client.fill(run.keys[-1], run.before)

    def measure(self, benchmark, run, requests):
        """Calls a second, and microseconds of CPU that each took."""
        self.prepare(run)
        digest = self.client.ask("SCRIPT", "LOAD", run.text)
        words = ["EVALSHA", digest, len(run.keys), *run.keys, *run.arguments]
        before = self.cpu_us()
        done = subprocess.run(
            ["taskset", "-c", "1", benchmark, "-p", str(self.port), "-c", str(CONNECTIONS),
             "-P", str(DEPTH), "-r", str(run.numbers), "-n", str(requests), "-q", *map(str, words)],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        cpu_us = self.cpu_us() - before
        found = re.findall(r"([\d.]+) requests per second", done.stdout)
        if done.returncode or not found or "rror" in done.stdout + done.stderr:
            sys.exit(f"{self.name}: redis-benchmark: {done.stdout[-500:]} {done.stderr[-500:]}")
        return float(found[-1]), cpu_us / requests

    def cpu_us(self):
        """Of all threads, since the start."""
        tasks = f"/proc/{self.process.pid}/task"
        used = 0
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/schedstat") as schedstat:
                used += int(schedstat.read().split()[0]) / 1000
        return used

    def end(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()


def program(variable, name):
    path = os.environ.get(variable) or shutil.which(name)
    if not path or not os.path.exists(path):
        sys.exit(f"there is no {name}: {variable} may name it")
    return os.path.abspath(path)


def penstock():
    named = os.environ.pop("PENSTOCK", None)
    if named:
        return os.path.abspath(named)
    root = os.path.join(HERE, "..")
    subprocess.run(
        ["cargo", "build", "--release", "--quiet", "--bin", "penstock"], cwd=root, check=True
    )
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(root, "target"))
    return os.path.abspath(os.path.join(target, "release/penstock"))


def servers(folder):
    own, valkey = penstock(), program("VALKEY_SERVER", "valkey-server")
    for name, level in (("Penstock disk", "disk"), ("Penstock none", "none")):
        port = free_port()
        data = os.path.join(folder, name.replace(" ", "-"))
        yield Server(name, [
            own, "serve", "--data", data, "--listen", "127.0.0.1:0", "--shard-ports", "0",
            "--resp-listen", f"127.0.0.1:{port}", "--shards", "1", "--durability", level,
        ], port, folder)  # fmt: skip
    for name, keeps in (
        ("Valkey volatile", ["--appendonly", "no"]),
        ("Valkey always", ["--appendonly", "yes", "--appendfsync", "always"]),
    ):
        port = free_port()
        data = os.path.join(folder, name.replace(" ", "-"))
        os.mkdir(data)
        yield Server(name, [
            valkey, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", data, *keeps
        ], port, folder)  # fmt: skip


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true")
    options.add_argument("--rounds", type=int)
    options.add_argument("--seconds", type=float)
    options.add_argument("--only", default=",".join(CALLS))
    options = options.parse_args()
    rounds = options.rounds or (1 if options.quick else 5)
    seconds = options.seconds or (0.3 if options.quick else 1.0)
    benchmark = program("REDIS_BENCHMARK", "redis-benchmark")
    folder = tempfile.mkdtemp(prefix="sale-scripts-", dir="/var/tmp")
    running = []
    try:
        for server in servers(folder):
            running.append(server)
        runs = {}
        for round_number in range(rounds):
            for name in options.only.split(","):
                turns = running if round_number % 2 == 0 else running[::-1]
                for server in turns:
                    earlier = runs.setdefault((name, server.name), [])
                    earlier.append(measure(server, benchmark, name, seconds, earlier))
                print(".", end="", file=sys.stderr, flush=True)
            for server in running:
                server.client.ask("FLUSHALL")
            time.sleep(1)
        print(file=sys.stderr)
        table(runs, [server.name for server in running], rounds, seconds)
    finally:
        for server in running:
            server.end()
        shutil.rmtree(folder)


class Run:
    """One run of a script, with keys of its own."""

    count = 0

    def __init__(self, name):
        keys, self.arguments, self.numbers, self.before = CALLS[name]
        with open(os.path.join(FOLDER, name + ".lua")) as script:
            self.text = script.read()
        Run.count += 1
        self.tag = f"{{s{Run.count}}}"
        self.keys = [key.replace("{s}", self.tag) for key in keys]


def measure(server, benchmark, name, seconds, earlier):
    guess, _ = earlier[-1] if earlier else server.measure(benchmark, Run(name), 8000)
    run = Run(name)
    # What is there before a run is used up by it.
    most = FEW if run.before else 100_000_000
    requests = min(most, max(8000, int(guess * seconds)))
    return server.measure(benchmark, run, requests)


def table(runs, names, rounds, seconds):
    print(f"{CONNECTIONS} connections, {DEPTH} commands of each under way, one core for a server,")
    print(f"medians of {rounds} rounds of {seconds} s; the ratios are those of Penstock disk.\n")
    columns = ["script", *(f"{name}, calls/s" for name in names), *(f"to {one}" for one in GOALS)]
    row(columns)
    row(["---"] + ["---:"] * (len(columns) - 1))
    missed = []
    scripts = list(dict.fromkeys(script for script, _ in runs))
    for script in scripts:
        rates = {name: [rate for rate, _ in runs[script, name]] for name in names}
        cells = [f"{statistics.median(rates[name]):,.0f}" for name in names]
        for beside, goal in GOALS.items():
            pairs = zip(rates["Penstock disk"], rates[beside])
            each = [one / other for one, other in pairs]
            middle = statistics.median(each)
            cells.append(f"{middle:.2f} ({min(each):.2f} to {max(each):.2f})")
            if middle < goal:
                missed.append(f"{script} to {beside}: {middle:.2f}, and {goal} is the goal")
        row([script, *cells])
    print("\nMicroseconds of CPU that a call takes of the server, all threads:\n")
    row(["script", *names])
    row(["---"] + ["---:"] * len(names))
    for script in scripts:
        used = [statistics.median(cpu for _, cpu in runs[script, name]) for name in names]
        row([script, *(f"{one:.2f}" for one in used)])
    print("\n" + ("\n".join(missed) if missed else "All goals are met."))


def row(cells):
    print("| " + " | ".join(cells) + " |")


main()
