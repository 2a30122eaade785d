//! What a node is to one of its partitions.

use penstock_net::link::{Mode, Position};
use penstock_storage::place::Lsn;

use crate::replication::LinkId;
use crate::replication::epoch::Epoch;
use crate::replication::planted::{Bug, is_planted};
use crate::replication::record::ShippedRecord;

/// What the node is to the partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing runs.
    Idle,
    /// The node writes the partition, or is about to.
    Primary {
        /// The epoch that the node writes under.
        epoch: Epoch,
        /// The epoch's first record, once it was appended.
        begun: Option<Lsn>,
    },
    /// It gets what a primary writes.
    Member(Membership),
}

/// A partition that gets what a primary writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// By which link.
    pub link: LinkId,
    /// Under which epoch.
    pub epoch: Epoch,
    /// How, once it has begun.
    pub(super) mode: Option<Mode>,
    /// It was told to have caught up, and has applied all up to there.
    pub(super) joined: bool,
}

impl Membership {
    /// A partition that is opened by a link, and has not begun.
    pub(super) fn opened(link: LinkId, epoch: Epoch) -> Self {
        Membership {
            link,
            epoch,
            mode: None,
            joined: false,
        }
    }

    /// Whether every record comes, in order.
    pub(super) fn is_dense(&self) -> bool {
        self.mode == Some(Mode::Dense)
    }

    /// Whether BEGIN of this epoch is awaited by a link.
    pub(super) fn awaits_begin(&self, link: LinkId, epoch: u32) -> bool {
        self.link == link && self.epoch.0 == epoch && self.mode.is_none()
    }

    /// Whether a record may follow `received`, the last one before it by the link.
    pub(super) fn may_follow(&self, received: Position, record: &ShippedRecord<'_>) -> bool {
        if record.position.epoch > self.epoch.0 {
            return false;
        }
        match self.mode {
            Some(Mode::Dense) => {
                let is_next = record.follows(received.sequence) || is_planted(Bug::GapAccepted);
                is_next && record.position.epoch >= received.epoch && !record.is_copy
            }
            Some(Mode::Scan) => true,
            None => false,
        }
    }
}
