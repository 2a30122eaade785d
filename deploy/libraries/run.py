#!/usr/bin/env python3
"""Runs each program of this folder against servers that are there, and prints a line for each.

  run.py --work DIR [--one PORT] [--several PORT] [--cluster PORT] [--write] [NAME...]

README.md says how DIR is made and what servers stand behind the ports. Each program reads PORT from
its environment and ends with 0 if everything it asserts held. All keys of the server are deleted
before each program. What came of it is kept in DIR/results.json. `--write` puts the table of all
that is kept there into net/LIBRARIES.md, and its head into README.md.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import xml.etree.ElementTree as tree

import refusals

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEADLINE_S = 60
SERVERS = {"one": "--shards 1", "several": "--shards 2", "cluster": "cluster"}
LANGUAGES = {"python": "py", "node": "js", "go": "go", "java": "java"}
Program = collections.namedtuple("Program", "language name path library version does")


class Server:
    """A connection that asks a server of RESP2 for a few commands."""

    def __init__(self, host, port):
        self.file = socket.create_connection((host, port), timeout=30).makefile("rwb")

    def ask(self, *words):
        words = [str(word).encode() if not isinstance(word, bytes) else word for word in words]
        parts = [b"*%d\r\n" % len(words)]
        parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.file.write(b"".join(parts))
        self.file.flush()
        return self.answer()

    def answer(self):
        line = self.file.readline()
        kind, text = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(text.decode())
        if kind == b"$":
            return self.file.read(int(text) + 2)[:-2] if int(text) >= 0 else None
        if kind == b"*":
            return [self.answer() for _ in range(int(text))]
        return int(text) if kind == b":" else text.decode()


def delete_keys(port):
    """Deletes all scripts and keys of the node, or of each node of the cluster that writes some."""
    node = Server("127.0.0.1", port)
    node.ask("SCRIPT", "FLUSH")
    try:
        return node.ask("FLUSHALL")
    except RuntimeError:
        writers = {(slots[2][0].decode(), slots[2][1]) for slots in node.ask("CLUSTER", "SLOTS")}
    for host, writer_port in writers:
        writer, cursor = Server(host or "127.0.0.1", writer_port), b"0"
        while True:
            cursor, keys = writer.ask("SCAN", cursor, "COUNT", 1000)
            for key in keys:
                writer.ask("DEL", key)
            if cursor == b"0":
                break


def is_known(port, name):
    """Whether the server has the command."""
    return Server("127.0.0.1", port).ask("COMMAND", "INFO", name)[0] is not None


def versions():
    """The version of each library, as the files that pin it say."""
    pins = {"python": {}, "node": {}, "go": {}, "java": {}}
    for line in (HERE / "python/requirements.txt").read_text().split():
        name, _, version = line.partition("==")
        pins["python"][name] = version
    pins["node"] = json.loads((HERE / "node/package.json").read_text())["dependencies"]
    for line in (HERE / "go/go.mod").read_text().splitlines():
        found = re.fullmatch(r"(?:require )?\s*(\S+/\S+) v(\S+)", line)
        if found:
            pins["go"][found[1]] = found[2]
    space = {"": "http://maven.apache.org/POM/4.0.0"}
    for entry in tree.parse(HERE / "java/pom.xml").iterfind(".//dependency", space):
        name, version = (entry.find(part, space).text for part in ("artifactId", "version"))
        pins["java"][name] = version
    return pins


def programs(names):
    """All programs. The first line of each is its library, a colon and what it does."""
    pins, found = versions(), []
    for language, ending in LANGUAGES.items():
        for path in sorted((HERE / language).glob(f"*.{ending}")):
            head = path.read_text().splitlines()[0]
            match = re.fullmatch(r'(?:"""|// )(\S+): (.*?)(?:""")?', head)
            if path.name == "main.go":
                continue
            if not match or match[1] not in pins[language]:
                sys.exit(f"{path}: the first line names no library that is pinned: {head}")
            version = pins[language][match[1]]
            found.append(Program(language, path.stem, path, match[1], version, match[2]))
    unknown = set(names) - {program.name for program in found}
    if unknown:
        sys.exit(f"no program is named {', '.join(sorted(unknown))}")
    return [program for program in found if not names or program.name in names]


