//! Keys with members: a hash is what a model says over evictions and starts, no native verb shows
//! or edits one, and no node gives a key members that another one cannot read.

use std::collections::BTreeMap;

use penstock_net::apply::{Action, Apply, ApplyInstruction, write_apply};
use penstock_net::keyspace::{Action as KeyspaceAction, Settings};
use penstock_net::link::frame::{LINK_VERSION_MANY_PARTS, LINK_VERSION_MEMBERS};
use penstock_net::request::{Condition, Wanted};
use penstock_net::scan::{ScanPage, ScanRequest, ScanValue};
use penstock_net::status::Status;
use penstock_storage::budget::Budget;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::level_all::writer_of_all;
use crate::random::Random;
use crate::scripts::Peer;
use crate::seed::{Seed, seeds};
use crate::server::Server;

const KEYS: usize = 24;
const FIELDS: usize = 6;
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\\r\\n";

fn opened(cache_bytes: usize, image: Image, incarnation: u64) -> Server {
    let (budget, sync) = (Budget::of_cache(cache_bytes), SyncMethod::DurableWrite);
    let server = Server::open_within(budget, 1, sync, image, incarnation, None);
    let mut server = server.expect("it opens");
    server.settle();
    server
}

/// The reply of HGETALL, as RESP2 has it.
fn reply_of(fields: &[(String, String)]) -> String {
    let line = |text: &String| format!("${}\\r\\n{text}\\r\\n", text.len());
    let lines: String = fields
        .iter()
        .map(|(field, value)| line(field) + &line(value))
        .collect();
    format!("*{}\\r\\n{lines}", 2 * fields.len())
}

#[test]
fn hashes_are_what_a_model_says_over_evictions_and_starts() {
    let (mut starts, mut cold, mut ended) = (0, 0, 0);
    for seed in seeds(8) {
        let _named = Seed(seed);
        let mut random = Random::new(seed);
        let cache_bytes = [2_000, 1 << 20][usize::try_from(seed % 2).unwrap()];
        let mut peer = Peer::connect(opened(cache_bytes, Image::default(), 1), None);
        let mut incarnation = 1;
        // Hashes as lists of their fields; a key without is a string or nothing.
        let mut model: BTreeMap<usize, Vec<(String, String)>> = BTreeMap::new();
        let mut strings: BTreeMap<usize, String> = BTreeMap::new();
        for round in 0..400 {
            let number = random.below(KEYS);
            let key = format!("k{number}");
            let field = format!("f{}", random.below(FIELDS));
            let is_string = strings.contains_key(&number);
            match random.below(24) {
                0 => {
                    incarnation += 1;
                    starts += 1;
                    cold += peer.server.counters().parked;
                    let image = peer.server.device.image.clone();
                    peer = Peer::connect(opened(cache_bytes, image, incarnation), None);
                }
                1 => {
                    let value = format!("v{round}");
                    assert_eq!(peer.ask(&format!("SET {key} {value}")), "+OK\\r\\n");
                    model.remove(&number);
                    strings.insert(number, value);
                }
                2 => {
                    let was_there =
                        model.remove(&number).is_some() || strings.remove(&number).is_some();
                    let reply = format!(":{}\\r\\n", u8::from(was_there));
                    assert_eq!(peer.ask(&format!("DEL {key}")), reply);
                }
                3..6 => {
                    let reply = peer.ask(&format!("HDEL {key} {field}"));
                    if is_string {
                        assert!(reply.starts_with("-WRONGTYPE"), "{reply}");
                        continue;
                    }
                    let fields = model.entry(number).or_default();
                    let place = fields.iter().position(|(name, _)| *name == field);
                    assert_eq!(reply, format!(":{}\\r\\n", u8::from(place.is_some())));
                    if let Some(at) = place {
                        fields.remove(at);
                        ended += u32::from(fields.is_empty());
                    }
                    if fields.is_empty() {
                        model.remove(&number);
                    }
                }
                6..14 => {
                    let value = "v".repeat(1 + random.below(400));
                    let reply = peer.ask(&format!("HSET {key} {field} {value}"));
                    if is_string {
                        assert!(reply.starts_with("-WRONGTYPE"), "{reply}");
                        continue;
                    }
                    let fields = model.entry(number).or_default();
                    let place = fields.iter().position(|(name, _)| *name == field);
                    assert_eq!(reply, format!(":{}\\r\\n", u8::from(place.is_none())));
                    match place {
                        Some(at) => fields[at].1 = value,
                        None => fields.push((field, value)),
                    }
                }
                14..17 => {
                    let expected = match (strings.get(&number), model.contains_key(&number)) {
                        (Some(value), _) => format!("${}\\r\\n{value}\\r\\n", value.len()),
                        (None, true) => WRONG_TYPE.into(),
                        (None, false) => "$-1\\r\\n".into(),
                    };
                    assert_eq!(peer.ask(&format!("GET {key}")), expected);
                }
                _ if is_string => {
                    assert_eq!(peer.ask(&format!("TYPE {key}")), "+string\\r\\n");
                }
                _ => {
                    let fields = model.get(&number).cloned().unwrap_or_default();
                    assert_eq!(peer.ask(&format!("HGETALL {key}")), reply_of(&fields));
                }
            }
        }
        for number in 0..KEYS {
            let fields = model.get(&number).cloned().unwrap_or_default();
            if !strings.contains_key(&number) {
                assert_eq!(peer.ask(&format!("HGETALL k{number}")), reply_of(&fields));
            }
        }
    }
    assert!(
        starts > 20 && cold > 100 && ended > 5,
        "{starts} {cold} {ended}"
    );
}

