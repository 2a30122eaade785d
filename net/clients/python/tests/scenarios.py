"""Runs the scenarios of net/clients/scenarios. Usage: scenarios.py HOST:PORT [NAME...]

Each runs with the blocking client and with the asyncio client, through net/clients/proxy.py.
"""

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import penstock  # noqa: E402
from penstock.fields import Instruction, Number  # noqa: E402

CLIENTS = HERE.parent.parent
OPTIONS = ("tokens", "retries", "shard_ports", "level")
NAMED = {"if_absent", "if_present", "if_version", "show", "keep_expiry", "never", "with_expiry",
         "with_values", "page_keys", "level"}


class Failure(Exception):
    """A step came out otherwise than its scenario says."""


class Proxy:
    """The proxy as a process."""

    def __init__(self, address):
        self.process = subprocess.Popen(
            [sys.executable, str(CLIENTS / "proxy.py"), address], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().split()[1]

    def ask(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(5)


def of_value(told):
    """The bytes of a value as scenarios write it."""
    if told is None:
        return None
    (kind, value), = told.items()
    if kind == "text":
        return value.encode()
    if kind == "hex":
        return bytes.fromhex(value)
    return value.to_bytes({"u64": 8, "u32": 4}[kind], "little")


def instruction(number, operator, operand, reason=0):
    made = (number.compare(operator, operand) if operator in penstock.fields.COMPARISONS
            else number.effect(operator, operand))
    return made.because(reason)


class Blocking:
    """Does steps with the blocking client."""

    kind = "blocking"

    def open(self, address, options):
        return penstock.Client(address, **options)

    def call(self, client, name, args, kwargs):
        made = getattr(client, name)(*args, **kwargs)
        return list(made) if name == "scan" else made

    def together(self, client, calls):
        with client.pipeline() as many:
            later = [getattr(many, name)(*args, **kwargs) for name, args, kwargs in calls]
        return [(lambda each=each: each.result()) for each in later]

    def cancel(self, client, call, after):
        name, args, kwargs = call
        try:
            getattr(client, name)(*args, **{**kwargs, "deadline": after})
        except penstock.PenstockError:
            pass

    def in_child(self):
        """The child of a fork goes on with the same client."""

    def close(self, client):
        client.close()


class Asynchronous:
    """Does steps with the asyncio client."""

    kind = "asyncio"

    def __init__(self):
        self.loop = asyncio.new_event_loop()

    def open(self, address, options):
        return penstock.aio.AsyncClient(address, **options)

    async def _call(self, client, name, args, kwargs):
        made = getattr(client, name)(*args, **kwargs)
        if name == "scan":
            return [each async for each in made]
        return await made

    def call(self, client, name, args, kwargs):
        return self.loop.run_until_complete(self._call(client, name, args, kwargs))

    def together(self, client, calls):
        async def all_of_them():
            return await asyncio.gather(*[self._call(client, *call) for call in calls],
                                        return_exceptions=True)

        def outcome(each):
            if isinstance(each, BaseException):
                raise each
            return each

        outcomes = self.loop.run_until_complete(all_of_them())
        return [(lambda each=each: outcome(each)) for each in outcomes]

    def cancel(self, client, call, after):
        async def cancelled():
            task = asyncio.ensure_future(self._call(client, *call))
            await asyncio.sleep(after)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return
            raise Failure("the call was over before it was cancelled")

        self.loop.run_until_complete(cancelled())

    def in_child(self):
        self.loop = asyncio.new_event_loop()

    def close(self, client):
        self.loop.run_until_complete(client.close())


class Scenario:
    """One run of a scenario with one kind of client."""

    def __init__(self, told, ways, address, proxy):
        self.told, self.ways, self.proxy = told, ways, proxy
        self.mark = uuid.uuid4().hex[:12]
        self.outcomes = {}
        proxy.ask(faults=told.get("faults", []), hello=told.get("hello", {}))
        asked = told.get("client", {})
        options = {name: asked[name] for name in OPTIONS if name in asked}
        options["deadline"] = asked.get("deadline_ms", 2000) / 1000
        self.clients = {"proxy": ways.open(proxy.address, options),
                        "direct": ways.open(address, {"tokens": False, "retries": False})}

    def run(self):
        for number, step in enumerate(self.told["steps"]):
            try:
                self.step(step)
            except Failure as failure:
                raise Failure(f"step {number}, {json.dumps(step)}: {failure}") from None
        fired = self.proxy.ask(seen=True)["fired"]
        due = sum(len(each["nth"]) if isinstance(each["nth"], list) else 1
                  for each in self.told.get("faults", []) if each["nth"] != "each")
        if fired < due and not self.told.get("may_not_fire"):
            raise Failure(f"{fired} of {due} faults took place")

    def close(self):
        for client in self.clients.values():
            self.ways.close(client)

    def step(self, step):
        todo = step["do"]
        if todo == "wait":
            time.sleep(step["ms"] / 1000)
        elif todo == "faults":
            self.proxy.ask(faults=step.get("faults", []), hello=step.get("hello", {}))
        elif todo == "end":
            self.proxy.ask(end=True)
        elif todo == "repeat":
            for _ in range(step["times"]):
                for each in step["steps"]:
                    self.step(each)
        elif todo == "together":
            client = self.client(step)
            outcomes = self.ways.together(client, [self.request(each) for each in step["steps"]])
            for each, outcome in zip(step["steps"], outcomes):
                self.compare(each, outcome, 0.0)
        elif todo == "cancel":
            inner = step["step"]
            self.ways.cancel(self.client(inner), self.request(inner), step["after_ms"] / 1000)
        elif todo == "fork":
            self.fork(step["steps"])
        else:
            began = time.monotonic()
            request = self.request(step)
            self.compare(step, lambda: self.ways.call(self.client(step), *request), began)

    def fork(self, steps):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                self.ways.in_child()
                for step in steps:
                    self.step(step)
                code = 0
            except BaseException as error:
                print(f"in the child: {error!r}", flush=True)
            finally:
                os._exit(code)
        if os.waitpid(child, 0)[1]:
            raise Failure("the child failed")

    def client(self, step):
        return self.clients[step.get("via", "proxy")]

    def text(self, text):
        return text.replace("$", self.mark)

    def request(self, step):
        """The name of the method, its arguments, its keyword arguments."""
        todo = step["do"]
        options = dict(step.get("options", {}))
        kwargs = {name: options.pop(name) for name in list(options) if name in NAMED}
        if "if_version" in kwargs:
            kwargs["if_version"] = self.outcomes[kwargs["if_version"]].version
        for name in ("expires_in", "deadline"):
            if name + "_ms" in options:
                kwargs[name] = options.pop(name + "_ms") / 1000
        if "start" in options:
            kwargs["start"] = of_value(options.pop("start"))
        if "second_key" in options:
            kwargs["second_key"] = self.text(options.pop("second_key"))
        if options:
            raise Failure(f"options that the runner does not know: {options}")
        if todo == "set":
            args = [self.text(step["key"]), of_value(step["value"])]
        elif todo in ("get", "expiry", "delete", "set_expiry"):
            args = [self.text(step["key"])]
        elif todo == "update_if":
            made = [instruction(Number(each[0], each[1]), *each[2:])
                    for each in step["instructions"]]
            args = [self.text(step["key"]), made]
        elif todo == "apply":
            args = [self.apply(step)]
        elif todo == "run":
            keys = {name: self.text(key) for name, key in step["keys"].items()}
            args = [step["program"], keys, step.get("arguments", {})]
        elif todo == "scan":
            args = [self.text(step["prefix"])]
        elif todo == "resolve":
            args = [self.outcomes[step["of"]]]
        else:
            raise Failure(f"no such step: {todo}")
        return todo, args, kwargs

    def apply(self, step):
        apply = penstock.Apply()
        keys = [apply.key(self.text(key)) for key in step["keys"]]
        for number, *rest in step["instructions"]:
            key = keys[number]
            if rest[0] in ("EXISTS", "ABSENT", "DEL"):
                make = {"EXISTS": key.exists, "ABSENT": key.absent, "DEL": key.delete}[rest[0]]
                made = make().because(rest[1] if len(rest) > 1 else 0)
            elif rest[0] in ("PUT", "START"):
                made = (key.put if rest[0] == "PUT" else key.start)(of_value(rest[1]))
            else:
                made = instruction(key.field(rest[0], rest[1]), *rest[2:])
            assert isinstance(made, Instruction)
            apply.do(made)
        return apply

    def compare(self, step, call, began):
        expect = step.get("expect", {})
        try:
            outcome, name = call(), "ok"
        except penstock.PenstockError as error:
            outcome, name = error, type(error).__name__
        took = (time.monotonic() - began) * 1000
        if "as" in step:
            self.outcomes[step["as"]] = outcome
        allowed = expect.get("outcome", "ok")
        if name not in (allowed if isinstance(allowed, list) else [allowed]):
            raise Failure(f"the outcome is {name}, {outcome}")
        found = dict(self.found(expect, outcome))
        for member, value in expect.items():
            if member in ("outcome", "within_ms", "after_ms"):
                continue
            if member == "numbers" and isinstance(value, dict):
                found["numbers"] = {key: outcome.named.get(key) for key in value}
            if found.get(member) != value:
                raise Failure(f"{member} is {found.get(member)}")
        if took > expect.get("within_ms", 1e9) or took < expect.get("after_ms", 0):
            raise Failure(f"it took {took:.0f} ms")

    def found(self, expect, outcome):
        """What the outcome shows of the members that are expected."""
        for member in expect:
            if member in ("value", "shown"):
                value = outcome if member == "value" else outcome.shown
                same = (value.data if value is not None else None) == of_value(expect[member])
                yield member, expect[member] if same else value
            elif member == "was_there":
                yield member, outcome
            elif member == "keys":
                wanted = [self.text(key).encode() for key in expect[member]]
                keys = sorted(each.key for each in outcome)
                yield member, expect[member] if keys == sorted(wanted) else keys
            elif member == "has_token":
                yield member, outcome.token is not None
            elif member in ("status", "numbers", "replayed", "reason", "actual", "instruction"):
                yield member, getattr(outcome, member)


def main(address, names):
    files = sorted((CLIENTS / "scenarios").glob("*.json"))
    proxy, failed, count = Proxy(address), [], 0
    try:
        for file in files:
            told = json.loads(file.read_text())
            if names and told["name"] not in names:
                continue
            for ways in (Blocking(), Asynchronous()):
                count += 1
                scenario = Scenario(told, ways, address, proxy)
                try:
                    scenario.run()
                except Failure as failure:
                    failed.append(f"{told['name']}, {ways.kind}: {failure}")
                finally:
                    scenario.close()
    finally:
        proxy.close()
    for line in failed:
        print(f"failed: {line}")
    print(f"{count - len(failed)} of {count} runs of scenarios")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
