//! What a shard has sealed last, for its links: one bounded memory, the oldest makes room. Frames
//! are held as they were sealed. Who reads cuts the records out.

use std::collections::{VecDeque, vec_deque};

use penstock_net::link::Position;
use penstock_storage::place::Lsn;
use penstock_storage::system_key::is_local;
use penstock_storage::version::{PARTITIONS, partition_of};

use super::PartitionId;
use super::record::{ShippedRecord, own_head, position_of};

/// The newest records of one log, in its order; what cleaning copies among them, which only a scan
/// wants.
#[derive(Debug)]
pub struct Ring {
    frames: VecDeque<Frame>,
    bytes: usize,
    bytes_max: usize,
    /// The last record of the last frame that was sealed.
    sealed: Lsn,
    /// All up to here was sealed, or is not held.
    last: Lsn,
    /// Everything behind this one up to `last` is held.
    before: Lsn,
    /// The highest version of each partition up to `last`, while the ring does not rest.
    positions: Box<[Position; PARTITIONS]>,
    readers: Readers,
}

/// Whether somebody reads the ring.
#[derive(Clone, Copy, Debug)]
enum Readers {
    Here,
    /// Nobody does since this record was the last one. Who has read comes back soon or lacks more
    /// than is held.
    Gone(Lsn),
    /// Nobody does, and nothing is held for anybody.
    Absent,
}

/// A frame of the log: the parts of its records, side by side.
#[derive(Debug)]
struct Frame {
    first: Lsn,
    last: Lsn,
    bytes: Vec<u8>,
}

impl Frame {
    /// What it takes of the memory.
    fn bytes(&self) -> usize {
        self.bytes.len() + size_of::<Frame>()
    }
}

impl Ring {
    /// A ring of at most `bytes_max`, at rest, for a log that ends at `last`.
    #[must_use]
    pub fn new(bytes_max: usize, last: Lsn) -> Self {
        Ring {
            frames: VecDeque::new(),
            bytes: 0,
            bytes_max,
            sealed: last,
            last,
            before: last,
            positions: Box::new([Position::default(); _]),
            readers: Readers::Absent,
        }
    }

    /// The last record that was sealed; behind a rest also what was appended at its end.
    #[must_use]
    pub fn last(&self) -> Lsn {
        self.last
    }

    /// Everything behind this record is held.
    #[must_use]
    pub fn before(&self) -> Lsn {
        self.before
    }

    /// The highest version of a partition up to the last record. A ring at rest does not know it.
    #[must_use]
    pub fn position(&self, partition: PartitionId) -> Position {
        self.positions[usize::from(partition)]
    }

    /// Bytes of frames that are held, and of what is known of them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nobody reads it, so that no frame is to be pushed.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        matches!(self.readers, Readers::Absent)
    }

    /// Nobody reads any more.
    pub fn leave(&mut self) {
        if matches!(self.readers, Readers::Here) {
            self.readers = Readers::Gone(self.last);
        }
    }

    /// Somebody reads, or is about to. `appended` tells the last record of the log and `highest`
    /// the highest version of each partition up to there: a ring that rested goes on behind it.
    pub fn read_on(&mut self, appended: Lsn, highest: impl Fn(PartitionId) -> Position) {
        if self.is_resting() {
            self.pass(appended);
            for (partition, position) in (0..).zip(self.positions.iter_mut()) {
                *position = highest(partition);
            }
        }
        self.readers = Readers::Here;
    }

    /// Records up to `appended` are not held: a reader that lacks them reads the disk.
    ///
    /// # Panics
    /// If the ring does not rest.
    pub fn pass(&mut self, appended: Lsn) {
        assert!(self.is_resting(), "what is held is read");
        (self.last, self.before) = (appended, appended);
    }

    /// Takes over the bytes of a sealed frame without a copy. `first` is the LSN of its first
    /// record.
    ///
    /// # Panics
    /// If `first` is not behind the last frame, or the bytes are no records: they are the log's
    /// own.
    pub fn push(&mut self, first: Lsn, bytes: Vec<u8>) {
        assert!(
            first > self.sealed && first.0 <= self.last.0 + 1,
            "frames are sealed in order"
        );
        let mut last = Lsn(first.0 - 1);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (part, end) = own_head(rest);
            last.0 += 1;
            if !is_local(part.key()) {
                let highest = &mut self.positions[partition_of(part.slot())];
                *highest = position_of(part.version()).max(*highest);
            }
            rest = &rest[end..];
        }
        self.sealed = last;
        if last <= self.last {
            return;
        }
        self.last = last;
        let frame = Frame { first, last, bytes };
        self.bytes += frame.bytes();
        self.frames.push_back(frame);
        // The newest stays, however large: what is not held at all cannot be met from the disk.
        while self.bytes > self.bytes_max && self.frames.len() > 1 {
            let oldest = self.frames.pop_front().expect("there are two");
            self.bytes -= oldest.bytes();
            self.before = oldest.last;
        }
        if let Readers::Gone(since) = self.readers
            && self.before > since
        {
            self.rest();
        }
    }

    fn rest(&mut self) {
        self.readers = Readers::Absent;
        self.frames = VecDeque::new();
        self.bytes = 0;
        self.pass(self.last);
    }

    /// The records behind `after`, oldest first, without those that are never shipped.
    ///
    /// # Panics
    /// If some of them are not held any more.
    pub fn behind(&self, after: Lsn) -> Behind<'_> {
        assert!(after >= self.before, "the ring begins behind {after:?}");
        let from = self.frames.partition_point(|frame| frame.last <= after);
        Behind {
            frames: self.frames.range(from..),
            bytes: &[],
            lsn: after,
            after,
        }
    }
}

