//! The contents frame: the segments that a log consists of, once cleaning has released some.
//!
//! A log begins dense, with segments 1, 2, 3 ..., and needs no list. From its first release on,
//! every new segment begins with a contents frame, and a release that cannot wait for the next
//! segment writes one in between. The newest one counts: a segment before it that it does not list
//! is released, one that it lists must be there, and what stands behind it is dense. It also
//! repeats what would be forgotten with the last record that told it: how far the versions of the
//! partitions have gone. That of a log with local records also tells up to where the records of
//! each partition may be gone. Byte layout in `FORMAT.md`.

use crate::format::reached::Reached;
use crate::format::record::{SEQUENCE_MAX, read_u32, read_u64};
use crate::types::place::FileId;
use crate::types::place::{LogPosition, Lsn};
use crate::types::version::{Epochs, PARTITIONS, Sequences, Version};

const HEAD_BYTES: usize = 16;
const ENTRY_BYTES: usize = 24;
/// Two tables with an entry for each partition: what is forgotten, and the epoch of the highest
/// version.
const TABLES_BYTES: usize = PARTITIONS * (8 + 4);
/// The word of the head that tells what stands behind the sequences.
const HAS_TABLES: u32 = 1;

/// Segments of one log at a time, at most: what a contents frame of a mebibyte can list.
pub const SEGMENTS_MAX: usize = 40_000;

/// Where a segment ends for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEnd {
    /// Its sequence in the log.
    pub sequence: u64,
    /// Where its frames end.
    pub end_offset: u64,
    /// The last record of the log up to there.
    pub last_lsn: Lsn,
}

/// A segment to which nothing is added any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedSegment {
    /// Its file.
    pub file: FileId,
    /// The salt of its frames.
    pub salt: u64,
    /// What it takes of the disk, in bytes.
    pub file_bytes: u64,
    /// Where it ends.
    pub end: SegmentEnd,
}

/// What a log held before its open segment.
#[derive(Clone, Debug)]
pub struct History {
    /// Its segments, ascending.
    pub segments: Vec<SealedSegment>,
    /// Whether a segment was ever released, so that the log is not dense from 1.
    pub has_released: bool,
    /// Where its last record's frame ends, or a later one of the same segment. None if it has no
    /// record.
    pub position: Option<LogPosition>,
    /// The sequence of the highest version of each partition. Local records have no part in it.
    pub sequences: Box<Sequences>,
    /// The epoch of that version if it was written since the log holds local records, otherwise 0:
    /// by then sequences rise with epochs, and are enough.
    pub epochs: Box<Epochs>,
    /// All records of a partition whose sequences are above this are there, but for what a repair
    /// gave up.
    pub forgotten: Box<Sequences>,
    /// It holds local records, so contents frames tell epochs and what is forgotten.
    pub is_linked: bool,
    /// The highest epoch of any part.
    pub epoch_max: u32,
    /// How far each partition had come along the log.
    pub reached: Reached,
}

impl Default for History {
    fn default() -> Self {
        History {
            segments: Vec::new(),
            has_released: false,
            position: None,
            sequences: Box::new([0; PARTITIONS]),
            epochs: Box::new([0; PARTITIONS]),
            forgotten: Box::new([0; PARTITIONS]),
            is_linked: false,
            epoch_max: 0,
            reached: Reached::default(),
        }
    }
}

impl History {
    /// A record of a partition has this version.
    #[inline]
    pub(crate) fn note(&mut self, partition: usize, version: Version) {
        self.epoch_max = self.epoch_max.max(version.epoch);
        let epoch = if self.is_linked { version.epoch } else { 0 };
        self.raise(partition, Version { epoch, ..version });
    }

    /// A partition went at least so far.
    #[inline]
    pub(crate) fn raise(&mut self, partition: usize, last: Version) {
        if last > self.last(partition) {
            self.epochs[partition] = last.epoch;
            self.sequences[partition] = last.sequence;
        }
    }

    /// The highest version of a partition, as far as [`History::epochs`] tell.
    #[inline]
    #[must_use]
    pub fn last(&self, partition: usize) -> Version {
        Version {
            epoch: self.epochs[partition],
            sequence: self.sequences[partition],
        }
    }

