//! The seeds that a random test runs, and the report of one that failed.

/// The seeds of a random test.
pub fn seeds(count: u64) -> std::ops::RangeInclusive<u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().expect("a seed is a number"))
    };
    match number("PENSTOCK_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("PENSTOCK_SEEDS").unwrap_or(count),
    }
}

/// Names the seed of a random test that fails.
pub struct Seed(pub u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with PENSTOCK_SEED={}", self.0);
        }
    }
}
