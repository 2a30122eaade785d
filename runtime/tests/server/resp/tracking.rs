//! CLIENT TRACKING: whoever keeps what it has read is told of every change, whatever made it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use penstock_client::Verbs;

use super::{PATIENCE, Talk, encode, start};

/// A connection of RESP3 that tracks so.
fn tracking(address: SocketAddr, options: &[&str]) -> Talk {
    let mut talk = Talk::with(address);
    talk.ask(&["HELLO", "3"]);
    let words = [&["CLIENT", "TRACKING", "ON"], options].concat();
    assert_eq!(talk.ask(&words), "+OK\r\n");
    talk
}

fn of_resp3(address: SocketAddr) -> Talk {
    let mut talk = Talk::with(address);
    talk.ask(&["HELLO", "3"]);
    talk
}

fn next(talk: &mut Talk) -> String {
    String::from_utf8(talk.reply()).unwrap()
}

fn invalidated(key: &str) -> String {
    let len = key.len();
    format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n${len}\r\n{key}\r\n")
}

const ALL: &str = ">2\r\n$10\r\ninvalidate\r\n_\r\n";

#[test]
fn every_way_in_which_a_key_changes_is_reported_to_whoever_has_read_it() {
    let resp = start("resp-tracking", &["--shards", "2"]);
    let native = resp.server.client();
    let mut reader = tracking(resp.address, &[]);
    let mut writer = of_resp3(resp.address);
    let ways: &[&[&str]] = &[
        &["SET", "{a}k", "1"],
        &["SET", "{a}k", "2"],
        &["SET", "{a}k", "22", "EX", "100"],
        &["INCR", "{a}k"],
        &["APPEND", "{a}k", "x"],
        &["SETRANGE", "{a}k", "0", "y"],
        &["EXPIRE", "{a}k", "1000"],
        &["PERSIST", "{a}k"],
        &["GETEX", "{a}k", "EX", "50"],
        &["GETSET", "{a}k", "v"],
        &["MSET", "{a}k", "w", "{a}l", "1"],
        &["RENAME", "{a}k", "{a}other"],
        &["RENAME", "{a}other", "{a}k"],
        &["COPY", "{a}l", "{a}k", "REPLACE"],
        &[
            "EVAL",
            "return redis.call('SET', KEYS[1], 's')",
            "1",
            "{a}k",
        ],
        &["KV.APPLY", "{a}k", "k1 put", "kv"],
        &["GETDEL", "{a}k"],
        &["SETNX", "{a}k", "n"],
        &["DEL", "{a}k"],
    ];
    for way in ways {
        reader.ask(&["GET", "{a}k"]);
        assert!(!writer.ask(way).starts_with('-'), "{way:?}");
        assert_eq!(next(&mut reader), invalidated("{a}k"), "{way:?}");
    }
    // It expires: nobody writes. A slow machine needs a longer life to read it.
    let lives_ms = ["40", "400", "4000", "40000"];
    let was_read = lives_ms.iter().any(|life_ms| {
        writer.ask(&["SET", "{a}k", "short", "PX", life_ms]);
        let read = reader.ask(&["MGET", "none", "{a}k"]);
        read.contains("short")
    });
    assert!(was_read);
    assert_eq!(next(&mut reader), invalidated("{a}k"));
    assert_eq!(reader.ask(&["GET", "{a}k"]), "_\r\n");
    native.set(b"{a}k", b"native").wait().unwrap();
    assert_eq!(next(&mut reader), invalidated("{a}k"));
    // Told once: the next change finds nobody.
    native.set(b"{a}k", b"again").wait().unwrap();
    // Each read is tracked, whatever command it is.
    let reads: &[&[&str]] = &[
        &["EXISTS", "{a}k"],
        &["STRLEN", "{a}k"],
        &["TTL", "{a}k"],
        &["GETRANGE", "{a}k", "0", "1"],
        &["TYPE", "{a}k"],
        &["EVAL", "return redis.call('GET', KEYS[1])", "1", "{a}k"],
        &["EVAL_RO", "return redis.call('GET', '{a}k')", "0"],
    ];
    for read in reads {
        assert!(!reader.ask(read).starts_with('-'), "{read:?}");
        writer.ask(&["MULTI"]);
        writer.ask(&["SET", "{a}k", "again"]);
        writer.ask(&["EXEC"]);
        assert_eq!(next(&mut reader), invalidated("{a}k"), "{read:?}");
    }
    reader.ask(&["MULTI"]);
    reader.ask(&["GET", "{a}k"]);
    writer.ask(&["SET", "{a}k", "before EXEC"]);
    assert_eq!(reader.ask(&["EXEC"]), "*1\r\n$11\r\nbefore EXEC\r\n");
    writer.ask(&["SET", "{a}k", "behind EXEC"]);
    assert_eq!(next(&mut reader), invalidated("{a}k"));
    let eval = ["EVAL", "return redis.call('GET', KEYS[1])", "1", "{a}k"];
    reader.ask(&["MULTI"]);
    reader.ask(&eval);
    assert_eq!(reader.ask(&["EXEC"]), "*1\r\n$11\r\nbehind EXEC\r\n");
    writer.ask(&["SET", "{a}k", "behind a script"]);
    assert_eq!(
        next(&mut reader),
        invalidated("{a}k"),
        "of a script of EXEC"
    );
    // A write is no read.
    reader.ask(&["INCR", "counter"]);
    writer.ask(&["INCR", "counter"]);
    reader.ask(&["MULTI"]);
    reader.ask(&["INCR", "counter"]);
    let set = ["EVAL", "redis.call('INCR', KEYS[1])", "1", "counter"];
    reader.ask(&set);
    assert_eq!(reader.ask(&["EXEC"]), "*2\r\n:3\r\n_\r\n");
    reader.ask(&set);
    writer.ask(&["INCR", "counter"]);
    reader.ask(&["GET", "{a}k"]);
    reader.ask(&["GET", "{b}k"]);
    assert_eq!(writer.ask(&["FLUSHALL"]), "+OK\r\n");
    assert_eq!(next(&mut reader), ALL);
    assert_eq!(reader.ask(&["PING"]), "+PONG\r\n", "all are told of once");
    resp.server.stop();
}

