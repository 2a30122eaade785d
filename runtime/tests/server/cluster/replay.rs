//! What was lost is done again once, though two nodes kept it.

use penstock_client::Verbs;
use penstock_net::level::AckLevel;

use super::ledger::stock_of;
use super::nodes::{Cluster, Server, until, wait_for_follower, wait_for_primary};
use crate::process::beside_clusters;

/// What a replay of a node's lostfound says.
fn replay(cluster: &Cluster, node: u8, writer: &Server, more: &[&str]) -> String {
    let (data, address) = (cluster.data(node), writer.address.to_string());
    let data = data.display().to_string();
    let words = [
        "lostfound",
        "replay",
        &data,
        "--addr",
        &address,
        "--rule",
        "add",
    ];
    let (code, told) = cluster.run_without_file(&[&words, more].concat());
    assert!((0..=1).contains(&code), "{told}");
    told
}

#[test]
fn a_sale_whose_tail_two_nodes_kept_is_counted_once_and_a_dry_run_tells_who_wrote_it() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-replay");
    let (first, second) = cluster.start_two();
    let third = cluster.add_third(&first);
    let client = first.client(AckLevel::Disk);
    let set = |units: u64| {
        client
            .set(b"stock", &units.to_le_bytes())
            .wait()
            .expect("set")
    };
    set(100);
    wait_for_follower(&first, &third);
    third.stop();
    // Ten units are sold by node 1, node 2 hears of it, and both are lost before node 3 does.
    set(90);
    wait_for_follower(&first, &second);
    drop(first);
    second.stop();
    let third = cluster.start(3, &[]);
    cluster.does(&["promote", "--to", "3", "--force", "--accept-loss"]);
    wait_for_primary(&third);
    assert_eq!(stock_of(&third), 100);
    for node in [1, 2] {
        let back = cluster.start(node, &[]);
        wait_for_follower(&third, &back);
        until("it keeps the tail", || {
            let files = std::fs::read_dir(cluster.data(node).join("lostfound"));
            files.is_ok_and(|files| files.count() > 0)
        });
        back.stop();
    }

    let told = replay(&cluster, 2, &third, &["--dry-run"]);
    assert!(told.contains("left: node 1 wrote it"), "{told}");
    assert!(told.contains("--written-by 1"), "the way out: {told}");
    let told = replay(&cluster, 1, &third, &["--dry-run"]);
    assert!(
        told.contains("stock: 1 records, would be written"),
        "{told}"
    );
    let told = replay(&cluster, 1, &third, &[]);
    assert!(told.contains("stock: 1 records, written"), "{told}");
    assert_eq!(stock_of(&third), 90);
    let told = replay(&cluster, 2, &third, &[]);
    assert!(told.contains("left: node 1 wrote it"), "{told}");
    assert_eq!(stock_of(&third), 90, "ten units are sold once");

    // As if the disk of node 1 were gone: node 2 does its tail, but for what a replay elsewhere has
    // tried.
    let tried = cluster.data(1).join("lostfound/replayed");
    let tried = tried.display().to_string();
    let by_other = ["--written-by", "1", "--tried", &tried];
    let told = replay(&cluster, 2, &third, &by_other);
    assert!(told.contains("left: it was tried before"), "{told}");
    let told = replay(&cluster, 2, &third, &["--written-by", "1", "--dry-run"]);
    assert!(
        told.contains("stock: 1 records, would be written"),
        "{told}"
    );
    assert_eq!(stock_of(&third), 90);
    let (code, told) = cluster.run_without_file(&[
        "lostfound",
        "replay",
        &cluster.data(2).display().to_string(),
        "--tried",
        "/nowhere/replayed",
    ]);
    assert!(code == 2 && told.contains("/nowhere/replayed"), "{told}");
}
