//! Chance by seed: the same numbers on every machine.

/// One stream of chance (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014). Each concern has its own stream, so that a further draw in one moves
/// nothing in the others.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream `concern` of a seed.
    #[must_use]
    pub fn new(seed: u64, concern: u64) -> Self {
        let mut random = Random(seed ^ concern.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        random.bits();
        random
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// An index below `end`, which is not 0.
    pub fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("below a usize")
    }

    /// A number from `first` to `last`.
    pub fn within(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True in `parts` of a million cases.
    pub fn chance(&mut self, parts: u32) -> bool {
        self.below(1_000_000) < u64::from(parts)
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// About `typical`, seldom up to a hundred times that: what queues and devices do.
    pub fn latency(&mut self, typical: u64) -> u64 {
        let base = self.within(typical / 2, typical + typical / 2);
        match self.below(100) {
            0 => base * self.within(10, 100),
            1..=9 => base * self.within(2, 8),
            _ => base,
        }
    }
}
