//! Bytes that a connection makes the shard hold, or keep free.

use super::memory::AWAITED_BYTES;

/// What is kept beyond the answers of before, for keys and headers of other lengths.
const AWAITED_SPARE_BYTES: usize = 256;

/// The share of one connection in [`super::memory::ClientMemory`]. `Sessions` changes the share and
/// the total in one function each.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Bytes for the peer that the driver of the connection made and holds.
    pub(super) outside_bytes: usize,
    /// Bytes that requests keep in the driver until they are answered.
    pub(super) kept_bytes: usize,
    /// Bytes that are kept free for answers which wait for reads.
    pub(super) reserved_bytes: usize,
    /// Bytes that are kept free for answers of other shards.
    pub(super) awaited_bytes: usize,
    /// How long answers of other shards to reads of the connection are taken to be; unknown before
    /// the first.
    pub(super) read_answer_bytes: Option<usize>,
    /// Bytes that the connection has sent and that have not run. 0 unless there are many.
    pub(super) input_bytes: usize,
}

impl Account {
    /// Bytes that count as replies beside those that are here.
    pub(super) fn held_bytes(&self) -> usize {
        self.outside_bytes + self.reserved_bytes + self.awaited_bytes
    }

    /// Another shard answered with so many bytes, for which `kept` were kept.
    pub(super) fn answered(&mut self, bytes: usize, kept: usize) {
        self.awaited_bytes -= kept;
        let bytes = bytes + AWAITED_SPARE_BYTES;
        self.read_answer_bytes = match self.read_answer_bytes {
            // Longer ones are expected again for a while.
            Some(before) => Some(bytes.max(before - before / 8)),
            None if kept > AWAITED_BYTES || bytes > AWAITED_BYTES => Some(bytes),
            None => None,
        };
    }
}
