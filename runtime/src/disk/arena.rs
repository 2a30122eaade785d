//! The memory that a shard's disk reads and writes directly: one arena per shard.
//!
//! An arena is a single mapping, carved into two sizes: frame blocks for group commits and read
//! blocks for cold values. One mapping can be registered with the kernel as one buffer, which
//! saves pinning its pages for every operation. What does not fit, or comes while its size is
//! exhausted, is served by allocations of its own, of a bounded total.
//!
//! Blocks and arena stay on one thread. A block that is under way is owned by the disk's slot
//! table, never by a future, so no device can write into memory that has been given back.
#![expect(unsafe_code, reason = "raw aligned memory is what this file is about")]

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::{fmt, io, slice};

use penstock_storage::io::{BLOCK_BYTES, Block, Blocks};

use crate::system::huge_pages::HUGE_PAGE_BYTES;

/// How an arena is carved. All sizes are multiples of [`BLOCK_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaLayout {
    /// How many blocks for group commits.
    pub frame_blocks: u32,
    /// The size of each of them in bytes.
    pub frame_block_bytes: usize,
    /// How many blocks for cold reads.
    pub read_blocks: u32,
    /// The size of each of them in bytes.
    pub read_block_bytes: usize,
    /// The most bytes that blocks outside the mapping may hold together.
    pub overflow_bytes_max: usize,
}

impl Default for ArenaLayout {
    /// 4 MiB, because RLIMIT_MEMLOCK is often 8 MiB and is shared by all shards: 12 frame blocks
    /// of 264 KiB (a standard frame and a block more for a read that straddles), 58 read blocks of
    /// 16 KiB, and 64 MiB at most beside the mapping.
    fn default() -> Self {
        Self {
            frame_blocks: 12,
            frame_block_bytes: 264 << 10,
            read_blocks: 58,
            read_block_bytes: 16 << 10,
            overflow_bytes_max: 64 << 20,
        }
    }
}

impl ArenaLayout {
    /// The size of the mapping in bytes.
    pub fn bytes(&self) -> usize {
        self.frame_blocks as usize * self.frame_block_bytes
            + self.read_blocks as usize * self.read_block_bytes
    }
}

/// A handle to one shard's arena; cheap to clone, bound to its thread.
#[derive(Clone)]
pub struct Arena {
    region: Rc<Region>,
}

impl Arena {
    /// Maps an arena. Fails when the system has no memory for it.
    pub fn new(layout: ArenaLayout) -> io::Result<Self> {
        assert!(
            layout.frame_block_bytes.is_multiple_of(BLOCK_BYTES)
                && layout.read_block_bytes.is_multiple_of(BLOCK_BYTES)
                && layout.read_block_bytes <= layout.frame_block_bytes
                && layout.bytes() > 0,
            "an arena is carved into whole blocks: {layout:?}"
        );
        Ok(Self {
            region: Rc::new(Region::map(layout)?),
        })
    }

    /// How the arena is carved.
    pub fn layout(&self) -> ArenaLayout {
        self.region.layout
    }

    /// Bytes that blocks outside the mapping hold now.
    pub fn overflow_bytes(&self) -> usize {
        self.region.overflow_bytes.get()
    }

    /// Blocks of the mapping that are free now: for frames, for reads.
    pub fn free_blocks(&self) -> (usize, usize) {
        (
            self.region.frames_free.borrow().len(),
            self.region.reads_free.borrow().len(),
        )
    }

    /// The mapping as the kernel wants it for registration.
    pub(crate) fn iovec(&self) -> libc::iovec {
        libc::iovec {
            iov_base: self.region.base.as_ptr().cast(),
            iov_len: self.region.layout.bytes(),
        }
    }
}

impl Blocks for Arena {
    type Block = ArenaBlock;

