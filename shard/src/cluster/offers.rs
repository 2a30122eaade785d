//! What the other nodes have offered on their links since this node started.

use std::sync::atomic::{AtomicBool, Ordering};

use super::plan::{Assignment, Plan};

/// Which nodes understand settings of keyspaces with ack level `all` or a default level. The shards
/// of a node share it: each has links with some of the other nodes.
#[derive(Debug)]
pub struct NodeOffers {
    knows_level_all: Box<[AtomicBool]>,
}

impl Default for NodeOffers {
    /// Nobody has offered anything.
    fn default() -> Self {
        NodeOffers {
            knows_level_all: (0..=u8::MAX).map(|_| AtomicBool::new(false)).collect(),
        }
    }
}

impl NodeOffers {
    /// A node has proven itself on a link. The newest link counts: it may have started as an
    /// earlier build.
    pub(super) fn note(&self, node: u8, knows_level_all: bool) {
        self.knows_level_all[usize::from(node)].store(knows_level_all, Ordering::Relaxed);
    }

    /// The first other node that holds a partition by the plan and has not offered it.
    pub(super) fn lacking(&self, plan: &Plan, me: u8) -> Option<u8> {
        let holds = |it: &Assignment, node: u8| {
            it.primary == node || it.members.iter().any(|&(member, _)| member == node)
        };
        let numbers = plan.clients.iter().map(|&(node, _)| node);
        let mut lacking = numbers.filter(|&node| {
            let is_known = self.knows_level_all[usize::from(node)].load(Ordering::Relaxed);
            node != me && !is_known
        });
        lacking.find(|&node| plan.partitions.iter().any(|it| holds(it, node)))
    }
}
