//! Tokens that are texts: the same text is the same write, whatever time stands beside it.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::beyond::ask;
use super::{Resp, Talk, start};
use crate::command::command;
use crate::process::Server;

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap().as_millis()).unwrap()
}

fn start_again(name: &str, resp: &mut Resp) {
    resp.server.process.kill().unwrap();
    resp.server.process.wait().unwrap();
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    serve.args(["--admin-listen", "off", "--shards", "2", "--resp-listen"]);
    serve.arg(resp.address.to_string());
    // `folder` would begin an empty one.
    let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    serve.arg("--data").arg(data);
    resp.server = Server::start(&mut serve);
}

#[test]
fn a_text_names_one_write_whatever_time_stands_beside_it_also_behind_a_kill() {
    let name = "resp-text-tokens";
    let mut resp = start(name, &["--shards", "2"]);
    let now = now_ms();
    let apply = |text: &str, sent: u64| {
        format!("KV.APPLY stock{{7}} TOKEN {text} SENT {sent} 'k1.decimal += 5'")
            .replace('\'', "\"")
    };
    let mut talk = Talk::with(resp.address);
    assert_eq!(ask(&mut talk, "SET stock{7} 100"), "+OK|");
    let reply = ask(&mut talk, &apply("order-17", now));
    assert!(
        reply.contains("|*1|:105|") && reply.ends_with("|:0|"),
        "{reply}"
    );
    for sent in [now, now + 1, now + 60_000, now - 60_000] {
        let reply = ask(&mut talk, &apply("order-17", sent));
        assert!(
            reply.contains("|*1|:105|") && reply.ends_with("|:1|"),
            "{reply}"
        );
    }
    // By KV.OPTS, for a command of Redis.
    for (answer, replayed) in [(":106|", "|:0|"), (":106|", "|:1|")] {
        let options = format!("KV.OPTS token=order-18 sent={now}");
        assert_eq!(ask(&mut talk, &options), "+OK|");
        assert_eq!(ask(&mut talk, "INCR stock{7}"), answer);
        assert!(ask(&mut talk, "KV.OPTS").ends_with(replayed));
    }
    // The same text for another write, and in another slot.
    let other = format!("KV.APPLY stock{{7}} TOKEN order-17 SENT {now} \"k1.decimal += 6\"");
    assert!(ask(&mut talk, &other).starts_with("-TOKENREUSED "));
    assert_eq!(ask(&mut talk, "SET other{8} 0"), "+OK|");
    let elsewhere = format!("KV.APPLY other{{8}} TOKEN order-17 SENT {now} \"k1.decimal += 6\"");
    assert!(ask(&mut talk, &elsewhere).contains("|*1|:6|"));
    assert_eq!(ask(&mut talk, "GET stock{7}"), "$3|106|");

    start_again(name, &mut resp);
    let mut talk = Talk::with(resp.address);
    let reply = ask(&mut talk, &apply("order-17", now + 5));
    assert!(
        reply.contains("|*1|:105|") && reply.ends_with("|:1|"),
        "{reply}"
    );
    // Tokens stay behind FLUSHALL, and nobody is shown their keys.
    assert_eq!(ask(&mut talk, "FLUSHALL"), "+OK|");
    assert_eq!(ask(&mut talk, "KEYS *"), "*0|");
    let reply = ask(&mut talk, &apply("order-17", now));
    assert!(
        reply.contains("|*1|:105|") && reply.ends_with("|:1|"),
        "{reply}"
    );
    assert_eq!(ask(&mut talk, "GET stock{7}"), "$-1|");
    resp.server.stop();
}

#[test]
fn texts_and_their_times_have_limits_that_the_errors_name() {
    let resp = start("resp-text-token-limits", &["--shards", "1"]);
    let mut talk = Talk::with(resp.address);
    assert_eq!(ask(&mut talk, "SET k 0"), "+OK|");
    let now = now_ms();
    let mut reply_to = |text: &str, sent: &str| {
        let line = format!("KV.APPLY k TOKEN \"{text}\" SENT {sent} \"k1.decimal += 1\"");
        ask(&mut talk, &line)
    };
    let long = "x".repeat(65);
    assert_eq!(
        reply_to(&long, "7"),
        format!("-ERR TOKEN '{long}': 65 bytes; 1 to 64 are allowed|")
    );
    assert_eq!(
        reply_to("", "7"),
        "-ERR TOKEN '': 0 bytes; 1 to 64 are allowed|"
    );
    for sent in ["x", "-1", "281474976710656"] {
        assert_eq!(
            reply_to("order", sent),
            format!("-ERR SENT '{sent}': allowed are unix milliseconds below 2^48|")
        );
    }
    let old = reply_to("order", &(now - 7_200_000).to_string());
    assert!(old.starts_with("-TOKENTOOOLD "), "{old}");
    let ahead = reply_to("order", &(now + 400_000).to_string());
    assert!(ahead.contains("ahead of the shard's time"), "{ahead}");
    assert!(reply_to(&"x".repeat(64), &now.to_string()).contains("|*1|:1|"));
    assert!(reply_to("\\x00\\xff", &now.to_string()).contains("|*1|:2|"));
    let reply = ask(&mut talk, "KV.OPTS token=order");
    assert!(reply.ends_with("or any text with sent=|"), "{reply}");
    let reply = ask(&mut talk, "KV.OPTS sent=7");
    assert_eq!(
        reply,
        "-ERR KV.OPTS: sent = '7': allowed is a time beside token=|"
    );
    resp.server.stop();
}
