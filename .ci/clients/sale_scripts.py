"""Sells by the scripts of deploy/examples/scripts from many connections, while the server is killed
with -9 at random moments, and compares what is stored with every answer.

Usage: sale_scripts.py PENSTOCK [--shards N] [--seconds S] [--seed N] [--planted]

PENSTOCK is the binary. It serves on a folder of its own. A request whose answer is lost is asked
again where its script allows that, and counts as either where it does not. With --planted one
mistake after the other is planted, and the ledger must find each: else the command ends with 1.
"""

import argparse
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

WORKERS = 24
FOLDER = os.path.join(os.path.dirname(__file__), "../../deploy/examples/scripts")
NAMES = (
    "take_one take_units one_each limit_each order_once basket hold pay give_back rate_fixed "
    "unlock ticket"
).split()
HOUR = 3_600_000


class Unknown(Exception):
    """A request was sent and its answer did not come."""


class Server:
    def __init__(self, binary, shards, durability):
        self.folder = tempfile.mkdtemp(prefix="sale-scripts-", dir="/var/tmp")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.command = [
            binary, "serve", "--data", self.folder + "/data", "--listen", "127.0.0.1:0",
            "--shard-ports", "0", "--resp-listen", f"127.0.0.1:{self.port}",
            "--shards", str(shards), "--cache-bytes", "64MiB", "--segment-bytes", "16MiB",
            "--durability", durability,
        ]  # fmt: skip
        self.log = open(self.folder + "/log", "ab")
        self.kills = 0

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        until = time.monotonic() + 20
        while time.monotonic() < until and self.process.poll() is None:
            try:
                if client(self.port).ping():
                    return
            except redis.RedisError:
                time.sleep(0.02)
        with open(self.folder + "/log") as log:
            sys.exit(f"the server did not come up:\n{log.read()[-3000:]}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.kills += 1

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder)


def client(port):
    retry = Retry(NoBackoff(), 0)
    return redis.Redis(host="127.0.0.1", port=port, retry=retry, socket_timeout=15)


class Worker:
    """One connection. It sends nothing twice by itself."""

    def __init__(self, shop, number):
        self.shop = shop
        self.random = random.Random(shop.seed * 1000 + number)
        self.redis = client(shop.server.port)

    def ask(self, *command):
        """The answer, or Unknown when the server is there again."""
        try:
            return self.redis.execute_command(*command)
        except redis.exceptions.NoScriptError:
            raise
        except (redis.ConnectionError, redis.TimeoutError):
            self.shop.lost += 1
            self.wait()
            raise Unknown from None

    def wait(self):
        for _ in range(3000):
            try:
                self.redis.ping()
                return
            except redis.RedisError:
                time.sleep(0.01)
        sys.exit("the server is not there again")

    def once(self, name, keys, *args):
        """Runs a script. It is sent twice only if the server says that it does not know it."""
        command = ("EVALSHA", self.shop.digests[name], len(keys), *keys, *args)
        try:
            return self.ask(*command)
        except redis.exceptions.NoScriptError:
            self.surely("SCRIPT", "LOAD", self.shop.texts[name])
            return self.ask(*command)

    def surely(self, *command):
        """For what may run twice: asks until there is an answer."""
        while True:
            try:
                return self.ask(*command)
            except Unknown:
                pass

    def until_answered(self, name, keys, *args):
        while True:
            try:
                return self.once(name, keys, *args)
            except (Unknown, redis.exceptions.NoScriptError):
                pass

    def number(self, key):
        return int(self.surely("GET", key) or 0)


class Sale:
    """A sale by one script, and its ledger. Threads only append to its lists."""

    stock = 40

    def __init__(self, number):
        self.tag = f"{{{type(self).__name__}:{number}}}"
        self.key = self.tag + ":stock"
        self.units = []  # each unit that an answer gave to somebody
        self.unknown = []
        self.refused = []
        self.faults = []
        self.over = False
        self.ids = itertools.count()

    def open(self, worker):
        worker.surely("SET", self.key, self.stock, "NX")

    def sold(self, left, units=1):
        self.units.extend(range(left, left + units))

    def expect(self, holds, text):
        if not holds:
            self.faults.append(f"{self.tag} {text}")

    def compare_units(self, left):
        self.expect(left >= 0, f"oversold: {left} units are left of {self.stock}")
        self.expect(len(set(self.units)) == len(self.units), "a unit was sold twice")
        strange = [unit for unit in self.units if not left <= unit < self.stock]
        self.expect(not strange, f"units {strange} were sold, and {left} are left")
        for units in self.refused:
            self.expect(left < units, f"{units} units were refused and {left} are left")

    def compare_taken(self, left):
        """What was taken is what was acknowledged, and a part of what is unknown."""
        self.compare_units(left)
        taken, known = self.stock - left, len(self.units)
        self.expect(
            taken - known in sums(self.unknown),
            f"{known} units were acknowledged, {self.unknown} are unknown, {taken} were taken",
        )


