//! The keys whose values stay in memory: those of one operation until it has run, and those of one
//! armed key until it has fired.

use crate::format::record::FEW_PARTS_MAX;
use crate::types::key_home::KeyHome;

/// Slots and hashes of keys that do not leave the cache, of each of both at most as many as a
/// record has parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pinned {
    operation: Homes,
    due: Homes,
}

impl Pinned {
    /// These keys of an operation, in the place of those of the one before.
    pub(crate) fn pin(&mut self, homes: impl IntoIterator<Item = KeyHome>) {
        self.operation = Homes::new(homes);
    }

    /// These keys of an armed key that is due, in the place of those of the one before.
    pub(crate) fn pin_due(&mut self, homes: impl IntoIterator<Item = KeyHome>) {
        self.due = Homes::new(homes);
    }

    /// Whether a key is one of them.
    #[inline]
    pub(crate) fn has(&self, home: KeyHome) -> bool {
        self.operation.has(home) || self.due.has(home)
    }
}

#[derive(Clone, Debug, Default)]
struct Homes {
    few: [KeyHome; FEW_PARTS_MAX],
    count: usize,
    /// The others, ascending: an eviction asks for each cell that it may take.
    more: Vec<KeyHome>,
}

impl Homes {
    fn new(homes: impl IntoIterator<Item = KeyHome>) -> Self {
        let mut pinned = Homes::default();
        for home in homes {
            match pinned.few.get_mut(pinned.count) {
                Some(place) => {
                    *place = home;
                    pinned.count += 1;
                }
                None => pinned.more.push(home),
            }
        }
        pinned.more.sort_unstable();
        pinned
    }

    #[inline]
    fn has(&self, home: KeyHome) -> bool {
        self.few[..self.count].contains(&home)
            || !self.more.is_empty() && self.more.binary_search(&home).is_ok()
    }
}
