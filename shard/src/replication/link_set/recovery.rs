//! What a start finds of partitions in the log.

use penstock_storage::io::Blocks;
use penstock_storage::store::Store;

use crate::replication::PartitionId;
use crate::replication::epoch::EpochHistory;
use crate::replication::handshake::Introduction;
use crate::replication::notes::Tags;
use crate::replication::partition::{Facts, Partition};
use crate::replication::receiver::Partitions;
use crate::replication::record::position_of;
use crate::topology::Topology;

/// Why links cannot be made over a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableNote {
    /// The partition whose local record or record of epochs is none of this version.
    pub partition: PartitionId,
}

/// The partitions of a shard, as its store has them.
///
/// # Errors
/// [`UnreadableNote`]: a note was written by another version.
pub(super) fn partitions<P: Blocks>(
    me: &Introduction,
    tags: &Tags,
    store: &Store<P>,
) -> Result<Partitions, UnreadableNote> {
    let topology = Topology::new(me.shards);
    let mut partitions = Partitions::default();
    for number in 0..256 {
        let slot = tags.slot(number);
        if topology.owner(slot) != me.shard {
            continue;
        }
        let unreadable = UnreadableNote { partition: number };
        let facts = match store.data().locals().value(slot) {
            Some(value) => Facts::read(value).ok_or(unreadable)?,
            None => Facts::default(),
        };
        let history = match store.data().locals().epochs_found(slot) {
            Some(value) => EpochHistory::read(value).ok_or(unreadable)?,
            None => EpochHistory::default(),
        };
        let highest = position_of(store.log().history().last(usize::from(number)));
        let partition = Partition::recovered(number, facts, history, highest);
        partitions.insert(number, partition);
    }
    Ok(partitions)
}
