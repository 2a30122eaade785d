//! Channels: messages come in the order of their publisher to connections of all cores, and who
//! does not take them keeps nobody from being served.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::{PATIENCE, Talk, encode, start};

fn message(channel: &str, payload: &str) -> String {
    let (name, len) = (channel.len(), payload.len());
    format!("*3\r\n$7\r\nmessage\r\n${name}\r\n{channel}\r\n${len}\r\n{payload}\r\n")
}

fn next(talk: &mut Talk) -> String {
    String::from_utf8(talk.reply()).unwrap()
}

/// Connections that subscribe to a channel.
fn subscribers(address: SocketAddr, channel: &str, count: usize) -> Vec<Talk> {
    let subscribe = |_| {
        let mut talk = Talk::with(address);
        talk.ask(&["SUBSCRIBE", channel]);
        talk
    };
    (0..count).map(subscribe).collect()
}

/// Waits until `is_so` answers yes.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn messages_of_a_publisher_come_in_their_order_to_subscribers_of_all_cores() {
    let resp = start("resp-channels", &["--shards", "2"]);
    let (publishers, each) = (3, 400);
    // Connections fall on both cores.
    let mut all = subscribers(resp.address, "news", 8);
    all.iter_mut().for_each(|talk| {
        talk.ask(&["PSUBSCRIBE", "n*s"]);
    });
    let address = resp.address;
    let threads: Vec<_> = (0..publishers)
        .map(|publisher| {
            std::thread::spawn(move || {
                let mut talk = Talk::with(address);
                for number in 0..each {
                    let payload = format!("{publisher} {number}");
                    // By name and by pattern.
                    assert_eq!(talk.ask(&["PUBLISH", "news", &payload]), ":16\r\n");
                }
            })
        })
        .collect();
    for talk in &mut all {
        let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
        for _ in 0..publishers * each * 2 {
            let text = next(talk);
            let words: Vec<&str> = text.split("\r\n").collect();
            let payload = words[words.len() - 2];
            let (publisher, number) = payload.split_once(' ').unwrap();
            let from = (words[2].to_string(), publisher.to_string());
            let expected = seen.entry(from).or_default();
            assert_eq!(number, expected.to_string(), "{text}");
            *expected += 1;
        }
        assert_eq!(seen.len(), 2 * publishers, "each by name and by pattern");
    }
    threads.into_iter().for_each(|it| it.join().unwrap());
    resp.server.stop();
}

#[test]
fn a_message_leaves_behind_what_its_publisher_has_written() {
    let resp = start("resp-channels-behind", &["--shards", "2"]);
    let mut subscriber = Talk::with(resp.address);
    subscriber.ask(&["SUBSCRIBE", "changed"]);
    let (mut reader, mut writer) = (Talk::with(resp.address), Talk::with(resp.address));
    for number in 0..200 {
        let (key, value) = (format!("key:{}", number % 7), number.to_string());
        let pipeline = [
            encode(&[b"SET", key.as_bytes(), value.as_bytes()]),
            encode(&[b"PUBLISH", b"changed", value.as_bytes()]),
        ];
        writer.send(&pipeline.concat());
        assert_eq!(next(&mut subscriber), message("changed", &value));
        let read = reader.ask(&["GET", &key]);
        assert_eq!(read, format!("${}\r\n{value}\r\n", value.len()));
        assert_eq!(
            (next(&mut writer), next(&mut writer)),
            ("+OK\r\n".into(), ":1\r\n".into())
        );
    }
    resp.server.stop();
}

