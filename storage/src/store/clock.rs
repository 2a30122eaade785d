//! The time of a store: what records are stamped with and expiries are compared with.
//!
//! It begins at the later of the wall clock and the newest time in the log, so it never runs
//! backwards past what was logged. From then on it follows the monotonic clock, and drifts towards
//! the wall clock by at most 1/[`SLEW`] of the time that passes, and a millisecond: a wall clock
//! that steps, forwards or back, makes no key expire at once and keeps none alive; a lifetime is
//! wrong by at most that. A start takes a wall clock that is ahead of the log, and none that is
//! behind.
//!
//! The wall clock is told in whole milliseconds and the time is kept in microseconds. It is made up
//! to the wall clock wherever that shows more, so looks at different moments of a millisecond find
//! the wall clock's microseconds: the time is not behind it by more than a few of them.
//!
//! What is written because a key had expired carries a time at or after that expiry, so no restart
//! undoes it. A mere read leaves no trace: if the wall clock was set back while the server was
//! down, a key that expired since the last record shows again until that time has passed once more.

/// The newest time that a record can carry, in unix milliseconds: 48 bits.
pub const TIME_MS_MAX: u64 = (1 << 48) - 1;
/// An n-th of the time that passes is what the wall clock can shorten or lengthen it by.
pub const SLEW: u64 = 64;
/// A wall clock that is further behind than this, in milliseconds, is told, and absolute expiries
/// that it calls future and the store past are refused.
pub const REPORTED_BEHIND_MS: u64 = 60_000;
/// Time whose share is kept for later, in microseconds: so long a clock need not have been right to
/// make up a millisecond at once.
const KEPT_US: u64 = 1_000 * SLEW;
/// The wall clock is told in whole milliseconds: it shows this much more than was told, at most.
const WALL_ROUNDING_US: u64 = 999;

/// The time of one store.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    time_us: u64,
    /// The monotonic clock when `time_us` was right; none before the first look.
    seen_us: Option<u64>,
    /// Time that has passed and whose share was not used to follow the wall clock.
    unused_us: u64,
    wall_ms: u64,
    /// The newest time in the log at the beginning.
    found_ms: u64,
}

impl Clock {
    /// A clock that never shows less than `newest_ms`, the newest time in the log.
    #[must_use]
    pub fn new(newest_ms: u64) -> Self {
        Clock {
            time_us: newest_ms.min(TIME_MS_MAX) * 1_000,
            seen_us: None,
            unused_us: KEPT_US,
            wall_ms: 0,
            found_ms: newest_ms,
        }
    }

    /// The newest time that the log carried at the beginning, in unix milliseconds.
    #[must_use]
    pub fn found_ms(&self) -> u64 {
        self.found_ms
    }

    /// Looks at both clocks: `now_us` never steps back, `unix_ms` is the wall clock and may do what
    /// it likes.
    #[inline]
    pub fn observe(&mut self, now_us: u64, unix_ms: u64) {
        if self.seen_us != Some(now_us) {
            self.advance(now_us, unix_ms);
        }
    }

    fn advance(&mut self, now_us: u64, unix_ms: u64) {
        self.wall_ms = unix_ms.min(TIME_MS_MAX);
        let wall_us = self.wall_ms * 1_000;
        let Some(seen_us) = self.seen_us.replace(now_us) else {
            self.time_us = self.time_us.max(wall_us);
            return;
        };
        let elapsed_us = now_us.saturating_sub(seen_us);
        self.time_us = self.time_us.saturating_add(elapsed_us);
        self.unused_us = self
            .unused_us
            .saturating_add(elapsed_us)
            .min(KEPT_US.max(elapsed_us));
        let behind_us = wall_us.saturating_sub(self.time_us);
        let ahead_us = self.time_us.saturating_sub(wall_us + WALL_ROUNDING_US);
        let slew_us = behind_us.max(ahead_us).min(self.unused_us / SLEW);
        if behind_us > 0 {
            self.time_us += slew_us;
            self.unused_us -= slew_us * SLEW;
        } else if ahead_us > 0 {
            // Never back.
            let slew_us = slew_us.min(elapsed_us);
            self.time_us -= slew_us;
            self.unused_us -= slew_us * SLEW;
        }
        self.time_us = self.time_us.min(TIME_MS_MAX * 1_000);
    }

    /// Shows no less than `time_ms` from now on: a record of that time came from elsewhere.
    pub(crate) fn carry(&mut self, time_ms: u64) {
        self.time_us = self.time_us.max(time_ms.min(TIME_MS_MAX) * 1_000);
    }

    /// Unix microseconds, at most those of [`TIME_MS_MAX`].
    #[inline]
    #[must_use]
    pub fn time_us(&self) -> u64 {
        self.time_us
    }

