//! A map of partitions that keeps a summary of its entries.
//!
//! A turn asks the same questions of all partitions: which of them hold records, which may be
//! opened. A walk over all of them for each question costs more than the rest of a turn. So an
//! entry that was handed out to be changed is noted in the summary when the summary is read next,
//! and no other entry is looked at.

use std::ops::Deref;

use penstock_net::link::PartitionSet;

use super::PartitionId;
use super::partition_map::PartitionMap;

/// What a [`SummarizedMap`] may hold.
pub trait Summarized {
    /// What is known of all entries of a map together.
    type Summary: std::fmt::Debug + Default;

    /// Notes what is so of this entry from now on, in place of what was noted of it before.
    fn note(&self, number: PartitionId, summary: &mut Self::Summary);
}

/// A map with the numbers of partitions as keys, and the summary of its entries. It is read as a
/// [`PartitionMap`].
#[derive(Debug)]
pub struct SummarizedMap<T: Summarized> {
    entries: PartitionMap<T>,
    /// Handed out to be changed since the summary was read.
    handed_out: PartitionSet,
    summary: T::Summary,
}

impl<T: Summarized> Default for SummarizedMap<T> {
    /// One that holds nothing.
    fn default() -> Self {
        SummarizedMap {
            entries: PartitionMap::new(),
            handed_out: PartitionSet::none(),
            summary: T::Summary::default(),
        }
    }
}

impl<T: Summarized> SummarizedMap<T> {
    /// Holds this of a partition from now on.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn insert(&mut self, partition: PartitionId, value: T) {
        self.entries.insert(partition, value);
        self.handed_out.insert(partition);
    }

    /// What is held of a partition, to be changed.
    #[inline]
    pub fn get_mut(&mut self, partition: &PartitionId) -> Option<&mut T> {
        let entry = self.entries.get_mut(partition)?;
        self.handed_out.insert(*partition);
        Some(entry)
    }

    /// The summary of all entries as they are now.
    pub fn summary(&mut self) -> &T::Summary {
        for number in std::mem::take(&mut self.handed_out).iter() {
            self.entries[&number].note(number, &mut self.summary);
        }
        &self.summary
    }
}

impl<T: Summarized> Deref for SummarizedMap<T> {
    type Target = PartitionMap<T>;

    fn deref(&self) -> &PartitionMap<T> {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Summarized for u32 {
        type Summary = PartitionSet;

        fn note(&self, number: PartitionId, odd: &mut PartitionSet) {
            odd.set(number, !self.is_multiple_of(2));
        }
    }

    fn odd(map: &mut SummarizedMap<u32>) -> Vec<PartitionId> {
        map.summary().iter().collect()
    }

    #[test]
    fn the_summary_follows_what_is_inserted_and_changed() {
        let mut map = SummarizedMap::default();
        for number in 0..200 {
            map.insert(number, u32::from(number));
        }
        let expected: Vec<PartitionId> = (0..200).filter(|number| number % 2 == 1).collect();
        assert_eq!(odd(&mut map), expected);
        *map.get_mut(&8).expect("inserted") += 1;
        *map.get_mut(&9).expect("inserted") += 1;
        map.insert(11, 4);
        assert!(map.get_mut(&200).is_none());
        let expected: Vec<PartitionId> = (0..200)
            .filter(|number| number % 2 == 1 && ![9, 11].contains(number) || *number == 8)
            .collect();
        assert_eq!(odd(&mut map), expected);
        assert_eq!(map[&8], 9);
    }
}
