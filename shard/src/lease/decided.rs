//! What a node wishes to change in the plan, and the change.

use std::fmt;

use penstock_net::link::message::GENERATION_MAX;
use penstock_net::link::{Membership, PartitionSet};

use crate::cluster::Assignment;

/// What the plan says of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placing {
    /// Who writes it and who holds it.
    pub assignment: Assignment,
    /// Members that are waited for, and may not be promoted yet.
    pub joining: Vec<u8>,
}

/// A change that a node asks the plan's home for, by one swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The node writes these partitions from now on; the one that is lost is a learner.
    TakeOver {
        /// The node that is lost.
        from: u8,
        /// What it has written.
        partitions: PartitionSet,
    },
    /// Members that confirm nothing become learners.
    Remove {
        /// Each of them, and of what.
        silent: Vec<(u8, PartitionSet)>,
    },
    /// A learner is waited for from now on.
    Join {
        /// The learner.
        node: u8,
        /// Of what.
        partitions: PartitionSet,
    },
    /// A joining member has everything, and may be promoted from now on.
    Admit {
        /// The member.
        node: u8,
        /// Of what.
        partitions: PartitionSet,
    },
}

impl Placing {
    /// The nodes that level `replica` and the lease wait for.
    pub fn sync(&self) -> impl Iterator<Item = u8> + '_ {
        let is_sync = |it: &&(u8, Membership)| it.1 == Membership::Sync;
        let members = self.assignment.members.iter();
        members.filter(is_sync).map(|&(node, _)| node)
    }

    /// Whether a node may be promoted.
    #[must_use]
    pub fn is_promotable(&self, node: u8) -> bool {
        self.sync().any(|it| it == node) && !self.joining.contains(&node)
    }

    /// Whether a node is a learner.
    #[must_use]
    pub fn is_learner(&self, node: u8) -> bool {
        self.assignment
            .members
            .contains(&(node, Membership::Learner))
    }

    /// Whether a node writes or holds it.
    #[must_use]
    pub fn holds(&self, node: u8) -> bool {
        let mut members = self.assignment.members.iter();
        self.assignment.primary == node || members.any(|&(member, _)| member == node)
    }

    /// Whether there is a generation left.
    #[must_use]
    pub fn has_generation(&self) -> bool {
        self.assignment.generation < u32::from(GENERATION_MAX)
    }

    /// In the order in which a plan is read: the sync set, who joins it, learners.
    fn place(&mut self, node: u8, membership: Membership) {
        let members = &mut self.assignment.members;
        members.retain(|&(member, _)| member != node);
        self.joining.retain(|&member| member != node);
        let is_sync = |it: &&(u8, Membership)| it.1 == Membership::Sync;
        let sync = members.iter().filter(is_sync).count();
        match membership {
            Membership::Sync => members.insert(sync, (node, membership)),
            Membership::Learner => members.push((node, membership)),
        }
    }
}

impl Wish {
    /// Makes the change in a plan, for node `me`.
    ///
    /// # Panics
    /// If a partition has no generation left: such a wish is none.
    pub fn apply(&self, me: u8, plan: &mut [Placing]) {
        match self {
            Wish::TakeOver { from, partitions } => {
                let of = |partition: u16| plan[usize::from(partition)].assignment.generation;
                let generation = partitions.iter().map(of).max().unwrap_or_default() + 1;
                for partition in partitions.iter() {
                    let placing = &mut plan[usize::from(partition)];
                    assert!(
                        placing.has_generation(),
                        "a wish leaves such partitions out"
                    );
                    placing.place(*from, Membership::Learner);
                    let assignment = &mut placing.assignment;
                    assignment.members.retain(|&(member, _)| member != me);
                    assignment.renew();
                    assignment.primary = me;
                    assignment.generation = generation;
                }
            }
            Wish::Remove { silent } => {
                for (node, partitions) in silent {
                    for partition in partitions.iter() {
                        let placing = &mut plan[usize::from(partition)];
                        let before = placing.assignment.clone();
                        placing.place(*node, Membership::Learner);
                        placing.renew_behind(&before);
                    }
                }
            }
            Wish::Join { node, partitions } => {
                for partition in partitions.iter() {
                    let placing = &mut plan[usize::from(partition)];
                    let before = placing.assignment.clone();
                    placing.place(*node, Membership::Sync);
                    placing.joining.push(*node);
                    placing.renew_behind(&before);
                }
            }
            Wish::Admit { node, partitions } => {
                for partition in partitions.iter() {
                    plan[usize::from(partition)].admit(*node);
                }
            }
        }
    }
}

