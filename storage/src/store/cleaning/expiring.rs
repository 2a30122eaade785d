//! How much of a segment expires by when: a few buckets of time for each segment, so that what has
//! expired counts as room that cleaning gives back.
//!
//! Parts are only ever added. Whoever takes the place of a part does not know its expiry: a cold
//! entry of the index has none, and the cell of a key tells the newest one alone. So a table does
//! not say what counts in a segment. It says what does *not* count any more: of all parts that were
//! ever added, those whose time has passed. The caller holds that against the bytes that are still
//! pointed to ([`crate::store::cleaning::live`]).
//!
//! What must hold: at any time, [`Expiring::left`] is at least what was added and has not expired.
//! So times are rounded up, a bucket counts until all of it has expired, and two buckets become one
//! that ends with the later of them. A part that is added twice, as a replay behind a snapshot
//! does, errs on the same side.

/// Buckets of a table.
pub const BUCKETS: usize = 12;
/// Times are rounded up to this many milliseconds, a power of two.
pub const TICK_MS: u64 = 1 << 10;

/// When a part stops to count by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expires {
    /// From this time on, in unix milliseconds.
    pub by_ms: u64,
    /// Bytes of a deletion in its place.
    pub deletion_bytes: u32,
    /// It is a token: nothing supersedes it.
    pub is_token: bool,
}

/// A number of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many.
    pub parts: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of as many deletions of their keys.
    pub deletion_bytes: u64,
}

impl Amount {
    fn add(&mut self, other: Amount) {
        self.parts += other.parts;
        self.bytes += other.bytes;
        self.deletion_bytes += other.deletion_bytes;
    }
}

/// Parts that expire within a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// The earliest of their times, in unix milliseconds, rounded up to [`TICK_MS`].
    pub from_ms: u64,
    /// The latest of them, likewise.
    pub by_ms: u64,
    /// The parts.
    pub amount: Amount,
}

/// What was added to one segment and expires.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expiring {
    /// Ascending, and no two overlap. One more than there are between two calls.
    buckets: [Bucket; BUCKETS + 1],
    len: usize,
}

