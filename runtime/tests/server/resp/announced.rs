//! Keyspace notifications of keys that expire, on the real server.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Talk, encode, start};

/// Replies and messages that are compared with those of Valkey byte by byte: lines of two
/// connections.
pub const ANNOUNCED: &str = r#"
A CONFIG GET notify-keyspace-events
A CONFIG SET notify-keyspace-events Q
A CONFIG SET notify-keyspace-events Ex
A CONFIG GET notify-keyspace-events
B PSUBSCRIBE __key*__:*
A SET n:1 v PX 30
B <
A CONFIG SET notify-keyspace-events KEx save ""
A CONFIG GET notify-keyspace-events
A SET n:2 v
A PEXPIRE n:2 30
B <
B <
A CONFIG SET notify-keyspace-events xK
A SET n:3 v PX 60000
A GETEX n:3 PX 30
B <
A SET n:4 v PX 60000
A PEXPIRE n:4 -1
B <
A SET n:4 v PX 60000
A SET n:4 v PXAT 1
B <
A SET n:4 v PX 60000
A DEL n:4
A SET n:5 v PX 30
B <
A CONFIG SET notify-keyspace-events ""
B PUNSUBSCRIBE
"#;

fn subscriber(address: std::net::SocketAddr, timeout: Duration) -> Talk {
    let mut talk = Talk::with(address);
    let subscribed = talk.ask(&["SUBSCRIBE", "__keyevent@0__:expired"]);
    assert!(subscribed.contains("subscribe"), "{subscribed}");
    talk.stream.set_read_timeout(Some(timeout)).unwrap();
    talk
}

/// The key of a message; none if the connection gets none for as long as it waits.
fn key_of(talk: &mut Talk) -> String {
    let message = String::from_utf8(talk.reply()).unwrap();
    message.split("\r\n").nth(6).expect("a payload").to_string()
}

#[test]
fn each_key_that_expires_is_announced_once_soon_after_its_time_although_nobody_reads_it() {
    let resp = start("resp-announced", &["--shards", "2"]);
    let mut talk = Talk::with(resp.address);
    let set = ["CONFIG", "SET", "notify-keyspace-events", "Ex"];
    assert_eq!(talk.ask(&set), "+OK\r\n");
    let mut subscriber = subscriber(resp.address, Duration::from_secs(60));
    let from = Instant::now();
    // So late that the four below are changed before, also on a busy machine.
    for number in 0..1000 {
        let (name, ttl) = (format!("order:{number}"), (8000 + number % 400).to_string());
        let words = [b"SET", name.as_bytes(), b"v", b"PX", ttl.as_bytes()];
        talk.send(&encode(&words));
    }
    for _ in 0..1000 {
        assert_eq!(talk.reply(), b"+OK\r\n");
    }
    // Paid, prolonged, or kept for ever.
    assert_eq!(talk.ask(&["DEL", "order:1"]), ":1\r\n");
    assert_eq!(talk.ask(&["PERSIST", "order:2"]), ":1\r\n");
    assert_eq!(talk.ask(&["PEXPIRE", "order:3", "60000"]), ":1\r\n");
    assert_eq!(talk.ask(&["SET", "order:4", "v"]), "+OK\r\n");
    let mut announced: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..996 {
        *announced.entry(key_of(&mut subscriber)).or_default() += 1;
    }
    assert_eq!(announced.len(), 996, "each once");
    assert!((1..5).all(|number| !announced.contains_key(&format!("order:{number}"))));
    let took = from.elapsed();
    assert!(took >= Duration::from_millis(8390), "{took:?}");
    // What is written anew expires anew; nothing else comes.
    assert_eq!(talk.ask(&["SET", "order:5", "v", "PX", "50"]), "+OK\r\n");
    assert_eq!(key_of(&mut subscriber), "order:5");
    // What INFO says is up to 100 ms old.
    let is_counted = |info: &String| info.contains("penstock_expired_announced:997\r\n");
    let mut asked = (0..100).map(|_| {
        std::thread::sleep(Duration::from_millis(100));
        talk.ask(&["INFO", "stats"])
    });
    let info = asked.find(is_counted).expect("it is counted");
    assert!(
        info.contains("penstock_expired_unannounced:0\r\n"),
        "{info}"
    );
    let off = ["CONFIG", "SET", "notify-keyspace-events", ""];
    assert_eq!(talk.ask(&off), "+OK\r\n");
    assert_eq!(talk.ask(&["SET", "order:6", "v", "PX", "20"]), "+OK\r\n");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(
        talk.ask(&["PUBLISH", "__keyevent@0__:expired", "end"]),
        ":1\r\n"
    );
    assert_eq!(key_of(&mut subscriber), "end");
    resp.server.stop();
}

#[test]
fn keys_that_are_flushed_are_not_announced_and_other_events_are_refused_by_name() {
    let resp = start("resp-announced-flush", &["--shards", "2"]);
    let mut talk = Talk::with(resp.address);
    let set = |talk: &mut Talk, letters: &str| {
        talk.ask(&["CONFIG", "SET", "notify-keyspace-events", letters])
    };
    let refused = set(&mut talk, "KEA");
    assert!(
        refused.contains("K, E and x are supported, 'A' is not"),
        "{refused}"
    );
    assert_eq!(set(&mut talk, "Ex"), "+OK\r\n");
    let mut subscriber = subscriber(resp.address, Duration::from_secs(30));
    for number in 0..100 {
        let name = format!("order:{number}");
        let words = [b"SET", name.as_bytes(), b"v", b"PX", b"3000"];
        talk.send(&encode(&words));
    }
    for _ in 0..100 {
        assert_eq!(talk.reply(), b"+OK\r\n");
    }
    assert_eq!(talk.ask(&["FLUSHALL"]), "+OK\r\n");
    assert_eq!(talk.ask(&["SET", "last", "v", "PX", "3500"]), "+OK\r\n");
    assert_eq!(key_of(&mut subscriber), "last");
    resp.server.stop();
}