    #[inline]
    fn take(&mut self, len: usize) -> Option<ArenaBlock> {
        let bytes = len.max(1).checked_next_multiple_of(BLOCK_BYTES)?;
        let layout = &self.region.layout;
        let carved = if bytes <= layout.read_block_bytes {
            self.region.reads_free.borrow_mut().pop().map(|index| {
                let offset = layout.frame_blocks as usize * layout.frame_block_bytes
                    + index as usize * layout.read_block_bytes;
                (offset, Home::Reads(index))
            })
        } else if bytes <= layout.frame_block_bytes {
            let index = self.region.frames_free.borrow_mut().pop();
            index.map(|index| {
                (
                    index as usize * layout.frame_block_bytes,
                    Home::Frames(index),
                )
            })
        } else {
            None
        };
        let Some((offset, home)) = carved else {
            return self.take_overflow(bytes);
        };
        // SAFETY: `offset` is where block `index` of its size begins, and `index` came from the
        // free list, which only holds indices below the count that the mapping was sized for.
        let start = unsafe { self.region.base.add(offset) };
        Some(ArenaBlock {
            region: Rc::clone(&self.region),
            start,
            bytes,
            home,
        })
    }
}

impl Arena {
    #[cold]
    fn take_overflow(&self, bytes: usize) -> Option<ArenaBlock> {
        let total = self.region.overflow_bytes.get().checked_add(bytes)?;
        if total > self.region.layout.overflow_bytes_max {
            return None;
        }
        let layout = Layout::from_size_align(bytes, BLOCK_BYTES).ok()?;
        // SAFETY: `bytes` is at least one block, so the layout is not of size zero. Zeroed, since
        // the block hands out `&[u8]` and reading fresh memory would be undefined.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        self.region.overflow_bytes.set(total);
        Some(ArenaBlock {
            region: Rc::clone(&self.region),
            start,
            bytes,
            home: Home::Overflow,
        })
    }
}

/// One block of an arena; dropping it gives it back.
pub struct ArenaBlock {
    region: Rc<Region>,
    start: NonNull<u8>,
    bytes: usize,
    home: Home,
}

/// Where a block goes back to.
#[derive(Clone, Copy, Debug)]
enum Home {
    Frames(u32),
    Reads(u32),
    Overflow,
}

/// What a device needs of a block: raw parts that outlive no block.
///
/// Whoever holds a span must be sure that the block is neither dropped nor touched meanwhile; the
/// slot table of the disk keeps the block for exactly that time.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) address: *mut u8,
    /// Inside the arena's mapping, hence inside registered buffer 0.
    pub(crate) in_mapping: bool,
}

impl ArenaBlock {
    pub(crate) fn span(&mut self) -> Span {
        Span {
            address: self.start.as_ptr(),
            in_mapping: !matches!(self.home, Home::Overflow),
        }
    }
}

impl Block for ArenaBlock {
    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: `start` is valid for `bytes` bytes for as long as this block lives, since the
        // region or the allocation outlives it; the memory was zeroed once, so it is initialised;
        // nobody else has this block, and a device has its span only while the slot table owns it.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes this the only reference.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for ArenaBlock {
    #[inline]
    fn drop(&mut self) {
        match self.home {
            Home::Frames(index) => self.region.frames_free.borrow_mut().push(index),
            Home::Reads(index) => self.region.reads_free.borrow_mut().push(index),
            Home::Overflow => {
                self.region
                    .overflow_bytes
                    .set(self.region.overflow_bytes.get() - self.bytes);
                let layout = Layout::from_size_align(self.bytes, BLOCK_BYTES)
                    .expect("the layout was valid when the block was taken");
                // SAFETY: `start` came from the same allocator with this very layout and is freed
                // once, here.
                unsafe { std::alloc::dealloc(self.start.as_ptr(), layout) };
            }
        }
    }
}

impl fmt::Debug for ArenaBlock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ArenaBlock({:?}, {} bytes)", self.home, self.bytes)
    }
}

/// The mapping and its free lists; lives until the arena and its last block are gone.
struct Region {
    base: NonNull<u8>,
    layout: ArenaLayout,
    frames_free: RefCell<Vec<u32>>,
    reads_free: RefCell<Vec<u32>>,
    overflow_bytes: Cell<usize>,
}

