//! Clients of Redis at a cluster of three: who writes a slot is told by address, members answer
//! reads within the age that is asked for, and WAIT tells at how many nodes the writes are.
//! redis-py finds its way, too, if `PENSTOCK_REDIS_PY` names a folder that has it.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use penstock_client::{Client, ClientOptions};

use super::nodes::{
    Cluster, Server, free_port, free_ports, until, wait_for_follower, wait_for_primary,
};
use crate::process::beside_clusters;
use crate::resp::Talk;

/// A key whose partition node 1 writes, and one whose partition node 2 does.
const OF_ONE: &str = "{b}stock";
const OF_TWO: &str = "{a}stock";

pub(super) struct Nodes {
    pub(super) cluster: Cluster,
    pub(super) servers: Vec<Server>,
    pub(super) resp: [SocketAddr; 3],
    /// The first port of the cores of each; 0 is none.
    base: [u16; 3],
}

/// Three nodes: the first writes the lower half, the second the upper one, the third holds all.
pub(super) fn start(name: &str) -> Nodes {
    start_with(name, [0; 3])
}

/// The same. The cores of a node have so many ports, which the plan names; 0 is none.
fn start_with(name: &str, cores: [u16; 3]) -> Nodes {
    let cluster = Cluster::new(name);
    let resp = [(); 3].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
    let file = cluster.folder.join("cluster.toml");
    let mut text = fs::read_to_string(&file).expect("written");
    let base = cores.map(|count| if count == 0 { 0 } else { free_ports(count) });
    let ports = |node: usize| (base[node], base[node] + cores[node].saturating_sub(1));
    for (node, clients) in cluster.clients.iter().enumerate() {
        let line = format!("clients = \"127.0.0.1:{clients}\"\n");
        let mut more = format!("resp = \"{}\"\n", resp[node]);
        if let (first @ 1.., last) = ports(node) {
            more += &format!("resp_ports = [{first}, {last}]\n");
        }
        text = text.replace(&line, &format!("{line}{more}"));
    }
    fs::write(&file, text).expect("written");
    let started = |number: u8, more: &[&str]| {
        let node = usize::from(number) - 1;
        let (listen, base) = (resp[node].to_string(), base[node].to_string());
        let words = ["--resp-listen", &listen, "--resp-shard-ports", &base];
        cluster.start(number, &[&words, more].concat())
    };
    let first = started(1, &["--cluster-new"]);
    wait_for_primary(&first);
    let second = started(2, &[]);
    wait_for_follower(&first, &second);
    let mut third = format!("{},{}", cluster.third(), resp[2]);
    if let (first @ 1.., last) = ports(2) {
        third += &format!(",{first}-{last}");
    }
    cluster.edits(&["add", "--node", &third]);
    let third = started(3, &[]);
    wait_for_follower(&first, &third);
    cluster.does(&["switch", "--to", "2", "--partitions", "128-255"]);
    Nodes {
        cluster,
        servers: vec![first, second, third],
        resp,
        base,
    }
}

fn slot_of(talk: &mut Talk, key: &str) -> u16 {
    let reply = talk.ask(&["CLUSTER", "KEYSLOT", key]);
    reply
        .trim_matches([':', '\r', '\n'])
        .parse()
        .expect("a slot")
}

/// The keys of a whole SCAN.
fn scanned(talk: &mut Talk) -> BTreeSet<String> {
    let (mut cursor, mut keys) = ("0".to_string(), BTreeSet::new());
    loop {
        let reply = talk.ask(&["SCAN", &cursor, "COUNT", "50"]);
        let mut lines = reply
            .split("\r\n")
            .filter(|line| !line.starts_with(['*', '$']));
        cursor = lines.next().expect("a cursor").to_string();
        assert!(cursor.parse::<u64>().is_ok(), "{reply}");
        keys.extend(lines.filter(|line| !line.is_empty()).map(str::to_string));
        if cursor == "0" {
            return keys;
        }
    }
}

#[test]
fn wait_ends_at_its_own_time_and_says_how_many_nodes_have_the_writes() {
    let _clusters = beside_clusters();
    let nodes = start("cluster-resp-wait");
    let mut one = Talk::with(nodes.resp[0]);
    until("it writes its half", || {
        one.ask(&["SET", OF_ONE, "1"]) == "+OK\r\n"
    });
    until("the other node has it", || {
        one.ask(&["WAIT", "1", "60000"]) == ":1\r\n"
    });
    // The other node stands still: the number is told when the time of WAIT is over, long before
    // level `replica` gives up, and comes right again.
    nodes.servers[1].freeze();
    assert_eq!(one.ask(&["SET", OF_ONE, "2"]), "+OK\r\n");
    for words in [["WAIT", "0", "1"], ["WAIT", "1", "50"], ["WAIT", "1", "50"]] {
        assert_eq!(one.ask(&words), ":0\r\n");
    }
    nodes.servers[1].signal("-CONT");
    until("the other node has it", || {
        one.ask(&["WAIT", "1", "60000"]) == ":1\r\n"
    });
    stop(nodes);
}

