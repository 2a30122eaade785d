//! Commands that pop and wait until they can, on the real server.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Talk, encode, start};
use crate::scratch::folder;

/// Replies that are compared with those of Valkey byte by byte. Nobody else adds an element.
pub const BLOCKING_TABLE: &str = r#"
# pops that block
ZADD bz 1 a 2 b 3 c 4 d
BZPOPMIN nokey bz 0
BZPOPMAX bz nokey 0
BZPOPMIN bz bz 0.5
ZADD bz 1 a 2 b 3 c
BZMPOP 0 1 bz MIN
BZMPOP 0.5 2 nokey bz MAX COUNT 9
EXISTS bz
BZPOPMIN nokey 0.01
BZPOPMAX nokey nokey 0.0001
BZMPOP 0.01 1 nokey MIN
BZMPOP 0.01 2 nokey nokey MAX COUNT 2
BZPOPMIN
BZPOPMIN k
BZPOPMIN nokey -1
BZPOPMIN nokey x
BZPOPMIN nokey ""
BZPOPMIN nokey inf
BZPOPMIN nokey -inf
BZPOPMIN nokey nan
BZPOPMIN nokey 1e16
BZPOPMIN nokey 1e400
BZPOPMIN nokey " 1"
BZPOPMIN nokey 9223372036854775807
BZMPOP
BZMPOP 0 1 k
BZMPOP x 0 k MIN
BZMPOP x 1 k FOO
BZMPOP x 1 k MIN
BZMPOP -1 2 k MIN
BZMPOP -1 1 k MIN
BZMPOP 0 1 k MIN COUNT
BZMPOP 0 1 k MIN COUNT 0
BZMPOP 0 1 k MIN COUNT x
BZMPOP 0 1 k MIN COUNT 1 COUNT 1
BZMPOP 0 1 k MIN FOO 1
BZMPOP 0 9223372036854775807 k MIN
SET bstr x
BZPOPMIN bstr 0.01
BZPOPMAX nokey bstr 0.01
BZMPOP 0.01 2 nokey bstr MIN
BZPOPMIN bstr x
MULTI
BZPOPMIN nokey 0
BZPOPMAX nokey 0
BZMPOP 0 1 nokey MIN
BZPOPMIN nokey -1
BZPOPMIN bstr 0
ZADD bz 1 a 2 b
BZPOPMAX bz 0
BZMPOP 0 1 bz MIN
EXEC
EVAL "return redis.call('BZPOPMIN', KEYS[1], 0)" 1 nokey
EVAL "return redis.call('BZMPOP', 0, 1, KEYS[1], 'MIN')" 1 nokey
EVAL "return redis.pcall('BZPOPMAX', KEYS[1], 'x')" 1 nokey
EVAL "redis.call('ZADD', KEYS[1], 1, 'a') return redis.call('BZPOPMAX', KEYS[1], 0)" 1 bz
RPUSH bl a b c d e f
BLPOP nokey bl 0
BRPOP bl nokey 0
BLMPOP 0 2 nokey bl LEFT
BLMPOP 0.5 1 bl RIGHT COUNT 2
BLMOVE bl bl2 LEFT RIGHT 0
EXISTS bl
LRANGE bl2 0 -1
BRPOPLPUSH bl2 bl2 0
BRPOPLPUSH bl2 bl 0.5
BLPOP nokey 0.01
BRPOP nokey nokey 0.01
BLMPOP 0.01 1 nokey LEFT
BLMOVE nokey bl LEFT LEFT 0.01
BRPOPLPUSH nokey bl 0.01
BLPOP k -1
BLPOP k x
BLPOP bstr 0.01
BRPOP nokey bstr 0.01
BLMPOP 0.01 1 bstr LEFT
BLMPOP x 0 k LEFT
BLMPOP x 1 k FOO
BLMPOP x 1 k LEFT
BLMPOP -1 1 k LEFT
BLMPOP 0 1 k LEFT COUNT 0
BLMOVE bstr bl LEFT LEFT 0.01
BLMOVE bl bstr LEFT LEFT 0.01
BLMOVE nokey bstr LEFT LEFT 0.01
BLMOVE k k LEFT FOO 0
BLMOVE k k LEFT FOO x
BLMOVE k k LEFT LEFT x
BLMOVE k k LEFT LEFT
BRPOPLPUSH bl bstr 0.01
BRPOPLPUSH k k -1
MULTI
BLPOP nokey 0
BLMPOP 0 1 nokey LEFT
BLMOVE nokey bl LEFT LEFT 0
BRPOPLPUSH nokey bl 0
BLPOP bl 0
EXEC
EVAL "return redis.call('BLPOP', KEYS[1], 0)" 1 nokey
EVAL "return redis.call('BLMOVE', KEYS[1], KEYS[1], 'LEFT', 'LEFT', 0)" 1 nokey
[9] COMMAND INFO blmove blmpop blpop brpop brpoplpush
COMMAND GETKEYSANDFLAGS BLMOVE a b LEFT LEFT 0
COMMAND GETKEYSANDFLAGS BLPOP a b 0
COMMAND GETKEYSANDFLAGS BLMPOP 0 2 a b LEFT
CLIENT UNBLOCK
CLIENT UNBLOCK x
CLIENT UNBLOCK 1 x
CLIENT UNBLOCK x x
CLIENT UNBLOCK 999999
CLIENT UNBLOCK 999999 ERROR
CLIENT UNBLOCK 999999 timeout
CLIENT UNBLOCK 999999 timeout more
CLIENT UNBLOCK -1
[9] COMMAND INFO bzmpop bzpopmax bzpopmin
COMMAND GETKEYS BZPOPMIN a b 0
COMMAND GETKEYS BZMPOP 0 2 a b MIN
COMMAND GETKEYS BZMPOP 0 9 a MIN
COMMAND GETKEYSANDFLAGS BZPOPMAX a b 0
COMMAND GETKEYSANDFLAGS BZMPOP 0 2 a b MIN
"#;

