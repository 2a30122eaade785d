//! Something of each partition, found by its number: several are looked at for each record.

use std::ops::Index;
use std::slice;

use penstock_net::link::message::LINK_PARTITIONS;

use super::PartitionId;

type Entry<T> = Option<(PartitionId, T)>;

/// A map with the numbers of partitions as keys, ascending.
#[derive(Debug)]
pub struct PartitionMap<T> {
    entries: Vec<Entry<T>>,
}

impl<T> Default for PartitionMap<T> {
    fn default() -> Self {
        PartitionMap {
            entries: Vec::new(),
        }
    }
}

impl<T> PartitionMap<T> {
    /// One that holds nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What is held of a partition.
    #[inline]
    #[must_use]
    pub fn get(&self, partition: &PartitionId) -> Option<&T> {
        let entry = self.entries.get(usize::from(*partition))?.as_ref()?;
        Some(&entry.1)
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, partition: &PartitionId) -> Option<&mut T> {
        let entry = self.entries.get_mut(usize::from(*partition))?.as_mut()?;
        Some(&mut entry.1)
    }

    /// Whether something is held of a partition.
    #[must_use]
    pub fn contains_key(&self, partition: &PartitionId) -> bool {
        self.get(partition).is_some()
    }

    /// Holds this of a partition from now on.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn insert(&mut self, partition: PartitionId, value: T) {
        assert!(partition < LINK_PARTITIONS, "partition {partition}");
        let at = usize::from(partition);
        if self.entries.len() <= at {
            self.entries.resize_with(at + 1, || None);
        }
        self.entries[at] = Some((partition, value));
    }

    /// Their numbers.
    pub fn keys(&self) -> impl Iterator<Item = &PartitionId> {
        self.entries
            .iter()
            .flatten()
            .map(|(partition, _)| partition)
    }

    /// What is held.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten().map(|(_, value)| value)
    }

    /// Both.
    pub fn iter(&self) -> impl Iterator<Item = (&PartitionId, &T)> {
        self.into_iter()
    }
}

impl<T> Index<&PartitionId> for PartitionMap<T> {
    type Output = T;

    fn index(&self, partition: &PartitionId) -> &T {
        self.get(partition).expect("it is one of this shard")
    }
}

impl<T> FromIterator<(PartitionId, T)> for PartitionMap<T> {
    fn from_iter<I: IntoIterator<Item = (PartitionId, T)>>(entries: I) -> Self {
        let mut map = PartitionMap::new();
        for (partition, value) in entries {
            map.insert(partition, value);
        }
        map
    }
}

impl<'a, T> IntoIterator for &'a PartitionMap<T> {
    type Item = (&'a PartitionId, &'a T);
    type IntoIter = std::iter::FilterMap<
        slice::Iter<'a, Entry<T>>,
        fn(&'a Entry<T>) -> Option<(&'a PartitionId, &'a T)>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter().filter_map(|entry| {
            let (partition, value) = entry.as_ref()?;
            Some((partition, value))
        })
    }
}
