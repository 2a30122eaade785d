//! The header of a file that served as a segment before and is to serve again. What it held stays
//! behind it and counts for nothing: nothing there checks under the salt that the header tells.
//! Every byte is described in `FORMAT.md`.

use crc32fast::hash;

use crate::frame::{FrameError, FrameHeader, FrameHome};
use crate::io::BLOCK_BYTES;
use crate::record::{read_u32, read_u64};
use crate::segment::{Owner, SEGMENT_VERSION};

/// The first bytes of a spare that served before.
pub const SPARE_MAGIC: [u8; 8] = *b"PSTKSPR1";

/// The first block of a spare that served before, and its last block.
///
/// The segment header takes the place of the first one. If a crash tears it, the last block still tells
/// that nothing in the file counts, unless a frame checks under the salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpareHeader {
    /// Whose it is.
    pub owner: Owner,
    /// The salt of its next use: never used before.
    pub salt: u64,
}

impl SpareHeader {
    /// Fills `block` with the header.
    pub fn encode(&self, block: &mut [u8; BLOCK_BYTES]) {
        block.fill(0);
        block[0..8].copy_from_slice(&SPARE_MAGIC);
        block[8..12].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
        block[12..16].copy_from_slice(&4096u32.to_le_bytes());
        block[16..32].copy_from_slice(&self.owner.cluster_id);
        block[32..48].copy_from_slice(&self.owner.node_id);
        block[80..88].copy_from_slice(&self.salt.to_le_bytes());
        let crc = hash(&block[..BLOCK_BYTES - 4]);
        block[BLOCK_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a block; `None` if it is no such header, or not as this version writes it.
    #[must_use]
    pub fn read(block: &[u8; BLOCK_BYTES]) -> Option<SpareHeader> {
        let id = |at: usize| -> [u8; 16] { block[at..at + 16].try_into().expect("sixteen bytes") };
        if block[0..8] != SPARE_MAGIC
            || read_u32(&block[BLOCK_BYTES - 4..]) != hash(&block[..BLOCK_BYTES - 4])
        {
            return None;
        }
        let header = SpareHeader {
            owner: Owner {
                cluster_id: id(16),
                node_id: id(32),
            },
            salt: read_u64(&block[80..88]),
        };
        let mut again = [0; BLOCK_BYTES];
        header.encode(&mut again);
        (again == *block).then_some(header)
    }
}

/// Whether the block at `offset` of a file begins with the header of a frame that was written under
/// `salt`, of whatever log and segment.
#[must_use]
pub fn holds_frame_of(salt: u64, offset: u64, block: &[u8]) -> bool {
    let home = FrameHome::told_by(block, salt);
    !matches!(
        FrameHeader::read(home, offset, block),
        Err(FrameError::Absent)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SpareHeader = SpareHeader {
        owner: Owner {
            cluster_id: [0xC1; 16],
            node_id: [0xD2; 16],
        },
        salt: 0x1122_3344_5566_7788,
    };

    #[test]
    fn a_spare_header_reads_as_written_and_no_flipped_bit_passes() {
        let mut block = [0; BLOCK_BYTES];
        HEADER.encode(&mut block);
        assert_eq!(SpareHeader::read(&block), Some(HEADER));
        for bit in 0..BLOCK_BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SpareHeader::read(&block), None, "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
