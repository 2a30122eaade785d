//! The `IDENTITY` file of a data directory: whole blocks, mostly one, that say whose data this is
//! and which logs it consists of. Every byte is described in `storage/FORMAT.md`.

use penstock_storage::contents::SegmentEnd;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::layout::{INHERITED_MAX, InheritedEnd, Layout};
use penstock_storage::place::Lsn;
use penstock_storage::record::VALUE_BYTES_MAX;

use crate::config::value_bytes_fitting;

/// The first eight bytes.
const MAGIC: [u8; 8] = *b"PENSTOCK";

/// The format version that this build writes, and the highest that it reads.
pub const FORMAT_VERSION: u32 = 2;
/// The version of directories that tell neither of inherited logs nor of values.
const FIRST_VERSION: u32 = 1;

const VERSION_AT: usize = MAGIC.len();
const LOG_COUNT_AT: usize = VERSION_AT + 4;
const CLUSTER_AT: usize = LOG_COUNT_AT + 4;
const NODE_AT: usize = CLUSTER_AT + 16;
const INCARNATION_AT: usize = NODE_AT + 16;
const SEGMENT_BYTES_AT: usize = INCARNATION_AT + 8;
const CREATED_AT: usize = SEGMENT_BYTES_AT + 8;
const HASH_SEED_AT: usize = CREATED_AT + 8;
const FIRST_LOG_AT: usize = HASH_SEED_AT + 8;
const INHERITED_COUNT_AT: usize = FIRST_LOG_AT + 8;
const VALUE_BYTES_AT: usize = INHERITED_COUNT_AT + 4;
const INHERITED_AT: usize = VALUE_BYTES_AT + 4;
const INHERITED_BYTES: usize = 32;
const CRC_BYTES: usize = 4;

/// The longest file of this format, in bytes.
pub const IDENTITY_BYTES_MAX: usize = file_bytes(INHERITED_MAX);

/// Terms that a restored node leaves out: more starts of the original between a backup and its
/// restore than ever happen. Terms end at 2^24, after 16,000 restores one behind the other.
pub const TERMS_SKIPPED: u64 = 1024;

const fn file_bytes(inherited: usize) -> usize {
    (INHERITED_AT + inherited * INHERITED_BYTES + CRC_BYTES).next_multiple_of(BLOCK_BYTES)
}

/// Whose data a directory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Chosen at random when the directory was made; every segment carries it.
    pub cluster_id: [u8; 16],
    /// Likewise.
    pub node_id: [u8; 16],
    /// How many times the directory was opened to be served, from 1.
    pub incarnation: u64,
    /// How many shards the directory is laid out for, each with one log.
    pub log_count: u32,
    /// The log of the first shard.
    pub first_log: u64,
    /// Logs of earlier numbers of shards that still count, ascending.
    pub inherited: Vec<InheritedEnd>,
    /// The size of new segments in bytes.
    pub segment_bytes: u64,
    /// The largest value that any start has accepted, in bytes; zero if that is not known. Durable
    /// before any such value is acknowledged.
    pub value_bytes_max: u32,
    /// Unix milliseconds.
    pub created_ms: u64,
    /// The secret of the key hash: chosen at random and the same for life, because snapshots of the
    /// index hold hashes.
    pub hash_seed: u64,
}

/// Why a block is no identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityError {
    /// It is not as long as its version wants it.
    Length(usize),
    /// It does not begin with the magic.
    Magic,
    /// It is of a format version that this build does not read.
    Version(u32),
    /// Its CRC disagrees, or a reserved byte is not zero.
    Damaged,
}

impl Identity {
    /// The logs of the directory. `None` if the file names more shards than a node can have.
    #[must_use]
    pub fn layout(&self) -> Option<Layout> {
        Some(Layout {
            first_log: self.first_log,
            shards: u16::try_from(self.log_count).ok()?,
            inherited: self.inherited.clone(),
        })
    }