impl Region {
    fn map(layout: ArenaLayout) -> io::Result<Self> {
        let bytes = layout.bytes();
        let alignment = if bytes >= HUGE_PAGE_BYTES {
            HUGE_PAGE_BYTES
        } else {
            BLOCK_BYTES
        };
        let reserved = bytes + alignment;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no memory of
        // anybody.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                reserved,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let head = mapped.align_offset(alignment);
        let tail = reserved - head - bytes;
        // SAFETY: `head + bytes + tail == reserved`; the parts before and after the aligned range
        // are unmapped before anybody could have a pointer into them. All bounds are multiples of
        // the page size, since `mapped`, `bytes` and `alignment` are. The advice changes no
        // contents, and its failure only costs speed.
        let base = unsafe {
            let base = mapped.byte_add(head);
            if head > 0 {
                libc::munmap(mapped, head);
            }
            if tail > 0 {
                libc::munmap(base.byte_add(bytes), tail);
            }
            libc::madvise(base, bytes, libc::MADV_HUGEPAGE);
            base
        };
        Ok(Self {
            base: NonNull::new(base.cast()).expect("a mapping never begins at zero"),
            layout,
            frames_free: RefCell::new((0..layout.frame_blocks).rev().collect()),
            reads_free: RefCell::new((0..layout.read_blocks).rev().collect()),
            overflow_bytes: Cell::new(0),
        })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `base` and the length are the range that `map` kept; every block holds the
        // region, so none is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.layout.bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Arena {
        Arena::new(ArenaLayout {
            frame_blocks: 2,
            frame_block_bytes: 64 << 10,
            read_blocks: 3,
            read_block_bytes: 16 << 10,
            overflow_bytes_max: 128 << 10,
        })
        .expect("map")
    }

    #[test]
    fn blocks_are_aligned_disjoint_and_as_long_as_asked_in_whole_blocks() {
        let mut arena = small();
        let mut blocks = Vec::new();
        for len in [1, 4096, 4097, 16 << 10, 20_000, 64 << 10] {
            let mut block = arena.take(len).expect("room");
            assert_eq!(block.bytes().len(), len.next_multiple_of(BLOCK_BYTES));
            assert_eq!(block.bytes().as_ptr().addr() % BLOCK_BYTES, 0);
            let mark = u8::try_from(blocks.len()).expect("few") + 1;
            block.bytes_mut().fill(mark);
            blocks.push((mark, block));
        }
        for (mark, block) in &blocks {
            assert!(
                block.bytes().iter().all(|byte| byte == mark),
                "{block:?} was overwritten"
            );
        }
    }

    #[test]
    fn a_dropped_block_returns_to_its_own_size() {
        let mut arena = small();
        assert_eq!(arena.free_blocks(), (2, 3));
        let frame = arena.take(64 << 10).expect("room");
        let read = arena.take(1).expect("room");
        assert_eq!(arena.free_blocks(), (1, 2));
        drop(read);
        assert_eq!(arena.free_blocks(), (1, 3));
        drop(frame);
        assert_eq!(arena.free_blocks(), (2, 3));
    }

    #[test]
    fn memory_beside_the_mapping_is_bounded_and_given_back() {
        let mut arena = small();
        let large = arena.take(100 << 10).expect("fits the bound");
        assert_eq!(arena.overflow_bytes(), 100 << 10);
        assert!(
            arena.take(100 << 10).is_none(),
            "two would exceed the bound"
        );
        assert!(arena.take(usize::MAX).is_none());
        drop(large);
        assert_eq!(arena.overflow_bytes(), 0);
        assert!(arena.take(128 << 10).is_some());
    }

    #[test]
    fn an_exhausted_size_is_served_beside_the_mapping() {
        let mut arena = small();
        let held: Vec<_> = (0..4)
            .map(|_| arena.take(16 << 10).expect("room"))
            .collect();
        assert_eq!(arena.free_blocks().1, 0);
        assert_eq!(arena.overflow_bytes(), 16 << 10);
        drop(held);
        assert_eq!((arena.free_blocks(), arena.overflow_bytes()), ((2, 3), 0));
    }

    #[test]
    fn a_block_outlives_the_handle_it_came_from() {
        let mut arena = small();
        let mut block = arena.take(10).expect("room");
        drop(arena);
        block.bytes_mut().fill(7);
        assert_eq!(block.bytes()[4095], 7);
    }

    #[test]
    fn the_default_mapping_is_four_mebibytes_on_a_huge_page_border() {
        let arena = Arena::new(ArenaLayout::default()).expect("map");
        assert_eq!(arena.layout().bytes(), 4 << 20);
        assert_eq!(arena.iovec().iov_base.addr() % HUGE_PAGE_BYTES, 0);
    }
}
