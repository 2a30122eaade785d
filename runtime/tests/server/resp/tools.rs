//! What tools ask of a server: all keys, one key, connections to end, what was counted.

use std::collections::BTreeSet;

use super::{Talk, encode, start};

/// The strings of a reply that is an array of them.
fn strings(reply: &str) -> Vec<String> {
    let lines = reply.split("\r\n").skip(2).step_by(2);
    let names = lines.filter(|line| !line.is_empty());
    names.map(str::to_string).collect()
}

/// The value of a field of INFO.
fn field(info: &str, name: &str) -> String {
    let mut lines = info.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found
        .unwrap_or_else(|| panic!("{name} in {info}"))
        .to_string()
}

fn count(info: &str, name: &str) -> u64 {
    field(info, name).parse().expect("a number")
}

fn set_all(talk: &mut Talk, numbers: std::ops::Range<u32>) {
    for number in numbers.clone() {
        let name = format!("key:{number:05}");
        talk.send(&encode(&[b"SET", name.as_bytes(), b"v"]));
    }
    for _ in numbers {
        assert_eq!(talk.reply(), b"+OK\r\n");
    }
}

#[test]
fn keys_of_all_shards_are_answered_once_each_and_refused_by_name_where_they_are_too_long() {
    let options = ["--shards", "2", "--value-bytes-max", "16KiB"];
    let bounds = ["--frame-bytes-max", "64KiB", "--output-bytes-max", "64KiB"];
    let resp = start("resp-keys", &[&options[..], &bounds].concat());
    let mut talk = Talk::with(resp.address);
    assert_eq!(talk.ask(&["KEYS", "*"]), "*0\r\n");
    assert_eq!(talk.ask(&["RANDOMKEY"]), "$-1\r\n");
    set_all(&mut talk, 0..3000);
    let reply = strings(&talk.ask(&["KEYS", "*"]));
    let names: BTreeSet<String> = reply.iter().cloned().collect();
    let expected = (0..3000).map(|number| format!("key:{number:05}"));
    assert_eq!(names, expected.collect());
    assert_eq!(reply.len(), 3000, "each once");
    assert_eq!(strings(&talk.ask(&["KEYS", "key:0012?"])).len(), 10);
    assert_eq!(strings(&talk.ask(&["KEYS", "*[13579]"])).len(), 1500);
    assert_eq!(talk.ask(&["KEYS", &"k".repeat(2000)]), "*0\r\n");
    // What comes behind waits for it.
    talk.send(&[encode(&[b"KEYS", b"key:00007"]), encode(&[b"PING"])].concat());
    assert_eq!(talk.reply(), b"*1\r\n$9\r\nkey:00007\r\n");
    assert_eq!(talk.reply(), b"+PONG\r\n");
    let random: BTreeSet<String> = (0..200).map(|_| talk.ask(&["RANDOMKEY"])).collect();
    assert!(random.len() > 100, "{random:?}");
    let cursor = |name: &String| penstock_net::slot::slot_of(name.as_bytes()) < 8192;
    let random: Vec<String> = random
        .iter()
        .map(|reply| reply.split("\r\n").nth(1).expect("a name").to_string())
        .collect();
    assert!(random.iter().all(|name| names.contains(name)), "{random:?}");
    assert!(random.iter().any(cursor) && !random.iter().all(cursor));
    set_all(&mut talk, 3000..6000);
    let refused = talk.ask(&["KEYS", "*"]);
    assert!(refused.starts_with("-ERR KEYS: "), "{refused}");
    assert!(refused.contains("output_bytes_max is 65536"), "{refused}");
    assert_eq!(strings(&talk.ask(&["KEYS", "key:0000*"])).len(), 10);
    resp.server.stop();
}

#[test]
fn a_connection_that_is_killed_ends_and_no_other_does() {
    let resp = start("resp-kill", &["--shards", "2"]);
    let mut talks: Vec<Talk> = (0..4).map(|_| Talk::with(resp.address)).collect();
    let id = |talk: &mut Talk| {
        let reply = talk.ask(&["CLIENT", "ID"]);
        reply.trim_matches([':', '\r', '\n']).to_string()
    };
    let ids: Vec<String> = talks.iter_mut().map(id).collect();
    let listed = talks[0].ask(&["CLIENT", "LIST", "ID", &ids[1], &ids[2]]);
    assert_eq!(listed.matches(" addr=").count(), 2, "{listed}");
    assert_eq!(talks[0].ask(&["CLIENT", "KILL", "ID", &ids[1]]), ":1\r\n");
    assert_eq!(talks[1].reply(), b"", "it ended");
    let address = talks[2].stream.local_addr().expect("an address");
    let address = address.to_string();
    assert_eq!(talks[0].ask(&["CLIENT", "KILL", &address]), "+OK\r\n");
    assert_eq!(talks[2].reply(), b"");
    // It does not end itself unless it is told to.
    assert_eq!(talks[0].ask(&["CLIENT", "KILL", "ID", &ids[0]]), ":0\r\n");
    assert_eq!(talks[3].ask(&["PING"]), "+PONG\r\n");
    let own = ["CLIENT", "KILL", "SKIPME", "no", "ID", &ids[0]];
    assert_eq!(talks[0].ask(&own), ":1\r\n");
    assert_eq!(talks[0].reply(), b"");
    assert_eq!(talks[3].ask(&["PING"]), "+PONG\r\n");
    resp.server.stop();
}

