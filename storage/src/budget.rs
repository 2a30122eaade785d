//! How much memory the index and the cached values of a store may take together.
//!
//! The index cannot leave, so the values give way to it. When it has taken all but what values on
//! their way to the disk need, no new key is taken any more; everything else goes on.

/// Bounds of one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Most that the cells of cached values may take, in bytes.
    pub cache_bytes_max: usize,
    /// Most that index and values may take together, in bytes.
    pub memory_bytes_max: usize,
}

/// Beside an eighth of it, what of the memory is left to values: pages with room in them, and cells
/// that cannot leave yet because they are on their way to the disk.
const RESERVE_BYTES: usize = 2 << 20;

impl Budget {
    /// A bound on values alone.
    #[must_use]
    pub fn of_cache(cache_bytes_max: usize) -> Self {
        Budget {
            cache_bytes_max,
            memory_bytes_max: usize::MAX,
        }
    }

    /// Most that cells may take beside an index of so many bytes: less than what is left, because
    /// pages have free room.
    #[inline]
    #[must_use]
    pub(crate) fn cells(&self, index_bytes: usize) -> usize {
        let left = self.memory_bytes_max.saturating_sub(index_bytes);
        self.cache_bytes_max
            .min(left.saturating_sub(left / 8 + RESERVE_BYTES / 2))
    }

    /// How far the index may grow, in bytes.
    #[inline]
    #[must_use]
    pub fn index_bytes_max(&self) -> usize {
        let reserve = self.memory_bytes_max / 8 + RESERVE_BYTES;
        self.memory_bytes_max.saturating_sub(reserve)
    }

    /// Cells beyond this are waited for to leave before values grow further.
    #[inline]
    #[must_use]
    pub(crate) fn cells_in_a_turn(&self, index_bytes: usize) -> usize {
        let cells = self.cells(index_bytes);
        match self.memory_bytes_max {
            usize::MAX => usize::MAX,
            _ => cells + cells / 16 + RESERVE_BYTES / 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_give_way_to_the_index_and_the_index_ends_before_the_memory() {
        let budget = Budget {
            cache_bytes_max: 40 << 20,
            memory_bytes_max: 64 << 20,
        };
        assert_eq!(budget.cells(1 << 20), 40 << 20);
        let mut before = usize::MAX;
        for index_bytes in (0..=80 << 20).step_by(1 << 19) {
            let cells = budget.cells(index_bytes);
            assert!(cells <= before && (cells == 0 || cells + index_bytes < 64 << 20));
            before = cells;
        }
        let end = budget.index_bytes_max();
        assert!(end > 48 << 20 && end + (8 << 20) < 64 << 20);
        assert_eq!(Budget::of_cache(7).cells(usize::MAX / 2), 7);
        assert!(Budget::of_cache(7).index_bytes_max() > 1 << 50);
    }
}
