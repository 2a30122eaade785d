//! Planned handovers of all partitions, also over a start, a stop and a handover that is given up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use penstock_client::{Client, ClientError, ClientOptions, Verbs};
use penstock_net::level::AckLevel;

use super::Model;
use super::nodes::{Cluster, PATIENCE, until, wait_for_follower, wait_for_primary};
use crate::process::beside_clusters;

#[test]
fn a_switch_goes_on_when_the_node_that_hands_over_starts_again() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-switch-resumed");
    let mut model = Model::default();
    let (first, second) = cluster.start_two();
    model.change(&first.client(AckLevel::Replica), 1);

    // What is acknowledged at last is on one node alone, some of each partition, and that one goes
    // down before it has handed over.
    second.freeze();
    model.change(&first.client(AckLevel::Disk), 2);
    cluster.edits(&["switch", "--to", "2", "--no-wait"]);
    first.until_role("draining");
    drop(first);
    let first = cluster.start(1, &[]);
    first.until_role("draining");
    second.signal("-CONT");
    wait_for_primary(&second);
    model.check(&second.client(AckLevel::Disk));
    wait_for_follower(&second, &first);
    model.change(&second.client(AckLevel::Replica), 3);
    cluster.has_lost_nothing();
}

#[test]
fn the_node_that_wrote_last_goes_on_when_a_handover_is_given_up() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-switch-back");
    let mut model = Model::default();
    let (first, second) = cluster.start_two();
    model.change(&first.client(AckLevel::Replica), 1);
    let go_on = ["promote", "--to", "1", "--force", "--keep-sync"];

    // In the middle of it, because the other node stands still.
    second.freeze();
    model.change(&first.client(AckLevel::Disk), 2);
    cluster.edits(&["switch", "--to", "2", "--no-wait"]);
    first.until_role("draining");
    cluster.does(&go_on);
    model.check(&first.client(AckLevel::Disk));
    second.signal("-CONT");
    wait_for_follower(&first, &second);

    // The state after a handover whose last message was lost: the first node writes no more, and
    // the second one has not begun.
    drop(second);
    model.change(&first.client(AckLevel::Disk), 3);
    drop(first);
    cluster.edits(&[
        "promote",
        "--to",
        "2",
        "--force",
        "--keep-sync",
        "--no-wait",
    ]);
    let first = cluster.start(1, &[]);
    assert_eq!(first.stand().0.as_deref(), Some("idle"));
    cluster.does(&go_on);
    model.check(&first.client(AckLevel::Disk));
    let second = cluster.start(2, &[]);
    wait_for_follower(&first, &second);
    model.change(&first.client(AckLevel::Replica), 4);
    cluster.has_lost_nothing();
}

#[test]
fn a_switch_hands_over_all_that_was_acknowledged_and_nothing_diverges() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-switch");
    let first = cluster.start(1, &["--cluster-new"]);
    wait_for_primary(&first);
    let (is_done, printed) = cluster.command(&["switch", "--to", "2"]);
    assert!(!is_done && printed.contains("no server at"), "{printed}");
    let second = cluster.start(2, &[]);
    wait_for_follower(&first, &second);

    // Each writes one key as fast as it can, on whichever node answers, and knows the last that was
    // acknowledged.
    let over = Arc::new(AtomicBool::new(false));
    let addresses = [first.address, second.address];
    let writers: Vec<_> = (0..8)
        .map(|number| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || write_on_either(addresses, number, &over))
        })
        .collect();
    let half = ["switch", "--to", "2", "--partitions", "0-127"];
    let (is_done, printed) = cluster.command(&half);
    assert!(
        is_done && printed.contains("128 partitions of node 1"),
        "{printed}"
    );
    for (node, of, server) in [("2", "1", &second), ("1", "2", &first), ("2", "1", &second)] {
        until("it holds all", || {
            let partitions = server.partitions();
            let holds =
                |it: &serde_json::Value| it["role"] == "following" || it["role"] == "primary";
            partitions.iter().all(holds)
        });
        let (is_done, printed) = cluster.command(&["switch", "--to", node]);
        assert!(
            is_done && printed.contains(&format!("of node {of}")),
            "{printed}"
        );
    }
    over.store(true, Ordering::Relaxed);
    let client = second.client(AckLevel::Disk);
    for (number, writer) in writers.into_iter().enumerate() {
        let (last, moves) = writer.join().expect("it never lost what was acknowledged");
        assert!(moves >= 1, "it went on elsewhere");
        let value = client.get(format!("of:{number}").as_bytes()).wait();
        let value = value.expect("read").expect("acknowledged");
        assert_eq!(&*value.bytes, last.to_string().as_bytes());
    }
    wait_for_follower(&second, &first);
    cluster.has_lost_nothing();
}

/// The last number that was acknowledged, and how often another node answered.
fn write_on_either(addresses: [SocketAddr; 2], number: usize, over: &AtomicBool) -> (u64, usize) {
    let options = || ClientOptions {
        level: match number % 2 {
            0 => AckLevel::Disk,
            _ => AckLevel::Replica,
        },
        deadline: PATIENCE,
        follows: false,
        ..ClientOptions::default()
    };
    let clients = addresses.map(|address| Client::connect(address, options()).expect("it listens"));
    let key = format!("of:{number}");
    let (mut at, mut last, mut moves, mut answered_by) = (0, 0, 0, 0);
    let began = Instant::now();
    while !over.load(Ordering::Relaxed) {
        assert!(began.elapsed() < PATIENCE * 2, "nobody answers");
        // Each node that answers has all that was acknowledged.
        match clients[at].get(key.as_bytes()).wait() {
            Ok(value) => {
                let there = value.map_or(0, |value| {
                    String::from_utf8_lossy(&value.bytes)
                        .parse()
                        .expect("a number")
                });
                assert_eq!(there, last, "by node {}", at + 1);
            }
            Err(ClientError::Refused(_) | ClientError::Busy(_)) => {
                at = 1 - at;
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        let next = (last + 1).to_string();
        match clients[at].set(key.as_bytes(), next.as_bytes()).wait() {
            Ok(_) => {
                last += 1;
                moves += usize::from(answered_by != at);
                answered_by = at;
            }
            Err(refused @ ClientError::Refused(_)) => {
                let text = refused.to_string();
                // At level replica no less than at disk.
                let is_elsewhere = ["is written by node", "has not begun"];
                assert!(is_elsewhere.iter().any(|it| text.contains(it)), "{text}");
                at = 1 - at;
            }
            Err(ClientError::Busy(_)) => at = 1 - at,
            Err(error) => panic!("{error}"),
        }
    }
    (last, moves)
}
