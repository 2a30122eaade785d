//! The memory of cached values on huge pages of the system.
//!
//! Reads of random keys touch random pages of memory, and what a core knows of pages by heart
//! covers 8 MiB of small ones. So the pages of cells, blocks of one odd length that nothing else
//! has, are cut from regions of 2 MiB, each of which the system may back by one page of its own. It
//! does so at the first touch, which takes 180 us (512 small pages take 780 us, one by one).
//!
//! A region counts as memory of the process as a whole. So regions are filled densely, the lowest
//! first, what is free of them is bounded, and what is beyond goes back to the system.
//!
//! The first touch takes milliseconds where a virtual machine must ask its host for the memory. So
//! free regions are prefaulted: [`prefault`] touches some before a core needs them.
#![expect(unsafe_code, reason = "an allocator is what this file is about")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use penstock_storage::cache::PAGE_BYTES;

use super::wiping::{is_wiping, wipe};

/// The size and the alignment of a huge page on the machines this runs on.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The allocator of a process whose cached values are to lie on huge pages: the system's, but for
/// the pages of cells while a store is open that may use huge pages. `penstock serve` has it; a
/// program with an embedded store chooses it:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: penstock::HugePages = penstock::HugePages;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HugePages;

/// What a page of cells gets of a region.
const CHUNK_BYTES: usize = PAGE_BYTES.next_multiple_of(4096);
const CHUNKS: usize = HUGE_PAGE_BYTES / CHUNK_BYTES;
/// Regions for 1 TiB. What is beyond comes from the system as ever.
const REGIONS_MAX: usize = (1 << 40) / HUGE_PAGE_BYTES;
/// Regions that the system is to make no page of, at most: each may part the mapping in three, and
/// a process has 65,530 parts by default.
const HOLED_MAX: usize = 1 << 14;
/// So many free chunks keep their memory, because the next page then costs no page fault.
const FREE_CHUNKS_MAX: usize = CHUNKS;

const _: () = assert!(CHUNKS * CHUNK_BYTES == HUGE_PAGE_BYTES && CHUNKS == 8);

static POOL: Pool = Pool::new();

/// What the system says about huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Support {
    /// The kernel gives them to programs that ask.
    OnRequest,
    /// The kernel has no huge pages, or they are switched off.
    Never,
}

/// Whether the system gives huge pages to who asks for them, in the words of its setting.
pub(crate) fn support() -> (Support, String) {
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    read_setting(&setting.unwrap_or_default())
}

/// Reads `always [madvise] never`.
fn read_setting(text: &str) -> (Support, String) {
    let chosen = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    match chosen {
        Some((word @ ("always" | "madvise"), _)) => (Support::OnRequest, word.into()),
        Some((word, _)) => (Support::Never, word.into()),
        None => (Support::Never, "unknown to this kernel".into()),
    }
}

/// From now on pages of cells come from regions of at most so many bytes together, if [`HugePages`]
/// is the allocator of this process.
pub(crate) fn allow(bytes_max: u64) {
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    POOL.bytes_max.store(bytes_max, Ordering::Relaxed);
}

/// How much is prefaulted from now on, if [`HugePages`] is the allocator of this process: so many
/// bytes of free regions, while those and the regions in use are at most `regions_bytes_max`.
pub(crate) fn prefault_ahead(bytes: u64, regions_bytes_max: u64) {
    let regions =
        |bytes: u64| usize::try_from(bytes.div_ceil(HUGE_PAGE_BYTES as u64)).unwrap_or(usize::MAX);
    let ahead = match is_allocator() {
        true => regions(bytes),
        false => 0,
    };
    POOL.ahead.store(ahead, Ordering::Relaxed);
    POOL.regions_max
        .store(regions(regions_bytes_max), Ordering::Relaxed);
}

/// Touches free regions until there are as many as [`prefault_ahead`] wants, or `is_enough` says
/// so, which is asked before each.
pub(crate) fn prefault(is_enough: impl FnMut() -> bool) {
    POOL.prefault(is_enough);
}

