//! Partitions whose entries a flush takes away, and the steps that take them out.

use crate::memory::index::entry::{Home, is_token_hash};
use crate::memory::index::fallen::slots_of;
use crate::memory::index::table::Index;
use crate::types::key_home::KeyHome;
use crate::types::version::partition_of;

impl Index {
    /// Takes the entries of all slots of a partition away, in a time that does not depend on their
    /// number. No look-up finds them from now on, but for those of tokens. [`Index::clear`] takes
    /// them out.
    ///
    /// # Panics
    /// If entries of the partition that were taken away before are not cleared.
    pub(crate) fn fall(&mut self, partition: usize) {
        let fallen = self.fallen.get_or_insert_default();
        let mut used = 0;
        for slot in slots_of(partition) {
            assert!(fallen.slots[slot].used() == 0, "the last flush is cleared");
            let table = std::mem::take(&mut self.slots[slot]);
            self.crowded[slot / 64] &= !(1 << (slot % 64));
            used += table.used();
            fallen.slots[slot] = table;
        }
        let tokens = self.tokens_of.as_ref().map_or(0, |of| of[partition]);
        fallen.add(partition, used - tokens as usize, tokens);
    }

    /// Entries of a partition that look-ups find, but for tokens.
    pub(crate) fn keys_of(&self, partition: usize) -> usize {
        let used: usize = slots_of(partition)
            .map(|slot| self.slots[slot].used())
            .sum();
        let tokens = self.tokens_of.as_ref().map_or(0, |of| of[partition]);
        let elsewhere = self.fallen.as_ref().map_or(0, |it| it.tokens[partition]);
        used - (tokens - elsewhere) as usize
    }

    /// Whether entries are to be cleared.
    #[inline]
    #[must_use]
    pub fn is_clearing(&self) -> bool {
        self.fallen.is_some()
    }

    /// Of how many partitions.
    pub(crate) fn partitions_to_clear(&self) -> usize {
        self.fallen.as_ref().map_or(0, |it| it.partitions())
    }

    /// Has the entries of a partition cleared before those of others.
    pub(crate) fn hasten(&mut self, partition: usize) {
        if let Some(fallen) = &mut self.fallen {
            fallen.hasten(partition);
        }
    }

    /// Whether entries of a partition are to be cleared.
    #[must_use]
    pub fn has_fallen(&self, partition: usize) -> bool {
        self.fallen.as_ref().is_some_and(|it| it.has(partition))
    }

    /// Takes entries out that a flush has taken away, about so many, and tells those of keys.
    /// Tokens go back into their slot. Whether more are left.
    pub(crate) fn clear(
        &mut self,
        entries_max: usize,
        visit: &mut impl FnMut(KeyHome, Home),
    ) -> bool {
        let mut seen = 0;
        while seen < entries_max
            && let Some(fallen) = &mut self.fallen
        {
            let Some((slot, entries, freed_bytes)) = fallen.take_group() else {
                assert!(fallen.is_empty() && fallen.keys == 0, "all is cleared");
                self.fallen = None;
                break;
            };
            self.heap_bytes -= freed_bytes;
            for entry in entries.iter().filter(|entry| !entry.is_empty()) {
                seen += 1;
                self.used -= 1;
                if is_token_hash(entry.hash) {
                    let fallen = self.fallen.as_mut().expect("it is cleared");
                    fallen.tokens[partition_of(slot)] -= 1;
                    self.tokens -= 1;
                    let of = self.tokens_of.as_mut().expect("there are tokens");
                    of[partition_of(slot)] -= 1;
                    self.insert_entry(slot, *entry);
                    continue;
                }
                self.fallen.as_mut().expect("it is cleared").keys -= 1;
                visit(KeyHome::new(slot, entry.hash), entry.home());
            }
        }
        self.fallen.is_some()
    }
}
