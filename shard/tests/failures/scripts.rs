//! Scripts on one shard in virtual time: all that a script changes is one record, or nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_net::limits::{APPLY_KEYS_MAX, Limits};
use penstock_net::resp::{Client, Conversation};
use penstock_net::rights::{Grants, Right, Rights};
use penstock_net::script::{ScriptAccess, ScriptItem, ScriptName, ScriptReach};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_shard::SessionId;
use penstock_storage::budget::Budget;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::interpreter::Lines;
use crate::random::Random;
use crate::rights::resp::Still;
use crate::seed::{Seed, seeds};
use crate::server::Server;

const LIMITS: Limits = Limits {
    frame_bytes_max: 16 << 10,
    value_bytes_max: 3 << 10,
};
/// Rounds in which a command ends.
const ROUNDS_MAX: usize = 300;

pub struct Peer {
    pub server: Server,
    pub session: SessionId,
    /// A connection of the native protocol.
    native: SessionId,
    pub talk: Conversation,
    pub host: Still,
}

impl Peer {
    pub fn connect(mut server: Server, rights: Option<Arc<Rights>>) -> Peer {
        let native = server.session;
        server.shard.execution_mut().serve_scripts(Box::new(Lines));
        let (shard, now) = (&mut server.shard, server.now);
        let session = shard.front_mut().open_session_translated(now, 0);
        shard.front_mut().set_rights(session, rights.clone());
        let mut talk = Conversation::new(Client::default(), LIMITS, false);
        talk.set_rights(rights);
        server.session = session;
        server.raw = Some(Vec::new());
        server.inbox = Conversation::greeting();
        server.hand_over();
        let host = Still {
            joined_cores: 0,
            schema: Arc::default(),
            unix_us: 1,
        };
        Peer {
            server,
            session,
            native,
            talk,
            host,
        }
    }

    pub fn new(budget: Budget) -> Peer {
        let sync = SyncMethod::DurableWrite;
        let server = Server::open_within(budget, 1_000, sync, Image::default(), 1, None);
        Peer::connect(server.expect("it opens"), None)
    }

    /// Sends a command and takes its reply. A tilde is a blank within a word.
    pub fn ask(&mut self, line: &str) -> String {
        let mut bytes = command(line);
        self.server.session = self.session;
        for _ in 0..ROUNDS_MAX {
            let mut frame = Vec::new();
            let taken = self.talk.take(&bytes, &mut frame, &self.host);
            bytes.drain(..taken);
            self.server.inbox.extend(frame);
            self.server.hand_over();
            self.server.settle();
            let raw = self.server.raw.replace(Vec::new()).expect("kept");
            self.talk.answered(&raw, &self.host);
            if bytes.is_empty() && !self.talk.out().is_empty() {
                break;
            }
        }
        assert!(bytes.is_empty(), "{line} was not taken");
        let reply = std::mem::take(self.talk.out());
        reply.escape_ascii().to_string().replace("\\'", "'")
    }
}

