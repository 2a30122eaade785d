//! Which members of what this node writes have all that was acknowledged before they came to count.
//!
//! A reply at level `replica` waits for each member that counts. So a member that has received all
//! that was appended before it came to count has all that was ever acknowledged, as long as it
//! counts.

use std::collections::BTreeMap;

use penstock_net::link::Membership;
use penstock_storage::place::Lsn;

use crate::replication::{Epoch, PartitionId};

use super::plan::Assignment;

/// The members that count, by partition and node.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    all: BTreeMap<(PartitionId, u8), Proof>,
}

/// A member that counts.
#[derive(Debug)]
struct Proof {
    /// Up to which record the log had been appended when it came to count.
    behind: Lsn,
    /// The epoch of this node in which it was proven.
    proven: Option<Epoch>,
}

impl Proofs {
    /// The plan of a partition is another one from now on; the log is appended up to there. Who
    /// counted in the same generation goes on.
    pub(super) fn place(
        &mut self,
        partition: PartitionId,
        before: Option<&Assignment>,
        now: &Assignment,
        appended: Lsn,
    ) {
        let written = |it: &Assignment| (it.primary, it.generation);
        let goes_on = before.is_some_and(|before| written(before) == written(now));
        for node in before.iter().flat_map(|it| it.members.iter()) {
            let counts = now.members.contains(&(node.0, Membership::Sync));
            if !goes_on || !counts {
                self.all.remove(&(partition, node.0));
            }
        }
        for node in now.sync_set() {
            self.all.entry((partition, node)).or_insert(Proof {
                behind: appended,
                proven: None,
            });
        }
    }

    /// Whether a member is proven, which has received all up to `received`. This node has begun
    /// its epoch with that record.
    pub(super) fn is_proven(
        &mut self,
        partition: PartitionId,
        node: u8,
        (epoch, begun): (Epoch, Lsn),
        received: Option<Lsn>,
    ) -> bool {
        let Some(proof) = self.all.get_mut(&(partition, node)) else {
            return false;
        };
        if received.is_some_and(|received| received >= proof.behind.max(begun)) {
            proof.proven = Some(epoch);
        }
        proof.proven == Some(epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(generation: u32, sync: &[u8]) -> Assignment {
        let sync = sync.iter().map(|&node| (node, Membership::Sync));
        Assignment {
            generation,
            primary: 1,
            members: sync.chain([(9, Membership::Learner)]).collect(),
            is_handed_over: false,
            is_loss_accepted: false,
            is_incomplete_accepted: false,
        }
    }

    const FIRST: (Epoch, Lsn) = (Epoch(3 << 18), Lsn(20));

    /// Node 2 counts since record 30, and is proven.
    fn proven() -> Proofs {
        let mut proofs = Proofs::default();
        proofs.place(7, None, &of(3, &[]), Lsn(10));
        proofs.place(7, Some(&of(3, &[])), &of(3, &[2]), Lsn(30));
        assert!(proofs.is_proven(7, 2, FIRST, Some(Lsn(30))));
        proofs
    }

    #[test]
    fn who_has_what_was_appended_before_it_came_to_count_is_proven_and_stays_so() {
        let mut proofs = Proofs::default();
        proofs.place(7, None, &of(3, &[2]), Lsn(10));
        assert!(!proofs.is_proven(7, 2, FIRST, None));
        assert!(!proofs.is_proven(7, 2, FIRST, Some(Lsn(19))), "not begun");
        assert!(proofs.is_proven(7, 2, FIRST, Some(Lsn(20))));
        assert!(proofs.is_proven(7, 2, FIRST, None), "its link has ended");
        assert!(!proofs.is_proven(7, 9, FIRST, Some(Lsn(90))), "a learner");
        assert!(!proofs.is_proven(8, 2, FIRST, Some(Lsn(90))));
    }

    #[test]
    fn a_gap_in_the_plans_begins_a_proof_anew() {
        let mut proofs = proven();
        proofs.place(7, Some(&of(3, &[2])), &of(3, &[2, 4]), Lsn(40));
        assert!(proofs.is_proven(7, 2, FIRST, None), "it counts on");
        proofs.place(7, Some(&of(3, &[2, 4])), &of(3, &[4]), Lsn(50));
        assert!(!proofs.is_proven(7, 2, FIRST, Some(Lsn(90))));
        proofs.place(7, Some(&of(3, &[4])), &of(3, &[2, 4]), Lsn(60));
        assert!(!proofs.is_proven(7, 2, FIRST, Some(Lsn(59))));
        assert!(proofs.is_proven(7, 2, FIRST, Some(Lsn(60))));
    }

    #[test]
    fn a_generation_or_an_epoch_begins_a_proof_anew() {
        let mut proofs = proven();
        let next = (Epoch(4 << 18), Lsn(80));
        assert!(!proofs.is_proven(7, 2, next, Some(Lsn(79))));
        let mut proofs = proven();
        proofs.place(7, Some(&of(3, &[2])), &of(4, &[2]), Lsn(70));
        assert!(!proofs.is_proven(7, 2, FIRST, Some(Lsn(69))));
        assert!(!proofs.is_proven(7, 2, next, Some(Lsn(79))));
        assert!(proofs.is_proven(7, 2, next, Some(Lsn(80))));
    }
}
