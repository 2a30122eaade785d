//! The plan of a cluster: who writes each partition, and who else holds it.

use penstock_net::link::Membership;
use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::placement::{NodeAddress, Placement, WriterRange};

use crate::replication::{Duty, Epoch, PartitionId, Role};

/// Who writes a partition and who else holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The generation in which it is written.
    pub generation: u32,
    /// The node that writes it.
    pub primary: u8,
    /// The other nodes that hold it.
    pub members: Vec<(u8, Membership)>,
    /// The primary does not begin by itself: the node that has written it so far hands it over.
    pub is_handed_over: bool,
    /// The primary may begin although it has started since it last followed, and so may have lost
    /// records that it had only received.
    pub is_loss_accepted: bool,
    /// The primary may begin even in the middle of a scan or a rewind, with what it has got of it:
    /// some keys older than others, or missing, or not deleted. No state that ever was.
    pub is_incomplete_accepted: bool,
}

impl Assignment {
    /// What a node is to the partition.
    pub(super) fn duty(&self, node: u8) -> Duty {
        let member = self.members.iter().find(|(member, _)| *member == node);
        match member {
            _ if self.primary == node => Duty::Primary,
            Some(&(_, membership)) => Duty::Member(membership),
            None => Duty::None,
        }
    }

    /// The nodes that level `replica` waits for, beside the primary.
    pub(super) fn sync_set(&self) -> impl Iterator<Item = u8> + '_ {
        let sync = |it: &&(u8, Membership)| it.1 == Membership::Sync;
        self.members.iter().filter(sync).map(|&(node, _)| node)
    }

    /// Whether `next` needs a generation of its own: from this sync set to the next one no node
    /// goes that knows of every acknowledgement at level `replica`. `joining` are nodes that are
    /// not proven to have all that was acknowledged before they were waited for.
    #[must_use]
    pub fn needs_generation(&self, next: &Assignment, joining: &[u8]) -> bool {
        let stays = |node| next.sync_set().any(|it| it == node);
        let has_left = !self.sync_set().all(stays);
        let was_empty = self.sync_set().next().is_none();
        let is_empty = next.sync_set().next().is_none();
        let is_proven = |node| !joining.contains(&node);
        !is_empty && (has_left || was_empty) && !next.sync_set().any(is_proven)
    }

    /// Has its primary go on in a new generation, with what it has.
    pub fn renew(&mut self) {
        self.generation += 1;
        self.is_handed_over = false;
        self.is_loss_accepted = false;
        self.is_incomplete_accepted = false;
    }

    /// The epoch in which its primary begins, if it is handed over to it.
    pub(super) fn handed_over(&self) -> Epoch {
        Epoch::new(self.generation, 0, self.primary)
    }

    /// Whether node `me`, in this role, hands the partition over to its primary, if it has written
    /// last. A writer of an older generation than the one before has missed a plan. Each handover
    /// keeps the old primary in the sync set, and a replacement by force does not: the partition
    /// was written by another node since, which hands it over.
    pub(super) fn may_be_handed_over_by(&self, me: u8, role: &Role) -> bool {
        let has_missed_some = matches!(role, Role::Primary { epoch, .. }
            if epoch.generation() + 1 < self.generation);
        let was_replaced = has_missed_some && !self.sync_set().any(|node| node == me);
        self.is_handed_over && self.primary != me && !was_replaced
    }

    /// Who holds the partition besides this node. Whoever writes it is one of them: what was
    /// executed here waits at level `replica` for all who may be promoted, and a successor that
    /// lacks it was promoted already.
    pub(super) fn others(&self, me: u8) -> Vec<(u8, Membership)> {
        let primary = (self.primary, Membership::Sync);
        let all = self.members.iter().copied().chain([primary]);
        all.filter(|&(node, _)| node != me).collect()
    }
}

