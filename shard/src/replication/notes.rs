//! What a node writes down about its partitions: the local record, which tells [`Facts`], and the
//! record of epochs, which tells the history. Both layouts stand in `storage/FORMAT.md`.

use penstock_net::link::Position;
use penstock_net::link::message::{EpochEntry, LINK_EPOCHS_MAX, LINK_PARTITIONS};
use penstock_net::slot::slot_of;
use penstock_storage::io::Blocks;
use penstock_storage::keyspace::{
    FLOOR_AT, FLOOR_TIME_AT, LOCAL_BYTES, LOCAL_BYTES_WITH_FLOOR, LOCAL_HAS_FLOOR,
    LOCAL_HAS_REWIND, LOCAL_HAS_SCAN, LOCAL_VERSION,
};
use penstock_storage::log::Room;
use penstock_storage::place::Lsn;
use penstock_storage::store::Store;
use penstock_storage::system_key::{EPOCHS_KEY, LOCAL_KEY};
use penstock_storage::version::partition_of;

use super::epoch::{Epoch, EpochHistory};
use super::partition::{Facts, PastFloor};
use super::{Journal, PartitionId};

const EPOCH_BYTES: usize = 16;

/// Keys that lead to each partition.
#[derive(Debug)]
pub struct Tags {
    /// The least number whose decimal digits, as the tag of a key, lead there.
    of: Vec<u32>,
}

impl Default for Tags {
    fn default() -> Self {
        let mut of = vec![None; usize::from(LINK_PARTITIONS)];
        let mut left = of.len();
        for tag in 0u32.. {
            if left == 0 {
                break;
            }
            let partition = partition_of(slot_of(format!("{{{tag}}}").as_bytes()));
            left -= usize::from(of[partition].is_none());
            of[partition].get_or_insert(tag);
        }
        Tags {
            of: of.into_iter().flatten().collect(),
        }
    }
}

impl Tags {
    fn key(&self, prefix: &[u8], partition: PartitionId) -> Vec<u8> {
        let tag = self.of[usize::from(partition)];
        [prefix, format!("{{{tag}}}").as_bytes()].concat()
    }

    /// The key of the local record of a partition.
    #[must_use]
    pub fn local(&self, partition: PartitionId) -> Vec<u8> {
        self.key(LOCAL_KEY, partition)
    }

    /// The key of the record of epochs of a partition.
    #[must_use]
    pub fn epochs(&self, partition: PartitionId) -> Vec<u8> {
        self.key(EPOCHS_KEY, partition)
    }

    /// A slot of the partition: that of both keys.
    #[must_use]
    pub fn slot(&self, partition: PartitionId) -> u16 {
        slot_of(&self.local(partition))
    }
}

impl Facts {
    /// The value of the local record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let bytes = match self.past_floor {
            None => LOCAL_BYTES,
            Some(_) => LOCAL_BYTES_WITH_FLOOR,
        };
        let mut value = vec![0; bytes];
        value[0] = LOCAL_VERSION;
        let mut put = |at: usize, flag: u8, position: Option<Position>| {
            if let Some(position) = position {
                value[1] |= flag;
                value[at..at + 4].copy_from_slice(&position.epoch.to_le_bytes());
                value[at + 8..at + 16].copy_from_slice(&position.sequence.to_le_bytes());
            }
        };
        put(16, LOCAL_HAS_SCAN, self.scan_from);
        put(32, LOCAL_HAS_REWIND, self.rewind_from);
        put(FLOOR_AT, LOCAL_HAS_FLOOR, self.past_floor.map(|it| it.at));
        if let Some(floor) = self.past_floor {
            let time_ms = floor.time_ms.to_le_bytes();
            value[FLOOR_TIME_AT..FLOOR_TIME_AT + 8].copy_from_slice(&time_ms);
        }
        value[4..8].copy_from_slice(&self.promised.0.to_le_bytes());
        value[8..16].copy_from_slice(&self.dense_behind.to_le_bytes());
        value
    }

    /// Reads the value of a local record; `None` if it is none of this format.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        if ![LOCAL_BYTES, LOCAL_BYTES_WITH_FLOOR].contains(&value.len()) {
            return None;
        }
        let has_floor = value.len() == LOCAL_BYTES_WITH_FLOOR;
        let word = |at: usize| u32::from_le_bytes(value[at..at + 4].try_into().expect("four"));
        let long = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().expect("eight"));
        let position = |at: usize, flag: u8| {
            (value[1] & flag != 0).then(|| Position {
                epoch: word(at),
                sequence: long(at + 8),
            })
        };
        let facts = Facts {
            promised: Epoch(word(4)),
            dense_behind: long(8),
            scan_from: position(16, LOCAL_HAS_SCAN),
            rewind_from: position(32, LOCAL_HAS_REWIND),
            past_floor: has_floor.then(|| PastFloor {
                at: Position {
                    epoch: word(FLOOR_AT),
                    sequence: long(FLOOR_AT + 8),
                },
                time_ms: long(FLOOR_TIME_AT),
            }),
        };
        // Whatever is not told is zero.
        (facts.encode() == value).then_some(facts)
    }
}