    /// The largest value that its log may hold, in bytes: as far as is known. Otherwise what the
    /// last start could accept at most, since four of its largest records fit in a segment.
    #[must_use]
    pub fn value_bytes_held(&self) -> u32 {
        match self.value_bytes_max {
            0 => value_bytes_fitting(self.segment_bytes),
            max => max,
        }
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.inherited.len()).expect("inherited logs are bounded");
        let mut file = vec![0; file_bytes(self.inherited.len())];
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(VERSION_AT, &FORMAT_VERSION.to_le_bytes());
        put(LOG_COUNT_AT, &self.log_count.to_le_bytes());
        put(CLUSTER_AT, &self.cluster_id);
        put(NODE_AT, &self.node_id);
        put(INCARNATION_AT, &self.incarnation.to_le_bytes());
        put(SEGMENT_BYTES_AT, &self.segment_bytes.to_le_bytes());
        put(CREATED_AT, &self.created_ms.to_le_bytes());
        put(HASH_SEED_AT, &self.hash_seed.to_le_bytes());
        put(FIRST_LOG_AT, &self.first_log.to_le_bytes());
        put(INHERITED_COUNT_AT, &count.to_le_bytes());
        put(VALUE_BYTES_AT, &self.value_bytes_max.to_le_bytes());
        for (number, InheritedEnd { log_id, end }) in self.inherited.iter().enumerate() {
            let at = INHERITED_AT + number * INHERITED_BYTES;
            put(at, &log_id.to_le_bytes());
            put(at + 8, &end.sequence.to_le_bytes());
            put(at + 16, &end.end_offset.to_le_bytes());
            put(at + 24, &end.last_lsn.0.to_le_bytes());
        }
        let crc_at = file.len() - CRC_BYTES;
        let crc = crc32fast::hash(&file[..crc_at]);
        file[crc_at..].copy_from_slice(&crc.to_le_bytes());
        file
    }

    /// Reads the bytes of the file, and believes nothing that its CRC does not vouch for.
    ///
    /// The version is looked at first, since another version may keep its CRC elsewhere.
    pub fn decode(file: &[u8]) -> Result<Self, IdentityError> {
        if !file.starts_with(&MAGIC) {
            return Err(IdentityError::Magic);
        }
        if file.len() < BLOCK_BYTES {
            return Err(IdentityError::Length(file.len()));
        }
        let version = u32::from_le_bytes(field(file, VERSION_AT));
        let bytes_max = match version {
            FIRST_VERSION => BLOCK_BYTES,
            FORMAT_VERSION => IDENTITY_BYTES_MAX,
            _ => return Err(IdentityError::Version(version)),
        };
        if file.len() > bytes_max || !file.len().is_multiple_of(BLOCK_BYTES) {
            return Err(IdentityError::Length(file.len()));
        }
        let crc_at = file.len() - CRC_BYTES;
        let crc = u32::from_le_bytes(field(file, crc_at));
        if crc != crc32fast::hash(&file[..crc_at]) {
            return Err(IdentityError::Damaged);
        }
        let count = u32::from_le_bytes(field(file, INHERITED_COUNT_AT)) as usize;
        let first_log = u64::from_le_bytes(field(file, FIRST_LOG_AT));
        let value_bytes_max = u32::from_le_bytes(field(file, VALUE_BYTES_AT));
        let is_first = version == FIRST_VERSION;
        if count > INHERITED_MAX
            || file.len() != file_bytes(count)
            || is_first != (first_log == 0)
            || is_first && (count > 0 || value_bytes_max > 0)
            || value_bytes_max as usize > VALUE_BYTES_MAX
        {
            return Err(IdentityError::Damaged);
        }
        let (entries, rest) = file[INHERITED_AT..crc_at].split_at(count * INHERITED_BYTES);
        let first_log = first_log.max(1);
        let mut inherited: Vec<InheritedEnd> = Vec::with_capacity(count);
        for entry in entries.chunks_exact(INHERITED_BYTES) {
            let number = |at| u64::from_le_bytes(field(entry, at));
            let log_id = number(0);
            let before = inherited.last().map_or(0, |log| log.log_id);
            if log_id <= before || log_id >= first_log {
                return Err(IdentityError::Damaged);
            }
            inherited.push(InheritedEnd {
                log_id,
                end: SegmentEnd {
                    sequence: number(8),
                    end_offset: number(16),
                    last_lsn: Lsn(number(24)),
                },
            });
        }
        if rest.iter().any(|&byte| byte != 0) {
            return Err(IdentityError::Damaged);
        }
        Ok(Self {
            cluster_id: field(file, CLUSTER_AT),
            node_id: field(file, NODE_AT),
            incarnation: u64::from_le_bytes(field(file, INCARNATION_AT)),
            log_count: u32::from_le_bytes(field(file, LOG_COUNT_AT)),
            first_log,
            inherited,
            segment_bytes: u64::from_le_bytes(field(file, SEGMENT_BYTES_AT)),
            value_bytes_max,
            created_ms: u64::from_le_bytes(field(file, CREATED_AT)),
            hash_seed: u64::from_le_bytes(field(file, HASH_SEED_AT)),
        })
    }
}

