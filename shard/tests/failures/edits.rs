//! Every way to write a key, on every kind of key: one rule for expiry, effects and lifetime.
//!
//! **An edit of the value keeps the expiry and what runs then; a put keeps neither**, and what
//! begins anew has the lifetime of its keyspace. So a command leaves the same whether it stands
//! alone, behind MULTI, or is said by an item or a transaction of the native protocol: the same
//! value, the same expiry, effects that run or do not, and the same bytes in the log.

mod bench;
mod table;

use std::collections::BTreeSet;

use penstock_net::status::Status;

use crate::image::Image;
use crate::random::Random;
use crate::seed::{Seed, seeds};
use bench::{Bench, Found, NOW_MS, Start};
use table::{Held, ROWS, Row, Way};

/// A write of a key of another slot.
const ELSEWHERE: &str = "SET elsewhere 1";

/// What is found of a key that is held so, by the rule.
fn expected(held: &Held) -> Found {
    let expiry_ms = held.expiry_ms.filter(|_| held.value.is_some());
    Found {
        value: held.value.clone(),
        expiry_ms: expiry_ms.unwrap_or(0),
        stock: held.fired,
        stock_at_last: held.fired + u64::from(held.is_armed),
    }
}

/// Runs one row by one way from one start, and holds it against the rule.
fn run(row: &Row, way: &Way, start: Start) -> (String, Image) {
    let mut held = Held::of(start);
    for step in (row.does)(&held) {
        held.does(step, start.lifetime_ms());
    }
    let mut bench = Bench::new(start);
    let reply = way.write(&mut bench, start);
    let what = format!("{way:?} of {:?} on {start:?}", row.words);
    let image = bench.image();
    assert_eq!(bench.find(), expected(&held), "{what}: {reply}");
    (reply, image)
}

#[test]
fn every_write_leaves_the_same_in_every_way_and_on_every_kind_of_key() {
    for row in ROWS {
        for start in Start::ALL {
            let (reply, log) = run(row, &Way::Alone(row.words), start);
            if row.goes_behind_multi() {
                let (replies, other) = run(row, &Way::Multi(&[row.words]), start);
                let expected = format!("*1\\r\\n{reply}");
                assert_eq!(replies, expected, "{:?} on {start:?}", row.words);
                assert!(
                    !row.is_of_one_key() || other == log,
                    "the log of {:?} on {start:?} behind MULTI is another one",
                    row.words
                );
                // Beside a key of another slot.
                let (replies, _) = run(row, &Way::Multi(&[row.words, ELSEWHERE]), start);
                let both = format!("*2\\r\\n{reply}+OK\\r\\n");
                assert_eq!(replies, both, "{:?} on {start:?}", row.words);
                let (replies, other) = run(row, &Way::Script(&[row.words]), start);
                assert_eq!(replies, expected, "EVAL {:?} on {start:?}", row.words);
                assert!(
                    !row.is_of_one_key() || other == log,
                    "the log of {:?} on {start:?} in a script is another one",
                    row.words
                );
            }
            for way in row.ways.iter().filter(|_| start.exists()) {
                let (_, other) = run(row, way, start);
                assert!(
                    other == log,
                    "the log of {way:?} on {start:?} is another one"
                );
            }
        }
    }
}

#[test]
fn every_write_command_of_the_table_has_a_row() {
    let mut bench = Bench::new(Start::Plain);
    let mut written = BTreeSet::new();
    let list = bench.command("COMMAND LIST");
    let names = list
        .split("\\r\\n")
        .filter(|it| !it.starts_with(['*', '$']));
    for name in names.filter(|name| !name.is_empty()) {
        let reply = bench.command(&format!("COMMAND INFO {name}"));
        // A flush is of no key, and those of members are rows of `members`.
        let is_of_members = ["@hash", "@list", "@set", "@sortedset"]
            .iter()
            .any(|it| reply.contains(it));
        let is_other = name.to_lowercase().starts_with("flush") || is_of_members;
        if reply.contains("+write\\r\\n") && !is_other {
            written.insert(name.to_lowercase());
        }
    }
    assert!(written.len() > 20, "{written:?}");
    let rows = ROWS.iter().map(|row| row.name().to_lowercase());
    assert_eq!(rows.collect::<BTreeSet<_>>(), written);
}

