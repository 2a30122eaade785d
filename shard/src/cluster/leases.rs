//! Until when each partition of a shard may be served, as the leases of its node told last.
//!
//! The table of the node is read each 10 ms, each 5 ms while a partition waits for its lease, and
//! when an end passes that was read. So a step compares one number.
//!
//! A thread may stand still between the reading of its clock and what it executes. So whoever takes
//! answers out reads the clock behind that once more. A lease that is there then was there all the
//! time: whoever may be promoted has granted it since, or has not begun within it.

use std::sync::Arc;

use penstock_net::link::message::LINK_PARTITIONS;

use crate::lease::LeaseTable;
use crate::replication::PartitionId;

use super::plan::{Assignment, Plan};

/// The table is read again after so long.
const READ_US: u64 = 10_000;
/// The same while a partition waits for its lease.
const WAIT_US: u64 = 5_000;
/// A shard turns again after so long, so that it is vouched for.
const TURN_US: u64 = 50_000;
/// Nothing is executed so long before the end of a lease, so that a lease that is over finds no
/// answers that are to be checked yet.
const MARGIN_US: u64 = 5_000;
/// Standings are told again after so long.
const PUBLISH_US: u64 = 25_000;

/// What a shard counts of its leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounters {
    /// How often the lease of a partition was over that this node served, and nobody had told that
    /// another one is to.
    pub lapses: u64,
    /// Partitions that this node is to serve by its plan, and has no lease of, or not yet.
    pub without: u64,
    /// Connections that were ended because what they asked for may have run behind a lease.
    pub ended: u64,
}

/// What a shard knows of the leases of its node.
#[derive(Debug)]
pub(super) struct Leases {
    pub(super) table: Arc<LeaseTable>,
    shard: u16,
    /// By partition: until when it may be served, the margin left out; 0: not now.
    ends_us: Box<[u64; LINK_PARTITIONS as usize]>,
    /// When to read the table again, at the latest: no end that was read is earlier. Never without
    /// leases.
    read_us: u64,
    /// How often it was read.
    reads: u64,
    /// The first of these ends.
    first_us: u64,
    /// Something may have run since the last check.
    is_unchecked: bool,
    /// Answers for other shards stand in the outbox, and were not checked.
    is_owed: bool,
    /// The first of the ends that were in force since the last check and are not any more.
    dropped_us: u64,
    /// Partitions that wait for their leases.
    waiting: u64,
    /// When the shard turned last, and when it told last how its partitions stand.
    turned_us: u64,
    published_us: Option<u64>,
    lapses: u64,
}

impl Leases {
    /// Nothing was read.
    pub(super) fn new(table: Arc<LeaseTable>, shard: u16) -> Self {
        Leases {
            table,
            shard,
            ends_us: Box::new([0; LINK_PARTITIONS as usize]),
            read_us: 0,
            reads: 0,
            first_us: u64::MAX,
            is_unchecked: false,
            is_owed: false,
            dropped_us: u64::MAX,
            waiting: 0,
            turned_us: 0,
            published_us: None,
            lapses: 0,
        }
    }

    /// Whether the table is to be read: an end has passed, or what was read is old.
    #[inline]
    pub(super) fn is_due(&self, now_us: u64) -> bool {
        now_us >= self.read_us
    }

    /// Reads the table by the plan of the shard, for node `me`.
    pub(super) fn read(
        &mut self,
        now_us: u64,
        (plan, me): (&Plan, u8),
        partitions: impl Iterator<Item = PartitionId>,
    ) {
        self.reads += 1;
        (self.waiting, self.first_us) = (0, u64::MAX);
        for partition in partitions {
            let assignment = plan.of(partition);
            let is_mine = plan.is_leased && assignment.primary == me;
            let end_us = match is_mine {
                true => self.end_us(now_us, partition, assignment),
                false => 0,
            };
            self.waiting += u64::from(is_mine && end_us == 0);
            let before_us = &mut self.ends_us[usize::from(partition)];
            if end_us > 0 {
                self.first_us = self.first_us.min(end_us);
            }
            if end_us < *before_us && self.is_unchecked {
                self.dropped_us = self.dropped_us.min(*before_us);
            }
            *before_us = end_us;
        }
        let read_us = match self.waiting {
            _ if !plan.is_leased => u64::MAX,
            0 => now_us + READ_US,
            _ => now_us + WAIT_US,
        };
        self.read_us = self.first_us.min(read_us);
    }

