//! Replies that wait for the members of a partition, and what became of them.

use penstock_net::pieces::Pieces;
use penstock_storage::place::Lsn;

use crate::counters::ReplicationCounters;
use crate::mail::ReplyAddress;
use crate::replication::gate::Outcome;
use crate::replication::{Needed, PartitionId, ReplicaGates, Waiting};
use crate::requests::parking::Origin;

/// Replies that wait for members, at most: beyond that the answer is BUSY.
pub(crate) const REPLICA_REPLIES_MAX: usize = 65_536;

/// A reply that waits for the members of a partition.
#[derive(Debug)]
pub(crate) struct ReplicaReply {
    pub(crate) origin: Origin,
    pub(crate) address: ReplyAddress,
    /// When its request arrived, in microseconds of the node's clock.
    pub(crate) came_us: u64,
    /// Whom it waits for.
    pub(crate) needed: Needed,
    /// The operation has changed something here.
    pub(crate) is_change: bool,
    pub(crate) item: Pieces,
}

/// All replies that wait for members.
#[derive(Debug)]
pub(crate) struct ReplicaWaits {
    gates: ReplicaGates<ReplicaReply>,
    counters: ReplicationCounters,
}

impl Default for ReplicaWaits {
    fn default() -> Self {
        ReplicaWaits {
            gates: ReplicaGates::new(REPLICA_REPLIES_MAX),
            counters: ReplicationCounters::default(),
        }
    }
}

impl ReplicaWaits {
    /// Whether another reply may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.gates.has_room()
    }

    /// Whether somebody waits for the members of this partition.
    pub(crate) fn is_waited_for(&self, partition: PartitionId) -> bool {
        self.gates.is_waited_for(partition)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.gates.is_empty()
    }

    /// When the first of them is answered at the latest.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        self.gates.deadline_us()
    }

    /// A reply waits; the shard has kept room for it.
    pub(crate) fn wait(&mut self, waiting: Waiting<ReplicaReply>) {
        match waiting.needed {
            Needed::All | Needed::Some(1..) => self.counters.waits += 1,
            // The plan wants nobody.
            Needed::Some(0) => self.counters.waits_below += 1,
        }
        self.gates.wait(waiting);
    }

    /// Takes out the replies that need not wait any longer, in order: first those of partitions
    /// that this node writes no more.
    pub(crate) fn take_ended<I>(
        &mut self,
        now_us: u64,
        durable: Lsn,
        deposed: &[PartitionId],
        received: impl Fn(PartitionId) -> I,
    ) -> Vec<(ReplicaReply, Outcome)>
    where
        I: Iterator<Item = Option<Lsn>>,
    {
        let mut ended = Vec::new();
        for &partition in deposed {
            let unknown = |whom| ended.push((whom, Outcome::Unknown { members: 0 }));
            self.gates.depose(partition, unknown);
        }
        let release = |whom, outcome| ended.push((whom, outcome));
        self.gates.release(now_us, durable, received, release);
        let is_missed = |outcome: Outcome| outcome != Outcome::Reached;
        let missed = ended.iter().filter(|(_, outcome)| is_missed(*outcome));
        self.counters.missed += missed.count() as u64;
        ended
    }

    /// A read of a partition that another node writes was answered here.
    pub(crate) fn answer_member_read(&mut self) {
        self.counters.member_reads += 1;
    }

    /// Such a read was refused.
    pub(crate) fn refuse_member_read(&mut self) {
        self.counters.member_stale += 1;
    }

    /// What was counted, and for how long the first reply waits, its request included.
    pub(crate) fn counters(&self, now_us: u64) -> ReplicationCounters {
        let first = self.gates.first();
        let waiting_us = first.map_or(0, |first| now_us.saturating_sub(first.came_us));
        ReplicationCounters {
            waiting: self.gates.len() as u64,
            waiting_us,
            ..self.counters
        }
    }
}