    /// Unix milliseconds, at most [`TIME_MS_MAX`].
    #[inline]
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.time_us / 1_000
    }

    /// The next whole millisecond, or this one: from it on lifetimes count, so none is shorter than
    /// was asked for, and what is left of one never more.
    #[inline]
    #[must_use]
    pub fn next_ms(&self) -> u64 {
        self.time_us.div_ceil(1_000)
    }

    /// By how much the wall clock was behind this one at the last look that counted; 0 if it was
    /// not, or before the first look.
    #[must_use]
    pub fn behind_ms(&self) -> u64 {
        let seen = self.seen_us.map(|_| self.wall_ms);
        seen.map_or(0, |wall_ms| self.time_ms().saturating_sub(wall_ms))
    }

    /// What the wall clock showed at the last look that counted; 0 before the first.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        self.wall_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    /// Looks every 7 ms for `for_ms`, with a wall clock that is right but for `off_ms`.
    fn pass(clock: &mut Clock, from_ms: u64, for_ms: u64, off_ms: i64) {
        for passed_ms in (0..=for_ms).step_by(7) {
            let now_ms = from_ms + passed_ms;
            let before = clock.time_ms();
            clock.observe(now_ms * 1_000, now_ms.saturating_add_signed(off_ms));
            assert!(clock.time_ms() >= before, "time runs backwards");
        }
    }

    #[test]
    fn it_begins_at_the_later_of_the_log_and_the_wall() {
        for (log_ms, wall_ms) in [(5, 9), (9, 5), (0, 0)] {
            let mut clock = Clock::new(log_ms);
            clock.observe(1, wall_ms);
            assert_eq!(clock.time_ms(), log_ms.max(wall_ms));
        }
    }

    #[test]
    fn a_step_of_the_wall_clock_is_followed_by_a_sixty_fourth_of_the_time_that_passes() {
        for (off_ms, expected) in [
            (i64::try_from(HOUR_MS).unwrap(), 64_000 + 1_000),
            (-i64::try_from(HOUR_MS).unwrap(), 64_000 - 1_000),
            (0, 64_000),
        ] {
            let start = 10 * HOUR_MS;
            let mut clock = Clock::new(0);
            clock.observe(start * 1_000, start);
            pass(&mut clock, start, 64_000, off_ms);
            let passed = clock.time_ms() - start;
            assert!(passed.abs_diff(expected) <= 10, "{passed} of {expected}");
        }
    }

    #[test]
    fn a_wall_clock_behind_is_reported_by_how_much_as_long_as_it_is() {
        let mut clock = Clock::new(8 * HOUR_MS);
        assert_eq!(clock.behind_ms(), 0, "nobody has looked yet");
        clock.observe(1, HOUR_MS);
        assert_eq!(clock.behind_ms(), 7 * HOUR_MS);
        clock.observe(2_001, 8 * HOUR_MS + 5);
        assert_eq!(clock.behind_ms(), 0);
    }

    #[test]
    fn a_small_difference_is_made_up_and_then_the_wall_is_followed() {
        let start = 10 * HOUR_MS;
        let mut clock = Clock::new(start + 500);
        clock.observe(start * 1_000, start);
        assert_eq!(clock.time_ms(), start + 500);
        pass(&mut clock, start, 64_000, 0);
        assert_eq!(clock.time_ms(), start + 63_994, "it is right again");
    }

    #[test]
    fn time_is_as_exact_as_the_wall_clock_whatever_moments_are_read() {
        // The wall clock is 777 us ahead of whole milliseconds of the monotonic one.
        let wall_us = |now_us: u64| 10 * HOUR_MS * 1_000 + 777 + now_us;
        let mut clock = Clock::new(0);
        let (mut now_us, mut late) = (5, 0);
        for number in 0..20_000_u64 {
            let before_ms = clock.time_ms();
            clock.observe(now_us, wall_us(now_us) / 1_000);
            assert!(clock.time_ms() >= before_ms, "time runs backwards");
            assert!(clock.time_us <= wall_us(now_us), "it is ahead");
            if number >= 1_000 {
                assert!(wall_us(now_us) - clock.time_us <= 20, "it is behind");
                late += u64::from(clock.time_ms() < wall_us(now_us) / 1_000);
            }
            now_us += 37 + number * number % 1_913;
        }
        assert!(late < 400, "{late} looks show an earlier millisecond");
    }

    #[test]
    fn a_lifetime_counts_from_the_end_of_a_millisecond_that_has_begun() {
        let mut clock = Clock::new(0);
        clock.observe(0, 5_000);
        assert_eq!((clock.time_ms(), clock.next_ms()), (5_000, 5_000));
        clock.observe(1, 5_000);
        assert_eq!((clock.time_ms(), clock.next_ms()), (5_000, 5_001));
        clock.observe(1_000, 5_001);
        assert_eq!((clock.time_ms(), clock.next_ms()), (5_001, 5_001));
    }

    #[test]
    fn many_readings_within_a_millisecond_add_up() {
        let mut clock = Clock::new(0);
        for now_us in 0..=10_000 {
            clock.observe(now_us, 1_000 + now_us / 1_000);
        }
        assert_eq!(clock.time_ms(), 1_010);
    }

    #[test]
    fn no_clock_shows_more_than_a_record_can_carry() {
        let mut clock = Clock::new(u64::MAX);
        clock.observe(0, u64::MAX);
        clock.observe(u64::MAX, u64::MAX);
        assert_eq!(clock.time_ms(), TIME_MS_MAX);
    }
}
