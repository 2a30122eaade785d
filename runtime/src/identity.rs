//! The `IDENTITY` file of a data directory: one block that says whose data this is.
//!
//! | offset | field | |
//! |---|---|---|
//! | 0 | magic | `PENSTOCK` |
//! | 8 | format version | u32, 1 |
//! | 12 | log count | u32: how many logs, one a shard, the directory was laid out for |
//! | 16 | cluster id | 16 bytes, random |
//! | 32 | node id | 16 bytes, random |
//! | 48 | incarnation | u64, one more at each start |
//! | 56 | segment bytes | u64, the size of new segments |
//! | 64 | created | u64, unix milliseconds |
//! | 72 | hash seed | u64, random: the secret of the key hash; zero in a directory that has none yet |
//! | 80 | reserved | zero |
//! | 4092 | CRC | u32, CRC-32 of all before |
//!
//! All numbers are little-endian.

use penstock_storage::io::BLOCK_BYTES;

/// The first eight bytes.
const MAGIC: [u8; 8] = *b"PENSTOCK";

/// The format version that this build reads and writes.
pub const FORMAT_VERSION: u32 = 1;

const VERSION_AT: usize = MAGIC.len();
const LOG_COUNT_AT: usize = VERSION_AT + 4;
const CLUSTER_AT: usize = LOG_COUNT_AT + 4;
const NODE_AT: usize = CLUSTER_AT + 16;
const INCARNATION_AT: usize = NODE_AT + 16;
const SEGMENT_BYTES_AT: usize = INCARNATION_AT + 8;
const CREATED_AT: usize = SEGMENT_BYTES_AT + 8;
const HASH_SEED_AT: usize = CREATED_AT + 8;
const RESERVED_AT: usize = HASH_SEED_AT + 8;
const CRC_AT: usize = BLOCK_BYTES - 4;

/// Whose data a directory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Chosen at random when the directory was made; every segment carries it.
    pub cluster_id: [u8; 16],
    /// Likewise.
    pub node_id: [u8; 16],
    /// How many times the directory was opened to be served, from 1.
    pub incarnation: u64,
    /// How many logs the directory was laid out for.
    pub log_count: u32,
    /// The size of new segments in bytes.
    pub segment_bytes: u64,
    /// Unix milliseconds.
    pub created_ms: u64,
    /// The secret of the key hash: chosen at random and the same for life, because snapshots of the
    /// index hold hashes.
    pub hash_seed: u64,
}

/// Why a block is no identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityError {
    /// It is not one block long.
    Length(usize),
    /// It does not begin with the magic.
    Magic,
    /// It is of a format version that this build does not read.
    Version(u32),
    /// Its CRC disagrees, or a reserved byte is not zero.
    Damaged,
}

impl Identity {
    /// The block of the file.
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(VERSION_AT, &FORMAT_VERSION.to_le_bytes());
        put(LOG_COUNT_AT, &self.log_count.to_le_bytes());
        put(CLUSTER_AT, &self.cluster_id);
        put(NODE_AT, &self.node_id);
        put(INCARNATION_AT, &self.incarnation.to_le_bytes());
        put(SEGMENT_BYTES_AT, &self.segment_bytes.to_le_bytes());
        put(CREATED_AT, &self.created_ms.to_le_bytes());
        put(HASH_SEED_AT, &self.hash_seed.to_le_bytes());
        let crc = crc32fast::hash(&block[..CRC_AT]);
        block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// Reads the block of the file, and believes nothing that its CRC does not vouch for.
    ///
    /// The version is looked at first, since another version may keep its CRC elsewhere.
    pub fn decode(block: &[u8]) -> Result<Self, IdentityError> {
        if !block.starts_with(&MAGIC) {
            return Err(IdentityError::Magic);
        }
        let block: &[u8; BLOCK_BYTES] = block
            .try_into()
            .map_err(|_| IdentityError::Length(block.len()))?;
        let version = u32::from_le_bytes(field(block, VERSION_AT));
        if version != FORMAT_VERSION {
            return Err(IdentityError::Version(version));
        }
        let crc = u32::from_le_bytes(field(block, CRC_AT));
        let reserved_is_zero = block[RESERVED_AT..CRC_AT].iter().all(|&byte| byte == 0);
        if crc != crc32fast::hash(&block[..CRC_AT]) || !reserved_is_zero {
            return Err(IdentityError::Damaged);
        }
        Ok(Self {
            cluster_id: field(block, CLUSTER_AT),
            node_id: field(block, NODE_AT),
            incarnation: u64::from_le_bytes(field(block, INCARNATION_AT)),
            log_count: u32::from_le_bytes(field(block, LOG_COUNT_AT)),
            segment_bytes: u64::from_le_bytes(field(block, SEGMENT_BYTES_AT)),
            created_ms: u64::from_le_bytes(field(block, CREATED_AT)),
            hash_seed: u64::from_le_bytes(field(block, HASH_SEED_AT)),
        })
    }
}

fn field<const N: usize>(block: &[u8; BLOCK_BYTES], at: usize) -> [u8; N] {
    block[at..at + N]
        .try_into()
        .expect("a range of N bytes has N bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            cluster_id: [0xc1; 16],
            node_id: [0x0d; 16],
            incarnation: 7,
            log_count: 2,
            segment_bytes: 64 << 20,
            created_ms: 1_760_000_000_000,
            hash_seed: 0x5eed,
        }
    }

    #[test]
    fn what_was_encoded_is_read_back() {
        assert_eq!(Identity::decode(&identity().encode()), Ok(identity()));
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let block = identity().encode();
        for bit in 0..block.len() * 8 {
            let mut damaged = block;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Identity::decode(&damaged).is_err(), "bit {bit} went unseen");
        }
    }

    #[test]
    fn every_shorter_or_longer_file_is_refused() {
        let block = identity().encode();
        for len in 0..block.len() {
            assert!(
                Identity::decode(&block[..len]).is_err(),
                "{len} bytes were taken"
            );
        }
        let mut longer = block.to_vec();
        longer.push(0);
        assert_eq!(Identity::decode(&longer), Err(IdentityError::Length(4097)));
    }

    #[test]
    fn another_version_is_named_whatever_else_it_holds() {
        let mut block = identity().encode();
        block[VERSION_AT] = 2;
        assert_eq!(Identity::decode(&block), Err(IdentityError::Version(2)));
    }
}