    /// Takes in what a snapshot told of the log up to `from`, once the log behind it was replayed.
    pub fn came_after(&mut self, from: Lsn, known: &History) {
        for partition in 0..PARTITIONS {
            self.raise(partition, known.last(partition));
        }
        self.forget(&known.forgotten);
        self.reached.came_after(from, &known.reached);
    }

    /// Takes in what a list tells that stands in its log.
    pub(crate) fn take_in(&mut self, contents: &Contents) {
        self.has_released = true;
        self.is_linked |= contents.is_linked;
        for partition in 0..PARTITIONS {
            let stored = Version {
                epoch: contents.epochs[partition],
                sequence: contents.sequences[partition],
            };
            self.raise(partition, stored);
            let forgotten = &mut self.forgotten[partition];
            *forgotten = (*forgotten).max(contents.forgotten[partition]);
        }
        self.epoch_max = self.epoch_max.max(contents.epoch_max);
    }

    /// Records of a released segment, or of a log that vanishes, went so far.
    pub(crate) fn forget(&mut self, highest: &Sequences) {
        for (forgotten, &highest) in self.forgotten.iter_mut().zip(highest) {
            *forgotten = (*forgotten).max(highest);
        }
    }

    /// Bytes of the body of a contents frame that tells this.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        let tables_bytes = if self.is_linked { TABLES_BYTES } else { 0 };
        HEAD_BYTES + PARTITIONS * 8 + tables_bytes + self.segments.len() * ENTRY_BYTES
    }

    /// Encodes the body of a contents frame and returns its size.
    pub fn encode(&self, into: &mut [u8]) -> usize {
        let body = &mut into[..self.body_bytes()];
        let count = u32::try_from(self.segments.len()).expect("the segments of a log are bounded");
        let (head, rest) = body.split_at_mut(HEAD_BYTES);
        head.fill(0);
        head[0..4].copy_from_slice(&count.to_le_bytes());
        head[4..8].copy_from_slice(&self.epoch_max.to_le_bytes());
        let (sequences, mut entries) = rest.split_at_mut(PARTITIONS * 8);
        for (into, sequence) in sequences.chunks_exact_mut(8).zip(self.sequences.iter()) {
            into.copy_from_slice(&sequence.to_le_bytes());
        }
        if self.is_linked {
            head[8..12].copy_from_slice(&HAS_TABLES.to_le_bytes());
            let (tables, rest) = entries.split_at_mut(TABLES_BYTES);
            let (forgotten, epochs) = tables.split_at_mut(PARTITIONS * 8);
            for (into, sequence) in forgotten.chunks_exact_mut(8).zip(self.forgotten.iter()) {
                into.copy_from_slice(&sequence.to_le_bytes());
            }
            for (into, epoch) in epochs.chunks_exact_mut(4).zip(self.epochs.iter()) {
                into.copy_from_slice(&epoch.to_le_bytes());
            }
            entries = rest;
        }
        for (into, segment) in entries.chunks_exact_mut(ENTRY_BYTES).zip(&self.segments) {
            into[0..8].copy_from_slice(&segment.end.sequence.to_le_bytes());
            into[8..16].copy_from_slice(&segment.end.end_offset.to_le_bytes());
            into[16..24].copy_from_slice(&segment.end.last_lsn.0.to_le_bytes());
        }
        body.len()
    }
}

/// What a contents frame tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The segments before its own, ascending.
    pub segments: Vec<SegmentEnd>,
    /// The sequence of the highest version of each partition.
    pub sequences: Box<Sequences>,
    /// As [`History::epochs`]; without a table of them 0.
    pub epochs: Box<Epochs>,
    /// As [`History::forgotten`]; without a table of them everything so far.
    pub forgotten: Box<Sequences>,
    /// It has these tables.
    pub is_linked: bool,
    /// The highest epoch of any part.
    pub epoch_max: u32,
}

