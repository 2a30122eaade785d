#!/usr/bin/env bash
# Builds the server with a profile of the workloads of `penstock bench`: the compiler then lays out
# and inlines what they run. `cargo build --release` needs none of this.
#
#   rustup component add llvm-tools                    # once: llvm-profdata of the compiler's LLVM
#   deploy/release.sh                                  # prints the path of the binary
#
# Two release builds and half a minute of load on 127.0.0.1. Without rustup an llvm-profdata of the
# same LLVM does, such as that of Debian's llvm-N: LLVM_PROFDATA names it. Formats and
# options of the binary are those of any other build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

host=$(rustc -vV | sed -n 's/^host: //p')
llvm=$(rustc -vV | sed -n 's/^LLVM version: //p')
major=${llvm%%.*}
profdata=${LLVM_PROFDATA:-}
of_rustup=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
for found in "$of_rustup" "llvm-profdata-$major" llvm-profdata; do
    [[ -z $profdata ]] && command -v "$found" >/dev/null && profdata=$found
done
install="rustup component add llvm-tools, or apt-get install llvm-$major"
if [[ -z $profdata ]] || ! command -v "$profdata" >/dev/null; then
    echo "llvm-profdata of LLVM $major is missing${profdata:+ ($profdata)}: $install" >&2
    exit 1
fi
if ! "$profdata" merge --version 2>&1 | grep -q "LLVM version $major\."; then
    echo "$profdata is not of LLVM $major, which rustc has: $install" >&2
    exit 1
fi

target=$PWD/target/pgo
[[ -n ${CARGO_TARGET_DIR:-} ]] && target=$(realpath -m "$CARGO_TARGET_DIR")/pgo
work=$(mktemp -d)
server=
finish() {
    [[ -n $server ]] && kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

# --target keeps the flags from build scripts and macros.
build() {
    RUSTFLAGS="${RUSTFLAGS:-} $1" cargo build --release --locked --quiet --target "$host" \
        --target-dir "$target/$2" -p penstock --bin penstock
}

build "-Cprofile-generate=$work/raw" instrumented
penstock=$target/instrumented/$host/release/penstock

"$penstock" serve --data "$work/data" --listen 127.0.0.1:0 --shard-ports 0 --admin-listen off \
    --shards 1 --durability none >"$work/banner" &
server=$!
for _ in $(seq 100); do
    grep -q '^ready' "$work/banner" && break
    kill -0 "$server" 2>/dev/null || { echo 'the server with counters did not start' >&2; exit 1; }
    sleep 0.1
done
address=$(sed -n 's/^listening *\(127\.0\.0\.1:[0-9]*\).*/\1/p' "$work/banner")
for depth in 1 16 128; do
    for workload in get set decr mixed echo echo-items; do
        "$penstock" bench "$workload" --addr "$address" --depth "$depth" \
            --duration 1.5 --warmup 0.3 >/dev/null
    done
done
kill -TERM "$server"
wait "$server" || { echo "the server with counters ended with $?" >&2; exit 1; }
server=

"$profdata" merge -o "$work/profile" "$work/raw"
build "-Cprofile-use=$work/profile" optimized
echo "$target/optimized/$host/release/penstock"