    /// How often the table was read. Before it is read again, no lease of a partition comes or
    /// ends: [`Leases::is_due`].
    pub(super) fn reads(&self) -> u64 {
        self.reads
    }

    /// Until when the node may serve a partition that its plan gives it; 0: not now. It begins
    /// behind all that it has lent itself, unless the old primary has stopped for it. A node
    /// that serves the partition goes on while it lends the partition to its successor.
    fn end_us(&self, now_us: u64, partition: PartitionId, assignment: &Assignment) -> u64 {
        let end_us = match self.table.lease_end_us(partition, assignment.sync_set()) {
            u64::MAX => u64::MAX,
            end_us => end_us.saturating_sub(MARGIN_US),
        };
        let goes_on = now_us < self.ends_us[usize::from(partition)];
        let has_begun = goes_on
            || self.table.handed_over(partition) == assignment.generation
            || now_us >= self.table.begins_us(partition);
        match has_begun && now_us < end_us {
            true => end_us,
            false => 0,
        }
    }

    /// A step begins. Whether it may execute something under leases.
    ///
    /// # Panics
    /// If answers for other shards may have left without a check.
    #[inline]
    pub(super) fn steps(&mut self, may_execute: bool) {
        assert!(!self.is_owed, "the owner ends each turn by Shard::end_turn");
        self.is_unchecked |= may_execute;
    }

    /// Answers for other shards stand in the outbox.
    pub(super) fn owe(&mut self) {
        self.is_owed = self.is_unchecked;
    }

    /// Whether something may have run since the last check.
    #[inline]
    pub(super) fn is_unchecked(&self) -> bool {
        self.is_unchecked
    }

    /// Whether the leases are there of all that may have run since the last check.
    #[inline]
    pub(super) fn cover(&self, now_us: u64) -> bool {
        now_us < self.first_us.min(self.dropped_us).saturating_add(MARGIN_US)
    }

    /// What has run was checked.
    #[inline]
    pub(super) fn checked(&mut self) {
        (self.is_unchecked, self.is_owed, self.dropped_us) = (false, false, u64::MAX);
    }

    /// Whether the lease of a partition is there, as it was read last.
    #[inline]
    pub(super) fn is_there(&self, now_us: u64, plan: &Plan, partition: PartitionId) -> bool {
        !plan.is_leased || now_us < self.ends_us[usize::from(partition)]
    }

    /// Whether the lease of a partition was there when the table was read last.
    pub(super) fn was_there(&self, partition: PartitionId) -> bool {
        self.ends_us[usize::from(partition)] > 0
    }

    /// The next step or turn reads the table: the plan has changed, or what the shard is to write.
    pub(super) fn read_soon(&mut self) {
        self.read_us = 0;
        self.published_us = None;
    }

    /// Leases of so many partitions are over that were served.
    pub(super) fn lapsed(&mut self, partitions: u64) {
        self.lapses += partitions;
    }

    /// What was counted.
    pub(super) fn counters(&self) -> LeaseCounters {
        LeaseCounters {
            lapses: self.lapses,
            without: self.waiting,
            ended: 0,
        }
    }

    /// The shard turns. Whether it is to tell how its partitions stand.
    pub(super) fn turns(&mut self, now_us: u64) -> bool {
        self.turned_us = now_us;
        self.table.turned(self.shard, now_us);
        let publishes = self
            .published_us
            .is_none_or(|published_us| now_us >= published_us + PUBLISH_US);
        if publishes {
            self.published_us = Some(now_us);
        }
        publishes
    }

    /// When the shard is to turn again under leases.
    pub(super) fn deadline_us(&self) -> u64 {
        let turn_us = self.turned_us + TURN_US;
        match self.waiting {
            0 => turn_us,
            _ => turn_us.min(self.read_us),
        }
    }
}
