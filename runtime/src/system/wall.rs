//! The wall clock of one core, looked at now and then.
//!
//! Shards stamp and expire by a time of their own that follows the monotonic clock and only drifts
//! towards this one, so a look that is a second old is as good as a new one, and cheaper.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

/// How long a look at the wall clock is good for.
const LOOK_US: u64 = 1_000_000;

/// The wall clock, carried on by the monotonic one between two looks.
pub(crate) struct WallClock {
    seen_us: Cell<u64>,
    seen_ms: Cell<u64>,
}

impl WallClock {
    /// A clock that showed `unix_ms` when the monotonic one showed 0.
    pub(crate) fn new(unix_ms: u64) -> WallClock {
        WallClock {
            seen_us: Cell::new(0),
            seen_ms: Cell::new(unix_ms),
        }
    }

    /// Unix milliseconds when the monotonic clock shows `now_us`.
    #[inline]
    pub(crate) fn at(&self, now_us: u64) -> u64 {
        let passed_us = now_us.saturating_sub(self.seen_us.get());
        if passed_us >= LOOK_US {
            self.seen_us.set(now_us);
            self.seen_ms.set(unix_ms());
            return self.seen_ms.get();
        }
        self.seen_ms.get() + passed_us / 1_000
    }
}

/// The wall clock in unix milliseconds; 0 if it stands before 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_between_two_looks_and_then_looks_again() {
        let clock = WallClock::new(5_000);
        assert_eq!(clock.at(0), 5_000);
        assert_eq!(clock.at(999_999), 5_999);
        assert!(clock.at(1_000_000) > 1_600_000_000_000, "the real one");
        assert!(clock.at(1_500_000) > 1_600_000_000_000);
    }
}
