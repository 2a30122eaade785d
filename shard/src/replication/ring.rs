//! What a shard has sealed last, for its links: one bounded memory, the oldest makes room.

use std::collections::VecDeque;

use penstock_net::link::Position;
use penstock_storage::place::Lsn;

use super::PartitionId;
use super::partition_map::PartitionMap;
use super::record::{ShippedRecord, own_records};

/// The newest records of one log, in its order; what cleaning copies among them, which only a scan
/// wants.
#[derive(Debug)]
pub struct Ring {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    bytes_max: usize,
    /// The last record that was sealed.
    last: Lsn,
    /// Everything behind this one is held.
    before: Lsn,
    /// The highest version of each partition up to `last`.
    positions: PartitionMap<Position>,
}

#[derive(Debug)]
struct Chunk {
    last: Lsn,
    records: Vec<Held>,
    bytes: Vec<u8>,
}

/// The fields of a record that links need. They are read once, when the record enters the ring.
#[derive(Debug)]
struct Held {
    lsn: Lsn,
    position: Position,
    changes: u64,
    /// Where the record ends in the bytes of its chunk.
    end: usize,
    partition: PartitionId,
    is_copy: bool,
    is_strange: bool,
}

impl Chunk {
    /// What it takes of the memory.
    fn bytes(&self) -> usize {
        self.bytes.len() + self.records.len() * size_of::<Held>()
    }

    fn iter(&self) -> impl Iterator<Item = (Lsn, ShippedRecord<'_>)> {
        let mut start = 0;
        self.records.iter().map(move |held| {
            let bytes = &self.bytes[start..held.end];
            start = held.end;
            let record = ShippedRecord {
                partition: held.partition,
                position: held.position,
                changes: held.changes,
                is_copy: held.is_copy,
                is_local: false,
                is_strange: held.is_strange,
                bytes,
            };
            (held.lsn, record)
        })
    }
}

impl Ring {
    /// A ring of at most `bytes_max` for a log that ends at `last`, with these highest versions.
    pub fn new(
        bytes_max: usize,
        last: Lsn,
        positions: impl IntoIterator<Item = (PartitionId, Position)>,
    ) -> Self {
        Ring {
            chunks: VecDeque::new(),
            bytes: 0,
            bytes_max,
            last,
            before: last,
            positions: positions.into_iter().collect(),
        }
    }

    /// The last record that was sealed.
    #[must_use]
    pub fn last(&self) -> Lsn {
        self.last
    }

    /// Everything behind this record is held.
    #[must_use]
    pub fn before(&self) -> Lsn {
        self.before
    }

    /// The highest version of a partition that was sealed.
    #[must_use]
    pub fn position(&self, partition: PartitionId) -> Position {
        self.positions.get(&partition).copied().unwrap_or_default()
    }

    /// Bytes of records that are held, and of what is known of them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes over the records of a sealed frame without a copy. `first` is the LSN of the first
    /// one. Local records are removed from `bytes`.
    ///
    /// # Panics
    /// If `first` is not the next one, or the bytes are no records: they are the log's own.
    pub fn push(&mut self, first: Lsn, bytes: Vec<u8>) {
        assert_eq!(first.0, self.last.0 + 1, "frames are sealed in order");
        let mut chunk = Chunk {
            last: self.last,
            records: Vec::new(),
            bytes: Vec::new(),
        };
        let mut local = Vec::new();
        let (mut at, mut end) = (0, 0);
        for record in own_records(&bytes) {
            chunk.last.0 += 1;
            let start = at;
            at += record.bytes.len();
            if record.is_local {
                local.push(start..at);
                continue;
            }
            end += record.bytes.len();
            let highest = self.position(record.partition).max(record.position);
            self.positions.insert(record.partition, highest);
            chunk.records.push(Held {
                lsn: chunk.last,
                position: record.position,
                changes: record.changes,
                end,
                partition: record.partition,
                is_copy: record.is_copy,
                is_strange: record.is_strange,
            });
        }
        chunk.bytes = bytes;
        for range in local.into_iter().rev() {
            chunk.bytes.drain(range);
        }
        self.last = chunk.last;
        self.bytes += chunk.bytes();
        self.chunks.push_back(chunk);
        // The newest stays, however large: what is not held at all cannot be met from the disk.
        while self.bytes > self.bytes_max && self.chunks.len() > 1 {
            let oldest = self.chunks.pop_front().expect("there are two");
            self.bytes -= oldest.bytes();
            self.before = oldest.last;
        }
    }