def command(program, work):
    """The command that runs a program; what is installed in `work` stays as it is."""
    there = work / program.language
    if program.language == "python":
        return [there / "bin/python", program.path]
    if program.language == "go":
        return [there / "libraries", program.name]
    shutil.copy(program.path, there / program.path.name)
    if program.language == "node":
        return ["node", "--unhandled-rejections=strict", there / program.path.name]
    return ["java", "-cp", f"{there}/jars/*", there / program.path.name]


def run(program, work, server_port):
    """None if the program works, else why it does not."""
    delete_keys(server_port)
    passage = refusals.Passage(server_port, lambda name: is_known(server_port, name))
    port = passage.port
    child = subprocess.Popen(
        command(program, work),
        env={**os.environ, "PORT": str(port)},
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said, _ = child.communicate(timeout=DEADLINE_S)
        late = False
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        said, _ = child.communicate()
        late = True
    passage.close()
    (work / "said").mkdir(exist_ok=True)
    (work / "said" / f"{program.language}-{program.name}-{server_port}").write_bytes(said)
    if child.returncode:
        slots = "CROSSSLOT" if passage.is_crossed else None
        return passage.refused or slots or reason(said.decode(errors="replace"), late)
    return None


def reason(said, late):
    """How a program ended to which no command was refused."""
    errors = [line.strip() for line in said.splitlines() if re.search(r"[Ee]rror|ERR |MOVED", line)]
    shown = [line[:120] for line in errors if not line.startswith("at ")]
    return "no end in a minute" if late else (shown[-1] if shown else "it ended by itself")


def servers_of(program):
    """The servers that a program runs at: the cluster is for clients for clusters."""
    alone = [server for server in SERVERS if server != "cluster"]
    return list(SERVERS) if "cluster" in program.name.lower() else alone


def cell(result):
    return "yes" if result is None else f"no: {result}".replace("|", "\\|")


def table(rows):
    lines = [
        "| library | program | what it does | `--shards 1` | `--shards 2` | cluster |",
        "|---|---|---|---|---|---|",
    ]
    for program, results in rows:
        name = f"[{program.name}](../{program.path.relative_to(ROOT)})"
        library = f"{program.library} {program.version}"
        cells = (cell(results[server]) if server in results else "" for server in SERVERS)
        lines.append("| " + " | ".join([library, name, program.does, *cells]) + " |")
    return "\n".join(lines)


def head(rows):
    libraries = {(program.language, program.library) for program, _ in rows}
    counts = {
        server: (
            sum(results.get(server, "") is None for _, results in rows),
            sum(server in results for _, results in rows),
        )
        for server in SERVERS
    }
    told = ", ".join(f"{counts[s][0]} of {counts[s][1]} with {SERVERS[s]}" for s in SERVERS)
    return (
        f"{len(rows)} small programs over {len(libraries)} libraries of clients of Redis:\n"
        f"{told} work.".replace("with cluster", "in a cluster")
    )


def put(path, name, text):
    """Replaces what stands between the two markers of `name`."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, found, rest = path.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        sys.exit(f"{path} has no lines {begin.strip()} and {end.strip()}")
    path.write_text(before + begin + text + "\n" + end + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=pathlib.Path, required=True, help="what README.md installs")
    for server, words in SERVERS.items():
        parser.add_argument(f"--{server}", type=int, metavar="PORT", help=f"a server: {words}")
    parser.add_argument("--write", action="store_true", help="write the table")
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs, all without one")
    options = parser.parse_args()
    work = options.work.resolve()
    ports = {server: getattr(options, server) for server in SERVERS}
    file = work / "results.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    for program in programs(options.names) if any(ports.values()) else []:
        results = kept.setdefault(f"{program.language}/{program.name}", {})
        for server in servers_of(program):
            if ports[server]:
                results[server] = run(program, work, ports[server])
        told = "; ".join(f"{server} {cell(result)}" for server, result in results.items())
        print(f"{program.language:6} {program.name}: {told}", flush=True)
        file.write_text(json.dumps(kept, indent=1))
    rows = [(it, kept.get(f"{it.language}/{it.name}", {})) for it in programs([])]
    print(head(rows))
    if options.write:
        for program, results in rows:
            if set(servers_of(program)) - set(results):
                sys.exit(f"{program.path}: {file} has not what came of it at each server")
        put(ROOT / "net/LIBRARIES.md", "libraries that work", table(rows))
        put(ROOT / "README.md", "libraries that work", head(rows))


if __name__ == "__main__":
    main()
