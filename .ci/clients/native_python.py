"""The native client for Python against real servers. Usage: native_python.py PENSTOCK

Its unit tests; the scenarios of net/clients through the proxy that loses answers; logins over TLS
with a password, a key and a certificate; a cluster whose writer changes in the middle of a sale,
and one whose writer stops.
"""

import asyncio
import contextlib
import io
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HOME = pathlib.Path(__file__).resolve().parents[2]
CLIENT = HOME / "net" / "clients" / "python"
sys.path.insert(0, str(CLIENT))

import penstock  # noqa: E402
from penstock._wire import slot_of  # noqa: E402

BINARY = os.path.abspath(sys.argv[1])


def free_ports(count):
    """Ports that nobody has, a moment ago. Two nodes must know each other's before they start."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return ports


class Server:
    """A server with a directory of its own."""

    def __init__(self, folder, *options):
        self.log = folder.parent / f"{folder.name}.log"
        words = [BINARY, "serve", "--data", str(folder), "--admin-listen", "off", *options]
        if "--listen" not in options:
            words += ["--listen", "127.0.0.1:0", "--shard-ports", "0", "--resp-listen", "off"]
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("PENSTOCK_")}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
        for _ in range(500):
            text = self.log.read_text()
            if re.search(r"^ready$", text, re.M):
                break
            assert self.process.poll() is None, text
            time.sleep(0.02)
        else:
            self.stop()
            raise AssertionError(text)
        self.address = re.search(r"^listening +(127\.0\.0\.1:\d+)", text, re.M)[1]

    def stop(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(10)


def run(*words):
    done = subprocess.run([BINARY, *words], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def u64(number):
    return number.to_bytes(8, "little")


def sell(db, key, sold, ends):
    """One unit after the other, and counts those that were answered."""
    stock = penstock.u64(0)
    while not ends.is_set():
        try:
            db.update_if(key, [(stock >= 1).because(1), stock.subtract(1)])
            sold.append(1)
        except penstock.Unknown as unknown:
            while True:
                try:
                    db.resolve(unknown)
                    sold.append(1)
                    break
                except penstock.No:
                    break
                except penstock.PenstockError:
                    time.sleep(0.05)
        except (penstock.Busy, penstock.NotSent, penstock.DeadlineExceeded):
            time.sleep(0.01)


def alone(folder):
    """A server alone, without users: the scenarios."""
    server = Server(folder, "--schema", str(HOME / "deploy" / "programs"))
    try:
        script = CLIENT / "tests" / "scenarios.py"
        subprocess.run([sys.executable, str(script), server.address], check=True, timeout=60)
        examples_of_the_page(server.address)
        threads_share_a_client(server.address)
    finally:
        server.stop()


def examples_of_the_page(address):
    """The examples of the README, in the order of the page, as far as they run alone."""
    blocks = re.findall(r"```python\n(.*?)```", (CLIENT / "README.md").read_text(), re.S)
    names, printed = {}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(blocks[0].replace("127.0.0.1:7411", address), names)
        db = names["db"]
        for key in ("stock:{42}", "stock:{42}:west"):
            db.programs["restock"](stock=key, quantity=10, limit_per_buyer=5)
        for block in blocks[1:4]:
            exec(block, names)
    db.close()
    said = printed.getvalue().splitlines()
    assert said[:3] == ["yours; 99 left", "8", "2"], said
    print("the examples of the page")


def threads_share_a_client(address):
    with penstock.connect(address) as db:
        db.set("threads", u64(1000))
        stock, wrong = penstock.u64(0), []

        def one(number):
            for turn in range(25):
                db.update_if("threads", [stock.subtract(1)])
                db.set(f"thread:{number}", str(turn))
                if db.get(f"thread:{number}").data != str(turn).encode():
                    wrong.append(number)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong and db.get("threads").data == u64(800), (wrong, db.get("threads"))
    print("eight threads share a client")


@contextlib.contextmanager
def cluster(folder):
    """Two nodes with TLS and users; node 1 writes."""
    plan = folder / "cluster.toml"
    ports = free_ports(8)
    nodes = [f"{at + 1},127.0.0.1:{ports[4 * at]},127.0.0.1:{ports[4 * at + 1]}" for at in (0, 1)]
    run("cluster", "init", "--file", str(plan), "--node", nodes[0], "--node", nodes[1])
    run("cluster", "certs", "--file", str(plan))
    run("cluster", "certs", "--file", str(plan), "--client", "desk")
    certs, users = folder / "certs", str(folder / "users")
    secrets = {
        "ann": run("user", "add", "--users", users, "ann").strip(),
        "till/one": run("user", "add", "--users", users, "till", "--key", "one").strip(),
    }
    run("user", "add", "--users", users, "desk", "--certificate", "desk")
    for name in ("ann", "till", "desk"):
        for right in ("read ''", "write ''"):
            run("user", "grant", "--users", users, name, *right.replace("''", "").split(), "")
    servers = []
    try:
        for at in (0, 1):
            data = folder / f"node-{at + 1}"
            data.mkdir()
            first = ["--cluster-new"] if at == 0 else []
            servers.append(Server(
                data, "--cluster", str(plan), "--cluster-node", str(at + 1), "--shards", "1",
                "--listen", f"127.0.0.1:{ports[4 * at + 1]}", "--shard-ports",
                str(ports[4 * at + 2]), "--users", users,
                "--tls-cert", str(certs / f"node-{at + 1}.pem"),
                "--tls-key", str(certs / f"node-{at + 1}.key"),
                "--tls-client-ca", str(certs / "ca.pem"), *first))
        yield servers, plan, certs, secrets
    finally:
        for server in servers:
            server.stop()


def logins(servers, certs, secrets):
    tls = penstock.Tls(ca=str(certs / "ca.pem"))
    key = "login"
    for name, secret in secrets.items():
        identity = penstock.Identity(name, secret)
        with penstock.connect(servers[0].address, tls=tls, identity=identity) as db:
            db.set(key, name)
            assert db.get(key).data == name.encode()

        async def asynchronous():
            db = await penstock.aio.connect(servers[0].address, tls=tls, identity=identity)
            assert (await db.get(key)).data == name.encode()
            await db.close()

        asyncio.run(asynchronous())
    shown = penstock.Tls(ca=str(certs / "ca.pem"), certificate=str(certs / "client-desk.pem"),
                         key=str(certs / "client-desk.key"))
    with penstock.connect(servers[0].address, tls=shown) as db:
        assert db.get(key).data == b"till/one"
    for options in (
        {"tls": tls, "identity": penstock.Identity("ann", "wrong")},
        {"tls": tls, "identity": penstock.Identity("nobody", "wrong")},
        {"tls": tls},
        {},
        {"tls": penstock.Tls(), "identity": penstock.Identity("ann", secrets["ann"])},
    ):
        try:
            penstock.connect(servers[0].address, **options)
            raise AssertionError(f"logged in with {options}")
        except penstock.Unfit:
            pass
        try:
            asyncio.run(penstock.aio.connect(servers[0].address, **options))
            raise AssertionError(f"logged in with {options}")
        except penstock.Unfit:
            pass
    print("logins over TLS: password, key, certificate; five others are refused")


def changes_of_the_writer(servers, plan, certs, secrets):
    tls = penstock.Tls(ca=str(certs / "ca.pem"))
    options = {"tls": tls, "identity": penstock.Identity("ann", secrets["ann"])}
    # The node that does not write names the one that does.
    with penstock.connect(servers[1].address, **options) as db:
        db.set("stock", u64(1_000_000))
        sold, ends = [], threading.Event()
        threads = [threading.Thread(target=sell, args=(db, "stock", sold, ends)) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        before = len(sold)
        run("cluster", "switch", "--file", str(plan), "--to", "2", "--no-wait")
        for _ in range(500):
            if db._core.writers[slot_of(b"stock") // 64][1].address == servers[1].address:
                break
            time.sleep(0.02)
        else:
            raise AssertionError("the client has not learned of the switch in 10 s")
        time.sleep(0.3)
        behind = len(sold)
        ends.set()
        for thread in threads:
            thread.join()
        left = int.from_bytes(db.get("stock").data, "little")
        assert before and behind > before, (before, behind)
        print(f"a sale over a switch: {len(sold)} sold, {before} before it, and as many fewer left")
        stops(servers, db)


def stops(servers, db):
    """The writer says nothing: a read is answered in time or says that it was not."""
    servers[1].process.send_signal(signal.SIGSTOP)
    try:
        for thread in pathlib.Path(f"/proc/{servers[1].process.pid}/task").iterdir():
            while (thread / "stat").read_text().rpartition(")")[2].split()[0] != "T":
                time.sleep(0.01)
        began = time.monotonic()
        try:
            db.get("stock", deadline=1.5)
            raise AssertionError("a node that stands still has answered")
        except (penstock.Unknown, penstock.Busy, penstock.NotSent, penstock.DeadlineExceeded):
            took = time.monotonic() - began
            assert took < 2.5, took
    finally:
        servers[1].process.send_signal(signal.SIGCONT)
    assert db.get("stock") is not None
    print(f"the writer stood still: a read gave up after {took:.1f} s, the next one was answered")


def main():
    began = time.monotonic()
    words = [sys.executable, "-m", "unittest", "discover", "-q", "-s", str(CLIENT / "tests")]
    subprocess.run(words, check=True, timeout=60)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "alone").mkdir()
        alone(folder / "alone")
        with cluster(folder) as (servers, plan, certs, secrets):
            logins(servers, certs, secrets)
            changes_of_the_writer(servers, plan, certs, secrets)
    print(f"the native client for Python: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
