//! Replication: a primary ships records to the members of its partitions, and the members apply
//! them.
//!
//! There is one [`Partition`] for each partition of the node, a [`Ring`] for each shard, a
//! [`Sender`] for each link to a member, a [`Receiver`] for each link from a primary, and
//! [`ReplicaGates`] for the replies that wait for members. These know no log: frames go in, frames
//! and [`Work`] come out. [`link_set::LinkSet`] owns them over the store of a shard. It does the
//! work and says how far the log is durable. All of it is pure. Words, orderings and states stand
//! in `REPLICATION.md`.
//!
//! It does not know: sockets, secrets, time but as a number that it passes on.

pub mod clock_offset;
pub mod cursor;
pub mod epoch;
pub mod freshness;
pub mod gate;
pub mod handshake;
pub mod link_set;
pub mod notes;
pub mod pace;
pub mod partition;
pub mod partition_map;
pub mod planted;
pub mod reads;
pub mod receiver;
pub mod record;
pub mod ring;
pub mod sender;
pub mod standing;
pub mod summarized_map;
#[cfg(test)]
mod tests;
pub mod timeline;

use penstock_net::link::Position;
use penstock_storage::place::Lsn;

pub use epoch::{Epoch, EpochHistory, Fork};
pub use freshness::Freshness;
pub use gate::{Needed, ReplicaGates, SyncSet, Waiting};
pub use partition::{Applicable, CannotBegin, Facts, Partition, Role};
pub use receiver::Receiver;
pub use record::{RecordFault, ShippedRecord, records};
pub use ring::Ring;
pub use sender::{Counting, Sender};
pub use standing::{Duty, Lag, LinkState, PeerStatus, Traffic};
pub use timeline::Timeline;

/// A partition, 0 to 255.
pub type PartitionId = u16;

/// One connection from or to another node; never means another one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Bytes of unapplied records that a member holds for a link. Beyond this bound it stops reading
/// the link, if it can apply some. A source ships half of this before the records are durable on
/// its disk.
pub const PENDING_BYTES_MAX: usize = 8 << 20;

/// What the owner of the log writes down at once.
pub trait Journal {
    /// Appends the local record of a partition. Tells behind which record it is durable.
    fn note(&mut self, partition: PartitionId, facts: &Facts) -> Lsn;
}

/// What the owner of the log is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Work {
    /// It is not primary any more: clients are to be sent elsewhere, and what waits for members is
    /// *unknown*.
    Deposed {
        /// The partition.
        partition: PartitionId,
        /// By which epoch.
        epoch: Epoch,
    },
    /// Records that were received and have diverged, to be kept in lostfound.
    Save {
        /// The partition.
        partition: PartitionId,
        /// Each with all of its parts.
        records: Vec<Vec<u8>>,
    },
    /// All records in the log that have diverged are to be kept in lostfound, then their keys are
    /// to be told: [`Receiver::diverged_saved`].
    SaveDiverged {
        /// The partition.
        partition: PartitionId,
        /// By which link the keys are to be told.
        link: LinkId,
        /// The keys stand behind this position.
        from: Position,
        /// The keys are not of this history. The history has no end.
        history: EpochHistory,
    },
    /// Keys are to be written anew, each with its present value or as a deletion:
    /// [`Sender::rewound`].
    Rewind {
        /// The partition.
        partition: PartitionId,
        /// The keys.
        keys: Vec<Vec<u8>>,
    },
    /// The primary hands the partition over: [`Partition::begin`].
    Begin {
        /// The partition.
        partition: PartitionId,
        /// The epoch that is to begin.
        epoch: Epoch,
    },
    /// A partition is handed over that is not all here.
    Lacks {
        /// The partition.
        partition: PartitionId,
        /// The node that hands it over.
        node: u8,
    },
}
