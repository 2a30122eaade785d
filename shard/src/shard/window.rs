//! What is known of the next items of a batch before they run.

use std::ops::Range;

use penstock_net::request::Plain;
use penstock_storage::index::CellId;
use penstock_storage::store::PREFETCH_KEYS_MAX;

use super::operation::Known;

/// What is known of some items.
pub(super) struct LookAhead<'a> {
    /// Their numbers in the batch.
    pub(super) window: Range<usize>,
    pub(super) known: [Option<Known<'a>>; PREFETCH_KEYS_MAX],
    /// What those ask that are plain.
    pub(super) plain: [Option<Plain<'a>>; PREFETCH_KEYS_MAX],
    /// The only cell of each key, if nothing has changed since.
    pub(super) cells: [Option<CellId>; PREFETCH_KEYS_MAX],
    pub(super) has_cells: bool,
    /// Nothing but plain items ran since it was found how they may be answered.
    pub(super) leave: Option<PlainLeave>,
}

/// Which plain items nothing but the store's cells and open frame decides about.
#[derive(Clone, Copy)]
pub(super) struct PlainLeave {
    pub(super) gets: bool,
    pub(super) sets: bool,
}

impl<'a> LookAhead<'a> {
    pub(super) fn new() -> Self {
        LookAhead {
            window: 0..0,
            known: [None; PREFETCH_KEYS_MAX],
            plain: [None; PREFETCH_KEYS_MAX],
            cells: [None; PREFETCH_KEYS_MAX],
            has_cells: false,
            leave: None,
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

    /// What a plain item asks, its key, and its only cell.
    #[inline]
    pub(super) fn plain(&self, item: usize) -> Option<(Plain<'a>, Known<'a>, Option<CellId>)> {
        let at = item - self.window.start;
        let (plain, known) = (self.plain[at]?, self.known[at]?);
        Some((plain, known, self.cells[at].filter(|_| self.has_cells)))
    }

    /// An item ran that may have moved cells, and may have to be waited for.
    #[inline]
    pub(super) fn something_ran(&mut self) {
        self.has_cells = false;
        self.leave = None;
    }
}