#[test]
fn own_changes_are_reported_behind_their_answers_or_not_at_all() {
    let resp = start("resp-tracking-own", &["--shards", "2"]);
    let mut other = of_resp3(resp.address);
    let mut talk = tracking(resp.address, &[]);
    for key in ["a", "b", "c", "d"] {
        talk.ask(&["GET", key]);
        assert_eq!(talk.ask(&["SET", key, "1"]), "+OK\r\n");
        assert_eq!(next(&mut talk), invalidated(key));
    }
    let mut talk = tracking(resp.address, &["NOLOOP"]);
    for key in ["a", "b", "c", "d"] {
        talk.ask(&["GET", key]);
        assert_eq!(talk.ask(&["SET", key, "2"]), "+OK\r\n");
        assert_eq!(talk.ask(&["INCR", key]), ":3\r\n");
        talk.ask(&["MULTI"]);
        talk.ask(&["INCR", key]);
        assert_eq!(talk.ask(&["EXEC"]), "*1\r\n:4\r\n");
        // What it has written it may keep: it is told of what others write.
        other.ask(&["SET", key, "5"]);
        assert_eq!(next(&mut talk), invalidated(key));
    }
    // Also if what it has written expires.
    assert_eq!(talk.ask(&["GET", "a"]), "$1\r\n5\r\n");
    assert_eq!(talk.ask(&["SET", "a", "6", "PX", "30"]), "+OK\r\n");
    assert_eq!(next(&mut talk), invalidated("a"));
    resp.server.stop();
}

