//! INFO: one struct whose fields are the fields of the JSON text, in their order.

use std::collections::BTreeSet;

use penstock_net::link::Membership;
use penstock_net::status::Status;
use penstock_shard::accounts::answers::Asked;
use penstock_shard::cluster::{PartitionRole, PartitionStatus, ReplicationStatus};
use penstock_shard::replication::reads::Unread;
use penstock_shard::replication::{Duty, LinkState, PeerStatus};
use penstock_storage::histogram::{BUCKETS, quantile};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::blocks::{HISTOGRAMS, Reading, total};
use super::failover::{DecidedLast, FailoverFacts, FailoverReading};
use super::figures::FIGURES;
use super::peers::PEER_FIGURES;
use super::plan::PlanInForce;

/// What INFO tells.
#[derive(Serialize)]
pub(crate) struct Info<'a> {
    #[serde(flatten)]
    server: &'a ServerFacts,
    #[serde(flatten)]
    cluster: Option<Cluster<'a>>,
    #[serde(flatten)]
    memory: Memory,
    uptime_ms: u64,
    /// Left out where changes over several shards may be decided at any time: a backup that goes
    /// by it could tear one.
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<LogEnd>,
    /// Counters, summed over all shards.
    counters: Fields<u64>,
    /// What was answered, by what was asked.
    answers: Fields<Fields<u64>>,
    /// How long the stages took.
    histograms: Fields<Quantiles>,
    /// The counters of each shard.
    shards: Vec<Fields<u64>>,
}

/// What does not change while a server runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ServerFacts {
    pub(crate) version: &'static str,
    pub(crate) shard_count: u16,
    pub(crate) incarnation: u64,
    pub(crate) io: &'static str,
    pub(crate) durability: &'static str,
    pub(crate) interval_ms: u32,
    pub(crate) segment_bytes: u64,
    pub(crate) pid: u32,
}

/// The memory of the process.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Memory {
    #[serde(rename = "memory_max")]
    pub(crate) bytes_max: u64,
    pub(crate) resident_bytes: u64,
    /// What of it is prefaulted for values and not used yet.
    pub(crate) prefaulted_bytes: u64,
}

/// Up to where the log of a shard is durable.
#[derive(Serialize)]
pub(crate) struct LogEnd {
    pub(crate) shard: u16,
    pub(crate) id: u64,
    pub(crate) durable_lsn: u64,
    pub(crate) segment: u64,
    pub(crate) end_offset: u64,
    /// What a backup is told of changes over several shards, where there may be any.
    #[serde(flatten)]
    pub(crate) changes: Option<ChangesReport>,
}

/// What a backup is told of changes over several shards.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct ChangesReport {
    /// How many are decided and not closed.
    pub(crate) open_changes: usize,
    /// How many were decided since the start.
    pub(crate) decided_changes: u64,
    /// None is decided for a quarter of a second behind the question.
    pub(crate) is_held: bool,
}

/// What a node of a cluster tells besides.
#[derive(Serialize)]
pub(crate) struct Cluster<'a> {
    partitions: Vec<Partitions>,
    replication: Replication<'a>,
}

#[derive(Serialize)]
struct Replication<'a> {
    /// This one's number.
    node: u8,
    nodes: Vec<Node<'a>>,
    /// How many partitions the node has in each role.
    roles: Fields<usize>,
    peers: Vec<Peer>,
    /// Leases, and what this node decided by itself, while the plan has failover.
    #[serde(skip_serializing_if = "Option::is_none")]
    failover: Option<FailoverInfo>,
    /// The plan in force, if its changes are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<PlanInForce>,
}

/// What a node tells of its leases.
#[derive(Serialize)]
pub(crate) struct FailoverInfo {
    /// The least of what others lend; null if no partition that is written here waits for anybody.
    lease_left_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_last: Option<DecidedLast>,
    #[serde(flatten)]
    reading: FailoverReading,
}

impl FailoverInfo {
    /// `None` while a person decides.
    pub(crate) fn new(facts: &FailoverFacts) -> Option<Self> {
        let reading = facts.is_on().then(|| facts.read())?;
        Some(FailoverInfo {
            lease_left_us: reading.lease_left_us(),
            decided_last: facts.decided_last(),
            reading,
        })
    }
}

