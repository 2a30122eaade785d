//! What real servers of one cluster tell of their replicas: who is ready for what, how far one is
//! behind that stands still or is gone, that nobody waits for it who did not ask for that, and what
//! it takes back.

use penstock_client::{ClientError, Verbs};
use penstock_net::level::AckLevel;

use super::nodes::{Cluster, Server, until, wait_for_follower, wait_for_primary, write_secret};
use crate::process::beside_clusters;
use crate::promql::missing_from;
use crate::scrape::Numbers;

/// Partitions of a cluster.
const ALL: f64 = 256.0;

impl Server {
    /// A number of `/metrics`, of all shards together.
    pub fn number(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let (status, body) = self.page("/metrics");
        assert_eq!(status, 200, "{body}");
        Numbers::read(&body).sum(name, labels)
    }

    fn partitions_that_are(&self, role: &str) -> f64 {
        self.number("penstock_replication_partitions", &[("role", role)])
    }

    /// Asks until all of it is so.
    fn until_ready(&self, page: &str, status: u16, part: &str) {
        let mut last = String::new();
        until(&format!("{page}: {status} {part}"), || {
            let (found, body) = self.page(page);
            if last != body {
                println!("{page}: {found} {body}");
                last.clone_from(&body);
            }
            found == status && body.contains(part)
        });
    }

    /// Asks until the number is this.
    fn until_number(&self, name: &str, labels: &[(&str, &str)], wanted: f64) {
        let mut last = f64::NAN;
        until(&format!("{name} {labels:?} is {wanted}"), || {
            let found = self.number(name, labels);
            if found != last {
                println!("{name} {labels:?} is {found}");
                last = found;
            }
            found == wanted
        });
    }

    fn until_level(&self, peer: &str, shards: f64) {
        let of = [("peer", peer)];
        self.until_number("penstock_replication_link_state", &of, 3.0 * shards);
        for name in ["lag", "durable_lag"] {
            for unit in ["records", "bytes", "seconds"] {
                let name = format!("penstock_replication_{name}_{unit}");
                self.until_number(&name, &of, 0.0);
            }
        }
    }
}

const WRITERS: u32 = 4;

/// Each of four sets keys of its own, one after the other: all is acknowledged.
fn write(server: &Server, each: u32, value: &[u8]) {
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let client = server.client(AckLevel::Disk);
                let sets = (0..each).map(|number| format!("{writer}:{number}"));
                let sets: Vec<_> = sets.map(|key| client.set(key.as_bytes(), value)).collect();
                for set in sets {
                    set.wait().expect("acknowledged");
                }
            });
        }
    });
}

/// What the deployed rules and queries ask of replication, a primary or a member tells, with these
/// labels.
fn check_deployed_names(nodes: [&Server; 2]) {
    let samples = nodes.map(|node| Numbers::read(&node.page("/metrics").1).samples);
    let missing = missing_from(
        &samples.concat(),
        &["penstock_replication_", "penstock_plan_"],
    );
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_member_that_is_shipped_to_is_not_at_rest_and_takes_no_more_snapshots_than_its_primary() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("replicas-busy");
    let (first, second) = cluster.start_two();
    let taken = |server: &Server| server.number("penstock_snapshots_total", &[]);
    let before = [taken(&first), taken(&second)];
    // Longer than a shard must be at rest to take one, and more than it takes one for.
    let value = vec![7; 4 << 10];
    let since = std::time::Instant::now();
    while since.elapsed() < std::time::Duration::from_millis(3_500) {
        write(&first, 50, &value);
    }
    let since = [taken(&first) - before[0], taken(&second) - before[1]];
    println!("{since:?} snapshots of the primary and its member");
    // By the bytes that were logged, which both have alike but for the one that is due next in each
    // shard.
    assert!(since[1] <= since[0] + 2.0);
}