#[test]
fn prefixes_are_notified_of_all_their_keys_and_of_no_others() {
    let resp = start("resp-tracking-prefix", &["--shards", "2"]);
    let mut writer = of_resp3(resp.address);
    let mut all = tracking(resp.address, &["BCAST"]);
    let mut shop = tracking(
        resp.address,
        &["BCAST", "PREFIX", "shop:", "PREFIX", "user:"],
    );
    writer.ask(&["SET", "other", "1"]);
    writer.ask(&["SET", "shop:1", "1"]);
    writer.ask(&["SET", "user:1", "1", "PX", "60"]);
    for key in ["other", "shop:1", "user:1"] {
        assert_eq!(next(&mut all), invalidated(key));
    }
    for key in ["shop:1", "user:1"] {
        assert_eq!(next(&mut shop), invalidated(key));
    }
    // It is shown, and expires.
    if shop.ask(&["GET", "user:1"]) == "$1\r\n1\r\n" {
        assert_eq!(next(&mut shop), invalidated("user:1"));
    }
    let info = writer.ask(&["INFO"]);
    for line in ["tracking_clients:2", "tracking_total_prefixes:3"] {
        assert!(info.contains(line), "{line} in {info}");
    }
    drop((all, shop));
    let until = Instant::now() + PATIENCE;
    while !writer.ask(&["INFO"]).contains("tracking_clients:0\r\n") {
        assert!(Instant::now() < until);
    }
    assert!(writer.ask(&["INFO"]).contains("tracking_total_keys:0\r\n"));
    resp.server.stop();
}

#[test]
fn another_connection_is_notified_until_it_is_gone() {
    let resp = start("resp-tracking-redirect", &["--shards", "2"]);
    for _ in 0..4 {
        let mut notified = Talk::with(resp.address);
        let id = notified.ask(&["CLIENT", "ID"]);
        let id = id.trim().trim_start_matches(':');
        notified.ask(&["SUBSCRIBE", "__redis__:invalidate"]);
        let mut reader = tracking(resp.address, &["REDIRECT", id]);
        let mut writer = of_resp3(resp.address);
        assert_eq!(reader.ask(&["CLIENT", "GETREDIR"]), format!(":{id}\r\n"));
        for key in ["a", "b"] {
            reader.ask(&["GET", key]);
            writer.ask(&["INCR", key]);
            let expected = format!(
                "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$1\r\n{key}\r\n"
            );
            assert_eq!(next(&mut notified), expected);
        }
        drop(notified);
        let gone = format!("id={id} ");
        let until = Instant::now() + PATIENCE;
        while writer.ask(&["CLIENT", "LIST"]).contains(&gone) {
            assert!(Instant::now() < until);
        }
        reader.ask(&["GET", "a"]);
        writer.ask(&["INCR", "a"]);
        let broken = format!(">2\r\n$21\r\ntracking-redir-broken\r\n:{id}\r\n");
        assert_eq!(next(&mut reader), broken);
        let line = reader.ask(&["CLIENT", "INFO"]);
        assert!(line.contains("flags=tR ") && line.contains(&format!("redir={id} ")));
        let refused = reader.ask(&["CLIENT", "TRACKING", "ON", "REDIRECT", id]);
        assert!(refused.contains("does not exist"), "{refused}");
    }
    resp.server.stop();
}

#[test]
fn who_tracks_and_is_named_by_another_gets_the_nulls_of_both() {
    let resp = start("resp-tracking-both", &["--shards", "2"]);
    let mut receiver = tracking(resp.address, &[]);
    let id = receiver.ask(&["CLIENT", "ID"]);
    let id = id.trim().trim_start_matches(':').to_string();
    let mut reader = tracking(resp.address, &["REDIRECT", &id]);
    let mut writer = of_resp3(resp.address);
    for round in 0..3 {
        writer.ask(&["SET", "k", "1"]);
        assert_eq!(reader.ask(&["GET", "k"]), "$1\r\n1\r\n");
        assert_eq!(writer.ask(&["FLUSHALL"]), "+OK\r\n");
        assert_eq!(next(&mut receiver), ALL, "{round}");
    }
    resp.server.stop();
}

