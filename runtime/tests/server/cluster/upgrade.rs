//! A cluster whose nodes are upgraded one after the other, under load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use penstock::config::{Settings, Sources};
use penstock::server::logging::Logging;
use penstock_client::{Client, ClientError, Field, Verbs};
use penstock_net::keyspace::{Action, Settings as KeyspaceSettings};
use penstock_net::level::AckLevel;
use penstock_net::link::frame::LINK_VERSION;
use penstock_net::status::Status;

use super::ledger::stock_of;
use super::nodes::{Cluster, LINKS_UP_TO, Server, until, wait_for_follower};
use crate::process::beside_clusters;

const STOCK: u64 = 1_000_000_000;

/// Not a test by itself: a node of another one.
#[test]
#[ignore = "a test of upgrades starts it, in a process of its own"]
fn serves_as_an_earlier_build() {
    let Ok(version) = std::env::var(LINKS_UP_TO) else {
        return;
    };
    penstock::cluster::offer_links_up_to(version.parse().expect("a number"));
    let sources = Sources::of_process(Vec::new(), None).expect("read");
    let settings = Settings::resolve(&sources).expect("options");
    let logging = Logging::install(&settings.config).expect("standard error");
    penstock::server::serve(settings.config, &logging).expect("served");
}

/// Sells one unit after the other until it is over; how many were acknowledged.
fn sell(client: &Client, sold: &AtomicU64, is_over: &AtomicBool) {
    let sale = [Field::u64(0).at_least(1), Field::u64(0).decrease(1)];
    while !is_over.load(Ordering::Relaxed) {
        client.update_if(b"stock", &sale).wait().expect("sold");
        sold.fetch_add(1, Ordering::Relaxed);
    }
}

/// Asks for level `all` as the least one of a keyspace. The text of the refusal, if it is refused.
fn asks_for_all(at: &Server) -> Option<String> {
    let settings = KeyspaceSettings {
        level_min: AckLevel::All,
        ..KeyspaceSettings::default()
    };
    let client = at.client(AckLevel::Disk);
    match client.keyspace(b"all:", Action::Set(settings)).wait() {
        Ok(_) => None,
        Err(ClientError::Refused(answer)) if answer.status == Status::Unsupported => {
            Some(String::from_utf8_lossy(&answer.value).into_owned())
        }
        Err(error) => panic!("{error}"),
    }
}

fn is_refused_for(at: &Server, node: u8) -> bool {
    let text = asks_for_all(at).expect("not all of them offer it");
    text.contains(&format!("node {node} has not offered that"))
}

#[test]
fn level_all_is_refused_by_the_name_of_the_node_until_the_last_one_of_three_is_upgraded() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-upgrade");
    let first = cluster.start(1, &["--cluster-new"]);
    first.until_role("primary");
    let second = cluster.start_earlier(2, LINK_VERSION.into());
    wait_for_follower(&first, &second);
    cluster.edits(&["add", "--node", &cluster.third()]);
    let third = cluster.start_earlier(3, LINK_VERSION.into());
    wait_for_follower(&first, &third);
    cluster.does(&["sync", "--node", "3"]);
    let set = first.client(AckLevel::Replica);
    let set = set.set(b"stock", &STOCK.to_le_bytes()).wait();
    set.expect("acknowledged");

    let levels = [AckLevel::Disk, AckLevel::Replica, AckLevel::None];
    let sold = levels.map(|_| AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let all_sell = |what: &str| {
        let before: Vec<u64> = sold.iter().map(|it| it.load(Ordering::Relaxed)).collect();
        until(what, || {
            let mut pairs = sold.iter().zip(&before);
            pairs.all(|(now, before)| now.load(Ordering::Relaxed) > before + 20)
        });
    };
    let nodes = std::thread::scope(|scope| {
        for (level, sold) in levels.into_iter().zip(&sold) {
            let (client, is_over) = (first.client(level), &is_over);
            scope.spawn(move || sell(&client, sold, is_over));
        }
        all_sell("nodes of both builds sell");
        assert!(is_refused_for(&first, 2));
        drop(second);
        let second = cluster.start(2, &[]);
        until("node 2 offers it", || is_refused_for(&first, 3));
        all_sell("node 2 is back");
        drop(third);
        let third = cluster.start(3, &[]);
        until("all offer it", || asks_for_all(&first).is_none());
        all_sell("all are upgraded");
        is_over.store(true, Ordering::Relaxed);
        (second, third)
    });
    let acked: u64 = sold.iter().map(|it| it.load(Ordering::Relaxed)).sum();
    assert_eq!(STOCK - stock_of(&first), acked);
    let outcome = first.client(AckLevel::None).set(b"all:1", b"value").wait();
    assert_eq!(outcome.expect("set").level, AckLevel::All);
    wait_for_follower(&first, &nodes.0);
    wait_for_follower(&first, &nodes.1);
    cluster.has_lost_nothing();
}

#[test]
fn ports_of_cores_are_refused_by_the_name_of_the_node_until_each_node_reads_them() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-upgrade-ports");
    let first = cluster.start(1, &["--cluster-new"]);
    first.until_role("primary");
    let second = cluster.start_earlier(2, LINK_VERSION.into());
    wait_for_follower(&first, &second);
    let plan = || std::fs::read_to_string(cluster.folder.join("cluster.toml")).expect("there");
    let before = plan();
    let third = format!("{},127.0.0.1:7413,7430-7431", cluster.third());
    let add = || cluster.edit(&["add", "--node", &third]);
    let is_refused = |cause: &str| {
        let (is_done, text) = add();
        assert!(!is_done && text.contains(cause), "{text}");
        assert!(text.contains("node 2 at "), "{text}");
        assert_eq!(plan(), before);
    };
    is_refused("is of an earlier build, which refuses a plan with resp_ports");
    drop(second);
    is_refused("may be of an earlier build, which refuses a plan with resp_ports");
    let second = cluster.start(2, &[]);
    wait_for_follower(&first, &second);
    let (is_done, text) = add();
    assert!(
        is_done && plan().contains("resp_ports = [7430, 7431]"),
        "{text}"
    );
}