#[test]
fn noreplicas_says_whether_the_write_was_executed() {
    let _clusters = beside_clusters();
    let cluster = Cluster::with_timeout("cluster-resp-noreplicas", 300);
    let resp = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let listen = resp.to_string();
    let first = cluster.start(1, &["--cluster-new", "--resp-listen", &listen]);
    wait_for_primary(&first);
    let second = cluster.start(2, &[]);
    wait_for_follower(&first, &second);
    let mut talk = Talk::with(resp);
    assert_eq!(talk.ask(&["KV.OPTS", "level=replica"]), "+OK\r\n");
    until("the member is waited for and has it", || {
        talk.ask(&["SET", OF_ONE, "1"]) == "+OK\r\n"
    });
    second.freeze();
    let reply = talk.ask(&["INCR", OF_ONE]);
    let executed = "-NOREPLICAS it was executed here and is in the log";
    assert!(reply.starts_with(executed), "{reply}");
    second.signal("-CONT");
    cluster.edits(&["learner", "--node", "2"]);
    let mut reply = String::new();
    until("nobody is waited for", || {
        reply = talk.ask(&["INCR", OF_ONE]);
        reply.starts_with("-NOREPLICAS nothing was executed")
    });
    assert_eq!(talk.ask(&["KV.OPTS", "level=disk"]), "+OK\r\n");
    let before = talk.ask(&["GET", OF_ONE]);
    assert_eq!(talk.ask(&["KV.OPTS", "level=replica"]), "+OK\r\n");
    assert_eq!(talk.ask(&["INCR", OF_ONE]), reply);
    assert_eq!(talk.ask(&["KV.OPTS", "level=disk"]), "+OK\r\n");
    assert_eq!(talk.ask(&["GET", OF_ONE]), before);
    first.stop();
    second.stop();
}

/// The record of a run tells how many changes it stands for: otherwise a member would find a gap.
#[test]
fn a_pipeline_of_decrements_is_few_records_and_reaches_the_other_nodes() {
    let _clusters = beside_clusters();
    let nodes = start("cluster-resp-run");
    let [mut one, mut two, _] = nodes.resp.map(Talk::with);
    until("it writes its half", || {
        one.ask(&["SET", OF_ONE, "9999"]) == "+OK\r\n"
    });
    let logged = || nodes.servers[0].number("penstock_log_records_total", &[]);
    let before = logged();
    let mut left = 9999;
    for _ in 0..10 {
        for reply in one.ask_times(&["DECR", OF_ONE], 200) {
            left -= 1;
            assert_eq!(reply, format!(":{left}\r\n"));
        }
        assert_eq!(one.ask(&["WAIT", "1", "60000"]), ":1\r\n");
    }
    // The figures follow the log by some turns.
    until("a record is counted", || logged() > before);
    let records = logged() - before;
    assert!((1.0..500.0).contains(&records), "{records} records");
    assert_eq!(two.ask(&["READONLY"]), "+OK\r\n");
    assert_eq!(two.ask(&["KV.OPTS", "stale=60000"]), "+OK\r\n");
    until("the other node shows the last one", || {
        two.ask(&["GET", OF_ONE]) == "$4\r\n7999\r\n"
    });
    stop(nodes);
}