/// Gives so many bytes of what is prefaulted back to the system, or all of it.
pub(crate) fn give_back_prefaulted(bytes: u64) {
    let regions = bytes.div_ceil(HUGE_PAGE_BYTES as u64);
    POOL.give_back_prefaulted(usize::try_from(regions).unwrap_or(usize::MAX));
}

/// Bytes of free regions that are prefaulted.
pub(crate) fn prefaulted_bytes() -> u64 {
    POOL.lock().prefaulted as u64 * HUGE_PAGE_BYTES as u64
}

/// Whether pages of cells come from regions.
fn is_allocator() -> bool {
    let page = Layout::from_size_align(PAGE_BYTES, 1).expect("a page of cells");
    // SAFETY: the layout has a length, and the block goes back with the layout that it came with.
    let is_ours = unsafe {
        // The compiler may leave out a block that nobody looks at.
        let block = std::hint::black_box(std::alloc::alloc(page));
        if !block.is_null() {
            std::alloc::dealloc(block, page);
        }
        POOL.holds(block)
    };
    // The region of that block counts as one with memory otherwise, and is not prefaulted.
    POOL.give_back_all();
    is_ours
}

/// Gives all that is free in regions back to the system.
pub(crate) fn give_back_free_memory() {
    POOL.give_back_all();
}

/// Whether a block is a page of cells.
#[inline]
fn is_page(layout: Layout) -> bool {
    layout.size() == PAGE_BYTES && layout.align() <= 4096
}