/// The same of two connections: `>` sends a command that blocks, `<` is its reply, and `<B>` the
/// number of the second connection.
pub const BLOCKED: &str = r#"
B > BZPOPMIN {b} 0
A ZADD {b} 1 a 2 b
B <
A ZRANGE {b} 0 -1
A DEL {b}
B > BZPOPMAX {b}none {b} 60
A SET {b} str
A DEL {b}
A MULTI
A ZADD {b} 1 a
A EXEC
B <
A ZRANGE {b} 0 -1
A DEL {b} {b}none
B > BZMPOP 0 2 {b} {b}2 MAX COUNT 2
A EVAL "return redis.call('ZADD', KEYS[1], 1, 'a', 2, 'b', 3, 'c')" 1 {b}2
B <
A DEL {b}2
B > BZPOPMIN {b} 0
A ZADD {b}src 3 x
A RENAME {b}src {b}
B <
B > BZPOPMIN {b} 0
A ZADD {b}src 3 x
A COPY {b}src {b}
B <
B > BZPOPMIN {b} 0
A ZUNIONSTORE {b} 1 {b}src
B <
B > BZPOPMAX {b} 0
A ZRANGESTORE {b} {b}src 0 -1
B <
B > BZPOPMIN {b} 0
A ZINCRBY {b} 3 y
B <
B > BZPOPMIN {b} 0
A MULTI
A ZADD {b} 1 a
A DEL {b}
A EXEC
A EVAL "redis.call('ZADD', KEYS[1], 1, 'a') redis.call('ZREM', KEYS[1], 'a')" 1 {b}
A HSET {b} f v
A FLUSHALL
A ZADD {b} 2 b
B <
B > BZPOPMIN {b} 0
A CLIENT UNBLOCK <B>
B <
B > BZPOPMIN {b} 0
A CLIENT UNBLOCK <B> TIMEOUT
B <
B > BZPOPMIN {b} 0
A CLIENT UNBLOCK <B> ERROR
B <
A CLIENT UNBLOCK <B>
A FLUSHALL
B > BLPOP {b}1 {b} 0
A ZADD {b} 1 a
A DEL {b}
A RPUSH {b} x y
B <
A LRANGE {b} 0 -1
A DEL {b}
B > BRPOP {b} 0
A LPUSH {b} x
B <
A DEL {b}
B > BLMOVE {b} {b}to LEFT RIGHT 0
A RPUSH {b} x y
B <
A LRANGE {b}to 0 -1
B > BRPOPLPUSH {b}3 {b}3 0
A RENAME {b} {b}3
B <
B > BLMPOP 0 2 {b}4 {b}5 RIGHT COUNT 2
A RPUSH {b}5 1 2 3
B <
B > BLMOVE {b}6 {b}str LEFT RIGHT 0
A SET {b}str x
A RPUSH {b}6 x
B <
A LRANGE {b}6 0 -1
B > BLPOP {b}7 0
A LMOVE {b}5 {b}7 LEFT LEFT
B <
A FLUSHALL
B BZPOPMIN {b} 0.05
B PING
"#;

