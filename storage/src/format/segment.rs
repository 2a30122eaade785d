//! The segment: one file of the log. Its first block says whose it is and where the one before it
//! ended; frames follow. Every byte is described in `FORMAT.md`.

use crc32fast::hash;

use crate::format::frame::FrameHome;
use crate::format::record::{read_u32, read_u64};
use crate::types::io::BLOCK_BYTES;
use crate::types::place::Lsn;

/// The first bytes of a segment file.
pub const SEGMENT_MAGIC: [u8; 8] = *b"PSTKSEG1";
/// The version of the segment format.
pub const SEGMENT_VERSION: u32 = 1;
/// Bytes of a segment that an operator may choose, at least.
pub const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// Bytes of a segment, at most.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// The deployment and the node that a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The cluster.
    pub cluster_id: [u8; 16],
    /// The node.
    pub node_id: [u8; 16],
}

/// The first block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Whose it is.
    pub owner: Owner,
    /// The start of the node that wrote it.
    pub incarnation: u64,
    /// The log it belongs to; never reused.
    pub log_id: u64,
    /// 0 for commits, 1 for what cleaning copies.
    pub chain: u32,
    /// Whether the file served before: behind the frames there may be what is left of that.
    pub is_reused: bool,
    /// Dense per log and chain, from 1.
    pub sequence: u64,
    /// Fresh for every use of a file.
    pub salt: u64,
    /// The LSN of the first record that it can hold.
    pub first_lsn: Lsn,
    /// Sequence of the segment before it; 0 if there is none.
    pub previous_sequence: u64,
    /// Where the frames of that segment end.
    pub previous_end_offset: u64,
    /// The LSN of the last record of that segment and all before.
    pub previous_end_lsn: Lsn,
    /// Length of the file when it was taken into use.
    pub segment_bytes: u64,
    /// Unix milliseconds of the newest record before; 0 if none.
    pub created_ms: u64,
}

/// Bytes at the begin of a header's block that hold its fields.
pub(crate) const HEADER_FIELDS_BYTES: usize = 136;
/// Bytes at the end of that block that hold its CRC; all between are zero.
pub(crate) const HEADER_CRC_BYTES: usize = 4;

/// What the first block of a file tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstBlock {
    /// Nothing was ever written here.
    Spare,
    /// A segment.
    Segment(SegmentHeader),
    /// A segment of another format version.
    OtherVersion(u32),
    /// Neither: not what was written.
    Damaged,
}

impl SegmentHeader {
    /// What the checks of its frames need.
    #[must_use]
    pub fn home(&self) -> FrameHome {
        FrameHome {
            log_id: self.log_id,
            segment_sequence: self.sequence,
            salt: self.salt,
        }
    }

    /// Fills `block` with the header.
    pub fn encode(&self, block: &mut [u8; BLOCK_BYTES]) {
        begin(block, SEGMENT_MAGIC, self.owner);
        block[48..56].copy_from_slice(&self.incarnation.to_le_bytes());
        block[56..64].copy_from_slice(&self.log_id.to_le_bytes());
        block[64..68].copy_from_slice(&self.chain.to_le_bytes());
        block[68..72].copy_from_slice(&u32::from(self.is_reused).to_le_bytes());
        let words = [
            self.sequence,
            self.salt,
            self.first_lsn.0,
            self.previous_sequence,
            self.previous_end_offset,
            self.previous_end_lsn.0,
            self.segment_bytes,
            self.created_ms,
        ];
        for (at, word) in (72..).step_by(8).zip(words) {
            block[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        seal(block);
    }

    /// Reads a first block.
    #[must_use]
    pub fn read(block: &[u8; BLOCK_BYTES]) -> FirstBlock {
        if *block == [0; BLOCK_BYTES] {
            return FirstBlock::Spare;
        }
        if !is_sealed(block, SEGMENT_MAGIC) {
            return FirstBlock::Damaged;
        }
        let version = read_u32(&block[8..12]);
        if version != SEGMENT_VERSION {
            return FirstBlock::OtherVersion(version);
        }
        let word = |at: usize| read_u64(&block[at..at + 8]);
        let header = SegmentHeader {
            owner: owner_of(block),
            incarnation: word(48),
            log_id: word(56),
            chain: read_u32(&block[64..68]),
            is_reused: read_u32(&block[68..72]) == 1,
            sequence: word(72),
            salt: word(80),
            first_lsn: Lsn(word(88)),
            previous_sequence: word(96),
            previous_end_offset: word(104),
            previous_end_lsn: Lsn(word(112)),
            segment_bytes: word(120),
            created_ms: word(128),
        };
        // The CRC spans every byte; a header that re-encodes differently has a field that this
        // version does not know.
        let mut again = [0; BLOCK_BYTES];
        header.encode(&mut again);
        if again == *block {
            FirstBlock::Segment(header)
        } else {
            FirstBlock::OtherVersion(version)
        }
    }
}

/// Empties a block and writes what all headers of a file begin with.
pub(crate) fn begin(block: &mut [u8; BLOCK_BYTES], magic: [u8; 8], owner: Owner) {
    block.fill(0);
    block[0..8].copy_from_slice(&magic);
    block[8..12].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
    block[12..16].copy_from_slice(&4096u32.to_le_bytes());
    block[16..32].copy_from_slice(&owner.cluster_id);
    block[32..48].copy_from_slice(&owner.node_id);
}

/// Ends a header with the CRC over all before.
pub(crate) fn seal(block: &mut [u8; BLOCK_BYTES]) {
    let crc = hash(&block[..BLOCK_BYTES - HEADER_CRC_BYTES]);
    block[BLOCK_BYTES - HEADER_CRC_BYTES..].copy_from_slice(&crc.to_le_bytes());
}

/// Whether a block is a header with this magic, of whatever version.
pub(crate) fn is_sealed(block: &[u8; BLOCK_BYTES], magic: [u8; 8]) -> bool {
    block[0..8] == magic && read_u32(&block[BLOCK_BYTES - 4..]) == hash(&block[..BLOCK_BYTES - 4])
}

/// Whose a header is.
pub(crate) fn owner_of(block: &[u8; BLOCK_BYTES]) -> Owner {
    let id = |at: usize| -> [u8; 16] { block[at..at + 16].try_into().expect("sixteen bytes") };
    Owner {
        cluster_id: id(16),
        node_id: id(32),
    }
}
