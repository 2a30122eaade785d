//! What a shard tells of its partitions to who decides for its node: `FAILOVER.md`.

use penstock_storage::io::{Block, Blocks};
use penstock_storage::place::Lsn;
use penstock_storage::store::Store;

use crate::lease::{LeaseTable, MemberStanding, Standing};
use crate::replication::link_set::LinkSet;
use crate::replication::{Epoch, Partition, PartitionId, Role};

use super::plan::Plan;
use super::promotions::Promotions;
use super::proofs::Proofs;

/// Reads the state of a cluster member, and tells it.
pub(super) struct Standings<'a, B> {
    pub(super) links: &'a LinkSet<B>,
    pub(super) plan: &'a Plan,
    pub(super) me: u8,
    pub(super) promotions: &'a Promotions,
    pub(super) proofs: &'a mut Proofs,
    pub(super) table: &'a LeaseTable,
}

impl<B: Block> Standings<'_, B> {
    /// Tells of each partition how it stands, and of each other node that holds what is written
    /// here.
    pub(super) fn publish<P: Blocks<Block = B>>(mut self, store: &Store<P>) {
        // Nothing can be noted in such a log: a begin waits for it.
        let can_note = !store.log().lacks_any_spare();
        for partition in self.links.partitions() {
            let state = self.links.partition(partition).expect("the shard's");
            let is_candidate = state.is_whole() && state.has_followed();
            let is_able = self.is_able(partition, state, can_note);
            let standing = Standing {
                is_turning: true,
                is_candidate,
                is_able,
                is_awaiting: !is_able && is_candidate && can_note && self.is_due(partition),
                sequence: state.received().sequence,
            };
            self.table.set_standing(partition, standing);
            if self.plan.of(partition).primary == self.me {
                self.report_members(partition);
            }
        }
    }

    /// Whether this node writes a partition as its plan says, or is able to begin.
    fn is_able(&self, partition: PartitionId, state: &Partition, can_note: bool) -> bool {
        let assignment = self.plan.of(partition);
        if assignment.primary != self.me {
            return false;
        }
        match *state.role() {
            Role::Primary { epoch, begun } if epoch.generation() == assignment.generation => {
                begun.is_some() || can_note
            }
            _ => can_note && self.promotions.has(partition, assignment.generation),
        }
    }

    /// Whether the plan has a partition handed over to this node.
    fn is_due(&self, partition: PartitionId) -> bool {
        let assignment = self.plan.of(partition);
        assignment.primary == self.me && assignment.is_handed_over
    }

    fn report_members(&mut self, partition: PartitionId) {
        for &(node, _) in &self.plan.of(partition).members {
            let begun = self.begun(partition);
            let received =
                begun.and_then(|(epoch, _)| self.links.received_by(node, partition, epoch));
            let is_proven =
                begun.is_some_and(|it| self.proofs.is_proven(partition, node, it, received));
            let standing = MemberStanding {
                plan: self.plan.number,
                has_joined: received.is_some(),
                is_proven,
            };
            self.table.promise_member(node, partition, standing);
        }
    }

    /// The epoch of the plan's generation that this node has begun, and its first record.
    fn begun(&self, partition: PartitionId) -> Option<(Epoch, Lsn)> {
        let generation = self.plan.of(partition).generation;
        match *self.links.partition(partition)?.role() {
            Role::Primary {
                epoch,
                begun: Some(begun),
            } if epoch.generation() == generation => Some((epoch, begun)),
            _ => None,
        }
    }
}
