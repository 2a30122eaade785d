//! The first record of an epoch: the history of its partition.

use penstock_net::link::Position;
use penstock_storage::io::{Block, Blocks};
use penstock_storage::log::{Purpose, Room};
use penstock_storage::record::{PartSpec, RecordSpec};
use penstock_storage::version::Version;

use crate::replication::epoch::EpochHistory;
use crate::replication::record::parts_of;
use crate::replication::{Partition, PartitionId};

use super::prefetch::Waiter;
use super::replicas::Replicas;
use super::store_turn::StoreTurn;

/// The first record of an epoch that this node begins.
pub(super) struct FirstRecord {
    number: PartitionId,
    start_id: u32,
    at: Position,
    history: EpochHistory,
}

impl FirstRecord {
    /// The record that a partition lacks to be written, once all that was received is applied.
    /// `start_id` is of this start of the node.
    pub(super) fn due(number: PartitionId, state: &Partition, start_id: u32) -> Option<Self> {
        let (at, history) = state.first_record(start_id)?;
        Some(FirstRecord {
            number,
            start_id,
            at,
            history,
        })
    }

    /// Appends the record, unless its key is cold or the log has no room. Returns whether it did.
    pub(super) fn append<P: Blocks<Block = B>, B: Block, H: Fn(&[u8]) -> u32>(
        &self,
        turn: &mut StoreTurn<'_, P, H>,
        replicas: &mut Replicas<B>,
    ) -> bool {
        let number = self.number;
        let (slot, key) = (turn.tags.slot(number), turn.tags.epochs(number));
        let keys = (slot, &[key.as_slice()][..]);
        let (prefetch, effects) = (&mut replicas.prefetch, &mut replicas.effects);
        if !prefetch.keys(Waiter::Apply(number), keys, turn, effects) {
            return false;
        }
        let bytes = self.encode(slot, &key, turn.store.data().time_ms());
        let parts = parts_of(&bytes);
        if !turn.notes().has_room() || turn.store.room_for(Purpose::Keep, bytes.len()) != Room::Yes
        {
            return false;
        }
        let lsn = turn
            .store
            .apply(turn.time.now_us, &parts, true, turn.hash_of);
        let lsn = lsn.expect("what must be dense is appended");
        turn.store.lead(usize::from(number), parts[0].version());
        turn.want_durable(lsn);
        let state = replicas.partitions.get_mut(&number).expect("just seen");
        state.begun(self.start_id, lsn, &mut turn.notes());
        true
    }

    fn encode(&self, slot: u16, key: &[u8], time_ms: u64) -> Vec<u8> {
        let value = self.history.encode();
        let parts = [PartSpec::put(key, &value)];
        let Position { epoch, sequence } = self.at;
        let record = RecordSpec::new(slot, Version { epoch, sequence }, time_ms, &parts);
        let mut bytes = vec![0; record.bytes()];
        record.encode_part(0, &mut bytes);
        bytes
    }
}
