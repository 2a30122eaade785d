//! What must hold in a run and at its end.

use super::*;

impl World {
    /// What a member applies by a link, its source cannot lose.
    pub(super) fn check_durable(&self, from: usize, partition: PartitionId, position: Position) {
        let log = &self.nodes[from].log;
        let is_lossy = log.records().any(|(lsn, record)| {
            record.partition == partition
                && record.position == position
                && lsn > log.durable()
                && !record.is_copy
        });
        assert!(
            !is_lossy,
            "{position:?} of {partition} is applied and node {from} may lose it"
        );
    }

    pub(super) fn check_end(&self) {
        for node in &self.nodes {
            assert!(
                node.gates.is_empty(),
                "node {} lets {} wait for ever",
                node.number,
                node.gates.len()
            );
        }
        for partition in PARTITIONS {
            let primary = &self.nodes[self.plan[&partition].primary];
            let state = &primary.partitions[&partition];
            let of = |node: &Node| -> Vec<(Vec<u8>, Position, Option<u64>)> {
                let keys = &self.keys[&partition];
                let found = keys.iter().filter_map(|key| {
                    let &(position, value, _) = node.index.get(key)?;
                    Some((key.clone(), position, value))
                });
                found.collect()
            };
            for node in &self.nodes {
                let here = &node.partitions[&partition];
                assert!(here.is_readable(), "node {}: {here:?}", node.number);
                assert_eq!(here.applied(), state.applied(), "node {}", node.number);
                assert_eq!(of(node), of(primary), "node {} differs", node.number);
            }
            for acked in self
                .acked_disk
                .iter()
                .filter(|acked| acked.partition == partition)
            {
                let is_there = state.history().contains(acked.at, state.applied());
                let place = (partition, acked.at);
                let is_told = self
                    .nodes
                    .iter()
                    .any(|node| node.lostfound.contains(&place));
                assert!(
                    is_there || is_told || self.forgiven.contains(&place),
                    "{:?} of {partition} was acknowledged, is gone, and no lostfound has it",
                    acked.at
                );
            }
            for acked in self
                .acked_replica
                .iter()
                .filter(|acked| acked.partition == partition)
            {
                assert!(state.history().contains(acked.at, state.applied()));
            }
        }
        // What is on the way is none of the log's.
        for node in &self.nodes {
            for (_, record) in node.log.records() {
                assert_eq!(records(record.bytes).count(), 1);
            }
        }
    }
}
