//! What a store owes to changes of keys of several shards: the redo records of its index, and
//! memory for what is decided and not written yet.

use crate::types::key_home::KeyHome;

/// The redo records of the index, and reserved memory.
#[derive(Debug, Default)]
pub struct Owed {
    pub(super) records: Vec<KeyHome>,
    pub(super) reserved_bytes: usize,
}

impl Owed {
    /// How many redo records the index has.
    #[must_use]
    pub fn records(&self) -> usize {
        self.records.len()
    }

    /// Bytes of memory that are kept.
    #[inline]
    #[must_use]
    pub(super) fn reserved_bytes(&self) -> usize {
        self.reserved_bytes
    }
}
