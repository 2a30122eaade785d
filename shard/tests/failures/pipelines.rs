//! Pipelines of one connection over keys of several slots: plain commands, EXEC and scripts run in
//! their order on each slot, are under way together, and share flushes.

use penstock_storage::budget::Budget;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::random::Random;
use crate::scripts::{COUNTERS, Held, Peer, Spread, command, name, random_script, shown};
use crate::seed::{Seed, seeds};
use crate::server::Server;

/// Turns in which a pipeline ends.
const TURNS_MAX: usize = 3_000;

/// A command that is no script, its reply, and what it leaves.
fn random_command(random: &mut Random, spread: Spread, held: &mut Held) -> (String, String) {
    let key = random.below(COUNTERS);
    let named = name(spread, key);
    match random.below(6) {
        0 => (format!("GET {named}"), shown(held.get(&key).copied())),
        1 => {
            let is_there = held.remove(&key).is_some();
            (
                format!("DEL {named}"),
                format!(":{}\\r\\n", u8::from(is_there)),
            )
        }
        // More than an item.
        2 => {
            let reply = shown(held.get(&key).copied());
            (format!("GETEX {named} PERSIST"), reply)
        }
        3 => {
            let other = random.below(COUNTERS);
            let is_free = !held.contains_key(&key) && !held.contains_key(&other);
            if is_free {
                held.insert(key, 5);
                held.insert(other, 5);
            }
            let line = format!("MSETNX {named} 5 {} 5", name(spread, other));
            (line, format!(":{}\\r\\n", u8::from(is_free)))
        }
        _ => {
            let number = held.entry(key).or_insert(0);
            *number += 1;
            (format!("INCR {named}"), format!(":{number}\\r\\n"))
        }
    }
}

/// Random commands, EXEC and scripts, and their replies.
fn random_pipeline(random: &mut Random, spread: Spread, held: &mut Held) -> (Vec<String>, String) {
    let (mut lines, mut replies) = (Vec::new(), String::new());
    for _ in 0..1 + random.below(30) {
        match random.below(4) {
            0 => {
                let (line, reply, after) = random_script(random, spread, held);
                lines.push(line);
                replies += &reply;
                *held = after;
            }
            1 => {
                let count = 1 + random.below(4);
                lines.push("MULTI".to_string());
                replies += "+OK\\r\\n";
                let mut of_exec = format!("*{count}\\r\\n");
                for _ in 0..count {
                    let (line, reply) = random_command(random, spread, held);
                    lines.push(line);
                    replies += "+QUEUED\\r\\n";
                    of_exec += &reply;
                }
                lines.push("EXEC".to_string());
                replies += &of_exec;
            }
            _ => {
                let (line, reply) = random_command(random, spread, held);
                lines.push(line);
                replies += &reply;
            }
        }
    }
    (lines, replies)
}

/// Sends all at once and takes the replies, in turns that end when one request to the disk has.
fn pipeline(peer: &mut Peer, lines: &[String]) -> String {
    let mut bytes: Vec<u8> = lines.iter().flat_map(|line| command(line)).collect();
    let (mut replies, mut quiet_turns) = (Vec::new(), 0);
    peer.server.session = peer.session;
    for _ in 0..TURNS_MAX {
        let mut frame = Vec::new();
        let taken = peer.talk.take(&bytes, &mut frame, &peer.host);
        bytes.drain(..taken);
        peer.server.inbox.extend(frame);
        peer.server.hand_over();
        peer.server.turn();
        peer.server.end(0);
        let raw = peer.server.raw.replace(Vec::new()).expect("kept");
        peer.talk.answered(&raw, &peer.host);
        replies.append(peer.talk.out());
        let is_quiet = taken == 0 && raw.is_empty() && peer.server.device.under_way().is_empty();
        quiet_turns = if is_quiet { quiet_turns + 1 } else { 0 };
        if quiet_turns == 20 {
            break;
        }
    }
    assert!(bytes.is_empty(), "{lines:?} was not taken");
    // A flush may wait for the clock.
    peer.server.settle();
    let raw = peer.server.raw.replace(Vec::new()).expect("kept");
    peer.talk.answered(&raw, &peer.host);
    replies.append(peer.talk.out());
    replies.escape_ascii().to_string().replace("\\'", "'")
}

