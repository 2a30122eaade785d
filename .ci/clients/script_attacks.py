"""Scripts that loop, grow, recurse, match for ever and return gigabytes, from several connections,
while another connection reads and writes.

Usage: script_attacks.py PENSTOCK [--shards N] [--only NAME]

PENSTOCK is the binary. It serves on a folder of its own. Each script must end with an error that
says what stands beside it. The connection that reads and writes must get each answer before its
deadline, and the memory of the server must stay below memory_max. Ends with 1 if one of these does
not hold.
"""

import argparse
import itertools
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

ATTACKERS, ROUNDS = 3, 2
DEADLINE_S = 10
MEMORY_MIB = 256

STEPS = "steps, the limit is"
TIME = "microseconds, the limit is"
MEMORY = "more memory than the limit"
REPLY = "its reply is longer than the limit"
LEVELS = "nested deeper than 128 levels"
C_STACK = "C stack overflow"
STOPPED = (STEPS, TIME, MEMORY)

# Name, script, what its error may say.
ATTACKS = (
    ("loop", "while true do end", STOPPED),
    ("loop in pcall", "while true do pcall(function() while true do end end) end", STOPPED),
    ("long for", "for i = 1, 1e300 do end", STOPPED),
    ("recursion", "local function f() return 1 + f() end return f()", ("stack overflow",)),
    ("tail calls", "local function f() return f() end return f()", STOPPED),
    ("pcall twice", "local function f() pcall(f) pcall(f) end f()", STOPPED),
    ("gsub in gsub", "local function f() return ('x'):gsub('x', f) end f()", STOPPED),
    ("index", "local t = {} setmetatable(t, {__index = function(t, k) return t[k + 1] end})"
        " return t[1]", (C_STACK,)),
    ("comparison", "local m = {} m.__lt = function(a, b) return a < b end"
        " local a, b = setmetatable({}, m), setmetatable({}, m) return a < b", (C_STACK,)),
    ("coroutines", "while true do coroutine.wrap(function() end)() end", STOPPED),
    ("endless coroutine", "local c = coroutine.wrap(function() while true do end end)"
        " while true do pcall(c) end", STOPPED),
    ("kept coroutines", "local t = {} while true do local c = coroutine.create(function()"
        " coroutine.yield() end) coroutine.resume(c) t[#t + 1] = c end", STOPPED),
    ("table", "local t = {} while true do t[#t + 1] = #t end", STOPPED),
    ("keys of a table", "local t, i = {}, 0 while true do i = i + 1 t['k' .. i] = i end", STOPPED),
    ("closures", "local t = {} while true do t[#t + 1] = function() return t end end", STOPPED),
    ("doubled string", "local s = 'y' while true do s = s .. s end", STOPPED),
    ("strings in pcall", "local t = {} while true do pcall(function() while true do"
        " t[#t + 1] = ('y'):rep(1e6) .. #t end end) end", STOPPED),
    ("rep of gigabytes", "return #string.rep('yy', 2 ^ 30)", STOPPED),
    ("rep of rep", "local s = 'y' for i = 1, 40 do s = s:rep(10) end return #s", STOPPED),
    ("reply of gigabytes", "return string.rep('y', 1e9)", STOPPED),
    ("long reply", "return string.rep('y', 1048576)", (REPLY,)),
    ("reply of many", "local t, s = {}, ('y'):rep(1e6) for i = 1, 1e5 do t[i] = s end return t",
        STOPPED + (REPLY,)),
    ("deep reply", "local t = {} local c = t for i = 1, 1e5 do c[1] = {} c = c[1] end return t",
        STOPPED + (LEVELS,)),
    ("reply in itself", "local t = {} t[1] = t return t", (LEVELS,)),
    ("shared tables", "local t = {1} for i = 1, 60 do t = {t, t} end return t", STOPPED),
    ("many stars", "return string.find(('a'):rep(5000), ('a*'):rep(30) .. 'b')", STOPPED),
    ("many lazy stars", "return string.find(('a'):rep(30000), '.-.-.-.-.-.-.-.-.-.-b')", STOPPED),
    ("balanced", "return string.match(('('):rep(1e6), '%b()')", STOPPED),
    ("same again", "return string.match(('a'):rep(20000), '^(.-)%1%1%1%1b')", STOPPED),
    ("long class", "return string.match(('a'):rep(20000), '[' .. ('b-c'):rep(10000) .. ']')",
        STOPPED),
    ("gsub that grows", "local s = 'y' for i = 1, 40 do s = s:gsub('y', 'yyyyyyyyyy') end"
        " return #s", STOPPED),
    ("captures", "return #(('y'):rep(1e5)):gsub('(y)', ('%1'):rep(1e4))", STOPPED),
    ("plain find", "local s, n = ('a'):rep(1e6), ('a'):rep(5e5) .. 'b'"
        " while true do s:find(n, 1, true) end", STOPPED),
    ("formats", "local s = ('y'):rep(1e6) while true do"
        " local t = string.format('%s%s%s%s', s, s, s, s) end", STOPPED),
    ("wide format", "return #string.format('%99999999999d', 1)", ("too long",)),
    ("concat", "local t = {} for i = 1, 1e5 do t[i] = 'y' end"
        " while true do local s = table.concat(t, ('z'):rep(1000)) end", STOPPED),
    ("unpack", "return unpack({}, 1, 1e8)", ("too many results",)),
    ("sort", "local t = {} for i = 1, 3e5 do t[i] = -i end while true do table.sort(t) end",
        STOPPED),
    ("inserts", "local t = {} while true do table.insert(t, 1, 1) end", STOPPED),
    ("long comparisons", "local a, b = ('y'):rep(4e6) .. 'a', ('y'):rep(4e6) .. 'b'"
        " while true do local c = a < b end", STOPPED),
    ("lower", "local s = ('Y'):rep(5e6) while true do local t = s:lower() end", STOPPED),
    ("parts", "local s = ('Y'):rep(5e6) while true do local t = s:sub(2) end", STOPPED),
    ("deep JSON", "return cjson.decode(('['):rep(1e6))", ("too many nested",)),
    ("JSON of itself", "local t = {} t[1] = t return cjson.encode(t)", ("excessive nesting",)),
    ("JSON of shared", "local t = {1} for i = 1, 60 do t = {t, t} end return #cjson.encode(t)",
        STOPPED),
    ("sparse JSON", "cjson.encode_sparse_array(true, 0, 0) local t = {} t[1e9] = 1"
        " return #cjson.encode(t)", STOPPED),
    ("JSON again", "local s = '[' .. ('1,'):rep(99) .. '1]' while true do cjson.decode(s) end",
        STOPPED),
    ("long MessagePack", "return cmsgpack.unpack('\\221\\255\\255\\255\\255')", ("Missing bytes",)),
    ("deep MessagePack", "return cmsgpack.unpack(('\\145'):rep(1e6))", ("deeper than 256",)),
    ("MessagePack of shared", "local t = {1} for i = 1, 60 do t = {t, t} end"
        " return #cmsgpack.pack(t)", STOPPED),
    ("struct", "return #struct.pack(('x'):rep(1e6))", STOPPED),
    ("loaded text", "local s = 'return ' .. ('1+'):rep(10000) .. '1'"
        " while true do local f = loadstring(s) end", STOPPED),
    ("text without an end", "return load(function() return ' ' end)", STOPPED),
    ("deep text", "return loadstring(('do '):rep(1e6) .. (' end'):rep(1e6))", STOPPED),
    ("long error", "error(('y'):rep(8e6))", STOPPED),
    ("loop in a handler", "xpcall(function() while true do end end, function()"
        " while true do end end)", STOPPED),
    ("calls", "while true do redis.call('GET', '{a}n') end", STOPPED),
    ("calls that fail", "while true do redis.pcall('NOSUCH', '{a}n') end", STOPPED),
    ("many keys", "local i = 0 while true do i = i + 1 redis.call('SET', '{a}k' .. i, 'v') end",
        STOPPED + ("uses at most 1024 keys",)),
    ("long values", "local t = {} redis.call('SET', '{a}long', ('y'):rep(1e6))"
        " while true do t[#t + 1] = redis.call('GET', '{a}long') end",
        STOPPED + ("have read and written", "written take")),
    ("appends", "while true do redis.call('APPEND', '{a}app', ('y'):rep(100000)) end",
        STOPPED + ("maximum allowed size",)),
    ("long reply of a call", "redis.call('SET', '{a}m', ('y'):rep(1e6))"
        " return redis.call('MGET', '{a}m', '{a}m', '{a}m')", ("may reply",)),
    ("messages", "while true do redis.call('PUBLISH', '{a}ch', ('y'):rep(1000)) end",
        STOPPED + ("are published here",)),
    ("lines of the log", "while true do redis.log(redis.LOG_WARNING, ('y'):rep(1e5)) end", STOPPED),
    ("digests", "local s = ('y'):rep(5e6) while true do redis.sha1hex(s) end", STOPPED),
    ("globals", "rawset(_G, 'x', 1)", ("readonly table",)),
    ("methods of strings", "getmetatable('').__index = nil", ("readonly table",)),
)  # fmt: skip