// SAFETY: every block is either the system allocator's, and goes back to it with the layout that it
// came with, or a chunk of the pool: at least as long as the layout asks and as aligned, nobody
// else's until it is given back, and zero if that was asked. `Pool::holds` tells one from the other
// by the address, whatever was allowed in between. Nothing here unwinds.
unsafe impl GlobalAlloc for HugePages {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_page(layout)
            && let Some(chunk) = POOL.take()
        {
            return chunk.bytes.as_ptr();
        }
        // SAFETY: what the caller promises is passed on.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_page(layout)
            && let Some(chunk) = POOL.take()
        {
            if !chunk.is_zero {
                // SAFETY: the chunk is this call's alone and so many bytes long.
                unsafe { ptr::write_bytes(chunk.bytes.as_ptr(), 0, PAGE_BYTES) };
            }
            return chunk.bytes.as_ptr();
        }
        // SAFETY: what the caller promises is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_wiping() {
            // SAFETY: the caller gives the block up, which is as long as its layout.
            unsafe { wipe(block, layout.size()) };
        }
        if is_page(layout) && POOL.holds(block) {
            return POOL.give(block);
        }
        // SAFETY: the block is not the pool's, so the system allocator gave it; the rest is passed
        // on.
        unsafe { System.dealloc(block, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let is_pooled = is_page(layout) && POOL.holds(block);
        if !is_pooled && !is_wiping() {
            // SAFETY: as in `dealloc`.
            return unsafe { System.realloc(block, layout, bytes) };
        }
        // SAFETY: the caller promises that `bytes` is not zero and fits with the alignment. The
        // blocks are two, each as long as what is copied, and `block` is not used again.
        unsafe {
            let moved = self.alloc(Layout::from_size_align_unchecked(bytes, layout.align()));
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, bytes.min(layout.size()));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

/// One range of addresses, cut into regions.
struct Pool {
    /// Most that regions may take together; 0 while nothing comes from them.
    bytes_max: AtomicUsize,
    /// Where the range is and how long, in bytes: null and 0 until the first chunk is taken, and
    /// then for ever the same.
    base: AtomicPtr<u8>,
    bytes: AtomicUsize,
    /// Free regions that are to be prefaulted, while those and the regions in use are at most
    /// `regions_max`.
    ahead: AtomicUsize,
    regions_max: AtomicUsize,
    regions: Mutex<Regions>,
}

/// A chunk that was taken.
struct Chunk {
    bytes: NonNull<u8>,
    is_zero: bool,
}

impl Pool {
    const fn new() -> Self {
        Pool {
            bytes_max: AtomicUsize::new(0),
            base: AtomicPtr::new(ptr::null_mut()),
            bytes: AtomicUsize::new(0),
            ahead: AtomicUsize::new(0),
            regions_max: AtomicUsize::new(0),
            regions: Mutex::new(Regions {
                table: [Region::EMPTY; REGIONS_MAX],
                room: 0,
                opened: 0,
                in_use: 0,
                prefaulted: 0,
                free_kept: 0,
                holed: 0,
            }),
        }
    }

    /// Whether a block is a chunk of this pool.
    #[inline]
    fn holds(&self, block: *const u8) -> bool {
        let bytes = self.bytes.load(Ordering::Acquire);
        let base = self.base.load(Ordering::Relaxed);
        block.addr().wrapping_sub(base.addr()) < bytes
    }

    /// Takes a chunk; `None` if none may be had or the system refuses memory for it.
    fn take(&self) -> Option<Chunk> {
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        if bytes_max == 0 {
            return None;
        }
        let mut regions = self.lock();
        if regions.room == 0 {
            self.reserve(&mut regions, bytes_max);
        }
        let region = regions.find()?;
        if region == regions.opened {
            self.open_next(&mut regions)?;
        }
        let (place, was_kept) = regions.take(region);
        let base = self.base.load(Ordering::Relaxed);
        // SAFETY: the chunk lies in the range, which is this pool's for ever.
        let first = unsafe { base.add(place.offset()) };
        Some(Chunk {
            bytes: NonNull::new(first)?,
            is_zero: !was_kept,
        })
    }

    /// Opens the next region of those that there is room for; `None` if the system refuses it.
    fn open_next(&self, regions: &mut Regions) -> Option<()> {
        let base = self.base.load(Ordering::Relaxed);
        // SAFETY: the range is this pool's for ever and so long that each of the `room` regions
        // lies in it; nobody has a chunk of a region that was never opened.
        let result = unsafe {
            let first = base.add(regions.opened * HUGE_PAGE_BYTES).cast();
            libc::mprotect(first, HUGE_PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE)
        };
        if result != 0 {
            return None;
        }
        regions.opened += 1;
        Some(())
    }

    fn prefault(&self, mut is_enough: impl FnMut() -> bool) {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let regions_max = self.regions_max.load(Ordering::Relaxed);
        while !is_enough() {
            let Some(region) = self.claim(ahead, regions_max) else {
                return;
            };
            self.touch(region);
            self.lock().release(region, true);
        }
    }

    /// Takes a whole free region without memory, to touch it; `None` if enough are prefaulted.
    fn claim(&self, ahead: usize, regions_max: usize) -> Option<usize> {
        let mut regions = self.lock();
        let is_enough =
            regions.prefaulted >= ahead || regions.in_use + regions.prefaulted >= regions_max;
        if is_enough {
            return None;
        }
        let region = regions.find_empty()?;
        if region == regions.opened {
            self.open_next(&mut regions)?;
        }
        regions.claim(region);
        Some(region)
    }

    /// Touches each page of a region that was claimed. Without the lock, for it may take long.
    fn touch(&self, region: usize) {
        let base = self.base.load(Ordering::Relaxed);
        for offset in (0..HUGE_PAGE_BYTES).step_by(4096) {
            // SAFETY: the byte lies in an opened region of the range, which nobody else has a chunk
            // of until it is free again. It has no memory, so it is zero, and stays so.
            unsafe { ptr::write_volatile(base.add(region * HUGE_PAGE_BYTES + offset), 0) };
        }
    }

    /// The highest go first. Without the lock while the system takes the memory.
    fn give_back_prefaulted(&self, regions_max: usize) {
        for _ in 0..regions_max {
            let mut regions = self.lock();
            let Some(region) = regions.find_prefaulted() else {
                return;
            };
            regions.claim_prefaulted(region);
            drop(regions);
            let base = self.base.load(Ordering::Relaxed);
            // SAFETY: an opened region of the range, which nobody has a chunk of until it is free
            // again.
            let result = unsafe {
                let first = base.add(region * HUGE_PAGE_BYTES).cast();
                libc::madvise(first, HUGE_PAGE_BYTES, libc::MADV_DONTNEED)
            };
            self.lock().release(region, result != 0);
            if result != 0 {
                return;
            }
        }
    }

    /// Takes back a chunk, which nobody uses any more.
    fn give(&self, block: *mut u8) {
        let offset = block.addr() - self.base.load(Ordering::Relaxed).addr();
        let place = Place {
            region: offset / HUGE_PAGE_BYTES,
            chunk: offset % HUGE_PAGE_BYTES / CHUNK_BYTES,
        };
        let mut regions = self.lock();
        regions.give(place);
        if regions.free_kept > FREE_CHUNKS_MAX {
            self.let_go(&mut regions, place.region);
        }
    }

    /// Gives the memory of all free chunks back, of those too that the system itself has filled
    /// since, when it made one page of a region with holes.
    fn give_back_all(&self) {
        let opened = self.lock().opened;
        for region in 0..opened {
            // Who takes a chunk waits for one region at most.
            let mut regions = self.lock();
            let bits = regions.table[region];
            if !bits.is_full() && bits != Region::EMPTY {
                self.let_go(&mut regions, region);
            }
        }
    }

    /// Gives the memory of the free chunks of a region back. What the system does not take is kept.
    fn let_go(&self, regions: &mut Regions, region: usize) {
        let base = self.base.load(Ordering::Relaxed);
        for (place, chunks) in regions.table[region].free_runs(region) {
            // SAFETY: the run lies in an opened region of the range, and nobody has a chunk of it,
            // nor takes one while the regions are borrowed.
            let result = unsafe {
                let first = base.add(place.offset()).cast();
                libc::madvise(first, chunks * CHUNK_BYTES, libc::MADV_DONTNEED)
            };
            if result != 0 {
                return;
            }
        }
        regions.forget(region);
        // With holes the system would fill it again some day, to make one page of it: memory that
        // nobody took.
        let Some(is_holed) = regions.may_change(region) else {
            return;
        };
        let advice = match is_holed {
            true => libc::MADV_NOHUGEPAGE,
            false => libc::MADV_HUGEPAGE,
        };
        // SAFETY: an opened region of the range. The advice changes no contents; if it is not taken
        // the region is filled again as before, until that is given back.
        let result = unsafe {
            let first = base.add(region * HUGE_PAGE_BYTES).cast();
            libc::madvise(first, HUGE_PAGE_BYTES, advice)
        };
        if result == 0 {
            regions.changed(region, is_holed);
        }
    }

    /// Sets addresses aside, without memory. If there are none, nothing is asked of the system any
    /// more.
    fn reserve(&self, regions: &mut Regions, bytes_max: usize) {
        let room = bytes_max.div_ceil(HUGE_PAGE_BYTES).min(REGIONS_MAX);
        let bytes = room * HUGE_PAGE_BYTES;
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice; no memory
        // of this process is touched. It is longer by a region than what is used of it, so the
        // aligned range lies in it. The advice changes no contents, and its failure only costs
        // speed.
        let base = unsafe {
            let mapped = libc::mmap(
                ptr::null_mut(),
                bytes + HUGE_PAGE_BYTES,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            if mapped == libc::MAP_FAILED {
                return self.bytes_max.store(0, Ordering::Relaxed);
            }
            let base = mapped.byte_add(mapped.align_offset(HUGE_PAGE_BYTES));
            libc::madvise(base, bytes, libc::MADV_HUGEPAGE);
            base
        };
        self.base.store(base.cast(), Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Release);
        regions.room = room;
    }

    fn lock(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The chunks of a region, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    /// Chunks that are allocated.
    taken: u8,
    /// Chunks that may have resident memory and bytes other than zero. Every allocated chunk is one
    /// of them.
    kept: u8,
    /// The system is to make no page of it.
    is_holed: bool,
    /// It is free, has memory, and all of it is zero.
    is_prefaulted: bool,
}

impl Region {
    const EMPTY: Region = Region {
        taken: 0,
        kept: 0,
        is_holed: false,
        is_prefaulted: false,
    };

    fn is_full(self) -> bool {
        self.taken == u8::MAX
    }

    /// Runs of free chunks of the region with this number: the first one and how many.
    fn free_runs(self, region: usize) -> impl Iterator<Item = (Place, usize)> {
        let is_free = move |chunk: &usize| self.taken & 1 << chunk == 0;
        let mut at = 0;
        std::iter::from_fn(move || {
            let chunk = (at..CHUNKS).find(is_free)?;
            let taken = (chunk..CHUNKS).find(|chunk| !is_free(chunk));
            at = taken.unwrap_or(CHUNKS);
            Some((Place { region, chunk }, at - chunk))
        })
    }
}

struct Regions {
    table: [Region; REGIONS_MAX],
    /// Regions for which there are addresses; 0 before there are any.
    room: usize,
    /// Regions that were ever used: the first ones of the table.
    opened: usize,
    /// Regions with a chunk that is taken.
    in_use: usize,
    /// Regions that are prefaulted.
    prefaulted: usize,
    /// Chunks that are kept and not taken.
    free_kept: usize,
    /// Regions that are holed, at most [`HOLED_MAX`].
    holed: usize,
}

/// Where a chunk is: its region and the number of its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    region: usize,
    chunk: usize,
}

impl Place {
    fn offset(self) -> usize {
        self.region * HUGE_PAGE_BYTES + self.chunk * CHUNK_BYTES
    }
}

impl Regions {
    /// The lowest chunk that is free: of a region in use, or else of one that is prefaulted, or
    /// else of one that is not in use, or else of one that never was, if there is room for it.
    fn find(&self) -> Option<usize> {
        let first = |is_it: fn(&Region) -> bool| self.table[..self.opened].iter().position(is_it);
        first(|region| region.taken != 0 && !region.is_full())
            .or_else(|| first(|region| region.is_prefaulted))
            .or_else(|| first(|region| region.taken == 0))
            .or_else(|| self.next_to_open())
    }

    /// The lowest region without memory: one that has none any more, or else the next that is to
    /// be opened, if there is room for it.
    fn find_empty(&self) -> Option<usize> {
        let mut opened = self.table[..self.opened].iter();
        let empty = opened.position(|&region| region == Region::EMPTY);
        empty.or_else(|| self.next_to_open())
    }

    fn next_to_open(&self) -> Option<usize> {
        (self.opened < self.room).then_some(self.opened)
    }

    /// All chunks of a region without memory are taken at once.
    fn claim(&mut self, region: usize) {
        debug_assert_eq!(self.table[region], Region::EMPTY);
        self.table[region].taken = u8::MAX;
        self.in_use += 1;
    }

    /// The highest region that is prefaulted.
    fn find_prefaulted(&self) -> Option<usize> {
        let mut opened = self.table[..self.opened].iter();
        opened.rposition(|region| region.is_prefaulted)
    }

    /// All chunks of a region that is prefaulted are taken at once.
    fn claim_prefaulted(&mut self, region: usize) {
        self.table[region] = Region::EMPTY;
        self.prefaulted -= 1;
        self.claim(region);
    }

    /// A region that was claimed is free. Either it has memory, all of it zero, or it has none.
    fn release(&mut self, region: usize, is_prefaulted: bool) {
        self.table[region] = Region {
            is_prefaulted,
            ..Region::EMPTY
        };
        self.in_use -= 1;
        self.prefaulted += usize::from(is_prefaulted);
    }

    /// Takes a chunk of a region, rather one that is kept; tells whether it was.
    fn take(&mut self, region: usize) -> (Place, bool) {
        let bits = &mut self.table[region];
        let kept = bits.kept & !bits.taken;
        let chunk = match kept {
            0 => bits.taken.trailing_ones(),
            kept => kept.trailing_zeros(),
        };
        self.in_use += usize::from(bits.taken == 0);
        self.prefaulted -= usize::from(std::mem::take(&mut bits.is_prefaulted));
        bits.taken |= 1 << chunk;
        bits.kept |= 1 << chunk;
        self.free_kept -= usize::from(kept != 0);
        let chunk = chunk as usize;
        (Place { region, chunk }, kept != 0)
    }

    fn give(&mut self, place: Place) {
        let bits = &mut self.table[place.region];
        let bit = 1 << place.chunk;
        if bits.taken & bit == 0 {
            // It was given back before. An allocator must not unwind.
            std::process::abort();
        }
        bits.taken &= !bit;
        self.in_use -= usize::from(bits.taken == 0);
        self.free_kept += 1;
    }

    /// Whether a region that got chunks back should be holed. `None` if nothing is to change, or if
    /// too many regions are holed.
    fn may_change(&self, region: usize) -> Option<bool> {
        let bits = self.table[region];
        let is_holed = bits.taken != 0;
        let may = !is_holed || self.holed < HOLED_MAX;
        (bits.is_holed != is_holed && may).then_some(is_holed)
    }

    fn changed(&mut self, region: usize, is_holed: bool) {
        self.table[region].is_holed = is_holed;
        match is_holed {
            true => self.holed += 1,
            false => self.holed -= 1,
        }
    }

    /// Nothing is kept of the free chunks of a region any more.
    fn forget(&mut self, region: usize) {
        let bits = &mut self.table[region];
        self.free_kept -= (bits.kept & !bits.taken).count_ones() as usize;
        self.prefaulted -= usize::from(std::mem::take(&mut bits.is_prefaulted));
        bits.kept = bits.taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(pool: &'static Pool, regions: usize) -> &'static Pool {
        pool.bytes_max
            .store(regions * HUGE_PAGE_BYTES, Ordering::Relaxed);
        pool
    }

    fn bytes(chunk: &Chunk) -> &'static mut [u8] {
        // SAFETY: the chunk was just taken and so many bytes long; the tests use it through this
        // alone, and not after they have given it back.
        unsafe { std::slice::from_raw_parts_mut(chunk.bytes.as_ptr(), CHUNK_BYTES) }
    }

    /// Random chunks come and go: none is two's at once, what is told to be zero is, regions in use
    /// are filled before others, and no more than so many free chunks keep their memory.
    #[test]
    fn chunks_are_disjoint_and_zero_where_said_and_free_ones_are_let_go() {
        static POOLS: [Pool; 3] = [Pool::new(), Pool::new(), Pool::new()];
        for (pool, seed) in POOLS.iter().zip(1u64..) {
            const REGIONS: usize = 6;
            let pool = allowed(pool, REGIONS);
            let mut state = seed;
            let mut next = |bound: usize| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                usize::try_from(state >> 33).unwrap() % bound
            };
            let mut held: Vec<(Chunk, u8)> = Vec::new();
            let (mut zero_again, mut holed_most, mut prefaulted_most) = (0, 0, 0);
            for step in 0..4_000u32 {
                let wanted = next(REGIONS * CHUNKS + 4);
                if step % 64 == 0 {
                    pool.give_back_all();
                    let regions = pool.lock();
                    assert_eq!((regions.free_kept, regions.prefaulted), (0, 0));
                }
                if next(32) == 0 {
                    pool.give_back_prefaulted(next(3));
                }
                if next(8) == 0 {
                    pool.ahead.store(next(4), Ordering::Relaxed);
                    pool.regions_max.store(next(REGIONS + 2), Ordering::Relaxed);
                    let mut most = next(4);
                    pool.prefault(|| {
                        most = most.saturating_sub(1);
                        most == 0
                    });
                }
                if held.len() > wanted {
                    let (chunk, mark) = held.swap_remove(next(held.len()));
                    assert!(
                        bytes(&chunk).iter().all(|&byte| byte == mark),
                        "seed {seed}"
                    );
                    pool.give(chunk.bytes.as_ptr());
                } else if let Some(chunk) = pool.take() {
                    assert!(pool.holds(chunk.bytes.as_ptr()));
                    assert_eq!(chunk.bytes.as_ptr().addr() % CHUNK_BYTES, 0);
                    let is_zero = bytes(&chunk).iter().all(|&byte| byte == 0);
                    assert!(is_zero || !chunk.is_zero, "seed {seed}: told to be zero");
                    zero_again += usize::from(chunk.is_zero);
                    let mark = u8::try_from(step % 255).unwrap() + 1;
                    bytes(&chunk).fill(mark);
                    held.push((chunk, mark));
                } else {
                    assert_eq!(held.len(), REGIONS * CHUNKS, "only a full pool has none");
                }
                let regions = pool.lock();
                assert!(regions.free_kept <= FREE_CHUNKS_MAX, "seed {seed}");
                let opened = &regions.table[..regions.opened];
                let taken: u32 = opened.iter().map(|it| it.taken.count_ones()).sum();
                assert_eq!(taken as usize, held.len());
                let kept = |it: &Region| (it.kept & !it.taken).count_ones() as usize;
                assert_eq!(opened.iter().map(kept).sum::<usize>(), regions.free_kept);
                let holed = opened.iter().filter(|it| it.is_holed).count();
                assert_eq!(holed, regions.holed);
                holed_most = holed_most.max(holed);
                let in_use = opened.iter().filter(|it| it.taken != 0).count();
                assert_eq!(in_use, regions.in_use);
                let prefaulted = opened.iter().filter(|it| it.is_prefaulted).count();
                assert_eq!(prefaulted, regions.prefaulted);
                prefaulted_most = prefaulted_most.max(prefaulted);
            }
            for (chunk, _) in held {
                pool.give(chunk.bytes.as_ptr());
            }
            pool.give_back_all();
            assert!(pool.lock().holed == 0 && holed_most > 0);
            assert!(prefaulted_most > 1, "nothing was ever prefaulted");
            assert!(zero_again > REGIONS * CHUNKS, "no memory ever went back");
            let address = pool.base.load(Ordering::Relaxed);
            assert_eq!(address.addr() % HUGE_PAGE_BYTES, 0);
            assert!(!pool.holds(address.wrapping_byte_sub(1)));
            assert!(!pool.holds(address.wrapping_byte_add(REGIONS * HUGE_PAGE_BYTES)));
        }
    }

    #[test]
    fn a_region_in_use_is_filled_before_another_is_begun() {
        static OF_TEST: Pool = Pool::new();
        let pool = allowed(&OF_TEST, 4);
        let take = || pool.take().map(|chunk| chunk.bytes.as_ptr());
        let chunks: Vec<_> = (0..3 * CHUNKS).map_while(|_| take()).collect();
        assert_eq!(pool.lock().opened, 3);
        // The first region is empty now, the last one has one free chunk.
        for &chunk in &chunks[..CHUNKS] {
            pool.give(chunk);
        }
        pool.give(chunks[2 * CHUNKS + 5]);
        assert_eq!(take(), Some(chunks[2 * CHUNKS + 5]));
        assert_eq!(take(), Some(chunks[0]));
        assert_eq!(pool.lock().opened, 3);
    }

    /// What a core takes of a region that was prefaulted costs it no page fault.
    #[test]
    fn regions_are_prefaulted_up_to_the_bound_and_taken_before_others() {
        static OF_TEST: Pool = Pool::new();
        let pool = allowed(&OF_TEST, 8);
        let first = pool.take().expect("there is room");
        pool.ahead.store(3, Ordering::Relaxed);
        pool.regions_max.store(3, Ordering::Relaxed);
        pool.prefault(|| false);
        assert_eq!(pool.lock().prefaulted, 2, "one is in use");
        pool.regions_max.store(8, Ordering::Relaxed);
        pool.prefault(|| false);
        assert_eq!(pool.lock().prefaulted, 3);
        assert_eq!(pool.lock().opened, 4);
        let resident = |chunk: &Chunk| {
            let mut pages = [0u8; CHUNK_BYTES / 4096];
            // SAFETY: the chunk is mapped. The vector has a byte for each of its pages.
            let result = unsafe {
                let bytes = chunk.bytes.as_ptr().cast();
                libc::mincore(bytes, CHUNK_BYTES, pages.as_mut_ptr())
            };
            assert_eq!(result, 0);
            pages.iter().filter(|&&page| page & 1 == 1).count()
        };
        let rest: Vec<_> = (1..CHUNKS).map_while(|_| pool.take()).collect();
        assert_eq!(pool.lock().prefaulted, 3, "of the first");
        let next = pool.take().expect("there is room");
        assert!(next.is_zero && bytes(&next).iter().all(|&byte| byte == 0));
        assert_eq!(resident(&next), CHUNK_BYTES / 4096);
        assert_eq!(pool.lock().prefaulted, 2);
        // Memory that is short takes what is prefaulted, as much as is missing.
        pool.give_back_prefaulted(1);
        assert_eq!(pool.lock().prefaulted, 1);
        pool.give_back_prefaulted(usize::MAX);
        assert_eq!(pool.lock().prefaulted, 0);
        for chunk in rest.into_iter().chain([first, next]) {
            pool.give(chunk.bytes.as_ptr());
        }
        pool.prefault(|| false);
        assert_eq!(pool.lock().prefaulted, 3);
        assert_eq!(
            pool.lock().opened,
            4,
            "those without memory come before new ones"
        );
    }

    #[test]
    fn nothing_comes_from_a_pool_that_is_not_allowed_or_finds_no_addresses() {
        static OF_TEST: Pool = Pool::new();
        assert!(OF_TEST.take().is_none() && !OF_TEST.holds(ptr::null()));
        static ENDLESS: Pool = Pool::new();
        ENDLESS.bytes_max.store(usize::MAX, Ordering::Relaxed);
        // As much as there is room for in the table, which the kernel may refuse.
        let taken = ENDLESS.take();
        assert_eq!(taken.is_none(), ENDLESS.lock().room == 0);
        assert!(taken.is_none_or(|chunk| ENDLESS.holds(chunk.bytes.as_ptr())));
    }

    /// Pages that were taken before the pool was allowed, and after: contents and zeros are kept,
    /// each goes back to where it came from.
    #[test]
    fn the_allocator_distinguishes_its_pages_from_those_of_the_system() {
        let page = Layout::from_size_align(PAGE_BYTES, 1).unwrap();
        // SAFETY: each block is used within its length, with the layout that it was taken with, and
        // given back once.
        unsafe {
            let before = System.alloc_zeroed(page);
            allow(64 << 20);
            let after = HugePages.alloc_zeroed(page);
            assert!(POOL.holds(after));
            for block in [before, after] {
                assert!(
                    std::slice::from_raw_parts(block, PAGE_BYTES)
                        .iter()
                        .all(|&byte| byte == 0)
                );
                block.write_bytes(7, PAGE_BYTES);
            }
            let longer = HugePages.realloc(after, page, PAGE_BYTES + 900);
            assert!(!POOL.holds(longer));
            assert!(
                std::slice::from_raw_parts(longer, PAGE_BYTES)
                    .iter()
                    .all(|&byte| byte == 7)
            );
            let again = HugePages.alloc_zeroed(page);
            assert_eq!(again, after, "a free chunk that is kept");
            assert!(
                std::slice::from_raw_parts(again, PAGE_BYTES)
                    .iter()
                    .all(|&byte| byte == 0)
            );
            HugePages.dealloc(again, page);
            HugePages.dealloc(before, page);
            let longer_layout = Layout::from_size_align(PAGE_BYTES + 900, 1).unwrap();
            HugePages.dealloc(longer, longer_layout);
            let other = HugePages.alloc(longer_layout);
            assert!(!POOL.holds(other), "only pages of cells");
            HugePages.dealloc(other, longer_layout);
        }
    }

    #[test]
    fn the_setting_of_the_system_is_read() {
        let read = |text| read_setting(text).0;
        assert_eq!(read("always [madvise] never\n"), Support::OnRequest);
        assert_eq!(read("[always] madvise never\n"), Support::OnRequest);
        assert_eq!(read("always madvise [never]\n"), Support::Never);
        assert_eq!(read(""), Support::Never);
        assert_eq!(read("[nonsense"), Support::Never);
    }
}
