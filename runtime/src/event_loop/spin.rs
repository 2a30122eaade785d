//! Watching memory for a while before sleeping: cheaper than a sleep and a wake where the CPU is
//! free, dear where it is not. A watch gives way to others again and again, and ends at once when
//! that shows that somebody else wants the CPU. Nothing is watched for a while then, and for twice
//! as long each time that it shows again: a thread that burns its share in vain waits for its next
//! one when its work comes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::system;

/// Looks between two times of giving way; some microseconds.
const PROBES: u32 = 256;
/// Giving way for longer than this means that somebody else needs the CPU, not one of ours: a
/// helper of the kernel that ends a write is gone sooner.
const OTHERS_AFTER_US: u64 = 20;
/// How long nothing is watched then.
const QUIET_US_MIN: u64 = 200_000;
/// The same, if it has shown again and again.
const QUIET_US_MAX: u64 = 6_400_000;

/// How long threads watch, and whether they do at the moment. Shared by those that wait for the
/// same.
pub(crate) struct Spin {
    limit: Duration,
    clock: Instant,
    quiet_until_us: AtomicU64,
    /// How long the next quiet time is.
    quiet_us: AtomicU64,
}

/// What was measured of one time of giving way.
#[derive(Clone, Copy, Debug)]
struct GaveWay {
    /// How long it took.
    us: u64,
    /// How often another thread ran in place of this one, if the system tells. Time without such a
    /// switch was taken by an interrupt or by another machine on the same hardware, and sleeping
    /// would not help.
    switches: Option<u64>,
}

/// Whether somebody else wants the CPU.
fn is_wanted(gave_way: GaveWay) -> bool {
    gave_way.us > OTHERS_AFTER_US && gave_way.switches != Some(0)
}

/// How long the quiet time after one of `quiet_us` is, if the CPU is still wanted behind that.
fn longer_quiet(quiet_us: u64) -> u64 {
    quiet_us.saturating_mul(2).min(QUIET_US_MAX)
}

impl Spin {
    /// Watches for at most `limit`; zero never does.
    pub(crate) fn new(limit: Duration) -> Spin {
        Spin {
            limit,
            clock: Instant::now(),
            quiet_until_us: AtomicU64::new(0),
            quiet_us: AtomicU64::new(QUIET_US_MIN),
        }
    }

    /// How long a watch may be.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Whether a watch may begin now.
    #[inline]
    pub(crate) fn may_begin(&self) -> bool {
        !self.limit.is_zero() && self.now_us() >= self.quiet_until_us.load(Ordering::Relaxed)
    }

    /// Lets others have the CPU; whether the watch may go on.
    pub(crate) fn give_way(&self) -> bool {
        let switches = system::involuntary_switches();
        let before_us = self.now_us();
        std::thread::yield_now();
        let us = self.now_us() - before_us;
        // Asked only where it matters.
        let switches = (us > OTHERS_AFTER_US)
            .then(|| Some(system::involuntary_switches()? - switches?))
            .flatten();
        self.note(GaveWay { us, switches })
    }

    /// Takes in what giving way has shown; whether the watch may go on.
    fn note(&self, gave_way: GaveWay) -> bool {
        if !is_wanted(gave_way) {
            return true;
        }
        let quiet_us = self.quiet_us.load(Ordering::Relaxed);
        self.quiet_us
            .store(longer_quiet(quiet_us), Ordering::Relaxed);
        self.quiet_until_us
            .store(self.now_us() + quiet_us, Ordering::Relaxed);
        false
    }

    /// A watch has ended, and nobody else wanted the CPU in it.
    pub(crate) fn was_alone(&self) {
        if self.quiet_us.load(Ordering::Relaxed) != QUIET_US_MIN {
            self.quiet_us.store(QUIET_US_MIN, Ordering::Relaxed);
        }
    }

    /// Looks until something is seen, the time is over or the CPU is wanted; returns whether
    /// something was seen.
    #[inline]
    pub(crate) fn watch(&self, mut probe: impl FnMut() -> bool) -> bool {
        if probe() {
            return true;
        }
        if !self.may_begin() {
            return false;
        }
        let began = Instant::now();
        loop {
            for _ in 0..PROBES {
                if probe() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if began.elapsed() >= self.limit {
                self.was_alone();
                return false;
            }
            if !self.give_way() {
                return probe();
            }
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_micros()).expect("half a million years")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gave_way(us: u64, switches: Option<u64>) -> GaveWay {
        GaveWay { us, switches }
    }

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
        let mut probes = 0;
        let seen = spin.watch(|| {
            probes += 1;
            false
        });
        assert_eq!((seen, probes), (false, 1));
    }

    #[test]
    fn the_cpu_is_wanted_where_another_thread_ran_for_long() {
        assert!(is_wanted(gave_way(3_000, Some(1))));
        assert!(is_wanted(gave_way(3_000, None)), "nobody says otherwise");
        assert!(!is_wanted(gave_way(3_000, Some(0))), "nobody else ran");
        assert!(!is_wanted(gave_way(5, Some(1))), "a helper of the kernel");
        assert!(!is_wanted(gave_way(OTHERS_AFTER_US, Some(1))));
    }

    #[test]
    fn each_time_in_vain_is_followed_by_a_longer_quiet_until_a_watch_was_alone() {
        let spin = Spin::new(Duration::from_secs(3600));
        let mut quiet = Vec::new();
        for _ in 0..7 {
            quiet.push(spin.quiet_us.load(Ordering::Relaxed) / 1000);
            assert!(!spin.note(gave_way(1_000, Some(1))));
            assert!(!spin.may_begin());
        }
        assert_eq!(quiet, [200, 400, 800, 1600, 3200, 6400, 6400]);
        spin.was_alone();
        assert_eq!(spin.quiet_us.load(Ordering::Relaxed), QUIET_US_MIN);
        assert!(spin.note(gave_way(1, Some(0))));
    }
}