/// The value of a field of INFO.
fn field(talk: &mut Talk, name: &str) -> usize {
    let info = talk.ask(&["INFO"]);
    let mut lines = info.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.expect("a field").parse().expect("a number")
}

pub(super) fn wait_for_blocked(talk: &mut Talk, count: usize) {
    let from = Instant::now();
    while field(talk, "blocked_clients") != count {
        assert!(from.elapsed() < Duration::from_secs(20), "{count} blocked");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn send(talk: &mut Talk, words: &[&str]) {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    talk.send(&encode(&words));
}

fn reply(talk: &mut Talk) -> String {
    String::from_utf8(talk.reply()).unwrap()
}

fn has_none(talk: &Talk) -> bool {
    talk.stream.set_nonblocking(true).unwrap();
    let peeked = talk.stream.peek(&mut [0]);
    talk.stream.set_nonblocking(false).unwrap();
    matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

fn popped(key: &str, member: &str, score: &str) -> String {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    format!("*3\r\n{}{}{}", bulk(key), bulk(member), bulk(score))
}

#[test]
fn the_first_of_several_keys_of_several_shards_that_gets_an_element_wins() {
    for more in [&[][..], &["--resp-several-shards"][..]] {
        let options = [&["--shards", "2"], more].concat();
        let resp = start("resp-block-shards", &options);
        let mut admin = Talk::with(resp.address);
        let keys: Vec<String> = (0..16).map(|number| format!("k{number}")).collect();
        let mut words = vec!["BZPOPMIN"];
        words.extend(keys.iter().map(String::as_str));
        words.push("0");
        let mut talks: Vec<Talk> = (0..4).map(|_| Talk::with(resp.address)).collect();
        for (number, key) in keys.iter().enumerate() {
            let talk = &mut talks[number % 4];
            send(talk, &words);
            wait_for_blocked(&mut admin, 1);
            assert_eq!(field(&mut admin, "total_blocking_keys"), 16);
            assert_eq!(admin.ask(&["ZADD", key, "1", "a"]), ":1\r\n");
            assert_eq!(reply(talk), popped(key, "a", "1"));
            assert_eq!(admin.ask(&["EXISTS", key]), ":0\r\n");
        }
        // What is there already is popped in the order of the keys, without a wait.
        for key in keys.iter().rev() {
            assert_eq!(admin.ask(&["ZADD", key, "1", "a"]), ":1\r\n");
        }
        for key in &keys {
            let talk = &mut talks[0];
            send(talk, &words);
            assert_eq!(reply(talk), popped(key, "a", "1"));
        }
        wait_for_blocked(&mut admin, 0);
        assert_eq!(field(&mut admin, "total_blocking_keys"), 0);
        resp.server.stop();
    }
}

#[test]
fn who_has_waited_longest_is_served_first_and_one_gets_one() {
    let resp = start("resp-block-order", &["--shards", "2"]);
    let mut admin = Talk::with(resp.address);
    let mut talks: Vec<Talk> = (0..24).map(|_| Talk::with(resp.address)).collect();
    for at_once in [true, false] {
        for (number, talk) in talks.iter_mut().enumerate() {
            let key = if number % 3 == 0 { "other" } else { "nothing" };
            send(talk, &["BZPOPMIN", key, "q", "0"]);
            wait_for_blocked(&mut admin, number + 1);
        }
        let elements: Vec<[String; 2]> = (0..24)
            .map(|number| [number.to_string(), format!("m{number:02}")])
            .collect();
        if at_once {
            let mut words = vec!["ZADD", "q"];
            words.extend(elements.iter().flatten().map(String::as_str));
            assert_eq!(admin.ask(&words), ":24\r\n");
        } else {
            for [score, member] in &elements {
                send(&mut admin, &["ZADD", "q", score, member]);
            }
            elements
                .iter()
                .for_each(|_| assert_eq!(reply(&mut admin), ":1\r\n"));
        }
        if at_once {
            for (talk, [score, member]) in talks.iter_mut().zip(&elements) {
                assert_eq!(reply(talk), popped("q", member, score));
            }
        } else {
            // Each is served one, and in the order in which they wait: what was added later went
            // to nobody who came earlier, as the scores of both only rise.
            let replies: Vec<String> = talks.iter_mut().map(reply).collect();
            let expected = elements.iter().map(|[score, it]| popped("q", it, score));
            assert_eq!(replies, expected.collect::<Vec<_>>());
        }
        assert_eq!(admin.ask(&["EXISTS", "q"]), ":0\r\n");
        wait_for_blocked(&mut admin, 0);
    }
    resp.server.stop();
}

#[test]
fn a_wait_ends_with_its_time_and_never_before() {
    let resp = start("resp-block-time", &["--shards", "2"]);
    let mut admin = Talk::with(resp.address);
    let mut talks: Vec<Talk> = (0..16).map(|_| Talk::with(resp.address)).collect();
    let from = Instant::now();
    for (number, talk) in talks.iter_mut().enumerate() {
        let key = format!("k{}", number % 4);
        let timeout = format!("0.{}", 2 + number % 3);
        send(talk, &["BZPOPMIN", &key, "other", &timeout]);
    }
    for (number, talk) in talks.iter_mut().enumerate() {
        assert_eq!(reply(talk), "*-1\r\n");
        let least = Duration::from_millis(200 + 100 * (number as u64 % 3));
        assert!(from.elapsed() >= least, "{:?}", from.elapsed());
    }
    wait_for_blocked(&mut admin, 0);
    assert_eq!(field(&mut admin, "total_blocking_keys"), 0);
    // Nobody waits any more: what is added stays.
    assert_eq!(admin.ask(&["ZADD", "other", "1", "a"]), ":1\r\n");
    assert_eq!(admin.ask(&["ZCARD", "other"]), ":1\r\n");
    // Where there is an element the shortest time is long enough.
    for _ in 0..50 {
        let reply = admin.ask(&["BZPOPMIN", "none", "other", "0.001"]);
        assert_eq!(reply, popped("other", "a", "1"));
        assert_eq!(admin.ask(&["ZADD", "other", "1", "a"]), ":1\r\n");
    }
    resp.server.stop();
}

#[test]
fn a_blocked_connection_is_listed_and_counted_and_what_it_sends_waits_behind_it() {
    let resp = start("resp-block-listed", &["--shards", "2"]);
    let (mut admin, mut talk) = (Talk::with(resp.address), Talk::with(resp.address));
    let pipeline = [
        encode(&[b"ZADD", b"mine", b"1", b"a"]),
        encode(&[b"BZPOPMIN", b"mine", b"0"]),
        encode(&[b"BZPOPMIN", b"mine", b"0"]),
        encode(&[b"PING"]),
        encode(&[b"ZCARD", b"mine"]),
    ];
    talk.send(&pipeline.concat());
    assert_eq!(reply(&mut talk), ":1\r\n");
    assert_eq!(reply(&mut talk), popped("mine", "a", "1"));
    wait_for_blocked(&mut admin, 1);
    assert!(has_none(&talk));
    let listed = admin.ask(&["CLIENT", "LIST"]);
    assert_eq!(listed.matches(" flags=b ").count(), 1, "{listed}");
    talk.send(&encode(&[b"GET", b"none"]));
    let value = vec![b'x'; 32 << 10];
    let more = encode(&[b"SET", b"k", &value]);
    (0..4).for_each(|_| talk.send(&more));
    std::thread::sleep(Duration::from_millis(50));
    assert!(has_none(&talk));
    assert_eq!(admin.ask(&["ZADD", "mine", "1", "a", "2", "b"]), ":2\r\n");
    assert_eq!(reply(&mut talk), popped("mine", "a", "1"));
    assert_eq!(reply(&mut talk), "+PONG\r\n");
    assert_eq!(reply(&mut talk), ":1\r\n");
    assert_eq!(reply(&mut talk), "$-1\r\n");
    (0..4).for_each(|_| assert_eq!(reply(&mut talk), "+OK\r\n"));
    let listed = admin.ask(&["CLIENT", "LIST"]);
    assert_eq!(listed.matches(" flags=b ").count(), 0, "{listed}");
    // What stands behind it in the socket is bounded.
    send(&mut talk, &["BZPOPMIN", "none", "0"]);
    wait_for_blocked(&mut admin, 1);
    let timeout = Some(Duration::from_millis(500));
    talk.stream.set_write_timeout(timeout).unwrap();
    use std::io::Write as _;
    let taken = (0..8192).find(|_| talk.stream.write_all(&more).is_err());
    assert!(taken.is_some(), "256 MiB were taken");
    assert_eq!(admin.ask(&["ZADD", "none", "1", "a"]), ":1\r\n");
    assert_eq!(reply(&mut talk), popped("none", "a", "1"));
    resp.server.stop();
}

#[test]
fn a_connection_that_has_gone_or_is_killed_waits_no_more_and_takes_nothing() {
    let resp = start("resp-block-gone", &["--shards", "2"]);
    let mut admin = Talk::with(resp.address);
    let mut talks: Vec<Talk> = (0..12).map(|_| Talk::with(resp.address)).collect();
    let mut ids = Vec::new();
    for (number, talk) in talks.iter_mut().enumerate() {
        ids.push(talk.ask(&["CLIENT", "ID"])[1..].trim().to_string());
        send(talk, &["BZPOPMIN", "q", &format!("own{number}"), "0"]);
        if number % 2 == 0 {
            // What was sent behind it is read, and does not hide the end.
            send(talk, &["SET", "behind", "it"]);
        }
        wait_for_blocked(&mut admin, number + 1);
    }
    for (number, id) in ids.iter().enumerate().take(4) {
        assert_eq!(admin.ask(&["CLIENT", "KILL", "ID", id]), ":1\r\n");
        assert_eq!(talks[number].reply(), b"");
    }
    wait_for_blocked(&mut admin, 8);
    talks.drain(..8);
    wait_for_blocked(&mut admin, 4);
    assert_eq!(field(&mut admin, "total_blocking_keys"), 5);
    assert_eq!(admin.ask(&["ZADD", "q", "1", "a", "2", "b"]), ":2\r\n");
    assert_eq!(reply(&mut talks[0]), popped("q", "a", "1"));
    assert_eq!(reply(&mut talks[1]), popped("q", "b", "2"));
    assert!(has_none(&talks[2]) && has_none(&talks[3]));
    assert_eq!(admin.ask(&["EXISTS", "behind"]), ":1\r\n");
    talks.clear();
    wait_for_blocked(&mut admin, 0);
    assert_eq!(admin.ask(&["ZADD", "q", "1", "a"]), ":1\r\n");
    assert_eq!(admin.ask(&["ZCARD", "q"]), ":1\r\n");
    resp.server.stop();
}

#[test]
fn a_pause_holds_the_pop_of_who_waits_and_not_the_end_of_his_time() {
    let resp = start("resp-block-pause", &["--shards", "2"]);
    let (mut admin, mut talk) = (Talk::with(resp.address), Talk::with(resp.address));
    let mut other = Talk::with(resp.address);
    send(&mut talk, &["BZPOPMIN", "q", "0"]);
    send(&mut other, &["BZPOPMIN", "never", "0.3"]);
    wait_for_blocked(&mut admin, 2);
    let pause = ["CLIENT", "PAUSE", "100000", "WRITE"];
    assert_eq!(admin.ask(&pause), "+OK\r\n");
    // A client of the native port is not held.
    let native = resp.server.client();
    drop(native);
    assert_eq!(reply(&mut other), "*-1\r\n");
    assert!(has_none(&talk));
    assert_eq!(admin.ask(&["CLIENT", "UNPAUSE"]), "+OK\r\n");
    assert_eq!(admin.ask(&["ZADD", "q", "1", "a"]), ":1\r\n");
    assert_eq!(reply(&mut talk), popped("q", "a", "1"));
    resp.server.stop();
}

#[test]
fn an_element_that_is_moved_wakes_who_waits_where_it_comes_to() {
    for more in [&[][..], &["--resp-several-shards"][..]] {
        let options = [&["--shards", "2"], more].concat();
        let resp = start("resp-block-move", &options);
        let mut admin = Talk::with(resp.address);
        let mut talks: Vec<Talk> = (0..3).map(|_| Talk::with(resp.address)).collect();
        for round in 0..8 {
            // With the option they are of several shards.
            let name = |number| match more.is_empty() {
                true => format!("{{r{round}}}{number}"),
                false => format!("r{round}:{number}"),
            };
            let names = [0, 1, 2].map(name);
            let [from, through, to] = names.each_ref().map(String::as_str);
            send(&mut talks[2], &["BLPOP", to, "0"]);
            send(&mut talks[1], &["BRPOPLPUSH", through, to, "0"]);
            send(
                &mut talks[0],
                &["BLMOVE", from, through, "LEFT", "RIGHT", "0"],
            );
            wait_for_blocked(&mut admin, 3);
            assert_eq!(admin.ask(&["RPUSH", from, "x"]), ":1\r\n");
            assert_eq!(reply(&mut talks[0]), "$1\r\nx\r\n");
            assert_eq!(reply(&mut talks[1]), "$1\r\nx\r\n");
            let expected = format!("*2\r\n${}\r\n{to}\r\n$1\r\nx\r\n", to.len());
            assert_eq!(reply(&mut talks[2]), expected);
            for key in [from, through, to] {
                assert_eq!(admin.ask(&["EXISTS", key]), ":0\r\n");
            }
            wait_for_blocked(&mut admin, 0);
        }
        resp.server.stop();
    }
}

#[test]
fn who_waits_is_not_silent_and_gets_messages_meanwhile() {
    let options = ["--shards", "2", "--resp-idle-timeout-s", "1"];
    let resp = start("resp-block-silent", &options);
    let (mut admin, mut talk) = (Talk::with(resp.address), Talk::with(resp.address));
    talk.ask(&["HELLO", "3"]);
    talk.ask(&["SUBSCRIBE", "news"]);
    send(&mut talk, &["BZPOPMIN", "q", "0"]);
    wait_for_blocked(&mut admin, 1);
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(admin.ask(&["PUBLISH", "news", "x"]), ":1\r\n");
        let message = ">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n";
        assert_eq!(reply(&mut talk), message);
    }
    let mut silent = Talk::with(resp.address);
    send(&mut silent, &["BZPOPMIN", "q2", "0"]);
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(admin.ask(&["PING"]), "+PONG\r\n");
    }
    assert_eq!(admin.ask(&["ZADD", "q2", "1", "a"]), ":1\r\n");
    assert_eq!(reply(&mut silent), popped("q2", "a", "1"));
    resp.server.stop();
}

/// How often threads of a process have waited.
fn waits_of(process: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse::<u64>().unwrap()
    };
    tasks.map(of_task).sum()
}

