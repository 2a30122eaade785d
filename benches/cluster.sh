#!/usr/bin/env bash
# What a write costs each node: instructions for each write in user space and in the kernel, once of
# a node alone and once of the primary and of a member of three nodes with an etcd, all on loopback.
# Then the 99th percentile of the latency at the levels disk and replica, and both of the primary
# while a member of the sync set stands still. The load is an open loop of one rate, so two builds
# do the same work. Counts are of `perf stat`. How many writes share a turn moves them, so compare
# builds in the same run; below some 500 writes a second each write has a turn of its own. Bounded:
# a minute for each build.
#
#   benches/cluster.sh [RATE]                         of a release build; 4000 writes a second
#   BUILDS='old/penstock new/penstock' benches/cluster.sh
#
# Needs etcd, perf and two CPUs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rate=${1:-4000} seconds=4
for program in etcd perf; do
    if ! command -v "$program" >/dev/null; then
        echo "skipped: $program is missing" >&2
        exit 0
    fi
done
if [[ -z ${BUILDS:-} ]]; then
    cargo build --release --quiet --bin penstock
    BUILDS=${CARGO_TARGET_DIR:-target}/release/penstock
fi
builds=()
for build in $BUILDS; do builds+=("$(realpath "$build")"); done
work=$(mktemp -d "${WORK:-/var/tmp}/cluster.XXXXXX")
cd "$work"
declare -A pids=()
end_all() {
    for pid in "${pids[@]}"; do kill -CONT "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    pids=()
}
trap 'end_all; rm -rf "$work"' EXIT
echo 'of a cluster that is measured and gone then' >secret
chmod 600 secret
client=http://127.0.0.1:23790 peer=http://127.0.0.1:23800

# Arguments: name, number of the node, further ones for `serve`.
serve() {
    local name=$1 node=$2
    shift 2
    "$penstock" serve --listen "127.0.0.1:2392$node" --data "$name" --shards 1 \
        --admin-listen off --resp-listen off --shard-ports 0 "$@" >"$name.log" 2>&1 &
    pids[$name]=$!
}
ready() {
    local name
    for name in "$@"; do
        for _ in $(seq 150); do
            grep -q '^ready' "$name.log" && continue 2
            sleep 0.1
        done
        cat "$name.log" >&2
        exit 1
    done
}

# Of the node of this name: instructions for each write, in user space and in the kernel.
counted() {
    perf stat -x , -e instructions:u,instructions:k -p "${pids[$1]}" -o "$1.counted" \
        -- sleep "$seconds"
    awk -F , -v writes=$((rate * seconds)) '/instructions/ { printf "%8.0f", $1 / writes }' \
        "$1.counted"
}

# A row: a name, and the node of that name while it is loaded. A third name is that of a node that
# stands still from the begin of the count on.
row() {
    "$penstock" bench decr --addr 127.0.0.1:23921 -c 16 -d 1 --rate "$rate" --warmup 1 \
        --duration $((seconds + 2)) >bench.log 2>&1 &
    pids[bench]=$!
    sleep 2
    [[ -z ${3:-} ]] || kill -STOP "${pids[$3]}"
    printf '%-22s %s\n' "$1" "$(counted "$2")"
    wait "${pids[bench]}" || { cat bench.log >&2; exit 1; }
    unset 'pids[bench]'
}

echo "$rate writes a second at level disk, $(nproc) CPUs; instructions for each: user, kernel"
for penstock in "${builds[@]}"; do
    [[ ${#builds[@]} == 1 ]] || echo "$penstock"
    serve alone 1
    ready alone
    row 'a node alone' alone
    end_all

    etcd --name one --data-dir etcd --listen-client-urls $client --advertise-client-urls $client \
        --listen-peer-urls $peer --initial-advertise-peer-urls $peer \
        --initial-cluster one=$peer >etcd.log 2>&1 &
    pids[etcd]=$!
    {
        echo 'version = 1'
        echo 'cluster_id = "5a1e5a1e5a1e5a1e5a1e5a1e5a1e5a1e"'
        echo 'secret_file = "secret"'
        echo 'failover = true'
        for node in 1 2 3; do
            printf '\n[[node]]\nnumber = %s\nlinks = "127.0.0.1:2391%s"\n' "$node" "$node"
            printf 'clients = "127.0.0.1:2392%s"\n' "$node"
        done
        printf '\n[[placement]]\npartitions = [0, 255]\ngeneration = 1\n'
        printf 'primary = 1\nsync = [2, 3]\n'
    } >plan.toml
    for _ in $(seq 50); do
        "$penstock" cluster import plan.toml --etcd-endpoints $client >import.log 2>&1 && break
        sleep 0.2
    done
    for node in 1 2 3; do
        begins=()
        ((node == 1)) && begins=(--cluster-new)
        serve "node-$node" "$node" --cluster-node "$node" --etcd-endpoints $client \
            --cluster-secret-file secret "${begins[@]}"
    done
    ready node-1 node-2 node-3
    for _ in $(seq 100); do
        "$penstock" set probe u32:1 --level replica --addr 127.0.0.1:23921 >/dev/null 2>&1 && break
        sleep 0.2
    done
    row 'primary of three nodes' node-1
    row 'member of three nodes' node-2
    for level in disk replica; do
        "$penstock" bench decr --addr 127.0.0.1:23921 -c 16 -d 1 --rate "$rate" --warmup 1 \
            --duration "$seconds" --level "$level" >"bench.$level" 2>&1 ||
            { cat "bench.$level" >&2; exit 1; }
        printf 'level %-16s %s\n' "$level" "$(grep -m 1 'p99' "bench.$level")"
    done
    row 'one member stopped' node-1 node-3
    printf 'level %-16s %s\n' 'disk meanwhile' "$(grep -m 1 p99 bench.log)"
    kill -CONT "${pids[node-3]}"
    end_all
    rm -rf alone* node-* etcd*
done
