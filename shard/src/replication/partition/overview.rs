//! What is known of all partitions of a shard together.

use penstock_net::link::PartitionSet;
use penstock_net::link::message::LINK_PARTITIONS;
use penstock_storage::place::Lsn;

use crate::replication::PartitionId;
use crate::replication::epoch::Epoch;
use crate::replication::summarized_map::Summarized;

use super::{Partition, Role};

/// Which partitions something is to be done for, and which may be written.
#[derive(Debug)]
pub struct Overview {
    holding: PartitionSet,
    beginning: PartitionSet,
    primaries: PartitionSet,
    lagging: PartitionSet,
    /// By partition: the epoch in which it may be opened, and the first record of the epoch.
    openings: Box<[Option<(Epoch, Lsn)>; LINK_PARTITIONS as usize]>,
    changes: u64,
    /// The last first record of all.
    begun: Lsn,
}

impl Default for Overview {
    /// No partition is there.
    fn default() -> Self {
        Overview {
            holding: PartitionSet::none(),
            beginning: PartitionSet::none(),
            primaries: PartitionSet::none(),
            lagging: PartitionSet::none(),
            openings: Box::new([None; LINK_PARTITIONS as usize]),
            changes: 0,
            begun: Lsn(0),
        }
    }
}

impl Overview {
    /// Partitions that have received something and not applied it.
    #[must_use]
    pub fn holding(&self) -> PartitionSet {
        self.holding
    }

    /// Partitions that this node begins to write, and whose first record was not appended.
    #[must_use]
    pub fn beginning(&self) -> PartitionSet {
        self.beginning
    }

    /// Partitions that this node writes or begins to write.
    #[must_use]
    pub fn primaries(&self) -> PartitionSet {
        self.primaries
    }

    /// Partitions that this node neither writes nor follows up to a JOIN.
    #[must_use]
    pub fn lagging(&self) -> PartitionSet {
        self.lagging
    }

    /// A stamp that changes with each partition that may be opened and written from now on, or not
    /// any more, or in another epoch. The log is durable up to `durable`. `None` while a first
    /// record is not durable, because each turn may find it durable.
    #[must_use]
    pub fn openings_stamp(&self, durable: Lsn) -> Option<u64> {
        (self.begun <= durable).then_some(self.changes)
    }
}

impl Summarized for Partition {
    type Summary = Overview;

    fn note(&self, number: PartitionId, overview: &mut Overview) {
        let role = &self.role;
        let is_primary = matches!(role, Role::Primary { .. });
        let begins = matches!(role, Role::Primary { begun: None, .. });
        let is_lagging = !is_primary && !self.is_readable();
        overview.holding.set(number, !self.pending.is_empty());
        overview.beginning.set(number, begins);
        overview.primaries.set(number, is_primary);
        overview.lagging.set(number, is_lagging);
        let opening = self.opening();
        let before = &mut overview.openings[usize::from(number)];
        if std::mem::replace(before, opening) != opening {
            overview.changes += 1;
        }
        if let Some((_, begun)) = opening {
            overview.begun = overview.begun.max(begun);
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_net::link::Position;

    use super::*;
    use crate::replication::receiver::Partitions;
    use crate::replication::tests::Noted;
    use crate::replication::{EpochHistory, Facts};

    #[test]
    fn a_partition_that_is_begun_is_distinguished_before_and_behind_its_first_record() {
        let mut partitions = Partitions::default();
        for number in [3, 4] {
            let (facts, history) = (Facts::default(), EpochHistory::default());
            let partition = Partition::recovered(number, facts, history, Position::default());
            partitions.insert(number, partition);
        }
        let lists = |partitions: &mut Partitions| {
            let overview = partitions.summary();
            let sets = [
                overview.beginning(),
                overview.primaries(),
                overview.lagging(),
            ];
            sets.map(|set| set.iter().collect::<Vec<_>>())
        };
        let none = Vec::new;
        assert_eq!(lists(&mut partitions), [none(), none(), vec![3, 4]]);
        let before = partitions.summary().openings_stamp(Lsn(0));
        assert!(before.is_some(), "nothing waits for the disk");

        let state = partitions.get_mut(&3).expect("inserted");
        state.begin(1, 1, true, &mut Noted).expect("by force");
        assert_eq!(lists(&mut partitions), [vec![3], vec![3], vec![4]]);
        assert_eq!(partitions.summary().openings_stamp(Lsn(0)), before);

        let state = partitions.get_mut(&3).expect("inserted");
        state.begun(1, Lsn(7), &mut Noted);
        assert_eq!(lists(&mut partitions), [none(), vec![3], vec![4]]);
        assert_eq!(partitions.summary().openings_stamp(Lsn(6)), None);
        let begun = partitions.summary().openings_stamp(Lsn(7));
        assert!(begun > before, "it may be opened now");

        let state = partitions.get_mut(&3).expect("inserted");
        state.written_up_to(9);
        assert_eq!(partitions.summary().openings_stamp(Lsn(9)), begun);
        let state = partitions.get_mut(&3).expect("inserted");
        state.depose(Epoch::new(2, 0, 2), &mut Noted);
        assert_eq!(lists(&mut partitions), [none(), none(), vec![3, 4]]);
        assert!(partitions.summary().openings_stamp(Lsn(9)) > begun);
    }
}
