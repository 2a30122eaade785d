//! Decides whether other programs want the CPU of a shard's thread, by what the scheduler counts of
//! the thread. Pure: the counts and the time are given.
//!
//! A thread that wakes on a CPU of its own waits for some microseconds. Beside programs that want
//! the same CPU each wake waits for a slice of theirs, so the time that the thread waits for a
//! slice of its own tells the two apart. Once the thread has a short time slice it goes before
//! those programs and waits no more; so quiet counts prove nothing for a while, and whether the
//! machine has more runnable threads than CPUs counts, too.

use crate::system::schedstat::ThreadTimes;

/// Slices that make a window, so that one late wake decides nothing.
const SLICES_MIN: u64 = 4;
/// A wait of this length makes a window of any number of slices.
const WAITED_US_CERTAIN: u64 = 2_000;
/// How long a thread waits for each slice, at least, where other programs want its CPU.
const WAIT_US_MIN: u64 = 100;
/// The share of its time, in percent, from which on a thread has work all the time.
const SATURATED_PERCENT: u64 = 90;
/// How long nobody must have wanted the CPU before it counts as free. The time doubles each time
/// that the CPU is wanted again soon.
const CALM_US_MIN: u64 = 1_000_000;
const CALM_US_MAX: u64 = 16_000_000;
/// A thread that has waited for so long is not led back soon.
const STALL_US: u64 = 100_000;

/// Whether a thread has its CPU for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cpu {
    #[default]
    Free,
    Contended,
}

/// The time slice that a thread asks the scheduler for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TimeSlice {
    /// Runs for long, and gives way to helpers of the kernel at once.
    #[default]
    Long,
    /// Goes before programs with ordinary slices as soon as it wakes.
    Short,
}

/// How a thread is to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Regime {
    pub(crate) cpu: Cpu,
    pub(crate) slice: TimeSlice,
}

/// The counts of a thread at a moment. All of them only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) at_us: u64,
    pub(crate) times: ThreadTimes,
    /// Slices that ended although the thread wanted to go on.
    pub(crate) preempted: u64,
}

/// What is known of the CPU of one thread.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    regime: Regime,
    /// The begin of the window.
    before: Option<Reading>,
    /// Since when nobody wants the CPU, while it counts as contended.
    calm_since_us: u64,
    calm_us: u64,
    /// When the CPU counted as free last.
    freed_us: u64,
}

impl Contention {
    /// Takes in what the scheduler has counted until now. `is_machine_full` is asked only before a
    /// CPU counts as free again.
    pub(crate) fn sample(
        &mut self,
        now: Reading,
        is_machine_full: impl FnOnce() -> bool,
    ) -> Regime {
        let Some(before) = self.before else {
            self.before = Some(now);
            return self.regime;
        };
        let slices = now.times.slices.saturating_sub(before.times.slices);
        let waited_us = now.times.waited_us.saturating_sub(before.times.waited_us);
        if slices < SLICES_MIN && waited_us < WAITED_US_CERTAIN {
            return self.regime;
        }
        self.before = Some(now);
        let us = now.at_us.saturating_sub(before.at_us);
        let is_wanted = waited_us >= WAIT_US_MIN * slices || waited_us * 2 >= us;
        self.regime.cpu = match (self.regime.cpu, is_wanted) {
            (Cpu::Free, false) => Cpu::Free,
            (Cpu::Free, true) => {
                let was_soon = now.at_us < self.freed_us.saturating_add(self.calm_us);
                self.calm_us = match was_soon {
                    true => (2 * self.calm_us).min(CALM_US_MAX),
                    false => CALM_US_MIN,
                };
                self.wanted(now.at_us, waited_us)
            }
            (Cpu::Contended, true) => self.wanted(now.at_us, waited_us),
            (Cpu::Contended, false) if now.at_us < self.calm_since_us + self.calm_us => {
                Cpu::Contended
            }
            (Cpu::Contended, false) if is_machine_full() => {
                self.calm_since_us = now.at_us;
                Cpu::Contended
            }
            (Cpu::Contended, false) => {
                self.freed_us = now.at_us;
                Cpu::Free
            }
        };
        let is_saturated = Self::is_saturated(before, now);
        self.regime.slice = match self.regime.cpu {
            Cpu::Contended if !is_saturated => TimeSlice::Short,
            _ => TimeSlice::Long,
        };
        self.regime
    }

