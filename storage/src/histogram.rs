//! How often a quantity had which size: fixed log-linear buckets that one writer fills and that add
//! up over writers.
//!
//! Four buckets for each power of two: whatever is read from a bucket is wrong by a quarter at
//! most. Adding a value is a few instructions and touches one bucket and the sum.

/// Buckets of a histogram.
pub const BUCKETS: usize = 4 * 25 + 1;

/// Powers of two that have buckets of their own end here; larger values share the last bucket.
const BITS_MAX: u32 = 26;

/// Counts by size. The unit is the owner's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: [0; BUCKETS],
            sum: 0,
        }
    }
}

impl Histogram {
    /// Adds `count` times the same value.
    #[inline]
    pub fn add(&mut self, value: u64, count: u64) {
        self.counts[bucket_of(value)] += count;
        self.sum = self.sum.saturating_add(value.saturating_mul(count));
    }

    /// How often each bucket was met, in ascending order of [`bound`].
    #[must_use]
    pub fn counts(&self) -> &[u64; BUCKETS] {
        &self.counts
    }

    /// The sum of all values.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }
}

/// The bucket of a value.
#[inline]
fn bucket_of(value: u64) -> usize {
    if value < 4 {
        return usize::from(value.to_le_bytes()[0]);
    }
    let power = value.ilog2();
    if power >= BITS_MAX {
        return BUCKETS - 1;
    }
    let quarter = usize::from((value >> (power - 2)).to_le_bytes()[0] & 3);
    4 * (power as usize - 1) + quarter
}

/// The largest value of a bucket; the last one has none.
#[must_use]
pub fn bound(bucket: usize) -> Option<u64> {
    match bucket {
        0..4 => Some(bucket as u64),
        4.. if bucket < BUCKETS - 1 => {
            let (power, quarter) = (bucket / 4 + 1, bucket % 4);
            Some(((5 + quarter as u64) << (power - 2)) - 1)
        }
        _ => None,
    }
}

/// A value that at least `share` (0 to 1) of all are not above; `None` without any. The bound of
/// its bucket, so up to a quarter too large; for those above all bounds it is the last one.
#[must_use]
pub fn quantile(counts: &[u64], share: f64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    let mut passed = 0;
    let last = bound(BUCKETS - 2);
    counts.iter().enumerate().find_map(|(bucket, &count)| {
        passed += count;
        let is_there = count > 0 && passed as f64 >= share * total as f64;
        is_there.then(|| bound(bucket).or(last)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_lies_in_the_first_bucket_whose_bound_it_does_not_pass() {
        let mut values: Vec<u64> = (0..5_000).collect();
        for power in 2..64 {
            for step in 0..8u64 {
                let value = (1u64 << power) + ((step << power) >> 3);
                values.extend([value - 1, value, value + 1]);
            }
        }
        values.push(u64::MAX);
        for value in values {
            let first = (0..BUCKETS).find(|&it| bound(it).is_none_or(|bound| value <= bound));
            assert_eq!(Some(bucket_of(value)), first, "{value}");
        }
    }

    #[test]
    fn bounds_ascend_and_are_a_quarter_apart_at_most() {
        for bucket in 5..BUCKETS - 1 {
            let (before, here) = (bound(bucket - 1).unwrap(), bound(bucket).unwrap());
            assert!(before < here);
            assert!(4 * (here - before) <= before + 1, "{before} {here}");
        }
        assert_eq!(bound(BUCKETS - 2), Some((1 << BITS_MAX) - 1));
        assert_eq!(bound(BUCKETS - 1), None);
    }

    #[test]
    fn quantiles_come_from_the_bucket_that_reaches_the_share() {
        let mut histogram = Histogram::default();
        assert_eq!(quantile(histogram.counts(), 0.5), None);
        histogram.add(1, 90);
        histogram.add(100, 9);
        histogram.add(1 << 40, 1);
        assert_eq!(histogram.sum(), 90 + 900 + (1 << 40));
        assert_eq!(quantile(histogram.counts(), 0.5), Some(1));
        assert_eq!(quantile(histogram.counts(), 0.9), Some(1));
        assert_eq!(quantile(histogram.counts(), 0.99), Some(111));
        assert_eq!(quantile(histogram.counts(), 1.0), Some((1 << 26) - 1));
    }
}
