//! What clients of the model ask: changes over several shards, and what touches their keys.

use penstock_net::slot::{core_of, slot_of};
use penstock_storage::version::partition_of;

use crate::random::Random;

use super::world::time_ms;

/// Keys of texts, which are of all shards.
const KEYS: usize = 8;
/// Keys that expire with effects on the first keys, and keys with fields.
const HOLDS: usize = 2;
const HASHES: usize = 3;

fn key(number: usize) -> String {
    format!("key{number}")
}

/// The key that has effects on this one, and is of its slot.
fn hold_of(key: &str) -> String {
    format!("{{{key}}}hold")
}

/// Keys with texts.
pub fn texts() -> Vec<String> {
    let holds = (0..HOLDS).map(|number| hold_of(&key(number)));
    (0..KEYS).map(key).chain(holds).collect()
}

/// Keys with the fields `a` and `b`.
pub fn hashes() -> Vec<String> {
    (0..HASHES).map(|number| format!("hash{number}")).collect()
}

/// What FLUSHALL is to the model: for each partition its keys.
pub fn flushes() -> Vec<Vec<String>> {
    let mut by_partition = std::collections::BTreeMap::<_, String>::new();
    for key in texts().into_iter().chain(hashes()) {
        let partition = partition_of(slot_of(key.as_bytes()));
        let line = by_partition.entry(partition).or_insert("FLUSH".into());
        line.push(' ');
        line.push_str(&key);
    }
    by_partition.into_values().map(|line| vec![line]).collect()
}

/// The keys in another order, so that the first two are of two shards, if there are two.
fn shuffled(mut keys: Vec<String>, random: &mut Random, shards: u16) -> Vec<String> {
    let count = keys.len();
    for at in 0..count {
        keys.swap(at, random.below(count));
    }
    let core = |key: &String| core_of(slot_of(key.as_bytes()), shards);
    let other = keys.iter().position(|key| core(key) != core(&keys[0]));
    keys.swap(1, other.unwrap_or(1));
    keys
}

fn transaction(lines: &[String]) -> Vec<String> {
    let ends = ["MULTI".to_string(), "EXEC".to_string()];
    [&ends[..1], lines, &ends[1..]].concat()
}

/// A transaction behind WATCH of these keys.
pub fn watched(keys: &[String], random: &mut Random) -> Vec<String> {
    let number = random.below(1_000);
    let [a, b] = keys else {
        panic!("two keys are watched");
    };
    transaction(&[format!("INCRBY {a} {number}"), format!("GET {b}")])
}

/// One command, or a transaction, at this tick. Keys end a few ticks behind so many more.
pub fn command(random: &mut Random, shards: usize, tick: u64, far: u64) -> Vec<String> {
    let shards = u16::try_from(shards).expect("few");
    let keys = shuffled((0..KEYS).map(key).collect(), random, shards);
    let hashes = shuffled(hashes(), random, shards);
    let [a, b, c] = [&keys[0], &keys[1], &keys[2]];
    let [h, i] = [&hashes[0], &hashes[1]];
    let number = random.below(1_000);
    let until_ms = time_ms(tick + far + 2 + random.below(2) as u64) + 2_000;
    let held = key(random.below(HOLDS));
    let hold = hold_of(&held);
    let other = keys.iter().find(|key| **key != held).expect("others");
    let field = ["a", "b"][random.below(2)];
    let one = match random.below(30) {
        0 => format!("GET {a}"),
        1 => format!("SET {a} {number}"),
        2 => format!("DEL {a} {b} {c}"),
        3 | 4 => format!("MSET {a} {number} {b} {number}"),
        5 | 6 => format!("RENAME {a} {b}"),
        7 | 8 => format!("COPY {a} {b} REPLACE"),
        9 => format!("MSETNX {a} {number} {b} {number}"),
        10..=12 => format!("EVAL all 2 {a} {b} INCRBY~{a}~{number} INCRBY~{b}~-{number} GET~{a}"),
        13 => format!("INCRBY {a} {number}"),
        14 => format!("SET {a} {number} PXAT {until_ms}"),
        15 => format!("RENAME {h} {i}"),
        16 => format!("COPY {h} {i} REPLACE"),
        17 | 18 => {
            let in_ms = 4_000 * (far + 1 + random.below(2) as u64) - 2_000;
            format!(
                "KV.APPLY {hold} KEY {held} k1~put 1 k1~expires~in~{in_ms}ms \
                 when~k1~expires:~k2~put {number}"
            )
        }
        19 if random.once_in(2) => "FLUSHALL".into(),
        19 | 20 => format!("WATCH {a} {b}"),
        21 | 22 => {
            return transaction(&[
                format!("GET {held}"),
                match random.below(2) {
                    0 => format!("GET {hold}"),
                    _ => format!("DEL {hold}"),
                },
                format!("INCRBY {other} {number}"),
            ]);
        }
        23 | 24 => {
            return transaction(&[
                format!("HSET {h} {field} {number}"),
                format!("HSET {i} {field} {number}"),
                format!("HGET {h} a"),
            ]);
        }
        25 => {
            return transaction(&[
                format!("SET {a} {number} PXAT {until_ms}"),
                format!("PEXPIREAT {b} {until_ms}"),
                format!("PEXPIREAT {h} {until_ms}"),
            ]);
        }
        _ => {
            return transaction(&[
                format!("INCRBY {a} -{number}"),
                format!("INCRBY {b} {number}"),
                format!("GET {c}"),
            ]);
        }
    };
    vec![one]
}
