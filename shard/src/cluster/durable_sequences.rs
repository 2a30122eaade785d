//! Up to which sequence each partition is durable in the log of its shard.

use penstock_net::link::message::LINK_PARTITIONS;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::store::Store;

use crate::replication::PartitionId;

type Sequences = [u64; LINK_PARTITIONS as usize];

/// A sample of what was durable, and one of what is to be durable next.
#[derive(Debug)]
pub(super) struct DurableSequences {
    durable: Sequences,
    /// The sequences of a moment, which are durable with this record.
    appended: (Lsn, Sequences),
}

impl DurableSequences {
    /// Nothing was sampled so far.
    pub(super) fn none() -> Self {
        DurableSequences {
            durable: [0; LINK_PARTITIONS as usize],
            appended: (Lsn(0), [0; LINK_PARTITIONS as usize]),
        }
    }

    /// The sequence up to which a partition was durable at the last sample.
    pub(super) fn of(&self, partition: PartitionId) -> u64 {
        self.durable[usize::from(partition)]
    }

    /// Takes another sample if the last one is durable; `applied` has the sequence of the last
    /// record of each partition.
    pub(super) fn sample<P: Blocks>(
        &mut self,
        store: &Store<P>,
        applied: impl Iterator<Item = (PartitionId, u64)>,
    ) {
        let log = store.log();
        if self.appended.0 > log.durable() {
            return;
        }
        self.durable = self.appended.1;
        self.appended.0 = log.appended();
        for (partition, sequence) in applied {
            self.appended.1[usize::from(partition)] = sequence;
        }
        if self.appended.0 <= log.durable() {
            self.durable = self.appended.1;
        }
    }
}
