//! What is known of the next items of a batch, or of a mail, before they run.

use penstock_net::request::Plain;
use penstock_storage::index::CellId;
use penstock_storage::key_home::KeyHome;
use penstock_storage::store::PREFETCH_KEYS_MAX;

use crate::execution::operation::Known;

/// What is known of some items.
pub(crate) struct Upcoming<'a> {
    /// The first of them in the batch or mail, and how many they are.
    start: usize,
    count: usize,
    items: [Ahead<'a>; PREFETCH_KEYS_MAX],
    /// The only cell of each key, if nothing has changed since.
    cells: Option<[Option<CellId>; PREFETCH_KEYS_MAX]>,
    /// Nothing but plain items ran since it was found how they may be answered.
    pub(crate) leave: Option<DirectLeave>,
}

/// What is known of one item: where its key is looked up, and what it asks if it is plain.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ahead<'a> {
    pub(crate) known: Option<Known<'a>>,
    pub(crate) plain: Option<Plain<'a>>,
}

/// Which plain items nothing but the store's cells and open frame decides about.
#[derive(Clone, Copy)]
pub(crate) struct DirectLeave {
    pub(crate) gets: bool,
    pub(crate) sets: bool,
}

impl<'a> Upcoming<'a> {
    pub(crate) fn new() -> Self {
        Upcoming {
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
    pub(crate) fn begin(&mut self, start: usize, count: usize) -> &mut [Ahead<'a>] {
        (self.start, self.count, self.cells) = (start, count, None);
        &mut self.items[..count]
    }

    /// Has the only cells of all keys.
    #[inline]
    pub(crate) fn has_cells(&mut self, cells: [Option<CellId>; PREFETCH_KEYS_MAX]) {
        self.cells = Some(cells);
    }

    /// Whether something is known of an item.
    #[inline]
    pub(crate) fn covers(&self, item: usize) -> bool {
        item.wrapping_sub(self.start) < self.count
    }

    /// What is known of the key of an item.
    #[inline]
    pub(crate) fn known(&self, item: usize) -> Option<Known<'a>> {
        self.items[item - self.start].known
    }

    /// What a plain item asks, its key, and its only cell.
    #[inline(always)]
    pub(crate) fn plain(&self, item: usize) -> Option<(Plain<'a>, Known<'a>, Option<CellId>)> {
        let at = item - self.start;
        let ahead = &self.items[at];
        let (plain, known) = (ahead.plain?, ahead.known?);
        Some((
            plain,
            known,
            self.cells.as_ref().and_then(|cells| cells[at]),
        ))
    }

    /// The slot of an item that is not plain, if its key is known.
    #[inline]
    pub(crate) fn slot_of_no_plain(&self, item: usize) -> Option<u16> {
        let ahead = &self.items[item - self.start];
        ahead
            .known
            .filter(|_| ahead.plain.is_none())
            .map(|it| it.slot)
    }

    /// A plain item went to the shard that owns its key. No cell has moved, but there may be less
    /// room for replies.
    #[inline]
    pub(crate) fn something_left(&mut self) {
        self.leave = None;
    }

    /// An item ran that may have moved cells, and may have to be waited for.
    #[inline]
    pub(crate) fn something_ran(&mut self) {
        (self.cells, self.leave) = (None, None);
    }
}

/// Slots and hashes that are to be loaded together.
#[derive(Default)]
pub(crate) struct Homes {
    homes: [KeyHome; PREFETCH_KEYS_MAX],
    count: usize,
}

impl Homes {
    /// Adds one. If there is no room, the others are loaded first.
    #[inline]
    pub(crate) fn push(&mut self, home: KeyHome, load: impl FnOnce(&[KeyHome])) {
        if self.count == self.homes.len() {
            load(&self.homes);
            self.count = 0;
        }
        self.homes[self.count] = home;
        self.count += 1;
    }

    /// Those that were added and not loaded.
    pub(crate) fn all(&self) -> &[KeyHome] {
        &self.homes[..self.count]
    }
}