#[test]
fn what_exec_and_scripts_publish_leaves_if_and_only_if_they_take_effect() {
    let resp = start("resp-channels-exec", &["--shards", "2"]);
    let mut subscriber = Talk::with(resp.address);
    subscriber.ask(&["SUBSCRIBE", "c"]);
    let (mut talk, mut other) = (Talk::with(resp.address), Talk::with(resp.address));
    talk.ask(&["WATCH", "k"]);
    other.ask(&["SET", "k", "v"]);
    talk.ask(&["MULTI"]);
    talk.ask(&["PUBLISH", "c", "void"]);
    assert_eq!(talk.ask(&["EXEC"]), "*-1\r\n");
    let failing = "redis.call('PUBLISH', 'c', 'failed'); return redis.call('INCR', KEYS[1])";
    let failing = format!("{failing} + nil");
    assert!(talk.ask(&["EVAL", &failing, "1", "n"]).starts_with('-'));
    talk.ask(&["MULTI"]);
    talk.ask(&["PUBLISH", "c", "one"]);
    talk.ask(&["EVAL", &failing, "1", "k"]);
    talk.ask(&[
        "EVAL",
        "return redis.call('PUBLISH', 'c', ARGV[1])",
        "1",
        "k",
        "two",
    ]);
    let reply = talk.ask(&["EXEC"]);
    assert!(
        reply.starts_with("*3\r\n:1\r\n-") && reply.ends_with(":1\r\n"),
        "{reply}"
    );
    let reads = "redis.call('GET', KEYS[1]); return redis.call('PUBLISH', 'c', 'three')";
    assert_eq!(talk.ask(&["EVAL", reads, "1", "k"]), ":1\r\n");
    let writes = "redis.call('SET', KEYS[1], 'w'); return redis.call('PUBLISH', 'c', 'four')";
    assert_eq!(talk.ask(&["EVAL", writes, "1", "k"]), ":1\r\n");
    assert_eq!(talk.ask(&["PUBLISH", "c", "five"]), ":1\r\n");
    for expected in ["one", "two", "three", "four", "five"] {
        assert_eq!(next(&mut subscriber), message("c", expected));
    }
    for command in ["SUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE"] {
        talk.ask(&["MULTI"]);
        let refused = talk.ask(&[command, "c"]);
        assert!(
            refused.contains("not allowed inside a transaction"),
            "{refused}"
        );
        talk.ask(&["DISCARD"]);
    }
    let read_only = "return redis.call('PUBLISH', 'c', 'x')";
    assert!(
        talk.ask(&["EVAL_RO", read_only, "0"])
            .starts_with("-ERR Write commands")
    );
    resp.server.stop();
}

#[test]
fn pushes_of_resp3_stand_between_replies_and_never_within_one() {
    let resp = start("resp-channels-push", &["--shards", "2"]);
    let mut talk = Talk::with(resp.address);
    talk.ask(&["HELLO", "3"]);
    assert_eq!(
        talk.ask(&["SUBSCRIBE", "c"]),
        ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
    );
    let keys: Vec<String> = (0..200).map(|number| format!("key:{number}")).collect();
    for key in &keys {
        talk.ask(&["SET", key, key]);
    }
    let mut read: Vec<&[u8]> = vec![b"MGET"];
    read.extend(keys.iter().map(String::as_bytes));
    let read = encode(&read);
    let (address, count) = (resp.address, 300);
    let publisher = std::thread::spawn(move || {
        let mut talk = Talk::with(address);
        for number in 0..count {
            assert_eq!(talk.ask(&["PUBLISH", "c", &number.to_string()]), ":1\r\n");
        }
    });
    let (mut pushes, mut replies) = (0, 0);
    talk.send(&read);
    while pushes < count || replies == 0 {
        let reply = next(&mut talk);
        if reply.starts_with('>') {
            let number = pushes.to_string();
            let expected = format!(
                ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n${}\r\n{number}\r\n",
                number.len()
            );
            assert_eq!(reply, expected);
            pushes += 1;
        } else {
            assert_eq!(reply.matches("key:").count(), 200, "{reply}");
            replies += 1;
            talk.send(&read);
        }
    }
    publisher.join().unwrap();
    resp.server.stop();
}

#[test]
fn subscribers_that_do_not_read_are_ended_and_others_are_served_meanwhile() {
    let memory = ["--shards", "2", "--memory-max", "256MiB"];
    let stall = ["--write-stall-timeout-ms", "60s"];
    let resp = start("resp-channels-deaf", &[&memory[..], &stall].concat());
    let count = 2000;
    let deaf = subscribers(resp.address, "news", count);
    let mut publisher = Talk::with(resp.address);
    let mut reader = Talk::with(resp.address);
    reader.ask(&["SET", "k", "v"]);
    let mut good = Talk::with(resp.address);
    good.ask(&["SUBSCRIBE", "other"]);
    let left = |talk: &mut Talk| {
        let reply = talk.ask(&["PUBSUB", "NUMSUB", "news"]);
        let number = reply.trim_end().rsplit_once(':').expect("a number").1;
        number.parse::<usize>().expect("a number")
    };
    assert_eq!(left(&mut reader), count);
    let payload = "x".repeat(16 << 10);
    let (mut published, mut busy) = (0, 0);
    while left(&mut reader) > 0 {
        let reply = publisher.ask(&["PUBLISH", "news", &payload]);
        match reply.starts_with("-BUSY nothing was published") {
            true => busy += 1,
            false => published += usize::from(reply.starts_with(':')),
        }
        assert_eq!(reader.ask(&["GET", "k"]), "$1\r\nv\r\n");
        publisher.ask(&["PUBLISH", "other", "hi"]);
        assert!(published + busy < 20_000, "{published} {busy}");
    }
    eprintln!("{count} subscribers ended behind {published} messages, {busy} refused");
    assert_eq!(next(&mut good), message("other", "hi"));
    drop(deaf);
    resp.server.stop();
}

