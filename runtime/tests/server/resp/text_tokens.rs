//! Tokens that are texts: the same text is the same write, whatever time stands beside it.

use std::time::{SystemTime, UNIX_EPOCH};

use super::beyond::ask;
use super::{Resp, Talk, folder, start};
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
    serve.arg("--data").arg(folder(name));
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
    let told = ask(&mut talk, &apply("order-17", now));
    assert!(
        told.contains("|*1|:105|") && told.ends_with("|:0|"),
        "{told}"
    );
    for sent in [now, now + 1, now + 60_000, now - 60_000] {
        let told = ask(&mut talk, &apply("order-17", sent));
        assert!(
            told.contains("|*1|:105|") && told.ends_with("|:1|"),
            "{told}"
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
    let told = ask(&mut talk, &apply("order-17", now + 5));
    assert!(
        told.contains("|*1|:105|") && told.ends_with("|:1|"),
        "{told}"
    );
    // Tokens stay behind FLUSHALL, and nobody is shown their keys.
    assert_eq!(ask(&mut talk, "FLUSHALL"), "+OK|");
    assert_eq!(ask(&mut talk, "KEYS *"), "*0|");
    let told = ask(&mut talk, &apply("order-17", now));
    assert!(
        told.contains("|*1|:105|") && told.ends_with("|:1|"),
        "{told}"
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
    let mut told = |text: &str, sent: &str| {
        let line = format!("KV.APPLY k TOKEN \"{text}\" SENT {sent} \"k1.decimal += 1\"");
        ask(&mut talk, &line)
    };
    let long = "x".repeat(65);
    assert_eq!(
        told(&long, "7"),
        format!("-ERR TOKEN '{long}': 65 bytes; 1 to 64 are allowed|")
    );
    assert_eq!(
        told("", "7"),
        "-ERR TOKEN '': 0 bytes; 1 to 64 are allowed|"
    );
    for sent in ["x", "-1", "281474976710656"] {
        assert_eq!(
            told("order", sent),
            format!("-ERR SENT '{sent}': allowed are unix milliseconds below 2^48|")
        );
    }
    let old = told("order", &(now - 7_200_000).to_string());
    assert!(old.starts_with("-TOKENTOOOLD "), "{old}");
    let ahead = told("order", &(now + 400_000).to_string());
    assert!(ahead.contains("ahead of the shard's time"), "{ahead}");
    assert!(told(&"x".repeat(64), &now.to_string()).contains("|*1|:1|"));
    assert!(told("\\x00\\xff", &now.to_string()).contains("|*1|:2|"));
    let told = ask(&mut talk, "KV.OPTS token=order");
    assert!(told.ends_with("or any text with sent=|"), "{told}");
    let told = ask(&mut talk, "KV.OPTS sent=7");
    assert_eq!(
        told,
        "-ERR KV.OPTS: sent = '7': allowed is a time beside token=|"
    );
    resp.server.stop();
}
