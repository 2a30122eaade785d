#!/usr/bin/env bash
# Instructions of an operation by stage: callgrind counts the shard alone, without sockets, files
# and the kernel (shard/examples/operation_cost.rs). The counts are exact, whatever else the machine
# does. Kinds that begin with resp_ are the port for clients of Redis alone, without a shard
# (net/examples/resp_cost.rs). Bounded: a build, then some ten seconds a kind.
#
#     benches/instructions.sh                       the table of benches/INSTRUCTIONS.md
#     benches/instructions.sh --detail get          and the 60 largest (function, file) pairs
#     DEPTH=128 BATCHES=250 benches/instructions.sh decr tokens sold_out
#     benches/instructions.sh decr decr+10 decr+1000    and with rights for 10 and 1,000 prefixes
#     benches/instructions.sh get get@keyspace set@member    beside keyspaces, in a cluster
#     DEPTH=128 BATCHES=250 benches/instructions.sh resp_decr resp_get resp_set resp_mixed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
detail=0
[[ ${1:-} == --detail ]] && detail=60 && shift
kinds=("$@")
[[ $# -eq 0 ]] && kinds=(ping get set updates decr operands tokens decimals)
[[ $# -eq 0 ]] && kinds+=(sold_out buy buy_token buy_sold_out)
depth=${DEPTH:-64} batches=${BATCHES:-500} keys=${KEYS:-10000} value_bytes=${VALUE_BYTES:-64}

if ! command -v valgrind >/dev/null; then
    echo "skipped: valgrind is missing (apt-get install valgrind)" >&2
    exit 0
fi
for example in shard:operation_cost net:resp_cost; do
    cargo build --profile profiling --locked --quiet \
        -p "penstock-${example%:*}" --example "${example#*:}"
done
examples=${CARGO_TARGET_DIR:-target}/profiling/examples
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for kind in "${kinds[@]}"; do
    example=operation_cost
    [[ $kind == resp_* ]] && example=resp_cost
    valgrind --tool=callgrind --callgrind-out-file="$work/$kind" \
        --toggle-collect='*counted_*' \
        "$examples/$example" "$kind" "$batches" "$keys" "$depth" "$value_bytes" \
        >"$work/said" 2>&1 ||
        { cat "$work/said" >&2; exit 1; }
done

python3 - "$work" "$((batches * depth))" "$detail" "${kinds[@]}" <<'END_OF_PYTHON'
import collections, re, sys

work, operations, detail, kinds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]

# What a pair of function and file belongs to: the first rule that fits. A file is that of the line,
# also where it was inlined; lines of the standard library belong to the function around them.
STAGES = [
    ("RESP: parser", r"resp::parser", r"net/src/resp/(parser|number)\.rs"),
    ("RESP: commands and items", r"resp::(conversation.*(take|command|keyed|repeat|remember)|table|items|shapes)",
     r"net/src/resp/(conversation|table|request|items|shapes|sink|slow)"),
    ("RESP: ring", r"resp::ring", r"net/src/resp/ring"),
    ("RESP: replies", r"resp::(answer|reply)", r"net/src/resp/(answer|reply)"),
    ("frames and wire: receive, header, index of the batch",
     "", r"net/src/(receive|frame|level|batch)\.rs|shard/src/(shard|front)/frames\.rs"),
    ("CRC of wire and log frames", r"crc32fast", ""),
    ("CRC of records", r"checksum", r"storage/src/format/checksum\.rs"),
    ("slot and hash of a key",
     r"home_of|rapidhash|KeyHash|slot_of", r"net/src/slot\.rs|rapidhash"),
    ("decode and checks of an item",
     r"ApplyRequest|ApplyInstruction|net::request|net::ping|instruction::Instruction::(decode|read)|iter::Iter<T> as .*::all",
     r"net/src/(request/|limits|ping|scan)"),
    ("guards and effects",
     r"update_if|instruction", r"verbs/(program|repeat_)|net/src/(instruction|field|apply)"),
    ("look-ahead, and plain items",
     r"load_likely|load_only|load_cells|prefetch",
     r"shard/src/execution/(look_ahead|window|direct_answers)\.rs"),
    ("reply items", r"net::reply|net::pieces", r"net/src/(reply|pieces|status)\.rs"),
    ("counters and stages",
     r"answers|stats|histogram", r"shard/src/accounts"),
    ("batch loop", r"", r"shard/src/(shard|execution)/(batch|batch_run|repeats)\.rs"),
    ("routing: shard, order, rules", r"", r"shard/src/(shard|execution)/(operation|detached|memory|refusals|members)\.rs"),
    ("find: index", r"", r"storage/src/memory/index"),
    ("find: cells, and what a cell keeps", r"", r"storage/src/memory"),
    ("commit: live bytes, places, versions", r"", r"storage/src/store"),
    ("log: append, room, seal", r"", r"storage/src/log"),
    ("record", r"", r"storage/src/(format|types)"),
    ("run: the verb", r"", r"shard/src/execution/verbs"),
    ("turn, sessions, gates", r"", r"shard/src/"),
    ("copies, clears, compares by libc", r"^_*mem(cpy|move|set|cmp|ccpy)", ""),
    ("allocator", r"malloc|free|realloc|alloc::", r"malloc"),
    # What is left are lines of the standard library.
    ("batch loop", r"Shard<.*>::(step|frame|next_frame)$|(shard::batch|batch_run)", ""),
    ("routing: shard, order, rules", r"(shard|execution)::operation", ""),
    ("run: the verb", r"execution::verbs", ""),
    ("find: index", r"memory::index", ""),
    ("find: cells, and what a cell keeps", r"storage::memory", ""),
    ("log: append, room, seal", r"storage::log", ""),
    ("commit: live bytes, places, versions", r"storage::store", ""),
    ("record", r"storage::format", ""),
    ("frames and wire: receive, header, index of the batch", r"penstock_net", ""),
    ("turn, sessions, gates", r"penstock_shard", ""),
]
OTHER = "other"


def stage_of(function, file):
    for name, of_function, of_file in STAGES:
        if of_function and re.search(of_function, function) or of_file and re.search(of_file, file):
            return name
    return OTHER


def pairs_of(path):
    """Instructions of each pair of function and file, without those of what they call."""
    names, counts = {}, collections.Counter()
    function = file = None
    is_of_call = False

    def named(kind, text):
        number, name = re.match(r"(\(\d+\)) ?(.*)", text).groups()
        return names.setdefault((kind, number), name) if name else names[kind, number]

    for line in open(path):
        line = line.rstrip()
        kind, is_named, text = line.partition("=")
        if is_named and kind.isalpha():
            if kind == "fn":
                function = named("fn", text)
            elif kind in ("fl", "fi", "fe"):
                file = named("fl", text)
            elif kind in ("cfn", "cfi", "cfl"):
                named("fn" if kind == "cfn" else "fl", text)
            is_of_call = kind == "calls"
        elif line[:1] and line[0] in "0123456789+-*":
            if not is_of_call:
                counts[function, file] += int(line.split()[1])
            is_of_call = False
    return counts


table, totals = collections.defaultdict(dict), {}
for kind in kinds:
    pairs = pairs_of(f"{work}/{kind}")
    assert sum(pairs.values()) > 10 * operations, f"nothing was counted of {kind}"
    stages = collections.Counter()
    for (function, file), count in pairs.items():
        stages[stage_of(function, file)] += count / operations
    for stage, count in stages.items():
        table[stage][kind] = count
    totals[kind] = sum(stages.values())
    if detail:
        print(f"{kind}:")
        for (function, file), count in pairs.most_common(detail):
            short = re.sub(r".*/(net|shard|storage|library|stdarch)/", r"\1/", file)
            stage = stage_of(function, file)[:24]
            print(f"{count / operations:8.1f}  {stage:24}  {function[:90]}  {short}")
        print()
order = sorted(table, key=lambda stage: -sum(table[stage].values()))
print("| stage | " + " | ".join(kinds) + " |")
print("|---|" + "---:|" * len(kinds))
for stage in order:
    print(f"| {stage} | " + " | ".join(f"{table[stage].get(kind, 0):.0f}" for kind in kinds) + " |")
print("| **total** | " + " | ".join(f"**{totals[kind]:,.0f}**" for kind in kinds) + " |")
END_OF_PYTHON