    /// A record that is never shipped was sealed, alone.
    ///
    /// # Panics
    /// If it is not the next one.
    pub fn pass(&mut self, lsn: Lsn) {
        assert_eq!(lsn.0, self.last.0 + 1, "frames are sealed in order");
        self.last = lsn;
        match self.chunks.back_mut() {
            Some(newest) => newest.last = lsn,
            None => self.before = lsn,
        }
    }

    /// The records behind `after`, oldest first.
    ///
    /// # Panics
    /// If some of them are not held any more.
    pub fn behind(&self, after: Lsn) -> impl Iterator<Item = (Lsn, ShippedRecord<'_>)> {
        assert!(after >= self.before, "the ring begins behind {after:?}");
        let from = self.chunks.partition_point(|chunk| chunk.last <= after);
        let behind = self.chunks.range(from..).flat_map(Chunk::iter);
        behind.filter(move |&(lsn, _)| lsn > after)
    }
}

#[cfg(test)]
mod tests {
    use penstock_storage::system_key::LOCAL_KEY;

    use super::*;
    use crate::replication::tests::{encoded, keys_of_partition};

    #[test]
    fn the_newest_is_held_and_the_oldest_makes_room() {
        let keys = keys_of_partition(3, 1);
        let record = |sequence| {
            let at = Position {
                epoch: 256,
                sequence,
            };
            encoded(at, &[(&keys[0], sequence)])
        };
        let one = record(1).len() + size_of::<Held>();
        let mut ring = Ring::new(one * 5, Lsn(10), []);
        assert_eq!((ring.before(), ring.last()), (Lsn(10), Lsn(10)));
        for frame in 0..10 {
            let (a, b) = (record(2 * frame + 1), record(2 * frame + 2));
            ring.push(Lsn(11 + 2 * frame), [a, b].concat());
            assert!(ring.bytes() <= one * 5);
            let held: Vec<_> = ring.behind(ring.before()).collect();
            assert_eq!(
                held.first().map(|(lsn, _)| lsn.0),
                Some(ring.before().0 + 1)
            );
            assert_eq!(held.last().map(|(lsn, _)| *lsn), Some(ring.last()));
            for pair in held.windows(2) {
                assert_eq!(pair[0].0.0 + 1, pair[1].0.0);
                assert_eq!(pair[0].1.position.sequence + 1, pair[1].1.position.sequence);
            }
        }
        assert_eq!((ring.before(), ring.last()), (Lsn(26), Lsn(30)));
        assert_eq!(ring.behind(Lsn(29)).count(), 1);
        assert_eq!(ring.behind(Lsn(30)).count(), 0);
        // One that is larger than all is held alone.
        let large: Vec<u8> = (21..41).flat_map(record).collect();
        ring.push(Lsn(31), large);
        assert_eq!((ring.before(), ring.last()), (Lsn(30), Lsn(50)));
        assert_eq!(ring.behind(Lsn(30)).count(), 20);
    }

    #[test]
    fn a_sealed_frame_is_held_without_a_copy_and_without_its_local_records() {
        let shipped = keys_of_partition(3, 2);
        let local = [LOCAL_KEY, b"{7}"].concat();
        let at = |sequence| Position {
            epoch: 256,
            sequence,
        };
        let frames = [
            vec![
                encoded(at(1), &[(&shipped[0], 1)]),
                encoded(at(2), &[(&shipped[1], 2)]),
            ],
            vec![
                encoded(at(9), &[(&local, 1)]),
                encoded(at(3), &[(&shipped[0], 3)]),
                encoded(at(9), &[(&local, 2)]),
                encoded(at(4), &[(&shipped[1], 4)]),
            ],
        ];
        let mut ring = Ring::new(1 << 20, Lsn(0), []);
        let mut shipped = Vec::new();
        for frame in frames {
            let bytes = frame.concat();
            let (first, sealed) = (Lsn(ring.last().0 + 1), bytes.as_ptr());
            ring.push(first, bytes);
            let held = &ring.chunks.back().expect("just pushed").bytes;
            assert_eq!(held.as_ptr(), sealed, "the bytes stay where they are");
            shipped.extend(frame.into_iter().filter(|record| {
                let (record, _) = ShippedRecord::read(record).expect("sound");
                !record.is_local
            }));
        }
        let held: Vec<_> = ring.behind(Lsn(0)).collect();
        let lsns: Vec<u64> = held.iter().map(|(lsn, _)| lsn.0).collect();
        assert_eq!(lsns, [1, 2, 4, 6]);
        let bytes: Vec<_> = held
            .iter()
            .map(|(_, record)| record.bytes.to_vec())
            .collect();
        assert_eq!(bytes, shipped);
        let records_bytes: usize = shipped.iter().map(Vec::len).sum();
        assert_eq!(ring.bytes(), records_bytes + 4 * size_of::<Held>());
    }
}
