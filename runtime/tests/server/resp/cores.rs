//! A RESP port of each core: who is named, where keys go, what a scan finds.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use penstock_net::slot::{core_of, slot_of};

use super::{PATIENCE, Talk, folder};
use crate::cluster::nodes::free_ports;
use crate::command::command;
use crate::process::Server;
use crate::scratch;

/// Shards of the servers here.
const CORES: u16 = 2;

struct Cores {
    server: Server,
    entry: SocketAddr,
    /// The port of core 0.
    base: u16,
}

/// A server with an entry port and a port of each core.
fn start(name: &str, options: &[&str]) -> Cores {
    let data = folder(name);
    start_again(&data, options)
}

fn start_again(data: &std::path::Path, options: &[&str]) -> Cores {
    let entry = free_ports(1 + CORES);
    let base = entry + 1;
    let entry = SocketAddr::from(([127, 0, 0, 1], entry));
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    serve.args(["--admin-listen", "off", "--shards", &CORES.to_string()]);
    serve.args(["--resp-listen", &entry.to_string()]);
    serve.args(["--resp-shard-ports", &base.to_string()]);
    serve.args(options).arg("--data").arg(data);
    Cores {
        server: Server::start(&mut serve),
        entry,
        base,
    }
}

impl Cores {
    /// A connection by the port of a core.
    fn core(&self, core: u16) -> Talk {
        Talk::with(SocketAddr::from(([127, 0, 0, 1], self.base + core)))
    }

    /// How many operations were mailed from core to core so far.
    fn forwarded(&self) -> u64 {
        let info = self.server.client().info().wait().expect("an answer");
        let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
        info["counters"]["forwarded"].as_u64().expect("a number")
    }
}

/// The core that owns a key.
fn owner(key: &str) -> u16 {
    core_of(slot_of(key.as_bytes()), CORES)
}

fn name_of(talk: &mut Talk) -> String {
    let id = talk.ask(&["CLUSTER", "MYID"]);
    id.split("\r\n").nth(1).expect("a name").to_string()
}

fn scanned(talk: &mut Talk) -> Vec<String> {
    let (mut cursor, mut keys) = ("0".to_string(), Vec::new());
    loop {
        let page = talk.ask(&["SCAN", &cursor, "COUNT", "50"]);
        let is_word = |line: &&str| !line.starts_with(['*', '$']) && !line.is_empty();
        let mut words = page.split("\r\n").filter(is_word);
        cursor = words.next().expect("a cursor").to_string();
        assert!(cursor.parse::<u64>().is_ok(), "{page}");
        keys.extend(words.map(str::to_string));
        if cursor == "0" {
            return keys;
        }
    }
}

#[test]
fn a_key_at_the_port_of_another_core_is_mailed_and_never_moved() {
    let cores = start("resp-cores-keys", &[]);
    let mut talks = [cores.core(0), cores.core(1)];
    let keys: Vec<String> = (0..200).map(|number| format!("key:{number}")).collect();
    let before = cores.forwarded();
    for key in &keys {
        let talk = &mut talks[usize::from(owner(key))];
        assert_eq!(talk.ask(&["SET", key, "v"]), "+OK\r\n");
        assert_eq!(talk.ask(&["GET", key]), "$1\r\nv\r\n");
    }
    assert_eq!(cores.forwarded(), before, "each key went to its core");
    for key in &keys {
        let talk = &mut talks[usize::from(1 - owner(key))];
        assert_eq!(talk.ask(&["GET", key]), "$1\r\nv\r\n");
        assert_eq!(talk.ask(&["APPEND", key, "w"]), ":2\r\n");
    }
    assert!(cores.forwarded() >= before + keys.len() as u64);
    // Commands over cores are what they are at the entry port.
    let (a, b) = (
        "key:0",
        keys.iter().find(|key| owner(key) != owner("key:0")),
    );
    let b = b.expect("half of them");
    for talk in &mut talks {
        assert_eq!(talk.ask(&["MSET", a, "1", b, "2"]), "+OK\r\n");
        assert_eq!(talk.ask(&["MGET", a, b]), "*2\r\n$1\r\n1\r\n$1\r\n2\r\n");
    }
    cores.server.stop();
}

