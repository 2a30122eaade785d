//! Memory that is wiped when it is freed: for libraries that free what secrets stood in.
#![expect(
    unsafe_code,
    reason = "the allocator writes to a block before it is freed; a field ends before its struct"
)]

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;

thread_local! {
    /// Blocks that this thread frees are wiped. It needs no destructor, so an allocator may ask.
    static WIPES: Cell<bool> = const { Cell::new(false) };
}

/// While this lives, the allocator of the binary wipes what the thread frees.
pub(crate) struct Wiping {
    before: bool,
}

impl Wiping {
    pub(crate) fn begin() -> Wiping {
        Wiping {
            before: WIPES.replace(true),
        }
    }
}

impl Drop for Wiping {
    fn drop(&mut self) {
        WIPES.set(self.before);
    }
}

/// A value whose memory is wiped when it ends.
pub(crate) struct WipedAtEnd<T>(ManuallyDrop<T>);

impl<T> WipedAtEnd<T> {
    pub(crate) fn new(value: T) -> WipedAtEnd<T> {
        WipedAtEnd(ManuallyDrop::new(value))
    }
}

impl<T> Deref for WipedAtEnd<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for WipedAtEnd<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for WipedAtEnd<T> {
    fn drop(&mut self) {
        let _wiping = Wiping::begin();
        // SAFETY: the value is there until now, and nobody reaches it from now on.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

/// Whether what this thread frees now is to be wiped.
#[inline]
pub(super) fn is_wiping() -> bool {
    WIPES.get()
}

/// Wipes a block that is about to be freed.
///
/// # Safety
/// The block is the caller's alone, and at least `bytes` long.
pub(super) unsafe fn wipe(block: *mut u8, bytes: usize) {
    // SAFETY: the caller promises it.
    unsafe { ptr::write_bytes(block, 0, bytes) };
    // Somebody may look: without this the writes before a `free` are left out.
    std::hint::black_box(block);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_wipes_while_a_guard_lives_and_a_value_ends_under_one() {
        struct Asks<'a>(&'a Cell<bool>);
        impl Drop for Asks<'_> {
            fn drop(&mut self) {
                self.0.set(is_wiping());
            }
        }
        assert!(!is_wiping());
        {
            let _outer = Wiping::begin();
            drop(Wiping::begin());
            assert!(is_wiping(), "the outer one lives");
        }
        assert!(!is_wiping());
        let was_wiping = Cell::new(false);
        drop(WipedAtEnd::new(Asks(&was_wiping)));
        assert!(was_wiping.get() && !is_wiping());
        let mut block = [7_u8; 9];
        // SAFETY: the block is this test's and 9 bytes long.
        unsafe { wipe(block.as_mut_ptr(), 8) };
        assert_eq!(block, [0, 0, 0, 0, 0, 0, 0, 0, 7]);
    }
}