#[test]
fn a_replica_that_stands_still_lags_and_lets_nobody_wait_and_is_level_again_when_it_goes_on() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("replicas-still");
    let first = cluster.start(1, &["--cluster-new"]);
    first.until_ready(
        "/readyz?role=primary",
        200,
        "ready: primary of 256 partitions",
    );
    let to_second = [("peer", "2"), ("role", "sync")];
    let states = "penstock_replication_link_state";
    assert_eq!(first.number(states, &to_second), 0.0, "nobody is there");
    let second = cluster.start(2, &[]);
    second.until_ready("/readyz", 200, "ready: follows 256 partitions");
    second.until_ready("/readyz?role=primary", 503, "not primary");
    assert_eq!(second.page("/readyz?role=writer").0, 400);
    assert_eq!(second.page("/livez").0, 200);
    write(&first, 100, b"both");
    first.until_level("2", 2.0);
    assert_eq!(second.partitions_that_are("following"), ALL);
    assert_eq!(first.partitions_that_are("primary"), ALL);
    second.until_number(states, &[("peer", "1"), ("role", "primary")], 3.0);
    check_deployed_names([&first, &second]);

    // More than the links may have under way and more than a ring holds, of each shard.
    second.freeze();
    let value = vec![7; 16 << 10];
    let each = 1_000;
    write(&first, each, &value);
    let records = f64::from(WRITERS * each);
    let lag = "penstock_replication_lag_records";
    first.until_number(lag, &to_second, records);
    let shares = |name: &str| first.number(name, &to_second);
    assert!(shares("penstock_replication_lag_bytes") >= records * value.len() as f64);
    let seconds = shares("penstock_replication_lag_seconds");
    until("the lag grows with the time", || {
        shares("penstock_replication_lag_seconds") > seconds + 1.0
    });
    // The writers at level disk waited for nobody, and what stands still takes no more memory than
    // it may.
    assert_eq!(first.number("penstock_replication_waits_total", &[]), 0.0);
    let below = "penstock_replication_waits_below_replica_total";
    assert_eq!(first.number(below, &[]), 0.0);
    let waiting = "penstock_replication_waiting_replies";
    assert_eq!(first.number(waiting, &[]), 0.0);
    let mib = |name: &str| first.number(name, &[]) / f64::from(1 << 20);
    let (ring, buffers) = (
        mib("penstock_replication_ring_bytes"),
        mib("penstock_replication_buffer_bytes"),
    );
    println!("{ring} MiB of rings and {buffers} MiB of buffers in two shards");
    assert!(ring > 16.0 && ring <= 2.0 * 16.5, "{ring} MiB of rings");
    assert!(buffers <= 2.0 * 16.0, "{buffers} MiB of buffers");

    second.signal("-CONT");
    first.until_level("2", 2.0);
    second.until_ready("/readyz", 200, "follows 256 partitions");
    // Level replica waits, and is counted.
    let client = first.client(AckLevel::Replica);
    client.set(b"key", b"value").wait().expect("acknowledged");
    first.until_number("penstock_replication_waits_total", &[], 1.0);
    assert_eq!(first.number(below, &[]), 0.0);
    let durable = "penstock_replication_durable_seconds_count";
    assert!(first.number(durable, &[]) > 0.0);

    // The primary is gone: nobody is ready, and the table still shows who is there.
    drop(first);
    second.until_ready("/readyz", 503, "followed: 256 partitions: no link");
    assert_eq!(second.partitions_that_are("followed"), ALL);
    let (code, table) = cluster.run(&["status"]);
    assert!(
        code == 3 && table.contains("node 1 does not answer"),
        "{table}"
    );
    assert!(table.contains("followed (sync)"), "{table}");
    let (code, json) = cluster.run(&["status", "--json"]);
    let json: serde_json::Value =
        serde_json::from_str(json.lines().next().expect("a line")).expect("JSON");
    assert_eq!(code, 3);
    assert!(json["nodes"][0]["error"].is_string(), "{json}");
    assert_eq!(json["nodes"][1]["replication"]["roles"]["followed"], 256);
}

