//! The horizons of the partitions of a store, as far as they are known.
//!
//! A horizon is a key of its partition, so a start does not know its value before it is read. Until
//! then no token of the partition is dropped, and none is judged to be new.

use crate::format::horizon::{AHEAD_MS_MAX, Horizon};
use crate::types::version::PARTITIONS;

/// Tokens are kept for so long if nothing else is said, in milliseconds.
pub const HORIZON_MS: u64 = 3_600_000;
/// How often the horizon is halved while memory for tokens runs out, at most.
const HALVINGS_MAX: u32 = 6;
/// A border is not logged anew for less than this, in milliseconds.
const RAISE_MS_MIN: u64 = 1_000;

/// A horizon is looked at so long after it may be raised, in milliseconds, if there is room.
const CHECKED_AFTER_MS: u64 = 20_000;

/// How long after its expiry a token may be dropped, about, in milliseconds: until a record pays
/// off, and until it is there.
pub(crate) fn raised_within_ms(horizon_ms: u64) -> u64 {
    worth_ms(horizon_ms) + CHECKED_AFTER_MS
}

/// A border is logged anew if it rises by so many milliseconds.
fn worth_ms(horizon_ms: u64) -> u64 {
    (horizon_ms / 8).max(RAISE_MS_MIN)
}

/// What is known of one partition.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Its horizon; the inner `None` is a partition that never had a token.
    horizon: Option<Option<Horizon>>,
    /// No token in the log has a later time.
    newest_ms: u64,
}

/// The horizons of all partitions, and how long tokens are to be kept.
#[derive(Debug)]
pub struct Horizons {
    of: Box<[Known]>,
    /// Partitions whose horizon is known to be a key.
    keys: usize,
    configured_ms: u64,
    /// So often the configured horizon is halved, because memory for tokens runs out.
    halvings: u32,
}

impl Default for Horizons {
    fn default() -> Self {
        let unknown = Known {
            horizon: None,
            newest_ms: u64::MAX,
        };
        Horizons {
            of: vec![unknown; PARTITIONS].into_boxed_slice(),
            keys: 0,
            configured_ms: HORIZON_MS,
            halvings: 0,
        }
    }
}

impl Horizons {
    /// Tokens are to be kept for so many milliseconds.
    pub(crate) fn configure(&mut self, horizon_ms: u64) {
        self.configured_ms = horizon_ms.max(1);
    }

    /// How often the configured horizon is halved, because memory for tokens runs out.
    #[must_use]
    pub fn halvings(&self) -> u32 {
        self.halvings
    }

    /// How long tokens that are logged now are to be kept, in milliseconds: as long as was
    /// configured, or less because their memory runs out.
    #[must_use]
    pub fn wanted_ms(&self) -> u64 {
        (self.configured_ms >> self.halvings).max(1)
    }

    /// The horizon of a partition: `None` if it is not known, and of a partition that never had a
    /// token the inner `None`.
    #[must_use]
    pub fn of(&self, partition: usize) -> Option<Option<Horizon>> {
        self.of[partition].horizon
    }

    /// Horizons that are known to be keys.
    pub(crate) fn count(&self) -> usize {
        self.keys
    }

    /// The horizon of a partition was read: none if there is no such key.
    pub(crate) fn learn(&mut self, partition: usize, horizon: Option<Horizon>, now_ms: u64) {
        self.forget(partition);
        self.keys += usize::from(horizon.is_some());
        self.of[partition] = Known {
            horizon: Some(horizon),
            // Which tokens are there is not known.
            newest_ms: now_ms + AHEAD_MS_MAX,
        };
    }

    /// A horizon of this store is in the log.
    pub(crate) fn logged(&mut self, partition: usize, horizon: Horizon, now_ms: u64) {
        match self.of[partition].horizon {
            Some(Some(_)) => self.of[partition].horizon = Some(Some(horizon)),
            _ => self.learn(partition, Some(horizon), now_ms),
        }
    }

    /// What was known of a partition may be otherwise now.
    pub(crate) fn forget(&mut self, partition: usize) {
        let before = self.of[partition].horizon.take();
        self.keys -= usize::from(before.flatten().is_some());
    }

    /// A token of this time is in the log.
    pub(crate) fn note_token(&mut self, partition: usize, token_ms: u64) {
        let newest_ms = &mut self.of[partition].newest_ms;
        *newest_ms = (*newest_ms).max(token_ms);
    }

    /// Whether a token of this time may be dropped.
    pub(crate) fn may_drop(&self, partition: usize, token_ms: u64) -> bool {
        let horizon = self.of(partition).flatten();
        horizon.is_some_and(|horizon| token_ms < horizon.complete_from_ms())
    }

