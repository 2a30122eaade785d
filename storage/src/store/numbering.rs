//! The versions that changes get: each partition has an epoch and a sequence of its own.

use crate::types::version::{Epochs, PARTITIONS, Sequences, Version};

/// Numbers the changes of a store.
#[derive(Debug)]
pub struct Numbering {
    /// With which the store was opened.
    opened: u32,
    /// With which each partition is written.
    epochs: Box<Epochs>,
    /// The last one given out in each partition.
    sequences: Box<Sequences>,
}

impl Numbering {
    /// Every partition goes on behind `sequences` with this epoch.
    pub(super) fn new(epoch: u32, sequences: Sequences) -> Self {
        Numbering {
            opened: epoch,
            epochs: Box::new([epoch; PARTITIONS]),
            sequences: Box::new(sequences),
        }
    }

    /// The epoch with which the store was opened: it writes with it wherever it does not lead in
    /// another.
    #[must_use]
    pub fn opened(&self) -> u32 {
        self.opened
    }

    /// The epoch with which a partition is written.
    #[must_use]
    pub fn epoch(&self, partition: usize) -> u32 {
        self.epochs[partition]
    }

    /// The last sequence given out in each partition.
    #[must_use]
    pub fn sequences(&self) -> &Sequences {
        &self.sequences
    }

    /// The last version given out in a partition, if it has the epoch of the next one.
    #[inline]
    pub(super) fn last(&self, partition: usize) -> Version {
        Version {
            epoch: self.epochs[partition],
            sequence: self.sequences[partition],
        }
    }

    /// The version of the next change of a partition.
    #[inline]
    pub(super) fn next(&mut self, partition: usize) -> Version {
        let sequence = &mut self.sequences[partition];
        *sequence += 1;
        Version {
            epoch: self.epochs[partition],
            sequence: *sequence,
        }
    }

    /// The next change of a partition has the epoch of `after` and the sequence behind it.
    pub(super) fn go_on_behind(&mut self, partition: usize, after: Version) {
        self.epochs[partition] = after.epoch;
        self.sequences[partition] = after.sequence;
    }

    /// Sequences go on behind these.
    pub(super) fn raise(&mut self, found: &Sequences) {
        for (last, &found) in self.sequences.iter_mut().zip(found) {
            *last = (*last).max(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_partition_rise_and_those_of_others_do_not_move() {
        let mut numbering = Numbering::new(7, [0; PARTITIONS]);
        let version = |epoch, sequence| Version { epoch, sequence };
        assert_eq!(numbering.next(3), version(7, 1));
        numbering.go_on_behind(3, version(9, 40));
        assert_eq!(numbering.next(3), version(9, 41));
        assert_eq!(numbering.next(4), version(7, 1));
        let mut found = [0; PARTITIONS];
        (found[3], found[4]) = (5, 5);
        numbering.raise(&found);
        assert_eq!(numbering.next(3), version(9, 42), "never back");
        assert_eq!(numbering.next(4), version(7, 6));
        assert_eq!((numbering.opened(), numbering.epoch(3)), (7, 9));
    }
}
