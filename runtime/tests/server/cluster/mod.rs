//! Two real servers as nodes of one cluster on loopback, with different numbers of shards: what is acknowledged on
//! the one that writes reaches the other, over kill -9 of either; the other one takes over with all that
//! was acknowledged at level `replica`; who may not link is refused by name.

mod nodes;
mod older;
mod promotion;
mod reads;
mod replay;
mod replicas;
mod shards;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use penstock_client::{Client, ClientError, ClientOptions, Field};
use penstock_net::keyspace::Action;
use penstock_net::level::AckLevel;
use penstock_net::request::{Condition, Expiry};
use penstock_net::status::Status;

use self::nodes::{
    Cluster, PATIENCE, Server, is_within_patience, until, wait_for_follower, wait_for_primary,
};
use crate::command::command;
use crate::process::the_machine;

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

#[test]
fn what_is_acknowledged_reaches_the_other_node_over_kills_of_both_and_it_takes_over() {
    let _one = the_machine();
    let cluster = Cluster::new("cluster-take-over");
    let mut model = Model::default();

    // Alone at first: nobody is waited for but at level replica.
    let first = cluster.start(1, &["--cluster-new"]);
    wait_for_primary(&first);
    model.change(&first.client(AckLevel::Disk), 1);
    let second = cluster.start(2, &[]);
    wait_for_follower(&first, &second);
    let elsewhere = second.client(AckLevel::Disk).get(b"key:1").wait();
    let told = elsewhere.expect_err("it does not write it").to_string();
    assert!(
        told.contains(&format!("is written by node 1 at {}", first.address)),
        "{told}"
    );

    // Who asks with a command, or does not say otherwise, is answered by whoever writes.
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
    let told = String::from_utf8_lossy(&set.stdout).into_owned();
    assert!(told.contains("level replica"), "{told} {:?}", set.stderr);
    let follows = Client::connect(second.address, ClientOptions::default()).expect("it listens");
    let value = follows.get(b"asked").wait().expect("followed");
    assert_eq!(&*value.expect("there").bytes, b"elsewhere");
    let told = first.client(AckLevel::Disk);
    let told = told.scan(b"", false).map(|entry| entry.expect("told").key);
    assert!(
        told.into_iter()
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

    // It is killed for good, and the other one takes over with all that it had told to have received.
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
    let (is_done, told) = cluster.command(&["promote", "--to", "1", "--force"]);
    assert!(
        !is_done && told.contains("is idle, not following"),
        "{told}"
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
fn what_the_old_primary_wrote_alone_is_kept_in_lostfound_and_taken_back() {
    let _one = the_machine();
    let cluster = Cluster::new("cluster-diverged");
    let mut model = Model::default();
    let (first, second) = cluster.start_two();
    model.change(&first.client(AckLevel::Replica), 1);
    let client = first.client(AckLevel::Replica);
    let stock = client.set(b"stock", &100_u64.to_le_bytes());
    stock.wait().expect("acknowledged");
    wait_for_follower(&first, &second);

    // What is written from here on is on one node alone.
    drop(second);
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
    drop(alone);
    drop(first);
    let second = cluster.start(2, &[]);
    cluster.does(&["promote", "--to", "2", "--force", "--accept-loss"]);
    wait_for_primary(&second);
    model.check(&second.client(AckLevel::Disk));

    let first = cluster.start(1, &[]);
    wait_for_follower(&second, &first);
    let check_list = || {
        let listed = command(&["cluster", "lostfound", "--all", "--units"])
            .arg(cluster.data(1))
            .output()
            .expect("it runs");
        let told = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(
            told.contains("-10 units by 1 keys"),
            "{told} {:?}",
            listed.stderr
        );
        // Each version once, all of those that were acknowledged and no other.
        let lines = || told.lines();
        let alone: BTreeSet<&str> = lines().filter(|it| it.ends_with(" 616c6f6e65")).collect();
        assert_eq!(alone.len(), 100, "{told}");
        let deletions = lines().filter(|it| it.ends_with(" key:2500 -"));
        assert_eq!(deletions.count(), 1, "{told}");
        let sales = lines().filter(|it| it.contains(" stock "));
        assert_eq!(sales.count(), 1, "{told}");
    };
    check_list();

    // It is a learner: it may not write again before it has joined.
    let (is_done, told) = cluster.command(&["switch", "--to", "1"]);
    assert!(
        !is_done && told.contains("is a learner of partition 0"),
        "{told}"
    );
    let (is_done, told) = cluster.command(&["sync", "--node", "1"]);
    assert!(is_done && told.contains("in the sync set"), "{told}");
    // What it had written alone is gone from it: it writes again, and shows what the other one had.
    cluster.does(&["switch", "--to", "1"]);
    model.check(&first.client(AckLevel::Disk));
    cluster.does(&["switch", "--to", "2"]);

    // What was lost is done again, but for what was changed since.
    let client = second.client(AckLevel::Disk);
    client.set(b"key:7", b"since").wait().expect("acknowledged");
    first.stop();
    let replay = |more: &[&str]| {
        let output = command(&["cluster", "lostfound", "replay"])
            .arg(cluster.data(1))
            .args(["--addr", &second.address.to_string()])
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
    };
    // As if an earlier start had kept it, too, up to a crash: a number is added once.
    let folder = cluster.data(1).join("lostfound");
    for entry in fs::read_dir(&folder).expect("there") {
        let path = entry.expect("read").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        let (_, shard) = name.split_once('-').expect("START-SHARD.records");
        let bytes = fs::read(&path).expect("read");
        let cut = &bytes[..bytes.len() - 8];
        fs::write(folder.join(format!("1-{shard}")), cut).expect("written");
    }
    check_list();
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
    let (code, told) = cluster.run_without_file(&[
        "lostfound",
        "replay",
        &cluster.data(1).display().to_string(),
        "--addr",
        &second.address.to_string(),
    ]);
    assert_eq!(code, 2, "{told}");
    assert!(
        told.contains("1-0.replayed tells what an earlier"),
        "{told}"
    );
    fs::remove_file(&earlier).expect("removed");
    for (told, done) in [
        (replay(&["--rule", "add", "--dry-run"]), "would be written"),
        (replay(&["--rule", "add"]), "written"),
    ] {
        assert!(
            told.contains(&format!("stock: 1 records, {done}")),
            "{told}"
        );
        assert!(told.contains("numbers of 8 bytes: -10"), "{told}");
    }
    assert_eq!(stock_of(&second), 75);
    let told = client.expiry(b"stock").wait().expect("read");
    let at_ms = told.map(|it| it.expiry_ms);
    assert_eq!(at_ms, Some(until_ms), "of what is there, not of what was");
    let told = replay(&["--dry-run"]);
    assert!(
        told.contains("key:7: 1 records, left: it was changed since"),
        "{told}"
    );
    assert!(told.contains("keys would be written"), "{told}");
    model.0.insert(b"key:7".to_vec(), b"since".to_vec());
    model.check(&client);
    let told = replay(&[]);
    // Of the deletion nothing is left to do if the key was gone before.
    assert!(told.contains(" keys written, "), "{told}");
    for number in (0..100).filter(|number| *number != 7) {
        let key = format!("key:{number}").into_bytes();
        model.0.insert(key, b"alone".to_vec());
    }
    model.0.remove(&b"key:2500"[..]);
    model.check(&client);
    let told = replay(&[]);
    assert!(told.contains("0 keys written"), "{told}");
    let told = replay(&["--rule", "add"]);
    assert!(
        told.contains("stock: 1 records, left: it was tried before"),
        "{told}"
    );
    assert_eq!(stock_of(&second), 75);
}

#[test]
fn a_switch_goes_on_when_the_node_that_hands_over_starts_again() {
    let _one = the_machine();
    let cluster = Cluster::new("cluster-switch-resumed");
    let mut model = Model::default();
    let (first, second) = cluster.start_two();
    model.change(&first.client(AckLevel::Replica), 1);

    // What is acknowledged at last is on one node alone, some of each partition, and that one goes down before it has
    // handed over.
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
    let _one = the_machine();
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

    // As behind a handover of which the last message was lost: it does not write any more, the other one has not begun.
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
fn a_third_node_comes_joins_takes_over_and_goes_while_the_others_run() {
    let _one = the_machine();
    let cluster = Cluster::new("cluster-members");
    let mut model = Model::default();
    let (first, second) = cluster.start_two();
    model.change(&first.client(AckLevel::Replica), 1);

    let third = cluster.add_third(&first);
    let (is_done, told) = cluster.edit(&["add", "--node", &cluster.third()]);
    assert!(!is_done && told.contains("there is node 3"), "{told}");

    // Who was not waited for is not promoted, and who is joining is waited for.
    let (is_done, told) = cluster.command(&["promote", "--to", "3", "--force"]);
    assert!(
        !is_done && told.contains("node 1 answers and writes"),
        "{told}"
    );
    let all_the_same = ["promote", "--to", "3", "--force", "--partitions", "0-255"];
    let (is_done, told) = cluster.command(&all_the_same);
    assert!(!is_done && told.contains("--accept-loss"), "{told}");
    third.freeze();
    model.change(&first.client(AckLevel::Disk), 2);
    let (is_done, told) = cluster.edit(&["sync", "--node", "3", "--wait-ms", "500"]);
    assert!(!is_done && told.contains("still joining"), "{told}");
    let client = first.client(AckLevel::Replica);
    let waits = client.set(b"key:1", b"waits");
    let (is_done, told) = cluster.command(&all_the_same);
    assert!(!is_done, "{told}");
    third.signal("-CONT");
    waits.wait().expect("the third node has it, too");
    model.0.insert(b"key:1".to_vec(), b"waits".to_vec());
    cluster.does(&["sync", "--node", "3"]);
    model.change(&first.client(AckLevel::Replica), 3);

    // The primary is lost: the third node writes, and does not wait for who is gone.
    drop(first);
    let (is_done, told) = cluster.command(&["switch", "--to", "3"]);
    assert!(
        !is_done && told.contains("penstock cluster promote"),
        "{told}"
    );
    let (is_done, told) = cluster.command(&["promote", "--to", "3", "--force"]);
    assert!(
        is_done && told.contains("level replica waits for node 2"),
        "{told}"
    );
    model.check(&third.client(AckLevel::Disk));
    model.change(&third.client(AckLevel::Replica), 4);
    wait_for_follower(&third, &second);

    // The lost one is taken out, and stays out.
    let (is_done, told) = cluster.edit(&["drop", "--node", "3"]);
    assert!(!is_done && told.contains("writes partition 0"), "{told}");
    cluster.edits(&["drop", "--node", "1"]);
    cluster.does(&["switch", "--to", "2"]);
    let (is_done, told) = cluster.edit(&["drop", "--node", "3"]);
    assert!(
        is_done && told.contains("NOREPLICAS"),
        "nobody is left to wait for: {told}"
    );
    until("it hears that it is out", || {
        third.has_said("is not in it any more")
    });
    model.check(&second.client(AckLevel::Disk));
    let answer = until_some("it is in force", || {
        let answer = second.client(AckLevel::Replica).set(b"key:1", b"x").wait();
        match answer {
            Err(ClientError::Unknown(text)) => Some(text),
            _ => None,
        }
    });
    assert!(answer.contains("nothing was executed"), "{answer}");
}

/// What is there as soon as something is.
fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(what, || {
        found = look();
        found.is_some()
    });
    found.expect("just found")
}

#[test]
fn a_switch_hands_over_all_that_was_acknowledged_and_nothing_diverges() {
    let _one = the_machine();
    let cluster = Cluster::new("cluster-switch");
    let first = cluster.start(1, &["--cluster-new"]);
    wait_for_primary(&first);
    let (is_done, told) = cluster.command(&["switch", "--to", "2"]);
    assert!(!is_done && told.contains("no server at"), "{told}");
    let second = cluster.start(2, &[]);
    wait_for_follower(&first, &second);

    // Each writes one key as fast as it can, on whichever node answers, and knows the last that was acknowledged.
    let over = Arc::new(AtomicBool::new(false));
    let addresses = [first.address, second.address];
    let writers: Vec<_> = (0..8)
        .map(|number| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || write_on_either(addresses, number, &over))
        })
        .collect();
    let half = ["switch", "--to", "2", "--partitions", "0-127"];
    let (is_done, told) = cluster.command(&half);
    assert!(
        is_done && told.contains("128 partitions of node 1"),
        "{told}"
    );
    for (node, of, server) in [("2", "1", &second), ("1", "2", &first), ("2", "1", &second)] {
        until("it holds all", || {
            let partitions = server.partitions();
            let holds =
                |it: &serde_json::Value| it["role"] == "following" || it["role"] == "primary";
            partitions.iter().all(holds)
        });
        let (is_done, told) = cluster.command(&["switch", "--to", node]);
        assert!(is_done && told.contains(&format!("of node {of}")), "{told}");
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
        // Whatever was acknowledged is there, whoever answers.
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

/// What those who buy know of their sales.
#[derive(Default)]
struct Ledger {
    acked: AtomicU64,
    unknown: AtomicU64,
}

impl Ledger {
    /// Buys one after the other until the server is gone.
    fn buy(&self, client: &Client) {
        let sale = [Field::u64(0).at_least(1), Field::u64(0).decrease(1)];
        loop {
            match client.update_if(b"stock", &sale).wait() {
                Ok(_) => drop(self.acked.fetch_add(1, Ordering::Relaxed)),
                Err(ClientError::Unknown(_)) => {
                    self.unknown.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(ClientError::NotSent(_)) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn until_acked(&self, count: u64) {
        until("enough is sold", || {
            self.acked.load(Ordering::Relaxed) >= count
        });
    }

    /// Whether this many may have been sold.
    fn check(&self, sold: u64) {
        let acked = self.acked.load(Ordering::Relaxed);
        let unknown = self.unknown.load(Ordering::Relaxed);
        println!("{acked} acknowledged, {unknown} unknown, {sold} sold");
        assert!((acked..=acked + unknown).contains(&sold));
    }
}

const STOCK: u64 = 1_000_000_000;
const BUYERS: usize = 4;

fn stock_of(server: &Server) -> u64 {
    let stock = server.client(AckLevel::Disk).get(b"stock").wait();
    let stock = stock.expect("read").expect("there").bytes;
    u64::from_le_bytes(stock[..].try_into().expect("eight bytes"))
}

#[test]
fn sales_at_level_replica_survive_a_kill_of_the_primary_and_its_replacement_to_the_last_one() {
    let _one = the_machine();
    let cluster = Cluster::new("cluster-ledger-replica");
    let (first, second) = cluster.start_two();
    let client = first.client(AckLevel::Replica);
    let stock = STOCK.to_le_bytes();
    client.set(b"stock", &stock).wait().expect("acknowledged");

    let ledger = Ledger::default();
    let buyers: Vec<Client> = (0..BUYERS)
        .map(|_| first.client(AckLevel::Replica))
        .collect();
    std::thread::scope(|scope| {
        for client in &buyers {
            scope.spawn(|| ledger.buy(client));
        }
        ledger.until_acked(500);
        drop(first);
    });
    cluster.does(&["promote", "--to", "2", "--force"]);
    ledger.check(STOCK - stock_of(&second));
}

#[test]
fn sales_of_one_node_that_are_missing_behind_its_replacement_are_those_in_its_lostfound() {
    let _one = the_machine();
    let cluster = Cluster::new("cluster-ledger-disk");
    let (first, second) = cluster.start_two();
    let client = first.client(AckLevel::Disk);
    let stock = STOCK.to_le_bytes();
    client.set(b"stock", &stock).wait().expect("acknowledged");

    let ledger = Ledger::default();
    let buyers: Vec<Client> = (0..BUYERS).map(|_| first.client(AckLevel::Disk)).collect();
    let alone = std::thread::scope(|scope| {
        for client in &buyers {
            scope.spawn(|| ledger.buy(client));
        }
        ledger.until_acked(500);
        drop(second);
        let alone = ledger.acked.load(Ordering::Relaxed);
        ledger.until_acked(alone + 500);
        drop(first);
        ledger.acked.load(Ordering::Relaxed) - alone
    });
    let second = cluster.start(2, &[]);
    cluster.does(&["promote", "--to", "2", "--force", "--accept-loss"]);
    let sold = STOCK - stock_of(&second);

    let first = cluster.start(1, &[]);
    wait_for_follower(&second, &first);
    let listed = command(&["cluster", "lostfound", "--all"])
        .arg(cluster.data(1))
        .output()
        .expect("it runs");
    let lines = String::from_utf8_lossy(&listed.stdout).into_owned();
    let lost = lines
        .lines()
        .filter(|line| line.contains(" stock "))
        .count() as u64;
    println!("{lost} in lostfound, at least {alone} were sold by one node");
    // Each of them may have shipped one before the other node was gone.
    assert!(lost + BUYERS as u64 >= alone, "{lost} of {alone}");
    ledger.check(sold + lost);
}

/// Sells by `penstock bench` through a switch and back, and then through a kill of the node that writes and its replacement.
/// Returns the report, and whether its command has found it balanced; the killed one is back.
fn bench_through_changes(cluster: &Cluster, level: &str) -> (serde_json::Value, bool) {
    let mut first = cluster.start(1, &["--cluster-new"]);
    wait_for_primary(&first);
    let second = cluster.start(2, &[]);
    wait_for_follower(&first, &second);
    let mut bench = command(&["bench", "decr", "--ledger", "--json", "--connections", "4"])
        .args(["--depth", "4", "--warmup", "0", "--duration", "8"])
        .args(["--level", level, "--addr"])
        .arg(format!("{},{}", first.address, second.address))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    // On a busy machine it may be over before all has happened; its account must hold in any case.
    let mut sell = |server: &Server| {
        let before = server.stand().1;
        until("it sells", || {
            server.stand().1 > before + 100 || bench.try_wait().expect("ours").is_some()
        });
    };
    for (node, from, to) in [("2", &first, &second), ("1", &second, &first)] {
        wait_for_follower_role(to);
        sell(from);
        cluster.does(&["switch", "--to", node]);
    }
    sell(&first);
    wait_for_follower_role(&second);
    drop(first);
    cluster.does(&["promote", "--to", "2", "--force", "--keep-sync"]);
    wait_for_primary(&second);
    first = cluster.start(1, &[]);
    let output = bench.wait_with_output().expect("it ends");
    wait_for_follower(&second, &first);
    let report = serde_json::from_slice(&output.stdout).expect("JSON");
    println!("{report}");
    (report, output.status.success())
}

fn wait_for_follower_role(server: &Server) {
    server.until_role("following");
}

#[test]
fn the_ledger_of_the_bench_at_level_replica_balances_over_switches_a_kill_and_a_promotion() {
    let _one = the_machine();
    let cluster = Cluster::new("cluster-bench-replica");
    let (report, is_balanced) = bench_through_changes(&cluster, "replica");
    assert!(is_balanced, "{report}");
    assert!(report["acked"].as_u64().expect("a number") > 0, "{report}");
}

#[test]
fn a_bench_without_a_ledger_ends_where_another_node_writes_and_names_it() {
    let _one = the_machine();
    let cluster = Cluster::new("cluster-bench-elsewhere");
    let (first, second) = cluster.start_two();
    let bench = |at: &Server| {
        let mut bench = command(&["bench", "set", "--connections", "2", "--duration", "60"]);
        bench
            .args(["--warmup", "0", "--addr"])
            .arg(at.address.to_string())
            .stderr(Stdio::piped())
            .stdout(Stdio::null());
        bench.spawn().expect("it starts")
    };
    let ends = |bench: std::process::Child, writer: &Server| {
        let output = bench.wait_with_output().expect("it ends");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let named = format!("the server at {} writes this now", writer.address);
        assert!(!output.status.success() && told.contains(&named), "{told}");
    };
    ends(bench(&second), &first);
    let before = first.stand().1;
    let running = bench(&first);
    until("it writes", || first.stand().1 > before + 100);
    cluster.does(&["switch", "--to", "2"]);
    ends(running, &second);
}

#[test]
fn what_the_ledger_of_the_bench_misses_at_level_disk_is_in_lostfound() {
    let _one = the_machine();
    let cluster = Cluster::new("cluster-bench-disk");
    let (report, is_balanced) = bench_through_changes(&cluster, "disk");
    let number = |name: &str| report[name].as_u64().expect("a number");
    let missing = report["ledger"]["missing"].as_u64().expect("a number");
    assert_eq!(is_balanced, missing == 0, "{report}");
    let listed = command(&["cluster", "lostfound", "--all"])
        .arg(cluster.data(1))
        .output()
        .expect("it runs");
    let lines = String::from_utf8_lossy(&listed.stdout).into_owned();
    let lost = lines.matches(" bench:stock ").count() as u64;
    let sold = report["ledger"]["sold"].as_u64().expect("a number");
    let (acked, unknown) = (number("acked"), number("unknown") + number("unanswered"));
    println!("{acked} acknowledged, {unknown} unknown, {sold} sold, {lost} in lostfound");
    assert!((acked..=acked + unknown).contains(&(sold + lost)));
}

#[test]
fn level_replica_is_not_reached_without_the_other_node_and_never_falls_back() {
    let _one = the_machine();
    let cluster = Cluster::with_timeout("cluster-alone", 50);
    let first = cluster.start(1, &["--cluster-new"]);
    wait_for_primary(&first);
    let answer = first.client(AckLevel::Replica).set(b"key", b"value").wait();
    match answer {
        Err(ClientError::Unknown(text)) => assert!(text.contains("NOREPLICAS"), "{text}"),
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
        Err(ClientError::Unknown(text)) => {
            assert!(text.contains("nothing was changed"), "{text}");
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
    let _one = the_machine();
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
        Err(ClientError::Unknown(text)) => assert!(text.contains("NOREPLICAS"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_does_not_know_the_secret_is_refused_by_name_and_no_start_goes_on_with_the_wrong_directory() {
    let _one = the_machine();
    let cluster = Cluster::new("cluster-refused");
    let first = cluster.start(1, &["--cluster-new"]);
    wait_for_primary(&first);
    fs::write(
        cluster.folder.join("other"),
        "another secret that is long enough, too",
    )
    .expect("written");
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
    let told = first.said("a link from 127.0.0.1 is refused: ");
    let of_bytes = told.iter().filter(|line| !line.contains("secret"));
    assert!(of_bytes.count() <= 2, "{told:?}");
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
    let told = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(
        !alone.status.success() && told.contains("--cluster"),
        "{told}"
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
    let _one = the_machine();
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
    let mut told = String::new();
    let is_set = is_within_patience(|| {
        let set = alone(&["set", "key", "value"]);
        told = String::from_utf8_lossy(&set.stderr).into_owned();
        set.status.success() || server.try_wait().expect("ours").is_some()
    });
    if !is_set || server.try_wait().expect("ours").is_some() {
        let _ = server.kill();
        let said = server.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        panic!("it does not answer, but: {told}\n{said}");
    }
    let stop = Command::new("kill")
        .arg(server.id().to_string())
        .status()
        .expect("kill runs");
    assert!(stop.success() && server.wait().expect("it ends").success());

    for more in [&["--cluster-new"][..], &[]] {
        let refused = serve(&["--cluster-node", "1", "--cluster"])
            .arg(cluster.folder.join("cluster.toml"))
            .args(more)
            .output()
            .expect("it runs");
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && told.contains("holds what a node alone wrote"),
            "{told}"
        );
        assert!(!cluster.data(1).join("PEERS").exists(), "{told}");
    }
    let mut server = serve(&[]).spawn().expect("it starts");
    let mut told = Vec::new();
    until("it answers", || {
        assert!(server.try_wait().expect("ours").is_none(), "it is refused");
        let found = alone(&["get", "key"]);
        told = found.stdout;
        found.status.success()
    });
    server.kill().expect("ours");
    server.wait().expect("it ends");
    assert_eq!(told, b"value");
}