#[test]
fn a_thousand_blocked_connections_wake_nobody() {
    const WAITERS: usize = 1000;
    let resp = start("resp-block-thousand", &["--shards", "2"]);
    let mut admin = Talk::with(resp.address);
    let process = resp.server.process.id();
    let waits_of_a_while = || {
        let before = waits_of(process);
        std::thread::sleep(Duration::from_secs(3));
        waits_of(process) - before
    };
    let without = waits_of_a_while();
    let mut talks: Vec<Talk> = (0..WAITERS).map(|_| Talk::with(resp.address)).collect();
    for (number, talk) in talks.iter_mut().enumerate() {
        let timeout = if number % 2 == 0 { "0" } else { "1000" };
        send(talk, &["BZPOPMIN", &format!("k{number}"), "q", timeout]);
    }
    wait_for_blocked(&mut admin, WAITERS);
    // Those that were heard just now give their room back once.
    std::thread::sleep(Duration::from_secs(2));
    let ran = field(&mut admin, "total_commands_processed");
    let with = waits_of_a_while();
    assert_eq!(field(&mut admin, "total_commands_processed"), ran);
    assert!(with <= 2 * without + 100, "{with} waits, not {without}");
    // One element is one try of one of them, however many wait for its key.
    assert_eq!(admin.ask(&["ZADD", "q", "1", "a"]), ":1\r\n");
    talks.iter_mut().for_each(Talk::never_waits);
    let from = Instant::now();
    let first = loop {
        if let Some(first) = talks.iter_mut().position(Talk::has_reply) {
            break first;
        }
        assert!(
            from.elapsed() < Duration::from_secs(20),
            "nobody has popped"
        );
    };
    let replies = talks.iter_mut().map(Talk::has_reply);
    assert_eq!(replies.filter(|has_one| *has_one).count(), 1);
    assert!(talks[first].bytes.starts_with(b"*3\r\n$1\r\nq\r\n"));
    let asked = field(&mut admin, "total_commands_processed") - ran;
    assert!(asked <= 2, "ZADD and one try, not {asked}");
    resp.server.stop();
}

