#!/usr/bin/env bash
# What becomes of an open loop above what a server can do: the server on CPU 0, the generator on
# CPU 1. First the rate of a closed loop, then open loops of half that rate, which shows what the
# machine and the generator add to each wait, of 1.5 times and of three times.
#
#   benches/overload.sh [--disk MB_PER_S] [WORKLOAD [CONNECTIONS [DEPTH]]]    (buy 50 64)
#
# PENSTOCK names the binaries to compare, in turn (default: a release build). With --disk the server
# writes its log in a cgroup (version 1 of blkio, as root) that is held to that rate, at level disk;
# otherwise at level none, where the core is the limit. ROUNDS (3) runs of 2 s each; median. RUN is
# put before both programs: "chrt -r 1" where others want the CPUs, too. The memory that a run takes
# is prefaulted before it: PREFAULT (100) is the server's prefault_percent, 0 for none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
disk=0
if [[ ${1:-} == --disk ]]; then disk=$2; shift 2; fi
workload=${1:-buy} connections=${2:-50} depth=${3:-64} rounds=${ROUNDS:-3}
level=none factors="0.5 1.5 3" prefault=${PREFAULT:-100}
if ((disk)); then level=disk; fi
if [[ -z ${PENSTOCK:-} ]]; then
    cargo build --release --quiet --bin penstock
    PENSTOCK=${CARGO_TARGET_DIR:-target}/release/penstock
fi
generator=${GENERATOR:-${PENSTOCK##* }}
work=$(mktemp -d "${WORK:-/var/tmp}/overload.XXXXXX")
group=/sys/fs/cgroup/blkio/penstock-overload-$$
pid=
finish() {
    if [[ -n $pid ]]; then kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; fi
    if [[ -d $group ]]; then rmdir "$group" || true; fi
    rm -rf "$work"
}
trap finish EXIT

if ((disk)); then
    mkdir "$group"
    part=$(stat -c %d "$work")
    device=$((part >> 8)):$((part & 255))
    # A partition is held as its whole device.
    parent=$(readlink -f "/sys/dev/block/$device/..")
    if [[ -e $parent/dev ]]; then device=$(cat "$parent/dev"); fi
    echo "$device $((disk * 1000 * 1000))" >"$group/blkio.throttle.write_bps_device"
fi

# Starts the binary $1 anew and sets address.
serve() {
    rm -rf "$work/data"
    : >"$work/banner"
    local ahead=(--prefault-percent "$prefault")
    if ! "$1" serve --help | grep -q -- --prefault-percent; then ahead=(); fi
    ${RUN:-} taskset -c 0 "$1" serve --data "$work/data" --listen 127.0.0.1:0 --shard-ports 0 \
        --shards 1 --durability none "${ahead[@]}" >"$work/banner" 2>"$work/log" &
    pid=$!
    for _ in $(seq 300); do grep -q '^ready' "$work/banner" && break; sleep 0.1; done
    address=$(sed -n 's/^listening *\(127\.0\.0\.1:[0-9]*\).*/\1/p' "$work/banner")
    # Until the resident memory stays as it is.
    local before=0 now
    for _ in $(seq 60); do
        now=$(resident)
        if ((now == before)); then break; fi
        before=$now
        sleep 0.5
    done
    # Only what writes the log: new segments are filled with zeros beside it.
    local thread
    for thread in /proc/"$pid"/task/*; do
        if ((disk)) && grep -qE '^penstock-(0|disk)$' "$thread/comm"; then
            echo "${thread##*/}" >"$group/tasks"
        fi
    done
}
resident() { awk '/VmRSS/ {print $2}' "/proc/$pid/status"; }
# Huge pages that the machine has given, but for those that the server has prefaulted.
huge_pages() {
    local thread prefaulted=0
    for thread in /proc/"$pid"/task/*; do
        if grep -q '^penstock-memory$' "$thread/comm"; then
            prefaulted=$(cut -d' ' -f10 "$thread/stat")
        fi
    done
    awk -v prefaulted="$prefaulted" '/^thp_fault_alloc / {print $2 - prefaulted}' /proc/vmstat
}
# Runs the generator with further arguments; appends a line to the figures.
measure() {
    local name=$1 factor=$2
    shift 2
    local before pages
    before=$(resident)
    pages=$(huge_pages)
    ${RUN:-} "$generator" bench "$workload" --addr "$address" --connections "$connections" \
        --depth "$depth" --level "$level" --warmup 1 --duration 2 --pin 1 --json "$@" >"$work/run"
    pages=$(($(huge_pages) - pages))
    python3 - "$work/run" "$name" "$factor" "$before" "$(resident)" "$pages" \
        >>"$work/figures" <<'END'
import json, sys
run = json.load(open(sys.argv[1]))
answered = run["acked"] + run["refused"]
shed = run.get("shed", 0)
print(*sys.argv[2:4], run["operations_per_second"], run["latency_us"]["p50"],
      run["latency_us"]["p99"], shed / max(shed + answered, 1), run["rate"] or 0, *sys.argv[4:7])
END
    tail -1 "$work/figures" >&2
}

# Each run has a server of its own: a table that an earlier run has filled costs more to look up.
run() {
    serve "$1"
    measure "$@"
    kill "$pid"
    wait "$pid" || true
    pid=
}
for _ in $(seq "$rounds"); do
    for binary in $PENSTOCK; do
        run "$binary" 1
        peak=$(tail -1 "$work/figures" | awk '{print $3}')
        for factor in $factors; do
            run "$binary" "$factor" --rate "$(awk "BEGIN {print int($peak * $factor)}")"
        done
    done
done

python3 - "$work/figures" <<'END'
import os, statistics, sys
runs = {}
for line in open(sys.argv[1]):
    name, factor, *figures = line.split()
    runs.setdefault((os.path.basename(name), factor), []).append([float(f) for f in figures])
print("| server | load | op/s executed | of the closed loop | p50 us | p99 us | shed"
      " | resident MiB | huge pages |")
print("|---|---|---|---|---|---|---|---|---|")
for (name, factor), rows in runs.items():
    columns = [statistics.median(column) for column in zip(*rows)]
    rate, p50, p99, shed, _, before, after, pages = columns
    peaks = [row[0] for row in runs[(name, "1")]]
    part = statistics.median(row[0] / peak for row, peak in zip(rows, peaks))
    print(f"| {name} | {factor} | {rate:,.0f} | {part:.2f} | {p50:,.0f} | {p99:,.0f} | "
          f"{100 * shed:.0f} % | {before / 1024:.0f} to {after / 1024:.0f} | {pages:.0f} |")
END
