//! Chance by a printed seed.

/// A small generator (splitmix64) whose whole state is a number.
pub struct Random(u64);

impl Random {
    /// The chance of one round of a run: each round has its own, whatever the ones before it drew.
    pub fn of_round(seed: u64, round: u64) -> Random {
        let mut run = Random(seed);
        let own = Random(run.next().wrapping_add(round)).next();
        Random(own)
    }

    /// A generator of its own for a part that runs beside others.
    pub fn fork(&mut self) -> Random {
        Random(self.next())
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `rounds` times.
    pub fn once_in(&mut self, rounds: u64) -> bool {
        self.below(rounds) == 0
    }
}
