//! How much of what logs hold still counts, estimated from a sample of keys: a start that changes
//! the number of shards must know before it begins whether all of that can be written again.
//!
//! The sample is of the keys whose hash ends in so many zeros, one more each time that it has grown
//! too large (Flajolet, "On adaptive sampling", 1990).

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use penstock_storage::record::{PartKind, PartView};

/// Keys of the sample, at most. The estimate then errs by about the spread of the lengths over 250.
const KEYS_MAX: usize = 1 << 16;

/// What the newest parts of a sample of keys take.
#[derive(Debug, Default)]
pub(crate) struct CountedBytes {
    zeros: u32,
    /// By the hash: the version of the newest part, and its bytes unless it is a deletion.
    sample: HashMap<u64, ((u32, u64), u64)>,
}

impl CountedBytes {
    /// Takes one part into account, in any order.
    pub(crate) fn note(&mut self, part: &PartView<'_>) {
        // A kept version counts as long as its rule says, which is not known here.
        if part.successor().is_some() {
            return;
        }
        let hash = BuildHasherDefault::<DefaultHasher>::new().hash_one(part.key());
        let version = (part.epoch(), part.sequence());
        self.note_hashed(
            hash,
            version,
            match part.kind() {
                PartKind::Put => part.bytes().len() as u64,
                PartKind::Tombstone => 0,
            },
        );
    }

    fn note_hashed(&mut self, hash: u64, version: (u32, u64), bytes: u64) {
        if hash.trailing_zeros() < self.zeros {
            return;
        }
        let newest = self.sample.entry(hash).or_insert((version, bytes));
        if newest.0 <= version {
            *newest = (version, bytes);
        }
        while self.sample.len() > KEYS_MAX {
            self.zeros += 1;
            self.sample
                .retain(|hash, _| hash.trailing_zeros() >= self.zeros);
        }
    }

    /// About so many bytes of parts count.
    pub(crate) fn estimate(&self) -> u64 {
        let bytes: u64 = self.sample.values().map(|(_, bytes)| bytes).sum();
        bytes << self.zeros
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mixing function of splitmix64.
    fn mixed(number: u64) -> u64 {
        let mut z = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    #[test]
    fn the_newest_part_of_each_key_counts_and_deletions_do_not() {
        let mut counted = CountedBytes::default();
        for number in 1..=1_000 {
            counted.note_hashed(mixed(number), (1, 5), 100);
            counted.note_hashed(mixed(number), (1, 7), 10);
            counted.note_hashed(mixed(number), (1, 6), 1_000);
            counted.note_hashed(mixed(number), (1, 7), 10);
        }
        assert_eq!(counted.estimate(), 10_000);
        for number in 1..=500 {
            counted.note_hashed(mixed(number), (2, 1), 0);
        }
        assert_eq!(counted.estimate(), 5_000);
    }

    #[test]
    fn a_sample_of_many_keys_represents_all_of_them() {
        let mut counted = CountedBytes::default();
        let mut bytes = 0;
        for number in 1..=2_000_000 {
            let len = 50 + number % 200;
            bytes += len;
            counted.note_hashed(mixed(number), (1, number), len);
        }
        assert!(counted.sample.len() <= KEYS_MAX);
        let estimate = counted.estimate();
        assert!(
            estimate.abs_diff(bytes) < bytes / 50,
            "{estimate} of {bytes}"
        );
    }
}