/// Commands that write a hash, one at least of each name.
const WRITES: &[&str] = &[
    "HSET h f 7 g 8",
    "HSET h f 1",
    "HMSET h f 7 new 1",
    "HSETNX h f 7",
    "HSETNX h new 7",
    "HDEL h f",
    "HDEL h none",
    "HDEL h f g n",
    "HINCRBY h n 2",
    "HINCRBY h n 0",
    "HINCRBYFLOAT h n 2.5",
];

const SET_WRITES: &[&str] = &[
    "SADD s a new 7",
    "SADD s a",
    "SREM s a missing",
    "SREM s a b c",
    "SPOP s 9",
    "SMOVE s t b",
    "SMOVE s t missing",
    "SMOVE s s b",
    "SUNIONSTORE s s t",
    "SINTERSTORE s s t",
    "SDIFFSTORE s s t",
];

const SORTED_WRITES: &[&str] = &[
    "ZADD z 7 a 8 new",
    "ZADD z XX GT CH 9 a",
    "ZADD z NX INCR 1 a",
    "ZINCRBY z 2.5 a",
    "ZINCRBY z 2 new",
    "ZREM z a missing",
    "ZREM z a b c",
    "ZPOPMIN z",
    "ZPOPMAX z 5",
    "ZMPOP 1 z MIN COUNT 2",
    "BZPOPMIN none z 0",
    "BZPOPMAX z 0",
    "BZMPOP 0 1 z MAX COUNT 2",
    "ZREMRANGEBYRANK z 0 0",
    "ZREMRANGEBYSCORE z 2 inf",
    "ZREMRANGEBYLEX z [a [b",
    "ZRANGESTORE z y 0 -1",
    "ZUNIONSTORE z 2 z y",
    "ZINTERSTORE z 2 z y",
    "ZDIFFSTORE z 2 z y",
];

const LIST_WRITES: &[&str] = &[
    "LPUSH l x y",
    "RPUSH l x y",
    "LPUSHX l x",
    "RPUSHX l x y",
    "LPOP l",
    "LPOP l 0",
    "RPOP l 2",
    "RPOP l 9",
    "LSET l 1 x",
    "LSET l 9 x",
    "LINSERT l BEFORE b x",
    "LINSERT l AFTER none x",
    "LREM l 0 a",
    "LREM l -1 none",
    "LTRIM l 0 -1",
    "LTRIM l 1 2",
    "LTRIM l 9 9",
    "LMOVE l l LEFT RIGHT",
    "LMOVE l m LEFT LEFT",
    "LMOVE m l RIGHT LEFT",
    "RPOPLPUSH l l",
    "RPOPLPUSH m l",
    "LMPOP 2 none l LEFT",
    "BLMOVE l m LEFT LEFT 0",
    "BRPOPLPUSH m l 0",
    "BLMPOP 0 2 none l RIGHT COUNT 2",
    "BLPOP none l 0",
    "BRPOP l m 0",
    "LMPOP 1 l RIGHT COUNT 2",
    "LMPOP 2 l m RIGHT COUNT 9",
];

/// The writes of a type: the same state is left alone, behind MULTI and by a script, and what edits
/// keeps the expiry.
struct Writes {
    /// Its category of commands.
    category: &'static str,
    writes: &'static [&'static str],
    key: &'static str,
    /// What makes a key of this type.
    makes: &'static str,
    /// What shows all of it.
    shows: &'static str,
}

impl Writes {
    /// Whether a write gives the key another value in place of an edit.
    fn puts(write: &str) -> bool {
        write.split(' ').next().unwrap().ends_with("STORE")
    }