#[test]
fn each_port_names_its_core_and_all_others_and_names_stay_over_a_start() {
    let data = folder("resp-cores-names");
    let mut before = BTreeSet::new();
    for options in [&[][..], &["--resp-cluster-enabled"]] {
        let cores = start_again(&data, options);
        let mut entry = Talk::with(cores.entry);
        let slots = entry.ask(&["CLUSTER", "SLOTS"]);
        let mut names = BTreeSet::from([name_of(&mut entry)]);
        for core in 0..CORES {
            let mut talk = cores.core(core);
            assert_eq!(talk.ask(&["CLUSTER", "SLOTS"]), slots);
            let id = name_of(&mut talk);
            let port = cores.base + core;
            let node = format!("$9\r\n127.0.0.1\r\n:{port}\r\n$40\r\n{id}\r\n");
            assert!(slots.contains(&node), "{node} in {slots}");
            let nodes = talk.ask(&["CLUSTER", "NODES"]);
            let myself = format!(
                "{id} 127.0.0.1:{port}@{} myself,master",
                u32::from(port) + 10_000
            );
            assert!(nodes.contains(&myself), "{myself} in {nodes}");
            assert_eq!(nodes.matches("connected").count(), usize::from(CORES));
            assert!(
                talk.ask(&["INFO", "server"])
                    .contains(&format!("tcp_port:{port}\r\n"))
            );
            let enabled = format!("cluster_enabled:{}\r\n", u8::from(!options.is_empty()));
            assert!(talk.ask(&["INFO", "cluster"]).contains(&enabled));
            names.insert(id);
        }
        let nodes = entry.ask(&["CLUSTER", "NODES"]);
        let myself = nodes.lines().find(|line| line.contains("myself"));
        let myself = myself.expect("a line");
        assert!(myself.contains(&cores.entry.to_string()) && myself.ends_with("connected"));
        assert_eq!(names.len(), usize::from(CORES) + 1, "{names:?}");
        assert!(
            before.is_empty() || before == names,
            "{before:?} and {names:?}"
        );
        before = names;
        cores.server.stop();
    }
}

#[test]
fn scans_of_all_cores_find_each_key_once() {
    let cores = start("resp-cores-scan", &[]);
    let mut entry = Talk::with(cores.entry);
    let mut all = BTreeSet::new();
    for number in 0..300 {
        let key = format!("key:{number}");
        assert_eq!(entry.ask(&["SET", &key, "v"]), "+OK\r\n");
        all.insert(key);
    }
    let of_entry = scanned(&mut entry);
    assert_eq!(of_entry.len(), all.len());
    let mut found = BTreeSet::new();
    for core in 0..CORES {
        let mut talk = cores.core(core);
        let keys = scanned(&mut talk);
        assert!(keys.iter().all(|key| owner(key) == core));
        // Numbers are up to 100 ms old.
        let expected = format!(":{}\r\n", keys.len());
        let began = std::time::Instant::now();
        while talk.ask(&["DBSIZE"]) != expected {
            assert!(began.elapsed() < PATIENCE, "{expected}");
        }
        found.extend(keys);
    }
    assert_eq!(found, all);
    let cursor = (u64::from(u16::MAX >> 3) << 32).to_string();
    let refused = cores.core(1).ask(&["SCAN", &cursor]);
    let expected = "-ERR SCAN: the cursor stands in slot 8191, which another core has";
    assert!(refused.starts_with(expected), "{refused}");
    cores.server.stop();
}

#[test]
fn clients_are_sent_to_the_host_and_the_ports_that_are_announced() {
    let options = [
        "--resp-announce",
        "shop.example",
        "--resp-announce-ports",
        "30000",
    ];
    let cores = start("resp-cores-announced", &options);
    let slots = cores.core(0).ask(&["CLUSTER", "SLOTS"]);
    for port in [30_000, 30_001] {
        let node = format!("$12\r\nshop.example\r\n:{port}\r\n");
        assert!(slots.contains(&node), "{slots}");
    }
    cores.server.stop();
}

#[test]
fn ports_of_cores_that_meet_others_are_refused_when_the_number_of_shards_is_known() {
    let cores = start("resp-cores-taken", &[]);
    let address = cores.entry.to_string();
    let base = (cores.base - 2).to_string();
    cores.server.stop();
    // The directory has two shards: base + 1 is the entry port.
    let data = scratch::folder("resp-cores-taken");
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    serve.args(["--admin-listen", "off", "--resp-listen", &address]);
    serve
        .args(["--resp-shard-ports", &base, "--data"])
        .arg(data);
    let output = serve.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains(&format!("take in that of resp_listen = {address}")),
        "{text}"
    );
}
