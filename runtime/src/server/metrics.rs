//! The numbers of a node as OpenMetrics text, which Prometheus scrapes.

use std::fmt;
use std::sync::atomic::Ordering;

use penstock_net::link::RefusalCode;
use penstock_net::status::Status;
use penstock_shard::accounts::answers::Asked;
use penstock_shard::cluster::{PartitionRole, ReplicationStatus};
use penstock_storage::histogram::bound;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::health::Health;
use crate::cluster::lostfound::lostfound_bytes;
use crate::stats::{
    ChannelsRead, FIGURES, FailedSwap, FailoverReading, Growth, HISTOGRAMS, PEER_FIGURES,
    PlanReading, Reading, RefusalReason, SECOND_IN_US, total,
};
use crate::system::huge_pages::prefaulted_bytes;
use crate::system::line_queue::LineCounts;
use crate::system::memory::resident_bytes;

/// All numbers of the moment, as OpenMetrics.
pub(crate) fn exposition(health: &Health) -> String {
    let watched = health.watched();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Moment {
        shards: watched.map_or(Vec::new(), |watched| watched.stats.read()),
        replication: watched.map_or(Vec::new(), |watched| watched.stats.replication()),
        handshakes_refused: watched.map_or(Default::default(), |watched| {
            watched.stats.handshakes.refused()
        }),
        handshakes_failed: watched.map_or(0, |watched| watched.stats.handshakes.failed()),
        plan: watched
            .filter(|watched| !watched.is_alone)
            .map(|watched| watched.stats.plan.read()),
        failover: watched
            .filter(|watched| !watched.is_alone)
            .map(|watched| watched.stats.failover.read()),
        lostfound_bytes: watched.map_or(0, |watched| lostfound_bytes(&watched.data)),
        is_ready: health.ready(None).is_ok(),
        start_percent: health.start_percent(),
        tls: watched.map_or(Vec::new(), |watched| {
            let each = watched.tls.each();
            each.map(|(port, tls)| (port, tls.expires_unix_s(), tls.is_refused()))
                .collect()
        }),
        links_plain: watched
            .filter(|watched| !watched.is_alone)
            .map(|watched| watched.stats.links_plain()),
        open_to_anyone: watched.map_or(0, |watched| watched.open_to_anyone),
        start_ms: watched.map(|watched| watched.unix_ms_at_start),
        memory_max: watched
            .and_then(|watched| watched.memory.as_ref())
            .map_or(0, |memory| memory.max()),
        resident_bytes: resident_bytes().unwrap_or(0),
        prefaulted_bytes: prefaulted_bytes(),
        channels: watched.map_or_else(ChannelsRead::default, |it| it.stats.channels.read()),
        log: watched.map(|watched| watched.log.counts()),
        audit: watched.and_then(|watched| watched.audit.is_open().then(|| watched.audit.counts())),
        admin: [&health.admin.refused, &health.admin.handshakes_failed]
            .map(|count| count.load(Ordering::Relaxed)),
    }));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("writing to memory does not fail");
    text
}

/// What is told at once.
#[derive(Debug)]
struct Moment {
    shards: Vec<Reading>,
    replication: Vec<ReplicationStatus>,
    handshakes_refused: [[u64; RefusalCode::ALL.len()]; 2],
    handshakes_failed: u64,
    /// `None` of a node alone.
    plan: Option<PlanReading>,
    /// `None` of a node alone.
    failover: Option<FailoverReading>,
    lostfound_bytes: u64,
    /// Bytes of names, of messages, and connections that were ended.
    channels: ChannelsRead,
    is_ready: bool,
    start_percent: u64,
    /// For each certificate who sees it, when it ends, in seconds since 1970, and whether newer
    /// files are refused.
    tls: Vec<(&'static str, u64, bool)>,
    /// `None` without a cluster.
    links_plain: Option<u64>,
    open_to_anyone: usize,
    start_ms: Option<u64>,
    memory_max: u64,
    resident_bytes: u64,
    prefaulted_bytes: u64,
    /// `None` without an audit log.
    audit: Option<LineCounts>,
    /// `None` before the directory is open.
    log: Option<LineCounts>,
    /// Of the admin port: requests refused, handshakes failed.
    admin: [u64; 2],
}

/// A histogram that INFO shows in microseconds or in numbers of records.
struct Family {
    name: &'static str,
    help: &'static str,
    /// Unit of the buckets' bounds.
    unit: f64,
    /// The numbers of its histograms in the table, and their label.
    members: &'static [(usize, Option<&'static str>)],
}

