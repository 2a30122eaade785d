//! Accounts of sales: what is acknowledged against what the stock lost, over kills and switches.

use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_client::{Client, ClientError, Field, Verbs};
use penstock_net::level::AckLevel;

use super::nodes::{Cluster, Server, until, wait_for_follower, wait_for_primary};
use crate::command::command;
use crate::process::beside_clusters;

const STOCK: u64 = 1_000_000_000;
const BUYERS: usize = 4;

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

pub fn stock_of(server: &Server) -> u64 {
    let stock = server.client(AckLevel::Disk).get(b"stock").wait();
    let stock = stock.expect("read").expect("there").bytes;
    u64::from_le_bytes(stock[..].try_into().expect("eight bytes"))
}

#[test]
fn sales_at_level_replica_survive_a_kill_of_the_primary_and_its_replacement_to_the_last_one() {
    let _clusters = beside_clusters();
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
    let _clusters = beside_clusters();
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

/// How the node that writes is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// The other node has received what it could.
    Beside,
    /// The other node was gone before, and what was sold since then is on no other node.
    Alone,
}

/// Sells by `penstock bench` through a switch and back, and then through a kill of the node that
/// writes and its replacement. `returned` is called when the killed node is back and sales go on,
/// with whether the killed node has sold alone. Returns the report, and whether its command has
/// found it balanced.
fn bench_through_changes(
    cluster: &Cluster,
    level: &str,
    loss: Loss,
    returned: impl FnOnce(bool),
) -> (serde_json::Value, bool) {
    let mut first = cluster.start(1, &["--cluster-new"]);
    wait_for_primary(&first);
    let mut second = cluster.start(2, &[]);
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
        let is_sold = || server.stand().1 > before + 100;
        until("it sells", || {
            is_sold() || bench.try_wait().expect("ours").is_some()
        });
        is_sold()
    };
    for (node, from, to) in [("2", &first, &second), ("1", &second, &first)] {
        wait_for_follower_role(to);
        sell(from);
        cluster.does(&["switch", "--to", node]);
    }
    sell(&first);
    wait_for_follower_role(&second);
    let mut has_sold_alone = false;
    if loss == Loss::Alone {
        drop(second);
        has_sold_alone = sell(&first);
        drop(first);
        second = cluster.start(2, &[]);
        cluster.does(&["promote", "--to", "2", "--force", "--accept-loss"]);
    } else {
        drop(first);
        cluster.does(&["promote", "--to", "2", "--force", "--keep-sync"]);
    }
    wait_for_primary(&second);
    first = cluster.start(1, &[]);
    wait_for_follower(&second, &first);
    returned(has_sold_alone);
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
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-bench-replica");
    let (report, is_balanced) = bench_through_changes(&cluster, "replica", Loss::Beside, |_| ());
    assert!(is_balanced, "{report}");
    assert!(report["acked"].as_u64().expect("a number") > 0, "{report}");
}

#[test]
fn a_bench_at_level_all_reaches_all_beside_a_member_and_disk_where_nobody_may_write_next() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-bench-all");
    let (first, second) = cluster.start_two();
    let reached = |at: &Server| {
        let mut bench = command(&["bench", "decr", "--level", "all", "--json"]);
        // It ends by its requests: a busy machine may do nothing within a time.
        bench.args(["--connections", "2", "--warmup", "0"]);
        bench.args(["--requests", "50", "--duration", "30"]);
        let output = bench.arg("--addr").arg(at.address.to_string()).output();
        let output = output.expect("it runs");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{printed}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let level = report["level_reached"]
            .as_str()
            .expect("a name")
            .to_string();
        (level, printed)
    };
    assert_eq!(reached(&first), ("all".into(), String::new()));
    cluster.edits(&["drop", "--node", "2"]);
    drop(second);
    until("nobody may write next", || {
        let (level, printed) = reached(&first);
        level == "disk" && printed.contains("no other node may write next")
    });
}

#[test]
fn a_bench_without_a_ledger_ends_where_another_node_writes_and_names_it() {
    let _clusters = beside_clusters();
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
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        let named = format!("the server at {} writes this now", writer.address);
        assert!(
            !output.status.success() && printed.contains(&named),
            "{printed}"
        );
    };
    ends(bench(&second), &first);
    let before = first.stand().1;
    let running = bench(&first);
    until("it writes", || first.stand().1 > before + 100);
    cluster.does(&["switch", "--to", "2"]);
    ends(running, &second);
}

/// By how much lostfound of node 1 has changed numbers of 8 bytes downwards. A record stands for as
/// many changes as ran together, so records are not counted.
fn units_in_lostfound(cluster: &Cluster) -> u64 {
    let listed = command(&["cluster", "lostfound", "--units"])
        .arg(cluster.data(1))
        .output()
        .expect("it runs");
    let error = String::from_utf8_lossy(&listed.stderr);
    assert!(listed.status.success(), "{error}");
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(!text.contains("unknown"), "{text}");
    let units = text.split("numbers of 8 bytes: ").nth(1);
    let units = units.and_then(|it| it.split(' ').next()).expect("a line");
    let changed: i64 = units.parse().expect("a number");
    u64::try_from(-changed).expect("sold, not returned")
}

#[test]
fn what_the_ledger_of_the_bench_misses_at_level_disk_is_in_lostfound() {
    let _clusters = beside_clusters();
    for (name, loss) in [("beside", Loss::Beside), ("alone", Loss::Alone)] {
        let cluster = Cluster::new(&format!("cluster-bench-disk-{name}"));
        let returned = |has_sold_alone: bool| {
            // The log is read while its node writes.
            let lost = units_in_lostfound(&cluster);
            assert!(lost > 0 || !has_sold_alone);
            assert!((0..30).all(|_| units_in_lostfound(&cluster) == lost));
        };
        let (report, is_balanced) = bench_through_changes(&cluster, "disk", loss, returned);
        let number = |name: &str| report[name].as_u64().expect("a number");
        let missing = report["ledger"]["missing"].as_u64().expect("a number");
        assert_eq!(is_balanced, missing == 0, "{report}");
        let lost = units_in_lostfound(&cluster);
        let sold = report["ledger"]["sold"].as_u64().expect("a number");
        let (acked, unknown) = (number("acked"), number("unknown") + number("unanswered"));
        println!("{acked} acknowledged, {unknown} unknown, {sold} sold, {lost} in lostfound");
        assert!((acked..=acked + unknown).contains(&(sold + lost)));
    }
}
