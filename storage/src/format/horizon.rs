//! How long tokens of a partition are kept, and from which time on none is missing.
//!
//! ```text
//!        gone or not          all there
//! ---------------------|--------------------------|----> time of the token
//!                  Horizon::from_ms              now + ahead
//! ```
//!
//! What must hold: [`Horizon::from_ms`] never falls, whatever the partition is configured with
//! later, wherever it is served. A token that is not found is new only if its time is not before
//! that. So a horizon is a record of its partition. It stands in the log before the first token,
//! and a later one before a token is dropped that the earlier one calls complete.

/// Bytes of a horizon in the log.
pub const HORIZON_BYTES: usize = 32;

/// A token may be ahead of the time of the shard by so many milliseconds.
pub const AHEAD_MS_MAX: u64 = 300_000;

/// The horizon of one partition. All times are unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// Tokens of before this time may be gone.
    complete_from_ms: u64,
    /// Tokens of before `since_ms` are kept for so long, at least.
    before_ms: u64,
    /// Tokens of `since_ms` and later are kept for so long, and so is what is logged now.
    horizon_ms: u64,
    since_ms: u64,
}

impl Horizon {
    /// That of a partition without tokens.
    #[must_use]
    pub fn new(horizon_ms: u64) -> Self {
        Horizon {
            complete_from_ms: 0,
            before_ms: horizon_ms,
            horizon_ms,
            since_ms: 0,
        }
    }

    /// How long tokens that are logged now are kept, in milliseconds.
    #[must_use]
    pub fn horizon_ms(&self) -> u64 {
        self.horizon_ms
    }

    /// Tokens of before this time may be gone, whatever the time is now.
    #[must_use]
    pub fn complete_from_ms(&self) -> u64 {
        self.complete_from_ms
    }

    /// At this time tokens of this time and later are all there.
    #[must_use]
    pub fn from_ms(&self, now_ms: u64) -> u64 {
        // A token is gone when its time plus its horizon is reached.
        let kept_from_ms = |horizon_ms: u64| now_ms.saturating_sub(horizon_ms.saturating_sub(1));
        let long = kept_from_ms(self.horizon_ms).max(self.since_ms);
        let from_ms = long.min(kept_from_ms(self.before_ms));
        from_ms.max(self.complete_from_ms)
    }

    /// When a token of this time that is logged now expires.
    #[must_use]
    pub fn expiry_ms(&self, token_ms: u64) -> u64 {
        token_ms.saturating_add(self.horizon_ms)
    }

    /// A time that is not before that of a text with this expiry, whose record is of this time: its
    /// key tells none. A text is kept for its horizon from its time or its record on, whichever is
    /// later, and no horizon of the partition was shorter than the one of before.
    #[must_use]
    pub fn text_time_ms(&self, record_ms: u64, expiry_ms: u64) -> u64 {
        let by_expiry_ms = expiry_ms.saturating_sub(self.before_ms);
        by_expiry_ms.min(record_ms + AHEAD_MS_MAX)
    }

    /// How much longer than a UUID a text that is logged now may have to stay, in milliseconds:
    /// nothing if there never was a shorter horizon.
    #[must_use]
    pub fn text_stays_ms(&self) -> u64 {
        (self.horizon_ms - self.before_ms).min(AHEAD_MS_MAX)
    }

    /// The horizon that takes the place of this one when tokens are to be kept for so long.
    #[must_use]
    pub fn with(&self, horizon_ms: u64, now_ms: u64) -> Self {
        let before_ms = self.before_ms.min(horizon_ms);
        let grows = horizon_ms > before_ms;
        Horizon {
            complete_from_ms: self.from_ms(now_ms),
            before_ms,
            horizon_ms,
            // No token that was logged by now has this time.
            since_ms: if grows { now_ms + AHEAD_MS_MAX + 1 } else { 0 },
        }
    }

    /// The same, by which tokens may be dropped that are not complete at this time.
    #[must_use]
    pub fn raised(&self, now_ms: u64) -> Self {
        Horizon {
            complete_from_ms: self.from_ms(now_ms),
            ..*self
        }
    }

    /// The value of its record.
    #[must_use]
    pub fn encode(&self) -> [u8; HORIZON_BYTES] {
        let words = [
            self.complete_from_ms,
            self.before_ms,
            self.horizon_ms,
            self.since_ms,
        ];
        let mut bytes = [0; HORIZON_BYTES];
        for (at, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *at = word.to_le_bytes();
        }
        bytes
    }

