//! The header of a file that served as a segment before and is to serve again. What it held stays
//! behind it and counts for nothing: nothing there checks under the salt that the header tells.
//! Every byte is described in `FORMAT.md`.

use crate::format::frame::{FrameError, FrameHeader, FrameHome};
use crate::format::record::read_u64;
use crate::format::segment::{Owner, begin, is_sealed, owner_of, seal};
use crate::types::io::BLOCK_BYTES;

/// The first bytes of a spare that served before.
pub const SPARE_MAGIC: [u8; 8] = *b"PSTKSPR1";

/// The first block of a spare that served before, and its last block.
///
/// The segment header takes the place of the first one. If a crash tears it, the last block still
/// tells that nothing in the file counts, unless a frame checks under the salt.
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
        begin(block, SPARE_MAGIC, self.owner);
        block[80..88].copy_from_slice(&self.salt.to_le_bytes());
        seal(block);
    }

    /// Reads a block; `None` if it is no such header, or not as this version writes it.
    #[must_use]
    pub fn read(block: &[u8; BLOCK_BYTES]) -> Option<SpareHeader> {
        if !is_sealed(block, SPARE_MAGIC) {
            return None;
        }
        let header = SpareHeader {
            owner: owner_of(block),
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
    let home = FrameHome::named_by(block, salt);
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
