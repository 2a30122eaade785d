//! Nodes of a cluster that start with another number of shards.

use penstock_client::Verbs;
use penstock_net::level::AckLevel;

use super::Model;
use super::nodes::{Cluster, Server, until, wait_for_follower, wait_for_primary};
use crate::process::beside_clusters;

/// Waits until the logs of another number of shards are gone.
fn wait_until_taken_over(server: &Server) {
    until("what was inherited is rewritten", || {
        let text = server.client(AckLevel::Disk).info().wait().expect("told");
        let info: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        info["counters"]["inherited_bytes"] == 0
    });
}

#[test]
fn a_member_changes_its_number_of_shards_while_the_primary_writes() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-member-shards");
    let mut model = Model::default();
    let (first, second) = cluster.start_two();
    model.change(&first.client(AckLevel::Replica), 1);
    let mut second = Some(second);
    for (round, shards) in (2..).zip(["2", "1", "2"]) {
        if let Some(second) = second.take() {
            second.stop();
        }
        model.change(&first.client(AckLevel::Disk), 10 * round);
        let again = cluster.start(2, &["--shards", shards]);
        model.change(&first.client(AckLevel::Disk), 10 * round + 1);
        wait_for_follower(&first, &again);
        model.change(&first.client(AckLevel::Replica), 10 * round + 2);
        wait_until_taken_over(&again);
        second = Some(again);
    }
    let second = second.expect("started");
    wait_for_follower(&first, &second);
    drop(first);
    cluster.does(&["promote", "--to", "2", "--force"]);
    wait_for_primary(&second);
    model.check(&second.client(AckLevel::Disk));
    // The rewritten records are all that is left of the partition, and a member without records
    // gets them.
    let first = cluster.start(1, &[]);
    wait_for_follower(&second, &first);
    first.stop();
    second.stop();
}

#[test]
fn a_primary_changes_its_number_of_shards_and_ships_on() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-primary-shards");
    let mut model = Model::default();
    let (first, second) = cluster.start_two();
    model.change(&first.client(AckLevel::Replica), 1);
    // Killed, so that the end of its log is not told; the other one lacks the last of it.
    drop(second);
    model.change(&first.client(AckLevel::Disk), 2);
    drop(first);
    let first = cluster.start(1, &["--shards", "1"]);
    wait_for_primary(&first);
    model.check(&first.client(AckLevel::Disk));
    model.change(&first.client(AckLevel::Disk), 3);
    let second = cluster.start(2, &[]);
    wait_for_follower(&first, &second);
    model.change(&first.client(AckLevel::Replica), 4);
    wait_until_taken_over(&first);
    drop(first);
    cluster.does(&["promote", "--to", "2", "--force"]);
    wait_for_primary(&second);
    model.check(&second.client(AckLevel::Disk));
    let first = cluster.start(1, &["--shards", "2"]);
    wait_for_follower(&second, &first);
    first.stop();
    second.stop();
}

#[test]
fn what_a_primary_wrote_alone_is_kept_though_it_comes_back_with_another_number_of_shards() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-tail-shards");
    let mut model = Model::default();
    let (first, second) = cluster.start_two();
    model.change(&first.client(AckLevel::Replica), 1);
    wait_for_follower(&first, &second);
    drop(second);
    let alone = first.client(AckLevel::Disk);
    for number in 0..100 {
        let key = format!("key:{number}");
        alone
            .set(key.as_bytes(), b"alone")
            .wait()
            .expect("acknowledged");
    }
    drop(alone);
    drop(first);
    let second = cluster.start(2, &[]);
    cluster.does(&["promote", "--to", "2", "--force", "--accept-loss"]);
    wait_for_primary(&second);
    let first = cluster.start(1, &["--shards", "1"]);
    wait_for_follower(&second, &first);
    let ends = first.said("a link is ended");
    assert!(ends.len() <= 2, "one end for all partitions: {ends:#?}");
    let (_, listed) =
        cluster.run_without_file(&["lostfound", "--all", &cluster.data(1).display().to_string()]);
    let alone: std::collections::BTreeSet<&str> = listed
        .lines()
        .filter(|line| line.ends_with(" 616c6f6e65"))
        .collect();
    assert_eq!(alone.len(), 100, "{listed}");
    cluster.does(&["sync", "--node", "1"]);
    cluster.does(&["switch", "--to", "1"]);
    model.check(&first.client(AckLevel::Disk));
    first.stop();
    second.stop();
}
