//! What clients have written, told to the partitions.

use penstock_storage::version::Sequences;

use crate::replication::PartitionId;
use crate::replication::receiver::Partitions;

/// Sequences that are compared at once.
const CHUNK: usize = 8;

/// How far the partitions were told what clients have written.
#[derive(Debug)]
pub(super) struct Commits {
    /// By partition: the last sequence that the store had.
    followed: Box<Sequences>,
}

impl Default for Commits {
    /// Nothing was written.
    fn default() -> Self {
        Commits {
            followed: Box::new([0; _]),
        }
    }
}

impl Commits {
    /// Tells each partition whose sequence has changed since the last call how far it is written.
    pub(super) fn follow(&mut self, sequences: &Sequences, partitions: &mut Partitions) {
        let chunks = sequences.chunks_exact(CHUNK);
        let followed = self.followed.chunks_exact_mut(CHUNK);
        for (first, (now, before)) in (0..).step_by(CHUNK).zip(chunks.zip(followed)) {
            if now == before {
                continue;
            }
            for (number, (now, before)) in (first..).zip(now.iter().zip(before)) {
                let number: PartitionId = number;
                if std::mem::replace(before, *now) != *now
                    && let Some(state) = partitions.get_mut(&number)
                {
                    state.written_up_to(*now);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_net::link::Position;
    use penstock_storage::place::Lsn;

    use super::*;
    use crate::replication::tests::Noted;
    use crate::replication::{EpochHistory, Facts, Partition};

    #[test]
    fn each_partition_that_is_written_here_follows_its_sequence_and_no_other_does() {
        let mut partitions = Partitions::default();
        for number in [0, 3, 7, 8, 255] {
            let (facts, history) = (Facts::default(), EpochHistory::default());
            let at = Position::default();
            let mut partition = Partition::recovered(number, facts, history, at);
            if number != 7 {
                partition.begin(1, 1, true, &mut Noted).expect("by force");
                partition.begun(1, Lsn(1), &mut Noted);
            }
            partitions.insert(number, partition);
        }
        let mut commits = Commits::default();
        let mut sequences = [0; _];
        let applied = |partitions: &Partitions| {
            let all = partitions.values();
            all.map(|it| it.applied().sequence).collect::<Vec<_>>()
        };
        for number in [0, 3, 7, 8, 255] {
            sequences[number] = 1;
        }
        commits.follow(&sequences, &mut partitions);
        assert_eq!(applied(&partitions), [1, 1, 0, 1, 1]);
        (sequences[3], sequences[7], sequences[255]) = (5, 6, 9);
        commits.follow(&sequences, &mut partitions);
        assert_eq!(applied(&partitions), [1, 5, 0, 1, 9]);
        sequences[8] = 2;
        commits.follow(&sequences, &mut partitions);
        assert_eq!(applied(&partitions), [1, 5, 0, 2, 9]);
    }
}
