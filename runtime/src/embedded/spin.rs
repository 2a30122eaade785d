//! Watching memory for a while before sleeping: cheaper than a sleep and a wake where the CPU is
//! free, dear where it is not. So the watch ends as soon as giving way to others shows that there are
//! others, and is not tried again for a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Looks between two times of giving way; some microseconds.
const LOOKS: u32 = 256;
/// Giving way for longer than this means that somebody else needs the CPU, not one of ours.
const OTHERS_AFTER: Duration = Duration::from_micros(20);
/// How long nothing is watched then, in microseconds.
const QUIET_US: u64 = 200_000;

/// How long threads watch, and whether they do at the moment. Shared by those that wait for the same.
pub(super) struct Spin {
    limit: Duration,
    clock: Instant,
    quiet_until_us: AtomicU64,
}

impl Spin {
    /// Watches for at most `limit`; zero never does.
    pub(super) fn new(limit: Duration) -> Spin {
        Spin {
            limit,
            clock: Instant::now(),
            quiet_until_us: AtomicU64::new(0),
        }
    }

    /// Looks until something is seen, the time is over or the CPU is wanted; returns whether something was seen.
    #[inline]
    pub(super) fn watch(&self, mut look: impl FnMut() -> bool) -> bool {
        if look() {
            return true;
        }
        if self.limit.is_zero() {
            return false;
        }
        let began = self.clock.elapsed();
        if micros(began) < self.quiet_until_us.load(Ordering::Relaxed) {
            return false;
        }
        loop {
            for _ in 0..LOOKS {
                if look() {
                    return true;
                }
                std::hint::spin_loop();
            }
            let before = self.clock.elapsed();
            if before - began >= self.limit {
                return false;
            }
            std::thread::yield_now();
            let after = self.clock.elapsed();
            if after - before > OTHERS_AFTER {
                self.quiet_until_us
                    .store(micros(after) + QUIET_US, Ordering::Relaxed);
                return look();
            }
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("half a million years")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_seen_and_what_never_comes_is_given_up() {
        for limit in [Duration::ZERO, Duration::from_micros(50)] {
            let spin = Spin::new(limit);
            assert!(spin.watch(|| true));
            assert!(!spin.watch(|| false));
        }
    }

    #[test]
    fn nothing_is_watched_while_the_cpu_is_wanted() {
        let spin = Spin::new(Duration::from_secs(3600));
        spin.quiet_until_us.store(u64::MAX, Ordering::Relaxed);
        let mut looks = 0;
        let seen = spin.watch(|| {
            looks += 1;
            false
        });
        assert_eq!((seen, looks), (false, 1));
    }
}
