//! The partitions of a shard for which this node answers.

use penstock_net::link::message::LINK_PARTITIONS;

use crate::replication::PartitionId;

/// The partitions that this shard answers for.
#[derive(Debug)]
pub(super) struct ServedPartitions {
    is_served: [bool; LINK_PARTITIONS as usize],
    changes: u64,
    /// The stamp of what it was decided by last.
    stamp: Option<(u64, u64)>,
}

impl ServedPartitions {
    /// None so far.
    pub(super) fn none() -> Self {
        ServedPartitions {
            is_served: [false; LINK_PARTITIONS as usize],
            changes: 0,
            stamp: None,
        }
    }

    #[inline]
    pub(super) fn has(&self, partition: usize) -> bool {
        self.is_served[partition]
    }

    /// A number that rises with each partition that is answered for from now on, or no more.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether it was decided last by what has this stamp, so that nothing is to be decided again.
    #[inline]
    pub(super) fn is_of(&self, stamp: Option<(u64, u64)>) -> bool {
        stamp.is_some() && self.stamp == stamp
    }

    /// For each partition of the shard, whether it is answered for here from now on. `is_served`
    /// decides by whether the node may write the partition, and whether it was answered for. With
    /// the same `stamp` it would decide the same; `None` if each turn may decide something else.
    pub(super) fn set(
        &mut self,
        stamp: Option<(u64, u64)>,
        writable: impl Iterator<Item = (PartitionId, bool)>,
        mut is_served: impl FnMut(PartitionId, bool, bool) -> bool,
    ) {
        self.stamp = stamp;
        for (partition, may_write) in writable {
            let before = &mut self.is_served[usize::from(partition)];
            let now = is_served(partition, may_write, *before);
            self.changes += u64::from(std::mem::replace(before, now) != now);
        }
    }

    /// Ends answers for those partitions of the shard that this node may not write.
    pub(super) fn restrict(
        &mut self,
        partitions: impl Iterator<Item = PartitionId>,
        may_write: impl Fn(PartitionId) -> bool,
    ) {
        self.stamp = None;
        for partition in partitions {
            let is_served = &mut self.is_served[usize::from(partition)];
            let before = std::mem::replace(is_served, *is_served && may_write(partition));
            self.changes += u64::from(before != *is_served);
        }
    }
}
