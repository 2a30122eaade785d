//! The wall clock of one core, looked at now and then.
//!
//! Shards stamp and expire by a time of their own that follows the monotonic clock and only drifts
//! towards this one, so a look that is a second old is as good as a new one, and cheaper.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

/// How long a look at the wall clock is good for.
const READING_US: u64 = 1_000_000;
/// A look between two of the monotonic clock that are closer together is good at once.
const APART_US: u64 = 20;
/// How often a look is tried: a thread that loses its core in between would see a wall clock that
/// is ahead.
const READINGS_MAX: usize = 4;

/// The wall clock, carried on by the monotonic one between two looks.
#[derive(Default)]
pub(crate) struct WallClock {
    /// The last look.
    seen: Cell<Option<Seen>>,
}

/// What both clocks showed at the same time, in microseconds.
#[derive(Clone, Copy)]
struct Seen {
    us: u64,
    unix_us: u64,
}

impl WallClock {
    /// Unix milliseconds when the monotonic clock, which `clock` reads, shows `now_us`.
    #[inline]
    pub(crate) fn at(&self, now_us: u64, clock: impl Fn() -> u64) -> u64 {
        let seen = match self.seen.get() {
            Some(seen) if now_us.saturating_sub(seen.us) < READING_US => seen,
            _ => self.read_anew(clock),
        };
        // A look may be a little later than the time that is asked for.
        let passed_us = now_us.cast_signed() - seen.us.cast_signed();
        seen.unix_us.saturating_add_signed(passed_us) / 1_000
    }

    #[cold]
    fn read_anew(&self, clock: impl Fn() -> u64) -> Seen {
        let mut best: Option<(u64, Seen)> = None;
        for _ in 0..READINGS_MAX {
            let (us, unix_us) = (clock(), unix_us());
            let apart_us = clock().saturating_sub(us);
            if best.is_none_or(|(best_us, _)| apart_us < best_us) {
                best = Some((apart_us, Seen { us, unix_us }));
            }
            if apart_us <= APART_US {
                break;
            }
        }
        let (_, seen) = best.expect("it looks at least once");
        self.seen.set(Some(seen));
        seen
    }
}

/// The wall clock in unix milliseconds; 0 if it stands before 1970.
pub(crate) fn unix_ms() -> u64 {
    unix_us() / 1_000
}

/// The same in microseconds.
fn unix_us() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_between_two_readings_and_then_reads_again() {
        let (clock, readings) = (WallClock::default(), Cell::new(0));
        let at = |now_us: u64| {
            clock.at(now_us, || {
                readings.set(readings.get() + 1);
                now_us
            })
        };
        let begin = at(7_000);
        assert!(begin > 1_600_000_000_000, "the real one");
        let seen = clock.seen.get().expect("it has looked");
        assert_eq!(at(7_000 + 999_999), (seen.unix_us + 999_999) / 1_000);
        assert_eq!(
            readings.get(),
            2,
            "one look, between two of the other clock"
        );
        assert!(at(1_007_000) >= begin);
        assert_eq!(readings.get(), 4);
    }

    #[test]
    fn a_reading_in_whose_middle_the_thread_stood_still_is_tried_again() {
        let clock = WallClock::default();
        // Each look takes a second, but for the third one.
        let times = Cell::new(0_u64);
        let read = || {
            times.set(times.get() + 1);
            match times.get() {
                number @ 1..=4 => number * 1_000_000,
                number => 5_000_000 + number,
            }
        };
        clock.at(0, read);
        let seen = clock.seen.get().expect("it has looked");
        assert_eq!((seen.us, times.get()), (5_000_005, 6));
    }
}