    /// Notes at `now_us` that the thread may run on other CPUs, because it seemed to wait for its
    /// own: the CPU counts as contended, so that the usual calm time leads the thread back.
    pub(crate) fn freed(&mut self, now_us: u64) {
        self.regime.cpu = self.wanted(now_us, STALL_US);
    }

    /// Whether a thread had work all the time, and was preempted rather than asleep: short slices
    /// would cost it a switch each, and nobody waits for its wakes.
    fn is_saturated(before: Reading, now: Reading) -> bool {
        let us = now.at_us.saturating_sub(before.at_us);
        let since = |of: fn(Reading) -> u64| of(now).saturating_sub(of(before));
        let worked_us = since(|it| it.times.ran_us + it.times.waited_us);
        since(|it| it.preempted) * 2 > since(|it| it.times.slices)
            && worked_us * 100 >= us * SATURATED_PERCENT
    }

    /// Others want the CPU, and the thread has waited for it.
    fn wanted(&mut self, now_us: u64, waited_us: u64) -> Cpu {
        self.calm_since_us = now_us;
        if waited_us >= STALL_US {
            self.calm_us = CALM_US_MAX;
        }
        Cpu::Contended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that is sampled window after window.
    #[derive(Default)]
    struct Thread {
        now: Reading,
        contention: Contention,
    }

    /// What happens to a thread in a window.
    #[derive(Clone, Copy)]
    struct Window {
        us: u64,
        slices: u64,
        ran_us: u64,
        waited_us: u64,
        preempted: u64,
        is_machine_full: bool,
    }

    /// A client asks each 2 ms, beside nobody.
    const QUIET: Window = Window {
        us: 10_000,
        slices: 10,
        ran_us: 700,
        waited_us: 60,
        preempted: 0,
        is_machine_full: false,
    };
    /// The same beside programs that want the CPU.
    const BESIDE_OTHERS: Window = Window {
        waited_us: 3_600,
        preempted: 3,
        is_machine_full: true,
        ..QUIET
    };
    /// The same once the thread has a short slice.
    const SERVED_AT_ONCE: Window = Window {
        is_machine_full: true,
        ..QUIET
    };
    /// Work all the time, beside programs that want the CPU.
    const SATURATED: Window = Window {
        us: 100_000,
        slices: 5,
        ran_us: 30_000,
        waited_us: 60_000,
        preempted: 5,
        is_machine_full: true,
    };
    const FREE: Regime = Regime {
        cpu: Cpu::Free,
        slice: TimeSlice::Long,
    };
    const ALERT: Regime = Regime {
        cpu: Cpu::Contended,
        slice: TimeSlice::Short,
    };
    const BUSY: Regime = Regime {
        cpu: Cpu::Contended,
        slice: TimeSlice::Long,
    };

    impl Thread {
        fn sample(&mut self) -> Regime {
            self.contention.sample(self.now, || false)
        }

        fn pass(&mut self, window: Window) -> Regime {
            self.now.at_us += window.us;
            self.now.times.slices += window.slices;
            self.now.times.ran_us += window.ran_us;
            self.now.times.waited_us += window.waited_us;
            self.now.preempted += window.preempted;
            self.contention.sample(self.now, || window.is_machine_full)
        }

        /// How long the thread stays in the regime of now, at most `us`.
        fn stays_us(&mut self, window: Window, us: u64) -> u64 {
            let (begun, regime) = (self.now.at_us, self.contention.regime);
            while self.now.at_us - begun < us && self.pass(window) == regime {}
            self.now.at_us - begun
        }
    }

    fn began() -> Thread {
        let mut thread = Thread::default();
        assert_eq!(thread.sample(), FREE);
        thread
    }

    #[test]
    fn the_regime_follows_from_the_waits_and_the_preemptions_of_a_window() {
        let slices = |slices, waited_us, preempted| Window {
            us: 1_000_000,
            slices,
            ran_us: 0,
            waited_us,
            preempted,
            is_machine_full: true,
        };
        let saturated = |preempted: u64, worked_us: u64| Window {
            ran_us: worked_us - 500_000,
            ..slices(10, 500_000, preempted)
        };
        for (window, regime) in [
            (QUIET, FREE),
            (BESIDE_OTHERS, ALERT),
            (SATURATED, BUSY),
            // The mean wait for a slice decides.
            (slices(10, 999, 0), FREE),
            (slices(10, 1_000, 0), ALERT),
            // Few slices make no window, unless one waited for long.
            (slices(3, 1_999, 0), FREE),
            (slices(1, 2_000, 0), ALERT),
            // A thread has work all the time that is preempted more often than asleep, and runs or
            // waits nine tenths of the time.
            (saturated(6, 900_000), BUSY),
            (saturated(5, 900_000), ALERT),
            (saturated(6, 899_999), ALERT),
            // Many short waits count by their share of the time.
            (slices(10_000, 499_999, 0), FREE),
            (slices(10_000, 500_000, 0), ALERT),
        ] {
            assert_eq!(began().pass(window), regime);
        }
    }

    #[test]
    fn a_window_of_few_slices_goes_on_until_it_has_enough() {
        let mut thread = began();
        let one = Window {
            slices: 1,
            waited_us: 150,
            ..QUIET
        };
        for _ in 1..SLICES_MIN {
            assert_eq!(thread.pass(one), FREE);
        }
        assert_eq!(thread.pass(one), ALERT);
    }

    #[test]
    fn a_contended_cpu_counts_as_free_after_a_calm_time_on_a_machine_with_cpus_to_spare() {
        let mut thread = began();
        assert_eq!(thread.pass(BESIDE_OTHERS), ALERT);
        assert_eq!(thread.stays_us(SERVED_AT_ONCE, 500_000_000), 500_000_000);
        let us = thread.stays_us(QUIET, 10_000_000);
        assert!(us <= CALM_US_MIN, "{us}");
        assert_eq!(thread.contention.regime, FREE);
        // One wait begins the calm time anew.
        let mut thread = began();
        thread.pass(BESIDE_OTHERS);
        assert_eq!(thread.stays_us(QUIET, 900_000), 900_000);
        assert_eq!(thread.pass(BESIDE_OTHERS), ALERT);
        assert_eq!(thread.stays_us(QUIET, 10_000_000), CALM_US_MIN);
    }

    #[test]
    fn a_cpu_that_is_wanted_again_soon_counts_as_free_ever_more_rarely() {
        let mut thread = began();
        let mut calm_ms = Vec::new();
        for _ in 0..8 {
            assert_eq!(thread.pass(BESIDE_OTHERS), ALERT);
            calm_ms.push(thread.stays_us(QUIET, 2 * CALM_US_MAX) / 1_000);
        }
        let doubling = [1_000, 2_000, 4_000, 8_000, 16_000, 16_000, 16_000, 16_000];
        assert_eq!(calm_ms, doubling);
        assert_eq!(thread.stays_us(QUIET, CALM_US_MAX), CALM_US_MAX);
        thread.pass(BESIDE_OTHERS);
        assert_eq!(thread.stays_us(QUIET, CALM_US_MAX), CALM_US_MIN);
    }

    #[test]
    fn a_thread_that_has_stalled_is_not_led_back_soon() {
        let stall = Window {
            waited_us: STALL_US,
            ..QUIET
        };
        for windows in [&[stall][..], &[BESIDE_OTHERS, stall]] {
            let mut thread = began();
            for window in windows {
                assert_eq!(thread.pass(*window).cpu, Cpu::Contended);
            }
            assert_eq!(thread.stays_us(QUIET, 2 * CALM_US_MAX), CALM_US_MAX);
        }
    }

    #[test]
    fn a_thread_that_was_freed_is_led_back_after_the_calm_time_though_it_never_waited() {
        for windows in [0, 5] {
            let mut thread = began();
            for _ in 0..windows {
                assert_eq!(thread.pass(QUIET), FREE);
            }
            thread.contention.freed(thread.now.at_us);
            // Too few slices for a window.
            assert_eq!(thread.sample().cpu, Cpu::Contended);
            assert_eq!(thread.stays_us(QUIET, 10_000), 10_000);
            let us = thread.stays_us(QUIET, 2 * CALM_US_MAX);
            assert_eq!(us, CALM_US_MAX - 10_000);
            assert_eq!(thread.contention.regime, FREE);
        }
    }

    #[test]
    fn the_slice_changes_with_the_load_while_the_cpu_is_contended() {
        let mut thread = began();
        for (window, regime) in [
            (SATURATED, BUSY),
            (BESIDE_OTHERS, ALERT),
            (SERVED_AT_ONCE, ALERT),
            (SATURATED, BUSY),
        ] {
            assert_eq!(thread.pass(window), regime);
        }
    }

    #[test]
    fn counts_that_fall_decide_nothing() {
        let mut thread = began();
        thread.pass(QUIET);
        thread.now.times = ThreadTimes::default();
        assert_eq!(thread.sample(), FREE);
    }
}
