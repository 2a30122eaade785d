//! What is known of the next items of a batch before they run.

use std::ops::Range;

use penstock_storage::index::CellId;
use penstock_storage::store::PREFETCH_KEYS_MAX;

use super::operation::Known;

/// What is known of some items.
pub(super) struct LookAhead<'a> {
    /// Their numbers in the batch.
    pub(super) window: Range<usize>,
    pub(super) known: [Option<Known<'a>>; PREFETCH_KEYS_MAX],
    /// The first cell of each key, if nothing has changed since.
    pub(super) cells: [Option<CellId>; PREFETCH_KEYS_MAX],
    pub(super) has_cells: bool,
    /// Nothing but GETs from cells ran since it was found that these may be.
    pub(super) is_free: bool,
    /// One bit for each that is a GET of the value and no more.
    pub(super) gets: u32,
}

impl<'a> LookAhead<'a> {
    pub(super) fn new() -> Self {
        LookAhead {
            window: 0..0,
            known: [None; PREFETCH_KEYS_MAX],
            cells: [None; PREFETCH_KEYS_MAX],
            has_cells: false,
            is_free: false,
            gets: 0,
        }
    }

    /// Whether something is known of an item.
    #[inline]
    pub(super) fn covers(&self, item: usize) -> bool {
        self.window.contains(&item)
    }

    /// What is known of the key of an item.
    #[inline]
    pub(super) fn known(&self, item: usize) -> Option<Known<'a>> {
        self.known[item - self.window.start]
    }

    /// The key of an item that is a GET of the value, and its first cell.
    #[inline]
    pub(super) fn get(&self, item: usize) -> Option<(Known<'a>, Option<CellId>)> {
        let at = item - self.window.start;
        match self.gets >> at & 1 {
            1 => self.known[at].map(|known| (known, self.cells[at].filter(|_| self.has_cells))),
            _ => None,
        }
    }

    /// An item ran that may have moved cells, and may have to be waited for.
    #[inline]
    pub(super) fn something_ran(&mut self) {
        self.has_cells = false;
        self.is_free = false;
    }
}
