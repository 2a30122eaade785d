//! Commands and scripts over keys of several slots, at a node alone: they change together or not at
//! all.

use penstock_net::slot::slot_of;
use penstock_shard::Topology;
use penstock_storage::budget::Budget;
use penstock_storage::layout::Layout;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::scripts::{Peer, command};
use crate::server::{Server, Snapshots, VALUE_BYTES_MAX, log_config, shard_config};

fn roomy() -> Peer {
    Peer::new(Budget::of_cache(1 << 20))
}

/// Sends MULTI, these commands and EXEC.
fn exec(peer: &mut Peer, lines: &[&str]) -> String {
    assert_eq!(peer.ask("MULTI"), "+OK\\r\\n");
    for line in lines {
        assert_eq!(peer.ask(line), "+QUEUED\\r\\n", "{line}");
    }
    peer.ask("EXEC")
}

/// The power fails once all that was answered is durable.
fn restarted(peer: &Peer) -> Peer {
    let image = peer.server.device.image.clone();
    let server = Server::open(SyncMethod::DurableWrite, image, 2, None);
    Peer::connect(server.expect("it opens"), None)
}

#[test]
fn exec_over_slots_is_one_group_and_is_there_after_a_crash() {
    let mut peer = roomy();
    peer.ask("SET stock 5");
    let records = peer.server.shard.store().log().appended();
    let reply = exec(
        &mut peer,
        &["DECR stock", "SET buyer ann", "INCR sold", "GET buyer"],
    );
    assert_eq!(reply, "*4\\r\\n:4\\r\\n+OK\\r\\n:1\\r\\n$3\\r\\nann\\r\\n");
    let appended = peer.server.shard.store().log().appended();
    assert_eq!(appended.0, records.0 + 3, "a record for each slot");
    let mut peer = restarted(&peer);
    let reply = peer.ask("MGET stock buyer sold");
    assert_eq!(
        reply,
        "*3\\r\\n$1\\r\\n4\\r\\n$3\\r\\nann\\r\\n$1\\r\\n1\\r\\n"
    );
}

#[test]
fn commands_of_two_keys_take_keys_of_two_slots() {
    let mut peer = roomy();
    assert_eq!(peer.ask("MSETNX a 1 b 2 c 3"), ":1\\r\\n");
    assert_eq!(peer.ask("MSETNX d 1 b 2"), ":0\\r\\n");
    assert_eq!(peer.ask("EXISTS d"), ":0\\r\\n");
    assert_eq!(peer.ask("RENAME a e"), "+OK\\r\\n");
    assert_eq!(peer.ask("COPY b d"), ":1\\r\\n");
    assert_eq!(peer.ask("RENAMENX b c"), ":0\\r\\n");
    let reply = peer.ask("MGET a b c d e");
    assert_eq!(
        reply,
        "*5\\r\\n$-1\\r\\n$1\\r\\n2\\r\\n$1\\r\\n3\\r\\n$1\\r\\n2\\r\\n$1\\r\\n1\\r\\n"
    );
}

#[test]
fn a_script_uses_declared_keys_of_several_slots_and_others_and_fails_whole() {
    let mut peer = roomy();
    let reply = peer.ask("EVAL all 2 a b INCR~a INCR~b INCR~c");
    assert_eq!(reply, "*3\\r\\n:1\\r\\n:1\\r\\n:1\\r\\n");
    let reply = peer.ask("EVAL fail 2 a b INCR~a INCR~b INCR~d");
    assert_eq!(reply, "-ERR it failed\\r\\n");
    // A script that only reads shows what other records have made.
    let reply = peer.ask("EVAL_RO all 0 GET~a GET~b GET~d");
    assert_eq!(reply, "*3\\r\\n$1\\r\\n1\\r\\n$1\\r\\n1\\r\\n$-1\\r\\n");
}

#[test]
fn a_watched_key_of_another_slot_keeps_exec_from_running() {
    let mut peer = roomy();
    for (change, expected) in [
        ("PING", "*1\\r\\n+OK\\r\\n"),
        ("SET watched 2", "*-1\\r\\n"),
        ("DEL watched", "*-1\\r\\n"),
    ] {
        peer.ask("WATCH watched absent");
        peer.ask(change);
        assert_eq!(exec(&mut peer, &["SET other x"]), expected, "{change}");
        peer.ask("SET watched 1");
    }
    peer.ask("WATCH watched absent");
    peer.ask("SET absent 2");
    assert_eq!(exec(&mut peer, &["SET other y"]), "*-1\\r\\n");
    assert_eq!(peer.ask("GET other"), "$1\\r\\nx\\r\\n");
}