fn field<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
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
            first_log: 1,
            inherited: Vec::new(),
            segment_bytes: 64 << 20,
            value_bytes_max: 1 << 20,
            created_ms: 1_760_000_000_000,
            hash_seed: 0x5eed,
        }
    }

    /// With so many inherited logs.
    fn heir(logs: u64) -> Identity {
        let inherited = (1..=logs).map(|log_id| InheritedEnd {
            log_id,
            end: SegmentEnd {
                sequence: log_id * 3,
                end_offset: 4096 * log_id,
                last_lsn: Lsn(log_id * 100),
            },
        });
        Identity {
            first_log: logs + 5,
            inherited: inherited.collect(),
            ..identity()
        }
    }

    #[test]
    fn what_was_encoded_is_read_back() {
        assert_eq!(Identity::decode(&identity().encode()), Ok(identity()));
        for logs in [0, 1, 2, 124, 125, 126, 1024] {
            let file = heir(logs).encode();
            assert!(file.len() <= IDENTITY_BYTES_MAX);
            assert_eq!(Identity::decode(&file), Ok(heir(logs)), "{logs} logs");
        }
    }

    /// As builds of version 1 wrote it.
    fn first_version(identity: &Identity) -> Vec<u8> {
        let mut file = identity.encode();
        file[VERSION_AT..LOG_COUNT_AT].copy_from_slice(&FIRST_VERSION.to_le_bytes());
        file[FIRST_LOG_AT..INHERITED_AT].fill(0);
        seal(&mut file);
        file
    }

    fn seal(file: &mut [u8]) {
        let crc_at = file.len() - CRC_BYTES;
        let crc = crc32fast::hash(&file[..crc_at]);
        file[crc_at..].copy_from_slice(&crc.to_le_bytes());
    }

    #[test]
    fn a_directory_of_the_first_version_may_hold_what_its_segments_have_room_for() {
        let read = Identity::decode(&first_version(&identity())).unwrap();
        let expected = Identity {
            value_bytes_max: 0,
            ..identity()
        };
        assert_eq!(read, expected);
        assert!(read.value_bytes_held() > 4 << 20);
        assert_eq!(identity().value_bytes_held(), 1 << 20);
    }

    #[test]
    fn the_document_shows_every_byte() {
        const FORMAT: &str = include_str!("../../../storage/FORMAT.md");
        let (_, section) = FORMAT.split_once("## Identity\n").expect("it has one");
        let (_, block) = section.split_once("```hex\n").expect("an example");
        let (block, _) = block.split_once("```").expect("the example ends");
        let mut documented = vec![0; BLOCK_BYTES];
        for line in block.lines() {
            let (offset, rest) = line.split_once(':').expect("an offset");
            let at = usize::from_str_radix(offset, 16).expect("an offset in hexadecimal");
            let (hex, _) = rest.split_once('#').expect("what it means");
            for (byte, hex) in documented[at..].iter_mut().zip(hex.split_whitespace()) {
                *byte = u8::from_str_radix(hex, 16).expect("a byte in hexadecimal");
            }
        }
        let shown = Identity {
            cluster_id: [0xc1; 16],
            node_id: [0xd2; 16],
            incarnation: 5,
            log_count: 2,
            first_log: 4,
            inherited: vec![InheritedEnd {
                log_id: 3,
                end: SegmentEnd {
                    sequence: 7,
                    end_offset: 0x9000,
                    last_lsn: Lsn(1234),
                },
            }],
            segment_bytes: 64 << 20,
            value_bytes_max: 1 << 20,
            created_ms: 1_700_000_000_000,
            hash_seed: 0x1122_3344_5566_7788,
        };
        assert_eq!(Identity::decode(&documented), Ok(shown.clone()));
        assert!(shown.encode() == documented, "an encoding of its own");
    }

    #[test]
    fn a_value_beyond_the_limit_of_the_format_is_refused() {
        let mut file = identity().encode();
        file[VALUE_BYTES_AT..INHERITED_AT].copy_from_slice(&((16 << 20) + 1_u32).to_le_bytes());
        seal(&mut file);
        assert_eq!(Identity::decode(&file), Err(IdentityError::Damaged));
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        for file in [
            first_version(&identity()),
            heir(2).encode(),
            heir(130).encode(),
        ] {
            for bit in 0..file.len() * 8 {
                let mut damaged = file.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(Identity::decode(&damaged).is_err(), "bit {bit} went unseen");
            }
        }
    }

    #[test]
    fn every_shorter_or_longer_file_is_refused() {
        for file in [identity().encode(), heir(130).encode()] {
            for len in 0..file.len() {
                assert!(
                    Identity::decode(&file[..len]).is_err(),
                    "{len} bytes were taken"
                );
            }
            let mut longer = file.clone();
            longer.push(0);
            let refused = Err(IdentityError::Length(file.len() + 1));
            assert_eq!(Identity::decode(&longer), refused);
            longer.resize(file.len() + BLOCK_BYTES, 0);
            assert!(Identity::decode(&longer).is_err());
        }
    }

    #[test]
    fn inherited_logs_that_are_out_of_order_or_not_old_are_refused() {
        let mut twice = heir(2);
        twice.inherited[1].log_id = 1;
        let mut new = heir(2);
        new.inherited[1].log_id = new.first_log;
        for identity in [twice, new] {
            let read = Identity::decode(&identity.encode());
            assert_eq!(read, Err(IdentityError::Damaged));
        }
    }

    #[test]
    fn another_version_is_named_whatever_else_it_holds() {
        let mut block = identity().encode();
        block[VERSION_AT] = 3;
        assert_eq!(Identity::decode(&block), Err(IdentityError::Version(3)));
    }
}
