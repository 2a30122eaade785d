//! What the other nodes have offered on their links since this node started.

use std::sync::atomic::{AtomicU16, Ordering};

use super::plan::{Assignment, Plan};

/// The version of the link that each node speaks, which says what records it understands. The
/// shards of a node share it: each has links with some of the other nodes.
#[derive(Debug)]
pub struct NodeOffers {
    link_versions: Box<[AtomicU16]>,
}

impl Default for NodeOffers {
    /// Nobody has offered anything.
    fn default() -> Self {
        NodeOffers {
            link_versions: (0..=u8::MAX).map(|_| AtomicU16::new(0)).collect(),
        }
    }
}

impl NodeOffers {
    /// A node has proven itself on a link. The newest link counts: it may have started as an
    /// earlier build.
    pub(super) fn note(&self, node: u8, link_version: u16) {
        self.link_versions[usize::from(node)].store(link_version, Ordering::Relaxed);
    }

    /// The first other node that holds a partition by the plan and has not offered this version.
    pub(super) fn lacking(&self, plan: &Plan, me: u8, version: u8) -> Option<u8> {
        let holds = |it: &Assignment, node: u8| {
            it.primary == node || it.members.iter().any(|&(member, _)| member == node)
        };
        let numbers = plan.clients.iter().map(|&(node, _)| node);
        let mut lacking = numbers.filter(|&node| {
            let spoken = self.link_versions[usize::from(node)].load(Ordering::Relaxed);
            node != me && spoken < u16::from(version)
        });
        lacking.find(|&node| plan.partitions.iter().any(|it| holds(it, node)))
    }
}
