//! Copies of values that an open change edits, whose memory is used again and again.

use crate::format::record::PARTS_MAX;

/// A copy of more bytes is given back behind its change.
const KEPT_BYTES_MAX: usize = 4096;

/// One copy for each key of a change.
#[derive(Debug, Default)]
pub(crate) struct EditedValues {
    copies: [Vec<u8>; PARTS_MAX],
    /// One bit for each copy that was made.
    made: u16,
}

const _: () = assert!(PARTS_MAX <= 16);

impl EditedValues {
    /// The copy of a key.
    #[inline]
    pub(super) fn of(&self, which: usize) -> &[u8] {
        &self.copies[which]
    }

    /// The copy of a key, to be edited.
    #[inline]
    pub(super) fn of_mut(&mut self, which: usize) -> &mut [u8] {
        &mut self.copies[which]
    }

    /// Makes the copy of a key anew.
    #[inline]
    pub(super) fn begin(&mut self, which: usize, value: &[u8]) -> &mut [u8] {
        self.made |= 1 << which;
        let copy = &mut self.copies[which];
        copy.clear();
        copy.extend_from_slice(value);
        copy
    }

    /// The change ended: gives the memory of long copies back.
    #[inline]
    pub(super) fn rest(&mut self) {
        while self.made != 0 {
            let copy = &mut self.copies[self.made.trailing_zeros() as usize];
            self.made &= self.made - 1;
            copy.clear();
            if copy.capacity() > KEPT_BYTES_MAX {
                copy.shrink_to(KEPT_BYTES_MAX);
            }
        }
    }
}
