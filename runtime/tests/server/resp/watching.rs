//! WATCH: every way in which a key can change between WATCH and EXEC makes EXEC answer null, also
//! if the key is in the end as it was.

use std::time::{Duration, Instant};

use penstock_client::Verbs;
use penstock_net::keyspace::{Action, Settings};

use super::{PATIENCE, Resp, Talk, encode, start, words_of};

/// What happens to the key `k` between WATCH and MULTI of A: `before | between`, commands in a row
/// with `;`. `A` in front is the connection that watches, all others are of B. `GONE` waits until
/// nobody finds `k` any more, `PAST` until its time is over, and nobody looks.
const CHANGED: &str = r#"
| SET k v
| SET k v; DEL k
| SET k v; GETDEL k
| SET k v; UNLINK k
| SET k v; DELEX k IFEQ v
| SET k v; PEXPIRE k -1
| SET k v; EXPIREAT k 1
| SET k v; GETEX k EXAT 1
| SET k v PX 20; GONE
| SET k v PX 20; PAST
| SET k v NX PX 20; GONE
| SET k v PX 20; GONE; SET k w PX 20; PAST
| MULTI; SET k v; EXEC; DEL k
| MULTI; SET k v; DEL k; SET k v; EXEC; DEL k
| INCRBY k 0; DEL k
| INCREX k; DEL k
| APPEND k ""; DEL k
| SETRANGE k 2 v; DEL k
| MSET k v; DEL k
| A SET k v; A DEL k
| A SET k v PX 20; PAST
| KV.APPLY k "k1 put" v; DEL k
| KV.APPLY k "k1 put" v "k1 expires in 20ms"; GONE
| KV.APPLY k "k1 put" v "k1 expires in 20ms" "when k1 expires"; PAST
| KV.APPLY {k}f KEY k "k1 put" v "k1 expires in 20ms" "when k1 expires: k2 put" w; SLEEP; DEL k
DEL k | SET k v; DEL k
SET k v PX 20; GONE | SET k v; DEL k
SET k v PX 20; PAST | SET k v; DEL k
SET k v | DEL k
SET k v | SET k v
SET k v | DEL k; SET k v
SET k v | PEXPIRE k -1
SET k v | EXPIRE k 100
SET k v EX 100 | PERSIST k
SET k v PX 50 | GONE
SET k v PX 50 | PAST
SET k v | APPEND k ""
SET k v | SETRANGE k 0 v
SET k v | GETEX k EX 100
SET k 1 | INCRBY k 0
SET k 1 | DECRBY k 0
SET k 1 | INCREX k BYINT 0
SET k 1 | INCREX k BYINT 0 ENX EX 10
SET k 1 | MULTI; INCRBY k 0; EXEC
SET k 1 | MULTI; INCREX k BYINT 0; EXEC
SET k 1 | MULTI; APPEND k ""; EXEC
SET k 9223372036854775807 | INCRBY k 0
SET k -9223372036854775808 | DECRBY k 0
SET k 5 | KV.APPLY k "k1.decimal += 1" "k1.decimal -= 1"
KV.APPLY k "k1 put" 5 "k1 expires in 50ms" "when k1 expires: k1.decimal += 1" | PAST
KV.APPLY {k}f KEY k "k1 put" v "k1 expires in 50ms" "when k1 expires: k2 put" w | SLEEP
"#;

/// What leaves the key as it was: EXEC runs.
const UNCHANGED: &str = r#"
| GET k
| DEL k
| GETDEL k
| SET k v XX
| EXPIRE k 10
| PERSIST k
| SET j v; DEL j
| SET {k}j v; DEL {k}j
| MULTI; GET k; EXEC
| APPEND j v; DEL j
DEL k |
SET k v; DEL k |
SET k v PX 20; GONE |
SET k v PX 20; PAST |
SET k v PX 20; PAST | GET k
SET k v | SET k w NX
SET k v | DELEX k IFEQ w
SET k v | SETRANGE k 0 ""
SET k v | GETEX k PERSIST
SET k v | PERSIST k
SET k v | EXPIRE k 10 XX
SET k v | INCRBY k 0
SET k v EX 100 | TTL k
"#;

/// Two connections, and where the name of the key stands.
struct Pair<'a> {
    resp: &'a Resp,
    key: String,
    a: Talk,
    b: Talk,
}

