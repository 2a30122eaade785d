//! A set of partitions, one bit each.

use crate::link::limits::LINK_PARTITIONS;

const WORDS: usize = LINK_PARTITIONS as usize / 64;

/// Any of the partitions of a cluster.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct PartitionSet {
    words: [u64; WORDS],
}

impl PartitionSet {
    /// None of them.
    #[must_use]
    pub fn none() -> Self {
        PartitionSet::default()
    }

    /// The set whose partition `p` is bit `p % 8` of byte `p / 8`.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 8 * WORDS]) -> Self {
        let mut set = PartitionSet::none();
        for (word, bytes) in set.words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        set
    }

    /// As [`PartitionSet::from_bytes`] reads it.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 8 * WORDS] {
        let mut bytes = [0; 8 * WORDS];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.words) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    /// Adds a partition.
    ///
    /// # Panics
    /// If there is no such partition.
    #[inline]
    pub fn insert(&mut self, partition: u16) {
        self.words[usize::from(partition / 64)] |= 1 << (partition % 64);
    }

    /// Adds a partition, or takes it out.
    ///
    /// # Panics
    /// If there is no such partition.
    #[inline]
    pub fn set(&mut self, partition: u16, is_in: bool) {
        let word = &mut self.words[usize::from(partition / 64)];
        let bit = 1 << (partition % 64);
        *word = if is_in { *word | bit } else { *word & !bit };
    }

    /// Whether a partition is in it. A partition that there is not is in no set.
    #[inline]
    #[must_use]
    pub fn has(&self, partition: u16) -> bool {
        let word = self.words.get(usize::from(partition / 64));
        word.is_some_and(|word| word & 1 << (partition % 64) != 0)
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS]
    }

    /// What is in both.
    #[must_use]
    pub fn and(mut self, other: PartitionSet) -> Self {
        for (word, other) in self.words.iter_mut().zip(other.words) {
            *word &= other;
        }
        self
    }

    /// Its partitions, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + use<> {
        let words = (0..).step_by(64).zip(self.words);
        words.flat_map(|(first, word): (u16, u64)| bits(word).map(move |bit| first + bit))
    }
}

/// The numbers of the bits of a word that are set, ascending.
fn bits(word: u64) -> impl Iterator<Item = u16> {
    let mut left = word;
    std::iter::from_fn(move || {
        let bit = u16::try_from(left.trailing_zeros()).expect("64 at most");
        left &= left.checked_sub(1)?;
        Some(bit)
    })
}

impl FromIterator<u16> for PartitionSet {
    fn from_iter<I: IntoIterator<Item = u16>>(partitions: I) -> Self {
        let mut set = PartitionSet::none();
        for partition in partitions {
            set.insert(partition);
        }
        set
    }
}

impl std::fmt::Debug for PartitionSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_added_and_not_taken_out_as_bits_of_its_bytes() {
        let every_third: PartitionSet = (0..LINK_PARTITIONS).step_by(3).collect();
        let mut set: PartitionSet = (0..LINK_PARTITIONS).collect();
        for partition in 0..LINK_PARTITIONS {
            set.set(partition, partition.is_multiple_of(3));
        }
        assert_eq!(set, every_third);
        let numbers: Vec<u16> = set.iter().collect();
        assert_eq!(numbers, (0..LINK_PARTITIONS).step_by(3).collect::<Vec<_>>());
        for partition in 0..=LINK_PARTITIONS {
            let is_in = partition < LINK_PARTITIONS && partition.is_multiple_of(3);
            assert_eq!(set.has(partition), is_in, "partition {partition}");
            let byte = set.to_bytes().get(usize::from(partition / 8)).copied();
            let bit = byte.unwrap_or(0) & 1 << (partition % 8) != 0;
            assert_eq!(bit, is_in, "partition {partition}");
        }
        assert_eq!(PartitionSet::from_bytes(set.to_bytes()), set);
    }

    #[test]
    fn two_sets_have_in_common_what_is_in_both() {
        let even: PartitionSet = (0..LINK_PARTITIONS).step_by(2).collect();
        let late: PartitionSet = (190..LINK_PARTITIONS).collect();
        let both: Vec<u16> = even.and(late).iter().collect();
        assert_eq!(both, (190..LINK_PARTITIONS).step_by(2).collect::<Vec<_>>());
        assert!(even.and(PartitionSet::none()).is_empty());
    }
}
