//! What only the old primary has: kept in its lostfound, listed, and taken back.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use penstock_client::{Client, Verbs};
use penstock_net::level::AckLevel;
use penstock_net::request::{Condition, Expiry};

use super::Model;
use super::ledger::stock_of;
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

/// The lostfound of node 1, and the node that writes instead.
struct Lost<'a> {
    cluster: &'a Cluster,
    writer: &'a Server,
}

impl Lost<'_> {
    /// Each version once, all of those that were acknowledged and no other.
    fn check_list(&self) {
        let listed = command(&["cluster", "lostfound", "--all", "--units"])
            .arg(self.cluster.data(1))
            .output()
            .expect("it runs");
        let told = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(
            told.contains("-10 units by 1 keys"),
            "{told} {:?}",
            listed.stderr
        );
        let lines = || told.lines();
        let alone: BTreeSet<&str> = lines().filter(|it| it.ends_with(" 616c6f6e65")).collect();
        assert_eq!(alone.len(), 100, "{told}");
        let deletions = lines().filter(|it| it.ends_with(" key:2500 -"));
        assert_eq!(deletions.count(), 1, "{told}");
        let sales = lines().filter(|it| it.contains(" stock "));
        assert_eq!(sales.count(), 1, "{told}");
    }

    /// Keeps all of it a second time, as an earlier start would have up to a crash: a number must
    /// be added once. Returns the folder.
    fn keep_twice(&self) -> PathBuf {
        let folder = self.cluster.data(1).join("lostfound");
        for entry in fs::read_dir(&folder).expect("there") {
            let path = entry.expect("read").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            let (_, shard) = name.split_once('-').expect("START-SHARD.records");
            let bytes = fs::read(&path).expect("read");
            let cut = &bytes[..bytes.len() - 8];
            fs::write(folder.join(format!("1-{shard}")), cut).expect("written");
        }
        folder
    }

    /// Replays it with these words; what the command says.
    fn replay(&self, more: &[&str]) -> String {
        let output = command(&["cluster", "lostfound", "replay"])
            .arg(self.cluster.data(1))
            .args(["--addr", &self.writer.address.to_string()])
            .args(more)
            .output()
            .expect("it runs");
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        // 1 says that all keys were left.
        let is_something = !told.contains("\n0 keys") || !told.contains(" 0 need nothing");
        let code = output.status.code();
        assert_eq!(code, Some(i32::from(!is_something)), "{told}");
        told
    }

    /// Adds the sales to what was sold since, once, and leaves the expiry.
    fn replay_sales(&self, client: &Client, folder: &Path) {
        let until_ms = 4_000_000_000_000;
        let stock = client.set_with(
            b"stock",
            &85_u64.to_le_bytes(),
            Condition::Always,
            Expiry::At(until_ms),
        );
        stock.wait().expect("acknowledged");
        let earlier = folder.join("1-0.replayed");
        fs::write(&earlier, "stock\n").expect("written");
        let (code, told) = self.cluster.run_without_file(&[
            "lostfound",
            "replay",
            &self.cluster.data(1).display().to_string(),
            "--addr",
            &self.writer.address.to_string(),
        ]);
        assert_eq!(code, 2, "{told}");
        assert!(
            told.contains("1-0.replayed tells what an earlier"),
            "{told}"
        );
        fs::remove_file(&earlier).expect("removed");
        for (told, done) in [
            (
                self.replay(&["--rule", "add", "--dry-run"]),
                "would be written",
            ),
            (self.replay(&["--rule", "add"]), "written"),
        ] {
            assert!(
                told.contains(&format!("stock: 1 records, {done}")),
                "{told}"
            );
            assert!(told.contains("numbers of 8 bytes: -10"), "{told}");
        }
        assert_eq!(stock_of(self.writer), 75);
        let told = client.expiry(b"stock").wait().expect("read");
        let at_ms = told.map(|it| it.expiry_ms);
        assert_eq!(at_ms, Some(until_ms), "of what is there, not of what was");
    }
}

#[test]
fn what_the_old_primary_wrote_alone_is_kept_in_lostfound_and_taken_back() {
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
    let lost = Lost {
        cluster: &cluster,
        writer: &second,
    };
    lost.check_list();

    // It is a learner: it may not write again before it has joined.
    let (is_done, told) = cluster.command(&["switch", "--to", "1"]);
    assert!(
        !is_done && told.contains("is a learner of partition 0"),
        "{told}"
    );
    let (is_done, told) = cluster.command(&["sync", "--node", "1"]);
    assert!(is_done && told.contains("in the sync set"), "{told}");
    // The node writes again and shows the values of the other node. Its own unshipped records are
    // gone from it.
    cluster.does(&["switch", "--to", "1"]);
    model.check(&first.client(AckLevel::Disk));
    cluster.does(&["switch", "--to", "2"]);

    // What was lost is done again, but for what was changed since.
    let client = second.client(AckLevel::Disk);
    client.set(b"key:7", b"since").wait().expect("acknowledged");
    first.stop();
    let folder = lost.keep_twice();
    lost.check_list();
    lost.replay_sales(&client, &folder);
    let told = lost.replay(&["--dry-run"]);
    assert!(
        told.contains("key:7: 1 records, left: it was changed since"),
        "{told}"
    );
    assert!(told.contains("keys would be written"), "{told}");
    model.0.insert(b"key:7".to_vec(), b"since".to_vec());
    model.check(&client);
    let told = lost.replay(&[]);
    // Of the deletion nothing is left to do if the key was gone before.
    assert!(told.contains(" keys written, "), "{told}");
    for number in (0..100).filter(|number| *number != 7) {
        let key = format!("key:{number}").into_bytes();
        model.0.insert(key, b"alone".to_vec());
    }
    model.0.remove(&b"key:2500"[..]);
    model.check(&client);
    let told = lost.replay(&[]);
    assert!(told.contains("0 keys written"), "{told}");
    let told = lost.replay(&["--rule", "add"]);
    assert!(
        told.contains("stock: 1 records, left: it was tried before"),
        "{told}"
    );
    assert_eq!(stock_of(&second), 75);
}