/// What all nodes of a cluster know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// For each partition, ascending.
    pub partitions: Vec<Assignment>,
    /// The addresses of the nodes for clients, by their numbers.
    pub clients: Vec<(u8, String)>,
    /// Its number: later plans have higher ones. 0 if its home gives none.
    pub number: u64,
    /// Nodes decide by themselves who writes. A partition with a sync set is served only under a
    /// lease: [`crate::lease`].
    pub is_leased: bool,
    /// A change is acknowledged at level `disk` when so many members of the sync set have it, too,
    /// or all of them if there are fewer. 0 without leases.
    pub min_sync: usize,
}

impl Plan {
    pub(super) fn of(&self, partition: PartitionId) -> &Assignment {
        &self.partitions[usize::from(partition)]
    }

    /// Whether no other node may write a partition next than this one, as far as this plan says.
    pub(super) fn leaves_alone(&self, partition: PartitionId, me: u8) -> bool {
        let assignment = self.of(partition);
        assignment.primary == me && assignment.sync_set().next().is_none()
    }

    /// Whether an assignment is to a node of the cluster.
    pub(super) fn is_assigned(&self, assignment: &Assignment) -> bool {
        let mut nodes = self.clients.iter();
        nodes.any(|(node, _)| *node == assignment.primary)
    }

    /// What clients are told of it.
    #[must_use]
    pub fn placement(&self) -> Placement {
        let node = |(node, clients): &(u8, String)| NodeAddress {
            node: *node,
            clients: clients.clone(),
        };
        let mut writers: Vec<WriterRange> = Vec::new();
        for (partition, assignment) in (0..LINK_PARTITIONS).zip(&self.partitions) {
            let (node, generation) = (assignment.primary, assignment.generation);
            match writers.last_mut() {
                Some(range) if (range.node, range.generation) == (node, generation) => {
                    range.last = partition;
                }
                _ => writers.push(WriterRange {
                    first: partition,
                    last: partition,
                    node,
                    generation,
                }),
            }
        }
        Placement {
            // A change of who writes raises the generation of at least one partition and lowers
            // none.
            version: self.partitions.iter().map(|it| it.generation).sum(),
            nodes: self.clients.iter().map(node).collect(),
            writers,
        }
    }

    pub(super) fn clients_of(&self, node: u8) -> &str {
        let mut clients = self.clients.iter();
        clients
            .find(|(number, _)| *number == node)
            .map_or("", |(_, address)| address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sync: &[u8]) -> Assignment {
        let sync = sync.iter().map(|&node| (node, Membership::Sync));
        Assignment {
            generation: 3,
            primary: 1,
            members: sync.chain([(9, Membership::Learner)]).collect(),
            is_handed_over: true,
            is_loss_accepted: true,
            is_incomplete_accepted: true,
        }
    }

    #[test]
    fn a_sync_set_without_a_proven_node_needs_a_generation_unless_its_nodes_all_stay() {
        // Before, behind, of these joining.
        let needs = |before: &[u8], next: &[u8], joining: &[u8]| {
            of(before).needs_generation(&of(next), joining)
        };
        assert!(needs(&[2, 3], &[2], &[2]));
        assert!(needs(&[3], &[2], &[2]));
        assert!(needs(&[], &[2], &[2]));
        assert!(needs(&[2, 3], &[3], &[2, 3]));
        // One that is proven stays, or comes to be proven.
        assert!(!needs(&[2, 3], &[3], &[2]));
        assert!(!needs(&[3], &[2, 3], &[2]));
        assert!(!needs(&[2], &[2], &[]));
        // All stay that anybody was waited for at.
        assert!(!needs(&[2], &[2, 3], &[2, 3]));
        // Nobody is waited for.
        assert!(!needs(&[2, 3], &[], &[2]));
        assert!(!needs(&[], &[], &[]));
    }

    #[test]
    fn a_primary_goes_on_in_the_next_generation_without_a_handover_and_without_a_loss() {
        let mut renewed = of(&[2]);
        renewed.renew();
        let expected = Assignment {
            generation: 4,
            is_handed_over: false,
            is_loss_accepted: false,
            is_incomplete_accepted: false,
            ..of(&[2])
        };
        assert_eq!(renewed, expected);
    }
}
