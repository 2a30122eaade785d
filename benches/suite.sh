#!/usr/bin/env bash
# The figures of the README: the server on CPU 0, the generator on CPU 1, every figure a median over
# interleaved rounds, with its ratios to echo and to echo-items of the same rounds. Bounded: about
# five minutes, or one with --quick. Needs two CPUs and loopback. With --tls: what TLS costs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ ${1:-} == --tls ]] && exec benches/tls.sh "${@:2}"
rounds=${ROUNDS:-3} seconds=2
[[ ${1:-} == --quick ]] && rounds=1 seconds=1

cargo build --release --quiet --bin penstock
cargo build --release --quiet -p penstock-benches --example bare_echo
target=${CARGO_TARGET_DIR:-target}/release
work=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT

"$target/penstock" serve --data "$work/data" --listen 127.0.0.1:0 --shard-ports 0 --shards 1 \
    --durability none >"$work/banner" &
pids+=($!)
for _ in $(seq 100); do grep -q '^ready' "$work/banner" && break; sleep 0.1; done
address=$(sed -n 's/^listening *\(127\.0\.0\.1:[0-9]*\).*/\1/p' "$work/banner")
"$target/examples/bare_echo" 7499 0 >"$work/bare" &
pids+=($!)
sleep 0.5

# Arguments: name, connections, depth, further ones for `bench`. Appends a line to the file figures.
measure() {
    local name=$1 connections=$2 depth=$3
    shift 3
    "$target/penstock" bench "$@" --connections "$connections" --depth "$depth" \
        --duration "$seconds" --warmup 0.5 --pin 1 --json |
        python3 -c 'import json,sys; r=json.load(sys.stdin); s=r["server"]; n=max(r["acked"],1)
each = [s.get(name, 0) / n for name in ("storage_enters", "flushes", "device_bytes")]
print(*sys.argv[1:], r["operations_per_second"], r["latency_us"]["p50"], *each)' \
            "$name" "$connections" "$depth" >>"$work/figures"
}

for _ in $(seq "$rounds"); do
    for depth in 1 16 64; do
        measure bare 50 "$depth" echo --raw --addr 127.0.0.1:7499
        measure echo 50 "$depth" echo --addr "$address"
        measure echo-items 50 "$depth" echo-items --addr "$address"
        measure get 50 "$depth" get --addr "$address"
        measure set 50 "$depth" set --addr "$address"
        measure decr 50 "$depth" decr --addr "$address"
    done
    measure echo 1 1 echo --addr "$address"
    measure echo-items 1 1 echo-items --addr "$address"
    measure decr 1 1 decr --addr "$address"
done

grep '^sync method' "$work/banner"
workers=$(cat "/proc/${pids[0]}/task"/*/comm | grep -c iou-wrk || true)
echo "kernel workers (iou-wrk) after the runs: $workers"
python3 - "$work/figures" <<'END'
import statistics, sys
runs = {}
for line in open(sys.argv[1]):
    name, connections, depth, *figures = line.split()
    runs.setdefault((int(connections), int(depth), name), []).append([float(f) for f in figures])
middle = {key: [statistics.median(column) for column in zip(*rows)] for key, rows in runs.items()}
columns = ["connections", "depth", "workload", "op/s", "to echo", "to echo-items", "p50 us"]
columns += ["storage enters/op", "flushes/op", "device bytes/op"]
print("| " + " | ".join(columns) + " |")
print("|" + "---|" * len(columns))
for (connections, depth, name), (rate, p50, enters, flushes, written) in middle.items():
    echo = middle[(connections, depth, "echo")][0]
    items = middle[(connections, depth, "echo-items")][0]
    print(
        f"| {connections} | {depth} | {name} | {rate:,.0f} | {rate / echo:.2f} "
        f"| {rate / items:.2f} | {p50:.0f} | {enters:.4f} | {flushes:.4f} | {written:.0f} |"
    )
END