class Server:
    def __init__(self, binary, shards):
        self.folder = tempfile.mkdtemp(prefix="script-attacks-", dir="/var/tmp")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = open(self.folder + "/log", "wb")
        self.process = subprocess.Popen([
            binary, "serve", "--data", self.folder + "/data", "--listen", "127.0.0.1:0",
            "--shard-ports", "0", "--resp-listen", f"127.0.0.1:{self.port}",
            "--shards", str(shards), "--cache-bytes", "16MiB", "--segment-bytes", "16MiB",
            "--memory-max", f"{MEMORY_MIB}MiB",
        ], stdout=self.log, stderr=self.log)  # fmt: skip
        until = time.monotonic() + 20
        while time.monotonic() < until and self.process.poll() is None:
            try:
                self.client().ping()
                return
            except redis.RedisError:
                time.sleep(0.05)
        with open(self.folder + "/log") as log:
            sys.exit(f"the server did not come up:\n{log.read()[-3000:]}")

    def client(self):
        retry = Retry(NoBackoff(), 0)
        address = {"host": "127.0.0.1", "port": self.port}
        return redis.Redis(**address, retry=retry, socket_timeout=DEADLINE_S)

    def memory_mib(self):
        """The most that it has taken so far."""
        with open(f"/proc/{self.process.pid}/status") as status:
            most = next(line for line in status if line.startswith("VmHWM"))
        return int(most.split()[1]) // 1024

    def end(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder)


