//! Real servers: lostfound keeps for good by how much a lost tail had changed numbers, also after
//! cleaning has released the values before.

use std::fs;
use std::path::{Path, PathBuf};

use penstock_client::{Field, Verbs};
use penstock_net::level::AckLevel;

use super::nodes::{Cluster, is_within_patience, wait_for_follower, wait_for_primary};
use crate::command::command;
use crate::process::beside_clusters;

/// The files of a directory's lostfound that end so.
fn files(data: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("lostfound")).expect("there");
    let paths = entries.map(|entry| entry.expect("read").path());
    paths
        .filter(|path| path.extension().is_some_and(|it| it == extension))
        .collect()
}

fn units(data: &Path) -> String {
    let mut listed = command(&["cluster", "lostfound", "--units"]);
    let output = listed.arg(data).output().expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    printed + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn what_was_sold_alone_is_reported_in_units_when_the_log_has_let_go_of_the_fork() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-units");
    let (first, second) = cluster.start_two();
    let both = first.client(AckLevel::Replica);
    let stock = both.set(b"stock", &100_u64.to_le_bytes());
    stock.wait().expect("acknowledged");
    wait_for_follower(&first, &second);
    // A kill could take the stock along, which it has received and perhaps not written yet.
    second.stop();
    let alone = first.client(AckLevel::Disk);
    for _ in 0..7 {
        let sale = [Field::u64(0).at_least(1), Field::u64(0).decrease(1)];
        alone.update_if(b"stock", &sale).wait().expect("sold");
    }
    alone.set(b"new", &5_u64.to_le_bytes()).wait().expect("set");
    drop((alone, both, first));

    let second = cluster.start(2, &[]);
    cluster.does(&["promote", "--to", "2", "--force", "--accept-loss"]);
    wait_for_primary(&second);
    let first = cluster.start(1, &[]);
    wait_for_follower(&second, &first);
    let data = cluster.data(1);
    let exact = "numbers of 8 bytes: -7 units by 1 keys";
    assert!(units(&data).contains(exact), "{}", units(&data));

    // The segment in which the stock of the fork stands is cleaned away.
    let forks = files(&data, "forks");
    assert!(!forks.is_empty(), "noted when the tail was kept");
    let client = second.client(AckLevel::Disk);
    let is_gone = is_within_patience(|| {
        for number in 0..1_000_u32 {
            let key = format!("filler:{}", number % 10);
            let set = client.set(key.as_bytes(), &[7; 4 << 10]);
            set.wait().expect("acknowledged");
        }
        for fork in &forks {
            fs::rename(fork, fork.with_extension("aside")).expect("moved");
        }
        let printed = units(&data);
        for fork in &forks {
            fs::rename(fork.with_extension("aside"), fork).expect("moved back");
        }
        printed.contains("unknown by 2 more keys")
    });
    assert!(is_gone, "{}", units(&data));
    let printed = units(&data);
    assert!(
        printed.contains(exact) && !printed.contains("unknown"),
        "{printed}"
    );
    first.stop();
    second.stop();
}