impl Pair<'_> {
    fn run(&mut self, steps: &str) {
        for step in steps.split(';').map(str::trim).filter(|it| !it.is_empty()) {
            match step {
                "GONE" => self.wait(|pair| pair.ask_other("EXISTS k") == ":0\r\n"),
                "PAST" => std::thread::sleep(Duration::from_millis(70)),
                // What runs when {k}f expires has made k.
                "SLEEP" => self.wait(|pair| pair.ask_other("EXISTS {k}f") == ":0\r\n"),
                step => {
                    let (talk, line) = match step.strip_prefix("A ") {
                        Some(line) => (&mut self.a, line),
                        None => (&mut self.b, step),
                    };
                    let reply = ask(talk, line, &self.key);
                    let is_expected = line.starts_with("INCRBY k 0") && reply.contains("integer");
                    assert!(!reply.starts_with('-') || is_expected, "{step}: {reply}");
                }
            }
        }
    }

    fn ask_other(&mut self, line: &str) -> String {
        ask(&mut self.b, line, &self.key)
    }

    fn wait(&mut self, mut until: impl FnMut(&mut Self) -> bool) {
        let began = Instant::now();
        while !until(self) {
            assert!(began.elapsed() < PATIENCE, "{}", self.key);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What EXEC answers behind `before`, WATCH and `between`.
    fn outcome(&mut self, row: &str) -> (String, bool) {
        self.b = Talk::with(self.resp.address);
        let (before, between) = row.split_once('|').expect("two halves");
        let began = Instant::now();
        loop {
            self.run(before);
            assert_eq!(ask(&mut self.a, "WATCH k", &self.key), "+OK\r\n");
            // What is to expire behind WATCH must not be gone before, if the machine stood still.
            let must_live = match before {
                before if !before.contains("50") => break,
                before if before.contains("{k}f") => "EXISTS {k}f",
                _ => "EXISTS k",
            };
            if self.ask_other(must_live) == ":1\r\n" {
                break;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{row}: it never lives long enough"
            );
            ask(&mut self.a, "UNWATCH", &self.key);
            ask(&mut self.a, "DEL k", &self.key);
        }
        self.run(between);
        let before = self.ask_other("GET {k}mine");
        assert_eq!(ask(&mut self.a, "MULTI", &self.key), "+OK\r\n");
        ask(&mut self.a, "SET {k}mine x", &self.key);
        let reply = ask(&mut self.a, "EXEC", &self.key);
        (reply, self.ask_other("GET {k}mine") != before)
    }
}

/// Sends a line in which `k` and `{k}` stand for a key and its tag.
fn ask(talk: &mut Talk, line: &str, key: &str) -> String {
    let words = words_of(line).into_iter().map(|word| match &word[..] {
        b"k" => format!("{{{key}}}").into_bytes(),
        [b'{', b'k', b'}', rest @ ..] => [format!("{{{key}}}").as_bytes(), rest].concat(),
        _ => word,
    });
    let words: Vec<Vec<u8>> = words.collect();
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    talk.send(&encode(&words));
    String::from_utf8(talk.reply()).expect("text")
}

/// Rows whose EXEC does not answer as expected, of keys of all shards.
fn wrong_rows(resp: &Resp, rows: &str, expected: (&str, bool)) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, row) in rows.lines().filter(|row| !row.is_empty()).enumerate() {
        // Both shards of two, whichever core took the connections.
        for tag in ["a", "b", "c", "d"] {
            let mut pair = Pair {
                resp,
                key: format!("{tag}{number}{}", expected.1),
                a: Talk::with(resp.address),
                b: Talk::with(resp.address),
            };
            let (reply, has_run) = pair.outcome(row);
            if (&reply[..], has_run) != expected {
                wrong.push(format!("{row}: {reply:?}, and it has run: {has_run}"));
            }
        }
    }
    wrong
}

#[test]
fn exec_answers_null_whatever_changed_a_watched_key_and_runs_if_nothing_did() {
    for shards in ["1", "2"] {
        let resp = start(&format!("resp-watch-{shards}"), &["--shards", shards]);
        let missed = wrong_rows(&resp, CHANGED, ("*-1\r\n", false));
        let made_up = wrong_rows(&resp, UNCHANGED, ("*1\r\n+OK\r\n", true));
        assert!(
            missed.is_empty() && made_up.is_empty(),
            "{shards} shards, missed:\n{}\nmade up:\n{}",
            missed.join("\n"),
            made_up.join("\n")
        );
        resp.server.stop();
    }
}

