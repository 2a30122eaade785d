//! What is known of the next items of a batch before they run.

use penstock_net::request::Plain;
use penstock_storage::index::CellId;
use penstock_storage::store::PREFETCH_KEYS_MAX;

use super::operation::Known;

/// What is known of some items.
pub(super) struct LookAhead<'a> {
    /// The first of them in the batch, and how many they are.
    start: usize,
    count: usize,
    items: [Ahead<'a>; PREFETCH_KEYS_MAX],
    /// The only cell of each key, if nothing has changed since.
    cells: Option<[Option<CellId>; PREFETCH_KEYS_MAX]>,
    /// Nothing but plain items ran since it was found how they may be answered.
    pub(super) leave: Option<PlainLeave>,
}

/// What is known of one item: where its key is looked up, and what it asks if it is plain.
#[derive(Clone, Copy, Default)]
pub(super) struct Ahead<'a> {
    pub(super) known: Option<Known<'a>>,
    pub(super) plain: Option<Plain<'a>>,
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
            start: 0,
            count: 0,
            items: [Ahead::default(); PREFETCH_KEYS_MAX],
            cells: None,
            leave: None,
        }
    }

    /// Begins a new window of `count` items at item `start`. The caller fills each of the places
    /// that this returns before it asks for one.
    #[inline]
    pub(super) fn begin(&mut self, start: usize, count: usize) -> &mut [Ahead<'a>] {
        (self.start, self.count, self.cells) = (start, count, None);
        &mut self.items[..count]
    }

    /// Has the only cells of all keys.
    #[inline]
    pub(super) fn has_cells(&mut self, cells: [Option<CellId>; PREFETCH_KEYS_MAX]) {
        self.cells = Some(cells);
    }

    /// Whether something is known of an item.
    #[inline]
    pub(super) fn covers(&self, item: usize) -> bool {
        item.wrapping_sub(self.start) < self.count
    }

    /// What is known of the key of an item.
    #[inline]
    pub(super) fn known(&self, item: usize) -> Option<Known<'a>> {
        self.items[item - self.start].known
    }

    /// What a plain item asks, its key, and its only cell.
    #[inline(always)]
    pub(super) fn plain(&self, item: usize) -> Option<(Plain<'a>, Known<'a>, Option<CellId>)> {
        let at = item - self.start;
        let ahead = &self.items[at];
        let (plain, known) = (ahead.plain?, ahead.known?);
        Some((
            plain,
            known,
            self.cells.as_ref().and_then(|cells| cells[at]),
        ))
    }

    /// An item ran that may have moved cells, and may have to be waited for.
    #[inline]
    pub(super) fn something_ran(&mut self) {
        (self.cells, self.leave) = (None, None);
    }
}
