//! What is taken from the heap, under an allocator that counts for the whole process.
#![expect(unsafe_code, reason = "a counting allocator is an unsafe trait")]

mod counting;
mod embedded;
mod shard;

use std::sync::{Mutex, MutexGuard, PoisonError};

use counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test at a time: what is counted is the process's.
static COUNTERS: Mutex<()> = Mutex::new(());

/// Waits until no other test counts.
fn the_counters() -> MutexGuard<'static, ()> {
    COUNTERS.lock().unwrap_or_else(PoisonError::into_inner)
}