#[test]
fn a_change_by_a_native_client_and_by_the_lifetime_of_a_keyspace_is_seen_by_who_watches() {
    let resp = start("resp-watch-native", &["--shards", "2"]);
    let native = resp.server.client();
    let short = Settings {
        ttl_ms: 20,
        ..Settings::default()
    };
    let made = native.keyspace(b"short:", Action::Create(short));
    made.wait().unwrap();
    for key in ["short:{a}", "short:{b}", "short:{c}", "short:{d}"] {
        let (mut talk, mut other) = (Talk::with(resp.address), Talk::with(resp.address));
        talk.ask(&["WATCH", key]);
        other.ask(&["SET", key, "v"]);
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(talk.ask(&["MULTI"]), "+OK\r\n");
        assert_eq!(talk.ask(&["EXEC"]), "*-1\r\n", "{key}");
    }
    for key in ["{a}n", "{b}n", "{c}n", "{d}n"] {
        let mut talk = Talk::with(resp.address);
        let bytes = key.as_bytes();
        let exec = |talk: &mut Talk| {
            assert_eq!(talk.ask(&["MULTI"]), "+OK\r\n");
            assert_eq!(talk.ask(&["GET", key]), "+QUEUED\r\n");
            talk.ask(&["EXEC"])
        };
        talk.ask(&["WATCH", key]);
        native.set(bytes, b"v").wait().unwrap();
        native.del(bytes).wait().unwrap();
        assert_eq!(exec(&mut talk), "*-1\r\n", "{key}");
        talk.ask(&["WATCH", key]);
        assert_eq!(exec(&mut talk), "*1\r\n$-1\r\n", "{key}");
    }
    resp.server.stop();
}

#[test]
fn watches_end_with_unwatch_discard_exec_and_reset() {
    let resp = start("resp-watch-ends", &["--shards", "2"]);
    let (mut a, mut b) = (Talk::with(resp.address), Talk::with(resp.address));
    let ends: [&[&[&str]]; 4] = [
        &[&["UNWATCH"]],
        &[&["MULTI"], &["DISCARD"]],
        &[&["MULTI"], &["EXEC"]],
        &[&["RESET"]],
    ];
    for end in ends {
        assert_eq!(a.ask(&["WATCH", "k"]), "+OK\r\n");
        for words in end {
            a.ask(words);
        }
        b.ask(&["SET", "k", "v"]);
        b.ask(&["DEL", "k"]);
        assert_eq!(a.ask(&["MULTI"]), "+OK\r\n");
        assert_eq!(a.ask(&["EXEC"]), "*0\r\n", "{end:?}");
    }
    // Both watches count, and a second WATCH of a key does not begin it anew.
    assert_eq!(a.ask(&["WATCH", "k"]), "+OK\r\n");
    b.ask(&["SET", "k", "v"]);
    b.ask(&["DEL", "k"]);
    assert_eq!(a.ask(&["WATCH", "k", "{k}2"]), "+OK\r\n");
    assert_eq!(a.ask(&["MULTI"]), "+OK\r\n");
    assert_eq!(a.ask(&["EXEC"]), "*-1\r\n");
    resp.server.stop();
}

#[test]
fn as_many_keys_can_be_watched_as_exec_judges_however_long_they_are() {
    let resp = start("resp-watch-many", &["--shards", "1"]);
    let (mut a, mut b) = (Talk::with(resp.address), Talk::with(resp.address));
    let keys: Vec<String> = (0..255).map(|it| format!("{it:0>1000}")).collect();
    for changed in [None, Some(0), Some(100), Some(254)] {
        for part in keys.chunks(50) {
            let words: Vec<&str> = part.iter().map(String::as_str).collect();
            assert_eq!(a.ask(&[&["WATCH"], &words[..]].concat()), "+OK\r\n");
        }
        let more = a.ask(&["WATCH", "one more"]);
        assert_eq!(more, "-ERR 256 keys; at most 255 can be watched\r\n");
        if let Some(changed) = changed {
            assert_eq!(b.ask(&["SET", &keys[changed], "v"]), "+OK\r\n");
        }
        assert_eq!(a.ask(&["MULTI"]), "+OK\r\n");
        assert_eq!(a.ask(&["SET", &keys[7], "w"]), "+QUEUED\r\n");
        let expected = match changed {
            None => "*1\r\n+OK\r\n",
            Some(_) => "*-1\r\n",
        };
        assert_eq!(a.ask(&["EXEC"]), expected, "{changed:?}");
    }
    resp.server.stop();
    let frames = ["--frame-bytes-max", "64KiB", "--value-bytes-max", "16KiB"];
    let options = [&["--shards", "1"][..], &frames].concat();
    let resp = start("resp-watch-short-frames", &options);
    let mut a = Talk::with(resp.address);
    let words: Vec<&str> = keys.iter().map(String::as_str).collect();
    let refused = a.ask(&[&["WATCH"], &words[..50]].concat());
    let text = "-ERR watched keys take 51050 bytes, and 16384 is the limit: ";
    assert!(refused.starts_with(text), "{refused}");
    assert_eq!(a.ask(&[&["WATCH"], &words[..16]].concat()), "+OK\r\n");
    assert_eq!(a.ask(&["MULTI"]), "+OK\r\n");
    let value = "v".repeat(16 << 10);
    for _ in 0..3 {
        assert_eq!(a.ask(&["SET", "k", &value]), "+QUEUED\r\n");
    }
    let refused = a.ask(&["EXEC"]);
    let text = "-EXECABORT Transaction discarded because its commands and watched keys take ";
    assert!(refused.starts_with(text), "{refused}");
    resp.server.stop();
}
