//! By how much the time of another node's store is ahead of the clock here, as the frames of a link
//! tell it.
//!
//! A frame that was long on its way makes the other clock look behind, and nothing makes it look
//! ahead: so the highest difference of the last seconds counts. It is short of the truth by the
//! time that the fastest frame took.

/// The offset is the highest one of the last one to two windows of this length.
const WINDOW_US: u64 = 10_000_000;

/// The difference between the clocks of the two nodes of a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockOffset {
    since_us: u64,
    highest_ms: Option<i64>,
    /// The highest offset of the window before.
    before_ms: Option<i64>,
}

impl ClockOffset {
    /// A frame came that tells `there_ms`; the clocks here show `now_us`, which never steps back,
    /// and `here_ms`.
    pub fn note(&mut self, now_us: u64, here_ms: u64, there_ms: u64) {
        if now_us.saturating_sub(self.since_us) >= WINDOW_US {
            self.since_us = now_us;
            self.before_ms = self.highest_ms.take();
        }
        let ahead_ms = there_ms.checked_signed_diff(here_ms);
        self.highest_ms = self.highest_ms.max(ahead_ms);
    }

    /// By how many milliseconds the other one is ahead; negative if it is behind.
    #[must_use]
    pub fn ahead_ms(&self) -> Option<i64> {
        self.highest_ms.max(self.before_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_that_was_least_late_gives_the_offset_and_is_forgotten_in_time() {
        let mut offset = ClockOffset::default();
        assert_eq!(offset.ahead_ms(), None);
        // Ahead by 700 ms, and each frame up to 90 ms on its way.
        for (at, late_ms) in [(1, 90), (2, 1), (3, 40)] {
            let here_ms = at * 1_000;
            offset.note(here_ms * 1_000, here_ms, here_ms + 700 - late_ms);
        }
        assert_eq!(offset.ahead_ms(), Some(699));
        for at in 10..40 {
            offset.note(at * 1_000_000, at * 1_000, at * 1_000 - 50);
        }
        assert_eq!(offset.ahead_ms(), Some(-50));
    }

    #[test]
    fn what_no_clock_shows_is_no_offset() {
        let mut offset = ClockOffset::default();
        offset.note(1, 5, u64::MAX);
        assert_eq!(offset.ahead_ms(), None);
        offset.note(2, 0, i64::MAX as u64);
        assert_eq!(offset.ahead_ms(), Some(i64::MAX));
    }
}
