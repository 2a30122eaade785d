//! The rule by which the open frame waits for the write under way, so that more records share one
//! write.
//!
//! Two writes in flight halve the time to durability of a second client, and they also halve the
//! records of a write when many clients wait: each client that is answered comes back while the
//! other write is under way. A small frame costs the device as much as a block of 4 KiB, so while
//! frames are small and crowded a second write buys nothing. The frame waits until the write under
//! way ends, at most until that write has taken twice the usual time.

use crate::format::frame::FRAME_HEADER_BYTES;
use crate::types::io::BLOCK_BYTES;

/// Records of the write under way from which on the next frame waits. With fewer a second write
/// costs little, and the answer that it carries comes a whole write earlier.
const RECORDS_MIN: u64 = 8;

/// How long a write may usually take. Where writes take longer, because of the device or because
/// others want the CPU, clients wait for the write and not for the CPU: a second write pays there.
const USUAL_US_MAX: u64 = 500;

/// The oldest write under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OldestWrite {
    pub(super) emitted_us: u64,
    pub(super) records: u64,
}

/// How long a write usually takes, in microseconds.
///
/// The estimate moves by an eighth towards each new time, so one stall moves it no further than one
/// usual write does: it follows the median (Ma, Muthukrishnan and Sandler, "Frugal streaming for
/// estimating quantiles", 2013).
#[derive(Debug, Default)]
pub(super) struct Gathering {
    usual_us: u64,
}

impl Gathering {
    /// A write took this long until the device had it for good.
    pub(super) fn add(&mut self, took_us: u64) {
        let step_us = self.usual_us / 8 + 1;
        self.usual_us = if self.usual_us == 0 {
            took_us
        } else if took_us > self.usual_us {
            took_us.min(self.usual_us + step_us)
        } else {
            took_us.max(self.usual_us.saturating_sub(step_us))
        };
    }

    /// Until when a frame with `body_bytes` of records waits for `oldest`, by the clock of the log.
    /// `None`: the frame does not wait.
    pub(super) fn until_us(&self, oldest: Option<OldestWrite>, body_bytes: usize) -> Option<u64> {
        let oldest = oldest.filter(|it| it.records >= RECORDS_MIN)?;
        let is_small = FRAME_HEADER_BYTES + body_bytes < BLOCK_BYTES;
        let is_fast = self.usual_us <= USUAL_US_MAX;
        (is_small && is_fast).then(|| oldest.emitted_us + 2 * self.usual_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CROWDED: OldestWrite = OldestWrite {
        emitted_us: 1_000,
        records: RECORDS_MIN,
    };

    fn usual(us: u64) -> Gathering {
        let mut gathering = Gathering::default();
        gathering.add(us);
        gathering
    }

    #[test]
    fn a_small_frame_waits_for_a_crowded_write_for_twice_the_usual_time() {
        assert_eq!(usual(80).until_us(Some(CROWDED), 100), Some(1_160));
    }

    #[test]
    fn a_frame_of_a_block_and_one_after_a_write_of_few_records_do_not_wait() {
        let few = OldestWrite {
            records: RECORDS_MIN - 1,
            ..CROWDED
        };
        let small_max = BLOCK_BYTES - FRAME_HEADER_BYTES - 1;
        assert_eq!(usual(80).until_us(Some(few), 100), None);
        assert_eq!(usual(80).until_us(None, 100), None);
        assert!(usual(80).until_us(Some(CROWDED), small_max).is_some());
        assert_eq!(usual(80).until_us(Some(CROWDED), small_max + 1), None);
    }

    #[test]
    fn no_frame_waits_for_writes_that_usually_take_long() {
        assert!(usual(USUAL_US_MAX).until_us(Some(CROWDED), 100).is_some());
        assert_eq!(usual(USUAL_US_MAX + 1).until_us(Some(CROWDED), 100), None);
    }

    #[test]
    fn the_usual_time_follows_the_median_and_one_stall_moves_it_by_an_eighth() {
        let mut gathering = usual(80);
        gathering.add(1_000_000);
        assert_eq!(gathering.usual_us, 91);
        for _ in 0..100 {
            gathering.add(200);
        }
        assert_eq!(gathering.usual_us, 200);
        for _ in 0..100 {
            gathering.add(40);
        }
        assert_eq!(gathering.usual_us, 40);
    }
}