#[test]
fn in_resp2_a_connection_gets_the_keys_of_others_alone() {
    let resp = start("resp-tracking-resp2", &["--shards", "1"]);
    let mut receiver = Talk::with(resp.address);
    assert_eq!(receiver.ask(&["CLIENT", "TRACKING", "ON"]), "+OK\r\n");
    receiver.ask(&["GET", "own"]);
    let id = receiver.ask(&["CLIENT", "ID"]);
    let id = id.trim().trim_start_matches(':').to_string();
    receiver.ask(&["SUBSCRIBE", "news"]);
    let mut reader = tracking(resp.address, &["REDIRECT", &id]);
    reader.ask(&["GET", "k"]);
    let mut writer = of_resp3(resp.address);
    writer.ask(&["SET", "own", "1"]);
    writer.ask(&["SET", "k", "1"]);
    let expected = "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$1\r\nk\r\n";
    assert_eq!(next(&mut receiver), expected);
    resp.server.stop();
}

/// A connection that keeps what it reads, as clients do.
struct Cache {
    talk: Talk,
    kept: HashMap<String, String>,
}

impl Cache {
    /// Takes what has come, up to the reply of a command.
    fn reply(&mut self) -> String {
        loop {
            let text = next(&mut self.talk);
            let Some(invalidation) = text.strip_prefix(">2\r\n$10\r\ninvalidate\r\n") else {
                return text;
            };
            match invalidation.split("\r\n").nth(2) {
                Some(key) if invalidation.starts_with('*') => {
                    self.kept.remove(key);
                }
                _ => self.kept.clear(),
            }
        }
    }

    /// Reads all of these keys at once, and keeps them.
    fn read(&mut self, keys: &[String]) {
        let commands = keys.iter().map(|key| encode(&[b"GET", key.as_bytes()]));
        self.talk.send(&commands.collect::<Vec<_>>().concat());
        for key in keys {
            let value = self.reply();
            self.kept.insert(key.clone(), value);
        }
    }
}

#[test]
fn a_cache_that_is_notified_of_changes_keeps_nothing_old() {
    for durability in ["disk", "none"] {
        let options = ["--shards", "2", "--durability", durability];
        let resp = start(&format!("resp-tracking-cache-{durability}"), &options);
        let address = resp.address;
        let keys: Vec<String> = (0..40).map(|key| format!("key:{key}")).collect();
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let keys = keys.clone();
                std::thread::spawn(move || {
                    let mut talk = Talk::with(address);
                    for round in 0..60 {
                        for key in keys.iter().skip(writer).step_by(3) {
                            talk.send(&encode(&[b"INCR", key.as_bytes()]));
                            let value = format!("{writer}-{round}");
                            let other = format!("{key}:set");
                            talk.send(&encode(&[b"SET", other.as_bytes(), value.as_bytes()]));
                        }
                        for _ in keys.iter().skip(writer).step_by(3) {
                            assert!(talk.reply().starts_with(b":"));
                            assert_eq!(talk.reply(), b"+OK\r\n");
                        }
                    }
                })
            })
            .collect();
        let others = keys.iter().map(|key| format!("{key}:set"));
        let all: Vec<String> = keys.iter().cloned().chain(others).collect();
        let mut caches: Vec<Cache> = (0..4)
            .map(|_| Cache {
                talk: tracking(address, &[]),
                kept: HashMap::new(),
            })
            .collect();
        while !writers.iter().all(|it| it.is_finished()) {
            caches.iter_mut().for_each(|cache| cache.read(&all));
        }
        writers.into_iter().for_each(|it| it.join().unwrap());
        let mut talk = of_resp3(address);
        let now: HashMap<String, String> = all
            .iter()
            .map(|key| (key.clone(), talk.ask(&["GET", key])))
            .collect();
        let until = Instant::now() + PATIENCE;
        for cache in &mut caches {
            loop {
                cache.talk.send(&encode(&[b"PING"]));
                assert_eq!(cache.reply(), "+PONG\r\n");
                let old = cache
                    .kept
                    .iter()
                    .filter(|(key, value)| now[*key] != **value);
                let old: Vec<_> = old.collect();
                if old.is_empty() {
                    break;
                }
                assert!(Instant::now() < until, "{old:?} are kept");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        resp.server.stop();
    }
}
