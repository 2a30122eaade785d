//! Two real servers as nodes of one cluster on loopback, with different numbers of shards: what is
//! acknowledged on the one that writes reaches the other, over kill -9 of either; the other one
//! takes over with all that was acknowledged at level `replica`; who may not link is refused by
//! name.

mod certificates;
mod channels;
mod encrypted;
mod etcd;
mod export;
mod failover;
mod keyspaces;
mod ledger;
mod lost;
pub mod nodes;
mod older;
mod past;
mod pki;
mod promotion;
mod reads;
mod replicas;
mod resp;
mod shards;
mod strangers;
mod switches;
mod third_party;
mod units;
mod upgrade;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;

use penstock_client::{Client, ClientError, ClientOptions, Verbs};
use penstock_net::keyspace::Action;
use penstock_net::level::AckLevel;
use penstock_net::request::{Condition, Expiry};
use penstock_net::status::Status;

use self::nodes::{
    Cluster, Server, is_within_patience, until, wait_for_follower, wait_for_primary, write_secret,
};
use crate::command::command;
use crate::process::{beside_clusters, signal};

/// What must be there.
#[derive(Default)]
struct Model(BTreeMap<Vec<u8>, Vec<u8>>);

const KEYS: u32 = 3_000;

impl Model {
    /// Sets most keys and deletes some; all of it is acknowledged.
    fn change(&mut self, client: &Client, round: u32) {
        for some in (0..KEYS).collect::<Vec<_>>().chunks(500) {
            let mut sets = Vec::new();
            let mut deletions = Vec::new();
            for &number in some {
                let key = format!("key:{number}").into_bytes();
                if (number + round).is_multiple_of(5) {
                    deletions.push(client.del(&key));
                    self.0.remove(&key);
                } else {
                    let value = format!("{round}/{number}").repeat(1 + number as usize % 9);
                    sets.push(client.set(&key, value.as_bytes()));
                    self.0.insert(key, value.into_bytes());
                }
            }
            sets.into_iter()
                .for_each(|set| drop(set.wait().expect("acknowledged")));
            for deletion in deletions {
                // A key that was not there is no failure.
                match deletion.wait() {
                    Ok(_) | Err(ClientError::No(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    fn check(&self, client: &Client) {
        let keys = (0..KEYS).map(|number| format!("key:{number}").into_bytes());
        let asked: Vec<_> = keys.map(|key| (client.get(&key), key)).collect();
        for (pending, key) in asked {
            let found = pending
                .wait()
                .expect("read")
                .map(|value| value.bytes.to_vec());
            assert_eq!(found.as_ref(), self.0.get(&key), "{}", key.escape_ascii());
        }
    }
}

/// The primary answers a command whose address is that of a replica, too.
fn commands_find_who_writes(first: &Server, second: &Server) {
    let addresses = format!("127.0.0.1:1,{}", second.address);
    let set = command(&[
        "set",
        "asked",
        "elsewhere",
        "--level",
        "replica",
        "--addr",
        &addresses,
    ])
    .output()
    .expect("it runs");
    let printed = String::from_utf8_lossy(&set.stdout).into_owned();
    assert!(
        printed.contains("level replica"),
        "{printed} {:?}",
        set.stderr
    );
    let follows = Client::connect(second.address, ClientOptions::default()).expect("it listens");
    let value = follows.get(b"asked").wait().expect("followed");
    assert_eq!(&*value.expect("there").bytes, b"elsewhere");
    let keys = first.client(AckLevel::Disk);
    let keys = keys.scan(b"", false).map(|entry| entry.expect("told").key);
    assert!(
        keys.into_iter()
            .all(|key| !key.starts_with(b"\0\0penstock/")),
        "a node notes its epochs under keys of its own"
    );

    until("the table tells how both are", || {
        let status = command(&["cluster", "status", "--addr", &second.address.to_string()])
            .output()
            .expect("it runs");
        let table = String::from_utf8_lossy(&status.stdout).into_owned();
        println!("{table}");
        let row = |from: &str, has: &[&str]| {
            let mut lines = table.lines().map(|line| line.split_whitespace());
            lines.any(|words| {
                let words: Vec<&str> = words.collect();
                words[0] == from && has.iter().all(|it| words.contains(it))
            })
        };
        status.status.success()
            && row("1", &["primary", "0-255", "1.0"])
            && row("1", &["2", "sync", "(256)", "live", "0.0"])
            && row("2", &["following", "(sync)", "0-255", "1.0"])
    });
}

#[test]
fn what_is_acknowledged_reaches_the_other_node_over_kills_of_both_and_it_takes_over() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-take-over");
    let mut model = Model::default();

    // Alone at first: nobody is waited for but at level replica.
    let first = cluster.start(1, &["--cluster-new"]);
    wait_for_primary(&first);
    model.change(&first.client(AckLevel::Disk), 1);
    let second = cluster.start(2, &[]);
    wait_for_follower(&first, &second);
    let elsewhere = second.client(AckLevel::Disk).get(b"key:1").wait();
    let text = elsewhere.expect_err("it does not write it").to_string();
    assert!(
        text.contains(&format!("is written by node 1 at {}", first.address)),
        "{text}"
    );

    commands_find_who_writes(&first, &second);

    // The follower is killed, misses some, and comes back.
    drop(second);
    model.change(&first.client(AckLevel::Disk), 2);
    let second = cluster.start(2, &[]);
    wait_for_follower(&first, &second);
    model.change(&first.client(AckLevel::Replica), 3);

    // The primary is killed and goes on by itself.
    drop(first);
    let first = cluster.start(1, &[]);
    wait_for_primary(&first);
    model.check(&first.client(AckLevel::Disk));
    wait_for_follower(&first, &second);
    model.change(&first.client(AckLevel::Replica), 4);

    // It is killed for good, and the other one takes over with all that it had told to have
    // received.
    drop(first);
    cluster.place(2, 2);
    wait_for_primary(&second);
    model.check(&second.client(AckLevel::Disk));
    model.change(&second.client(AckLevel::Disk), 5);

    // The old primary comes back as the one that holds it.
    let first = cluster.start(1, &[]);
    wait_for_follower(&second, &first);
    model.change(&second.client(AckLevel::Replica), 6);
    wait_for_follower(&second, &first);

    // Behind a start it does not know whether it had received more.
    drop(second);
    drop(first);
    cluster.place(1, 3);
    let first = cluster.start(1, &[]);
    until("it refuses to write what it may not have", || {
        first.has_said("promote this one with --accept-loss")
    });
    let (is_done, text) = cluster.command(&["promote", "--to", "1", "--force"]);
    assert!(
        !is_done && text.contains("is idle, not following"),
        "{text}"
    );
    cluster.does(&["promote", "--to", "1", "--force", "--accept-loss"]);
    wait_for_primary(&first);
    model.check(&first.client(AckLevel::Disk));
    let second = cluster.start(2, &[]);
    wait_for_follower(&first, &second);
    first.stop();
    second.stop();
}

#[test]
fn a_third_node_comes_joins_takes_over_and_goes_while_the_others_run() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-members");
    let mut model = Model::default();
    let (first, second) = cluster.start_two();
    model.change(&first.client(AckLevel::Replica), 1);

    let third = cluster.add_third(&first);
    let (is_done, printed) = cluster.edit(&["add", "--node", &cluster.third()]);
    assert!(!is_done && printed.contains("there is node 3"), "{printed}");

    // Who was not waited for is not promoted, and who is joining is waited for.
    let (is_done, printed) = cluster.command(&["promote", "--to", "3", "--force"]);
    assert!(
        !is_done && printed.contains("node 1 answers and writes"),
        "{printed}"
    );
    let all_the_same = ["promote", "--to", "3", "--force", "--partitions", "0-255"];
    let (is_done, printed) = cluster.command(&all_the_same);
    assert!(!is_done && printed.contains("--accept-loss"), "{printed}");
    third.freeze();
    model.change(&first.client(AckLevel::Disk), 2);
    let (is_done, printed) = cluster.edit(&["sync", "--node", "3", "--wait-ms", "500"]);
    assert!(!is_done && printed.contains("still joining"), "{printed}");
    let client = first.client(AckLevel::Replica);
    let waits = client.set(b"key:1", b"waits");
    let (is_done, printed) = cluster.command(&all_the_same);
    assert!(!is_done, "{printed}");
    third.signal("-CONT");
    waits.wait().expect("the third node has it, too");
    model.0.insert(b"key:1".to_vec(), b"waits".to_vec());
    cluster.does(&["sync", "--node", "3"]);
    model.change(&first.client(AckLevel::Replica), 3);

    // The primary is lost: the third node writes, and does not wait for who is gone.
    drop(first);
    let (is_done, printed) = cluster.command(&["switch", "--to", "3"]);
    assert!(
        !is_done && printed.contains("penstock cluster promote"),
        "{printed}"
    );
    let (is_done, printed) = cluster.command(&["promote", "--to", "3", "--force"]);
    assert!(
        is_done && printed.contains("level replica waits for node 2"),
        "{printed}"
    );
    model.check(&third.client(AckLevel::Disk));
    model.change(&third.client(AckLevel::Replica), 4);
    wait_for_follower(&third, &second);

    // The lost one is taken out, and stays out.
    let (is_done, printed) = cluster.edit(&["drop", "--node", "3"]);
    assert!(
        !is_done && printed.contains("writes partition 0"),
        "{printed}"
    );
    cluster.edits(&["drop", "--node", "1"]);
    cluster.does(&["switch", "--to", "2"]);
    let (is_done, printed) = cluster.edit(&["drop", "--node", "3"]);
    assert!(
        is_done && printed.contains("NOREPLICAS"),
        "nobody is left to wait for: {printed}"
    );
    until("it hears that it is out", || {
        third.has_said("is not in it any more")
    });
    model.check(&second.client(AckLevel::Disk));
    // A write that came before the file was read waits for node 3 and is executed.
    until("nobody is waited for, so nothing is executed", || {
        let answer = second.client(AckLevel::Replica).set(b"key:1", b"x").wait();
        let Err(ClientError::Unknown(printed)) = answer else {
            return false;
        };
        printed.text().contains("nothing was executed")
    });
}

#[test]
fn level_replica_is_not_reached_without_the_other_node_and_never_falls_back() {
    let _clusters = beside_clusters();
    let cluster = Cluster::with_timeout("cluster-alone", 50);
    let first = cluster.start(1, &["--cluster-new"]);
    wait_for_primary(&first);
    let answer = first.client(AckLevel::Replica).set(b"key", b"value").wait();
    match answer {
        Err(ClientError::Unknown(it)) => assert!(it.text().contains("NOREPLICAS"), "{it}"),
        other => panic!("{other:?}"),
    }
    let value = first
        .client(AckLevel::Disk)
        .get(b"key")
        .wait()
        .expect("read");
    assert_eq!(&*value.expect("it was executed").bytes, b"value");
    // A condition that fails changes nothing, and the answer says so.
    let refused = first
        .client(AckLevel::Replica)
        .set_with(b"key", b"other", Condition::Absent, Expiry::Never)
        .wait();
    match refused {
        Err(ClientError::Unknown(it)) => {
            assert!(it.text().contains("nothing was changed"), "{it}");
        }
        other => panic!("{other:?}"),
    }
    // Nobody waits for others here, so it is not said either.
    let list = |level| first.client(level).keyspace(b"", Action::List).wait();
    assert!(list(AckLevel::Disk).expect("read").is_empty());
    match list(AckLevel::Replica) {
        Err(ClientError::Refused(answer)) => assert_eq!(answer.status, Status::Unsupported),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_file_does_not_let_a_reply_go_that_waits_for_the_other_node() {
    let _clusters = beside_clusters();
    let cluster = Cluster::with_timeout("cluster-replaced", 3_000);
    let (first, second) = cluster.start_two();
    let client = first.client(AckLevel::Replica);
    client.set(b"key", b"both").wait().expect("acknowledged");

    // It takes nothing any more, and then the file says that it writes.
    second.freeze();
    let waits = client.set(b"key", b"one");
    until("it was executed", || {
        let read = first.client(AckLevel::None).get(b"key").wait();
        read.expect("read")
            .is_some_and(|value| &*value.bytes == b"one")
    });
    cluster.place(2, 2);
    match waits.wait() {
        Err(ClientError::Unknown(it)) => assert!(it.text().contains("NOREPLICAS"), "{it}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_does_not_know_the_secret_is_refused_by_name_and_no_start_goes_on_with_the_wrong_directory() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-refused");
    let first = cluster.start(1, &["--cluster-new"]);
    wait_for_primary(&first);
    let other = "another secret that is long enough, too";
    write_secret(&cluster.folder.join("other"), other);
    cluster.write("other.toml", "other", 1, 1);
    let second = cluster.start_by("other.toml", 2, &[]);
    until("both tell why", || {
        first.has_said("does not know the secret of the cluster")
            && second.has_said("does not know the secret of the cluster")
    });
    assert_eq!(second.stand().0.as_deref(), Some("idle"));
    second.stop();

    // What is wrong in another way each time is told once.
    let failures = || first.number("penstock_replication_handshakes_failed_total", &[]);
    let before = failures();
    for byte in 0..40 {
        let mut stream = TcpStream::connect(("127.0.0.1", cluster.links[0])).expect("it listens");
        stream.write_all(&[byte; 48]).expect("taken");
    }
    until("all are refused", || failures() >= before + 40.0);
    let printed = first.said("a link from 127.0.0.1 is refused: ");
    let of_bytes = printed.iter().filter(|line| !line.contains("secret"));
    assert!(of_bytes.count() <= 2, "{printed:?}");
    first.stop();

    // A directory of a cluster is no node's alone, and a new one is not taken for one that is lost.
    let alone = command(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--shard-ports",
        "0",
        "--data",
    ])
    .arg(cluster.data(1))
    .output()
    .expect("it runs");
    let printed = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(
        !alone.status.success() && printed.contains("--cluster"),
        "{printed}"
    );
    fs::remove_dir_all(cluster.data(1)).expect("removed");
    let lost = cluster.start(1, &[]);
    until("it does not begin an empty past", || {
        lost.has_said("nothing of it is here")
    });
    assert_eq!(lost.stand().0.as_deref(), Some("idle"));
}

#[test]
fn a_start_as_a_node_of_a_directory_that_was_written_alone_is_refused_and_changes_nothing() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-alone-before");
    let serve = |more: &[&str]| {
        let mut serve = command(&["serve", "--shards", "2", "--shard-ports", "0"]);
        serve
            .args(["--listen", &format!("127.0.0.1:{}", cluster.clients[0])])
            .args(["--admin-listen", "off"])
            .args(["--cache-bytes", "1MiB", "--value-bytes-max", "16KiB"])
            .args(["--segment-bytes", "2MiB", "--data"])
            .arg(cluster.data(1))
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        serve
    };
    let mut server = serve(&[]).spawn().expect("it starts");
    let address = format!("127.0.0.1:{}", cluster.clients[0]);
    let alone = |words: &[&str]| {
        let done = command(words).args(["--addr", &address]).output();
        done.expect("it runs")
    };
    // Nothing is in the log of the other shard, which so sees nothing wrong.
    let mut printed = String::new();
    let is_set = is_within_patience(|| {
        let set = alone(&["set", "key", "value"]);
        printed = String::from_utf8_lossy(&set.stderr).into_owned();
        set.status.success() || server.try_wait().expect("ours").is_some()
    });
    if !is_set || server.try_wait().expect("ours").is_some() {
        let _ = server.kill();
        let said = server.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        panic!("it does not answer, but: {printed}\n{said}");
    }
    signal(server.id(), "-TERM");
    assert!(server.wait().expect("it ends").success());

    for more in [&["--cluster-new"][..], &[]] {
        let refused = serve(&["--cluster-node", "1", "--cluster"])
            .arg(cluster.folder.join("cluster.toml"))
            .args(more)
            .output()
            .expect("it runs");
        let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && printed.contains("holds what a node alone wrote"),
            "{printed}"
        );
        assert!(!cluster.data(1).join("PEERS").exists(), "{printed}");
    }
    let mut server = serve(&[]).spawn().expect("it starts");
    let mut printed = Vec::new();
    until("it answers", || {
        assert!(server.try_wait().expect("ours").is_none(), "it is refused");
        let found = alone(&["get", "key"]);
        printed = found.stdout;
        found.status.success()
    });
    server.kill().expect("ours");
    server.wait().expect("it ends");
    assert_eq!(printed, b"value");
}