/// A node of the cluster, and where it takes clients.
#[derive(Serialize)]
struct Node<'a> {
    node: u8,
    clients: &'a str,
}

/// Neighbours with the same role, duty and epoch, with the sums of their sequences.
#[derive(Serialize)]
struct Partitions {
    first: u16,
    last: u16,
    role: &'static str,
    duty: &'static str,
    generation: u32,
    start: u32,
    node: u8,
    applied: u64,
    received: u64,
    durable: u64,
    was_last: bool,
    /// Ascending; a blank stands behind each comma.
    waits_for: Box<RawValue>,
    /// Only there if something cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    hangs_on: Option<UnreadPlace>,
}

/// A place of the log that was read in vain again and again.
#[derive(Serialize)]
struct UnreadPlace {
    file: u32,
    offset: u64,
    tries: u32,
}

impl From<Unread> for UnreadPlace {
    fn from(unread: Unread) -> Self {
        UnreadPlace {
            file: unread.file.0,
            offset: unread.offset,
            tries: unread.tries,
        }
    }
}

/// Another node, with what all shards know of it together. A number that one of them does not know
/// is null.
#[derive(Serialize)]
struct Peer {
    node: u8,
    role: &'static str,
    link: &'static str,
    #[serde(flatten)]
    figures: Fields<Option<u64>>,
}

#[derive(Serialize)]
struct Quantiles {
    count: u64,
    p50: u64,
    p99: u64,
    p999: u64,
}