def sums(numbers):
    reached = {0}
    for number in numbers:
        reached |= {one + number for one in reached}
    return reached


class TakeOne(Sale):
    tries = 0

    def step(self, worker):
        self.tries += 1
        try:
            left = worker.once("take_one", [self.key])
        except Unknown:
            self.unknown.append(1)
            return
        if left == -1:
            self.refused.append(1)
        else:
            self.sold(left)
        self.over |= left == -1 or self.tries > 2 * self.stock

    def compare(self, worker):
        self.compare_taken(worker.number(self.key))


class TakeUnits(Sale):
    def step(self, worker):
        units = worker.random.randint(1, 4)
        try:
            left = worker.once("take_units", [self.key], units)
        except Unknown:
            self.unknown.append(units)
            return
        if left == -1:
            self.refused.append(units)
            self.over |= units == 1
        else:
            self.sold(left, units)

    def compare(self, worker):
        self.compare_taken(worker.number(self.key))


class OneEach(Sale):
    stock, buyers = 25, 60

    def __init__(self, number):
        super().__init__(number)
        self.orders = {}  # of each buyer, by acknowledged answers
        self.client_decides = False

    def buy(self, worker, keys, order):
        if not self.client_decides:
            return worker.until_answered("one_each", keys, order)
        # The planted mistake: what was read is old when it is written.
        left = worker.number(self.key)
        if worker.surely("EXISTS", keys[1]):
            return -3
        if left < 1:
            return -1
        worker.surely("SET", keys[1], order)
        worker.surely("SET", self.key, left - 1)
        return left - 1

    def step(self, worker):
        buyer = worker.random.randrange(self.buyers)
        order, keys = f"{buyer}:{next(self.ids)}", [self.key, f"{self.tag}:buyer:{buyer}"]
        left = self.buy(worker, keys, order)
        if left >= 0:
            self.sold(left)
        elif left == -1:
            self.refused.append(1)
            self.over = True
        if left >= 0 or left == -3 and worker.surely("GET", keys[1]) == order.encode():
            self.expect(buyer not in self.orders, f"buyer {buyer} bought twice")
            self.orders[buyer] = order.encode()

    def compare(self, worker):
        left = worker.number(self.key)
        self.compare_units(left)
        keys = [f"{self.tag}:buyer:{buyer}" for buyer in range(self.buyers)]
        stored = {at: one for at, one in enumerate(worker.surely("MGET", *keys)) if one}
        self.expect(stored == self.orders, f"acknowledged {self.orders}, stored {stored}")
        self.expect(len(stored) == self.stock - left, f"{len(stored)} buyers, {left} left")


class LimitEach(Sale):
    buyers, limit = 15, 4

    def __init__(self, number):
        super().__init__(number)
        self.has = [[] for _ in range(self.buyers)]
        self.may_have = [[] for _ in range(self.buyers)]

    def step(self, worker):
        buyer, units = worker.random.randrange(self.buyers), worker.random.randint(1, 2)
        keys = [self.key, f"{self.tag}:buyer:{buyer}"]
        try:
            left = worker.once("limit_each", keys, units, self.limit)
        except Unknown:
            self.unknown.append(units)
            self.may_have[buyer].append(units)
            return
        if left >= 0:
            self.sold(left, units)
            self.has[buyer].append(units)
        elif left == -1:
            self.refused.append(units)
            self.over |= units == 1

    def compare(self, worker):
        left = worker.number(self.key)
        self.compare_taken(left)
        counts = [worker.number(f"{self.tag}:buyer:{one}") for one in range(self.buyers)]
        self.expect(sum(counts) == self.stock - left, f"buyers have {counts}, {left} are left")
        for count, has, may_have in zip(counts, self.has, self.may_have):
            self.expect(count <= self.limit, f"a buyer has {count}")
            self.expect(count - sum(has) in sums(may_have), f"a buyer has {count}, not {has}")


