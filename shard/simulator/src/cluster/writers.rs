//! The judge of one rule: at each moment at most one node answers for a partition.
//!
//! It looks at all nodes behind each turn of one, and at each answer by when it was asked for.

use std::collections::{BTreeMap, BTreeSet};

use penstock_net::reply::ReplyItem;
use penstock_net::status::Status;
use penstock_shard::cluster::PartitionRole;

use super::client::{Operation, What};
use super::oracle::list_of;
use super::{NODES, Step, World, number_of};

/// Who has begun to answer for which partitions.
#[derive(Debug, Default)]
pub(super) struct Writers {
    /// The first node that answered in each generation of a partition, and since when.
    begun: BTreeMap<(u16, u32), (usize, u64)>,
    /// The generation in which each node has answered last.
    last: BTreeMap<(usize, u16), u32>,
    /// Who answered for what behind its last turn.
    answering: BTreeSet<(usize, u16)>,
}

impl World {
    /// Whether a node would answer for a partition if it were asked now, and in which generation.
    fn answers_for(&self, node: usize, partition: u16) -> Option<u32> {
        if self.now_us < self.nodes[node].paused_until_us {
            return None;
        }
        let status = self.nodes[node].partition(partition)?;
        if status.role != PartitionRole::Primary {
            return None;
        }
        let now_us = self.clocks[node].read(self.now_us);
        let end_us = self.nodes[node]
            .leases()
            .lease_end_us(partition, status.waits_for);
        (now_us < end_us).then(|| status.epoch.generation())
    }

    /// Behind what a node has done: nobody else answers for what it answers for.
    pub(super) fn judge_writers(&mut self, node: usize) -> Step {
        if self.deciders.is_none() {
            return Ok(());
        }
        for at in 0..self.partitions.len() {
            let partition = self.partitions[at];
            let Some(generation) = self.answers_for(node, partition) else {
                self.note_lapse(node, partition);
                continue;
            };
            for other in (0..NODES).filter(|&other| other != node) {
                if let Some(of_other) = self.answers_for(other, partition) {
                    return Err(format!(
                        "node {} answers for partition {partition} in generation {generation}, and \
                         node {} in generation {of_other}",
                        number_of(node),
                        number_of(other),
                    ));
                }
            }
            let now_us = self.now_us;
            let writers = &mut self.deciders.as_mut().expect("looked above").writers;
            let begun = writers.begun.entry((partition, generation));
            begun.or_insert((node, now_us));
            writers.last.insert((node, partition), generation);
            writers.answering.insert((node, partition));
        }
        Ok(())
    }

    /// A node does not answer for a partition. If it did before, and its plan still names it in the
    /// same generation, its lease has run out.
    fn note_lapse(&mut self, node: usize, partition: u16) {
        let assignment = &self.nodes[node].plan.partitions[usize::from(partition)];
        let named = (assignment.primary, assignment.generation);
        let writers = &mut self.deciders.as_mut().expect("the caller looked").writers;
        let generation = writers.last.get(&(node, partition)).copied();
        let did = writers.answering.remove(&(node, partition));
        if did && generation.is_some_and(|it| named == (number_of(node), it)) {
            self.meet("a lease ran out");
        }
    }

    /// Whether another node than this one had begun by then to answer for a partition, in a later
    /// generation than the last one of this node. What came later to this node is not its to
    /// answer. What came before may have run under its lease, and be answered later.
    fn has_another_begun(&self, node: usize, partition: u16, by_us: u64) -> bool {
        let Some(deciders) = &self.deciders else {
            return false;
        };
        let writers = &deciders.writers;
        let Some(&generation) = writers.last.get(&(node, partition)) else {
            return false;
        };
        let later = (partition, generation + 1)..=(partition, u32::MAX);
        let mut later = writers.begun.range(later);
        later.any(|(_, &(of, since_us))| of != node && since_us <= by_us)
    }
}

impl World {
    /// What is answered came before another node answered for the partition, and shows what it
    /// must.
    pub(super) fn judge_answer(
        &self,
        node: usize,
        operation: &Operation,
        item: &ReplyItem<'_>,
        came_us: u64,
    ) -> Step {
        let partition = operation.partition;
        if !shows_writer(item) {
            return Ok(());
        }
        if self.has_another_begun(node, partition, came_us) {
            return Err(format!(
                "node {} answers {:?} to what came at {came_us} about partition {partition}, for \
                 which another node answered by then",
                number_of(node),
                item.head.status,
            ));
        }
        let is_list = String::from_utf8_lossy(&operation.key).contains("list");
        match operation.what {
            What::Get if is_list => {
                let list = list_of(item.value).unwrap_or_default();
                self.judge_read(&operation.key, &list, came_us)
            }
            _ => Ok(()),
        }
    }

    /// The writer of a list shows all that was acknowledged at level `replica` before it was asked.
    pub(super) fn judge_read(&self, key: &[u8], list: &[u64], came_us: u64) -> Step {
        if self.deciders.is_none() {
            return Ok(());
        }
        match self.oracle.unread(key, list, came_us) {
            None => Ok(()),
            Some(number) => Err(format!(
                "{} is read at {came_us} without append {number}, which level replica had \
                 acknowledged: {list:?}",
                String::from_utf8_lossy(key)
            )),
        }
    }
}

/// Whether an answer tells what the writer of a partition has, or has done.
fn shows_writer(item: &ReplyItem<'_>) -> bool {
    let status = item.head.status;
    let is_of_writer = item.standing.is_none_or(|standing| standing.age_us == 0);
    let statuses = [
        Status::Ok,
        Status::NotFound,
        Status::VersionMismatch,
        Status::GuardFailed,
    ];
    is_of_writer && statuses.contains(&status)
}