    fn each_has_a_row(&self, peer: &mut Peer) {
        let list = peer.ask(&format!("COMMAND LIST FILTERBY ACLCAT {}", self.category));
        let is_name = |line: &&str| !line.is_empty() && !line.starts_with(['*', '$']);
        let names: Vec<&str> = list.split("\\r\\n").filter(is_name).collect();
        assert!(names.len() > 10, "{names:?}");
        for name in names {
            if peer.ask(&format!("COMMAND INFO {name}")).contains("+write") {
                let mut rows = self.writes.iter().map(|it| it.split(' ').next().unwrap());
                assert!(rows.any(|row| row.eq_ignore_ascii_case(name)), "{name}");
            }
        }
    }

    fn each_leaves_the_same(&self, peer: &mut Peer) {
        let Writes { key, makes, .. } = *self;
        let expires = format!("PEXPIREAT {key} 9999999999999");
        let string = format!("SET {key} 5");
        let starts: [&[&str]; 4] = [&[], &[makes], &[makes, &expires], &[&string, &expires]];
        for (number, start) in starts.into_iter().enumerate() {
            for write in self.writes {
                let mut left = Vec::new();
                for way in 0..3 {
                    peer.ask(&format!("DEL {key}"));
                    for line in start {
                        peer.ask(line);
                    }
                    let reply = match way {
                        0 => peer.ask(write),
                        1 => {
                            peer.ask("MULTI");
                            peer.ask(write);
                            let reply = peer.ask("EXEC");
                            let one = reply.strip_prefix("*1\\r\\n").expect("one reply");
                            one.to_string()
                        }
                        _ => peer.ask(&format!("EVAL last 1 {key} {}", write.replace(' ', "~"))),
                    };
                    let (kind, until) = (format!("TYPE {key}"), format!("PEXPIRETIME {key}"));
                    let state = [self.shows, &kind, &until].map(|it| peer.ask(it));
                    let is_left = state[1] != "+none\\r\\n" && !Writes::puts(write);
                    if number >= 2 && is_left {
                        assert_eq!(state[2], ":9999999999999\\r\\n", "{write}");
                    }
                    left.push((reply, state));
                }
                assert_eq!(left[0], left[1], "{write} behind MULTI, start {number}");
                assert_eq!(left[0], left[2], "{write} in a script, start {number}");
            }
        }
    }
}

#[test]
fn every_write_of_members_leaves_the_same_in_every_way_and_keeps_the_expiry() {
    let mut peer = Peer::connect(opened(1 << 20, Image::default(), 1), None);
    peer.ask("ZADD y 1 a 5 e");
    peer.ask("SADD t a e");
    let many = "m".repeat(60).replace('m', " m");
    peer.ask(&format!("RPUSH m{many}"));
    for of_type in [
        Writes {
            category: "hash",
            writes: WRITES,
            key: "h",
            makes: "HSET h f 1 g 2 n 5",
            shows: "HGETALL h",
        },
        Writes {
            category: "set",
            writes: SET_WRITES,
            key: "s",
            makes: "SADD s a b c",
            shows: "SMEMBERS s",
        },
        Writes {
            category: "sortedset",
            writes: SORTED_WRITES,
            key: "z",
            makes: "ZADD z 1 a 2 b 3 c",
            shows: "ZRANGE z 0 -1 WITHSCORES",
        },
        Writes {
            category: "list",
            writes: LIST_WRITES,
            key: "l",
            makes: "RPUSH l a b a c",
            shows: "LRANGE l 0 -1",
        },
    ] {
        of_type.each_has_a_row(&mut peer);
        of_type.each_leaves_the_same(&mut peer);
    }
}