/// What a line of commands leaves does not depend on whether they run one after the other or
/// together.
#[test]
fn commands_leave_the_same_one_after_the_other_and_together() {
    let queued: Vec<&Row> = ROWS.iter().filter(|row| row.goes_behind_multi()).collect();
    for seed in seeds(600) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let start = Start::ALL[random.below(Start::ALL.len())];
        let mut lines = Vec::new();
        let mut held = Held::of(start);
        while lines.len() < 2 + random.below(4) {
            let row = queued[random.below(queued.len())];
            let mut after = held.clone();
            for step in (row.does)(&after) {
                after.does(step, start.lifetime_ms());
            }
            // The effects of a key that ends among the commands run when all are done, and so
            // does the lifetime of its keyspace begin.
            if after.fired > held.fired || held.is_lent_a_life && row.asks_expiry() {
                continue;
            }
            held = after;
            lines.push(row.words);
        }
        let mut bench = Bench::new(start);
        let replies: Vec<String> = lines.iter().map(|line| bench.command(line)).collect();
        assert_eq!(bench.find(), expected(&held), "{lines:?} on {start:?}");
        let beside: Vec<&str> = lines.iter().copied().chain([ELSEWHERE]).collect();
        let and_beside = format!("{}+OK\\r\\n", replies.concat());
        for (way, count, replies) in [
            (Way::Multi(&lines), lines.len(), &replies.concat()),
            (Way::Script(&lines), lines.len(), &replies.concat()),
            (Way::Multi(&beside), beside.len(), &and_beside),
            (Way::Script(&beside), beside.len(), &and_beside),
        ] {
            let mut bench = Bench::new(start);
            let together = way.write(&mut bench, start);
            let each = format!("*{count}\\r\\n{replies}");
            assert_eq!(together, each, "{way:?} on {start:?}");
            assert_eq!(bench.find(), expected(&held), "{way:?} on {start:?}");
        }
    }
}

/// A key that ends by its expiry within a transaction fires when the transaction is done, with the
/// value that the transaction gave it.
#[test]
fn effects_of_a_key_that_a_transaction_ends_run_behind_it() {
    for lines in [
        &["PEXPIREAT K 1"][..],
        &["INCR K", "PEXPIREAT K 1"],
        &["APPEND K 7", "GETEX K PXAT 1", "GET K", "DEL K"],
        &["EXPIRE K 50", "INCR K", "EXPIRE K -1", "TTL K"],
    ] {
        for start in [Start::Armed, Start::ArmedInKeyspace] {
            let mut bench = Bench::new(start);
            Way::Multi(lines).write(&mut bench, start);
            let found = bench.find();
            assert_eq!((found.value, found.stock), (None, 1), "{lines:?}");
        }
    }
}