    /// The horizon in the value of a record; `None` if the value is none.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        let bytes: &[u8; HORIZON_BYTES] = value.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(bytes.as_chunks().0[at]);
        let horizon = Horizon {
            complete_from_ms: word(0),
            before_ms: word(1),
            horizon_ms: word(2),
            since_ms: word(3),
        };
        let is_possible = (1..=horizon.horizon_ms).contains(&horizon.before_ms);
        is_possible.then_some(horizon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_complete_until_its_time_plus_the_horizon() {
        let horizon = Horizon::new(1_000);
        for token_ms in [0, 1, 5_000] {
            let expiry_ms = horizon.expiry_ms(token_ms);
            assert!(horizon.from_ms(expiry_ms - 1) <= token_ms);
            assert!(horizon.from_ms(expiry_ms) > token_ms);
        }
    }

    #[test]
    fn a_horizon_comes_back_from_its_bytes_and_other_bytes_are_none() {
        let horizon = Horizon::new(60_000).with(90_000, 1 << 40).raised(1 << 41);
        assert_eq!(Horizon::decode(&horizon.encode()), Some(horizon));
        for len in 0..HORIZON_BYTES {
            assert_eq!(Horizon::decode(&horizon.encode()[..len]), None);
        }
        assert_eq!(Horizon::decode(&[0; HORIZON_BYTES]), None);
        let mut longer_before = horizon.encode();
        longer_before[8..16].copy_from_slice(&90_001_u64.to_le_bytes());
        assert_eq!(Horizon::decode(&longer_before), None);
    }

    #[test]
    fn a_text_may_go_when_a_uuid_of_its_record_may_and_no_sooner_than_its_longest_time() {
        let (sent_ms, horizon) = (5_000, Horizon::new(60_000));
        assert_eq!(horizon.text_time_ms(7_000, horizon.expiry_ms(7_000)), 7_000);
        assert_eq!(horizon.text_stays_ms(), 0);
        // A longer horizon behind a shorter one: the time of the record decides.
        let longer = horizon.with(9_000_000, 7_000);
        let latest_ms = longer.text_time_ms(7_000, longer.expiry_ms(7_000));
        assert_eq!(latest_ms, 7_000 + AHEAD_MS_MAX);
        assert!(latest_ms >= sent_ms);
        assert_eq!(longer.text_stays_ms(), AHEAD_MS_MAX);
        // A shorter one behind a longer one: what was logged by the longer one has its expiry.
        let shorter = horizon.with(1_000, 8_000);
        let expiry_ms = horizon.expiry_ms(7_000);
        assert_eq!(shorter.text_time_ms(7_000, expiry_ms), 7_000 + 59_000);
    }

    /// Against a list of what was logged: what the border calls complete is there, and the border
    /// never falls.
    #[test]
    fn whatever_horizons_follow_each_other_the_border_never_falls_and_keeps_its_promise() {
        for seed in 1..=400_u64 {
            let mut state = seed;
            let mut random = |below: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let mut now_ms = 10_000_000;
            let mut horizon = Horizon::new(1 + random(400_000));
            let mut logged: Vec<(u64, u64)> = Vec::new();
            let mut texts: Vec<(u64, u64, u64)> = Vec::new();
            let mut border_ms = 0;
            for _ in 0..200 {
                now_ms += random(60_000);
                match random(8) {
                    0 => horizon = horizon.with(1 + random(400_000), now_ms),
                    1 => horizon = horizon.raised(now_ms),
                    _ => {
                        let oldest_ms = now_ms - 500_000;
                        let token_ms = oldest_ms + random(500_001 + AHEAD_MS_MAX);
                        if token_ms >= horizon.from_ms(now_ms) {
                            logged.push((token_ms, horizon.expiry_ms(token_ms)));
                            let expiry_ms = horizon.expiry_ms(token_ms.max(now_ms));
                            texts.push((token_ms, now_ms, expiry_ms));
                        }
                    }
                }
                horizon = Horizon::decode(&horizon.encode()).expect("its own bytes");
                let from_ms = horizon.from_ms(now_ms);
                assert!(from_ms >= border_ms, "seed {seed}: the border falls");
                border_ms = from_ms;
                for &(token_ms, expiry_ms) in &logged {
                    let is_there = expiry_ms > now_ms;
                    assert!(is_there || token_ms < from_ms, "seed {seed}: {token_ms}");
                }
                for &(sent_ms, record_ms, expiry_ms) in &texts {
                    let latest_ms = horizon.text_time_ms(record_ms, expiry_ms);
                    assert!(sent_ms <= latest_ms, "seed {seed}: a text of {sent_ms}");
                }
            }
        }
    }
}