impl EpochHistory {
    /// The value of the record of epochs.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(LINK_EPOCHS_MAX * EPOCH_BYTES);
        for entry in self.entries() {
            value.extend(entry.epoch.to_le_bytes());
            value.extend(entry.start_id.to_le_bytes());
            value.extend(entry.first.to_le_bytes());
        }
        value
    }

    /// Reads the value of a record of epochs; `None` if it is none.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let (entries, rest) = value.as_chunks::<EPOCH_BYTES>();
        if !rest.is_empty() || entries.is_empty() || entries.len() > LINK_EPOCHS_MAX {
            return None;
        }
        let mut history = EpochHistory::default();
        let mut before = (0, 0);
        for entry in entries {
            let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("four"));
            let entry = EpochEntry {
                epoch: word(0),
                start_id: word(4),
                first: u64::from_le_bytes(entry[8..].try_into().expect("eight")),
            };
            if entry.epoch <= before.0 || entry.first <= before.1 {
                return None;
            }
            before = (entry.epoch, entry.first);
            history.push(entry);
        }
        Some(history)
    }
}

/// Local records that one step may write, at most.
const NOTES_MAX: usize = 4;

/// A store to write local records to.
pub struct Notes<'a, P: Blocks> {
    /// The store.
    pub store: &'a mut Store<P>,
    /// The keys.
    pub tags: &'a Tags,
    /// The time on the monotonic clock, in microseconds.
    pub now_us: u64,
}

impl<P: Blocks> Notes<'_, P> {
    /// Whether the notes of one step can be written now.
    pub fn has_room(&mut self) -> bool {
        // No tag has more than ten digits.
        let key_bytes = LOCAL_KEY.len() + 12;
        let one = penstock_storage::record::part_bytes(key_bytes, LOCAL_BYTES_WITH_FLOOR, false, 0);
        let purpose = penstock_storage::log::Purpose::Keep;
        self.store.room_for(purpose, NOTES_MAX * one) == Room::Yes
    }
}

impl<P: Blocks> Journal for Notes<'_, P> {
    fn note(&mut self, partition: PartitionId, facts: &Facts) -> Lsn {
        let slot = self.tags.slot(partition);
        let key = self.tags.local(partition);
        let lsn = self
            .store
            .note_local(self.now_us, slot, &key, &facts.encode());
        self.store.log_mut().want_durable(lsn);
        lsn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(epoch: u32, sequence: u64) -> Position {
        Position { epoch, sequence }
    }

    #[test]
    fn facts_are_read_back_and_nothing_else_is() {
        let all = [None, Some(position(0, 0)), Some(position(70_000, 1 << 40))];
        let floors = all.map(|at| {
            at.map(|at| PastFloor {
                at,
                time_ms: 1 << 41,
            })
        });
        let pairs = all
            .iter()
            .flat_map(|scan| all.iter().map(move |rewind| (*scan, *rewind)));
        for ((scan_from, rewind_from), past_floor) in
            pairs.flat_map(|pair| floors.iter().map(move |floor| (pair, *floor)))
        {
            let facts = Facts {
                promised: Epoch::new(3, 4, 5),
                scan_from,
                rewind_from,
                dense_behind: 99,
                past_floor,
            };
            let value = facts.encode();
            assert_eq!(Facts::read(&value), Some(facts.clone()));
            for cut in 0..value.len() {
                assert_eq!(Facts::read(&value[..cut]), None);
            }
            for bit in 0..value.len() * 8 {
                let mut value = value.clone();
                value[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(Facts::read(&value), Some(facts.clone()), "bit {bit}");
            }
        }
    }

    #[test]
    fn histories_are_read_back_and_must_rise() {
        let entries = (1..=64u32).map(|n| EpochEntry {
            epoch: Epoch::new(n, 0, 1).0,
            start_id: n.wrapping_mul(0x9E37_79B9),
            first: u64::from(n) * 10,
        });
        let history = EpochHistory::of(entries);
        let value = history.encode();
        assert_eq!(EpochHistory::read(&value), Some(history));
        for cut in 0..value.len() {
            let read = EpochHistory::read(&value[..cut]);
            assert_eq!(read.is_some(), cut > 0 && cut.is_multiple_of(EPOCH_BYTES));
        }
        let swapped = [&value[16..32], &value[..16]].concat();
        assert_eq!(EpochHistory::read(&swapped), None);
        let twice = [&value[..16], &value[..16]].concat();
        assert_eq!(EpochHistory::read(&twice), None);
        let longer = [&value[..], &[0xFF; 16]].concat();
        assert_eq!(EpochHistory::read(&longer), None);
    }

    #[test]
    fn the_keys_of_a_partition_lead_to_it() {
        let tags = Tags::default();
        assert_eq!(tags.of.len(), 256);
        for partition in 0..LINK_PARTITIONS {
            for key in [tags.local(partition), tags.epochs(partition)] {
                assert_eq!(partition_of(slot_of(&key)), usize::from(partition));
                assert_eq!(slot_of(&key), tags.slot(partition));
            }
        }
    }
}
