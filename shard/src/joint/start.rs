//! What a start finishes before anything is served: changes that an earlier run has decided.

use penstock_storage::system_key::REDO_KEY_BYTES;

/// The work of a start.
#[derive(Debug)]
pub(crate) struct Start {
    /// Redo records that the index has and that are not read yet. The last one is the next.
    pub(crate) records: Vec<[u8; REDO_KEY_BYTES]>,
    /// The shards that have not finished theirs.
    pub(crate) awaited: Vec<u16>,
    /// This shard has finished its own, and the others know.
    pub(crate) has_reported: bool,
    /// Why the next record is not read, if it cannot be.
    pub(crate) trouble: Option<&'static str>,
}

impl Start {
    /// Over these records; the shards that may have some are `shards`.
    pub(crate) fn new(
        records: Vec<[u8; REDO_KEY_BYTES]>,
        shards: impl Iterator<Item = u16>,
    ) -> Self {
        Start {
            records,
            awaited: shards.collect(),
            has_reported: false,
            trouble: None,
        }
    }
}
