//! The clock that goes on while the machine is suspended.
//!
//! Shards decide by it, and leases are counted by it: a machine that wakes up must not find that
//! its lease has time left.
#![expect(
    unsafe_code,
    reason = "a system call without a wrapper in the standard library"
)]

use std::time::Duration;

/// Microseconds of CLOCK_BOOTTIME since a moment. Copies count from the same moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BootClock {
    origin_us: u64,
}

impl BootClock {
    /// Counts from now on.
    pub(crate) fn start() -> BootClock {
        BootClock {
            origin_us: since_boot_us(),
        }
    }

    /// How long ago that was.
    #[inline]
    pub(crate) fn now_us(&self) -> u64 {
        since_boot_us() - self.origin_us
    }

    /// How long it is until the clock shows `us`. Timers of the kernel and of the event loop stand
    /// still while the machine is suspended, so who has slept so long reads the clock again.
    pub(crate) fn until(&self, us: u64) -> Duration {
        Duration::from_micros(us.saturating_sub(self.now_us()))
    }
}

/// Microseconds since the machine was booted, with the time for which it was suspended.
#[inline]
fn since_boot_us() -> u64 {
    let mut found = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live structure, which the kernel fills.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut found) };
    assert!(
        result == 0,
        "every machine has such a clock since Linux 2.6.39"
    );
    let part = |count: i64| u64::try_from(count).expect("a time since boot");
    part(found.tv_sec) * 1_000_000 + part(found.tv_nsec) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_and_copies_count_from_the_same_moment() {
        let clock = BootClock::start();
        let copy = clock;
        let before_us = clock.now_us();
        std::thread::sleep(Duration::from_millis(20));
        let after_us = copy.now_us();
        assert!(after_us >= before_us + 20_000, "{before_us} {after_us}");
        assert!(clock.now_us() >= after_us);
        assert_eq!(clock.until(before_us), Duration::ZERO);
        let in_an_hour_us = clock.now_us() + 3_600_000_000;
        let left = clock.until(in_an_hour_us);
        assert!(left > Duration::from_secs(3_000) && left <= Duration::from_secs(3_600));
    }

    #[test]
    fn it_is_the_clock_of_the_machine_and_not_of_the_process() {
        let text = std::fs::read_to_string("/proc/uptime").expect("Linux has it");
        let seconds = text.split('.').next().expect("it has a point");
        let seconds: u64 = seconds.parse().expect("whole seconds");
        // The file tells CLOCK_BOOTTIME, cut off.
        assert!(since_boot_us() >= seconds * 1_000_000);
        assert!(since_boot_us() < (seconds + 600) * 1_000_000);
    }
}
