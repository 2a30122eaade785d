//! What a node that does not write a partition is to it.

use std::ops::RangeInclusive;

use penstock_net::link::Membership;

use crate::cluster::plan::file::ClusterFileError;
use crate::cluster::plan::placement::Draft;

/// What a node that does not write is to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Level `replica` waits for it, and it may be promoted.
    Sync,
    /// Level `replica` waits for it, and it may not be promoted yet.
    Joining,
    /// It gets what is written, and nobody waits for it.
    Learner,
}

impl Draft {
    /// What a node that does not write a partition is to it.
    #[must_use]
    pub fn standing(&self, partition: u16, node: u8) -> Option<Standing> {
        let partition = usize::from(partition);
        let assignment = self.file.assignments.get(partition)?;
        let mut members = assignment.members.iter();
        let (_, membership) = members.find(|(member, _)| *member == node)?;
        Some(match membership {
            Membership::Learner => Standing::Learner,
            Membership::Sync if self.file.joining[partition].contains(&node) => Standing::Joining,
            Membership::Sync => Standing::Sync,
        })
    }

    /// The nodes that level `replica` waits for in all of these partitions together, ascending, and
    /// whether there is one without any.
    #[must_use]
    pub fn waited_for(&self, partitions: &[u16]) -> (Vec<u8>, bool) {
        let mut nodes = Vec::new();
        let mut is_one_empty = false;
        for &partition in partitions {
            let members = &self.file.assignments[usize::from(partition)].members;
            let sync = members.iter().filter(|(_, it)| *it == Membership::Sync);
            let before = nodes.len();
            nodes.extend(sync.map(|&(node, _)| node));
            is_one_empty |= nodes.len() == before;
        }
        nodes.sort_unstable();
        nodes.dedup();
        (nodes, is_one_empty)
    }

    /// Makes a node a learner of those of these partitions of whose sync set it is.
    pub fn leave_sync(&mut self, partitions: &[u16], node: u8) {
        for &partition in partitions {
            let standing = self.standing(partition, node);
            if matches!(standing, Some(Standing::Sync | Standing::Joining)) {
                self.place(partition..=partition, node, Standing::Learner)
                    .expect("a member does not write it");
            }
        }
    }

    /// Makes a node, which writes none of these partitions, a member or learner of them. Returns
    /// how many were changed.
    ///
    /// # Errors
    /// The node writes one of the partitions. Nothing is changed.
    pub fn place(
        &mut self,
        partitions: RangeInclusive<u16>,
        node: u8,
        standing: Standing,
    ) -> Result<usize, ClusterFileError> {
        self.known(node)?;
        for partition in partitions.clone() {
            if self.assignment(partition)?.primary == node {
                return Err(self.fail(&format!(
                    "node {node} writes partition {partition}: let another node write it first, \
                     with `penstock cluster switch`, or `promote` if it is lost"
                )));
            }
        }
        let mut changed = 0;
        for partition in partitions {
            if self.standing(partition, node) == Some(standing) {
                continue;
            }
            changed += 1;
            let at = usize::from(partition);
            let members = &mut self.file.assignments[at].members;
            let joining = &mut self.file.joining[at];
            members.retain(|&(member, _)| member != node);
            joining.retain(|&member| member != node);
            let is_sync = |it: &&(u8, Membership)| it.1 == Membership::Sync;
            let sync = members.iter().filter(is_sync).count();
            match standing {
                Standing::Sync => members.insert(sync - joining.len(), (node, Membership::Sync)),
                Standing::Joining => {
                    members.insert(sync, (node, Membership::Sync));
                    joining.push(node);
                }
                Standing::Learner => members.push((node, Membership::Learner)),
            }
        }
        Ok(changed)
    }
}