const FAMILIES: [Family; 5] = [
    Family {
        name: "penstock_stage_seconds",
        help: "Time of operations in each stage: queue (from arrival to the turn of the loop that \
            ran them), apply (that turn), flush (from its end until durable, if that was waited \
            for), reply (until the network took it).",
        unit: SECOND_IN_US,
        members: &[
            (0, Some("queue")),
            (1, Some("apply")),
            (2, Some("flush")),
            (3, Some("reply")),
        ],
    },
    Family {
        name: "penstock_log_device_seconds",
        help: "Time of writes of the log until the device had them for good.",
        unit: SECOND_IN_US,
        members: &[(4, None)],
    },
    Family {
        name: "penstock_log_commit_records",
        help: "Records of a group commit.",
        unit: 1.0,
        members: &[(5, None)],
    },
    Family {
        name: "penstock_replication_received_seconds",
        help: "Time of records from the turn that appended them until a node that is live told to \
            have received them.",
        unit: SECOND_IN_US,
        members: &[(6, None)],
    },
    Family {
        name: "penstock_replication_durable_seconds",
        help: "The same until it told to have them on its disk.",
        unit: SECOND_IN_US,
        members: &[(7, None)],
    },
];

impl Collector for Moment {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        encoder
            .encode_descriptor("penstock_build", "What runs.", None, MetricType::Info)?
            .encode_info(&version)?;
        let mut gauge = |name, help, value: f64| {
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(&value)
        };
        gauge(
            "penstock_ready",
            "1 while /readyz says so.",
            f64::from(u8::from(self.is_ready)),
        )?;
        gauge(
            "penstock_start_ratio",
            "How far the start is, 0 to 1.",
            self.start_percent as f64 / 100.0,
        )?;
        gauge(
            "penstock_insecure_listeners",
            "Listeners that anyone who reaches them may use (insecure).",
            self.open_to_anyone as f64,
        )?;
        if let Some(links) = self.links_plain {
            gauge(
                "penstock_replication_links_plain",
                "Links to and from other nodes that are there without TLS.",
                links as f64,
            )?;
        }
        gauge(
            "penstock_memory_max_bytes",
            "The bound on the memory of the process.",
            self.memory_max as f64,
        )?;
        gauge(
            "process_resident_memory_bytes",
            "Resident memory of the process.",
            self.resident_bytes as f64,
        )?;
        gauge(
            "penstock_memory_prefaulted_bytes",
            "Resident memory that is prefaulted for values and not used yet.",
            self.prefaulted_bytes as f64,
        )?;
        gauge(
            "penstock_lostfound_bytes",
            "Bytes of records in the lostfound of the data directory that this node had and its \
             primary had not.",
            self.lostfound_bytes as f64,
        )?;
        let channels = self.channels;
        gauge(
            "penstock_channel_names_bytes",
            "Bytes of the names that clients of Redis subscribe to.",
            channels.names_bytes as f64,
        )?;
        gauge(
            "penstock_channel_messages_bytes",
            "Bytes of published messages that subscribers have not taken, each once.",
            channels.messages_bytes as f64,
        )?;
        if let Some(start_ms) = self.start_ms {
            gauge(
                "process_start_time_seconds",
                "When the process began to serve this directory, since 1970.",
                start_ms as f64 / 1000.0,
            )?;
        }
        encoder
            .encode_descriptor(
                "penstock_channel_subscribers_ended",
                "Connections that were ended because they did not take their messages.",
                None,
                MetricType::Counter,
            )?
            .encode_counter::<NoLabelSet, u64, f64>(&channels.subscribers_ended, None)?;
        encoder
            .encode_descriptor(
                "penstock_channel_messages_lost",
                "Published messages that did not reach another node, or had no room here.",
                None,
                MetricType::Counter,
            )?
            .encode_counter::<NoLabelSet, u64, f64>(&channels.lost, None)?;
        self.encode_certificates(&mut encoder)?;
        self.encode_admin(&mut encoder)?;
        self.encode_lines(&mut encoder)?;
        self.encode_answers(&mut encoder)?;
        self.encode_plan(&mut encoder)?;
        self.encode_failover(&mut encoder)?;
        self.encode_partitions(&mut encoder)?;
        self.encode_peers(&mut encoder)?;
        self.encode_figures(&mut encoder)?;
        self.encode_histograms(&mut encoder)
    }
}