class OrderOnce(Sale):
    def __init__(self, number):
        super().__init__(number)
        self.orders = {}

    def step(self, worker):
        units, key = worker.random.randint(1, 3), f"{self.tag}:order:{next(self.ids)}"
        answer = worker.until_answered("order_once", [self.key, key], units, HOUR)
        if answer >= 0:
            self.sold(answer, units)
            self.orders[key] = answer
            if worker.random.random() < 0.3:
                again = worker.until_answered("order_once", [self.key, key], units, HOUR)
                self.expect(again == answer, f"an order was answered {answer} and {again}")
        else:
            self.refused.append(units)
            self.over |= units == 1

    def compare(self, worker):
        left = worker.number(self.key)
        self.compare_taken(left)
        for key, answer in self.orders.items():
            stored = worker.surely("GET", key)
            self.expect(stored == b"%d" % answer, f"an order answered {answer} is {stored}")


class Basket(Sale):
    articles = 3

    def __init__(self, number):
        super().__init__(number)
        self.orders, self.not_sold = {}, []
        self.keys = [f"{self.tag}:stock:{article}" for article in range(self.articles)]

    def open(self, worker):
        for key in self.keys:
            worker.surely("SET", key, self.stock, "NX")

    def step(self, worker):
        number = worker.random.randint(1, self.articles)
        articles = worker.random.sample(range(self.articles), number)
        units = [worker.random.randint(1, 3) for _ in articles]
        order = f"{self.tag}:order:{next(self.ids)}"
        keys = [order] + [self.keys[article] for article in articles]
        answer = worker.until_answered("basket", keys, *units)
        self.expect(answer >= 0, "a basket was taken for another")
        if answer == 0:
            self.orders[order] = dict(zip(articles, units))
        else:
            self.not_sold.append(order)
            self.over |= units[answer - 1] == 1

    def compare(self, worker):
        for article, key in enumerate(self.keys):
            left = worker.number(key)
            taken = sum(basket.get(article, 0) for basket in self.orders.values())
            self.expect(left >= 0, f"oversold: {left} units of article {article} are left")
            self.expect(left == self.stock - taken, f"{taken} were taken, {left} are left")
        for order, basket in self.orders.items():
            stored, sold = worker.surely("GET", order), ",".join(map(str, basket.values()))
            self.expect(stored == sold.encode(), f"a basket of {sold} is {stored}")
        for order in self.not_sold:
            self.expect(not worker.surely("EXISTS", order), "a refused basket was sold")


class Hold(Sale):
    """hold.lua, pay.lua and give_back.lua. Workers pay and cancel the same orders at once."""

    stock = 60

    def __init__(self, number):
        super().__init__(number)
        self.sold_key = self.tag + ":sold"
        self.orders = {}  # units of each
        self.answered = {}  # answers that say what became of it

    def step(self, worker):
        if worker.random.random() < 0.4 or not self.orders:
            return self.hold(worker)
        key = worker.random.choice(list(self.orders))
        how = worker.random.choices(("pay", "cancel", "late"), (6, 2, 2))[0]
        if how == "pay":
            answer = worker.until_answered("pay", [self.sold_key, key])
        else:
            keys = [self.key, self.sold_key, key]
            answer = worker.until_answered("give_back", keys, how, HOUR)
        self.expect(answer in (self.orders[key], -1, -2), f"{how} answered {answer}")
        if answer > 0:
            self.answered[key].append(how)
        elif answer == -2:
            self.answered[key].append("was back")
        return None

    def hold(self, worker):
        units, key = worker.random.randint(1, 3), f"{self.tag}:order:{next(self.ids)}"
        hold_ms = worker.random.choice((20, HOUR))
        left = worker.until_answered("hold", [self.key, key], units, hold_ms)
        if left == -1:
            self.over |= units == 1 and len(self.orders) > 60
            return
        self.expect(left >= 0 or left == -3, f"hold answered {left}")
        self.answered[key] = []
        self.orders[key] = units

    def compare(self, worker):
        left, sold = worker.number(self.key), worker.number(self.sold_key)
        units = {"held": 0, "paid": 0, "back": 0}
        for key, of_order in self.orders.items():
            stored = (worker.surely("GET", key) or b"none 0").decode().split()
            answered = self.answered[key]
            back = {"cancel", "late"} & set(answered)
            state = "back" if back else "paid" if "pay" in answered else "held"
            self.expect(stored[0] == state, f"an order is {stored}, answers were {answered}")
            by_somebody = back or "was back" not in answered
            self.expect(by_somebody, f"an order came back by nobody: {answered}")
            self.expect(int(stored[1]) == of_order, f"an order of {of_order} is {stored}")
            units[state] += of_order
        self.expect(left >= 0, f"oversold: {left} units are left")
        self.expect(sold == units["paid"], f"{sold} are sold, and orders say {units}")
        self.expect(left + units["held"] + sold == self.stock, f"{left} left, {units}")


