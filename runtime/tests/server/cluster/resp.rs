//! Clients of Redis at a cluster of three: who writes a slot is told by address, members answer
//! reads within the age that is asked for, and WAIT tells at how many nodes the writes are.
//! redis-py finds its way, too, if `PENSTOCK_REDIS_PY` names a folder that has it.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use super::nodes::{Cluster, Server, free_port, until, wait_for_follower, wait_for_primary};
use crate::process::beside_clusters;
use crate::resp::Talk;

/// A key whose partition node 1 writes, and one whose partition node 2 does.
const OF_ONE: &str = "{b}stock";
const OF_TWO: &str = "{a}stock";

struct Nodes {
    cluster: Cluster,
    servers: Vec<Server>,
    resp: [SocketAddr; 3],
}

/// Three nodes: the first writes the lower half, the second the upper one, the third holds all.
fn start(name: &str) -> Nodes {
    let cluster = Cluster::new(name);
    let resp = [(); 3].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
    let file = cluster.folder.join("cluster.toml");
    let mut text = fs::read_to_string(&file).expect("written");
    for (clients, resp) in cluster.clients.iter().zip(&resp) {
        let line = format!("clients = \"127.0.0.1:{clients}\"\n");
        text = text.replace(&line, &format!("{line}resp = \"{resp}\"\n"));
    }
    fs::write(&file, text).expect("written");
    let listen = resp.map(|address| address.to_string());
    let first = cluster.start(1, &["--cluster-new", "--resp-listen", &listen[0]]);
    wait_for_primary(&first);
    // A shard is scanned if its node writes all of it, so both have two.
    let second = cluster.start(2, &["--shards", "2", "--resp-listen", &listen[1]]);
    wait_for_follower(&first, &second);
    cluster.edits(&["add", "--node", &format!("{},{}", cluster.third(), resp[2])]);
    let third = cluster.start(3, &["--resp-listen", &listen[2]]);
    wait_for_follower(&first, &third);
    cluster.does(&["switch", "--to", "2", "--partitions", "128-255"]);
    Nodes {
        cluster,
        servers: vec![first, second, third],
        resp,
    }
}

fn slot_of(talk: &mut Talk, key: &str) -> u16 {
    let told = talk.ask(&["CLUSTER", "KEYSLOT", key]);
    told.trim_matches([':', '\r', '\n'])
        .parse()
        .expect("a slot")
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

    let Some(folder) = std::env::var_os("PENSTOCK_REDIS_PY") else {
        eprintln!("skipped: redis-py, as PENSTOCK_REDIS_PY names no folder that has it");
        stop(nodes);
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
    stop(nodes);
}

fn stop(nodes: Nodes) {
    nodes.servers.into_iter().for_each(Server::stop);
    nodes.cluster.has_lost_nothing();
}
