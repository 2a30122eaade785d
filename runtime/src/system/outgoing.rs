//! What the writer of a connection is sending: pieces, and where in memory the kernel finds what is
//! left of them.
#![expect(unsafe_code, reason = "the kernel reads where we say")]

use libc::iovec;
use monoio::buf::{IoBuf, IoVecBuf};
use penstock_net::pieces::Pieces;

/// Runs of bytes of one system call, at most.
const RUNS_MAX: usize = 64;

/// Pieces that are being sent.
#[derive(Default)]
pub(crate) struct Outgoing {
    pieces: Pieces,
    sent: usize,
    /// The next runs of bytes behind those that were sent, once they were gathered.
    runs: Vec<iovec>,
}

impl Outgoing {
    /// What is to be sent next; to be filled when nothing is left.
    pub(crate) fn refill(&mut self) -> &mut Pieces {
        assert!(self.left() == 0, "all was sent");
        self.sent = 0;
        self.pieces.clear();
        &mut self.pieces
    }

    /// Bytes that were not sent.
    pub(crate) fn left(&self) -> usize {
        self.pieces.len() - self.sent
    }

    /// Whether what is left is one run of bytes: it can be written as it is.
    pub(crate) fn is_whole(&self) -> bool {
        self.pieces.whole().is_some()
    }

    /// What is left, as runs of contiguous bytes.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.runs(self.sent)
    }

    /// Names the next runs of bytes, as many as one system call takes.
    pub(crate) fn gather(&mut self) {
        self.runs.clear();
        let runs = self.pieces.runs(self.sent).take(RUNS_MAX);
        self.runs.extend(runs.map(|run| iovec {
            iov_base: run.as_ptr().cast_mut().cast(),
            iov_len: run.len(),
        }));
    }

    /// So many bytes more were sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        assert!(bytes <= self.left(), "no more than there is");
        self.sent += bytes;
        self.runs.clear();
    }

    /// Bytes of memory that it keeps.
    pub(crate) fn capacity(&self) -> usize {
        self.pieces.capacity()
    }

    fn whole_left(&self) -> &[u8] {
        &self.pieces.whole().expect("whole pieces")[self.sent..]
    }
}

// SAFETY: what is left of whole pieces is initialized memory of a vector on the heap. It stays
// where it is while this value is moved, and only who owns this value could change it.
unsafe impl IoBuf for Outgoing {
    fn read_ptr(&self) -> *const u8 {
        self.whole_left().as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.whole_left().len()
    }
}

// SAFETY: each vector names initialized memory on the heap: of a `Vec` that only this value owns,
// or of shared blocks. Nobody can change or free a shared block while this value holds it. `runs`
// is cleared before the pieces change. So the vectors and the memory that they name stay as they
// are while this value is moved.
unsafe impl IoVecBuf for Outgoing {
    fn read_iovec_ptr(&self) -> *const iovec {
        self.runs.as_ptr()
    }

    fn read_iovec_len(&self) -> usize {
        self.runs.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// What the kernel would read now.
    fn named(outgoing: &Outgoing) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in 0..outgoing.read_iovec_len() {
            // SAFETY: `number` is below the number of vectors, and `outgoing` holds the memory that
            // they name.
            let run = unsafe {
                let vector = *outgoing.read_iovec_ptr().add(number);
                std::slice::from_raw_parts(vector.iov_base.cast::<u8>(), vector.iov_len)
            };
            bytes.extend_from_slice(run);
        }
        bytes
    }

    fn fill(pieces: &mut Pieces, slices: usize) {
        let block: Arc<[u8]> = (0..120).collect();
        for number in 0..slices {
            pieces.written().extend_from_slice(b"head");
            let from = number % 7;
            pieces.share(Arc::clone(&block), from..from + 16);
        }
        pieces.written().extend_from_slice(b"the last");
    }

    #[test]
    fn what_the_kernel_takes_at_any_byte_goes_on_there() {
        let mut pieces = Pieces::default();
        fill(&mut pieces, 3);
        let flat = pieces.clone().into_bytes();
        let mut outgoing = Outgoing::default();
        for first in 0..=flat.len() {
            for second in first..=flat.len() {
                fill(outgoing.refill(), 3);
                for sent in [first, second, flat.len()] {
                    outgoing.gather();
                    let from = flat.len() - outgoing.left();
                    assert_eq!(named(&outgoing), flat[from..]);
                    outgoing.sent(sent - from);
                }
            }
        }
        outgoing.refill().written().extend_from_slice(&flat);
        outgoing.sent(5);
        assert!(outgoing.is_whole());
        assert_eq!(outgoing.whole_left(), &flat[5..]);
    }

    #[test]
    fn more_runs_than_one_call_takes_are_sent_in_turn() {
        let mut outgoing = Outgoing::default();
        fill(outgoing.refill(), 100);
        let flat = outgoing.pieces.clone().into_bytes();
        let mut sent = Vec::new();
        while outgoing.left() > 0 {
            outgoing.gather();
            assert!((1..=RUNS_MAX).contains(&outgoing.read_iovec_len()));
            let some = named(&outgoing);
            outgoing.sent(some.len());
            sent.extend(some);
        }
        assert_eq!(sent, flat);
    }
}