#[test]
fn what_a_node_wrote_alone_is_reported_as_lag_and_then_as_a_tail_and_noreplicas_is_counted() {
    let _clusters = beside_clusters();
    let cluster = Cluster::with_timeout("replicas-tail", 50);
    let first = cluster.start(1, &["--cluster-new"]);
    first.until_ready("/readyz", 200, "primary");
    let second = cluster.start(2, &[]);
    write(&first, 50, b"both");
    first.until_level("2", 2.0);

    // It is gone, and what it lacks is still known.
    drop(second);
    first.until_number("penstock_replication_link_state", &[("peer", "2")], 0.0);
    write(&first, 25, b"alone");
    let records = f64::from(WRITERS * 25);
    first.until_number(
        "penstock_replication_lag_records",
        &[("peer", "2")],
        records,
    );
    assert!(first.number("penstock_replication_lag_seconds", &[]) > 0.0);
    match first.client(AckLevel::Replica).set(b"0:0", b"alone").wait() {
        Err(ClientError::Unknown(it)) => assert!(it.text().contains("NOREPLICAS"), "{it}"),
        other => panic!("{other:?}"),
    }
    first.until_number("penstock_replication_noreplicas_total", &[], 1.0);
    first.until_number("penstock_replication_waiting_replies", &[], 0.0);
    assert_eq!(first.number("penstock_lostfound_bytes", &[]), 0.0);

    drop(first);
    let second = cluster.start(2, &[]);
    second.until_ready("/readyz", 503, "idle");
    let promote = ["promote", "--to", "2", "--force", "--accept-loss"];
    let (code, printed) = cluster.run(&promote);
    assert_eq!(code, 0, "{printed}");
    second.until_ready("/readyz?role=primary", 200, "primary of 256");
    let first = cluster.start(1, &[]);
    first.until_ready("/readyz", 200, "follows 256");
    let tail = first.number("penstock_replication_tail_records_total", &[]);
    // Those 101, and the record with which the first node began each of its partitions anew if it
    // did.
    assert!(tail > records, "{tail} records");
    assert!(first.number("penstock_lostfound_bytes", &[]) > 0.0);
    assert_eq!(first.number("penstock_replication_generation", &[]), 2.0);
}

#[test]
fn who_is_refused_in_the_handshake_is_counted_by_reason_on_both_sides() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("replicas-refused");
    let first = cluster.start(1, &["--cluster-new"]);
    let failed = "penstock_replication_handshakes_failed_total";
    until("nobody is there", || first.number(failed, &[]) > 0.0);
    // The first has read its secret; the second one reads another.
    let other = "another secret that is long enough, too";
    write_secret(&cluster.folder.join("secret"), other);
    let second = cluster.start(2, &[]);
    let refused = |server: &Server, by| {
        let labels = [("by", by), ("reason", "credentials")];
        server.number("penstock_replication_links_refused_total", &labels) > 0.0
    };
    until("the first counts it", || refused(&first, "here"));
    until("the second counts it", || refused(&second, "there"));
    let cluster_differs = [("reason", "cluster")];
    let strangers = first.number("penstock_replication_links_refused_total", &cluster_differs);
    assert_eq!(strangers, 0.0);
    first.until_ready("/readyz", 200, "primary of 256 partitions");
    second.until_ready("/readyz", 503, "idle: 256 partitions");
}

/// It has less disk than its primary.
#[test]
fn a_member_whose_log_is_full_says_so_and_goes_on_where_it_stood_when_it_has_room() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("replicas-full");
    let first = cluster.start(1, &["--cluster-new"]);
    wait_for_primary(&first);
    let small = cluster.start(2, &["--disk-bytes-max", "24MiB"]);
    wait_for_follower(&first, &small);
    let value = vec![7; 16 << 10];
    write(&first, 600, &value);
    until("it says so", || small.has_said("the log is full"));
    // The log line comes from the turn, and the figure is published behind some turns.
    let found = || small.number("penstock_replication_found_full_total", &[]);
    until("it is counted", || found() > 0.0);
    let (role, applied) = small.stand();
    assert_eq!(role.as_deref(), Some("following"));
    assert!(applied < first.stand().1, "not all of it finds room");
    // Nobody who writes waits for it, and once is enough.
    write(&first, 10, &value);
    assert_eq!(small.said("the log is full").len(), 1);
    small.stop();

    let second = cluster.start(2, &[]);
    wait_for_follower(&first, &second);
    assert_eq!(
        second.number("penstock_replication_found_full_total", &[]),
        0.0
    );
    second.stop();
    first.stop();
}
