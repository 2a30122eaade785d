//! When a node needs the next generation of what it writes, because it has started often in the
//! present one: `shard/FAILOVER.md`. Pure.

use penstock_net::link::PartitionSet;
use penstock_shard::cluster::{PartitionRole, PartitionStatus};
use penstock_shard::replication::Epoch;

use crate::cluster::plan::file::ClusterFile;

/// From so many starts on. The rest, 63, is for starts while the home is silent.
const STARTS: u32 = 960;
const _: () = assert!(STARTS < Epoch::START_MAX);

/// The partitions that node `me` is to write in their next generation, if any.
pub(crate) fn renewals<'a>(
    file: &ClusterFile,
    me: u8,
    partitions: impl IntoIterator<Item = &'a PartitionStatus>,
) -> Option<PartitionSet> {
    let is_due = |it: &&PartitionStatus| {
        let assignment = &file.assignments[usize::from(it.partition)];
        // A primary that waits for a handover would begin without it.
        let has_begun = !assignment.is_handed_over || it.role == PartitionRole::Primary;
        assignment.primary == me
            && has_begun
            && it.epoch.node() == me
            && it.epoch.generation() == assignment.generation
            && it.epoch.start() >= STARTS
            && assignment.generation < Epoch::GENERATION_MAX
    };
    let due: Vec<u16> = partitions
        .into_iter()
        .filter(is_due)
        .map(|it| it.partition)
        .collect();
    (!due.is_empty()).then(|| due.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use penstock_shard::replication::Duty;

    use super::*;

    fn file(handover: &str) -> ClusterFile {
        let text = format!(
            "version = 1\ncluster_id = \"000102030405060708090a0b0c0d0e0f\"\nrevision = 7\n\
             [[node]]\nnumber = 1\nlinks = \"127.0.0.1:7414\"\nclients = \"a:1\"\n\
             [[node]]\nnumber = 2\nlinks = \"127.0.0.2:7414\"\nclients = \"b:1\"\n\
             [[placement]]\npartitions = [0, 99]\ngeneration = 5\nprimary = 1\nsync = [2]\n\
             {handover}[[placement]]\npartitions = [100, 199]\ngeneration = 5\nprimary = 2\n\
             [[placement]]\npartitions = [200, 255]\ngeneration = 16383\nprimary = 1\n"
        );
        ClusterFile::without_secret(text).expect("good")
    }

    fn status(partition: u16, (generation, start): (u32, u32), node: u8) -> PartitionStatus {
        PartitionStatus {
            partition,
            role: PartitionRole::Primary,
            duty: Duty::Primary,
            epoch: Epoch::new(generation, start, node),
            applied: 1,
            received: 1,
            was_last: true,
            waits_for: Vec::new(),
            durable: 1,
            hangs_on: None,
        }
    }

    #[test]
    fn a_node_asks_for_the_next_generation_of_what_it_writes_well_before_its_starts_end() {
        let statuses = [
            status(0, (5, 959), 1),
            status(1, (5, 960), 1),
            status(2, (5, 1023), 1),
            // Another generation, another node, another primary, and no generation left.
            status(3, (4, 1000), 1),
            status(4, (5, 1000), 2),
            status(100, (5, 1000), 2),
            status(200, (16383, 1000), 1),
        ];
        let due = renewals(&file(""), 1, &statuses);
        assert_eq!(due, Some([1, 2].into_iter().collect()));
        assert_eq!(renewals(&file(""), 1, &statuses[..1]), None);
        // The starts are used up, so it does not begin and is no primary.
        let mut waits = status(2, (5, 1023), 1);
        waits.role = PartitionRole::Idle;
        assert!(renewals(&file(""), 1, [&waits]).is_some());
        assert!(renewals(&file("handover = true\n"), 1, [&waits]).is_none());
        assert!(renewals(&file("handover = true\n"), 1, &statuses[1..2]).is_some());
    }
}
