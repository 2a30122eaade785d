//! Another value for a cell, where it stands.

use crate::memory::cache::cell::{
    EPOCH_AT, EPOCH_ELSEWHERE, FREE, GENERATION_AT, HEAD_BYTES, KEY_SHIFT, MARKS, MEMBERS,
    PLACE_AT, REFERENCED, SEQUENCE_AT, SEQUENCE_MAX, YOUNG_AT, is_same_key, key_len, lengths,
    place_in,
};
use crate::memory::cache::cells::Cache;
use crate::memory::cache::page::{large_number, page_and_slot};
use crate::memory::index::entry::CellId;
use crate::types::packed_place::PackedPlace;
use crate::types::place::Lsn;
use crate::types::version::Version;

impl Cache {
    /// As [`Cache::set_value`] and [`Cache::set_change`] of a change with this version, which
    /// `append` logs. Tells where the change before it stands.
    ///
    /// `None`, and nothing has changed: the cell is not in a page, is not that of `key`, is
    /// deleted, has an expiry or members, must become another cell, has no room for such a version
    /// in its head, or has a version of another epoch than this one, which is not that of the run,
    /// or `append` does not log the change.
    #[inline(always)]
    pub(crate) fn direct_set(
        &mut self,
        id: CellId,
        (key, value): (&[u8], &[u8]),
        version: Version,
        append: impl FnOnce() -> Option<(Lsn, PackedPlace)>,
    ) -> Option<PackedPlace> {
        if large_number(id).is_some() || version.sequence > SEQUENCE_MAX {
            return None;
        }
        let (page, slot) = page_and_slot(id);
        let (head, bytes) = self.pages[page].cell_mut(slot);
        let epoch = match head[EPOCH_AT] {
            EPOCH_ELSEWHERE => return None,
            _ if self.own_epoch == Some(version.epoch) => 0,
            0 => return None,
            // Nearly always the partition was written in this epoch before.
            number if self.epochs.get(usize::from(number) - 1) == Some(&version.epoch) => number,
            _ => return None,
        };
        let (before, lengths) = (place_in(head), lengths(head));
        let (needed, held) = (
            HEAD_BYTES + key.len() + value.len(),
            HEAD_BYTES + bytes.len(),
        );
        let marks = head[YOUNG_AT] & MARKS;
        let is_plain = lengths & FREE == 0
            && marks & MEMBERS == 0
            && before != PackedPlace::default()
            && needed <= held
            && held <= 2 * needed
            && is_same_key(&bytes[..key_len(head)], key);
        if !is_plain {
            return None;
        }
        let (lsn, place) = append()?;
        bytes[key.len()..][..value.len()].copy_from_slice(value);
        // Each part is stored as it is loaded: a load across two stores would wait for both.
        let [_, a, b, c, d, high, ..] = version.sequence.to_le_bytes();
        head[PLACE_AT..SEQUENCE_AT].copy_from_slice(&place.bits().to_le_bytes());
        head[SEQUENCE_AT..YOUNG_AT].copy_from_slice(&[a, b, c, d]);
        head[YOUNG_AT] = marks | high;
        head[EPOCH_AT] = epoch;
        let value_len = u32::try_from(value.len()).expect("small");
        let lengths = lengths >> KEY_SHIFT << KEY_SHIFT | value_len | REFERENCED;
        let generation = self.generations.of_change(lsn);
        let word = lengths << 8 | u32::from(generation);
        head[GENERATION_AT..].copy_from_slice(&word.to_le_bytes());
        Some(before)
    }
}