class Other:
    """Who reads and writes meanwhile."""

    def __init__(self, server):
        self.client = server.client()
        self.ends = threading.Event()
        self.faults = []
        self.answers = 0
        self.longest_s = 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            for number in itertools.count():
                if self.ends.is_set():
                    return
                # Of both cores, if there are two.
                key, began = f"{{{number % 8}}}other", time.monotonic()
                self.client.set(key, number)
                if self.client.get(key) != b"%d" % number:
                    self.faults.append(f"{key} has lost its value")
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                self.answers += 2
                time.sleep(0.002)
        except redis.RedisError as error:
            self.faults.append(f"another client: {type(error).__name__}: {error}")

    def end(self):
        self.ends.set()
        self.thread.join()


def attack(server, name, script, allowed, faults):
    client = server.client()
    for _ in range(ROUNDS):
        try:
            value = client.eval(script, 0)
            faults.append(f"{name} answered {str(value)[:100]}")
        except redis.ResponseError as error:
            if not any(text in str(error) for text in allowed):
                faults.append(f"{name} ended with: {str(error)[:200]}")
        except redis.RedisError as error:
            faults.append(f"{name}: {type(error).__name__}: {error}")
            return


def main():
    options = argparse.ArgumentParser()
    options.add_argument("penstock")
    options.add_argument("--shards", type=int, default=1)
    options.add_argument("--only")
    options = options.parse_args()
    attacks = [one for one in ATTACKS if options.only in (None, one[0])]
    server = Server(options.penstock, options.shards)
    try:
        other, faults = Other(server), []
        for name, script, allowed in attacks:
            before = other.answers
            threads = [
                threading.Thread(target=attack, args=(server, name, script, allowed, faults))
                for _ in range(ATTACKERS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            # Who was served meanwhile is served behind it, too.
            until = time.monotonic() + DEADLINE_S
            while other.answers == before and time.monotonic() < until and not other.faults:
                time.sleep(0.001)
            if other.answers == before:
                faults.append(f"nobody else was served during and behind: {name}")
            if server.process.poll() is not None:
                faults.append(f"the server has ended by: {name}")
                break
        other.end()
        faults += other.faults
        memory = server.memory_mib() if server.process.poll() is None else 0
        if memory >= MEMORY_MIB:
            faults.append(f"the server took {memory} MiB, and memory_max is {MEMORY_MIB}")
    finally:
        server.end()
    for fault in faults[:20]:
        print(fault)
    print(
        f"{options.shards} shards: {len(attacks)} attacks by {ATTACKERS} connections, "
        f"{other.answers} answers for another one, the longest {other.longest_s:.2f} s, "
        f"{memory} MiB, {len(faults)} faults"
    )
    sys.exit(1 if faults else 0)


main()
