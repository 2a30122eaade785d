//! The version of a key: an epoch and a sequence.

use crate::batch::{read_u32, read_u64};
use crate::refusal::Refusal;

/// The version of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Term and node ordinal.
    pub epoch: u32,
    /// Dense per partition; 0 is no version.
    pub sequence: u64,
}

impl Version {
    /// Bytes of a version in an item: the epoch, a reserved word, the sequence.
    pub(crate) const BYTES: usize = 16;

    /// The version of 16 bytes.
    ///
    /// # Errors
    /// [`Refusal::Reserved`]: the word behind the epoch is not 0.
    pub fn read(bytes: &[u8; Version::BYTES]) -> Result<Self, Refusal> {
        match read_u32(bytes, 4) {
            0 => Ok(Version {
                epoch: read_u32(bytes, 0),
                sequence: read_u64(bytes, 8),
            }),
            found => Err(Refusal::Reserved {
                name: "the word behind the epoch",
                found: found.into(),
            }),
        }
    }

    /// Appends 16 bytes.
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }

    /// The 16 bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; Version::BYTES];
        bytes[..4].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }
}
