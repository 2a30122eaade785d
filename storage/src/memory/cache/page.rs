//! Pages of cells of one class.

use crate::memory::cache::cell::Head;
use crate::memory::cache::cell::SMALL_BYTES_MAX;
use crate::memory::index::entry::CellId;

/// Bytes of a page of cells, the first ones of their lengths apart. A page and what an allocator
/// keeps before it fill whole pages of the system; an allocator may know the pages by this length,
/// which hardly anything else has.
pub const PAGE_BYTES: usize = (1 << 18) - 64;

/// The first page of a class is smaller: many stores have few cells of most lengths.
pub(super) const FIRST_PAGE_BYTES: usize = (1 << 14) - 64;

pub(super) const SLOT_BITS: u32 = 14;

pub(super) const LARGE_BIT: u32 = 1 << 31;

pub(super) const PAGES_MAX: usize = 1 << (31 - SLOT_BITS);

/// Lengths of cells, which fill them to nine tenths at least, but for the shortest.
pub(super) const CLASSES: usize = 104;

pub(super) const fn class_bytes(class: usize) -> usize {
    match class {
        0..=23 => 18 + class * 2,
        24..=39 => 64 + (class - 23) * 4,
        40..=55 => 128 + (class - 39) * 8,
        56..=71 => 256 + (class - 55) * 16,
        72..=87 => 512 + (class - 71) * 32,
        _ => 1024 + (class - 87) * 64,
    }
}

/// The shortest class that holds `bytes`, at most [`SMALL_BYTES_MAX`].
#[inline]
pub(super) const fn class_of(bytes: usize) -> usize {
    match bytes {
        0..=64 => bytes.saturating_sub(17) / 2,
        65..=128 => (bytes - 65) / 4 + 24,
        129..=256 => (bytes - 129) / 8 + 40,
        257..=512 => (bytes - 257) / 16 + 56,
        513..=1024 => (bytes - 513) / 32 + 72,
        _ => (bytes - 1025) / 64 + 88,
    }
}

/// Cells of one length.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) bytes: Box<[u8]>,
    pub(super) class: u8,
    /// Bytes of each cell: all cells of a class are equal.
    pub(super) cell_bytes: u16,
    /// The page is in the list of its class.
    pub(super) has_room: bool,
    /// Cells in use.
    pub(super) used: u16,
    /// From here on cells were never used.
    pub(super) fresh: u16,
    /// The first of the free cells before, which are linked; [`NONE`] if there is none.
    pub(super) free: u16,
}

pub(super) const NONE: u16 = u16::MAX;
const _: () = assert!(PAGE_BYTES / class_bytes(0) <= 1 << SLOT_BITS);
const _: () = assert!(class_bytes(CLASSES - 1) == SMALL_BYTES_MAX);

impl Page {
    #[inline]
    pub(super) fn cell_bytes(&self) -> usize {
        usize::from(self.cell_bytes)
    }

    pub(super) fn capacity(&self) -> u16 {
        u16::try_from(self.bytes.len() / self.cell_bytes()).expect("few cells")
    }

    pub(super) fn is_full(&self) -> bool {
        self.free == NONE && self.fresh == self.capacity()
    }

    #[inline(always)]
    pub(super) fn cell(&self, slot: usize) -> (&Head, &[u8]) {
        let bytes = self.cell_bytes();
        self.bytes[slot * bytes..][..bytes]
            .split_first_chunk()
            .expect("a cell has a head")
    }

    #[inline(always)]
    pub(super) fn cell_mut(&mut self, slot: usize) -> (&mut Head, &mut [u8]) {
        let bytes = self.cell_bytes();
        self.bytes[slot * bytes..][..bytes]
            .split_first_chunk_mut()
            .expect("a cell has a head")
    }
}

#[inline]
pub(super) fn large_number(id: CellId) -> Option<usize> {
    (id.0 & LARGE_BIT != 0).then_some((id.0 & !LARGE_BIT) as usize)
}

#[inline]
pub(super) fn page_and_slot(id: CellId) -> (usize, usize) {
    let slot = id.0 & ((1 << SLOT_BITS) - 1);
    ((id.0 >> SLOT_BITS) as usize, slot as usize)
}

#[inline]
pub(super) fn small_id(page: usize, slot: u16) -> CellId {
    let page = u32::try_from(page).expect("17 bits");
    CellId(page << SLOT_BITS | u32::from(slot))
}

#[inline]
pub(super) fn large_id(number: usize) -> CellId {
    CellId(u32::try_from(number).expect("fewer than 2^31 cells of 2 KiB fit in memory") | LARGE_BIT)
}