/// What becomes of elements: each has a name of its own.
#[derive(Default)]
struct Book {
    /// Those whose ZADD was acknowledged.
    added: Mutex<BTreeSet<String>>,
    /// Those of a reply, and how often.
    popped: Mutex<BTreeMap<String, usize>>,
}

/// Pops until the end, and drops its connection at times while it waits. Returns how many pops it
/// has sent and seen no reply of.
fn consume(address: SocketAddr, number: u64, book: &Book, is_over: &AtomicBool) -> u64 {
    let mut talk = Talk::with(address);
    let (mut lost, mut round) = (0, number);
    while !is_over.load(Ordering::Relaxed) {
        round += 1;
        let keys = [
            format!("q{}", round % 5),
            format!("q{}", (round * 3 + 1) % 5),
        ];
        let verb = if round % 2 == 0 {
            "BZPOPMIN"
        } else {
            "BZPOPMAX"
        };
        send(&mut talk, &[verb, &keys[0], &keys[1], "0.05"]);
        if (round * 7 + number).is_multiple_of(11) {
            // It leaves while it waits, or with its reply on the way.
            talk = Talk::with(address);
            lost += 1;
            continue;
        }
        let reply = reply(&mut talk);
        if reply == "*-1\r\n" {
            continue;
        }
        let member = reply.split("\r\n").nth(4).expect("a member").to_string();
        *book.popped.lock().unwrap().entry(member).or_default() += 1;
    }
    lost
}