impl Moment {
    fn by_shard(&self) -> impl Iterator<Item = (String, &Reading)> {
        let numbered = self.shards.iter().enumerate();
        numbered.map(|(shard, reading)| (shard.to_string(), reading))
    }

    fn encode_certificates(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        type Value = fn(&(&'static str, u64, bool)) -> f64;
        let families: [(&str, &str, Value); 2] = [
            (
                "penstock_tls_certificate_expires_seconds",
                "When the certificate in force ends, in seconds since 1970.",
                |it| it.1 as f64,
            ),
            (
                "penstock_tls_certificate_refused",
                "1 while the files of the certificate are not in force, because they are wrong.",
                |it| f64::from(u8::from(it.2)),
            ),
        ];
        for (name, help, value) in families {
            if self.tls.is_empty() {
                break;
            }
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for it in &self.tls {
                let labels = [("certificate", it.0)];
                family.encode_family(&labels)?.encode_gauge(&value(it))?;
            }
        }
        Ok(())
    }

    fn encode_admin(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let [refused, handshakes_failed] = self.admin;
        let counts = [
            (
                "penstock_admin_refused",
                "Requests to the admin port without a token or a certificate that is taken.",
                refused,
            ),
            (
                "penstock_admin_handshakes_failed",
                "Connections to the admin port whose TLS failed or took too long.",
                handshakes_failed,
            ),
        ];
        for (name, help, count) in counts {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
        }
        Ok(())
    }

    fn encode_lines(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let audit = self.audit.map(|audit| {
            [
                (
                    "penstock_audit_lines",
                    "Lines of the audit log that were written.",
                    audit.written,
                ),
                (
                    "penstock_audit_dropped",
                    "Lines of the audit log that were dropped, because too many waited.",
                    audit.dropped,
                ),
            ]
        });
        let log = self.log.map(|log| {
            [
                (
                    "penstock_log_lines",
                    "Lines of the log that were written.",
                    log.written,
                ),
                (
                    "penstock_log_lines_dropped",
                    "Lines of the log that were dropped, because nobody read it.",
                    log.dropped,
                ),
            ]
        });
        for (name, help, count) in audit.into_iter().chain(log).flatten() {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
        }
        Ok(())
    }

    fn encode_answers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "penstock_operations",
            "Operations answered, by what was asked and by the status of the answer.",
            None,
            MetricType::Counter,
        )?;
        for (shard, reading) in self.by_shard() {
            for (asked, row) in Asked::ALL.iter().zip(&reading.answers) {
                for (status, count) in Status::ALL.iter().zip(row) {
                    // The good ones from the start, so that their rates have a beginning.
                    if *count == 0 && *status != Status::Ok {
                        continue;
                    }
                    let labels = [
                        ("shard", shard.as_str()),
                        ("operation", asked.name()),
                        ("status", status.name()),
                    ];
                    family
                        .encode_family(&labels)?
                        .encode_counter::<NoLabelSet, u64, f64>(count, None)?;
                }
            }
        }
        let mut family = encoder.encode_descriptor(
            "penstock_frames_refused",
            "Frames that were no request or none that this server takes, by status.",
            None,
            MetricType::Counter,
        )?;
        for (shard, reading) in self.by_shard() {
            for (status, count) in Status::ALL.iter().zip(&reading.frames_refused) {
                if *count == 0 && *status != Status::Malformed {
                    continue;
                }
                family
                    .encode_family(&[("shard", shard.as_str()), ("status", status.name())])?
                    .encode_counter::<NoLabelSet, u64, f64>(count, None)?;
            }
        }
        Ok(())
    }

