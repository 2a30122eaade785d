//! How long work has waited for a CPU that other work had: of the calling thread, and of the whole
//! machine.

use std::fs;
use std::time::Instant;

use super::schedstat::SchedStat;

/// The share of its time, in percent, from which a thread counts as held up.
const OWN_PERCENT_MAX: u64 = 10;
/// The share of time, in percent, in which somebody on the machine waited, from which the helpers
/// of the kernel that end durable writes count as held up. On many cores somebody nearly always
/// waits a little.
const MACHINE_PERCENT_MAX: u64 = 50;

/// What has waited since a moment.
pub(crate) struct CpuWait {
    began: Instant,
    before: Waited,
}

/// Times in microseconds, where the kernel tells them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Waited {
    /// The calling thread could run and did not.
    own_us: Option<u64>,
    /// Any thread could run and did not.
    machine_us: Option<u64>,
}

impl CpuWait {
    /// From now on, on this thread.
    pub(crate) fn begin() -> CpuWait {
        CpuWait {
            began: Instant::now(),
            before: Waited::read(),
        }
    }

    /// Whether work has waited so long that times which were measured meanwhile tell of other work.
    pub(crate) fn is_long(&self) -> bool {
        let us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        is_long(us, self.before, Waited::read())
    }
}

fn is_long(us: u64, before: Waited, after: Waited) -> bool {
    let is_above = |before: Option<u64>, after: Option<u64>, percent: u64| {
        let waited = before.zip(after);
        let waited_us = waited.map_or(0, |(before, after)| after.saturating_sub(before));
        waited_us.saturating_mul(100) > us.saturating_mul(percent)
    };
    is_above(before.own_us, after.own_us, OWN_PERCENT_MAX)
        || is_above(before.machine_us, after.machine_us, MACHINE_PERCENT_MAX)
}

impl Waited {
    fn read() -> Waited {
        let own = SchedStat::of_this_thread().and_then(|it| it.read());
        let machine = fs::read_to_string("/proc/pressure/cpu").ok();
        Waited {
            own_us: own.map(|it| it.waited_us),
            machine_us: machine.and_then(|text| pressure_us(&text)),
        }
    }
}

/// Reads the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
fn pressure_us(pressure: &str) -> Option<u64> {
    let some = pressure
        .lines()
        .find_map(|line| line.strip_prefix("some "))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_up_is_who_waits_for_a_tenth_of_the_time_or_a_machine_that_waits_for_half() {
        let waited = |own_us, machine_us| Waited { own_us, machine_us };
        let none = waited(None, None);
        assert!(!is_long(1000, none, none), "a kernel that tells nothing");
        let before = waited(Some(7_000), Some(90_000));
        let after =
            |own_us: u64, machine_us: u64| waited(Some(7_000 + own_us), Some(90_000 + machine_us));
        assert!(!is_long(1000, before, after(100, 500)));
        assert!(is_long(1000, before, after(101, 0)));
        assert!(is_long(1000, before, after(0, 501)));
        assert!(
            !is_long(1000, before, waited(Some(0), None)),
            "counters that fell"
        );
    }

    #[test]
    fn what_the_kernel_writes_is_read() {
        let text = "some avg10=97.75 avg60=97.44 avg300=97.07 total=3143793871\n\
            full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(pressure_us(text), Some(3_143_793_871));
        assert_eq!(pressure_us("full total=0"), None);
    }
}
