//! The keys of one operation whose values stay in memory until it has run.

use crate::format::record::PARTS_MAX;

/// Slots and hashes of keys that do not leave the cache, at most as many as a record has parts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pinned {
    homes: [(u16, u32); PARTS_MAX],
    count: usize,
}

impl Pinned {
    /// These keys.
    ///
    /// # Panics
    /// If they are more than [`PARTS_MAX`].
    pub(crate) fn new(homes: impl IntoIterator<Item = (u16, u32)>) -> Self {
        let mut pinned = Pinned::default();
        for home in homes {
            pinned.homes[pinned.count] = home;
            pinned.count += 1;
        }
        pinned
    }

    /// Whether a key is one of them.
    #[inline]
    pub(crate) fn has(&self, home: (u16, u32)) -> bool {
        self.homes[..self.count].contains(&home)
    }
}
