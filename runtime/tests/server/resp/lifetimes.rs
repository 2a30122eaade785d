//! The time that lifetimes are counted by, beside the clock of the client, which is that of the
//! same machine.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{PATIENCE, Talk, start};

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

fn number(reply: &str) -> i64 {
    let text = reply.strip_prefix(':').expect(reply);
    text.trim_end().parse().expect(reply)
}

#[test]
fn pttl_is_never_more_than_was_set_and_no_key_is_gone_before_its_lifetime_is_over() {
    for shards in ["1", "2"] {
        let resp = start(&format!("resp-lifetimes-{shards}"), &["--shards", shards]);
        let mut talk = Talk::with(resp.address);
        // The microseconds of the wall clock are found by looks at different moments.
        for number in 0..400 {
            talk.ask(&["GET", &format!("k{number}")]);
        }
        let mut wrong = Vec::new();
        for round in 0..300 {
            let key = format!("k{round}");
            let at_ms = (unix_ms() + 10_000).to_string();
            talk.ask(&["SET", &key, "v"]);
            for (words, most) in [
                (&["PEXPIREAT", &key, &at_ms][..], 10_000),
                (&["PEXPIRE", &key, "10000"], 10_000),
                (&["SET", &key, "v", "PX", "7000"], 7_000),
                (&["GETEX", &key, "PX", "6000"], 6_000),
                (&["INCREX", "n", "PX", "5000"], 5_000),
                (&["EXPIRE", &key, "3", "XX"], 3_000),
                (
                    &["KV.APPLY", &key, "k1 put", "v", "k1 expires in 2s"],
                    2_000,
                ),
            ] {
                talk.ask(words);
                let name = if words[0] == "INCREX" { "n" } else { &key };
                let left = number(&talk.ask(&["PTTL", name]));
                if left > most {
                    wrong.push(format!("{words:?}: {left}"));
                }
            }
            // A later time is later, also by one millisecond.
            talk.ask(&["PEXPIREAT", &key, &at_ms]);
            let later = (at_ms.parse::<u64>().unwrap() + 1).to_string();
            let reply = talk.ask(&["PEXPIREAT", &key, &later, "GT"]);
            let reply_again = talk.ask(&["PEXPIREAT", &key, &later, "GT"]);
            if (&reply[..], &reply_again[..]) != (":1\r\n", ":0\r\n") {
                wrong.push(format!("GT: {reply} {reply_again}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        for round in 0..60_u64 {
            let (key, ms) = (format!("s{round}"), 1 + round % 9);
            let began = Instant::now();
            talk.ask(&["SET", &key, "v", "PX", &ms.to_string()]);
            while talk.ask(&["GET", &key]) != "$-1\r\n" {
                assert!(began.elapsed() < PATIENCE, "{key} is never gone");
            }
            let lived = began.elapsed();
            assert!(lived >= Duration::from_millis(ms), "{ms} ms: {lived:?}");
        }
        resp.server.stop();
    }
}

#[test]
fn time_is_that_which_expiries_are_compared_with() {
    let resp = start("resp-time", &["--shards", "1"]);
    let mut talk = Talk::with(resp.address);
    talk.ask(&["SET", "k", "v"]);
    let before_ms = unix_ms();
    let reply = talk.ask(&["TIME"]);
    let parts: Vec<u64> = reply
        .split("\r\n")
        .filter_map(|line| line.parse().ok())
        .collect();
    let time_ms = parts[0] * 1_000 + parts[1] / 1_000;
    assert!((before_ms..=unix_ms()).contains(&time_ms), "{reply}");
    resp.server.stop();
}
