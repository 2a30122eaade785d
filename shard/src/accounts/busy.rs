//! BUSY: how long operations wait here, and what a client that is refused is told of it.

use penstock_storage::place::Lsn;

/// The least that BUSY tells, in milliseconds.
const RETRY_AFTER_MS_MIN: u16 = 1;
/// The most that BUSY tells, in milliseconds.
const RETRY_AFTER_MS_MAX: u16 = 1000;
/// A wait moves the average by one part of so many.
const PARTS: u64 = 8;

/// How long operations that waited lately have waited: for a read, for room in the log or for
/// answers, or for other nodes.
///
/// The average is exponentially weighted, by an eighth for each wait, and the first wait begins it,
/// as the smoothed round-trip time of TCP (RFC 6298, section 2). Nobody reads a clock for it, and
/// it does not age: the queue that a BUSY is about is full, so waits of its operations come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    /// The average in microseconds, times [`PARTS`].
    average_us_parts: u64,
}

impl Waits {
    /// An operation has waited so long.
    pub(crate) fn note(&mut self, waited_us: u64) {
        let before = self.average_us_parts;
        self.average_us_parts = match before {
            0 => waited_us.saturating_mul(PARTS),
            _ => (before - before / PARTS).saturating_add(waited_us),
        };
    }

    /// The milliseconds after which a new try is likely to find room, rounded up: from 1 to 1000.
    ///
    /// By Little's law, a queue whose operations wait so long on average has let so many in during
    /// this time as it holds.
    pub(crate) fn retry_after_ms(&self) -> u16 {
        retry_after_ms(self.average_us_parts / PARTS)
    }
}

/// What BUSY tells if a new try is likely to find room after so many microseconds: milliseconds,
/// rounded up, from 1 to 1000.
pub(crate) fn retry_after_ms(us: u64) -> u16 {
    u16::try_from(us.div_ceil(1000))
        .unwrap_or(RETRY_AFTER_MS_MAX)
        .clamp(RETRY_AFTER_MS_MIN, RETRY_AFTER_MS_MAX)
}

/// What the frame of an answer depends on, and what its header tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerTerms {
    /// It may leave when this is durable.
    pub(crate) gate: Lsn,
    /// If the answer is BUSY, the milliseconds after which a new try is likely to find room,
    /// otherwise 0.
    pub(crate) retry_after_ms: u16,
}

impl AnswerTerms {
    /// Of an answer that is not BUSY and depends on this.
    #[inline]
    pub(crate) fn behind(gate: Lsn) -> AnswerTerms {
        AnswerTerms {
            gate,
            retry_after_ms: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(waits_us: impl IntoIterator<Item = u64>) -> u16 {
        let mut waits = Waits::default();
        waits_us.into_iter().for_each(|us| waits.note(us));
        waits.retry_after_ms()
    }

    #[test]
    fn busy_says_how_long_operations_wait_in_milliseconds_that_are_rounded_up() {
        assert_eq!(after([7_000]), 7);
        assert_eq!(after([7_001]), 8);
        assert_eq!(after([7_000; 100]), 7);
    }

    #[test]
    fn busy_says_at_least_a_millisecond_and_at_most_a_second() {
        assert_eq!(after([]), 1, "nothing has waited yet");
        assert_eq!(after([0, 0]), 1);
        assert_eq!(after([1]), 1);
        assert_eq!(after([1_000_000]), 1000);
        assert_eq!(after([1_000_001]), 1000);
        assert_eq!(after([u64::MAX; 3]), 1000);
    }

    #[test]
    fn one_long_wait_among_many_short_ones_counts_an_eighth_and_is_forgotten() {
        let short = [2_000; 20];
        assert_eq!(after(short.into_iter().chain([82_000])), 12);
        let again = short.into_iter().chain([82_000]).chain([2_000; 60]);
        assert_eq!(after(again), 3);
    }

    #[test]
    fn waits_that_have_become_longer_are_reported_after_some_of_them() {
        let longer = |count| after([1_000; 50].into_iter().chain(vec![100_000; count]));
        assert_eq!(longer(0), 1);
        assert!((10..20).contains(&longer(1)));
        assert!((60..100).contains(&longer(10)));
        assert_eq!(longer(100), 100);
    }
}
