#!/usr/bin/env bash
# The price of TLS and of rights, in one table: one server without and one with a certificate on
# CPU 0, the generator on CPU 1, each figure a median over interleaved rounds and each ratio one of
# pairs of a round; then handshakes, what 500 of them a second do to others, and rights off, with 10
# and with 1,000 prefixes. Bounded: about seven minutes, or two with --quick. Needs two CPUs,
# loopback and openssl. Called by `benches/suite.sh --tls`. The load on the machine stands above the
# table.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rounds=${ROUNDS:-3} seconds=2
[[ ${1:-} == --quick ]] && rounds=1 seconds=1

profile=${PROFILE:-release}
if [[ -z ${BUILT:-} ]]; then
    cargo build --profile "$profile" --quiet --bin penstock
    cargo build --profile "$profile" --quiet -p penstock-benches --example handshakes
fi
built=${BUILT:-${CARGO_TARGET_DIR:-target}/$profile}
penstock=$built/penstock handshakes=$built/examples/handshakes
work=$(mktemp -d)
declare -A pids=()
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

# Arguments: name, further ones for `serve`.
serve() {
    local name=$1
    shift
    taskset -c 0 "$penstock" serve --data "$work/$name" --listen 127.0.0.1:0 --shard-ports 0 \
        --shards 1 --durability none --admin-listen off --resp-listen off --segment-bytes 16MiB \
        --cache-bytes 128MiB "$@" >"$work/$name.banner" 2>"$work/$name.log" &
    pids[$name]=$!
    for _ in $(seq 100); do grep -q '^ready' "$work/$name.banner" && return; sleep 0.1; done
    cat "$work/$name.log" >&2
    exit 1
}
address_of() {
    sed -n 's/^listening *\(127\.0\.0\.1:[0-9]*\).*/\1/p' "$work/$1.banner"
}

# A user `bench` with so many prefixes: those of the keys of the generator to read and to write,
# that of INFO, from which the generator takes the server's counters, and others.
users() {
    local count=$1 file=$work/users-$1
    "$penstock" user add bench --key one --users "$file" 2>/dev/null |
        grep -o 'penstock_key_[A-Za-z0-9_-]*' >"$work/secret-$count"
    chmod 0600 "$work/secret-$count"
    local others=()
    for number in $(seq "$((count - 3))"); do others+=("shop-$number:"); done
    "$penstock" user grant bench read bench: "${others[@]}" --users "$file" >/dev/null
    "$penstock" user grant bench write bench: --users "$file" >/dev/null
    "$penstock" user grant bench admin '' --users "$file" >/dev/null
}

serve plain
serve tls --tls-cert "$work/cert.pem" --tls-key "$work/key.pem"
for count in 10 1000; do
    users "$count"
    serve "rights-$count" --users "$work/users-$count"
done

# Arguments: name, way, connections, depth, further ones for `bench`.
measure() {
    local name=$1 way=$2 connections=$3 depth=$4
    shift 4
    local reach=(--addr "$(address_of "$way")")
    [[ $way == tls ]] && reach+=(--tls-ca "$work/ca.pem")
    [[ $way == rights-* ]] && reach+=(--user bench/one --secret-file "$work/secret-${way#*-}")
    "$penstock" bench "$@" "${reach[@]}" --connections "$connections" --depth "$depth" \
        --level none --duration "$seconds" --warmup 0.5 --pin 1 --json |
        python3 -c 'import json,sys; r=json.load(sys.stdin)
print(*sys.argv[1:], r["operations_per_second"], r["latency_us"]["p50"], r["latency_us"]["p99"])' \
            "$name" "$way" "$connections" "$depth" >>"$work/figures"
}

for _ in $(seq "$rounds"); do
    for depth in 1 16 64; do
        for workload in decr get; do
            for way in plain tls rights-10 rights-1000; do
                measure "$workload" "$way" 50 "$depth" "$workload"
            done
        done
    done
    for depth in 1 16; do
        for way in plain tls; do
            measure get-64KiB "$way" 10 "$depth" get --value-bytes 65536 --keys 1000
        done
    done
    # An open loop far below what the server can do: alone, and beside handshakes.
    measure get-beside-0 tls 10 1 get --rate 20000
    nice -n 19 taskset -c 1 "$handshakes" "$(address_of tls)" "$work/ca.pem" "$((seconds + 1))" \
        500 >"$work/beside" &
    pids[beside]=$!
    measure get-beside-500 tls 10 1 get --rate 20000
    wait "${pids[beside]}"
    unset 'pids[beside]'
    cat "$work/beside" >>"$work/beside-all"
    ran() { cat /proc/"${pids[tls]}"/task/*/schedstat | awk '{sum += $1} END {print sum}'; }
    before=$(ran)
    taskset -c 1 "$handshakes" "$(address_of tls)" "$work/ca.pem" "$seconds" >"$work/one"
    after=$(ran)
    echo "$(cat "$work/one") $before $after $seconds" >>"$work/handshakes"
done

echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
python3 - "$work" <<'END'
import statistics, sys
work = sys.argv[1]
runs = {}
for line in open(f"{work}/figures"):
    name, way, connections, depth, *figures = line.split()
    runs.setdefault((name, connections, depth), {}).setdefault(way, []).append(
        [float(figure) for figure in figures])
middle = statistics.median
print("| workload | c | depth | plain op/s | TLS op/s | TLS to plain | 10 prefixes to none "
      "| 1,000 | p50 us, plain | TLS |")
print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
for (name, connections, depth), ways in runs.items():
    if "plain" not in ways:
        continue
    def ratio(way):
        if way not in ways:
            return ""
        pairs = zip(ways[way], ways["plain"])
        return f"{middle(one[0] / plain[0] for one, plain in pairs):.2f}"
    def column(way, at):
        return f"{middle(run[at] for run in ways[way]):,.0f}"
    print(f"| {name} | {connections} | {depth} | {column('plain', 0)} | {column('tls', 0)} "
          f"| {ratio('tls')} | {ratio('rights-10')} | {ratio('rights-1000')} "
          f"| {column('plain', 1)} | {column('tls', 1)} |")
print()
print("| 20,000 GET a second through TLS | p50 us | p99 us |")
print("|---|---:|---:|")
for name, text in [("get-beside-0", "alone"), ("get-beside-500", "beside 500 handshakes a second")]:
    (ways,) = [ways for key, ways in runs.items() if key[0] == name]
    columns = [middle(run[at] for run in ways["tls"]) for at in (1, 2)]
    print(f"| {text} | {columns[0]:.0f} | {columns[1]:.0f} |")
beside = [line.split() for line in open(f"{work}/beside-all")]
rows = [[float(word) for word in line.split()] for line in open(f"{work}/handshakes")]
rate = middle(row[0] for row in rows)
client = middle(row[2] for row in rows)
server = middle((row[4] - row[3]) / 1000 / (row[0] * row[5]) for row in rows)
print()
print(f"Handshakes, one after another: {rate:,.0f} a second; CPU of one: {client:.0f} us of the "
      f"client, {server:.0f} us of the server, so {1e6 / server:,.0f} a second of a core. "
      f"Beside GET there were {', '.join(row[0] for row in beside)} a second.")
END
