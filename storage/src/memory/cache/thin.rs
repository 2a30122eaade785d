//! Empties pages when the cache holds too many of a kind.

use crate::memory::cache::cell::DELETED;
use crate::memory::cache::cell::SEQUENCE_AT;
use crate::memory::cache::cell::is_free;
use crate::memory::cache::cell::lengths;
use crate::memory::cache::cells::Cache;
use crate::memory::cache::cells::{SPARE_BYTES, THIN_SEARCH_TURNS};
use crate::memory::cache::page::class_bytes;
use crate::memory::cache::page::page_and_slot;
use crate::memory::cache::page::small_id;
use crate::memory::index::entry::CellId;
use crate::types::place::Lsn;

/// Cells of a thin page that are looked at in a turn, and of them moved.
const CELLS_MAX: u32 = 1024;

const MOVES_MAX: u32 = 64;

/// So many times as much when pages hold more than they may.
const TIGHT_TIMES: u32 = 16;

const COMPARED_MAX: usize = 32;

impl Cache {
    /// Bytes of memory that cells take, those included that are free in pages.
    #[inline]
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.used_bytes() + self.fresh_bytes - self.page_bytes
    }

    /// Once in each turn: learns what is durable and, if too much of the pages is free, moves some
    /// cells out of a thin one. `leaves` is told of each, old number and new, so that the index can
    /// follow.
    ///
    /// While more than `held_bytes_max` are held, many are moved, and those that no other page has
    /// room for leave the cache, if they may: they get no new number, and `leaves` tells whether
    /// they may.
    pub fn settle(
        &mut self,
        durable: Lsn,
        held_bytes_max: usize,
        mut leaves: impl FnMut(&Cache, CellId, Option<CellId>) -> bool,
    ) {
        self.generations.settle(durable);
        if std::mem::replace(&mut self.durable, durable) != durable {
            self.vain_steps = 0;
        }
        let is_tight = self.held_bytes() > held_bytes_max;
        let (mut cells, mut moves) = match is_tight {
            true => (CELLS_MAX * TIGHT_TIMES, MOVES_MAX * TIGHT_TIMES),
            false => (CELLS_MAX, MOVES_MAX),
        };
        if self.thin.is_none() && !is_tight {
            self.thin_search_in -= 1;
            if self.thin_search_in > 0 {
                return;
            }
            self.thin_search_in = THIN_SEARCH_TURNS;
            if self.fresh_bytes - self.page_bytes <= SPARE_BYTES + self.fresh_bytes / 16 {
                return;
            }
            self.thin = self.begin_thin(false);
        }
        while cells > 0 && moves > 0 {
            if self.thin.is_none() && self.held_bytes() > held_bytes_max {
                self.thin = self.begin_thin(true);
            }
            let Some((number, left)) = self.thin else {
                return;
            };
            // The last cell that leaves, or is freed otherwise, gives the page back.
            let Some(slot) = left.checked_sub(1) else {
                // Some may not leave before more is durable.
                self.reopen(number);
                return;
            };
            self.thin = Some((number, slot));
            cells -= 1;
            let from = small_id(number as usize, slot);
            if is_free(self.head_mut(from)) {
                continue;
            }
            moves -= 1;
            let class = usize::from(self.pages[number as usize].class);
            if !is_tight || !self.roomy[class].is_empty() {
                let to = self.relocate(from);
                leaves(self, from, Some(to));
            } else if self.may_leave(from, durable) && leaves(self, from, None) {
                self.remove(from);
            }
        }
    }

    /// A page to be emptied, and its cells that were not looked at yet. `of_all` are those too
    /// whose cells find no room elsewhere.
    fn begin_thin(&mut self, of_all: bool) -> Option<(u32, u16)> {
        let number = self.thinnest(of_all)?;
        self.stuck = None;
        self.close(number);
        Some((number, self.pages[number as usize].fresh))
    }

    /// Goes on with a page that could not be emptied; another one is to be tried before it.
    fn reopen(&mut self, number: u32) {
        self.thin = None;
        self.stuck = Some(number);
        let page = &mut self.pages[number as usize];
        self.vain_steps += usize::from(page.fresh);
        if !page.is_full() {
            page.has_room = true;
            self.roomy[usize::from(page.class)].push(number);
        }
    }

    /// Whether a cell holds what can be read from the disk.
    pub(super) fn may_leave(&mut self, id: CellId, durable: Lsn) -> bool {
        let end = self.lsn(id);
        let head = self.head_mut(id);
        lengths(head) & DELETED == 0 && end <= durable && head[..SEQUENCE_AT] != [0; SEQUENCE_AT]
    }

    // ---- pages ----

    /// Makes another cell of a page hold what this one holds, and frees it.
    fn relocate(&mut self, from: CellId) -> CellId {
        let (page, slot) = page_and_slot(from);
        self.vain_steps = 0;
        let class = usize::from(self.pages[page].class);
        let bytes = class_bytes(class);
        let to = self.place_for(class);
        let (to_page, to_slot) = page_and_slot(to);
        let [source, target] = self
            .pages
            .get_disjoint_mut([page, to_page])
            .expect("no cell is moved within its page");
        target.bytes[to_slot * bytes..][..bytes]
            .copy_from_slice(&source.bytes[slot * bytes..][..bytes]);
        if let Some(version) = self.versions.remove(&from.0) {
            self.versions.insert(to.0, version);
        }
        if let Some(area) = self.disarm(from) {
            self.armed.put(to, area);
        }
        self.free(from);
        to
    }

    /// The page with the smallest share in use, of those whose cells other pages have room for, or
    /// of all but the one that could not be emptied.
    fn thinnest(&self, of_all: bool) -> Option<u32> {
        let pages = self.roomy.iter().flat_map(|roomy| {
            let compared = &roomy[..roomy.len().min(COMPARED_MAX)];
            let room: usize = compared.iter().map(|&number| self.room(number)).sum();
            compared.iter().copied().filter(move |&number| {
                let used = usize::from(self.pages[number as usize].used);
                (of_all && self.stuck != Some(number)) || room - self.room(number) >= used
            })
        });
        pages.min_by_key(|&number| {
            let page = &self.pages[number as usize];
            usize::from(page.used) * page.cell_bytes()
        })
    }

    fn room(&self, number: u32) -> usize {
        let page = &self.pages[number as usize];
        usize::from(page.capacity() - page.used)
    }
}