#[test]
fn each_element_is_popped_once_or_stays_while_consumers_come_and_go() {
    const CONSUMERS: u64 = 200;
    const PRODUCERS: u64 = 4;
    const EACH: u64 = 600;
    let resp = start("resp-block-kills", &["--shards", "2"]);
    let (address, book) = (resp.address, Book::default());
    let (is_over, next) = (AtomicBool::new(false), AtomicU64::new(0));
    let lost: u64 = std::thread::scope(|scope| {
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|number| {
                let (book, is_over) = (&book, &is_over);
                scope.spawn(move || consume(address, number, book, is_over))
            })
            .collect();
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|number| {
                let (book, next) = (&book, &next);
                scope.spawn(move || {
                    let mut talk = Talk::with(address);
                    for round in 0..EACH {
                        let member = format!("m{}", next.fetch_add(1, Ordering::Relaxed));
                        let key = format!("q{}", (round + number) % 5);
                        let score = (round % 10).to_string();
                        assert_eq!(talk.ask(&["ZADD", &key, &score, &member]), ":1\r\n");
                        book.added.lock().unwrap().insert(member);
                    }
                })
            })
            .collect();
        producers.into_iter().for_each(|it| it.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        consumers.into_iter().map(|it| it.join().unwrap()).sum()
    });
    let mut admin = Talk::with(address);
    wait_for_blocked(&mut admin, 0);
    assert_eq!(field(&mut admin, "total_blocking_keys"), 0);
    let (added, popped) = (
        book.added.into_inner().unwrap(),
        book.popped.into_inner().unwrap(),
    );
    assert!(popped.values().all(|times| *times == 1), "popped twice");
    assert!(popped.keys().all(|member| added.contains(member)));
    let mut left = BTreeSet::new();
    for key in 0..5 {
        let reply = admin.ask(&["ZRANGE", &format!("q{key}"), "0", "-1"]);
        let members = reply.split("\r\n").filter(|line| line.starts_with('m'));
        left.extend(members.map(str::to_string));
    }
    assert!(left.iter().all(|member| !popped.contains_key(member)));
    // What is neither was on its way to a connection that had gone.
    let missing = added.len() - popped.len() - left.len();
    assert!(
        missing as u64 <= lost,
        "{missing} are missing, {lost} had gone"
    );
    assert!(popped.len() * 2 > added.len(), "{} popped", popped.len());
    resp.server.stop();
}