    /// Leases, and what this node decided by itself.
    fn encode_failover(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (Some(plan), Some(failover)) = (&self.plan, &self.failover) else {
            return Ok(());
        };
        let rules = plan.failover;
        let seconds = |us: Option<u64>| us.map_or(f64::INFINITY, |us| us as f64 / 1e6);
        let gauges = [
            (
                "penstock_failover_on",
                "1 if nodes replace a lost one by themselves.",
                u64::from(rules.is_some()) as f64,
            ),
            (
                "penstock_failover_paused",
                "1 while no node takes over and none enters a sync set.",
                u64::from(rules.is_some_and(|it| it.is_paused)) as f64,
            ),
            (
                "penstock_lease_seconds",
                "How long a primary may serve by one heartbeat; 0 without failover.",
                rules.map_or(0.0, |it| it.lease_ms as f64 / 1000.0),
            ),
            (
                "penstock_lease_left_seconds",
                "The least that is left of the leases of what is written here; +Inf if none is \
                    needed.",
                seconds(failover.lease_left_us()),
            ),
            (
                "penstock_generation_max",
                "The highest generation of a partition; the last one is 16383.",
                f64::from(plan.generation_max),
            ),
        ];
        for (name, help, value) in gauges {
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(&value)?;
        }
        let counters = [
            (
                "penstock_takeovers",
                "Times that this node took the place of a lost one.",
                failover.takeovers,
            ),
            (
                "penstock_sync_removals",
                "Times that this node made silent members learners.",
                failover.removals,
            ),
            (
                "penstock_sync_entries",
                "Times that this node let a node join a sync set, or be promoted from then on.",
                failover.entries,
            ),
        ];
        for (name, help, count) in counters {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
        }
        let mut family = encoder.encode_descriptor(
            "penstock_plan_swaps_failed",
            "Changes of the plan that this node asked for and did not get, by outcome.",
            None,
            MetricType::Counter,
        )?;
        for (outcome, count) in FailedSwap::ALL.iter().zip(failover.failed) {
            family
                .encode_family(&[("outcome", outcome.name())])?
                .encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
        }
        let mut family = encoder.encode_descriptor(
            "penstock_heartbeat_round_trip_seconds",
            "From the sending of a heartbeat to the reading of its answer, by node.",
            None,
            MetricType::Gauge,
        )?;
        for peer in &failover.peers {
            let Some(us) = peer.round_trip_us else {
                continue;
            };
            family
                .encode_family(&[("node", peer.node.to_string())])?
                .encode_gauge(&(us as f64 / 1e6))?;
        }
        Ok(())
    }

    /// The plan in force, and how its home is.
    fn encode_plan(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(plan) = &self.plan else {
            return Ok(());
        };
        let gauges = [
            (
                "penstock_plan_revision",
                "Which change of the plan is in force; 0 where nobody counts them, in a file.",
                plan.revision,
            ),
            (
                "penstock_plan_home_up",
                "1 while the home of the plan, file or etcd, answers; 0 after a second of silence.",
                plan.is_home_up.into(),
            ),
        ];
        for (name, help, value) in gauges {
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(&value)?;
        }
        encoder
            .encode_descriptor(
                "penstock_plan_home_failures",
                "Times that the home of the plan was asked and did not answer.",
                None,
                MetricType::Counter,
            )?
            .encode_counter::<NoLabelSet, u64, f64>(&plan.failures, None)?;
        let mut family = encoder.encode_descriptor(
            "penstock_plan_refused",
            "1 while the home has a plan that is not taken, for this reason.",
            None,
            MetricType::Gauge,
        )?;
        for reason in RefusalReason::ALL {
            let is_so = u64::from(plan.refused == Some(reason));
            family
                .encode_family(&[("reason", reason.name())])?
                .encode_gauge(&is_so)?;
        }
        let mut family = encoder.encode_descriptor(
            "penstock_plan_refusals",
            "Plans that were not taken, by reason.",
            None,
            MetricType::Counter,
        )?;
        for (reason, count) in RefusalReason::ALL.iter().zip(plan.refusals) {
            family
                .encode_family(&[("reason", reason.name())])?
                .encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
        }
        Ok(())
    }

    /// What the node is to partitions, and why links have ended.
    fn encode_partitions(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let all = || self.replication.iter().flat_map(|it| &it.partitions);
        if all().next().is_none() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(
            "penstock_replication_partitions",
            "Partitions by what this node does with them.",
            None,
            MetricType::Gauge,
        )?;
        for role in PartitionRole::ALL {
            let count = all().filter(|it| it.role == role).count() as u64;
            family
                .encode_family(&[("role", role.name())])?
                .encode_gauge(&count)?;
        }
        let epoch = all().map(|it| it.epoch).max().unwrap_or_default();
        encoder
            .encode_descriptor(
                "penstock_replication_epoch",
                "The highest epoch that this node has promised.",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&u64::from(epoch.0))?;
        encoder
            .encode_descriptor(
                "penstock_replication_generation",
                "The generation of that epoch, as it stands in the cluster's file.",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&u64::from(epoch.generation()))?;
        let mut family = encoder.encode_descriptor(
            "penstock_replication_links_refused",
            "Links that were not made or ended for this reason: here, or there by the other node.",
            None,
            MetricType::Counter,
        )?;
        let sum = total(&self.shards);
        let sides = sum.links_refused.iter().zip(&self.handshakes_refused);
        for (by, (links, handshakes)) in ["here", "there"].iter().zip(sides) {
            let counts = links.iter().zip(handshakes);
            for (reason, (links, handshakes)) in RefusalCode::ALL.iter().zip(counts) {
                family
                    .encode_family(&[("by", *by), ("reason", reason.name())])?
                    .encode_counter::<NoLabelSet, u64, f64>(&(links + handshakes), None)?;
            }
        }
        encoder
            .encode_descriptor(
                "penstock_replication_handshakes_failed",
                "Attempts to make a link that met nobody, no answer or nothing that could be read.",
                None,
                MetricType::Counter,
            )?
            .encode_counter::<NoLabelSet, u64, f64>(&self.handshakes_failed, None)?;
        Ok(())
    }