#[test]
fn pipelines_over_shared_and_separate_slots_are_answered_as_if_each_command_waited_for_the_last() {
    let (mut parked, mut most_together) = (0, 0);
    for seed in seeds(12) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let spread = match seed % 3 {
            0 => Spread::OneSlot,
            _ => Spread::Slots,
        };
        let server = Server::open(SyncMethod::DurableWrite, Image::default(), 1, None);
        let mut peer = Peer::connect(server.expect("it opens"), None);
        let mut held = Held::new();
        for step in 0..40 {
            for pad in 0..6 {
                peer.ask(&format!("SET {{s}}pad{pad} {}", "x".repeat(400)));
            }
            let before = peer.server.counters().parked;
            let (lines, expected) = random_pipeline(&mut random, spread, &mut held);
            let replies = pipeline(&mut peer, &lines);
            assert_eq!(replies, expected, "step {step}: {lines:?}");
            let waited = peer.server.counters().parked - before;
            (parked, most_together) = (parked + waited, most_together.max(waited));
        }
        for key in 0..COUNTERS {
            let expected = shown(held.get(&key).copied());
            assert_eq!(
                peer.ask(&format!("GET {}", name(spread, key))),
                expected,
                "{key}"
            );
        }
    }
    assert!(
        parked > 1_000 && most_together > 10,
        "{parked}, {most_together}"
    );
}

/// Frames that the log needs for these lines, each sent alone or all at once, and the replies.
fn frames_of(lines: &[String], are_alone: bool) -> (u64, String) {
    let mut peer = Peer::new(Budget::of_cache(1 << 20));
    peer.ask("SET stock 1000");
    let before = peer.server.shard.store().log().counters().frames;
    let replies = match are_alone {
        true => lines.iter().map(|line| peer.ask(line)).collect(),
        false => pipeline(&mut peer, lines),
    };
    let after = peer.server.shard.store().log().counters().frames;
    (after - before, replies)
}

#[test]
fn pipelined_scripts_and_transactions_of_a_connection_share_one_flush() {
    let scripts: Vec<String> = (0..16)
        .map(|buyer| format!("EVAL last 2 stock buyer{buyer} DECR~stock SET~buyer{buyer}~1"))
        .collect();
    let buy = |buyer| {
        let set = format!("SET buyer{buyer} 1");
        ["MULTI", "DECR stock", &set, "EXEC"].map(String::from)
    };
    let transactions: Vec<String> = (0..16).flat_map(buy).collect();
    for lines in [scripts, transactions] {
        let (alone, expected) = frames_of(&lines, true);
        let (together, replies) = frames_of(&lines, false);
        assert_eq!((alone, together), (16, 1), "{}", lines[0]);
        assert_eq!(replies, expected);
    }
}

#[test]
fn a_transaction_on_more_cold_keys_than_a_script_runs_ends_because_it_reads_them_together() {
    let server = Server::open(SyncMethod::DurableWrite, Image::default(), 1, None);
    let mut peer = Peer::connect(server.expect("it opens"), None);
    for key in 0..120 {
        peer.ask(&format!("SET {{{}}}key{key} {key}", key % 7));
    }
    for pad in 0..12 {
        peer.ask(&format!("SET {{pad}}{pad} {}", "x".repeat(400)));
    }
    let before = peer.server.counters().parked;
    let mut lines = vec!["MULTI".to_string()];
    lines.extend((0..120).map(|key| format!("EXISTS {{{}}}key{key}", key % 7)));
    lines.push("INCR {1}key1".to_string());
    lines.push("EXEC".to_string());
    let replies = pipeline(&mut peer, &lines);
    let begin = format!("+OK\\r\\n{}*121\\r\\n", "+QUEUED\\r\\n".repeat(121));
    let expected = format!("{}:2\\r\\n", ":1\\r\\n".repeat(120));
    assert_eq!(replies, begin + &expected);
    let waited = peer.server.counters().parked - before;
    assert!((1..8).contains(&waited), "{waited} times it waited");
}
