//! Bytes on their way to a connection. Most bytes are written here. A large value stands in a block
//! that the cache and other replies may share. A shared block does not change.

use std::ops::Range;
use std::sync::Arc;

use crate::batch::padded;

/// Bytes for a connection, in the order in which they are sent. Bytes of shared blocks are
/// *slices*.
///
/// What must hold: the places of slices ascend, and none lies behind the end of `bytes`.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    bytes: Vec<u8>,
    slices: Vec<Slice>,
    /// Bytes of all slices.
    sliced: usize,
}

/// A part of a shared block.
#[derive(Clone, Debug)]
struct Slice {
    /// How many bytes of [`Pieces::bytes`] come before the slice.
    at: usize,
    block: Arc<[u8]>,
    range: Range<usize>,
}

impl Slice {
    fn bytes(&self) -> &[u8] {
        &self.block[self.range.clone()]
    }
}

/// The end of pieces at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// Length of [`Pieces::bytes`].
    pub(crate) bytes: usize,
    /// Bytes of all slices.
    pub(crate) sliced: usize,
    slices: usize,
}

impl From<Vec<u8>> for Pieces {
    fn from(bytes: Vec<u8>) -> Self {
        Pieces {
            bytes,
            ..Pieces::default()
        }
    }
}

impl Pieces {
    /// Number of bytes, those of slices included.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() + self.sliced
    }

    /// Whether there is no byte.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bytes. `None` if there is a slice.
    #[inline]
    #[must_use]
    pub fn whole(&self) -> Option<&[u8]> {
        self.slices.is_empty().then_some(&self.bytes[..])
    }

    /// The buffer for bytes that are written here. A caller appends, and removes no byte that comes
    /// before a slice.
    #[inline]
    pub fn written(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends `range` of `block` as a slice, and zeros up to a multiple of 8 bytes.
    pub fn share(&mut self, block: Arc<[u8]>, range: Range<usize>) {
        let len = range.len();
        assert!(range.end <= block.len(), "a part of the block");
        self.sliced += len;
        self.slices.push(Slice {
            at: self.bytes.len(),
            block,
            range,
        });
        self.bytes.resize(self.bytes.len() + padded(len) - len, 0);
    }

    /// A reader that begins at the first byte.
    #[must_use]
    pub fn reader(&self) -> PiecesReader<'_> {
        PiecesReader {
            pieces: self,
            bytes: 0,
            slices: 0,
        }
    }

    /// Moves the first `len` bytes to the end of `into`. The cut must not divide a slice.
    #[inline]
    pub fn move_to(&mut self, len: usize, into: &mut Pieces) {
        if len == self.len() && into.is_empty() {
            std::mem::swap(into, self);
        } else {
            self.move_part(len, into);
        }
    }

    fn move_part(&mut self, len: usize, into: &mut Pieces) {
        let mut reader = self.reader();
        reader.take(len, into);
        let (bytes, slices) = (reader.bytes, reader.slices);
        self.bytes.drain(..bytes);
        self.sliced -= len - bytes;
        self.slices.drain(..slices);
        for slice in &mut self.slices {
            slice.at -= bytes;
        }
    }

    /// Removes and returns the bytes behind the first `len` bytes. The cut must not divide a slice.
    #[must_use]
    pub fn split_off(&mut self, len: usize) -> Pieces {
        let mut reader = self.reader();
        reader.skip(len);
        let (bytes, slices) = (reader.bytes, reader.slices);
        let mut behind = Pieces::default();
        reader.take(self.len() - len, &mut behind);
        self.bytes.truncate(bytes);
        self.slices.truncate(slices);
        self.sliced -= behind.sliced;
        behind
    }

    /// The bytes behind the first `from` bytes, as runs of contiguous bytes in their order. No run
    /// is empty.
    pub fn runs(&self, from: usize) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        let before_last = self.slices.iter().flat_map(move |slice| {
            let before = at..slice.at;
            at = slice.at;
            [&self.bytes[before], slice.bytes()]
        });
        let last = self.slices.last().map_or(0, |slice| slice.at);
        let mut passed = from;
        before_last
            .chain([&self.bytes[last..]])
            .filter_map(move |run| {
                let skipped = passed.min(run.len());
                passed -= skipped;
                Some(&run[skipped..]).filter(|run| !run.is_empty())
            })
    }

    /// All bytes in one buffer. Slices are copied.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        if self.slices.is_empty() {
            return self.bytes;
        }
        let mut bytes = Vec::with_capacity(self.len());
        self.runs(0).for_each(|run| bytes.extend_from_slice(run));
        bytes
    }

    /// Removes all bytes and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.slices.clear();
        self.sliced = 0;
    }

    /// Removes all bytes and the allocated memory.
    pub fn give_back(&mut self) {
        *self = Pieces::default();
    }

    /// Bytes of memory that the two lists hold. Shared blocks do not count.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() + self.slices.capacity() * size_of::<Slice>()
    }

    #[inline]
    pub(crate) fn end(&self) -> End {
        End {
            bytes: self.bytes.len(),
            sliced: self.sliced,
            slices: self.slices.len(),
        }
    }

    /// Corrects the places of the slices behind `end` after `moved` bytes were removed between
    /// `end` and the first of those slices.
    #[inline]
    pub(crate) fn close_up(&mut self, end: End, moved: usize) {
        for slice in &mut self.slices[end.slices..] {
            slice.at -= moved;
        }
    }

    /// CRC-32 of the bytes that begin `skipped` bytes behind `end`. No slice stands within the
    /// skipped bytes.
    #[inline]
    pub(crate) fn crc_behind(&self, end: End, skipped: usize) -> u32 {
        let mut at = end.bytes + skipped;
        let slices = &self.slices[end.slices..];
        if slices.is_empty() {
            return crc32fast::hash(&self.bytes[at..]);
        }
        let mut hasher = crc32fast::Hasher::new();
        for slice in slices {
            hasher.update(&self.bytes[at..slice.at]);
            hasher.update(slice.bytes());
            at = slice.at;
        }
        hasher.update(&self.bytes[at..]);
        hasher.finalize()
    }
}

