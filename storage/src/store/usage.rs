//! What a store holds in memory, and whether more has room.

use crate::format::record::part_bytes;
use crate::log::room::{Purpose, Room};
use crate::memory::budget::Budget;
use crate::planted::{Bug, is_planted};
use crate::store::data::Data;
use crate::store::removals::Removals;
use crate::store::store::Store;
use crate::store::versions::entry::KeyId;
use crate::types::io::Blocks;
use crate::types::key_home::KeyHome;

/// Bytes that an entry takes of the index, about.
const TOKEN_BYTES: usize = 16;
/// Tokens may take one part of so many of the memory for the index.
const TOKENS_SHARE: usize = 4;

impl Data {
    /// Keeps index and values within this from now on, as cells leave.
    #[inline]
    pub fn set_budget(&mut self, budget: Budget) {
        self.room.set_budget(budget);
    }

    /// The bounds of index and values.
    #[must_use]
    pub fn budget(&self) -> Budget {
        self.room.budget()
    }

    /// Bytes of memory that cells give way to: of the index, of timers, of kept versions, of
    /// the times of segments, and of keys that have left the index.
    #[inline]
    fn fixed_bytes(&self) -> usize {
        self.keys.entries().memory_bytes()
            + self.keys.timers().memory_bytes()
            + self.versions.memory_bytes()
            + self.live.memory_bytes()
            + self.removal_bytes()
            + self.owed.reserved_bytes()
    }

    /// Bytes of the keys that have left the index.
    #[inline]
    fn removal_bytes(&self) -> usize {
        match self.removals {
            None => 0,
            Some(_) => Removals::memory_bytes(),
        }
    }

    /// Bytes beside the cells that nothing can push out, the tables that lead to cells included.
    #[inline]
    pub(super) fn rigid_bytes(&self) -> usize {
        self.fixed_bytes() + self.keys.cells().table_bytes()
    }

    /// Whether the index may grow for more keys. If not, nothing but deletions mends it.
    #[inline]
    #[must_use]
    pub fn has_room_for_keys(&self) -> bool {
        self.fixed_bytes() <= self.room.budget().index_bytes_max()
    }

    /// Whether a change of this key keeps one version more than it drops. Such a change takes more
    /// memory, and more of the log counts, whatever the length of the value.
    #[inline]
    #[must_use]
    pub fn adds_version(&self, slot: u16, hash: u32, key: &[u8]) -> bool {
        self.keyspaces.keeps_versions() && self.lengthens_history(slot, hash, key)
    }

    #[cold]
    fn lengthens_history(&self, slot: u16, hash: u32, key: &[u8]) -> bool {
        self.keyspaces.rule(slot, key).is_some_and(|rule| {
            let id = KeyId::new(slot, hash, key);
            rule.versions == 0 || !self.versions.has_more_than(id, usize::from(rule.versions))
        })
    }

    /// Whether so many cells are to leave that values must not grow before some have: in the next
    /// turns, or when more of the log is durable.
    #[inline]
    #[must_use]
    pub fn is_memory_short(&self) -> bool {
        self.room.is_short(self.keys.cells())
    }

    /// Pins the values of these keys in memory until the next call, at most as many as a record has
    /// parts. The cold keys of one operation could push each other out for ever. It is enough to
    /// pin those of one of the operations that wait: that operation ends, and then the keys of the
    /// next one are pinned.
    pub fn pin(&mut self, homes: impl IntoIterator<Item = KeyHome>) {
        self.room.pin(homes);
    }

    /// Pins these keys in memory until the next call, at most as many as a record has parts: those
    /// that the effects of one armed key need, beside those of [`Data::pin`].
    pub fn pin_due(&mut self, homes: impl IntoIterator<Item = KeyHome>) {
        self.room.pin_due(homes);
    }

    /// Whether cells should leave before more come.
    #[must_use]
    pub fn is_over_budget(&self) -> bool {
        self.room.is_overdrawn(self.keys.cells())
    }

    /// Whether more may leave in the next turns though nothing happens meanwhile.
    #[must_use]
    pub fn may_shrink(&self) -> bool {
        self.keys.cells().may_shrink()
    }

    /// Whether values of so many bytes may come from the disk, all those that are under way
    /// counted: what a turn brings stays within the budget. The first one may, whatever its length,
    /// once cells that are too many have left.
    #[inline]
    #[must_use]
    pub fn has_room_to_read(&self, bytes: usize) -> bool {
        self.room.has_room_for(bytes, self.keys.cells())
    }

    /// Keys, cells in memory, their bytes, bytes of the index.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let budget = self.room.budget();
        Usage {
            keys: self.keys.entries().len(),
            cells: self.keys.cells().len(),
            cache_bytes: self.keys.cells().used_bytes(),
            index_bytes: self.keys.entries().memory_bytes(),
            memory_bytes: self.fixed_bytes() + self.keys.cells().memory_bytes(),
            memory_bytes_max: match budget.memory_bytes_max {
                usize::MAX => 0,
                max => max + budget.cells_bytes_min,
            },
            keyspace_bytes: self.keyspaces.memory_bytes(),
            tokens: self.keys.entries().tokens(),
            token_bytes: self.keys.entries().tokens() * TOKEN_BYTES,
            token_bytes_max: budget.index_bytes_max() / TOKENS_SHARE,
            versions: self.versions.len(),
            version_bytes: self.versions.memory_bytes(),
            timers: self.keys.timers().len(),
            timer_bytes: self.keys.timers().memory_bytes(),
        }
    }
}

impl<P: Blocks> Store<P> {
    /// Whether a record with one part for a key and value of these lengths can be logged now.
    #[inline]
    pub fn room(
        &mut self,
        purpose: Purpose,
        key_bytes: usize,
        value_bytes: usize,
        expires: bool,
    ) -> Room {
        let expires = expires && !is_planted(Bug::RoomWithoutExpiry);
        self.log
            .room(purpose, part_bytes(key_bytes, value_bytes, expires, 0))
    }

    /// Whether a record of `bytes` of parts can be logged now.
    #[inline]
    pub fn room_for(&mut self, purpose: Purpose, bytes: usize) -> Room {
        self.log.room(purpose, bytes)
    }
}

/// How much a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Keys in the index; expired ones and deletions that are not durable yet included.
    /// [`Data::visible_keys`] leaves out the former.
    pub keys: usize,
    /// Keys whose value is in loaded.
    pub cells: usize,
    /// Bytes of the cells.
    pub cache_bytes: usize,
    /// Bytes of the index.
    pub index_bytes: usize,
    /// Bytes of memory of index and cells, unused room included.
    pub memory_bytes: usize,
    /// Most that they may take; 0 if nothing bounds them together.
    pub memory_bytes_max: usize,
    /// Bytes of the settings of keyspaces.
    pub keyspace_bytes: usize,
    /// Tokens in the index, expired ones included.
    pub tokens: usize,
    /// Bytes that they take of the index, about.
    pub token_bytes: usize,
    /// Bytes of the index that are theirs; beyond half of that they are kept for less long.
    pub token_bytes_max: usize,
    /// Versions that are known in keyspaces that keep them, the newest of each key included.
    pub versions: usize,
    /// Bytes of those entries, about.
    pub version_bytes: usize,
    /// Timers of armed keys, also of keys that are armed no more.
    pub timers: usize,
    /// Bytes of the timers, at most.
    pub timer_bytes: usize,
}