#[test]
fn clients_of_redis_are_sent_to_who_writes_and_members_answer_as_old_as_they_allow() {
    let _clusters = beside_clusters();
    let nodes = start("cluster-resp");
    let [mut one, mut two, mut three] = nodes.resp.map(Talk::with);
    let (low, high) = (slot_of(&mut one, OF_ONE), slot_of(&mut one, OF_TWO));
    assert!(low < 8192 && high >= 8192);
    until("each writes its half", || {
        one.ask(&["SET", OF_ONE, "1"]) == "+OK\r\n" && two.ask(&["SET", OF_TWO, "2"]) == "+OK\r\n"
    });

    // MOVED names slot and address, for reads and writes, one key and transactions.
    let moved = |slot: u16, node: usize| format!("-MOVED {slot} {}\r\n", nodes.resp[node]);
    for words in [
        &["GET", OF_TWO][..],
        &["DECR", OF_TWO],
        &["MGET", OF_TWO],
        &["APPEND", OF_TWO, "x"],
        &["KV.APPLY", OF_TWO, "k1 exists"],
        &["KV.RUN", "buy", OF_TWO],
    ] {
        assert_eq!(one.ask(words), moved(high, 1), "{words:?}");
    }
    assert_eq!(two.ask(&["GET", OF_ONE]), moved(low, 0));
    assert_eq!(one.ask(&["MULTI"]), "+OK\r\n");
    assert_eq!(one.ask(&["INCR", OF_TWO]), "+QUEUED\r\n");
    assert_eq!(one.ask(&["EXEC"]), moved(high, 1));
    let across = one.ask(&["MSET", OF_ONE, "1", OF_TWO, "2"]);
    assert!(across.starts_with("-CROSSSLOT "), "{across}");

    // All three tell the same of all slots, and each knows itself.
    let slots = one.ask(&["CLUSTER", "SLOTS"]);
    for talk in [&mut two, &mut three] {
        until("the file was read", || {
            talk.ask(&["CLUSTER", "SLOTS"]) == slots
        });
    }
    for address in nodes.resp {
        assert!(
            slots.contains(&format!(":{}\r\n", address.port())),
            "{slots}"
        );
    }
    let info = three.ask(&["CLUSTER", "INFO"]);
    assert!(info.contains("cluster_state:ok\r\n") && info.contains("cluster_size:2\r\n"));
    let id = three.ask(&["CLUSTER", "MYID"]);
    let id = id.split("\r\n").nth(1).expect("a name").to_string();
    let lines = three.ask(&["CLUSTER", "NODES"]);
    let myself = lines.lines().find(|line| line.contains("myself,slave"));
    assert!(myself.expect("it is there").starts_with(&id), "{lines}");
    assert!(three.ask(&["INFO", "replication"]).contains("role:slave"));

    // A member answers behind READONLY, and only then.
    assert_eq!(three.ask(&["GET", OF_ONE]), moved(low, 0));
    assert_eq!(three.ask(&["READONLY"]), "+OK\r\n");
    assert_eq!(three.ask(&["KV.OPTS", "stale=60000"]), "+OK\r\n");
    until("the member has it", || {
        three.ask(&["GET", OF_ONE]) == "$1\r\n1\r\n"
    });
    until("the member has it", || {
        three.ask(&["MGET", OF_TWO]) == "*1\r\n$1\r\n2\r\n"
    });
    assert_eq!(
        three.ask(&["INCR", OF_ONE]),
        moved(low, 0),
        "it writes nothing"
    );
    assert_eq!(three.ask(&["KV.OPTS", "stale=0"]), "+OK\r\n");
    assert_eq!(three.ask(&["GET", OF_ONE]), moved(low, 0), "not new enough");
    assert_eq!(three.ask(&["KV.OPTS", "stale=60000"]), "+OK\r\n");
    assert_eq!(three.ask(&["READWRITE"]), "+OK\r\n");
    assert_eq!(three.ask(&["GET", OF_ONE]), moved(low, 0));

    // Who is waited for has the writes.
    assert_eq!(one.ask(&["SET", OF_ONE, "7"]), "+OK\r\n");
    assert_eq!(one.ask(&["WAIT", "1", "1000"]), ":1\r\n");
    assert_eq!(one.ask(&["WAIT", "1", "1000"]), ":1\r\n", "it is so still");
    assert_eq!(one.ask(&["KV.OPTS", "level=replica"]), "+OK\r\n");
    assert_eq!(one.ask(&["INCR", OF_ONE]), ":8\r\n");

    assert_eq!(one.ask(&["KV.OPTS", "level=default"]), "+OK\r\n");

    scans_show_what_each_node_writes(&nodes, [&mut one, &mut two, &mut three], high);

    finds_its_way_with_redis_py(&nodes);
    stop(nodes);
}