#[test]
fn names_and_patterns_are_bounded_and_refused_by_their_limits() {
    let resp = start("resp-channels-bounds", &["--shards", "2"]);
    let mut talk = Talk::with(resp.address);
    let long = "c".repeat(1025);
    for command in ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"] {
        let refused = talk.ask(&[command, &long]);
        assert!(
            refused.contains("1024") && refused.contains("1025"),
            "{refused}"
        );
    }
    assert!(talk.ask(&["PUBLISH", &long, "m"]).contains("1024"));
    let names: Vec<String> = (0..4097).map(|number| format!("c{number}")).collect();
    let mut all = vec!["SUBSCRIBE"];
    all.extend(names.iter().map(String::as_str));
    let refused = talk.ask(&all);
    assert!(
        refused.contains("4096") && refused.contains("4097"),
        "{refused}"
    );
    assert_eq!(talk.ask(&["PUBSUB", "CHANNELS"]), "*0\r\n", "all or none");
    let words: Vec<&[u8]> = all[..4097].iter().map(|it| it.as_bytes()).collect();
    talk.send(&encode(&words));
    for number in 1..=4096 {
        assert!(next(&mut talk).ends_with(&format!(":{number}\r\n")));
    }
    assert!(talk.ask(&["SUBSCRIBE", "one-more"]).contains("4096"));
    assert!(talk.ask(&["PSUBSCRIBE", "one-more*"]).contains("4096"));
    // Patterns whose pieces behind a star are long.
    let mut other = Talk::with(resp.address);
    let pattern = |number: usize| format!("*{number:0>1000}*");
    let taken = (0..).take_while(|number| {
        !other
            .ask(&["PSUBSCRIBE", &pattern(*number)])
            .starts_with('-')
    });
    assert_eq!(taken.count(), 4);
    assert!(other.ask(&["PSUBSCRIBE", "shop:*"]).ends_with(":5\r\n"));
    drop((talk, other));
    let mut talk = Talk::with(resp.address);
    wait_until(
        "the channels of a connection that has ended are forgotten",
        || {
            let counts = ["CHANNELS", "NUMPAT"].map(|it| talk.ask(&["PUBSUB", it]));
            counts == ["*0\r\n", ":0\r\n"]
        },
    );
    resp.server.stop();
}

#[test]
fn connections_with_subscriptions_are_named_and_ended_by_their_type() {
    let resp = start("resp-channels-kill", &["--shards", "2"]);
    let mut all = subscribers(resp.address, "c", 4);
    let mut talk = Talk::with(resp.address);
    assert_eq!(all[0].ask(&["PSUBSCRIBE", "a*"]).as_bytes()[0], b'*');
    let list = talk.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    assert_eq!(
        list.matches(" flags=P db=0 sub=1 psub=0 ssub=0 ").count(),
        3,
        "{list}"
    );
    assert_eq!(
        list.matches(" flags=P db=0 sub=1 psub=1 ssub=0 ").count(),
        1,
        "{list}"
    );
    let list = talk.ask(&["CLIENT", "LIST", "TYPE", "normal"]);
    assert_eq!(list.matches(" flags=N ").count(), 1, "{list}");
    let info = talk.ask(&["INFO"]);
    for line in ["pubsub_clients:4", "pubsub_channels:1", "pubsub_patterns:1"] {
        assert!(info.contains(&format!("\r\n{line}\r\n")), "{line}");
    }
    assert_eq!(talk.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]), ":4\r\n");
    for subscriber in &mut all {
        assert!(subscriber.reply().is_empty());
    }
    wait_until("nobody subscribes any more", || {
        talk.ask(&["PUBLISH", "c", "m"]) == ":0\r\n"
    });
    resp.server.stop();
}

#[test]
fn who_leaves_a_channel_behind_its_own_message_gets_that_first() {
    let resp = start("resp-channels-leave", &["--shards", "2"]);
    for leave in ["UNSUBSCRIBE", "RESET"] {
        let mut talk = Talk::with(resp.address);
        let commands = [
            encode(&[b"HELLO", b"3"]),
            encode(&[b"SUBSCRIBE", b"c"]),
            encode(&[b"PUBLISH", b"c", b"m"]),
            encode(&[leave.as_bytes()]),
            encode(&[b"PING"]),
        ];
        talk.send(&commands.concat());
        let replies: Vec<String> = (0..6).map(|_| next(&mut talk)).collect();
        assert_eq!(replies[2], ":1\r\n");
        assert_eq!(replies[3], message("c", "m").replacen('*', ">", 1));
        assert_eq!(replies[5], "+PONG\r\n", "{leave}");
    }
    resp.server.stop();
}
