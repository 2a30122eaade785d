//! The fingerprint of a run.

/// Folds everything that happens into 128 bits, so that two runs of one seed can be told apart at
/// their first difference. Not against an adversary.
#[derive(Clone, Debug)]
pub struct Trace {
    low: u64,
    high: u64,
    events: u64,
}

impl Trace {
    /// The fingerprint of nothing.
    #[must_use]
    pub fn new() -> Self {
        Trace {
            low: 0x243F_6A88_85A3_08D3,
            high: 0x1319_8A2E_0370_7344,
            events: 0,
        }
    }

    /// Something happened.
    pub fn fold(&mut self, words: &[u64]) {
        self.events += 1;
        for &word in words {
            self.low = (self.low ^ word)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29);
            self.high = (self.high ^ self.low)
                .wrapping_mul(0xC2B2_AE3D_27D4_EB4F)
                .rotate_left(31);
        }
    }

    /// Bytes were seen.
    pub fn fold_bytes(&mut self, bytes: &[u8]) {
        let crc = crc32fast::hash(bytes);
        self.fold(&[bytes.len() as u64, u64::from(crc)]);
    }

    /// How many folds there were.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The fingerprint so far.
    #[must_use]
    pub fn hash(&self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

impl Default for Trace {
    fn default() -> Self {
        Trace::new()
    }
}
