//! Whether and when an operation that was answered BUSY is sent again.
//!
//! A pause is a random part of a bound that doubles, see [`crate::jitter`]. A budget bounds the
//! retries of a client: were each refused operation sent again, the retries would keep an
//! overloaded server overloaded (Beyer and others, "Site Reliability Engineering", 2016, chapter
//! 21: a client retries at most 10 % of its requests).

use std::time::Duration;

use crate::jitter::{doubled, full_jitter};

/// The least bound of the first pause.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest bound of a pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A request earns one part of a retry, and so many parts make a whole one.
const PARTS: u32 = 10;
/// Whole retries that are saved, at most.
const SAVED_MAX: u32 = 10;

/// The retries that a client may make: at most a tenth of its requests so far.
///
/// It begins empty, so the bound holds from the first request on.
#[derive(Debug, Default)]
pub(crate) struct RetryBudget {
    parts: u32,
}

impl RetryBudget {
    /// A request is asked. Its retries are no requests.
    pub(crate) fn earn(&mut self) {
        self.parts = (self.parts + 1).min(SAVED_MAX * PARTS);
    }

    /// The pause before an operation is sent again that a server did not execute: `busy` answers
    /// before this one were BUSY, and this one told `retry_after_ms`. Takes one retry out. `None`,
    /// and nothing is taken, if less than one is there, or if the pause takes all of the time that
    /// is `left`.
    pub(crate) fn pause(
        &mut self,
        busy: u32,
        retry_after_ms: u16,
        left: Duration,
        random: u64,
    ) -> Option<Duration> {
        let retry_after = Duration::from_millis(retry_after_ms.into());
        let bound = doubled(retry_after.max(PAUSE_MIN), busy, PAUSE_MAX);
        let pause = full_jitter(bound, random);
        if pause >= left {
            return None;
        }
        self.parts = self.parts.checked_sub(PARTS)?;
        Some(pause)
    }
}

/// The pause before an operation goes to another node because its own is gone; `None` if the pause
/// takes all of the time that is `left`. It keeps the clients of a node that has died from asking
/// the next one all at once.
pub(crate) fn free_pause(left: Duration, random: u64) -> Option<Duration> {
    Some(full_jitter(PAUSE_MIN, random)).filter(|pause| *pause < left)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const HALF: u64 = 1 << 63;

    fn earned(requests: u32) -> RetryBudget {
        let mut budget = RetryBudget::default();
        (0..requests).for_each(|_| budget.earn());
        budget
    }

    /// How many operations in a row may be sent again now.
    fn spend(budget: &mut RetryBudget) -> usize {
        std::iter::from_fn(|| budget.pause(0, 1, LONG, HALF)).count()
    }

    #[test]
    fn ten_requests_earn_one_retry() {
        for (requests, retries) in [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (99, 9)] {
            let mut budget = earned(requests);
            assert_eq!(spend(&mut budget), retries, "{requests} requests");
        }
    }

    #[test]
    fn no_more_than_ten_retries_are_saved() {
        let mut budget = earned(1_000_000);
        assert_eq!(spend(&mut budget), 10);
        assert_eq!(spend(&mut budget), 0, "they are spent");
    }

    #[test]
    fn retries_are_never_more_than_a_tenth_of_the_requests_before_them() {
        let mut budget = RetryBudget::default();
        let mut retries = 0;
        for requests in 1..=5_000 {
            budget.earn();
            // Each request, and each retry of it, is answered BUSY.
            retries += spend(&mut budget);
            assert!(retries * 10 <= requests, "{retries} of {requests}");
        }
        assert_eq!(retries, 500);
    }

    #[test]
    fn a_pause_is_a_random_part_of_what_the_server_answered_and_doubles() {
        let pause = |busy, retry_after_ms| {
            let mut budget = earned(10);
            budget
                .pause(busy, retry_after_ms, LONG, HALF)
                .expect("earned")
        };
        assert_eq!(pause(0, 40), Duration::from_millis(20));
        assert_eq!(pause(1, 40), Duration::from_millis(40));
        assert_eq!(pause(3, 40), Duration::from_millis(160));
        assert_eq!(pause(0, 0), PAUSE_MIN / 2, "an old server tells nothing");
        assert_eq!(pause(9, 40), PAUSE_MAX / 2);
        assert_eq!(pause(u32::MAX, u16::MAX), PAUSE_MAX / 2);
    }

    #[test]
    fn a_pause_that_takes_all_of_the_time_left_is_not_made_and_costs_nothing() {
        let mut budget = earned(10);
        let left = Duration::from_millis(20);
        assert_eq!(budget.pause(0, 40, left, HALF), None);
        let left = left + Duration::from_nanos(1);
        let pause = budget.pause(0, 40, left, HALF);
        assert_eq!(pause, Some(Duration::from_millis(20)));
    }
}