/// An object with these fields, in this order.
struct Fields<T>(Vec<(&'static str, T)>);

impl<T: Serialize> Serialize for Fields<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'a> Info<'a> {
    /// From what each core has published.
    pub(crate) fn new(
        server: &'a ServerFacts,
        cluster: Option<Cluster<'a>>,
        memory: Memory,
        uptime_ms: u64,
        log: Option<LogEnd>,
        readings: &[Reading],
    ) -> Self {
        let sum = total(readings);
        Info {
            server,
            cluster,
            memory,
            uptime_ms,
            log,
            counters: counters(&sum),
            answers: answers(&sum),
            histograms: histograms(&sum),
            shards: readings.iter().map(counters).collect(),
        }
    }

    /// The text of INFO.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).expect("names and numbers")
    }
}

impl<'a> Cluster<'a> {
    /// From this node's number, the nodes, and what each core knows of them.
    pub(crate) fn new(
        me: u8,
        nodes: &'a [(u8, String)],
        cores: &[ReplicationStatus],
        plan: Option<PlanInForce>,
        failover: Option<FailoverInfo>,
    ) -> Self {
        let nodes = nodes.iter().map(|(node, clients)| Node {
            node: *node,
            clients,
        });
        Cluster {
            partitions: partitions(cores),
            replication: Replication {
                node: me,
                nodes: nodes.collect(),
                roles: roles(cores),
                peers: peers(cores),
                failover,
                plan,
            },
        }
    }
}

fn counters(reading: &Reading) -> Fields<u64> {
    let values = FIGURES.iter().zip(reading.figures);
    Fields(values.map(|(figure, value)| (figure.name, value)).collect())
}

/// The answers that were given at least once.
fn answers(sum: &Reading) -> Fields<Fields<u64>> {
    let rows = Asked::ALL.iter().zip(&sum.answers).map(|(asked, row)| {
        let counts = Status::ALL.iter().zip(row).filter(|(_, count)| **count > 0);
        let counts = counts.map(|(status, count)| (status.name(), *count));
        (asked.name(), Fields(counts.collect()))
    });
    Fields(rows.collect())
}

fn histograms(sum: &Reading) -> Fields<Quantiles> {
    let quantiles = |counts: &[u64; BUCKETS]| {
        let share = |share| quantile(counts, share).unwrap_or(0);
        Quantiles {
            count: counts.iter().sum(),
            p50: share(0.5),
            p99: share(0.99),
            p999: share(0.999),
        }
    };
    let all = HISTOGRAMS.iter().zip(&sum.histograms);
    Fields(
        all.map(|(name, counts)| (*name, quantiles(counts)))
            .collect(),
    )
}

fn partitions(cores: &[ReplicationStatus]) -> Vec<Partitions> {
    let all: Vec<&PartitionStatus> = cores.iter().flat_map(|it| &it.partitions).collect();
    let groups = all.chunk_by(|one, next| {
        let kind = |it: &PartitionStatus| (it.role, it.duty, it.epoch, it.was_last);
        kind(one) == kind(next)
            && one.waits_for == next.waits_for
            && one.hangs_on == next.hangs_on
            && one.partition + 1 == next.partition
    });
    let rows = groups.map(|group| {
        let (first, last) = (group[0], group[group.len() - 1]);
        let sum = |of: fn(&PartitionStatus) -> u64| group.iter().map(|it| of(it)).sum::<u64>();
        let waits_for = RawValue::from_string(format!("{:?}", first.waits_for));
        Partitions {
            first: first.partition,
            last: last.partition,
            role: first.role.name(),
            duty: first.duty.name(),
            generation: first.epoch.generation(),
            start: first.epoch.start(),
            node: first.epoch.node(),
            applied: sum(|it| it.applied),
            received: sum(|it| it.received),
            durable: sum(|it| it.durable),
            was_last: first.was_last,
            waits_for: waits_for.expect("a list of numbers"),
            hangs_on: first.hangs_on.map(UnreadPlace::from),
        }
    });
    rows.collect()
}

fn roles(cores: &[ReplicationStatus]) -> Fields<usize> {
    let count = |role| {
        let all = cores.iter().flat_map(|it| &it.partitions);
        all.filter(|it| it.role == role).count()
    };
    let roles = PartitionRole::ALL
        .iter()
        .map(|&role| (role.name(), count(role)));
    Fields(roles.filter(|(_, count)| *count > 0).collect())
}

fn peers(cores: &[ReplicationStatus]) -> Vec<Peer> {
    let all = || cores.iter().flat_map(|it| &it.peers);
    let is_source = |it: &PeerStatus| it.duty == Duty::Primary;
    let nodes: BTreeSet<(u8, bool)> = all().map(|it| (it.node, is_source(it))).collect();
    let rows = nodes.into_iter().map(|node| {
        let of_node = || all().filter(|it| (it.node, is_source(it)) == node);
        let duties = || of_node().map(|it| it.duty);
        let sync = duties().find(|&duty| duty == Duty::Member(Membership::Sync));
        let duty = sync.or(duties().next()).unwrap_or(Duty::None);
        let state = of_node().map(|it| it.state).min();
        let figures = PEER_FIGURES.iter().map(|figure| {
            let values = of_node().map(figure.read);
            let folded = values.reduce(|one, other| Some((figure.fold)(one?, other?)));
            (figure.name, folded.flatten())
        });
        Peer {
            node: node.0,
            role: duty.name(),
            link: state.unwrap_or(LinkState::Absent).name(),
            figures: Fields(figures.collect()),
        }
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use penstock_shard::accounts::stages::Stages;
    use penstock_shard::replication::{Epoch, Lag, Traffic};
    use penstock_storage::histogram::Histogram;

    use super::super::blocks::Stats;
    use super::super::figures::Sample;
    use super::*;

    /// Numbers of two shards of one node of a cluster.
    fn sample(shard: u64) -> Sample {
        let mut sample = Sample {
            turns: 40 + shard,
            received_bytes: 1000 * (shard + 1),
            sent_bytes: 77,
            is_log_full: shard == 1,
            token_halvings: 0,
            visible_keys: 1 << 40,
            ..Sample::default()
        };
        sample.shard.pings = 3;
        sample.log.records = 5 + shard;
        sample
    }

    fn replication() -> [ReplicationStatus; 2] {
        let partition = |partition, role, waits_for: &[u8]| PartitionStatus {
            partition,
            role,
            duty: Duty::Primary,
            epoch: Epoch::new(3, 2, 1),
            applied: 10,
            received: 11,
            was_last: true,
            waits_for: waits_for.to_vec(),
            durable: 9,
            hangs_on: None,
        };
        let peer = |node, duty, lag| PeerStatus {
            node,
            duty,
            partitions: 4,
            state: LinkState::Live,
            lag,
            durable_lag: lag,
            staleness_us: None,
            clock_ahead_ms: Some(-3),
            traffic: Traffic {
                links: 1,
                ..Traffic::default()
            },
        };
        let lag = Some(Lag {
            records: 2,
            bytes: 16,
            us: 70,
        });
        let (sync, primary) = (Duty::Member(Membership::Sync), Duty::Primary);
        let one = ReplicationStatus {
            partitions: vec![
                partition(0, PartitionRole::Primary, &[2, 3]),
                partition(1, PartitionRole::Primary, &[2, 3]),
                partition(2, PartitionRole::Primary, &[]),
            ],
            peers: vec![peer(2, sync, lag), peer(3, primary, None)],
        };
        let other = ReplicationStatus {
            partitions: vec![partition(3, PartitionRole::Primary, &[7])],
            peers: vec![peer(2, sync, lag)],
        };
        [one, other]
    }

    fn published() -> Stats {
        let stats = Stats::new(2);
        for shard in 0..2 {
            let mut device = Histogram::default();
            device.add(100 + u64::from(shard), 5);
            let none = Histogram::default();
            let rest = [&device, &none, &none, &device];
            let stages = Stages::default();
            stats.publish(shard, 7, &sample(shard.into()), &stages, rest);
        }
        stats
    }

    /// `PENSTOCK_WRITE_GOLDEN=1` writes the files anew: for a number, an answer or a field that is
    /// new.
    #[test]
    fn the_text_of_info_is_that_of_the_golden_files() {
        let server = ServerFacts {
            version: "1.2.3",
            shard_count: 2,
            incarnation: 17,
            io: "uring",
            durability: "disk",
            interval_ms: 5,
            segment_bytes: 1 << 26,
            pid: 4242,
        };
        let nodes = [(1, "10.0.0.1:7411".into()), (2, "name \"two\":1".into())];
        let cores = replication();
        let cluster = Some(Cluster::new(1, &nodes, &cores, None, None));
        let (alone, of_cluster) = (
            include_str!("golden/alone.json"),
            include_str!("golden/cluster.json"),
        );
        for (name, cluster, expected) in [("alone", None, alone), ("cluster", cluster, of_cluster)]
        {
            let log = Some(LogEnd {
                shard: 1,
                id: 8,
                durable_lsn: 99,
                segment: 6,
                end_offset: 4096,
                changes: None,
            });
            let memory = Memory {
                bytes_max: 1 << 30,
                resident_bytes: 123_456_789,
                prefaulted_bytes: 6 << 20,
            };
            let readings = published().read();
            let text = Info::new(&server, cluster, memory, 60_000, log, &readings).text();
            if std::env::var_os("PENSTOCK_WRITE_GOLDEN").is_some() {
                let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/stats/golden");
                std::fs::write(format!("{folder}/{name}.json"), &text).expect("written");
            } else {
                assert_eq!(text, expected, "{name}");
            }
        }
    }

    #[test]
    fn what_two_shards_know_of_a_node_is_reported_together() {
        let status = |state, lag| ReplicationStatus {
            partitions: Vec::new(),
            peers: vec![PeerStatus {
                node: 2,
                duty: Duty::Member(Membership::Sync),
                partitions: 128,
                state,
                lag,
                durable_lag: None,
                staleness_us: None,
                clock_ahead_ms: Some(-3),
                traffic: Traffic {
                    links: 1,
                    ..Traffic::default()
                },
            }],
        };
        let lag = |records, us| {
            Some(Lag {
                records,
                bytes: 8 * records,
                us,
            })
        };
        let peers_of = |cores: [ReplicationStatus; 2]| {
            serde_json::to_value(peers(&cores)).expect("names and numbers")
        };
        let live = LinkState::Live;
        let both = peers_of([status(live, lag(3, 90)), status(live, lag(4, 50))]);
        let expected = serde_json::json!([{"node": 2, "role": "sync", "link": "live",
            "partitions": 256, "lag_records": 7, "lag_bytes": 56, "lag_us": 90,
            "durable_lag_records": null, "durable_lag_bytes": null, "durable_lag_us": null,
            "staleness_us": null, "clock_ahead_us": 0, "clock_behind_us": 3_000,
            "links": 2, "sent_bytes": 0, "received_bytes": 0,
            "sent_frames": 0, "received_frames": 0}]);
        assert_eq!(both, expected);
        let one = peers_of([
            status(live, lag(3, 90)),
            status(LinkState::CatchingUp, None),
        ]);
        assert_eq!(one[0]["link"], "catching up");
        assert_eq!(one[0]["lag_records"], serde_json::Value::Null);
    }
}