class RateFixed(Sale):
    limit = 30

    def open(self, worker):
        pass

    def step(self, worker):
        try:
            call = worker.once("rate_fixed", [self.key], self.limit, HOUR)
        except Unknown:
            self.unknown.append(1)
            return
        if call > 0:
            self.units.append(call)
        self.over |= call < 0

    def compare(self, worker):
        calls, known = worker.number(self.key), len(self.units)
        self.expect(calls <= self.limit, f"{calls} calls in a window")
        self.expect(len(set(self.units)) == known, "two calls have one number")
        self.expect(calls - known in sums(self.unknown), f"{known} acknowledged, {calls} stored")
        self.expect(not calls or worker.surely("PTTL", self.key) > 0, "a window does not end")


class Unlock(Sale):
    """A counter that clients read and write, under a lock."""

    def __init__(self, number):
        super().__init__(number)
        self.lock = self.tag + ":lock"
        self.done = []

    def step(self, worker):
        owner = f"{os.getpid()}:{next(self.ids)}"
        if worker.random.random() < 0.2:
            stranger = worker.until_answered("unlock", [self.lock], "stranger:" + owner)
            self.expect(stranger == 0, "a stranger ended the lock")
        try:
            if not worker.ask("SET", self.lock, owner, "NX", "PX", HOUR):
                return
        except Unknown:
            worker.until_answered("unlock", [self.lock], owner)
            return
        left = worker.number(self.key) - 1
        worker.surely("SET", self.key, left)
        self.done.append(left)
        worker.until_answered("unlock", [self.lock], owner)
        self.over |= left <= 0

    def compare(self, worker):
        left, done = worker.number(self.key), len(self.done)
        self.expect(left == self.stock - done, f"{done} were taken under the lock, {left} are left")
        self.expect(len(set(self.done)) == done, "two held the lock at once")
        self.expect(not worker.surely("EXISTS", self.lock), "the lock was not ended")


class Ticket(Sale):
    buyers, limit = 60, 40

    def __init__(self, number):
        super().__init__(number)
        self.tickets = {}

    def open(self, worker):
        pass

    def step(self, worker):
        buyer = worker.random.randrange(self.buyers)
        keys = [self.key, f"{self.tag}:buyer:{buyer}"]
        ticket = worker.until_answered("ticket", keys, self.limit)
        if ticket == 0:
            self.over = True
            self.expect(buyer not in self.tickets, "a buyer has lost the ticket")
        else:
            before = self.tickets.setdefault(buyer, ticket)
            self.expect(before == ticket, f"a buyer has the tickets {before} and {ticket}")

    def compare(self, worker):
        given, known = worker.number(self.key), len(self.tickets)
        self.expect(given == known <= self.limit, f"{given} tickets, {known} were answered")
        self.expect(len(set(self.tickets.values())) == known, "a ticket was given twice")
        for buyer, ticket in self.tickets.items():
            stored = worker.number(f"{self.tag}:buyer:{buyer}")
            self.expect(stored == ticket, f"the ticket {ticket} is {stored}")


KINDS = (TakeOne, TakeUnits, OneEach, LimitEach, OrderOnce, Basket, Hold, RateFixed, Unlock, Ticket)