impl Placing {
    /// Lets a joining member be promoted. It stands before those that still join, as in a plan that
    /// is read.
    fn admit(&mut self, node: u8) {
        let before = self.joining.len();
        self.joining.retain(|&member| member != node);
        if self.joining.len() == before {
            return;
        }
        let members = &mut self.assignment.members;
        members.retain(|&(member, _)| member != node);
        let is_sync = |it: &&(u8, Membership)| it.1 == Membership::Sync;
        let sync = members.iter().filter(is_sync).count();
        members.insert(sync - self.joining.len(), (node, Membership::Sync));
    }

    /// Gives the primary a generation of its own where the sync set needs one.
    fn renew_behind(&mut self, before: &Assignment) {
        if before.needs_generation(&self.assignment, &self.joining) {
            assert!(self.has_generation(), "a wish leaves such partitions out");
            self.assignment.renew();
        }
    }
}

/// What stands in the plan as the author's deed.
impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wish::TakeOver { from, .. } => write!(f, "takeover of node {from}"),
            Wish::Remove { silent } => {
                let nodes: Vec<String> = silent.iter().map(|(node, _)| node.to_string()).collect();
                write!(f, "removal of node {}", nodes.join(", "))
            }
            Wish::Join { node, .. } => write!(f, "joining of node {node}"),
            Wish::Admit { node, .. } => write!(f, "entry of node {node}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Node 1 writes partition 0, nodes 2 and 3 are its sync set, node 4 learns.
    fn plan() -> Vec<Placing> {
        let sync = [2, 3].map(|node| (node, Membership::Sync));
        vec![Placing {
            assignment: Assignment {
                generation: 5,
                primary: 1,
                members: sync.into_iter().chain([(4, Membership::Learner)]).collect(),
                is_handed_over: false,
                is_loss_accepted: true,
                is_incomplete_accepted: false,
            },
            joining: Vec::new(),
        }]
    }

    fn partitions() -> PartitionSet {
        PartitionSet::from_iter([0])
    }

    #[test]
    fn a_takeover_names_the_node_in_the_next_generation_and_makes_the_lost_one_a_learner() {
        let mut plan = plan();
        let wish = Wish::TakeOver {
            from: 1,
            partitions: partitions(),
        };
        wish.apply(2, &mut plan);
        let assignment = &plan[0].assignment;
        assert_eq!((assignment.primary, assignment.generation), (2, 6));
        assert!(!assignment.is_loss_accepted);
        assert_eq!(plan[0].sync().collect::<Vec<_>>(), [3]);
        assert!(plan[0].is_learner(1) && plan[0].is_learner(4) && !plan[0].holds(5));
        assert_eq!(wish.to_string(), "takeover of node 1");
    }

    #[test]
    fn a_learner_joins_is_admitted_and_is_removed_again() {
        let mut plan = plan();
        let (node, partitions) = (4, partitions());
        Wish::Join { node, partitions }.apply(1, &mut plan);
        assert_eq!(plan[0].sync().collect::<Vec<_>>(), [2, 3, 4]);
        assert!(!plan[0].is_promotable(4) && !plan[0].is_learner(4));
        Wish::Admit { node, partitions }.apply(1, &mut plan);
        assert!(plan[0].is_promotable(4));
        assert_eq!(plan[0].assignment.generation, 5);
        let silent = [2, 3, 4].map(|node| (node, partitions)).to_vec();
        Wish::Remove { silent }.apply(1, &mut plan);
        assert!(plan[0].sync().next().is_none() && plan[0].is_learner(3));
        // The first of an empty set begins a generation.
        Wish::Join { node, partitions }.apply(1, &mut plan);
        assert_eq!(plan[0].assignment.generation, 6);
        assert_eq!(plan[0].joining, [4]);
    }
}