#[test]
fn what_one_key_cannot_take_keeps_all_of_them_as_they_were() {
    let mut peer = roomy();
    peer.ask("SET a 1");
    // Three values make more than the largest record.
    let long = "x".repeat(VALUE_BYTES_MAX as usize - 500);
    let puts: Vec<String> = ["b", "c", "d"]
        .map(|key| format!("SET {key} {long}"))
        .into();
    let mut lines = vec!["INCR a"];
    lines.extend(puts.iter().map(String::as_str));
    let reply = exec(&mut peer, &lines);
    assert!(reply.starts_with("-"), "{reply}");
    assert_eq!(peer.ask("GET a"), "$1\\r\\n1\\r\\n");
    assert_eq!(peer.ask("EXISTS b c d"), ":0\\r\\n");
}

#[test]
fn a_full_disk_refuses_all_keys_or_takes_all_of_them() {
    let mut peer = roomy();
    peer.ask("SET {0}sum 0");
    peer.server.is_full = true;
    let (mut done, mut refused) = (0, 0);
    for round in 0..400 {
        let puts: Vec<String> = (0..3)
            .map(|slot| format!("SET {{{slot}}}{round} {}", "x".repeat(300)))
            .collect();
        let mut lines: Vec<&str> = puts.iter().map(String::as_str).collect();
        lines.push("INCR {0}sum");
        let reply = exec(&mut peer, &lines);
        match reply.starts_with("*4") {
            true => done += 1,
            false => {
                assert!(reply.starts_with("-OOM"), "{reply}");
                refused += 1;
            }
        }
        let found = peer.ask(&format!("EXISTS {{0}}{round} {{1}}{round} {{2}}{round}"));
        let expected = if reply.starts_with("*4") { 3 } else { 0 };
        assert_eq!(found, format!(":{expected}\\r\\n"), "round {round}");
        let sum = done.to_string();
        let expected = format!("${}\\r\\n{sum}\\r\\n", sum.len());
        assert_eq!(peer.ask("GET {0}sum"), expected);
        if refused > 3 {
            break;
        }
    }
    assert!(done > 3 && refused > 3, "{done} and {refused}");
}

#[test]
fn commands_behind_a_script_that_waits_for_a_key_do_not_pass_it_whatever_their_slot() {
    let server = Server::open(SyncMethod::DurableWrite, Image::default(), 1, None);
    let mut peer = Peer::connect(server.expect("it opens"), None);
    let (mut passed, mut parked) = (0, 0);
    // They leave the cache long before they are read.
    for round in 0..30 {
        peer.ask(&format!("SET cold{round} {round}"));
        peer.ask(&format!("SET old{round} {round}"));
    }
    for round in 0..30 {
        for pad in 0..8 {
            peer.ask(&format!("SET {{pad}}{pad} {}", "x".repeat(400)));
        }
        peer.ask(&format!("SET warm {round}"));
        let before = peer.server.counters().parked;
        let script = format!("EVAL last 1 cold{round} GET~cold{round} INCR~warm");
        let old = format!("GET old{round}");
        let pipeline = [
            &script,
            "GET warm",
            "MULTI",
            &old,
            "DECR warm",
            "EXEC",
            "GET warm",
        ];
        let mut bytes: Vec<u8> = pipeline.iter().flat_map(|line| command(line)).collect();
        let mut replies = Vec::new();
        peer.server.session = peer.session;
        for _ in 0..200 {
            let mut frame = Vec::new();
            let taken = peer.talk.take(&bytes, &mut frame, &peer.host);
            bytes.drain(..taken);
            peer.server.inbox.extend(frame);
            peer.server.hand_over();
            peer.server.turn();
            peer.server.end(0);
            let raw = peer.server.raw.replace(Vec::new()).expect("kept");
            peer.talk.answered(&raw, &peer.host);
            replies.append(peer.talk.out());
        }
        peer.server.settle();
        parked += peer.server.counters().parked - before;
        let more = round + 1;
        let lens = [more.to_string().len(), round.to_string().len()];
        let expected = format!(
            ":{more}\r\n${}\r\n{more}\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n${}\r\n{round}\r\n\
             :{round}\r\n${}\r\n{round}\r\n",
            lens[0], lens[1], lens[1]
        );
        let replies = String::from_utf8(replies).expect("text");
        assert_eq!(replies, expected, "round {round}");
        passed += 1;
    }
    assert!(passed == 30 && parked > 40, "{parked} waited for a key");
}