pub fn command(line: &str) -> Vec<u8> {
    let words: Vec<String> = line.split(' ').map(|word| word.replace('~', " ")).collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

/// A server with room for all of a few keys.
fn roomy() -> Peer {
    Peer::new(Budget::of_cache(1 << 20))
}

#[test]
fn a_script_sees_what_it_has_changed_and_others_see_all_of_it() {
    let mut peer = roomy();
    assert_eq!(peer.ask("SET {s}stock 5"), "+OK\\r\\n");
    let buy = "EVAL all 2 {s}stock {s}buyer DECR~{s}stock SET~{s}buyer~1 GET~{s}stock";
    assert_eq!(peer.ask(buy), "*3\\r\\n:4\\r\\n+OK\\r\\n$1\\r\\n4\\r\\n");
    let both = peer.ask("MGET {s}stock {s}buyer");
    assert_eq!(both, "*2\\r\\n$1\\r\\n4\\r\\n$1\\r\\n1\\r\\n");
}

#[test]
fn a_script_that_fails_leaves_nothing() {
    let mut peer = roomy();
    peer.ask("SET {s}stock 5");
    let reply = peer.ask("EVAL fail 1 {s}stock DECR~{s}stock SET~{s}other~1");
    assert_eq!(reply, "-ERR it failed\\r\\n");
    assert_eq!(peer.ask("GET {s}stock"), "$1\\r\\n5\\r\\n");
    assert_eq!(peer.ask("EXISTS {s}other"), ":0\\r\\n");
}

#[test]
fn a_script_without_declared_keys_runs_where_its_first_key_is() {
    let mut peer = roomy();
    assert_eq!(peer.ask("EVAL last 0"), "");
    assert_eq!(peer.ask("EVAL last 0 PING"), "+PONG\\r\\n");
    assert_eq!(peer.ask("EVAL last 0 INCR~n INCR~n"), ":2\\r\\n");
    assert_eq!(peer.ask("GET n"), "$1\\r\\n2\\r\\n");
    assert_eq!(peer.ask("EVAL last 0 INCR~n INCRBY~other~7"), ":7\\r\\n");
    assert_eq!(peer.ask("GET n"), "$1\\r\\n3\\r\\n");
}

#[test]
fn scripts_behind_multi_see_what_stands_before_them_and_one_that_fails_is_dropped_alone() {
    let mut peer = roomy();
    peer.ask("SET {s}n 5");
    peer.ask("MULTI");
    for line in [
        "INCR {s}n",
        "EVAL last 1 {s}n INCRBY~{s}n~10",
        "EVAL fail 1 {s}n INCRBY~{s}n~100 SET~{s}other~1",
        "EVAL_RO last 1 {s}n INCR~{s}n",
        "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0",
        "PING",
        "GET {s}n",
    ] {
        assert_eq!(peer.ask(line), "+QUEUED\\r\\n", "{line}");
    }
    let expected = "*7\\r\\n:6\\r\\n:16\\r\\n-ERR it failed\\r\\n-ERR Write commands are not \
                    allowed from read-only scripts.\\r\\n-NOSCRIPT No matching \
                    script.\\r\\n+PONG\\r\\n$2\\r\\n16\\r\\n";
    assert_eq!(peer.ask("EXEC"), expected);
    assert_eq!(peer.ask("EXISTS {s}other"), ":0\\r\\n");
    // What a script has read that fails is shown, and stays for the answer.
    for others in [&[][..], &["GET {s}unread"]] {
        peer.ask("SET {s}text x");
        peer.ask("MULTI");
        peer.ask("EVAL fail 1 {s}text INCR~{s}text");
        others.iter().for_each(|line| {
            peer.ask(line);
        });
        let reply = peer.ask("EXEC");
        let expected = format!("*{}\\r\\n-ERR it failed\\r\\n", 1 + others.len());
        assert!(reply.starts_with(&expected), "{reply}");
    }
    peer.ask("MULTI");
    peer.ask("EVAL fail 1 {s}text INCR~{s}text");
    let lines: Vec<String> = (0..128).map(|it| format!("SET~{{s}}{it}~x~EX~9")).collect();
    peer.ask(&format!("EVAL last 0 {}", lines.join(" ")));
    let reply = peer.ask("EXEC");
    assert!(
        reply.contains("256 effects on keys (a value with an expiry is two), and 255"),
        "{reply} {}",
        lines.len()
    );
    // A reply that grows with each script ends EXEC.
    peer.ask(&format!("SET {{s}}long {}", "x".repeat(2_900)));
    peer.ask("MULTI");
    for _ in 0..16 {
        peer.ask("EVAL all 1 {s}long GET~K GET~K GET~K GET~K");
    }
    assert!(peer.ask("EVAL last 0").contains("at most 16 scripts"));
    peer.ask("DISCARD");
    // Only scripts without keys, and nothing at all.
    peer.ask("MULTI");
    peer.ask("EVAL last 0 INCR~m");
    assert_eq!(peer.ask("EXEC"), "*1\\r\\n:1\\r\\n");
    peer.ask("MULTI");
    assert_eq!(peer.ask("EXEC"), "*0\\r\\n");
    peer.ask("MULTI");
    assert_eq!(peer.ask("EVAL last 1 a"), "+QUEUED\\r\\n");
    assert_eq!(peer.ask("GET b"), "+QUEUED\\r\\n");
    assert_eq!(peer.ask("EXEC"), "*2\\r\\n$-1\\r\\n");
}

#[test]
fn cold_keys_are_read_first_and_the_script_changes_each_once() {
    const KEYS: usize = 120;
    let sync = SyncMethod::DurableWrite;
    let server = Server::open(sync, Image::default(), 1, None).expect("it opens");
    let mut peer = Peer::connect(server, None);
    for number in 0..KEYS {
        let value = "7".repeat(18);
        peer.ask(&format!("SET {{s}}{number} {value}"));
        peer.ask(&format!("SET {{s}}pad{number} {}", "x".repeat(500)));
    }
    let before = peer.server.counters();
    for round in 1..=3_u64 {
        for first in (0..KEYS).step_by(6) {
            // Three keys are declared, three others are not.
            let keys: Vec<String> = (first..first + 6).map(|it| format!("{{s}}{it}")).collect();
            let lines: Vec<String> = keys.iter().map(|key| format!("INCR~{key}")).collect();
            let declared = keys[..3].join(" ");
            let reply = peer.ask(&format!("EVAL all 3 {declared} {}", lines.join(" ")));
            let number = 777_777_777_777_777_777 + round;
            let expected = format!("*6\\r\\n{}", format!(":{number}\\r\\n").repeat(6));
            assert_eq!(reply, expected, "round {round}, from {first}");
        }
    }
    let parked = peer.server.counters().parked - before.parked;
    assert!(parked > 60, "{parked} runs found a key on the disk");
}

#[test]
fn a_script_that_has_taken_its_steps_in_runs_that_met_cold_keys_runs_no_more() {
    const KEYS: usize = 60;
    let sync = SyncMethod::DurableWrite;
    let server = Server::open(sync, Image::default(), 1, None).expect("it opens");
    let mut peer = Peer::connect(server, None);
    for number in 0..KEYS {
        peer.ask(&format!("SET {{s}}{number} {number}"));
        peer.ask(&format!("SET {{s}}pad{number} {}", "x".repeat(1_000)));
    }
    let lines: Vec<String> = (0..6).map(|it| format!("INCR~{{s}}{it}")).collect();
    let script = format!("EVAL dear 0 {}", lines.join(" "));
    let refused = "-TRYAGAIN nothing was executed: the script has taken 1200 steps and 21 \
                   microseconds in 3 runs, each of which has met a key that is not in memory\\r\\n";
    assert_eq!(peer.ask(&script), refused);
    // The next try finds what this one has met.
    assert_eq!(peer.ask(&script), refused);
    let replies: String = (1..=6).map(|it| format!(":{it}\\r\\n")).collect();
    assert_eq!(peer.ask(&script), replies);
}

#[test]
fn scripts_of_one_exec_know_what_those_before_them_have_taken_and_the_next_exec_begins_anew() {
    let mut peer = roomy();
    for _ in 0..2 {
        peer.ask("MULTI");
        for line in [
            "EVAL spent 0",
            "EVAL dear 0 PING",
            "EVAL dear 0 PING",
            "EVAL spent 0",
        ] {
            assert_eq!(peer.ask(line), "+QUEUED\\r\\n", "{line}");
        }
        let reply = peer.ask("EXEC");
        assert_eq!(reply, "*4\\r\\n:0\\r\\n+PONG\\r\\n+PONG\\r\\n:800\\r\\n");
    }
}

#[test]
fn a_script_changes_at_most_as_many_keys_as_an_apply_has_and_reads_more() {
    let mut peer = roomy();
    let lines = |count: usize, verb: &str| {
        let lines: Vec<String> = (0..count).map(|it| format!("{verb}~{{s}}{it}")).collect();
        format!("EVAL last 1 {{s}}0 {}", lines.join(" "))
    };
    let reply = peer.ask(&lines(40, "INCR"));
    assert_eq!(reply, ":1\\r\\n");
    let reply = peer.ask(&lines(APPLY_KEYS_MAX + 1, "INCR"));
    assert!(reply.contains("256 keys would change together"), "{reply}");
    assert_eq!(peer.ask("GET {s}0"), "$1\\r\\n1\\r\\n");
    assert_eq!(peer.ask(&lines(100, "EXISTS")), ":0\\r\\n");
}

#[test]
fn a_script_that_only_reads_is_refused_its_writes() {
    let mut peer = roomy();
    peer.ask("SET {s}a 1");
    assert_eq!(peer.ask("EVAL_RO last 1 {s}a GET~{s}a"), "$1\\r\\n1\\r\\n");
    let reply = peer.ask("EVAL_RO last 1 {s}a INCR~{s}a");
    assert!(reply.starts_with("-ERR Write commands"), "{reply}");
    assert_eq!(peer.ask("GET {s}a"), "$1\\r\\n1\\r\\n");
}

#[test]
fn bad_words_of_eval_are_refused_in_the_words_of_redis() {
    let mut peer = roomy();
    for (line, expected) in [
        (
            "EVAL all",
            "-ERR wrong number of arguments for 'eval' command",
        ),
        ("EVAL all x", "-ERR value is not an integer or out of range"),
        ("EVAL all -1", "-ERR Number of keys can't be negative"),
        (
            "EVAL all 2 a",
            "-ERR Number of keys can't be greater than number of args",
        ),
        ("EVAL all 2 a b", "*0"),
        ("EVALSHA abc 0", "-NOSCRIPT No matching script."),
        (
            "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0",
            "-NOSCRIPT No matching script.",
        ),
        ("EVAL last 0 NOSUCH", "-ERR Unknown command"),
        ("EVAL last 0 GET", "-ERR Wrong number of args"),
        (
            "EVAL last 0 WATCH~a",
            "-ERR This Valkey command is not allowed",
        ),
        (
            "EVAL last 0 INFO",
            "-ERR INFO is not supported in scripts here",
        ),
        ("EVAL last 1 a SET~a~x~NX~XX", "-ERR syntax error"),
        ("SCRIPT LOAD x", "-ERR this node runs no scripts"),
    ] {
        let reply = peer.ask(line);
        assert!(reply.starts_with(expected), "{line}: {reply}");
    }
}

#[test]
fn a_reply_beyond_a_value_is_refused_and_the_others_are_served() {
    let mut peer = roomy();
    peer.ask(&format!("SET {{s}}a {}", "x".repeat(2_000)));
    let reply = peer.ask("EVAL last 1 {s}a MGET~{s}a~{s}a");
    assert!(reply.starts_with("-ERR the reply of 'mget'"), "{reply}");
    assert_eq!(peer.ask("STRLEN {s}a"), ":2000\\r\\n");
}

#[test]
fn a_user_with_rights_runs_scripts_on_the_keys_that_it_may_use_and_names() {
    let mut all = roomy();
    all.ask("SET o:{s} 1");
    all.ask("SET k:{s} 1");
    let mut grants = Grants::new();
    for (right, prefix) in [
        (Right::Read, b"k:"),
        (Right::Write, b"k:"),
        (Right::Read, b"o:"),
        (Right::Read, b"p:"),
        (Right::Write, b"p:"),
    ] {
        grants.grant(right, prefix).expect("granted");
    }
    for prefix in [b"k:", b"o:"] {
        grants.grant_run("eval", prefix).expect("granted");
    }
    let rights = Arc::new(Rights::new("till", &grants));
    let mut peer = Peer::connect(all.server, Some(rights));
    assert_eq!(peer.ask("EVAL last 1 k:{s} INCR~k:{s}"), ":2\\r\\n");
    let denied = "-NOPERM No permissions to access a key\\r\\n";
    assert_eq!(peer.ask("EVAL last 1 o:{s} GET~o:{s}"), denied);
    assert_eq!(
        peer.ask("EVAL_RO last 1 o:{s} GET~o:{s}"),
        "$1\\r\\n1\\r\\n"
    );
    let reply = peer.ask("EVAL last 1 k:{s} GET~o:{s}");
    assert!(reply.starts_with("-NOPERM a script of a user"), "{reply}");
    // A script without keys needs the right everywhere.
    assert_eq!(peer.ask("EVAL last 0 GET~k:{s}"), denied);
}

#[test]
fn a_connection_over_a_network_brings_no_scripts() {
    let mut peer = roomy();
    let item = ScriptItem {
        script: ScriptName::Text(b"last"),
        access: ScriptAccess::Changes,
        reach: ScriptReach::Node,
        is_of_resp3: false,
        slot: Some(slot_of(b"n")),
        reply_bytes_max: 0,
    };
    let words = [&b"n"[..], b"INCR n"];
    let mut bytes = Vec::new();
    item.write(1, words.into_iter(), &mut bytes);
    let server = &mut peer.server;
    server.raw = None;
    server.session = peer.native;
    server.send(7, |batch, out| batch.raw(out, &bytes));
    server.settle();
    assert_eq!(server.replies[&7].status, Status::Unsupported);
    server.raw = Some(Vec::new());
    assert_eq!(peer.ask("EXISTS n"), ":0\\r\\n");
}

pub const COUNTERS: usize = 60;
/// A value that leaves no room for many beside it.
const BASE: u64 = 1_000_000_000_000_000_000;

/// What the keys hold, by number.
pub type Held = BTreeMap<usize, u64>;

/// The name of a key: of one slot, or of one of seven.
pub fn name(spread: Spread, key: usize) -> String {
    match spread {
        Spread::OneSlot => format!("{{s}}{key}"),
        Spread::Slots => format!("{{{}}}{key}", key % 7),
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Spread {
    OneSlot,
    Slots,
}

/// A random script, its reply, and what it leaves.
pub fn random_script(random: &mut Random, spread: Spread, held: &Held) -> (String, String, Held) {
    let mut after = held.clone();
    let (mut lines, mut replies) = (Vec::new(), String::new());
    let count = 1 + random.below(6);
    for _ in 0..count {
        let key = random.below(COUNTERS);
        let named = name(spread, key);
        let reply = match random.below(8) {
            0 => {
                lines.push(format!("SET~{named}~{BASE}"));
                after.insert(key, BASE);
                "+OK\\r\\n".to_string()
            }
            1 => {
                lines.push(format!("DEL~{named}"));
                format!(":{}\\r\\n", usize::from(after.remove(&key).is_some()))
            }
            2 | 3 => {
                lines.push(format!("GET~{named}"));
                shown(after.get(&key).copied())
            }
            _ => {
                lines.push(format!("INCR~{named}"));
                let number = after.entry(key).or_insert(0);
                *number += 1;
                format!(":{number}\\r\\n")
            }
        };
        replies += &reply;
    }
    let declared = name(spread, random.below(COUNTERS));
    let lines = lines.join(" ");
    match random.below(5) {
        0 => {
            let reply = "-ERR it failed\\r\\n".to_string();
            (
                format!("EVAL fail 1 {declared} {lines}"),
                reply,
                held.clone(),
            )
        }
        1 => (
            format!("EVAL all 0 {lines}"),
            format!("*{count}\\r\\n{replies}"),
            after,
        ),
        _ => {
            let line = format!("EVAL all 1 {declared} {lines}");
            (line, format!("*{count}\\r\\n{replies}"), after)
        }
    }
}

pub fn shown(number: Option<u64>) -> String {
    match number.map(|it| it.to_string()) {
        Some(text) => format!("${}\\r\\n{text}\\r\\n", text.len()),
        None => "$-1\\r\\n".to_string(),
    }
}

/// What a server over this image holds.
fn found(image: Image, incarnation: u64, spread: Spread) -> (Peer, Held) {
    let server = Server::open(SyncMethod::DurableWrite, image, incarnation, None);
    let mut peer = Peer::connect(server.expect("it opens"), None);
    let mut held = Held::new();
    for key in 0..COUNTERS {
        let reply = peer.ask(&format!("GET {}", name(spread, key)));
        if let Some(text) = reply.split("\\r\\n").nth(1).filter(|it| !it.is_empty()) {
            held.insert(key, text.parse().expect("a number"));
        }
    }
    (peer, held)
}

#[test]
fn random_scripts_are_answered_as_a_model_says_and_a_crash_leaves_each_whole_or_not_at_all() {
    let mut parked = 0;
    for seed in seeds(12) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let spread = match seed % 2 {
            0 => Spread::OneSlot,
            _ => Spread::Slots,
        };
        let (mut peer, mut held) = found(Image::default(), 1, spread);
        let mut incarnation = 1;
        for step in 0..150 {
            if step % 10 == 0 {
                // Others push the counters out of the cache.
                for pad in 0..6 {
                    peer.ask(&format!("SET {{s}}pad{pad} {}", "x".repeat(400)));
                }
            }
            let (line, expected, after) = random_script(&mut random, spread, &held);
            if step % 15 != 14 {
                assert_eq!(peer.ask(&line), expected, "{line}");
                held = after;
                continue;
            }
            // It crashes while the script is under way.
            let mut frame = Vec::new();
            let taken = peer.talk.take(&command(&line), &mut frame, &peer.host);
            assert_eq!(taken, command(&line).len());
            peer.server.session = peer.session;
            peer.server.inbox.extend(frame);
            peer.server.hand_over();
            for _ in 0..random.below(6) {
                peer.server.turn();
                peer.server.end(0);
            }
            parked += peer.server.counters().parked;
            incarnation += 1;
            let image = peer.server.device.image.clone();
            let (again, is) = found(image, incarnation, spread);
            assert!(
                is == held || is == after,
                "{line}: {held:?}\n{after:?}\n{is:?}"
            );
            (peer, held) = (again, is);
        }
    }
    assert!(parked > 400, "{parked} found a key on the disk");
}
