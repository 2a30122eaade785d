//! The summary that ends a sealed segment: which partitions it holds and their range of sequences.
//! Byte layout in `FORMAT.md`.

use crate::format::record::{read_u32, read_u64};
use crate::types::version::{PARTITIONS, partition_of};

const HEAD_BYTES: usize = 16;
const ENTRY_BYTES: usize = 40;
/// Bytes that a segment keeps free for its summary frame, at most.
pub const SUMMARY_BYTES_MAX: usize =
    crate::format::frame::padded_bytes(HEAD_BYTES + PARTITIONS * ENTRY_BYTES);

/// What a segment holds of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionRange {
    /// Epoch of its first part.
    pub first_epoch: u32,
    /// Epoch of its last part.
    pub last_epoch: u32,
    /// Tombstones among its parts.
    pub tombstones: u32,
    /// Sequence of its first part; 0 if the segment holds none.
    pub first_sequence: u64,
    /// Sequence of its last part.
    pub last_sequence: u64,
    /// File offset of its first part.
    pub first_offset: u64,
}

/// What a segment holds, by partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    partitions: Box<[PartitionRange; PARTITIONS]>,
}

impl Default for Summary {
    fn default() -> Self {
        Self::new()
    }
}

impl Summary {
    /// The summary of an empty segment.
    #[must_use]
    pub fn new() -> Self {
        Summary {
            partitions: Box::new([PartitionRange::default(); PARTITIONS]),
        }
    }

    /// Takes one part into account.
    #[inline]
    pub fn note(&mut self, slot: u16, epoch: u32, sequence: u64, offset: u64, tombstone: bool) {
        let range = &mut self.partitions[partition_of(slot)];
        if range.first_sequence == 0 {
            (range.first_epoch, range.first_sequence, range.first_offset) =
                (epoch, sequence, offset);
        }
        (range.last_epoch, range.last_sequence) = (epoch, sequence);
        range.tombstones += u32::from(tombstone);
    }

    /// The partitions that the segment holds parts of, ascending.
    pub fn partitions(&self) -> impl Iterator<Item = (usize, &PartitionRange)> {
        self.partitions
            .iter()
            .enumerate()
            .filter(|(_, range)| range.first_sequence != 0)
    }

    /// Encodes the body of a summary frame and returns its size.
    pub fn encode(&self, into: &mut [u8]) -> usize {
        let mut count = 0u32;
        let mut at = HEAD_BYTES;
        for (partition, range) in self.partitions() {
            let entry = &mut into[at..at + ENTRY_BYTES];
            entry[0..2].copy_from_slice(
                &u16::try_from(partition)
                    .expect("256 partitions")
                    .to_le_bytes(),
            );
            entry[2..4].fill(0);
            entry[4..8].copy_from_slice(&range.first_epoch.to_le_bytes());
            entry[8..12].copy_from_slice(&range.last_epoch.to_le_bytes());
            entry[12..16].copy_from_slice(&range.tombstones.to_le_bytes());
            entry[16..24].copy_from_slice(&range.first_sequence.to_le_bytes());
            entry[24..32].copy_from_slice(&range.last_sequence.to_le_bytes());
            entry[32..40].copy_from_slice(&range.first_offset.to_le_bytes());
            count += 1;
            at += ENTRY_BYTES;
        }
        into[..HEAD_BYTES].fill(0);
        into[0..4].copy_from_slice(&count.to_le_bytes());
        at
    }

    /// Reads the body of a summary frame; `None` if it is not one of this format.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        let (head, entries) = body.split_first_chunk::<HEAD_BYTES>()?;
        let count = read_u32(&head[0..4]) as usize;
        // No key table and no other addition is defined yet.
        if head[4..].iter().any(|&byte| byte != 0)
            || count > PARTITIONS
            || entries.len() != count * ENTRY_BYTES
        {
            return None;
        }
        let mut summary = Summary::new();
        let mut partition_min = 0;
        for entry in entries.chunks_exact(ENTRY_BYTES) {
            let partition = usize::from(u16::from_le_bytes([entry[0], entry[1]]));
            // An entry out of order or without a part would be lost in what is compared.
            let is_listed = partition >= partition_min && read_u64(&entry[16..24]) != 0;
            if entry[2..4] != [0, 0] || !is_listed {
                return None;
            }
            partition_min = partition + 1;
            *summary.partitions.get_mut(partition)? = PartitionRange {
                first_epoch: read_u32(&entry[4..8]),
                last_epoch: read_u32(&entry[8..12]),
                tombstones: read_u32(&entry[12..16]),
                first_sequence: read_u64(&entry[16..24]),
                last_sequence: read_u64(&entry[24..32]),
                first_offset: read_u64(&entry[32..40]),
            };
        }
        Some(summary)
    }
}
