//! Blocks of the heap.

use penstock_storage::io::{BLOCK_BYTES, Block, Blocks};

/// A block filled with garbage, as memory from an arena is.
#[derive(Debug)]
pub struct HeapBlock(Vec<u8>);

impl Block for HeapBlock {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[derive(Clone)]
pub struct Heap;

impl Blocks for Heap {
    type Block = HeapBlock;

    fn take(&mut self, len: usize) -> Option<HeapBlock> {
        Some(HeapBlock(vec![0xEE; len.next_multiple_of(BLOCK_BYTES)]))
    }
}