class Shop:
    def __init__(self, server, seed, kinds=KINDS, texts=None, change=None):
        self.server, self.seed, self.kinds = server, seed, kinds
        self.change = change or (lambda sale: None)
        self.texts = {}
        for name in NAMES:
            with open(os.path.join(FOLDER, name + ".lua")) as script:
                self.texts[name] = script.read()
        self.texts.update(texts or {})
        self.sales, self.now = [], {}
        self.lost = self.steps = 0
        self.ends = threading.Event()
        self.failed = []
        self.lock = threading.Lock()

    def sale_of(self, kind, worker):
        """The sale of a kind that is open, or a new one."""
        with self.lock:
            sale = self.now.get(kind)
            if sale and not sale.over:
                return sale
            sale = kind(len(self.sales))
            self.change(sale)
            sale.open(worker)
            self.sales.append(sale)
            self.now[kind] = sale
            return sale

    def work(self, number):
        worker = Worker(self, number)
        try:
            while not self.ends.is_set():
                self.sale_of(worker.random.choice(self.kinds), worker).step(worker)
                self.steps += 1
        except BaseException as error:
            self.failed.append(f"worker {number}: {type(error).__name__}: {error}")
            raise

    def run(self, seconds):
        """All sales, with kills; then what is wrong with them, if anything."""
        chance = random.Random(self.seed)
        self.server.start()
        loader = client(self.server.port)
        self.digests = {name: loader.script_load(text) for name, text in self.texts.items()}
        threads = [threading.Thread(target=self.work, args=(at,)) for at in range(WORKERS)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.failed:
            time.sleep(chance.uniform(0.1, 1.0))
            self.server.kill()
            self.server.start()
        self.ends.set()
        for thread in threads:
            thread.join()
        # What was acknowledged last is compared behind a kill, too.
        self.server.kill()
        self.server.start()
        reader = Worker(self, WORKERS)
        for sale in self.sales:
            sale.compare(reader)
        return self.failed + [fault for sale in self.sales for fault in sale.faults]


def without(name, line):
    with open(os.path.join(FOLDER, name + ".lua")) as script:
        text = script.read()
    assert line in text, f"{name}.lua has no line to leave out: {line}"
    return {name: text.replace(line, "")}


def reads_and_writes(sale):
    sale.client_decides = True


def planted():
    """Name, kinds, scripts, change of a sale, durability, what the ledger must say."""
    yield (
        "a script that sells what is not there", [TakeOne],
        without("take_one", "if left < 1 then return -1 end"), None, "disk", "oversold",
    )  # fmt: skip
    yield (
        "a client that reads and writes", [OneEach], {}, reads_and_writes, "disk", "sold twice"
    )  # fmt: skip
    yield (
        "an order that is not kept", [OrderOnce],
        without("order_once", "redis.call('SET', KEYS[2], left, 'PX', ARGV[2])"), None, "disk",
        "was answered",
    )  # fmt: skip
    yield (
        "a lock that anybody ends", [Unlock],
        {"unlock": "return redis.call('DEL', KEYS[1])"}, None, "disk", "at once",
    )  # fmt: skip
    yield (
        "answers before the disk has them", [TakeOne, OneEach, OrderOnce, Ticket], {}, None,
        "none", "acknowledged",
    )  # fmt: skip


def main():
    options = argparse.ArgumentParser()
    options.add_argument("penstock")
    options.add_argument("--shards", type=int, default=1)
    options.add_argument("--seconds", type=float, default=8)
    options.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options.add_argument("--planted", action="store_true")
    options = options.parse_args()
    print(f"seed {options.seed}", flush=True)
    if not options.planted:
        server = Server(options.penstock, options.shards, "disk")
        try:
            shop = Shop(server, options.seed)
            faults = shop.run(options.seconds)
        finally:
            server.end()
        for fault in faults[:20]:
            print(fault)
        print(
            f"{options.shards} shards: {shop.steps} steps of {len(shop.sales)} sales, "
            f"{server.kills} kills, {shop.lost} answers lost, {len(faults)} faults"
        )
        used = {type(sale) for sale in shop.sales}
        if faults or used != set(KINDS) or not shop.lost:
            sys.exit(1)
        return
    for name, kinds, texts, change, durability, says in planted():
        server = Server(options.penstock, options.shards, durability)
        try:
            faults = Shop(server, options.seed, kinds, texts, change).run(options.seconds)
        finally:
            server.end()
        found = [fault for fault in faults if says in fault]
        print(f"{name}: {len(faults)} faults, such as: {(found or faults or ['none'])[0][:160]}")
        if not found:
            sys.exit(1)


main()
