//! The figures that a shard publishes: its counters, the state of the cluster, and INFO.

use std::sync::Arc;

use penstock_shard::cluster::ReplicationStatus;
use penstock_shard::{Now, SessionId, Shard, SpareFailure};
use penstock_storage::cleaning::Fill;
use penstock_storage::histogram::Histogram;

use super::shard_thread::ThreadFigures;
use crate::disk::DiskCounters;
use crate::disk::arena::Arena;
use crate::stats::{
    ChangesReport, Cluster, FailoverInfo, Info, LogEnd, Memory, Sample, ServerFacts, Stats,
};
use crate::system::huge_pages::prefaulted_bytes;
use crate::system::memory::{MemoryBound, resident_bytes};

/// How often the numbers are published while the shard is busy.
const PUBLISH_US: u64 = 10_000;
/// How often what is known of the cluster is.
const CLUSTER_EVERY_US: u64 = 50_000;
/// How old they may become when it is busy no more.
const STALE_US_MAX: u64 = 100_000;
/// An idle loop still makes a turn this often, so a loop that hangs shows.
const HEARTBEAT_US: u64 = 1_000_000;

/// What the driver of a shard moved and refused.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// Times that the loop watched for work before it slept.
    pub(crate) watches: u64,
    pub(crate) connections_refused: u64,
    pub(crate) tls_handshakes: u64,
    pub(crate) tls_handshakes_failed: u64,
    pub(crate) tls_handshakes_refused: u64,
}

/// The numbers of what carries a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carried {
    pub(super) disk: DiskCounters,
    pub(super) thread: ThreadFigures,
    pub(super) traffic: Traffic,
    pub(super) fill: Fill,
}

/// Publishes the numbers of one shard.
pub(crate) struct Publisher {
    number: u16,
    stats: Arc<Stats>,
    facts: ServerFacts,
    turns: u64,
    published_us: u64,
    /// The turn that was published last.
    published_turn: u64,
    /// What is published of the cluster takes a look at every partition: less often.
    cluster_published_us: u64,
    replication: ReplicationStatus,
    /// How many flushes it knows of.
    flushes: u64,
}

impl Publisher {
    pub(crate) fn new(number: u16, stats: Arc<Stats>, facts: ServerFacts) -> Self {
        Publisher {
            number,
            stats,
            facts,
            turns: 0,
            published_us: 0,
            published_turn: 0,
            cluster_published_us: 0,
            replication: ReplicationStatus::default(),
            flushes: 0,
        }
    }

    /// Whether keys were flushed since the last call: then the numbers are published before the
    /// flush is answered.
    pub(super) fn notes_flush(&mut self, shard: &Shard<Arena>) -> bool {
        let count = shard.store().data().flushes().count();
        std::mem::replace(&mut self.flushes, count) != count
    }

    /// A turn has begun.
    pub(super) fn count_turn(&mut self) {
        self.turns += 1;
    }

    /// Whether the numbers are to be published by now.
    pub(super) fn is_due(&self, now: Now) -> bool {
        now.us >= self.published_us + PUBLISH_US
    }

    /// When a turn is due at the latest, for the sake of those who read the numbers.
    pub(super) fn deadline_us(&self, is_linked: bool) -> u64 {
        let is_known = !is_linked || self.cluster_published_us == self.published_us;
        let patience_us = match self.published_turn == self.turns && is_known {
            true => HEARTBEAT_US,
            false => STALE_US_MAX,
        };
        self.published_us + patience_us
    }

