//! Local records: what a node notes about a partition for itself.
//!
//! Local records stand in the log and are synced, replayed and cleaned with it. They are no data of
//! the partition: they take no sequence, the index leaves them out, and they are never shipped. The
//! newest local record of each partition counts, and stays in memory. Its version is epoch 0 and a
//! count.

use std::collections::BTreeMap;

use crate::format::contents::History;
use crate::format::record::{PartKind, PartView};
use crate::types::place::Place;
use crate::types::version::{PARTITIONS, Version, partition_of};

/// What a log of a node of a cluster tells of one partition, beside its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionEntry<'a> {
    /// Its number.
    pub partition: u8,
    /// The highest version, as far as it is told.
    pub last: Version,
    /// Up to which sequence its records may be gone from the log.
    pub forgotten: u64,
    /// The highest sequence of any record, also of one that has diverged.
    pub highest: u64,
    /// The newest local record: its count, where it stands, and its value.
    pub local: Option<(u64, Place, &'a [u8])>,
    /// The newest record of epochs: its version and value.
    pub epochs: Option<(Version, &'a [u8])>,
}

/// The newest local record of one partition.
#[derive(Clone, Debug)]
pub(crate) struct LocalRecord {
    pub(crate) count: u64,
    pub(crate) place: Place,
    pub(crate) value: Vec<u8>,
}

/// The newest local record of each partition that has one.
#[derive(Debug, Default)]
pub struct LocalRecords {
    of: Vec<Option<LocalRecord>>,
    /// The newest record of epochs of each partition.
    epochs: BTreeMap<usize, (Version, Vec<u8>)>,
}

impl LocalRecords {
    /// The value of the newest one of a partition, by one of its slots.
    #[must_use]
    pub fn value(&self, slot: u16) -> Option<&[u8]> {
        self.get(slot).map(|newest| newest.value.as_slice())
    }

    pub(crate) fn get(&self, slot: u16) -> Option<&LocalRecord> {
        self.of.get(partition_of(slot))?.as_ref()
    }

    /// Whether the newest one of the partition stands there.
    pub(crate) fn stands_at(&self, slot: u16, place: Place) -> bool {
        self.get(slot).is_some_and(|newest| newest.place == place)
    }

    /// Takes in a record that was logged or replayed. Where the one stood that counts no more:
    /// itself, if a newer one is known.
    pub(crate) fn take(&mut self, part: &PartView<'_>, place: Place) -> Option<Place> {
        assert!(
            part.kind() == PartKind::Put,
            "a local record is never deleted"
        );
        self.put(part.slot(), part.sequence(), place, part.value())
    }

    pub(crate) fn put(
        &mut self,
        slot: u16,
        count: u64,
        place: Place,
        value: &[u8],
    ) -> Option<Place> {
        self.put_of(partition_of(slot), count, place, value)
    }

    fn put_of(
        &mut self,
        partition: usize,
        count: u64,
        place: Place,
        value: &[u8],
    ) -> Option<Place> {
        self.of.resize(PARTITIONS, None);
        let known = &mut self.of[partition];
        if known.as_ref().is_some_and(|known| known.count > count) {
            return Some(place);
        }
        let newest = LocalRecord {
            count,
            place,
            value: value.to_vec(),
        };
        known.replace(newest).map(|before| before.place)
    }

    /// Takes note of a record of epochs. None is ever deleted.
    pub(crate) fn see(&mut self, part: &PartView<'_>) {
        self.see_epochs(partition_of(part.slot()), part.version(), part.value());
    }

    fn see_epochs(&mut self, partition: usize, version: Version, value: &[u8]) {
        let known = self.epochs.entry(partition).or_default();
        if version >= known.0 {
            *known = (version, value.to_vec());
        }
    }

    /// Visits every partition that a log with this history has facts of.
    pub(crate) fn walk(&self, history: &History, visit: &mut impl FnMut(PartitionEntry<'_>)) {
        for partition in 0..PARTITIONS {
            let local = self.of.get(partition).and_then(Option::as_ref);
            let epochs = self.epochs.get(&partition);
            let entry = PartitionEntry {
                partition: u8::try_from(partition).expect("256 partitions"),
                last: history.last(partition),
                forgotten: history.forgotten[partition],
                highest: history.reached.highest(partition),
                local: local.map(|it| (it.count, it.place, it.value.as_slice())),
                epochs: epochs.map(|(version, value)| (*version, value.as_slice())),
            };
            let has_notes = local.is_some() || epochs.is_some();
            if has_notes || entry.last.sequence > 0 || entry.highest > 0 || entry.forgotten > 0 {
                visit(entry);
            }
        }
    }

    /// Takes in what a snapshot tells, but for a local record that does not stand where it tells:
    /// the log behind the snapshot has that one, or a newer one.
    pub(crate) fn restore(&mut self, entry: &PartitionEntry<'_>, is_covered: bool) {
        let partition = usize::from(entry.partition);
        if let Some((count, place, value)) = entry.local.filter(|_| is_covered) {
            self.put_of(partition, count, place, value);
        }
        if let Some((version, value)) = entry.epochs {
            self.see_epochs(partition, version, value);
        }
    }

    /// The value of the newest record of epochs of a partition, by one of its slots.
    #[must_use]
    pub fn epochs_found(&self, slot: u16) -> Option<&[u8]> {
        let (_, value) = self.epochs.get(&partition_of(slot))?;
        Some(value)
    }

    /// A copy of the newest one stands elsewhere now.
    pub(crate) fn moved(&mut self, slot: u16, to: Place) {
        if let Some(Some(newest)) = self.of.get_mut(partition_of(slot)) {
            newest.place = to;
        }
    }
}