/// A position in pieces, which reads them part by part.
#[derive(Clone, Copy, Debug)]
pub struct PiecesReader<'a> {
    pieces: &'a Pieces,
    /// How many bytes of [`Pieces::bytes`] and how many slices were read.
    bytes: usize,
    slices: usize,
}

impl PiecesReader<'_> {
    /// Appends the next `len` bytes to `into`. Slices are shared, not copied. The end must not
    /// divide a slice.
    pub fn take(&mut self, len: usize, into: &mut Pieces) {
        let (from, from_slices) = (self.bytes, self.slices);
        self.skip(len);
        let base = into.bytes.len();
        into.bytes
            .extend_from_slice(&self.pieces.bytes[from..self.bytes]);
        for slice in &self.pieces.slices[from_slices..self.slices] {
            into.sliced += slice.range.len();
            into.slices.push(Slice {
                at: base + slice.at - from,
                ..slice.clone()
            });
        }
    }

    /// Skips the next `len` bytes. The end must not divide a slice.
    pub fn skip(&mut self, len: usize) {
        let mut left = len;
        while let Some(slice) = self.pieces.slices.get(self.slices) {
            let before = slice.at - self.bytes;
            if left <= before {
                break;
            }
            let through = before + slice.range.len();
            assert!(through <= left, "a slice is taken whole");
            left -= through;
            self.bytes = slice.at;
            self.slices += 1;
        }
        self.bytes += left;
        assert!(self.bytes <= self.pieces.bytes.len(), "they are there");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces with slices of these lengths between written bytes, and the same bytes in one buffer.
    fn pieces(lens: &[usize]) -> (Pieces, Vec<u8>, Vec<usize>) {
        let (mut pieces, mut flat, mut ends) = (Pieces::default(), Vec::new(), vec![0]);
        for (number, &len) in (1u8..).zip(lens) {
            let head = vec![number; usize::from(number) % 3];
            pieces.written().extend_from_slice(&head);
            flat.extend_from_slice(&head);
            let block: Arc<[u8]> = (0..len + 5)
                .map(|at| number ^ at.to_le_bytes()[0])
                .collect();
            flat.extend_from_slice(&block[2..2 + len]);
            flat.resize(flat.len() + len.next_multiple_of(8) - len, 0);
            pieces.share(block, 2..2 + len);
            assert_eq!(pieces.len(), flat.len());
            ends.push(flat.len());
        }
        pieces.written().extend_from_slice(b"the end");
        flat.extend_from_slice(b"the end");
        ends.push(flat.len());
        (pieces, flat, ends)
    }

    fn flat_of(pieces: &Pieces) -> Vec<u8> {
        pieces.clone().into_bytes()
    }

    #[test]
    fn runs_from_every_byte_are_the_flat_bytes_behind_it() {
        for lens in [&[][..], &[9], &[1, 16, 8], &[8, 8, 3, 40]] {
            let (pieces, flat, _) = pieces(lens);
            assert_eq!(pieces.whole().is_some(), lens.is_empty());
            for from in 0..=flat.len() {
                let runs: Vec<&[u8]> = pieces.runs(from).collect();
                assert_eq!(runs.concat(), flat[from..], "{lens:?} from {from}");
                assert!(runs.iter().all(|run| !run.is_empty()));
            }
        }
    }

    #[test]
    fn what_is_taken_part_by_part_is_the_whole() {
        let (whole, flat, ends) = pieces(&[9, 16, 8, 1, 30]);
        for &first in &ends {
            for &second in ends.iter().filter(|&&end| end >= first) {
                let mut rest = whole.clone();
                let mut taken = Pieces::from(b"before".to_vec());
                rest.move_to(first, &mut taken);
                assert_eq!(flat_of(&rest), flat[first..]);
                rest.move_to(second - first, &mut taken);
                assert_eq!(
                    (flat_of(&rest), rest.len()),
                    (flat[second..].to_vec(), flat.len() - second)
                );
                assert_eq!(flat_of(&taken), [b"before", &flat[..second]].concat());
                assert_eq!(taken.len(), 6 + second);
                let mut front = whole.clone();
                let behind = front.split_off(first);
                assert_eq!((front.len(), behind.len()), (first, flat.len() - first));
                assert_eq!([flat_of(&front), flat_of(&behind)].concat(), flat);
            }
        }
        let mut reader = whole.reader();
        let mut some = Pieces::default();
        reader.skip(ends[2]);
        reader.take(ends[4] - ends[2], &mut some);
        assert_eq!(flat_of(&some), flat[ends[2]..ends[4]]);
    }

    #[test]
    fn a_block_is_shared_until_its_pieces_are_gone() {
        let block: Arc<[u8]> = vec![7; 100].into();
        let mut pieces = Pieces::default();
        pieces.share(Arc::clone(&block), 4..60);
        let mut taken = Pieces::default();
        pieces.move_to(56, &mut taken);
        assert!(pieces.is_empty() && Arc::strong_count(&block) == 2);
        taken.clear();
        assert!(taken.is_empty() && Arc::strong_count(&block) == 1);
    }
}