/// Node 1 has two cores, node 2 has one, and node 3 has one port for all.
#[test]
fn a_moved_slot_has_the_port_of_the_core_that_owns_it() {
    let _clusters = beside_clusters();
    let nodes = start_with("cluster-resp-cores", [2, 1, 0]);
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let [low, lower, high] = [nodes.base[0], nodes.base[0] + 1, nodes.base[1]].map(at);
    let [mut one, mut idle, mut two] = [low, lower, high].map(Talk::with);
    let mut three = Talk::with(nodes.resp[2]);
    let slots = [OF_ONE, OF_TWO].map(|key| slot_of(&mut one, key));
    until("each writes its half", || {
        one.ask(&["SET", OF_ONE, "1"]) == "+OK\r\n" && two.ask(&["SET", OF_TWO, "2"]) == "+OK\r\n"
    });
    let moved = |slot: u16, address: SocketAddr| format!("-MOVED {slot} {address}\r\n");
    assert_eq!(two.ask(&["GET", OF_ONE]), moved(slots[0], low));
    assert_eq!(three.ask(&["GET", OF_ONE]), moved(slots[0], low));
    assert_eq!(one.ask(&["GET", OF_TWO]), moved(slots[1], high));
    // Within a node nothing is moved.
    assert_eq!(idle.ask(&["GET", OF_ONE]), "$1\r\n1\r\n");

    let of_one = one.ask(&["CLUSTER", "SLOTS"]);
    for talk in [&mut idle, &mut two, &mut three] {
        until("the file was read", || {
            talk.ask(&["CLUSTER", "SLOTS"]) == of_one
        });
    }
    // The second core of node 1 owns slots of node 2 alone.
    let lines = idle.ask(&["CLUSTER", "NODES"]);
    let line = |of: &str| {
        lines
            .lines()
            .find(|line| line.contains(of))
            .expect("a line")
    };
    let writer = line(&high.to_string()).split(' ').next().expect("a name");
    let expected = format!("{lower}@{} myself,slave {writer} ", lower.port() + 10_000);
    assert!(line(&lower.to_string()).contains(&expected), "{lines}");
    assert!(line(&low.to_string()).contains(" master - "), "{lines}");
    assert!(idle.ask(&["INFO", "replication"]).contains("role:slave"));
    assert!(one.ask(&["INFO", "replication"]).contains("role:master"));
    let info = three.ask(&["CLUSTER", "INFO"]);
    assert!(
        info.contains("cluster_known_nodes:4\r\ncluster_size:2\r\n"),
        "{info}"
    );

    let mut all = BTreeSet::from([OF_ONE.to_string(), OF_TWO.to_string()]);
    for number in 0..100 {
        let key = format!("scanned:{number}");
        let is_low = slot_of(&mut one, &key) < 8192;
        let talk = if is_low { &mut one } else { &mut two };
        assert_eq!(talk.ask(&["SET", &key, "v"]), "+OK\r\n");
        all.insert(key);
    }
    let keys_of_one = scanned(&mut one);
    assert_eq!(scanned(&mut idle), BTreeSet::new());
    assert_eq!(&keys_of_one | &scanned(&mut two), all);
    assert_eq!(scanned(&mut Talk::with(nodes.resp[0])), keys_of_one);
    stop(nodes);
}

/// SCAN of a node tells the keys of the slots that it writes, also of half a shard. `high` is a
/// slot of the second node.
fn scans_show_what_each_node_writes(nodes: &Nodes, talks: [&mut Talk; 3], high: u16) {
    let [one, two, three] = talks;
    let mut all = BTreeSet::from([OF_ONE.to_string(), OF_TWO.to_string()]);
    for number in 0..300 {
        let key = format!("scanned:{number}");
        let node = usize::from(slot_of(one, &key) >= 8192);
        let talk = if node == 0 { &mut *one } else { &mut *two };
        assert_eq!(talk.ask(&["SET", &key, "v"]), "+OK\r\n");
        all.insert(key);
    }
    let mut found = BTreeSet::new();
    for (talk, is_own) in [(&mut *one, true), (&mut *two, true), (three, false)] {
        let keys = scanned(talk);
        assert_eq!(keys.is_empty(), !is_own);
        for key in keys {
            assert!(found.insert(key.clone()), "{key} is told by two nodes");
        }
    }
    assert_eq!(found, all);
    // A native client goes from node to node by itself.
    for server in &nodes.servers {
        let client = Client::connect(server.address, ClientOptions::default());
        let client = client.expect("it listens");
        let keys = client
            .scan(b"", false)
            .map(|entry| entry.expect("a key").key);
        let keys = keys.map(|key| String::from_utf8(key.to_vec()).expect("text"));
        assert_eq!(keys.collect::<BTreeSet<_>>(), all);
    }
    // A cursor within a slot that another node writes is refused by name.
    let inside = format!("{}", u64::from(high) << 32 | 1);
    let refused = one.ask(&["SCAN", &inside]);
    let expected =
        format!("-ERR SCAN: the cursor stands in slot {high}, which another node writes");
    assert!(refused.starts_with(&expected), "{refused}");
}

/// redis-py's client of clusters, if there is one.
fn finds_its_way_with_redis_py(nodes: &Nodes) {
    let Some(folder) = std::env::var_os("PENSTOCK_REDIS_PY") else {
        eprintln!("skipped: redis-py, as PENSTOCK_REDIS_PY names no folder that has it");
        return;
    };
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../.ci/clients/redis_py_cluster.py"
    );
    let ran = Command::new("python3")
        .arg(script)
        .arg(nodes.resp[2].port().to_string())
        .env("PYTHONPATH", folder)
        .output()
        .expect("python3 runs");
    let said = [ran.stdout, ran.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    println!("{said}");
    assert!(ran.status.success(), "{said}");
}

pub(super) fn stop(nodes: Nodes) {
    nodes.servers.into_iter().for_each(Server::stop);
    nodes.cluster.has_lost_nothing();
}
