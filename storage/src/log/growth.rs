//! How long the next segments of a log are that starts small.
//!
//! A store with one key is to take little of the disk, and a busy one is to begin a segment as
//! seldom as ever. So the first segments are short, and the next ones grow with the log, or as fast
//! as segments are filled.
//!
//! A short segment holds four frames of the usual length, as every segment holds four of its
//! longest. A record that is longer than such a frame needs a longer segment: from the first one on
//! all are as long as
//! [`LogConfig::segment_bytes_min`](crate::log::config::LogConfig::segment_bytes_min) says.

/// A segment that is filled in less is too short, in microseconds.
const FILLED_US_MIN: u64 = 1_000_000;
/// So many segments hold what a log holds, about.
const SEGMENTS: u64 = 4;

/// The length of new segments of one log. It never falls.
#[derive(Debug)]
pub(crate) struct Growth {
    /// Bytes of the next ones.
    next_bytes: u64,
    /// The least that a segment needs for the longest record.
    whole_bytes: u64,
    is_whole: bool,
    most_bytes: u64,
    opened_us: u64,
}

impl Growth {
    /// From `first_bytes` up to `most_bytes`; the longest record needs `whole_bytes`. No shorter
    /// than the `longest_bytes` that are there: what counts in a segment is to have room in the
    /// next one.
    pub(crate) fn new(
        first_bytes: u64,
        whole_bytes: u64,
        most_bytes: u64,
        longest_bytes: u64,
    ) -> Self {
        Growth {
            next_bytes: first_bytes.max(longest_bytes).min(most_bytes),
            whole_bytes,
            is_whole: false,
            most_bytes,
            opened_us: 0,
        }
    }

    /// Bytes of the next segment.
    pub(crate) fn next_bytes(&self) -> u64 {
        self.next_bytes
    }

    /// Bytes of those that a log has when it is large.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// A segment was begun; those before it have `held_bytes`.
    pub(crate) fn begins(&mut self, now_us: u64, held_bytes: u64) {
        let is_fast = held_bytes > 0 && now_us < self.opened_us + FILLED_US_MIN;
        self.opened_us = now_us;
        while self.next_bytes < self.most_bytes && self.next_bytes * SEGMENTS < held_bytes {
            self.double();
        }
        if is_fast {
            self.double();
        }
    }

    /// A record came that no short segment holds.
    pub(crate) fn needs_whole(&mut self) {
        self.is_whole = true;
        self.next_bytes = self.next_bytes.max(self.whole_bytes);
    }

    /// Whether one came.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether a segment of so many bytes is long enough.
    pub(crate) fn takes(&self, bytes: u64) -> bool {
        !self.is_whole || bytes >= self.whole_bytes
    }

    fn double(&mut self) {
        self.next_bytes = (2 * self.next_bytes).min(self.most_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn segments_double_while_they_are_filled_fast_and_follow_the_log_otherwise() {
        let mut growth = Growth::new(MIB, 9 * MIB, 64 * MIB, 0);
        growth.begins(0, 0);
        assert_eq!(growth.next_bytes(), MIB);
        growth.begins(FILLED_US_MIN, MIB);
        growth.begins(2 * FILLED_US_MIN, 4 * MIB);
        assert_eq!(
            growth.next_bytes(),
            MIB,
            "a segment in a second is no hurry"
        );
        growth.begins(3 * FILLED_US_MIN, 5 * MIB);
        assert_eq!(growth.next_bytes(), 2 * MIB);
        let mut now_us = 4 * FILLED_US_MIN;
        let lengths: Vec<u64> = (0..6)
            .map(|_| {
                now_us += FILLED_US_MIN - 1;
                growth.begins(now_us, 5 * MIB);
                growth.next_bytes() / MIB
            })
            .collect();
        assert_eq!(lengths[1..], [4, 8, 16, 32, 64]);
        growth.begins(now_us, 5 * MIB);
        growth.begins(now_us + 100 * FILLED_US_MIN, 5 * MIB);
        assert_eq!(growth.next_bytes(), 64 * MIB);
    }

    #[test]
    fn a_long_record_and_what_an_earlier_run_left_make_segments_longer_at_once() {
        let mut growth = Growth::new(MIB, 9 * MIB, 64 * MIB, 3 * MIB);
        assert_eq!(growth.next_bytes(), 3 * MIB);
        assert!(growth.takes(MIB));
        growth.needs_whole();
        assert_eq!(growth.next_bytes(), 9 * MIB);
        assert!(growth.takes(9 * MIB) && !growth.takes(9 * MIB - 1));
        assert_eq!(
            Growth::new(MIB, 9 * MIB, 64 * MIB, 128 * MIB).next_bytes(),
            64 * MIB
        );
    }
}
