//! An allocator that counts what the whole process asks for and holds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Counting;

thread_local! {
    static OWN: Cell<u64> = const { Cell::new(0) };
}

/// Allocations of the calling thread since it began. What another thread does meanwhile, such as
/// the harness that starts the next test, is not counted.
pub fn own_allocations() -> u64 {
    OWN.get()
}

/// Allocations since the start.
pub static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Bytes that are held now.
pub static HELD: AtomicU64 = AtomicU64::new(0);
/// The most that were held since it was last set.
pub static HELD_MAX: AtomicU64 = AtomicU64::new(0);

fn count() {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    // A thread that ends may allocate after its counter is gone.
    let _ = OWN.try_with(|own| own.set(own.get() + 1));
}

fn hold(bytes: usize) {
    let bytes = bytes as u64;
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    HELD_MAX.fetch_max(held, Ordering::Relaxed);
}

fn give_back(bytes: usize) {
    HELD.fetch_sub(bytes as u64, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator unchanged; the counters touch no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        give_back(layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        give_back(layout.size());
        hold(size);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