impl Contents {
    /// Reads the body of a contents frame; `None` if it is not one of this format.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        let (head, rest) = body.split_first_chunk::<HEAD_BYTES>()?;
        let (sequences, rest) = rest.split_at_checked(PARTITIONS * 8)?;
        let count = read_u32(&head[0..4]) as usize;
        let epoch_max = read_u32(&head[4..8]);
        let (tables, entries) = match read_u64(&head[8..16]) {
            0 => (None, rest),
            word if word == u64::from(HAS_TABLES) => {
                let (tables, entries) = rest.split_at_checked(TABLES_BYTES)?;
                (Some(tables.split_at(PARTITIONS * 8)), entries)
            }
            _ => return None,
        };
        if count > SEGMENTS_MAX || entries.len() != count * ENTRY_BYTES {
            return None;
        }
        let mut contents = Contents {
            segments: Vec::with_capacity(count),
            sequences: Box::new([0; PARTITIONS]),
            epochs: Box::new([0; PARTITIONS]),
            forgotten: Box::new([0; PARTITIONS]),
            is_linked: tables.is_some(),
            epoch_max,
        };
        for (sequence, bytes) in contents.sequences.iter_mut().zip(sequences.chunks_exact(8)) {
            *sequence = read_u64(bytes);
            if *sequence > SEQUENCE_MAX {
                return None;
            }
        }
        if let Some((forgotten, epochs)) = tables {
            for (into, bytes) in contents.forgotten.iter_mut().zip(forgotten.chunks_exact(8)) {
                *into = read_u64(bytes);
            }
            for (into, bytes) in contents.epochs.iter_mut().zip(epochs.chunks_exact(4)) {
                *into = read_u32(bytes);
            }
            if contents.epochs.iter().any(|&epoch| epoch > epoch_max) {
                return None;
            }
        } else {
            contents.forgotten.clone_from(&contents.sequences);
        }
        let mut before = (0, Lsn(0));
        for entry in entries.chunks_exact(ENTRY_BYTES) {
            let end = SegmentEnd {
                sequence: read_u64(&entry[0..8]),
                end_offset: read_u64(&entry[8..16]),
                last_lsn: Lsn(read_u64(&entry[16..24])),
            };
            if end.sequence <= before.0 || end.last_lsn < before.1 {
                return None;
            }
            before = (end.sequence, end.last_lsn);
            contents.segments.push(end);
        }
        Some(contents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(segments: u64) -> History {
        let mut history = History {
            has_released: true,
            epoch_max: 0x0102_0304,
            ..History::default()
        };
        history.sequences[7] = 99;
        history.segments = (1..=segments)
            .map(|n| SealedSegment {
                file: FileId(5),
                salt: 1,
                file_bytes: 1 << 20,
                end: SegmentEnd {
                    sequence: 3 * n,
                    end_offset: 4096 * n,
                    last_lsn: Lsn(100 * n),
                },
            })
            .collect();
        history
    }

    #[test]
    fn what_was_listed_is_read_back() {
        for (count, is_linked) in [(0, false), (1, true), (5, false), (5, true)] {
            let mut history = history(count);
            history.is_linked = is_linked;
            history.epochs[7] = 0x0102_0001;
            history.forgotten[7] = 88;
            let mut body = vec![0xAA; history.body_bytes() + 9];
            let len = history.encode(&mut body);
            let contents = Contents::read(&body[..len]).expect("just written");
            let ends: Vec<SegmentEnd> = history.segments.iter().map(|s| s.end).collect();
            assert_eq!(contents.segments, ends);
            assert_eq!(contents.sequences, history.sequences);
            assert_eq!(contents.epoch_max, 0x0102_0304);
            // A list without tables promises nothing of what is before it.
            let stored = (contents.epochs[7], contents.forgotten[7]);
            match is_linked {
                true => assert_eq!(stored, (0x0102_0001, 88)),
                false => assert_eq!(stored, (0, 99)),
            }
            assert_eq!(contents.is_linked, is_linked);
            for cut in 0..len {
                assert!(Contents::read(&body[..cut]).is_none(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_list_out_of_order_or_with_unknown_fields_is_refused() {
        let mut twice = history(2);
        twice.segments[1].end.sequence = 3;
        let mut back = history(2);
        back.segments[1].end.last_lsn = Lsn(99);
        for history in [twice, back] {
            let mut body = vec![0; history.body_bytes()];
            history.encode(&mut body);
            assert_eq!(Contents::read(&body), None);
        }
        let mut body = vec![0; history(1).body_bytes()];
        history(1).encode(&mut body);
        for (at, word) in [(8, 1), (8, 2), (12, 1)] {
            let mut body = body.clone();
            body[at] = word;
            assert_eq!(Contents::read(&body), None);
        }
        let mut later = history(1);
        later.is_linked = true;
        later.epochs[9] = later.epoch_max + 1;
        let mut body = vec![0; later.body_bytes()];
        later.encode(&mut body);
        assert_eq!(Contents::read(&body), None);
    }
}