/// RENAME and COPY bring the expiry, and nothing that the keyspace of the new name would give. What
/// runs when a key expires stays with its name.
#[test]
fn a_renamed_or_copied_key_keeps_its_expiry_and_an_armed_one_keeps_its_name() {
    for start in Start::ALL.into_iter().filter(|start| start.exists()) {
        for target in ["{e}other", "{e}t:other"] {
            for words in ["RENAME", "RENAMENX", "COPY"] {
                for is_queued in [false, true] {
                    let mut bench = Bench::new(start);
                    let line = format!("{words} K {target}");
                    let reply = match is_queued {
                        true => Way::Multi(&[&line]).write(&mut bench, start),
                        false => bench.command(&line),
                    };
                    let what = format!("{line} of {start:?}, queued {is_queued}: {reply}");
                    let is_refused = start.is_armed() && words != "COPY";
                    assert_eq!(reply.contains("-ERR effects run"), is_refused, "{what}");
                    let has_moved = !is_refused && words != "COPY";
                    let there = bench.command("EXISTS K");
                    assert_eq!(there == ":0\\r\\n", has_moved, "{what}");
                    let expires = bench.command(&format!("PEXPIRETIME {target}"));
                    let expiry_ms = start.expiry_ms().map_or(-1, u64::cast_signed);
                    let expected = if is_refused { -2 } else { expiry_ms };
                    assert_eq!(expires, format!(":{expected}\\r\\n"), "{what}");
                    if !is_refused {
                        let value = bench.command(&format!("GET {target}"));
                        assert_eq!(value, "$1\\r\\n5\\r\\n", "{what}");
                    }
                    // A copy has none of the effects: they run once.
                    let stock = bench.find().stock_at_last;
                    assert_eq!(stock, u64::from(start.is_armed()), "{what}");
                }
            }
        }
    }
}

/// A lifetime that ends too late is refused by itself, in the same words wherever it stands.
#[test]
fn a_lifetime_beyond_the_last_expiry_is_refused_in_the_same_words_alone_and_behind_multi() {
    for (line, name) in [
        ("SETEX K 281474976710 v", "setex"),
        ("PSETEX K 281474976710655 v", "psetex"),
        ("SET K v EX 281474976710", "set"),
        ("SET K v PX 281474976710655 NX", "set"),
        ("SET K v GET EX 281474976710", "set"),
        ("SET K v EX 281474976711", "set"),
        ("GETEX K EX 281474976710", "getex"),
        ("EXPIRE K 281474976710", "expire"),
        ("EXPIRE K 281474976710 NX", "expire"),
        ("PEXPIRE K 281474976710655", "pexpire"),
        ("PEXPIRE K 281474976710656", "pexpire"),
        ("INCREX K EX 281474976710", "increx"),
        ("INCREX K EX 281474976710 ENX", "increx"),
    ] {
        let text = format!("-ERR invalid expire time in '{name}' command\\r\\n");
        let mut bench = Bench::new(Start::Plain);
        assert_eq!(bench.command(line), text, "{line}");
        for line in ["MULTI", line, "SET K 7", "GET K"] {
            bench.command(line);
        }
        let others = "+OK\\r\\n$1\\r\\n7\\r\\n";
        assert_eq!(
            bench.command("EXEC"),
            format!("*3\\r\\n{text}{others}"),
            "{line}"
        );
    }
    // The last time that there is.
    let last_ms = penstock_net::limits::EXPIRY_MS_MAX - NOW_MS;
    for lifetime_ms in [last_ms, last_ms + 1] {
        let line = format!("PSETEX K {lifetime_ms} v");
        let is_far = lifetime_ms > last_ms;
        let mut bench = Bench::new(Start::Plain);
        assert_eq!(bench.command(&line).starts_with('-'), is_far, "{line}");
        bench.command("MULTI");
        bench.command(&line);
        assert_eq!(bench.command("EXEC").contains("-ERR"), is_far, "{line}");
    }
}

/// The native protocol says a missing value, too: REPLACE edits, it does not begin anything.
#[test]
fn replace_of_a_missing_key_is_not_found_and_writes_nothing() {
    for start in [Start::Missing, Start::MissingInKeyspace] {
        let mut bench = Bench::new(start);
        let before = bench.image();
        let mut apply = penstock_net::apply::Apply::new();
        let key = apply.key(start.key().as_bytes());
        apply.replace(key, b"7");
        let answer = bench.answer(|b, o| b.apply(o, &apply));
        assert_eq!((answer.status, answer.instruction), (Status::NotFound, 0));
        assert_eq!(bench.image(), before);
    }
}
