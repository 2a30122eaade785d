//! Copies of values that an open change edits, whose memory is used again and again.

use crate::format::record::PARTS_MAX;

/// A copy of more bytes is given back behind its change.
const KEPT_BYTES_MAX: usize = 4096;

/// One copy for each key of a change.
#[derive(Debug, Default)]
pub(crate) struct EditedValues([Vec<u8>; PARTS_MAX]);

impl EditedValues {
    /// The copy of a key.
    #[inline]
    pub(super) fn of(&self, which: usize) -> &[u8] {
        &self.0[which]
    }

    /// The copy of a key, to be edited.
    #[inline]
    pub(super) fn of_mut(&mut self, which: usize) -> &mut [u8] {
        &mut self.0[which]
    }

    /// Makes the copy of a key anew.
    #[inline]
    pub(super) fn begin(&mut self, which: usize, value: &[u8]) -> &mut [u8] {
        let copy = &mut self.0[which];
        copy.clear();
        copy.extend_from_slice(value);
        copy
    }

    /// The change ended: gives the memory of long copies back.
    #[inline]
    pub(super) fn rest(&mut self) {
        for copy in &mut self.0 {
            copy.clear();
            copy.shrink_to(KEPT_BYTES_MAX);
        }
    }
}