    /// The same of a text with this expiry, which is over, whose record is of this time.
    pub(crate) fn may_drop_text(&self, partition: usize, record_ms: u64, expiry_ms: u64) -> bool {
        let horizon = self.of(partition).flatten();
        horizon.is_some_and(|horizon| {
            horizon.text_time_ms(record_ms, expiry_ms) < horizon.complete_from_ms()
        })
    }

    /// How much longer than a UUID a text of the partition may have to stay, in milliseconds.
    pub(crate) fn text_stays_ms(&self, partition: usize) -> u64 {
        let horizon = self.of(partition).flatten();
        horizon.map_or(0, |horizon| horizon.text_stays_ms())
    }

    /// The horizon that is to be logged next, so that tokens of a partition may be dropped. `None`
    /// if that is not worth a record yet, or nothing would go.
    pub(crate) fn raised(&self, partition: usize, now_ms: u64) -> Option<Horizon> {
        let horizon = self.of(partition).flatten()?;
        let newest_ms = self.of[partition].newest_ms;
        let from_ms = horizon.complete_from_ms();
        let step_ms = worth_ms(horizon.horizon_ms());
        let is_worth = horizon.from_ms(now_ms) >= from_ms.saturating_add(step_ms);
        (newest_ms >= from_ms && is_worth).then(|| horizon.raised(now_ms))
    }

    /// Makes the horizon fit the memory that tokens take of the share that is theirs. Whether it is
    /// another one now.
    ///
    /// From half of the share on, each tenth more halves the horizon; a twentieth less than that
    /// doubles it again.
    pub(crate) fn fit(&mut self, bytes: usize, share_bytes: usize) -> bool {
        let twentieths = bytes.saturating_mul(20) / share_bytes.max(1);
        let halved_from = |halvings: u32| 8 + 2 * halvings as usize;
        let before = self.halvings;
        while self.halvings < HALVINGS_MAX && twentieths >= halved_from(self.halvings + 1) {
            self.halvings += 1;
        }
        while self.halvings > 0 && twentieths + 1 < halved_from(self.halvings) {
            self.halvings -= 1;
        }
        before != self.halvings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_dropped_before_the_horizon_is_known_and_raised() {
        let mut horizons = Horizons::default();
        assert_eq!(horizons.of(3), None);
        assert!(!horizons.may_drop(3, 0));
        horizons.learn(3, None, 0);
        assert!(!horizons.may_drop(3, 0));
        horizons.logged(3, Horizon::new(10_000), 1_000_000);
        assert!(!horizons.may_drop(3, 0));
        let raised = horizons.raised(3, 1_000_000).expect("worth a record");
        horizons.logged(3, raised, 1_000_000);
        assert!(horizons.may_drop(3, 990_000));
        assert!(!horizons.may_drop(3, 990_001));
        // What follows is not worth a record at once.
        assert_eq!(horizons.raised(3, 1_001_249), None);
        assert!(horizons.raised(3, 1_001_250).is_some());
        horizons.forget(3);
        assert!(!horizons.may_drop(3, 0));
    }

    #[test]
    fn a_partition_without_newer_tokens_comes_to_rest() {
        let mut horizons = Horizons::default();
        horizons.learn(0, Some(Horizon::new(10_000)), 0);
        horizons.note_token(0, 2_000_000);
        let (mut now_ms, mut records) = (2_000_000, 0);
        while now_ms < 4_000_000 {
            if let Some(raised) = horizons.raised(0, now_ms) {
                horizons.logged(0, raised, now_ms);
                records += 1;
            }
            now_ms += 100;
        }
        assert!(horizons.may_drop(0, 2_000_000));
        assert!((1..=10).contains(&records), "{records} records");
    }

    #[test]
    fn the_horizon_is_halved_as_memory_runs_out_and_comes_back() {
        let mut horizons = Horizons::default();
        horizons.configure(64_000);
        let mut wanted = Vec::new();
        for bytes in [0, 49, 50, 55, 60, 100, 110, 1_000, 104, 60, 54, 44] {
            horizons.fit(bytes, 100);
            wanted.push(horizons.wanted_ms());
        }
        let expected = [
            64_000, 64_000, 32_000, 32_000, 16_000, 1_000, 1_000, 1_000, 1_000, 16_000, 32_000,
            64_000,
        ];
        assert_eq!(wanted, expected);
        assert!(!horizons.fit(usize::MAX, usize::MAX));
    }
}
