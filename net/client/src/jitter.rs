//! Pauses with full jitter: each is a random part of a bound that doubles (Brooker, "Exponential
//! Backoff And Jitter", 2015).

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// `least`, doubled so many times, but at most `most`.
pub(crate) fn doubled(least: Duration, times: u32, most: Duration) -> Duration {
    least.saturating_mul(1 << times.min(16)).min(most)
}

/// A random part of a bound. Each bit of `random` is random.
pub(crate) fn full_jitter(bound: Duration, random: u64) -> Duration {
    let nanos = (bound.as_nanos() * u128::from(random)) >> 64;
    Duration::from_nanos(u64::try_from(nanos).expect("the bound of a pause is short"))
}

/// A random number. The standard library gives each `RandomState` other keys.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_doubles_up_to_the_longest() {
        let ms = Duration::from_millis;
        let bounds = [0, 1, 2, 3, 4, 60, u32::MAX].map(|times| doubled(ms(2), times, ms(20)));
        assert_eq!(bounds, [2, 4, 8, 16, 20, 20, 20].map(ms));
    }

    #[test]
    fn a_pause_is_any_part_of_its_bound_and_never_all_of_it() {
        let bound = Duration::from_millis(8);
        assert_eq!(full_jitter(bound, 0), Duration::ZERO);
        assert_eq!(full_jitter(bound, 1 << 63), bound / 2);
        assert!(full_jitter(bound, u64::MAX) < bound);
    }
}
