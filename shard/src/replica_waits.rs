//! Replies that wait for the members of a partition, and what became of them.

use penstock_net::pieces::Pieces;
use penstock_net::status::Status;
use penstock_storage::place::Lsn;

use crate::accounts::counters::ReplicationCounters;
use crate::mail::ReplyAddress;
use crate::publisher::Messages;
use crate::replication::gate::Outcome;
use crate::replication::planted::{Bug, is_planted};
use crate::replication::{Needed, PartitionId, ReplicaGates, SyncSet, Waiting};
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
    /// Its answer, and those of `behind`.
    pub(crate) item: Pieces,
    /// What a script publishes: it leaves with its answer, if that is no error.
    pub(crate) messages: Messages,
    /// The answers behind it that share its record: those of a run.
    pub(crate) behind: Vec<ReplyBehind>,
}

/// An answer behind another one that waits for the same record.
#[derive(Debug)]
pub(crate) struct ReplyBehind {
    pub(crate) address: ReplyAddress,
    pub(crate) is_change: bool,
    /// Where its bytes begin.
    pub(crate) from: usize,
}

impl ReplicaReply {
    /// Each answer: whom it is for, whether it tells of a change, and its bytes.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (ReplyAddress, bool, usize)> {
        let first = (self.address, self.is_change, 0);
        let behind = self.behind.iter();
        let all = std::iter::once(first)
            .chain(behind.clone().map(|it| (it.address, it.is_change, it.from)));
        let ends = behind.map(|it| it.from).chain([self.item.len()]);
        all.zip(ends)
            .map(|((address, is_change, from), end)| (address, is_change, end - from))
    }

    /// How many answers there are.
    pub(crate) fn count(&self) -> usize {
        1 + self.behind.len()
    }

    /// Each answer, and where its bytes begin in the item.
    pub(crate) fn places(&self) -> impl Iterator<Item = (ReplyAddress, usize)> {
        let behind = self.behind.iter().map(|it| (it.address, it.from));
        std::iter::once((self.address, 0)).chain(behind)
    }

    /// Adds an answer, which stands at the end of the item from there on.
    pub(crate) fn join(&mut self, address: ReplyAddress, from: usize) {
        let status = &self.item.written()[from..from + 2];
        let is_change = status == Status::Ok.code().to_le_bytes();
        self.behind.push(ReplyBehind {
            address,
            is_change,
            from,
        });
    }
}

/// All replies that wait for members.
#[derive(Debug)]
pub(crate) struct ReplicaWaits {
    gates: ReplicaGates<ReplicaReply>,
    /// Replies that wait: an entry of the gates may have several.
    replies: usize,
    counters: ReplicationCounters,
}

impl Default for ReplicaWaits {
    fn default() -> Self {
        ReplicaWaits {
            gates: ReplicaGates::new(REPLICA_REPLIES_MAX),
            replies: 0,
            counters: ReplicationCounters::default(),
        }
    }
}

impl ReplicaWaits {
    /// Whether another reply may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.replies < REPLICA_REPLIES_MAX
    }

    /// How many more may wait.
    pub(crate) fn room(&self) -> usize {
        REPLICA_REPLIES_MAX.saturating_sub(self.replies)
    }

    /// How many have begun to wait so far.
    pub(crate) fn begun(&self) -> u64 {
        self.counters.waits
    }

    /// The answer of the newest one, which has begun to wait in this operation. Empty if nobody
    /// waits, or if a part of the answer is shared.
    pub(crate) fn newest_answer(&self) -> &[u8] {
        let newest = self.gates.newest();
        newest.and_then(|it| it.item.whole()).unwrap_or_default()
    }

    /// Takes the newest one out, which has begun to wait in this operation.
    pub(crate) fn take_newest(&mut self) -> Option<Waiting<ReplicaReply>> {
        let waiting = self.gates.take_newest()?;
        self.replies -= waiting.whom.count();
        self.counters.waits -= waiting.whom.count() as u64;
        Some(waiting)
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
        let count = waiting.whom.count();
        self.replies += count;
        match waiting.needed {
            Needed::All | Needed::Every | Needed::Some(1..) => {
                self.counters.waits += count as u64;
            }
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
        set: impl Fn(PartitionId) -> SyncSet<I>,
    ) -> Vec<(ReplicaReply, Outcome)>
    where
        I: Iterator<Item = Option<Lsn>>,
    {
        let mut ended: Vec<(ReplicaReply, Outcome)> = Vec::new();
        let unknown = match is_planted(Bug::LeaseLostSaidOk) {
            true => Outcome::Reached,
            false => Outcome::Unknown { members: 0 },
        };
        for &partition in deposed {
            let unknown = |whom| ended.push((whom, unknown));
            self.gates.depose(partition, unknown);
        }
        let release = |whom, outcome| ended.push((whom, outcome));
        self.gates.release(now_us, durable, set, release);
        for (reply, outcome) in &ended {
            self.replies -= reply.count();
            let count = reply.count() as u64;
            match outcome {
                Outcome::Reached => {}
                Outcome::ReachedAlone => self.counters.all_is_disk += count,
                Outcome::Unknown { .. } => self.counters.missed += count,
            }
        }
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
        let first_us = self.gates.first().map(|first| first.came_us).min();
        let waiting_us = first_us.map_or(0, |came_us| now_us.saturating_sub(came_us));
        ReplicationCounters {
            waiting: self.replies as u64,
            waiting_us,
            ..self.counters
        }
    }
}
