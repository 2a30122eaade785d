//! What a shard knows of its partitions and of the other nodes.

use crate::replication::reads::Unread;
use crate::replication::{Duty, Epoch, PartitionId, PeerStatus};

/// What a node does with a partition. The later, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartitionRole {
    /// It answers for it.
    Primary,
    /// It holds what the primary holds, but for what is under way.
    Following,
    /// It is to write it, and its first record is not durable, or it has no lease.
    Beginning,
    /// It has written it, and another node is to.
    Draining,
    /// It gets what it lacks.
    CatchingUp,
    /// It has followed since it started, and nobody ships it now.
    Followed,
    /// Nothing runs.
    Idle,
    /// It gets all of it anew.
    Scanning,
    /// It releases what it had written alone.
    Rewinding,
}

impl PartitionRole {
    /// Every role, in this order.
    pub const ALL: [PartitionRole; 9] = [
        PartitionRole::Primary,
        PartitionRole::Following,
        PartitionRole::Beginning,
        PartitionRole::Draining,
        PartitionRole::CatchingUp,
        PartitionRole::Followed,
        PartitionRole::Idle,
        PartitionRole::Scanning,
        PartitionRole::Rewinding,
    ];

    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PartitionRole::Primary => "primary",
            PartitionRole::Beginning => "beginning",
            PartitionRole::Draining => "draining",
            PartitionRole::Following => "following",
            PartitionRole::CatchingUp => "catching up",
            PartitionRole::Scanning => "scanning",
            PartitionRole::Rewinding => "rewinding",
            PartitionRole::Followed => "followed",
            PartitionRole::Idle => "idle",
        }
    }

    /// Whether nothing is to be done.
    #[must_use]
    pub const fn is_well(self) -> bool {
        matches!(self, PartitionRole::Primary | PartitionRole::Following)
    }

    /// Whether what is here is no state that a primary had.
    #[must_use]
    pub const fn is_incomplete(self) -> bool {
        matches!(self, PartitionRole::Scanning | PartitionRole::Rewinding)
    }
}

/// What is known of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStatus {
    /// The partition.
    pub partition: PartitionId,
    /// What this node does with it.
    pub role: PartitionRole,
    /// What it is to do by the plan.
    pub duty: Duty,
    /// The epoch promised.
    pub epoch: Epoch,
    /// The sequence of the last record in the log.
    pub applied: u64,
    /// The same of the last record that is there, if only in memory.
    pub received: u64,
    /// It wrote the last record that is here.
    pub was_last: bool,
    /// The nodes that level `replica` waits for, if this one writes the partition, ascending.
    pub waits_for: Vec<u8>,
    /// The same of the last one that was known to be durable here a moment ago.
    pub durable: u64,
    /// What it cannot go on without, although the node reads it again and again.
    pub hangs_on: Option<Unread>,
}

/// What a shard knows of its partitions and of the other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationStatus {
    /// Its partitions, ascending.
    pub partitions: Vec<PartitionStatus>,
    /// The nodes that ship to it, or that it ships to.
    pub peers: Vec<PeerStatus>,
}
