//! The room that cached values have beside what gives way to nothing.

use crate::memory::budget::{Bounds, Budget};
use crate::memory::cache::cells::Cache;
use crate::memory::pinned::Pinned;
use crate::types::key_home::KeyHome;

/// A store's budget, what it comes to in this turn, and the keys whose cells stay.
#[derive(Debug)]
pub(crate) struct CellRoom {
    budget: Budget,
    /// What the budget says in this turn.
    bounds: Bounds,
    /// The keys that do not leave the cache.
    pinned: Pinned,
}

impl CellRoom {
    /// Without bounds until the first turn.
    pub(crate) fn new(budget: Budget) -> Self {
        CellRoom {
            budget,
            bounds: Bounds::default(),
            pinned: Pinned::default(),
        }
    }

    /// From the next turn on.
    #[inline]
    pub(crate) fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    pub(crate) fn budget(&self) -> Budget {
        self.budget
    }

    /// Pins these keys of an operation until the next call.
    pub(crate) fn pin(&mut self, homes: impl IntoIterator<Item = KeyHome>) {
        self.pinned.pin(homes);
    }

    /// Pins these keys of an armed key that is due until the next call.
    pub(crate) fn pin_due(&mut self, homes: impl IntoIterator<Item = KeyHome>) {
        self.pinned.pin_due(homes);
    }

    pub(crate) fn pinned(&self) -> &Pinned {
        &self.pinned
    }

    /// A turn begins beside so many bytes that give way to nothing. Returns what cells may take.
    pub(crate) fn begin_turn(&mut self, rigid_bytes: usize) -> usize {
        self.bounds = self.budget.bounds(rigid_bytes);
        self.budget.cells(rigid_bytes)
    }

    /// Bytes that the cache should hold at most, free cells of its pages included.
    pub(crate) fn held_bytes_max(&self) -> usize {
        self.bounds.held
    }

    /// Whether values must not grow before cells have left.
    #[inline]
    pub(crate) fn is_short(&self, cells: &Cache) -> bool {
        cells.used_bytes() > self.bounds.cells_in_a_turn
            || cells.held_bytes() > self.bounds.held_in_a_turn
    }

    /// Whether cells should leave before more come.
    pub(crate) fn is_overdrawn(&self, cells: &Cache) -> bool {
        cells.is_over_budget() || cells.held_bytes() > self.bounds.held
    }

    /// Whether values of so many bytes may come beside the cells.
    #[inline]
    pub(crate) fn has_room_for(&self, bytes: usize, cells: &Cache) -> bool {
        // Room that is free in pages does not keep it back: it may be held by what waits for this
        // read.
        cells.used_bytes().saturating_add(bytes) <= self.bounds.cells_in_a_turn
    }
}
