//! Keys and values that are the same for every store, and a small generator of numbers.

/// SplitMix64: the same numbers for every store, from a fixed seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "engines"), allow(dead_code))]
pub enum Order {
    Sequential,
    Random,
}

#[cfg_attr(not(feature = "engines"), allow(dead_code))]
impl Order {
    pub fn name(self) -> &'static str {
        match self {
            Order::Sequential => "sequential",
            Order::Random => "random",
        }
    }
}

/// The key of a number: its eight bytes, big-endian, first or last as the order says, the rest
/// filled. In random order the number is scrambled, one to one, so that neighbours are far apart.
pub fn key_into(key: &mut Vec<u8>, number: u64, key_bytes: usize, order: Order) {
    assert!(key_bytes >= 8, "a key holds a number of eight bytes");
    let number = match order {
        Order::Sequential => number,
        Order::Random => mix(number),
    };
    key.clear();
    key.extend_from_slice(&number.to_be_bytes());
    key.resize(key_bytes, b'k');
}

/// A value that does not compress.
pub fn value(value_bytes: usize) -> Vec<u8> {
    let mut random = Random::new(7);
    let mut value: Vec<u8> = (0..value_bytes.div_ceil(8))
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    value.truncate(value_bytes);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_different_numbers_differ_and_have_the_length() {
        let mut keys = std::collections::HashSet::new();
        let mut key = Vec::new();
        for number in 0..1000 {
            key_into(&mut key, number, 32, Order::Random);
            assert_eq!(key.len(), 32);
            assert!(keys.insert(key.clone()));
        }
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert_eq!(value(13).len(), 13);
    }
}