#[test]
fn keys_of_two_shards_are_refused_whole_and_the_connection_goes_on() {
    // The first of two shards; its mail is not delivered.
    let server = Server::open_as(
        shard_config(0, 2, 1),
        Layout::new(2),
        Snapshots::new(),
        Budget::of_cache(1 << 20),
        1,
        log_config(SyncMethod::DurableWrite, 1),
        Image::default(),
        None,
    );
    let mut peer = Peer::connect(server.expect("it opens"), None);
    let topology = Topology::new(2);
    let of_shard = |shard: u16| {
        let names = (0..).map(|number| format!("k{number}"));
        let mut of = names.filter(move |name| topology.owner(slot_of(name.as_bytes())) == shard);
        [of.next().expect("endless"), of.next().expect("endless")]
    };
    let ([a, b], [c, _]) = (of_shard(0), of_shard(1));
    let (put, other) = (format!("SET {a} 1"), format!("SET {c} 1"));
    let reply = exec(&mut peer, &[&put, &other]);
    assert!(
        reply.starts_with("-CROSSSLOT the keys route to slots"),
        "{reply}"
    );
    assert!(reply.contains("--shards 1"), "{reply}");
    for line in [
        format!("MSETNX {a} 1 {c} 2"),
        format!("EVAL last 2 {a} {c} INCR~{a}"),
        format!("EVAL last 1 {a} INCR~{a} INCR~{c}"),
    ] {
        let reply = peer.ask(&line);
        // The script of these tests goes on behind a call that fails: the last reply counts.
        assert!(reply.starts_with("-CROSSSLOT"), "{line}: {reply}");
    }
    peer.ask(&format!("DEL {a}"));
    assert_eq!(peer.ask(&format!("MSETNX {a} 1 {b} 2")), ":1\\r\\n");
    let reply = peer.ask(&format!("EXISTS {a} {b}"));
    assert_eq!(reply, ":2\\r\\n");
}

#[test]
fn new_keys_of_several_slots_do_not_outgrow_an_index_that_has_no_room() {
    let mut peer = roomy();
    peer.ask("SET {0}first value");
    let empty = peer.server.usage().index_bytes;
    let reserve_bytes = 2 << 20;
    let bytes = (empty + (64 << 10) + reserve_bytes) * 8 / 7;
    peer.server.set_memory_bytes_max(bytes);
    peer.server.settle();
    let key = |number: usize| format!("{{{}}}{number}", number % 3);
    let (mut number, mut last) = (0, 0);
    while number < last + 300 {
        number += 1;
        assert!(number < 100_000, "the index takes all");
        if peer.ask(&format!("SET {} v", key(number))) == "+OK\\r\\n" {
            last = number;
        }
    }
    let full_bytes = peer.server.usage().index_bytes;
    let (mut came, mut refused) = (0, 0);
    for gone in 1..120 {
        peer.ask(&format!("DEL {}", key(gone)));
        peer.server.settle();
        let new = [gone, number + 2 * gone, number + 2 * gone + 1].map(key);
        let puts = new.each_ref().map(|key| format!("SET {key} v"));
        let reply = exec(&mut peer, &puts.each_ref().map(String::as_str));
        match reply.starts_with("*3") {
            true => came += 1,
            false => {
                assert!(reply.starts_with("-OOM"), "{reply}");
                let exist = peer.ask(&format!("EXISTS {} {} {}", new[0], new[1], new[2]));
                assert_eq!(exist, ":0\\r\\n");
                refused += 1;
            }
        }
        assert_eq!(peer.server.usage().index_bytes, full_bytes, "{gone}");
    }
    assert!(refused > 60, "{refused} were refused, {came} found room");
}

#[test]
fn effects_of_a_key_that_is_due_run_before_a_transaction_over_other_slots() {
    let mut peer = roomy();
    peer.ask("SET {h}stock 5");
    let hold = "KV.APPLY {h}hold KEY {h}stock k1~put 1 k1~expires~in~10ms \
                when~k1~expires:~k2.decimal~+=~1";
    assert!(peer.ask(hold).contains("OK"), "it is armed");
    peer.server.sleep(20);
    let reply = exec(&mut peer, &["INCR other", "GET {h}hold", "DECR {h}stock"]);
    assert_eq!(reply, "*3\\r\\n:1\\r\\n$-1\\r\\n:5\\r\\n");
    let mut peer = restarted(&peer);
    let reply = peer.ask("MGET other {h}hold {h}stock");
    assert_eq!(reply, "*3\\r\\n$1\\r\\n1\\r\\n$-1\\r\\n$1\\r\\n5\\r\\n");
}