#[test]
fn info_counts_reads_and_commands_until_it_is_asked_to_begin_anew() {
    let resp = start("resp-counts", &["--shards", "2"]);
    let mut talk = Talk::with(resp.address);
    talk.ask(&["SET", "k", "v"]);
    for _ in 0..5 {
        talk.ask(&["GET", "k"]);
    }
    // Some of one read, taken by their shape or as repeats.
    talk.ask_times(&["GET", "missing"], 50);
    let info = talk.ask(&["INFO", "everything"]);
    assert_eq!(
        field(&info, "cmdstat_set").split(',').next(),
        Some("calls=1")
    );
    assert_eq!(
        field(&info, "cmdstat_get").split(',').next(),
        Some("calls=55")
    );
    for name in ["used_memory_peak", "total_net_input_bytes"] {
        assert!(count(&info, name) > 0, "{name}");
    }
    assert!(field(&info, "used_cpu_user").contains('.'));
    // What the cores publish may be some milliseconds old.
    let found = (0..500).find(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let info = talk.ask(&["INFO"]);
        (
            count(&info, "keyspace_hits"),
            count(&info, "keyspace_misses"),
        ) == (5, 50)
            && info.contains("db0:keys=1,expires=0,avg_ttl=0\r\n")
    });
    assert!(found.is_some(), "{}", talk.ask(&["INFO"]));
    assert_eq!(talk.ask(&["CONFIG", "RESETSTAT"]), "+OK\r\n");
    let info = talk.ask(&["INFO", "everything"]);
    assert_eq!(count(&info, "keyspace_hits"), 0);
    assert!(!info.contains("cmdstat_get"), "{info}");
    let only = talk.ask(&["INFO", "cpu", "keyspace"]);
    let headings: Vec<&str> = only
        .split("\r\n")
        .filter(|line| line.starts_with('#'))
        .collect();
    assert_eq!(headings, ["# CPU", "# Keyspace"]);
    let refused = talk.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(refused.contains("can't set immutable config"), "{refused}");
    resp.server.stop();
}

#[test]
fn client_reply_drops_replies_and_no_command() {
    let resp = start("resp-client-reply", &["--shards", "2"]);
    let words = |line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        encode(&words)
    };
    let count = "INCR {1}n\n".repeat(1500);
    let many = format!(
        "CLIENT REPLY OFF\n{count}GET {{2}}k\nNOSUCH\nCLIENT REPLY SKIP\nCLIENT REPLY ON\n\
         GET {{1}}n"
    );
    for (lines, expected) in [
        (many.as_str(), "+OK|$4|1500|"),
        (
            "SET k 1\nCLIENT REPLY SKIP\nGET k\nGET k\nPING",
            "+OK|$1|1|+PONG|",
        ),
        ("CLIENT REPLY SKIP\nINCR k\nINCR k\nINCR k", ":3|:4|"),
        ("CLIENT REPLY SKIP\nEVAL return{1} 0\nINCR k", ":5|"),
        (
            "CLIENT REPLY SKIP\nCLIENT REPLY SKIP\nGET k\nGET k",
            "$1|5|",
        ),
        (
            "CLIENT REPLY SKIP\nWATCH k\nGET k\nCLIENT REPLY SKIP\nKEYS *\nPING",
            "$1|1|+PONG|",
        ),
        (
            "CLIENT REPLY OFF\nINCR k\nSUBSCRIBE c\nUNSUBSCRIBE c\nGET k\nCLIENT REPLY ON",
            "*3|$9|subscribe|$1|c|:1|*3|$11|unsubscribe|$1|c|:0|+OK|",
        ),
        (
            "CLIENT REPLY SKIP\nSUBSCRIBE c\nUNSUBSCRIBE c",
            "*3|$9|subscribe|$1|c|:1|*3|$11|unsubscribe|$1|c|:0|",
        ),
        (
            "CLIENT REPLY OFF\nMULTI\nINCR k\nEXEC\nCLIENT REPLY ON",
            "+OK|",
        ),
        (
            "GET k\nCLIENT REPLY OFF\nGET k\nRESET\nGET k",
            "$1|6|+RESET|$1|6|",
        ),
        (
            "CLIENT REPLY OFF\nCLIENT REPLY BOGUS\nCLIENT REPLY ON",
            "+OK|",
        ),
        (
            "CLIENT REPLY\nCLIENT REPLY BOGUS",
            "-ERR wrong number of arguments for \
          'client|reply' command|-ERR syntax error|",
        ),
    ] {
        let bytes: Vec<u8> = lines.lines().flat_map(words).collect();
        // At once, and in parts.
        for part in [bytes.len(), 17] {
            let mut talk = Talk::with(resp.address);
            talk.ask(&["MSET", "k", "1", "{1}n", "0"]);
            talk.ask(&["SET", "k", before(lines)]);
            bytes.chunks(part).for_each(|bytes| talk.send(bytes));
            let mut all = String::new();
            while all.len() < expected.len() {
                let reply = talk.reply();
                assert!(!reply.is_empty(), "{lines}: {all}");
                all += &String::from_utf8(reply).unwrap().replace("\r\n", "|");
            }
            assert_eq!(all, expected, "{lines}");
            assert_eq!(talk.ask(&["PING"]), "+PONG\r\n", "{lines}");
        }
    }
    resp.server.stop();
}

/// The number with which each case begins.
fn before(lines: &str) -> &'static str {
    match lines {
        lines if lines.contains("INCR k\nINCR k\nINCR k") => "1",
        lines if lines.contains("EVAL") => "4",
        lines if lines.contains("SKIP\nCLIENT REPLY SKIP") || lines.contains("MULTI") => "5",
        lines if lines.contains("RESET") => "6",
        _ => "1",
    }
}