    /// Publishes the numbers, and what is known of the cluster if it is old or `is_asked`.
    pub(super) fn publish(
        &mut self,
        now: Now,
        shard: &mut Shard<Arena>,
        carried: &Carried,
        is_asked: bool,
    ) {
        let Carried {
            disk,
            thread,
            traffic,
            fill,
        } = *carried;
        self.published_us = now.us;
        self.published_turn = self.turns;
        let store = shard.store();
        let log = store.log();
        let failure = shard.execution().spare_failure();
        let sample = Sample {
            shard: shard.counters(),
            log: log.counters(),
            cleaning: store.cleaning().counters(),
            pace: store.cleaning().pace_counters(),
            disk,
            thread,
            usage: shard.store().data().usage(),
            inherited_bytes: store.cleaning().inheritance().bytes_left(),
            scrub: store.scrubbing().counters(),
            snapshots: shard.execution().snapshot_counters(),
            key_tables: shard.execution().key_table_counters(),
            replication: shard.replication_counters(now),
            turns: self.turns,
            received_bytes: traffic.received_bytes,
            sent_bytes: traffic.sent_bytes,
            watches: traffic.watches,
            connections_refused: traffic.connections_refused,
            tls_handshakes: traffic.tls_handshakes,
            tls_handshakes_failed: traffic.tls_handshakes_failed,
            tls_handshakes_refused: traffic.tls_handshakes_refused,
            segments_held: log.sealed_segments().len() as u64
                + u64::from(log.open_segment().is_some()),
            fill,
            is_disk_full: log.is_full() && failure.is_none(),
            has_no_descriptor: log.is_full() && failure == Some(SpareFailure::NoDescriptor),
            has_no_segment_file: log.is_full() && failure == Some(SpareFailure::System),
            is_log_full: log.has_most_segments(),
            is_memory_full: !store.data().has_room_for_keys() && !store.waits_for_keys(),
            token_halvings: store.token_halvings().into(),
            clock_behind_us: store.data().clock().behind_ms() * 1_000,
            visible_keys: store.data().visible_keys() as u64,
        };
        let none = &Histogram::default();
        let (received, durable) = shard
            .execution()
            .replication_delays()
            .unwrap_or((none, none));
        let rest = [log.flushes_us(), log.batches(), received, durable];
        self.stats.publish(
            self.number,
            now.us,
            &sample,
            shard.execution().stages(),
            rest,
        );
        if is_asked || now.us >= self.cluster_published_us + CLUSTER_EVERY_US {
            self.publish_cluster(now, shard);
        }
    }

    /// Publishes what is known of the cluster, if there is one.
    pub(super) fn publish_cluster(&mut self, now: Now, shard: &mut Shard<Arena>) {
        if shard.execution().is_linked() {
            self.cluster_published_us = now.us;
            shard
                .execution_mut()
                .write_replication(now, &mut self.replication);
            self.stats
                .publish_replication(self.number, &mut self.replication);
        }
    }

    /// The text of INFO.
    pub(super) fn info(
        &self,
        now: Now,
        question: (SessionId, u64),
        shard: &Shard<Arena>,
        memory: Option<&MemoryBound>,
    ) -> String {
        let end = shard.store().log().durable_end();
        let (session, request_id) = question;
        let log = shard
            .execution()
            .joint
            .report_to(session, request_id)
            .map(|changes| LogEnd {
                shard: self.number,
                id: end.log_id,
                durable_lsn: end.lsn.0,
                segment: end.segment_sequence,
                end_offset: end.end_offset,
                changes: changes.map(|reported| ChangesReport {
                    open_changes: reported.open,
                    decided_changes: reported.decided,
                    is_held: reported.is_held,
                }),
            });
        let memory = Memory {
            bytes_max: memory.map_or(0, MemoryBound::max),
            resident_bytes: resident_bytes().unwrap_or(0),
            prefaulted_bytes: prefaulted_bytes(),
        };
        let nodes = shard.execution().nodes();
        let cores = nodes.map_or(Vec::new(), |_| self.stats.replication());
        let cluster = nodes.map(|(me, nodes)| {
            let failover = FailoverInfo::new(&self.stats.failover);
            Cluster::new(me, nodes, &cores, self.stats.plan.in_force(), failover)
        });
        let readings = self.stats.read();
        Info::new(&self.facts, cluster, memory, now.us / 1000, log, &readings).text()
    }
}
