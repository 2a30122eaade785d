//! How fast the peer of a connection takes its replies.
//!
//! The kernel takes replies ahead of the peer: what it took says nothing of what has arrived. So
//! progress is what the peer's kernel has acknowledged, which the owner of the connection is asked
//! for ([`crate::Outbox::probes`]) while replies or requests wait.

/// Bytes of replies that a peer must acknowledge within its time, if so many wait. The number is
/// well below what a peer must read, because kernels acknowledge in steps.
pub(crate) const TAKEN_BYTES_MIN: u64 = 32 << 10;
/// While others wait for room, a peer has this part of the usual time to acknowledge anything: the
/// time divided by this number.
const EARLY_DIVISOR: u64 = 20;
/// How many looks are in that time.
const MEASURES: u64 = 8;

/// The progress of one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taking {
    /// Bytes that the network has taken in all.
    given: u64,
    waiting: Option<Waiting>,
}

/// The progress since replies or requests began to wait.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// When it was last looked, ...
    measured_us: u64,
    /// ... when a look last found more acknowledged than the one before, and how much it was in
    /// all, ...
    moved_us: u64,
    acknowledged: u64,
    /// ... and the same of the last look that found [`TAKEN_BYTES_MIN`] more, or nothing left to
    /// acknowledge.
    since_us: u64,
    acknowledged_then: u64,
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// For so long the peer has acknowledged less than [`TAKEN_BYTES_MIN`], in microseconds.
    pub(crate) slow_us: u64,
    /// For so long it has acknowledged nothing.
    pub(crate) still_us: u64,
}

impl Pace {
    /// Whether a peer is to be ended that has so much time for [`TAKEN_BYTES_MIN`].
    pub(crate) fn is_too_slow(self, stall_us_max: u64) -> bool {
        self.slow_us > stall_us_max
    }

    /// Whether it is to be ended so that others have its room.
    pub(crate) fn is_too_slow_for_others(self, stall_us_max: u64) -> bool {
        self.still_us > stall_us_max / EARLY_DIVISOR
    }
}

impl Taking {
    /// The network took so many bytes more.
    pub(crate) fn gave(&mut self, bytes: usize) {
        self.given += bytes as u64;
    }

    /// Nothing waits.
    pub(crate) fn rests(&mut self) {
        self.waiting = None;
    }

    /// Whether it is time to look while something waits.
    pub(crate) fn is_check_due(&self, now_us: u64, stall_us_max: u64) -> bool {
        self.waiting
            .is_none_or(|it| now_us >= it.measured_us + stall_us_max / MEASURES)
    }

    /// Notes a look: `unacknowledged` bytes of those that the network took are not acknowledged.
    /// `is_taken`: the network took all bytes that there were.
    pub(crate) fn measure(&mut self, now_us: u64, unacknowledged: u64, is_taken: bool) -> Pace {
        let acknowledged = self.given.saturating_sub(unacknowledged);
        let first = Waiting {
            measured_us: now_us,
            moved_us: now_us,
            acknowledged,
            since_us: now_us,
            acknowledged_then: acknowledged,
        };
        let waiting = self.waiting.get_or_insert(first);
        waiting.measured_us = now_us;
        // With nothing left to acknowledge the peer is not the one that is waited for.
        let owes_nothing = is_taken && unacknowledged == 0;
        if acknowledged > waiting.acknowledged || owes_nothing {
            (waiting.moved_us, waiting.acknowledged) = (now_us, acknowledged);
        }
        if acknowledged >= waiting.acknowledged_then + TAKEN_BYTES_MIN || owes_nothing {
            (waiting.since_us, waiting.acknowledged_then) = (now_us, acknowledged);
        }
        Pace {
            slow_us: now_us - waiting.since_us,
            still_us: now_us - waiting.moved_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL_US: u64 = 5_000_000;

    /// Reads at `rate` bytes a second while the network holds up to `kernel` bytes ahead; whether
    /// it is ended.
    fn is_ended(rate: u64, kernel: u64, step: u64) -> bool {
        let mut taking = Taking::default();
        let mut given = 0;
        (0..600).any(|tenth| {
            let now_us = tenth * 100_000;
            let read = rate * tenth / 10 / step * step;
            // The kernel takes more only when a third of what it has room for is free.
            if given < read + kernel * 2 / 3 {
                taking.gave(usize::try_from(read + kernel - given).expect("small"));
                given = read + kernel;
            }
            taking.is_check_due(now_us, STALL_US)
                && taking
                    .measure(now_us, given - read, false)
                    .is_too_slow(STALL_US)
        })
    }

    #[test]
    fn who_reads_the_least_that_is_asked_for_is_not_ended_however_much_the_kernel_holds() {
        for kernel in [64 << 10, 1 << 20, 4 << 20] {
            for (rate, expected) in [
                (2_000, true),
                (5_000, true),
                (14_000, false),
                (200_000, false),
            ] {
                for step in [1, 1_448, 16 << 10, 32 << 10, 65_483] {
                    let ended = is_ended(rate, kernel, step);
                    assert_eq!(
                        ended, expected,
                        "{rate} B/s in steps of {step}, {kernel} held"
                    );
                }
            }
        }
    }

    #[test]
    fn who_is_owed_something_is_not_ended_and_who_has_not_taken_it_is() {
        let mut taking = Taking::default();
        taking.gave(1_000);
        for second in 0..20 {
            let pace = taking.measure(second * 1_000_000, 0, true);
            assert!(!pace.is_too_slow(STALL_US) && !pace.is_too_slow_for_others(STALL_US));
        }
        taking.gave(1_000);
        let ended = (20..40).find(|&second| {
            let pace = taking.measure(second * 1_000_000, 1_000, true);
            pace.is_too_slow(STALL_US)
        });
        assert_eq!(ended, Some(25), "six seconds behind the last that it took");
        let mut taking = Taking::default();
        taking.gave(1_000);
        taking.measure(0, 1_000, true);
        taking.rests();
        let pace = taking.measure(9_000_000, 1_000, true);
        assert!(!pace.is_too_slow(STALL_US), "nothing waited in between");
    }
}
