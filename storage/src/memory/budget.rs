//! How much memory the index and the cached values of a store may take together.
//!
//! The index cannot leave, so the values give way to it. When it has taken all but what values on
//! their way to the disk need, no new key is taken any more; everything else goes on.

use crate::format::record::KEY_BYTES_MAX;
use crate::memory::cache::cells::cell_bytes;

/// Bounds of one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Most that the cells of cached values may take, in bytes.
    pub cache_bytes_max: usize,
    /// Most that index and values may take together beside `cells_bytes_min`, in bytes.
    pub memory_bytes_max: usize,
    /// What cells may take in any case, in bytes: [`Budget::cells_bytes_min`]. Who bounds the
    /// memory counts it apart, because an index that has outgrown what is left to it takes nothing
    /// of it.
    pub cells_bytes_min: usize,
}

/// Beside an eighth of it, what of the memory the index leaves to values.
const RESERVE_BYTES: usize = 2 << 20;

impl Budget {
    /// A bound on values alone.
    #[must_use]
    pub fn of_cache(cache_bytes_max: usize) -> Self {
        Budget {
            cache_bytes_max,
            memory_bytes_max: usize::MAX,
            cells_bytes_min: 0,
        }
    }

    /// What operations need to go on when the index has taken all the rest. Half of it may be full
    /// between two turns: of the two keys of an operation, one waits for the other. The other half
    /// is for the values that come in a turn. The first value finds room, whatever its length.
    #[must_use]
    pub fn cells_bytes_min(value_bytes_max: usize) -> usize {
        4 * cell_bytes(KEY_BYTES_MAX, value_bytes_max, true) + RESERVE_BYTES
    }

    /// Most that cells may take beside an index of so many bytes: less than what is left, because
    /// pages have free room.
    #[inline]
    #[must_use]
    pub(crate) fn cells(&self, index_bytes: usize) -> usize {
        let left = self.memory_bytes_max.saturating_sub(index_bytes);
        self.cache_bytes_max
            .min((left - left / 8).saturating_add(self.cells_bytes_min / 2))
            .max(self.cells_bytes_min / 2)
    }

    /// How far the index may grow, in bytes.
    #[inline]
    #[must_use]
    pub fn index_bytes_max(&self) -> usize {
        let reserve = self.memory_bytes_max / 8 + RESERVE_BYTES;
        self.memory_bytes_max.saturating_sub(reserve)
    }

    /// The bounds beside an index of so many bytes and the tables that lead to cells.
    #[must_use]
    pub(crate) fn bounds(&self, index_bytes: usize) -> Bounds {
        if self.memory_bytes_max == usize::MAX {
            return Bounds::default();
        }
        let left = self.memory_bytes_max.saturating_sub(index_bytes) + self.cells_bytes_min;
        let cells = self.cells(index_bytes);
        let spare = (cells / 8 + self.cells_bytes_min / 2).min(left.saturating_sub(cells) / 2);
        Bounds {
            cells_in_a_turn: cells + (cells / 16).max(self.cells_bytes_min / 2),
            held: cells + spare,
            held_in_a_turn: left,
        }
    }
}

/// What cells may take for now, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Cells beyond this are waited for to leave before values grow further.
    pub(crate) cells_in_a_turn: usize,
    /// More than this, free cells of pages included, is not to be held for long.
    pub(crate) held: usize,
    /// While more is held, values do not grow.
    pub(crate) held_in_a_turn: usize,
}

impl Default for Bounds {
    /// None.
    fn default() -> Self {
        Bounds {
            cells_in_a_turn: usize::MAX,
            held: usize::MAX,
            held_in_a_turn: usize::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_give_way_to_the_index_and_the_index_ends_before_the_memory() {
        const MIB: usize = 1 << 20;
        let budget = Budget {
            cache_bytes_max: 40 * MIB,
            memory_bytes_max: 60 * MIB,
            cells_bytes_min: 4 * MIB,
        };
        assert_eq!(budget.cells(MIB), 40 * MIB);
        let mut before = usize::MAX;
        for index_bytes in (0..=80 * MIB).step_by(MIB / 2) {
            let (cells, bounds) = (budget.cells(index_bytes), budget.bounds(index_bytes));
            assert!(cells <= before && cells >= 2 * MIB);
            assert!(bounds.cells_in_a_turn >= cells + 2 * MIB);
            assert!(bounds.held > cells && bounds.held < bounds.held_in_a_turn);
            // An index that others have left too little to takes nothing from what cells may take
            // in any case.
            let most = bounds.cells_in_a_turn.max(bounds.held_in_a_turn);
            assert!(most + index_bytes.min(60 * MIB) <= 64 * MIB);
            before = cells;
        }
        let end = budget.index_bytes_max();
        assert!(end > 48 * MIB && end + 8 * MIB < 60 * MIB);
        assert_eq!(Budget::of_cache(7).cells(usize::MAX / 2), 7);
        assert!(Budget::of_cache(7).index_bytes_max() > 1 << 50);
    }

    #[test]
    fn the_largest_value_finds_room_beside_the_one_that_is_kept() {
        for value_bytes in [1, 1_000, 1 << 20, 16 << 20] {
            let budget = Budget {
                cache_bytes_max: 0,
                memory_bytes_max: 0,
                cells_bytes_min: Budget::cells_bytes_min(value_bytes),
            };
            let largest = cell_bytes(KEY_BYTES_MAX, value_bytes, true);
            assert!(budget.cells(1 << 30) >= 2 * largest);
            // A read comes with the blocks around the part.
            let read = largest.next_multiple_of(4096) + 2 * 4096;
            assert!(budget.bounds(1 << 30).cells_in_a_turn - budget.cells(1 << 30) >= read);
        }
    }
}