#[test]
fn no_native_verb_shows_or_edits_a_hash_and_what_ends_or_replaces_it_works() {
    let server = opened(1 << 20, Image::default(), 1);
    let native = server.session;
    let mut peer = Peer::connect(server, None);
    assert_eq!(peer.ask("HSET h f v"), ":1\\r\\n");
    let server = &mut peer.server;
    (server.session, server.raw) = (native, None);
    // The client of these tests does not want WRONG_TYPE.
    let no = Status::Unsupported;
    let mut add = Apply::new();
    let key = add.key(b"h");
    add.then(key.decimal().increase(1u64));
    let mut start = Apply::new();
    let key = start.key(b"h");
    start.start(key, b"0");
    for apply in [&add, &start] {
        let reply = server.answer(1, |batch, out| batch.apply(out, apply));
        assert_eq!(
            reply.status,
            no,
            "{}",
            String::from_utf8_lossy(&reply.value)
        );
        assert!(String::from_utf8_lossy(&reply.value).contains("has members"));
    }
    let reply = server.answer(1, |batch, out| batch.get(out, b"h"));
    assert_eq!(reply.status, no);
    let reply = server.answer(1, |batch, out| {
        batch.get_with(out, b"h", Wanted::ValueAndExpiry)
    });
    assert_eq!(reply.status, no);
    // Neither is a value: the expiry, the version, and that it is there.
    let reply = server.answer(1, |batch, out| batch.get_with(out, b"h", Wanted::Expiry));
    assert_eq!((reply.status, &reply.value[..]), (Status::Ok, &[][..]));
    let reply = server.answer(1, |batch, out| {
        batch.set(out, b"h", b"v", Condition::Absent)
    });
    assert_eq!(reply.status, Status::Exists);
    let scan = ScanRequest {
        wants_values: true,
        ..ScanRequest::begin(b"")
    };
    let reply = server.answer(1, |batch, out| batch.scan(out, &scan));
    let page = ScanPage::read(&reply.value).expect("a page");
    let values: Vec<_> = page.entries().map(|entry| entry.value).collect();
    assert_eq!(values, [ScanValue::LeftOut]);
    // A page of types is for the port of Redis alone.
    let scan = ScanRequest {
        wants_types: true,
        ..ScanRequest::begin(b"")
    };
    let reply = server.answer(1, |batch, out| batch.scan(out, &scan));
    assert_eq!(reply.status, Status::Malformed);
    // The instructions that give a key members are no client's.
    let (start, len) = (0, 10);
    for action in [
        Action::PutHead { start, len },
        Action::ReplaceHead { start, len },
    ] {
        let instruction = ApplyInstruction {
            key: 0,
            reason: 0,
            action,
        };
        let mut item = Vec::new();
        let members = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0];
        write_apply(&mut item, &[b"h"], &[instruction], &members);
        let reply = server.answer(1, |batch, out| batch.raw(out, &item));
        assert_eq!(reply.status, Status::Malformed);
    }
    let reply = server.answer(1, |batch, out| {
        batch.set(out, b"h", b"v", Condition::Always)
    });
    assert_eq!(reply.status, Status::Ok);
    let reply = server.answer(1, |batch, out| batch.get(out, b"h"));
    assert_eq!((reply.status, &reply.value[..]), (Status::Ok, &b"v"[..]));
}

#[test]
fn a_node_of_a_cluster_gives_no_key_members_before_all_nodes_understand_them() {
    let [older, newer] = [LINK_VERSION_MANY_PARTS, LINK_VERSION_MEMBERS].map(u16::from);
    let offers: [(&[u16], bool); 4] = [
        (&[], false),
        (&[older], false),
        (&[newer, older], false),
        (&[older, newer], true),
    ];
    for (versions, is_taken) in offers {
        let mut server = writer_of_all(versions);
        server.settle();
        let mut peer = Peer::connect(server, None);
        let reply = peer.ask("HSET h f v");
        match is_taken {
            true => assert_eq!(reply, ":1\\r\\n", "{versions:?}"),
            false => assert!(reply.starts_with("-ERR no key has members"), "{reply}"),
        }
        // Reads, and writes of plain values, go on.
        assert_eq!(peer.ask("SET s v"), "+OK\\r\\n");
        let there = if is_taken {
            "$1\\r\\nv\\r\\n"
        } else {
            "$-1\\r\\n"
        };
        assert_eq!(peer.ask("HGET h f"), there);
    }
}

#[test]
fn a_keyspace_that_keeps_versions_or_has_a_layout_takes_no_write_of_members_and_shows_what_is_there()
 {
    let versions = Settings {
        versions: 3,
        ..Settings::default()
    };
    let layout = Settings {
        layout: 7,
        ..Settings::default()
    };
    let rules = [(versions, "keeps versions"), (layout, "has a layout")];
    for (settings, text) in rules {
        let server = opened(1 << 20, Image::default(), 1);
        let native = server.session;
        let mut peer = Peer::connect(server, None);
        assert_eq!(peer.ask("HSET k:1 f v"), ":1\\r\\n");
        let server = &mut peer.server;
        let port = std::mem::replace(&mut server.session, native);
        server.raw = None;
        let set = KeyspaceAction::Set(settings);
        let reply = server.answer(1, |batch, out| batch.keyspace(out, b"k:", set));
        assert_eq!(reply.status, Status::Ok);
        (server.session, server.raw) = (port, Some(Vec::new()));
        for write in [
            "HSET k:1 f w",
            "HSET k:2 f v",
            "HDEL k:1 none",
            "HINCRBY k:1 n 1",
        ] {
            let reply = peer.ask(write);
            let is_nothing = write.starts_with("HDEL");
            match is_nothing {
                true => assert_eq!(reply, ":0\\r\\n"),
                false => assert!(reply.starts_with("-ERR") && reply.contains(text), "{reply}"),
            }
        }
        assert_eq!(peer.ask("HGET k:1 f"), "$1\\r\\nv\\r\\n");
        assert_eq!(peer.ask("HSET other f v"), ":1\\r\\n");
        assert_eq!(peer.ask("DEL k:1"), ":1\\r\\n");
        assert_eq!(peer.ask("EXISTS k:1 k:2"), ":0\\r\\n");
    }
}
