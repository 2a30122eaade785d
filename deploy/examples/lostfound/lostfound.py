"""Does chosen writes of a lostfound again, each at most once, however often this runs.

  penstock cluster lostfound export DATA --json --addr WRITER > lost.jsonl
  python3 lostfound.py choose lost.jsonl > chosen.jsonl     reads it, asks nobody, changes nothing
  less chosen.jsonl                                         remove the lines that are not wanted
  python3 lostfound.py apply chosen.jsonl --addr WRITER     and again, if it was interrupted

choose takes the exports of several nodes: a write that stands in two of them is chosen once. What
it leaves is told on standard error, with the reason. A write is chosen if nobody has it by now and
each of its keys can be changed without undoing what came since:

  a number    of 8 bytes or as text: the difference that the write made is added to what is there
  a new key   is put, if it is not there
  another     is put or deleted, if it still has the value of before the write

All keys of a write are changed by one APPLY, or none is. It has the token of its client, so that a
client which sends the write again later is refused; or a token of its own, which chosen.jsonl
keeps. Needs the command penstock (PENSTOCK names another one) and nothing else. How a difference
is found is a guess about your data: read chosen.jsonl, and change this file for what you know."""

import hashlib
import json
import os
import subprocess
import sys
import time

PENSTOCK = os.environ.get("PENSTOCK", "penstock")


class Left(Exception):
    """Why a write is left to a person."""


def token_of(write, now_ms):
    """The token of the client, or one that follows from the write and the time of the choice."""
    if write["token"]:
        return write["token"]
    name = f"{write['partition']} {write['version']}".encode()
    rest = hashlib.sha256(name).hexdigest()
    digits = f"{now_ms:012x}7{rest[:3]}8{rest[3:18]}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def number(value_hex, size):
    """The number in a value: 8 bytes, or a text of digits if size is None."""
    value = bytes.fromhex(value_hex) if value_hex is not None else None
    if size is not None:
        return int.from_bytes(value, "little") if value is not None and len(value) == size else None
    text = value.decode("ascii", "ignore") if value is not None else ""
    is_one = text.removeprefix("-").isdigit() and str(int(text)) == text
    return int(text) if is_one and len(value) == len(text) else None


def change_by(name, was, now):
    """The instructions that add the difference of two numbers; none if they are no numbers."""
    for size, place in ((None, "decimal"), (8, "u64@0")):
        before, after = number(was, size), number(now, size)
        if before is None or after is None:
            continue
        if after >= before:
            return [f"{name}.{place} += {after - before}"]
        # What never was below 0 is not taken below 0.
        least = [f"{name}.{place} >= {before - after}"] if after >= 0 else []
        return [*least, f"{name}.{place} -= {before - after}"]
    return None


def value_text(value_hex):
    return f"0x{value_hex}" if value_hex else "text:"


def instructions_of(name, change, made):
    """What does this change of a key again. `made` are keys that a chosen write before has set."""
    key, value = change["key"], change["value_hex"]
    before, now = change["before"], change["now"]
    if key is None or "\0" in key:
        raise Left("the key is no text")
    if now == "unknown":
        raise Left(f"{key}: what is there now is unknown")
    if before != "unknown" and before["value_hex"] is not None and value is not None:
        if (add := change_by(name, before["value_hex"], value)) is not None:
            if now["value_hex"] is None and key not in made:
                raise Left(f"{key}: it was a number, and is not there now")
            return add
    if key in made:
        guard = f"{name} exists" if made[key] is not None else f"{name} absent"
    elif now["value_hex"] is None:
        if before != "unknown" and before["value_hex"] is not None:
            raise Left(f"{key}: it was there before the write, and is not now")
        guard = f"{name} absent"
    elif before == "unknown":
        raise Left(f"{key}: it is there, and what it was before the write is unknown")
    elif before["value_hex"] != now["value_hex"]:
        raise Left(f"{key}: it was changed since")
    else:
        guard = f"{name} version {now['version']}"
    made[key] = value
    if value is None:
        return [guard, f"{name} del"] if guard != f"{name} absent" else [guard]
    steps = [guard, f"{name} put {value_text(value)}"]
    if change["expiry_ms"] is not None:
        steps.append(f"{name} expires at {change['expiry_ms']}")
    return steps


def choose(paths):
    writes, now_ms = {}, int(time.time() * 1000)
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for write in map(json.loads, lines):
                writes.setdefault((write["partition"], write["version"]), write)
    made, chosen, there, left = {}, 0, 0, 0
    for write in writes.values():
        try:
            if write["there"] in ("token", "version"):
                there += 1
                continue
            if write["there"] == "unknown":
                raise Left(f"whether it is there is unknown: {write['why_unknown']}")
            known = dict(made)
            changes = list(enumerate(write["changes"], 1))
            steps = []
            for at, change in changes:
                steps += instructions_of(f"k{at}", change, known)
            made = known
        except Left as why:
            left += 1
            print(f"left: {write['version']} {why}", file=sys.stderr)
            continue
        chosen += 1
        print(json.dumps({
            "version": write["version"],
            "time_ms": write["time_ms"],
            "token": token_of(write, now_ms),
            "keys": [change["key"] for change in write["changes"]],
            "instructions": steps,
        }))  # fmt: skip
    print(f"{chosen} chosen, {there} are there, {left} left", file=sys.stderr)


def apply(path, more):
    with open(path, encoding="utf-8") as lines:
        writes = [json.loads(line) for line in lines if line.strip()]
    done, again, refused, bad = 0, 0, 0, set()
    for write in writes:
        if bad.intersection(write["keys"]):
            refused += 1
            print(f"not done: {write['version']} a write before it of its keys was not done")
            bad.update(write["keys"])
            continue
        keys = [f"--key=k{at}={key}" for at, key in enumerate(write["keys"], 1)]
        words = [PENSTOCK, "apply", *keys, "--token", write["token"], *more, "--"]
        ran = subprocess.run(words + write["instructions"], capture_output=True, text=True)
        told = (ran.stdout + ran.stderr).strip()
        if ran.returncode == 0:
            is_again = "replayed" in told
            done, again = done + (not is_again), again + is_again
        elif ran.returncode == 1 or any(it in told for it in ("TOKEN_REUSED", "TOKEN_TOO_OLD")):
            refused += 1
            # A number goes on without this write; a value that others build on does not.
            if any(" put " in step or step.endswith(" del") for step in write["instructions"]):
                bad.update(write["keys"])
            print(f"not done: {write['version']} {told}")
        else:
            sys.exit(f"{write['version']}: {told}\nnobody answers: run this again")
    print(f"{done} done, {again} were done before, {refused} not done")


match sys.argv[1:]:
    case ["choose", *paths] if paths:
        choose(paths)
    case ["apply", path, *more]:
        apply(path, more)
    case _:
        sys.exit(__doc__)