    fn encode_peers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let all = || {
            let shards = self.replication.iter().enumerate();
            shards.flat_map(|(shard, it)| {
                let of_shard = it.peers.iter();
                of_shard.map(move |peer| {
                    let labels = [
                        ("shard", shard.to_string()),
                        ("peer", peer.node.to_string()),
                        ("role", peer.duty.name().to_string()),
                    ];
                    (labels, peer)
                })
            })
        };
        if all().next().is_none() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(
            "penstock_replication_link_state",
            "How far the links with a node are: 0 absent, 1 handshake, 2 catching up, 3 live. Its \
             role is sync or learner if this node ships to it, primary if it ships to this one.",
            None,
            MetricType::Gauge,
        )?;
        for (labels, peer) in all() {
            family
                .encode_family(&labels)?
                .encode_gauge(&(peer.state as u64))?;
        }
        for figure in PEER_FIGURES {
            let (name, help) = figure.metric;
            let kind = match figure.growth {
                Growth::Counter => MetricType::Counter,
                Growth::Gauge => MetricType::Gauge,
            };
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (labels, peer) in all() {
                let Some(value) = (figure.read)(peer) else {
                    continue;
                };
                let mut metric = family.encode_family(&labels)?;
                match figure.growth {
                    Growth::Counter => {
                        metric.encode_counter::<NoLabelSet, u64, f64>(&value, None)?;
                    }
                    Growth::Gauge => metric.encode_gauge(&(value as f64 * figure.unit))?,
                }
            }
        }
        Ok(())
    }

    fn encode_figures(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (number, figure) in FIGURES.iter().enumerate() {
            let Some((name, help)) = figure.metric else {
                continue;
            };
            let kind = match figure.growth {
                Growth::Counter => MetricType::Counter,
                Growth::Gauge => MetricType::Gauge,
            };
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (shard, reading) in self.by_shard() {
                let labels = [("shard", shard.as_str())];
                let mut metric = family.encode_family(&labels)?;
                let value = reading.figures[number];
                match figure.growth {
                    Growth::Gauge if figure.unit != 1.0 => {
                        metric.encode_gauge(&(value as f64 * figure.unit))?;
                    }
                    Growth::Counter => {
                        metric.encode_counter::<NoLabelSet, u64, f64>(&value, None)?;
                    }
                    Growth::Gauge => metric.encode_gauge(&value)?,
                }
            }
        }
        Ok(())
    }

    /// All shards together: a histogram has many lines.
    fn encode_histograms(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let sum = total(&self.shards);
        for family in &FAMILIES {
            let kind = MetricType::Histogram;
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for &(number, stage) in family.members {
                assert!(stage.is_none_or(|stage| HISTOGRAMS[number] == stage));
                let counts = sum.histograms[number].iter().enumerate();
                let buckets: Vec<(f64, u64)> = counts
                    .map(|(bucket, &count)| {
                        let bound = bound(bucket).map_or(f64::INFINITY, |it| it as f64);
                        (bound * family.unit, count)
                    })
                    .collect();
                let all = sum.histograms[number].iter().sum();
                let of_all = sum.histogram_sums[number] as f64 * family.unit;
                match stage {
                    Some(stage) => metric
                        .encode_family(&[("stage", stage)])?
                        .encode_histogram::<NoLabelSet>(of_all, all, &buckets, None)?,
                    None => metric.encode_histogram::<NoLabelSet>(of_all, all, &buckets, None)?,
                }
            }
        }
        Ok(())
    }
}
