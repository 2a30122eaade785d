//! CLIENT PAUSE and DEBUG SLEEP on the real server.

use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

use super::{Talk, encode, start};

/// Replies that are compared with those of Valkey byte by byte.
pub const PAUSE_TABLE: &str = r#"
# pauses
CLIENT PAUSE
CLIENT PAUSE abc
CLIENT PAUSE -1
CLIENT PAUSE 99999999999999999999
[9] CLIENT PAUSE 9223372036854775807
CLIENT PAUSE 10 some
CLIENT PAUSE 10 WRITE
[9] CLIENT PAUSE 10 write more
CLIENT PAUSE 10
CLIENT PAUSE 0
CLIENT UNPAUSE x
CLIENT UNPAUSE
SET k v
CLIENT PAUSE 100 write
GET k
MULTI
GET k
EXEC
SET k w
CLIENT PAUSE 50 all
GET k
[9] COMMAND INFO debug
"#;

/// The same of two connections.
pub const PAUSED: &str = r#"
A SET k v
A CLIENT PAUSE 200 WRITE
B GET k
B EVAL_RO "return redis.call('GET', KEYS[1])" 1 k
B MULTI
B GET k
B EXEC
B PING
B BOGUS
B SET k
B SET k w
A CLIENT PAUSE 100000 WRITE
A CLIENT UNPAUSE
B SET k x
A CLIENT PAUSE 100
B GET k
A CLIENT PAUSE 100 WRITE
B MULTI
B SET k y
B EXEC
A CLIENT PAUSE 100 WRITE
B EVAL "return redis.call('SET', KEYS[1], 'z')" 1 k
A CLIENT PAUSE 100 WRITE
B PUBLISH c m
"#;

/// The value of a field of INFO.
fn field(talk: &mut Talk, name: &str) -> String {
    let info = talk.ask(&["INFO", "clients"]);
    let mut lines = info.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.expect("a field").to_string()
}

