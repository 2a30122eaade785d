//! A set of partitions, one bit each.

use crate::link::limits::LINK_PARTITIONS;

const BYTES: usize = LINK_PARTITIONS as usize / 8;

/// Any of the partitions of a cluster.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct PartitionSet {
    bytes: [u8; BYTES],
}

impl PartitionSet {
    /// None of them.
    #[must_use]
    pub fn none() -> Self {
        PartitionSet::default()
    }

    /// The set whose partition `p` is bit `p % 8` of byte `p / 8`.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        PartitionSet { bytes }
    }

    /// As [`PartitionSet::from_bytes`] reads it.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 32] {
        self.bytes
    }

    /// Adds a partition.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn insert(&mut self, partition: u16) {
        self.bytes[usize::from(partition / 8)] |= 1 << (partition % 8);
    }

    /// Whether a partition is in it. A partition that there is not is in no set.
    #[must_use]
    pub fn has(&self, partition: u16) -> bool {
        let byte = self.bytes.get(usize::from(partition / 8));
        byte.is_some_and(|byte| byte & 1 << (partition % 8) != 0)
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == [0; BYTES]
    }

    /// Its partitions, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + use<> {
        let set = *self;
        (0..LINK_PARTITIONS).filter(move |&partition| set.has(partition))
    }
}

impl FromIterator<u16> for PartitionSet {
    fn from_iter<I: IntoIterator<Item = u16>>(partitions: I) -> Self {
        let mut set = PartitionSet::none();
        for partition in partitions {
            set.insert(partition);
        }
        set
    }
}

impl std::fmt::Debug for PartitionSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
