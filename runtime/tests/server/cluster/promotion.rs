//! A promotion: the partitions that it moves, those that it leaves, and the cases in which it
//! refuses and changes nothing.

use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use penstock_client::{Client, ClientOptions, Verbs};
use penstock_net::level::AckLevel;

use super::Model;
use super::nodes::{Cluster, PATIENCE, Server, until, wait_for_follower, wait_for_primary};
use crate::process::beside_clusters;

#[test]
fn a_promotion_takes_what_the_lost_node_wrote_and_leaves_what_a_living_one_writes() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-two-writers");
    let (first, second) = cluster.start_two();
    let third = cluster.add_third(&first);
    cluster.does(&["sync", "--node", "3"]);
    cluster.does(&["switch", "--to", "2", "--partitions", "128-255"]);
    third.until_role("following");

    // Nobody is lost: there is nothing to take.
    let (is_done, printed) = cluster.command(&["promote", "--to", "3", "--force"]);
    assert!(
        !is_done && printed.contains("node 1 answers and writes, node 2 answers and writes"),
        "{printed}"
    );

    drop(first);
    let printed = cluster.does(&["promote", "--to", "3", "--force"]);
    for said in [
        "128 partitions of node 1 are to be written by node 3",
        "128 partitions of node 2 stay as they are: the node answers and writes there",
        "node 1 left the sync set and is a learner",
        "level replica waits for node 2",
    ] {
        assert!(printed.contains(said), "{printed}");
    }
    // The lost node is waited for by nobody: each writes at level replica.
    let levels = |server: &Server| {
        let client = server.client(AckLevel::Replica);
        let keys = (0..64).map(|number| format!("key:{number}"));
        let writes: Vec<_> = keys
            .map(|key| client.set(key.as_bytes(), b"both"))
            .collect();
        let ends = writes.into_iter().map(|write| write.wait());
        ends.filter(Result::is_ok).count()
    };
    assert_eq!(levels(&second) + levels(&third), 64);
    let file = fs::read_to_string(cluster.folder.join("cluster.toml")).expect("there");
    assert_eq!(file.matches("learners = [1]").count(), 2, "{file}");
}

#[test]
fn a_node_that_has_nothing_is_not_promoted_and_nothing_is_changed() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-promote-nothing");
    let mut model = Model::default();
    let (first, second) = cluster.start_two();
    model.change(&first.client(AckLevel::Replica), 1);
    drop(second);
    fs::remove_dir_all(cluster.data(2)).expect("removed");
    drop(first);
    let second = cluster.start(2, &[]);
    let file = || fs::read_to_string(cluster.folder.join("cluster.toml")).expect("there");
    let before = file();
    let (code, printed) = cluster.run(&["promote", "--to", "2", "--force", "--accept-loss"]);
    assert_eq!(code, 1, "{printed}");
    assert!(
        printed.contains("has nothing at all of partition 0")
            && printed.contains("--accept-incomplete")
            && printed.contains("nothing was changed"),
        "{printed}"
    );
    assert_eq!(file(), before);
    // The node that has it is not lost.
    let first = cluster.start(1, &[]);
    wait_for_primary(&first);
    wait_for_follower(&first, &second);
    model.check(&first.client(AckLevel::Disk));

    // A dead one neither.
    drop(second);
    drop(first);
    let (code, printed) = cluster.run(&["promote", "--to", "2", "--force"]);
    assert_eq!(code, 3, "{printed}");
    assert!(printed.contains("nothing was changed"), "{printed}");
    assert_eq!(file(), before);
}

#[test]
fn a_command_waits_for_nodes_that_hang_no_longer_than_it_was_asked_to() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-hangs");
    // They accept and stay silent.
    let listen = |port: u16| TcpListener::bind(("127.0.0.1", port)).expect("bound");
    let _silent = [listen(cluster.clients[0]), listen(cluster.clients[1])];
    let before = fs::read_to_string(cluster.folder.join("cluster.toml")).expect("there");
    // Who waits longer than that, as by default, says so.
    let within = |printed: &str| printed.matches("no answer within 300 ms").count();
    let (code, printed) = cluster.run(&["status", "--timeout-ms", "300"]);
    assert_eq!((code, within(&printed)), (3, 2), "{printed}");
    let (code, printed) = cluster.run(&["switch", "--to", "2", "--wait-ms", "300"]);
    assert!(code != 0 && within(&printed) == 1, "{printed}");
    let after = fs::read_to_string(cluster.folder.join("cluster.toml")).expect("there");
    assert_eq!(after, before);
}

#[test]
fn what_clients_are_shown_of_the_cluster_is_the_same_on_all_nodes() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-hello");
    let (first, second) = cluster.start_two();
    for server in [&first, &second] {
        assert_eq!(server.hello().cluster_id, [0xc1; 16]);
    }
    assert_ne!(first.hello().node_id, second.hello().node_id);
}

#[test]
fn a_switch_to_a_node_that_is_killed_is_taken_back_and_nothing_is_lost() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-switch-killed");
    let mut model = Model::default();
    let (first, second) = cluster.start_two();
    let third = cluster.add_third(&first);
    cluster.does(&["sync", "--node", "3"]);
    model.change(&first.client(AckLevel::Replica), 1);

    cluster.edits(&["switch", "--to", "3", "--no-wait"]);
    until("the switch has begun", || {
        first.stand().0.as_deref() != Some("primary")
    });
    drop(third);
    let third = cluster.start(3, &[]);
    drop(first);
    drop(second);
    drop(third);
    let servers = [1, 2, 3].map(|node| cluster.start(node, &[]));
    // It goes on by itself, unless the last message of it was lost.
    let is_written = |server: &Server| server.stand().0.as_deref() == Some("primary");
    let began = Instant::now();
    while !is_written(&servers[2]) && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
    }
    if !is_written(&servers[2]) {
        println!("the third node is {:?}", servers[2].partitions());
        cluster.does(&["promote", "--to", "1", "--force", "--keep-sync"]);
    }
    until("each partition is written", || {
        let roles = servers.iter().flat_map(|it| it.partitions());
        let written = roles.filter(|it| it["role"] == "primary");
        let count = |it: serde_json::Value| {
            it["last"].as_u64().expect("told") - it["first"].as_u64().expect("told") + 1
        };
        written.map(count).sum::<u64>() == 256
    });
    let all = ClientOptions {
        deadline: PATIENCE,
        ..ClientOptions::default()
    };
    model.check(&Client::connect(servers[0].address, all).expect("it listens"));
}
