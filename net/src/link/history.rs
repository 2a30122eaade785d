//! The history of a partition: the epochs that wrote it, and positions in it.

use crate::batch::{read_u32, read_u64};
use crate::link::body::{at_most, zero};
use crate::link::fault::LinkFault;
use crate::link::limits::LINK_EPOCHS_MAX;

const EPOCH_BYTES: usize = 16;

/// A place in the history of a partition. Positions compare by epoch, then by sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The epoch.
    pub epoch: u32,
    /// The sequence; 0 is before the first record.
    pub sequence: u64,
}

impl Position {
    /// Reads 16 bytes: epoch, a reserved word, sequence.
    pub(super) fn read(body: &[u8], at: usize) -> Result<Self, LinkFault> {
        zero(&body[at + 4..at + 8], "the word behind an epoch")?;
        Ok(Position {
            epoch: read_u32(body, at),
            sequence: read_u64(body, at + 8),
        })
    }

    pub(super) fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.sequence.to_le_bytes());
    }
}

/// One epoch of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpochEntry {
    /// The epoch.
    pub epoch: u32,
    /// The start of the node that wrote under the epoch. Random for each start: a directory that
    /// went back to an earlier state may take the same epoch twice, and the two starts differ here.
    /// 0 if the start was not noted.
    pub start_id: u32,
    /// The sequence of its first record.
    pub first: u64,
}

/// A history: which epochs wrote, ascending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epochs<'a> {
    bytes: &'a [u8],
}

impl<'a> Epochs<'a> {
    /// Encodes a history into `into`.
    ///
    /// # Panics
    /// If it has more than [`LINK_EPOCHS_MAX`] entries.
    pub fn write(
        into: &'a mut Vec<u8>,
        entries: impl IntoIterator<Item = EpochEntry>,
    ) -> Epochs<'a> {
        into.clear();
        for entry in entries {
            into.extend_from_slice(&entry.epoch.to_le_bytes());
            into.extend_from_slice(&entry.start_id.to_le_bytes());
            into.extend_from_slice(&entry.first.to_le_bytes());
        }
        assert!(
            into.len() <= LINK_EPOCHS_MAX * EPOCH_BYTES,
            "histories are bounded"
        );
        Epochs { bytes: into }
    }

    /// Reads `count` entries, which are all of `bytes`. Epochs and first sequences ascend.
    pub(super) fn read(count: u32, bytes: &'a [u8], kind: &'static str) -> Result<Self, LinkFault> {
        let name = "the number of epochs of a history";
        at_most(name, count.into(), LINK_EPOCHS_MAX as u64)?;
        let needed = count as usize * EPOCH_BYTES;
        if bytes.len() != needed {
            return Err(LinkFault::BodyLength {
                kind,
                len: bytes.len(),
                needed,
            });
        }
        let mut before = (0, 0);
        for (entry, bytes) in bytes.chunks_exact(EPOCH_BYTES).enumerate() {
            let (epoch, first) = (read_u32(bytes, 0), read_u64(bytes, 8));
            // Each epoch begins with a record of its own, so first sequences rise, too.
            if epoch <= before.0 || first <= before.1 {
                return Err(LinkFault::HistoryOrder { entry });
            }
            before = (epoch, first);
        }
        Ok(Epochs { bytes })
    }

    /// Appends the number of entries, a reserved word, and the entries.
    pub(super) fn put(self, out: &mut Vec<u8>) {
        let count = u32::try_from(self.bytes.len() / EPOCH_BYTES).expect("at most 64");
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(self.bytes);
    }

    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = EpochEntry> + use<'a> {
        let entry = |bytes: &'a [u8]| EpochEntry {
            epoch: read_u32(bytes, 0),
            start_id: read_u32(bytes, 4),
            first: read_u64(bytes, 8),
        };
        self.bytes.chunks_exact(EPOCH_BYTES).map(entry)
    }
}