impl Expiring {
    /// A table of these buckets, as [`Expiring::buckets`] told them.
    ///
    /// # Errors
    /// What no table tells.
    pub fn restore(buckets: &[Bucket]) -> Result<Self, &'static str> {
        let is_tick = |ms: u64| ms.is_multiple_of(TICK_MS);
        let are_possible = buckets.iter().all(|bucket| {
            bucket.from_ms <= bucket.by_ms
                && is_tick(bucket.from_ms)
                && is_tick(bucket.by_ms)
                && bucket.amount.parts > 0
        });
        let are_apart = buckets.windows(2).all(|two| two[0].by_ms < two[1].from_ms);
        if buckets.len() > BUCKETS || !are_possible || !are_apart {
            return Err("the times of a file cannot be");
        }
        let mut table = Expiring::default();
        table.buckets[..buckets.len()].copy_from_slice(buckets);
        table.len = buckets.len();
        Ok(table)
    }

    /// Takes note of a part of `bytes`.
    pub fn add(&mut self, bytes: u64, expires: Expires) {
        let ms = expires
            .by_ms
            .checked_next_multiple_of(TICK_MS)
            .unwrap_or(u64::MAX - (TICK_MS - 1));
        let amount = Amount {
            parts: 1,
            bytes,
            deletion_bytes: u64::from(expires.deletion_bytes),
        };
        let buckets = &self.buckets[..self.len];
        // What is written later mostly expires later.
        let behind = buckets.iter().rposition(|bucket| bucket.by_ms < ms);
        let at = behind.map_or(0, |before| before + 1);
        if let Some(bucket) = self.buckets[..self.len].get_mut(at)
            && bucket.from_ms <= ms
        {
            bucket.amount.add(amount);
            return;
        }
        self.buckets.copy_within(at..self.len, at + 1);
        self.buckets[at] = Bucket {
            from_ms: ms,
            by_ms: ms,
            amount,
        };
        self.len += 1;
        if self.len > BUCKETS {
            self.join();
        }
    }

    /// Joins two neighbouring buckets: those whose join delays the fewest bytes for the shortest
    /// time.
    fn join(&mut self) {
        let buckets = &self.buckets[..self.len];
        let delay = |two: &[Bucket]| {
            let ms = two[1].by_ms - two[0].by_ms;
            u128::from(ms) * u128::from(two[0].amount.bytes)
        };
        let pairs = buckets.windows(2).map(delay).enumerate();
        let (at, _) = pairs.min_by_key(|pair| pair.1).expect("there are two");
        let later = self.buckets[at + 1];
        let joined = &mut self.buckets[at];
        joined.by_ms = later.by_ms;
        joined.amount.add(later.amount);
        self.buckets.copy_within(at + 2..self.len, at + 1);
        self.len -= 1;
        self.buckets[self.len] = Bucket::default();
    }

    /// At least what was added and has not expired by `now_ms`.
    #[must_use]
    pub fn left(&self, now_ms: u64) -> Amount {
        self.sum(|bucket| bucket.by_ms > now_ms)
    }

    /// What was added and has expired by `now_ms`, as far as that is known.
    #[must_use]
    pub fn gone(&self, now_ms: u64) -> Amount {
        self.sum(|bucket| bucket.by_ms <= now_ms)
    }

    /// All that was added.
    #[must_use]
    pub fn all(&self) -> Amount {
        self.sum(|_| true)
    }

    fn sum(&self, counts: impl Fn(&Bucket) -> bool) -> Amount {
        let mut sum = Amount::default();
        for bucket in self.buckets() {
            if counts(bucket) {
                sum.add(bucket.amount);
            }
        }
        sum
    }

    /// When more is known to have expired than by `now_ms`, if anything is left.
    #[must_use]
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        let mut ends = self.buckets().iter().map(|bucket| bucket.by_ms);
        ends.find(|&by_ms| by_ms > now_ms)
    }

    /// Its buckets, ascending.
    #[must_use]
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expires(by_ms: u64) -> Expires {
        Expires {
            by_ms,
            deletion_bytes: 50,
            is_token: false,
        }
    }

    #[test]
    fn a_part_counts_until_its_time_and_at_most_a_tick_longer() {
        for by_ms in [1, 1_023, 1_024, 1_025, 1_800_000_000_000] {
            let mut table = Expiring::default();
            table.add(100, expires(by_ms));
            assert_eq!(table.left(by_ms - 1).bytes, 100, "{by_ms}");
            assert_eq!(table.left(by_ms + TICK_MS - 1), Amount::default());
            let gone = table.gone(by_ms + TICK_MS - 1);
            assert_eq!((gone.parts, gone.bytes, gone.deletion_bytes), (1, 100, 50));
            assert!((by_ms..by_ms + TICK_MS).contains(&table.next_ms(0).expect("one is left")));
            assert_eq!(table.next_ms(by_ms + TICK_MS), None);
        }
        // A time for ever is one that does not come.
        let mut table = Expiring::default();
        table.add(1, expires(u64::MAX));
        assert_eq!(table.left(u64::MAX >> 1).bytes, 1);
    }

    /// One key that lives for a year does not hold back those that live for seconds.
    #[test]
    fn times_that_are_far_apart_keep_buckets_of_their_own() {
        let mut table = Expiring::default();
        table.add(1_000, expires(365 * 86_400_000));
        for second in 0..600 {
            table.add(1_000, expires(10_000 + second * 1_000));
        }
        let late_ms = 10_000 + 600_000 + TICK_MS;
        assert_eq!(table.left(late_ms).bytes, 1_000);
        // Half of the time has passed: what of the other half is counted too long is one bucket.
        let left = table.left(310_000).bytes;
        assert!((301_000..=420_000).contains(&left), "{left} bytes");
    }

    /// Against an account that keeps each part.
    #[test]
    fn nothing_is_counted_as_expired_before_its_time_and_all_is_after_the_last() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let mut table = Expiring::default();
            let mut parts: Vec<(u64, u64)> = Vec::new();
            let spread_ms = 1 << (8 + random(30));
            for step in 0..random(400) {
                let by_ms = step * random(3_000) + random(spread_ms);
                let bytes = 48 + random(2_000);
                table.add(bytes, expires(by_ms));
                parts.push((by_ms, bytes));
                let now_ms = random(2 * spread_ms);
                let exact = parts.iter().filter(|part| part.0 > now_ms);
                let (count, bytes) = exact.fold((0, 0), |sum, it| (sum.0 + 1, sum.1 + it.1));
                let (left, gone) = (table.left(now_ms), table.gone(now_ms));
                assert!(left.bytes >= bytes && left.parts >= count);
                let all: u64 = parts.iter().map(|part| part.1).sum();
                assert_eq!(left.bytes + gone.bytes, all);
                assert_eq!(left.parts + gone.parts, parts.len() as u64);
                assert_eq!(gone.deletion_bytes, 50 * gone.parts);
                assert_eq!(Expiring::restore(table.buckets()), Ok(table.clone()));
            }
            let last = parts.iter().map(|part| part.0).max().unwrap_or(0);
            assert_eq!(table.left(last + TICK_MS).bytes, 0);
        }
    }

    #[test]
    fn what_no_table_names_is_not_restored() {
        let bucket = |from_ms, by_ms| Bucket {
            from_ms,
            by_ms,
            amount: Amount {
                parts: 1,
                ..Amount::default()
            },
        };
        let tick = TICK_MS;
        assert!(Expiring::restore(&[]).is_ok());
        assert!(Expiring::restore(&[bucket(tick, tick), bucket(2 * tick, 4 * tick)]).is_ok());
        for wrong in [
            vec![bucket(tick, 0)],
            vec![bucket(tick + 1, 3 * tick)],
            vec![bucket(tick, tick), bucket(tick, 2 * tick)],
            vec![bucket(2 * tick, 2 * tick), bucket(tick, tick)],
            vec![Bucket::default()],
            (0..13).map(|at| bucket(at * tick, at * tick)).collect(),
        ] {
            assert!(Expiring::restore(&wrong).is_err(), "{wrong:?}");
        }
    }
}