#[test]
fn a_pop_that_has_waited_is_durable_when_it_is_answered() {
    let address = crate::cluster::nodes::free_address();
    let data = folder("resp-block-durable");
    let serve = || {
        let mut serve =
            crate::command::command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
        serve.args(["--admin-listen", "off", "--shards", "2"]);
        serve.arg("--resp-listen").arg(address.to_string());
        serve.arg("--data").arg(&data);
        crate::process::Server::start(&mut serve)
    };
    let mut server = serve();
    let mut admin = Talk::with(address);
    let mut talks: Vec<Talk> = (0..10).map(|_| Talk::with(address)).collect();
    for (number, talk) in talks.iter_mut().enumerate() {
        send(talk, &["BZPOPMIN", &format!("k{number}"), "0"]);
    }
    wait_for_blocked(&mut admin, 10);
    for number in 0..10 {
        let key = format!("k{number}");
        assert_eq!(admin.ask(&["ZADD", &key, "1", "a", "2", "b"]), ":2\r\n");
    }
    for (number, talk) in talks.iter_mut().enumerate() {
        assert_eq!(reply(talk), popped(&format!("k{number}"), "a", "1"));
    }
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let server = serve();
    let mut admin = Talk::with(address);
    for number in 0..10 {
        let reply = admin.ask(&["ZRANGE", &format!("k{number}"), "0", "-1"]);
        assert_eq!(reply, "*1\r\n$1\r\nb\r\n");
    }
    server.stop();
}
