//! Empty room that the connections of a core keep for what comes next, and buffers that nobody
//! uses.
//!
//! A connection that was heard just now keeps its buffers, so that a busy one takes nothing from
//! the heap. All connections of a core together keep no more than a bound, and one that is quiet
//! keeps nothing. What stands in a buffer is no empty room: the shard counts it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Bytes of the buffer of a connection that asks for little at a time.
pub(super) const BUFFER_BYTES: usize = 4 << 10;

/// Bytes to which a buffer grows by itself for a busy connection.
pub(super) const BUFFER_BYTES_BUSY: usize = 64 << 10;

/// Bytes of all buffers that nobody uses, at most.
const FREE_BYTES_MAX: usize = 4 * BUFFER_BYTES_BUSY;

/// The empty room of one core.
#[derive(Debug)]
pub(super) struct KeptRoom {
    bytes: Cell<usize>,
    bytes_max: usize,
    free: RefCell<Vec<Vec<u8>>>,
    free_bytes: Cell<usize>,
}

impl KeptRoom {
    /// Connections keep `bytes_max` bytes together, at most.
    pub(super) fn new(bytes_max: usize) -> Self {
        KeptRoom {
            bytes: Cell::new(0),
            bytes_max,
            free: RefCell::default(),
            free_bytes: Cell::new(0),
        }
    }

    /// An empty buffer of at least so many bytes.
    pub(super) fn lend(&self, bytes_min: usize) -> Vec<u8> {
        let mut free = self.free.borrow_mut();
        let found = free.iter().rposition(|it| it.capacity() >= bytes_min);
        match found {
            Some(place) => {
                let buffer = free.swap_remove(place);
                self.free_bytes
                    .set(self.free_bytes.get() - buffer.capacity());
                buffer
            }
            None => Vec::with_capacity(bytes_min),
        }
    }

    /// Takes a buffer back, whatever stands in it.
    pub(super) fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let (capacity, free_bytes) = (buffer.capacity(), self.free_bytes.get());
        let is_usual = (BUFFER_BYTES..=2 * BUFFER_BYTES_BUSY).contains(&capacity);
        if is_usual && free_bytes + capacity <= FREE_BYTES_MAX {
            self.free_bytes.set(free_bytes + capacity);
            self.free.borrow_mut().push(buffer);
        }
    }
}

/// What one task of a connection keeps of the room of its core.
pub(super) struct Kept {
    room: Rc<KeptRoom>,
    bytes: usize,
}

impl Kept {
    pub(super) fn new(room: &Rc<KeptRoom>) -> Self {
        Kept {
            room: Rc::clone(room),
            bytes: 0,
        }
    }

    /// Keeps so many bytes from now on. `false` if all together would keep too much: then nothing
    /// is kept any more.
    #[inline]
    pub(super) fn keeps(&mut self, bytes: usize) -> bool {
        if bytes == self.bytes {
            return true;
        }
        let others = self.room.bytes.get() - self.bytes;
        let is_kept = others + bytes <= self.room.bytes_max;
        self.bytes = if is_kept { bytes } else { 0 };
        self.room.bytes.set(others + self.bytes);
        is_kept
    }

    /// Keeps nothing any more.
    pub(super) fn keeps_nothing(&mut self) {
        self.keeps(0);
    }

    /// Buffers of the core.
    pub(super) fn buffers(&self) -> &KeptRoom {
        &self.room
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.keeps_nothing();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_keep_no_more_than_the_bound_and_give_back_what_they_keep() {
        let room = Rc::new(KeptRoom::new(10));
        let (mut one, mut other) = (Kept::new(&room), Kept::new(&room));
        assert!(one.keeps(6) && other.keeps(4) && one.keeps(6));
        assert!(!other.keeps(5), "eleven");
        assert_eq!(room.bytes.get(), 6, "who is refused keeps nothing");
        assert!(one.keeps(10));
        drop(one);
        assert!(other.keeps(10));
        other.keeps_nothing();
        assert_eq!(room.bytes.get(), 0);
    }

    #[test]
    fn buffers_that_nobody_uses_are_lent_again_and_few_of_them_are_held() {
        let room = KeptRoom::new(0);
        for _ in 0..100 {
            room.give_back(Vec::with_capacity(BUFFER_BYTES_BUSY));
        }
        room.give_back(Vec::new());
        room.give_back(Vec::with_capacity(1 << 20));
        assert_eq!(room.free_bytes.get(), FREE_BYTES_MAX);
        let lent: Vec<Vec<u8>> = (0..4).map(|_| room.lend(BUFFER_BYTES)).collect();
        assert!(lent.iter().all(|it| it.capacity() == BUFFER_BYTES_BUSY));
        assert_eq!(room.free_bytes.get(), 0);
        assert_eq!(room.lend(BUFFER_BYTES).capacity(), BUFFER_BYTES);
    }
}
