#!/usr/bin/env bash
# The price of TLS: one server without and one with a certificate on CPU 0, the generator on CPU 1,
# each figure a median over interleaved rounds. Bounded: about four minutes, or one with --quick.
# Needs two CPUs, loopback and openssl. Called by `benches/suite.sh --tls`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rounds=${ROUNDS:-3} seconds=2
[[ ${1:-} == --quick ]] && rounds=1 seconds=1

profile=${PROFILE:-release}
cargo build --profile "$profile" --quiet --bin penstock
penstock=${CARGO_TARGET_DIR:-target}/$profile/penstock
work=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
    -subj /CN=ca -keyout "$work/ca.key" -out "$work/ca.pem" 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=server \
    -keyout "$work/key.pem" -out "$work/request.pem" 2>/dev/null
echo 'subjectAltName=IP:127.0.0.1' >"$work/names"
openssl x509 -req -in "$work/request.pem" -CA "$work/ca.pem" -CAkey "$work/ca.key" -days 2 \
    -extfile "$work/names" -out "$work/cert.pem" 2>/dev/null
chmod 0600 "$work/key.pem"

# Arguments: name, further ones for `serve`. Prints the address.
serve() {
    local name=$1
    shift
    taskset -c 0 "$penstock" serve --data "$work/$name" --listen 127.0.0.1:0 --shard-ports 0 \
        --shards 1 --durability none "$@" >"$work/$name.banner" &
    pids+=($!)
    for _ in $(seq 100); do grep -q '^ready' "$work/$name.banner" && break; sleep 0.1; done
}
address_of() {
    sed -n 's/^listening *\(127\.0\.0\.1:[0-9]*\).*/\1/p' "$work/$1.banner"
}
serve plain
serve tls --tls-cert "$work/cert.pem" --tls-key "$work/key.pem"
plain=$(address_of plain) tls=$(address_of tls)

# Arguments: name, plain or tls, connections, depth, further ones for `bench`.
measure() {
    local name=$1 way=$2 connections=$3 depth=$4
    shift 4
    "$penstock" bench "$@" --connections "$connections" --depth "$depth" --level none \
        --duration "$seconds" --warmup 0.5 --pin 1 --json |
        python3 -c 'import json,sys; r=json.load(sys.stdin)
print(*sys.argv[1:], r["operations_per_second"], r["latency_us"]["p50"])' \
            "$name" "$way" "$connections" "$depth" >>"$work/figures"
}

both() {
    local name=$1 connections=$2 depth=$3
    shift 3
    measure "$name" plain "$connections" "$depth" "$@" --addr "$plain"
    measure "$name" tls "$connections" "$depth" "$@" --addr "$tls" --tls-ca "$work/ca.pem"
}

for _ in $(seq "$rounds"); do
    for depth in 1 16 64; do
        both decr 50 "$depth" decr
        both get 50 "$depth" get
    done
    both get-64KiB 10 1 get --value-bytes 65536 --keys 1000
    both get-64KiB 10 16 get --value-bytes 65536 --keys 1000
done

python3 - "$work/figures" <<'END'
import statistics, sys
figures = {}
for line in open(sys.argv[1]):
    name, way, connections, depth, rate, p50 = line.split()
    key = (name, int(connections), int(depth))
    figures.setdefault(key, {}).setdefault(way, []).append((float(rate), float(p50)))
print("| workload | c | depth | plain op/s | TLS op/s | TLS to plain | p50 us, plain | TLS |")
print("|---|---|---|---|---|---|---|---|")
for (name, connections, depth), ways in figures.items():
    rate = {way: statistics.median(it[0] for it in runs) for way, runs in ways.items()}
    p50 = {way: statistics.median(it[1] for it in runs) for way, runs in ways.items()}
    print(f"| {name} | {connections} | {depth} | {rate['plain']:,.0f} | {rate['tls']:,.0f} "
          f"| {rate['tls'] / rate['plain']:.2f} | {p50['plain']:.0f} | {p50['tls']:.0f} |")
END
