//! What only the old primary has: kept in its lostfound, listed, and taken back.

use std::collections::BTreeSet;
use std::fs;

use penstock_client::Verbs;
use penstock_net::level::AckLevel;

use super::Model;
use super::nodes::{Cluster, Server, wait_for_follower, wait_for_primary};
use crate::command::command;
use crate::process::beside_clusters;

/// What a primary writes that nobody follows, before it is killed.
fn write_alone(first: Server) {
    let alone = first.client(AckLevel::Disk);
    let stock = alone.set(b"stock", &90_u64.to_le_bytes());
    stock.wait().expect("acknowledged");
    for number in 0..100 {
        let key = format!("key:{number}");
        alone
            .set(key.as_bytes(), b"alone")
            .wait()
            .expect("acknowledged");
    }
    alone.del(b"key:2500").wait().expect("acknowledged");
}

/// The lostfound of node 1.
struct Lost<'a> {
    cluster: &'a Cluster,
}

impl Lost<'_> {
    /// Each version once, all of those that were acknowledged and no other.
    fn check_list(&self) {
        let listed = command(&["cluster", "lostfound", "--all", "--units"])
            .arg(self.cluster.data(1))
            .output()
            .expect("it runs");
        let printed = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(
            printed.contains("-10 units by 1 keys"),
            "{printed} {:?}",
            listed.stderr
        );
        let lines = || printed.lines();
        let alone: BTreeSet<&str> = lines().filter(|it| it.ends_with(" 616c6f6e65")).collect();
        assert_eq!(alone.len(), 100, "{printed}");
        let deletions = lines().filter(|it| it.ends_with(" key:2500 -"));
        assert_eq!(deletions.count(), 1, "{printed}");
        let sales = lines().filter(|it| it.contains(" stock "));
        assert_eq!(sales.count(), 1, "{printed}");
    }

    /// Keeps all of it a second time, as an earlier start would have up to a crash: a number must
    /// be told once.
    fn keep_twice(&self) {
        let folder = self.cluster.data(1).join("lostfound");
        for entry in fs::read_dir(&folder).expect("there") {
            let path = entry.expect("read").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            let (_, shard) = name.split_once('-').expect("START-SHARD.records");
            let bytes = fs::read(&path).expect("read");
            let cut = &bytes[..bytes.len() - 8];
            fs::write(folder.join(format!("1-{shard}")), cut).expect("written");
        }
    }
}

#[test]
fn what_the_old_primary_wrote_alone_is_kept_in_lostfound_and_reported_once() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-diverged");
    let mut model = Model::default();
    let (first, second) = cluster.start_two();
    model.change(&first.client(AckLevel::Replica), 1);
    let client = first.client(AckLevel::Replica);
    let stock = client.set(b"stock", &100_u64.to_le_bytes());
    stock.wait().expect("acknowledged");
    wait_for_follower(&first, &second);

    drop(second);
    write_alone(first);
    let second = cluster.start(2, &[]);
    cluster.does(&["promote", "--to", "2", "--force", "--accept-loss"]);
    wait_for_primary(&second);
    model.check(&second.client(AckLevel::Disk));

    let first = cluster.start(1, &[]);
    wait_for_follower(&second, &first);
    let lost = Lost { cluster: &cluster };
    lost.check_list();

    // It is a learner: it may not write again before it has joined.
    let (is_done, printed) = cluster.command(&["switch", "--to", "1"]);
    assert!(
        !is_done && printed.contains("is a learner of partition 0"),
        "{printed}"
    );
    let (is_done, printed) = cluster.command(&["sync", "--node", "1"]);
    assert!(is_done && printed.contains("in the sync set"), "{printed}");
    // The node writes again and shows the values of the other node. Its own unshipped records are
    // gone from it.
    cluster.does(&["switch", "--to", "1"]);
    model.check(&first.client(AckLevel::Disk));
    cluster.does(&["switch", "--to", "2"]);

    first.stop();
    lost.keep_twice();
    lost.check_list();
    second.stop();
}