/// Records of a ring with their numbers.
#[derive(Debug)]
pub struct Behind<'a> {
    frames: vec_deque::Iter<'a, Frame>,
    /// What is left of the frame.
    bytes: &'a [u8],
    /// The record before that.
    lsn: Lsn,
    after: Lsn,
}

impl<'a> Iterator for Behind<'a> {
    type Item = (Lsn, ShippedRecord<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while self.bytes.is_empty() {
                let frame = self.frames.next()?;
                (self.bytes, self.lsn) = (&frame.bytes, Lsn(frame.first.0 - 1));
            }
            let (record, rest) = ShippedRecord::own(self.bytes);
            self.bytes = rest;
            self.lsn.0 += 1;
            if self.lsn > self.after && !record.is_local {
                return Some((self.lsn, record));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_storage::system_key::LOCAL_KEY;

    use super::*;
    use crate::replication::tests::{encoded, keys_of_partition};

    fn at(sequence: u64) -> Position {
        Position {
            epoch: 256,
            sequence,
        }
    }

    /// A record of partition 3.
    fn record(sequence: u64) -> Vec<u8> {
        let keys = keys_of_partition(3, 1);
        encoded(at(sequence), &[(&keys[0], sequence)])
    }

    /// A frame with the records of these sequences.
    fn frame(sequences: std::ops::RangeInclusive<u64>) -> Vec<u8> {
        sequences.flat_map(record).collect()
    }

    /// A ring that is read and has so much room, for a log of one partition.
    fn read_ring(bytes_max: usize, last: u64) -> Ring {
        let mut ring = Ring::new(bytes_max, Lsn(0));
        ring.read_on(Lsn(last), |_| Position::default());
        ring
    }

    fn lsns_behind(ring: &Ring, after: Lsn) -> Vec<u64> {
        ring.behind(after).map(|(lsn, _)| lsn.0).collect()
    }

    #[test]
    fn the_newest_is_held_and_the_oldest_makes_room() {
        let two = frame(1..=2).len() + size_of::<Frame>();
        let bytes_max = two * 5 / 2;
        let mut ring = read_ring(bytes_max, 10);
        assert_eq!((ring.before(), ring.last()), (Lsn(10), Lsn(10)));
        for number in 0..10 {
            ring.push(Lsn(11 + 2 * number), frame(2 * number + 1..=2 * number + 2));
            assert!(ring.bytes() <= bytes_max);
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
            assert_eq!(ring.position(3), at(2 * number + 2));
        }
        assert_eq!((ring.before(), ring.last()), (Lsn(26), Lsn(30)));
        assert_eq!(ring.behind(Lsn(29)).count(), 1);
        assert_eq!(ring.behind(Lsn(30)).count(), 0);
        // One that is larger than all is held alone.
        ring.push(Lsn(31), frame(21..=40));
        assert_eq!((ring.before(), ring.last()), (Lsn(30), Lsn(50)));
        assert_eq!(ring.behind(Lsn(30)).count(), 20);
    }

    #[test]
    fn a_sealed_frame_is_held_without_a_copy_and_read_without_its_local_records() {
        let shipped = keys_of_partition(3, 2);
        let local = [LOCAL_KEY, b"{7}"].concat();
        let frames = [
            vec![
                encoded(at(1), &[(&shipped[0], 1)]),
                encoded(at(2), &[(&shipped[1], 2)]),
            ],
            vec![
                encoded(at(9), &[(&local, 1)]),
                encoded(at(3), &[(&shipped[0], 3), (&shipped[1], 4)]),
                encoded(at(9), &[(&local, 2)]),
                encoded(at(4), &[(&shipped[1], 4)]),
            ],
            vec![encoded(at(9), &[(&local, 1)])],
        ];
        let mut ring = read_ring(1 << 20, 0);
        let mut shipped = Vec::new();
        let mut held_bytes = 0;
        for frame in frames {
            let bytes = frame.concat();
            held_bytes += bytes.len() + size_of::<Frame>();
            let (first, sealed) = (Lsn(ring.last().0 + 1), bytes.as_ptr());
            ring.push(first, bytes);
            let held = &ring.frames.back().expect("just pushed").bytes;
            assert_eq!(held.as_ptr(), sealed, "the bytes stay where they are");
            shipped.extend(frame.into_iter().filter(|record| {
                let (record, _) = ShippedRecord::read(record).expect("sound");
                !record.is_local
            }));
        }
        assert_eq!(lsns_behind(&ring, Lsn(0)), [1, 2, 4, 6]);
        assert_eq!(lsns_behind(&ring, Lsn(4)), [6]);
        let held = ring.behind(Lsn(0));
        let bytes: Vec<_> = held.map(|(_, record)| record.bytes.to_vec()).collect();
        assert_eq!(bytes, shipped);
        assert_eq!((ring.last(), ring.position(3)), (Lsn(7), at(4)));
        assert_eq!(ring.bytes(), held_bytes);
    }

    #[test]
    fn a_ring_that_nobody_has_read_holds_nothing_and_begins_with_its_first_reader() {
        let mut ring = Ring::new(1 << 20, Lsn(10));
        ring.leave();
        assert!(ring.is_resting());
        ring.pass(Lsn(20));
        assert_eq!((ring.before(), ring.last()), (Lsn(20), Lsn(20)));
        ring.read_on(Lsn(23), |partition| at(u64::from(partition)));
        assert!(!ring.is_resting() && ring.bytes() == 0);
        assert_eq!((ring.before(), ring.last()), (Lsn(23), Lsn(23)));
        assert_eq!((ring.position(3), ring.position(255)), (at(3), at(255)));
        // Another turn with a reader changes nothing.
        ring.read_on(Lsn(29), |_| unreachable!("it is known"));
        assert_eq!(ring.last(), Lsn(23));
    }

    #[test]
    fn of_the_frame_that_is_open_when_a_ring_awakes_only_what_comes_then_is_read() {
        let mut ring = Ring::new(1 << 20, Lsn(0));
        // Sealed up to 20; 21 and 22 stand in the open frame.
        ring.read_on(Lsn(22), |_| at(2));
        ring.push(Lsn(21), frame(1..=4));
        assert_eq!((ring.before(), ring.last()), (Lsn(22), Lsn(24)));
        assert_eq!(lsns_behind(&ring, Lsn(22)), [23, 24]);
        assert_eq!(ring.position(3), at(4));
        // Nothing came into the open frame any more.
        let mut ring = Ring::new(1 << 20, Lsn(0));
        ring.read_on(Lsn(22), |_| at(2));
        ring.push(Lsn(21), frame(1..=2));
        assert_eq!((ring.last(), ring.bytes()), (Lsn(22), 0));
        ring.push(Lsn(23), frame(3..=4));
        assert_eq!(lsns_behind(&ring, Lsn(22)), [23, 24]);
    }

    #[test]
    fn a_ring_that_nobody_reads_any_more_rests_once_it_drops_what_came_since() {
        let two = frame(1..=2).len() + size_of::<Frame>();
        let mut ring = read_ring(two * 3, 0);
        let push = |ring: &mut Ring, number: u64| {
            ring.push(Lsn(2 * number + 1), frame(2 * number + 1..=2 * number + 2));
        };
        for number in 0..3 {
            push(&mut ring, number);
        }
        ring.leave();
        // Who has read it may have all up to here.
        for number in 3..6 {
            push(&mut ring, number);
            ring.leave();
            assert!(!ring.is_resting(), "frame {number}");
        }
        assert_eq!(ring.before(), Lsn(6));
        assert_eq!(lsns_behind(&ring, Lsn(6)), [7, 8, 9, 10, 11, 12]);
        push(&mut ring, 6);
        assert!(ring.is_resting());
        assert_eq!((ring.before(), ring.last()), (Lsn(14), Lsn(14)));
        assert_eq!((ring.bytes(), ring.frames.capacity()), (0, 0));
    }

    #[test]
    fn a_reader_that_comes_back_soon_finds_all_that_was_sealed_meanwhile() {
        let two = frame(1..=2).len() + size_of::<Frame>();
        let mut ring = read_ring(two * 3, 0);
        ring.push(Lsn(1), frame(1..=2));
        ring.leave();
        ring.push(Lsn(3), frame(3..=4));
        ring.read_on(Lsn(4), |_| unreachable!("it is known"));
        assert_eq!(lsns_behind(&ring, Lsn(2)), [3, 4]);
        // It counts from the last time that somebody left.
        for number in 2..9 {
            ring.push(Lsn(2 * number + 1), frame(2 * number + 1..=2 * number + 2));
        }
        ring.leave();
        ring.push(Lsn(19), frame(19..=20));
        assert!(!ring.is_resting());
        assert_eq!(ring.position(3), at(20));
    }
}
