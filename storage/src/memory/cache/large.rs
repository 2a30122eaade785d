//! Cells with a block of their own.

use crate::memory::cache::cell::Head;
use std::sync::Arc;

/// A heap block takes about so many bytes more than a cell has in it, with the count of those who
/// share it.
pub(super) const HEAP_BLOCK_BYTES: usize = 32;

/// A block that is shared for its value has no more than this share beside it, which nobody would
/// count.
pub(super) const BESIDE_SHARE_MAX: usize = 16;

/// A cell with a heap block.
#[derive(Debug)]
pub(super) struct Large {
    pub(super) head: Head,
    pub(super) value_len: u32,
    /// As long as the cell or longer.
    pub(super) bytes: Arc<[u8]>,
}

impl Large {
    pub(super) fn new(head: Head, value_len: usize, bytes: Arc<[u8]>) -> Self {
        let value_len = u32::try_from(value_len).expect("values have at most 16 MiB");
        Large {
            head,
            value_len,
            bytes,
        }
    }

    /// Its head and its block, which nobody shares from now on.
    // Apart from the few instructions of the small cells.
    #[inline(never)]
    pub(super) fn parts_mut(&mut self) -> (&mut Head, &mut [u8]) {
        (&mut self.head, Arc::make_mut(&mut self.bytes))
    }
}

/// A block of `len` bytes that begins with these.
pub(super) fn new_block(len: usize, begin: &[u8]) -> Arc<[u8]> {
    let mut block: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
    let bytes = Arc::get_mut(&mut block).expect("nobody else has it");
    bytes[..begin.len()].copy_from_slice(begin);
    block
}
