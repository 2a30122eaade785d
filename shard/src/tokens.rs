//! When the horizons of tokens are looked at.

/// Between two looks at the horizons, in microseconds.
const CHECK_US: u64 = 1_000_000;
/// The same while a horizon is read, in microseconds.
const SOON_US: u64 = 1_000;

/// When the horizons are looked at next, and where that goes on.
#[derive(Debug, Default)]
pub(crate) struct TokenChore {
    next_us: u64,
    /// The place in the list of the shard's partitions.
    next: usize,
}

impl TokenChore {
    /// Whether the horizons are to be looked at now. Then the next look is due one period later.
    pub(crate) fn begins_check(&mut self, now_us: u64) -> bool {
        let is_due = now_us >= self.next_us;
        if is_due {
            self.next_us = now_us + CHECK_US;
        }
        is_due
    }

    /// A horizon is being read: looks at it as soon as it may be there.
    pub(crate) fn check_soon(&mut self, now_us: u64) {
        self.next_us = now_us + SOON_US;
    }

    /// The place of the next of `count` partitions.
    pub(crate) fn next_of(&mut self, count: usize) -> usize {
        let at = self.next % count;
        self.next = at + 1;
        at
    }

    /// When the horizons are to be looked at next.
    pub(crate) fn next_us(&self) -> u64 {
        self.next_us
    }
}
