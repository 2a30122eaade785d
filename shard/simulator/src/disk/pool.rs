//! The memory that the simulated device touches.

use std::cell::RefCell;
use std::rc::Rc;

use penstock_storage::io::{BLOCK_BYTES, Block, Blocks};

/// Memory for the simulated device, bounded as the server's arena is.
#[derive(Clone)]
pub struct Pool(Rc<RefCell<PoolState>>);

struct PoolState {
    free: Vec<Vec<u8>>,
    left: usize,
}

impl Pool {
    /// `bytes` of memory in all.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Pool(Rc::new(RefCell::new(PoolState {
            free: Vec::new(),
            left: bytes,
        })))
    }
}

/// Memory of a [`Pool`].
pub struct PoolBlock {
    bytes: Vec<u8>,
    pool: Pool,
}

impl Block for PoolBlock {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for PoolBlock {
    fn drop(&mut self) {
        let mut pool = self.pool.0.borrow_mut();
        pool.left += self.bytes.len();
        let bytes = std::mem::take(&mut self.bytes);
        if pool.free.len() < 64 {
            pool.free.push(bytes);
        }
    }
}

impl Blocks for Pool {
    type Block = PoolBlock;

    fn take(&mut self, len: usize) -> Option<PoolBlock> {
        let len = len.next_multiple_of(BLOCK_BYTES);
        let mut pool = self.0.borrow_mut();
        pool.left = pool.left.checked_sub(len)?;
        let mut bytes = pool.free.pop().unwrap_or_default();
        // Old contents stay: nobody may rely on zeros.
        bytes.resize(len, 0xEE);
        drop(pool);
        Some(PoolBlock {
            bytes,
            pool: self.clone(),
        })
    }
}