fn wait_for_held(talk: &mut Talk, count: usize) {
    let from = Instant::now();
    while field(talk, "blocked_clients") != count.to_string() {
        assert!(from.elapsed() < Duration::from_secs(20), "{count} held");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a connection has no reply now.
fn has_none(talk: &Talk) -> bool {
    talk.stream.set_nonblocking(true).unwrap();
    let peeked = talk.stream.peek(&mut [0]);
    talk.stream.set_nonblocking(false).unwrap();
    matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn a_pause_holds_writes_at_all_cores_and_lets_reads_pass_until_it_is_ended() {
    let resp = start("resp-pause", &["--shards", "2"]);
    let mut talks: Vec<Talk> = (0..8).map(|_| Talk::with(resp.address)).collect();
    let mut admin = Talk::with(resp.address);
    for (number, talk) in talks.iter_mut().enumerate() {
        assert_eq!(talk.ask(&["SET", &format!("k{number}"), "old"]), "+OK\r\n");
    }
    let long = ["CLIENT", "PAUSE", "100000", "WRITE"];
    assert_eq!(admin.ask(&long), "+OK\r\n");
    assert_eq!(admin.ask(&["CLIENT", "PAUSE", "1", "WRITE"]), "+OK\r\n");
    for (number, talk) in talks.iter_mut().enumerate() {
        let key = format!("k{number}");
        let get = encode(&[b"GET", key.as_bytes()]);
        let set = encode(&[b"SET", key.as_bytes(), b"new"]);
        // What stands in front of the write is answered, what stands behind it waits, too.
        talk.send(&[get.clone(), set, get].concat());
        assert_eq!(talk.reply(), b"$3\r\nold\r\n");
    }
    wait_for_held(&mut admin, 8);
    assert!(talks.iter().all(has_none));
    let listed = admin.ask(&["CLIENT", "LIST"]);
    assert_eq!(listed.matches(" flags=b ").count(), 8, "{listed}");
    assert_eq!(field(&mut admin, "paused_reason"), "client_pause");
    assert_eq!(field(&mut admin, "paused_actions"), "write");
    let left = field(&mut admin, "paused_timeout_milliseconds");
    let left: u64 = left.parse().expect("a number");
    assert!((50_000..=100_000).contains(&left), "{left}");
    let others = Talk::with(resp.address).ask(&["GET", "k1"]);
    assert_eq!(others, "$3\r\nold\r\n");
    assert_eq!(admin.ask(&["CLIENT", "UNPAUSE"]), "+OK\r\n");
    for talk in &mut talks {
        assert_eq!(talk.reply(), b"+OK\r\n");
        assert_eq!(talk.reply(), b"$3\r\nnew\r\n");
    }
    wait_for_held(&mut admin, 0);
    assert_eq!(field(&mut admin, "paused_actions"), "none");
    resp.server.stop();
}

#[test]
fn a_pause_of_all_ends_by_itself_and_by_whoever_ends_it() {
    let resp = start("resp-pause-all", &["--shards", "2"]);
    let (mut one, mut admin) = (Talk::with(resp.address), Talk::with(resp.address));
    assert_eq!(admin.ask(&["CLIENT", "PAUSE", "300"]), "+OK\r\n");
    let from = Instant::now();
    assert_eq!(one.ask(&["PING"]), "+PONG\r\n");
    assert!(from.elapsed() >= Duration::from_millis(250));
    assert_eq!(admin.ask(&["CLIENT", "PAUSE", "100000"]), "+OK\r\n");
    one.send(&encode(&[b"PING"]));
    std::thread::sleep(Duration::from_millis(50));
    assert!(has_none(&one));
    assert_eq!(admin.ask(&["CLIENT", "UNPAUSE"]), "+OK\r\n");
    assert_eq!(one.reply(), b"+PONG\r\n");
    resp.server.stop();
}

#[test]
fn what_a_held_connection_sends_stays_in_its_socket_and_nothing_runs_when_it_has_gone() {
    let resp = start("resp-pause-bounds", &["--shards", "2"]);
    let (mut full, mut gone) = (Talk::with(resp.address), Talk::with(resp.address));
    let mut admin = Talk::with(resp.address);
    let pause = ["CLIENT", "PAUSE", "100000", "WRITE"];
    assert_eq!(admin.ask(&pause), "+OK\r\n");
    gone.send(&encode(&[b"SET", b"gone", b"v"]));
    wait_for_held(&mut admin, 1);
    full.send(&encode(&[b"SET", b"k", b"first"]));
    wait_for_held(&mut admin, 2);
    let value = vec![b'x'; 32 << 10];
    let more = encode(&[b"SET", b"k", &value]);
    let timeout = Some(Duration::from_millis(500));
    full.stream.set_write_timeout(timeout).unwrap();
    let taken = (0..8192).find(|_| full.stream.write_all(&more).is_err());
    assert!(taken.is_some(), "256 MiB were taken");
    drop(gone);
    wait_for_held(&mut admin, 1);
    assert_eq!(admin.ask(&["CLIENT", "UNPAUSE"]), "+OK\r\n");
    assert_eq!(full.reply(), b"+OK\r\n");
    assert_eq!(admin.ask(&["EXISTS", "gone"]), ":0\r\n");
    resp.server.stop();
}

#[test]
fn debug_sleep_stops_all_cores_where_the_option_allows_it() {
    let resp = start("resp-debug-off", &["--shards", "2"]);
    let refused = Talk::with(resp.address).ask(&["DEBUG", "SLEEP", "0"]);
    assert!(refused.starts_with("-ERR DEBUG command not allowed"));
    assert!(refused.contains("resp_debug"), "{refused}");
    resp.server.stop();
    let resp = start("resp-debug", &["--shards", "2", "--resp-debug"]);
    let mut talks: Vec<Talk> = (0..8).map(|_| Talk::with(resp.address)).collect();
    for talk in &mut talks {
        assert_eq!(talk.ask(&["PING"]), "+PONG\r\n");
    }
    let (sleeper, others) = talks.split_first_mut().expect("eight");
    let from = Instant::now();
    let sleep = [
        encode(&[b"SET", b"k", b"v"]),
        encode(&[b"DEBUG", b"SLEEP", b"1.5"]),
    ];
    sleeper.send(&sleep.concat());
    std::thread::sleep(Duration::from_millis(300));
    for talk in &mut *others {
        talk.send(&encode(&[b"GET", b"k"]));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(others.iter().all(has_none), "cores stand still");
    for talk in others {
        assert_eq!(talk.reply(), b"$1\r\nv\r\n");
    }
    assert!(from.elapsed() >= Duration::from_millis(1500));
    assert_eq!(sleeper.reply(), b"+OK\r\n");
    assert_eq!(sleeper.reply(), b"+OK\r\n");
    for wrong in ["61", "-1", "x"] {
        let refused = sleeper.ask(&["DEBUG", "SLEEP", wrong]);
        assert_eq!(refused, "-ERR DEBUG SLEEP takes 0 to 60 seconds\r\n");
    }
    resp.server.stop();
}

#[test]
fn a_value_above_the_limit_is_refused_with_both_numbers_while_its_sender_still_sends() {
    let resp = start(
        "resp-too-long",
        &["--shards", "1", "--value-bytes-max", "64KiB"],
    );
    let mut talk = Talk::with(resp.address);
    let value = vec![b'x'; 32 << 20];
    // The socket takes some megabytes: the rest is taken only if the server reads on.
    talk.send(&encode(&[b"SET", b"k", &value]));
    let text = "-ERR Protocol error: invalid bulk length: 33554432 bytes, and 65536 is the limit \
        (option value_bytes_max)\r\n";
    assert_eq!(String::from_utf8(talk.reply()).unwrap(), text);
    assert_eq!(talk.reply(), b"", "the connection ends");
    resp.server.stop();
}
