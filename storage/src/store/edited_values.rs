//! Copies of values that an open change edits, whose memory is used again and again.

use crate::format::record::FEW_PARTS_MAX;

/// A copy of more bytes is given back behind its change.
const KEPT_BYTES_MAX: usize = 4096;

/// One copy for each key of a change.
#[derive(Debug, Default)]
pub(crate) struct EditedValues {
    copies: [Vec<u8>; FEW_PARTS_MAX],
    /// Those of the other keys, which are given back behind their change.
    more: Vec<Vec<u8>>,
    /// One bit for each copy that was made, and [`MORE_MADE`].
    made: u16,
}

/// The bit that says that a copy of `more` was made.
const MORE_MADE: u16 = 1 << 15;

const _: () = assert!(FEW_PARTS_MAX < 15);

impl EditedValues {
    /// The copy of a key.
    #[inline]
    pub(super) fn of(&self, which: usize) -> &[u8] {
        match self.copies.get(which) {
            Some(copy) => copy,
            None => &self.more[which - FEW_PARTS_MAX],
        }
    }

    /// The copy of a key, to be edited.
    #[inline]
    pub(super) fn of_mut(&mut self, which: usize) -> &mut [u8] {
        match self.copies.get_mut(which) {
            Some(copy) => copy,
            None => &mut self.more[which - FEW_PARTS_MAX],
        }
    }

    /// Makes the copy of a key anew.
    #[inline]
    pub(super) fn begin(&mut self, which: usize, value: &[u8]) -> &mut [u8] {
        let copy = match self.copies.get_mut(which) {
            Some(copy) => {
                self.made |= 1 << which;
                copy
            }
            None => {
                self.made |= MORE_MADE;
                let place = which - FEW_PARTS_MAX;
                if self.more.len() <= place {
                    self.more.resize(place + 1, Vec::new());
                }
                &mut self.more[place]
            }
        };
        copy.clear();
        copy.extend_from_slice(value);
        copy
    }

    /// The change ended: gives the memory of long copies back.
    #[inline]
    pub(super) fn rest(&mut self) {
        if self.made & MORE_MADE != 0 {
            self.made &= !MORE_MADE;
            self.more = Vec::new();
        }
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
