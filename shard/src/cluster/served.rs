//! The partitions of a shard for which this node answers.

use penstock_net::link::message::LINK_PARTITIONS;

use crate::replication::PartitionId;

/// The partitions that this shard answers for, and whether these are all that it owns.
#[derive(Debug)]
pub(super) struct ServedPartitions {
    is_served: [bool; LINK_PARTITIONS as usize],
    are_all: bool,
}

impl ServedPartitions {
    /// None so far.
    pub(super) fn none() -> Self {
        ServedPartitions {
            is_served: [false; LINK_PARTITIONS as usize],
            are_all: false,
        }
    }

    #[inline]
    pub(super) fn has(&self, partition: usize) -> bool {
        self.is_served[partition]
    }

    /// Whether all partitions of the shard are answered for here.
    pub(super) fn has_all(&self) -> bool {
        self.are_all
    }

    /// For each partition of the shard, whether it is answered for here from now on.
    pub(super) fn set(&mut self, partitions: impl Iterator<Item = (PartitionId, bool)>) {
        self.are_all = true;
        for (partition, is_served) in partitions {
            self.is_served[usize::from(partition)] = is_served;
            self.are_all &= is_served;
        }
    }

    /// Ends answers for those partitions of the shard that this node may not write.
    pub(super) fn restrict(
        &mut self,
        partitions: impl Iterator<Item = PartitionId>,
        may_write: impl Fn(PartitionId) -> bool,
    ) {
        self.are_all = true;
        for partition in partitions {
            let is_served = &mut self.is_served[usize::from(partition)];
            *is_served &= may_write(partition);
            self.are_all &= *is_served;
        }
    }
}
