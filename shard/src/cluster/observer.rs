//! What a shard tells of its partitions and of the other nodes.

use penstock_net::link::Membership;
use penstock_storage::io::Block;

use crate::replication::link_set::LinkSet;
use crate::replication::sender::Confirmed;
use crate::replication::{Duty, LinkState, PartitionId, PeerStatus, Role};

use super::durable_sequences::DurableSequences;
use super::plan::Plan;
use super::served::ServedPartitions;
use super::status::{PartitionRole, PartitionStatus};

/// Reads the state of a cluster member, and changes nothing.
pub(super) struct Observer<'a, B> {
    pub(super) links: &'a LinkSet<B>,
    pub(super) plan: &'a Plan,
    pub(super) me: u8,
    pub(super) served: &'a ServedPartitions,
    pub(super) durable: &'a DurableSequences,
}

impl<'a, B: Block> Observer<'a, B> {
    /// The status of the nodes that ship to this one, or that it ships to.
    pub(super) fn peers(self, now_us: u64) -> impl Iterator<Item = PeerStatus> + use<'a, B> {
        let nodes = self.plan.clients.iter().map(|(node, _)| *node);
        nodes.flat_map(move |node| {
            let to = self.peer_to(now_us, node);
            to.into_iter().chain(self.peer_from(now_us, node))
        })
    }

    /// The status of a node to which this one ships.
    fn peer_to(&self, now_us: u64, node: u8) -> Option<PeerStatus> {
        let mut peer = None;
        for partition in self.links.partitions() {
            let assignment = self.plan.of(partition);
            let duty = assignment.duty(node);
            if assignment.primary != self.me || !matches!(duty, Duty::Member(_)) {
                continue;
            }
            let state = self.links.state_to(node, partition);
            join(&mut peer, node, duty, state);
        }
        let peer = peer?;
        Some(PeerStatus {
            lag: self.links.lag(now_us, node, Confirmed::Received),
            durable_lag: self.links.lag(now_us, node, Confirmed::Durable),
            traffic: self.links.traffic(node, true),
            ..peer
        })
    }

    /// The status of a node that ships to this one.
    fn peer_from(&self, now_us: u64, node: u8) -> Option<PeerStatus> {
        let mut peer = None;
        let mut staleness_us = Some(0);
        for partition in self.links.partitions() {
            let assignment = self.plan.of(partition);
            let is_member = matches!(assignment.duty(self.me), Duty::Member(_));
            if assignment.primary == node && is_member {
                let state = self.links.state_from(node, partition);
                join(&mut peer, node, Duty::Primary, state);
                let age_us = self.links.age_us(now_us, partition).flatten();
                staleness_us = age_us.and_then(|age_us| Some(age_us.max(staleness_us?)));
            }
        }
        let peer = peer?;
        Some(PeerStatus {
            staleness_us,
            clock_ahead_ms: self.links.clock_ahead_ms(node),
            traffic: self.links.traffic(node, false),
            ..peer
        })
    }

    /// The status of a partition; none if it is not the shard's.
    pub(super) fn partition(&self, partition: PartitionId) -> Option<PartitionStatus> {
        let state = self.links.partition(partition)?;
        let role = self.role(partition)?;
        Some(PartitionStatus {
            partition,
            role,
            duty: self.plan.of(partition).duty(self.me),
            epoch: state.facts().promised,
            applied: state.applied().sequence,
            received: state.received().sequence,
            was_last: state.was_last(self.me),
            waits_for: match role {
                PartitionRole::Primary => self.sync_set(partition),
                _ => Vec::new(),
            },
            durable: self.durable.of(partition),
            hangs_on: self.links.hangs_on(partition),
        })
    }

    /// What this node does with a partition.
    fn role(&self, partition: PartitionId) -> Option<PartitionRole> {
        let state = self.links.partition(partition)?;
        let (facts, assignment) = (state.facts(), self.plan.of(partition));
        Some(match state.role() {
            Role::Primary { .. } if self.served.has(usize::from(partition)) => {
                PartitionRole::Primary
            }
            Role::Primary { epoch, .. } if epoch.generation() < assignment.generation => {
                PartitionRole::Draining
            }
            // It was handed over before the plan was read that names this node, or the first record
            // is not durable.
            Role::Primary { .. } => PartitionRole::Beginning,
            _ if facts.scan_from.is_some() => PartitionRole::Scanning,
            _ if facts.rewind_from.is_some() => PartitionRole::Rewinding,
            Role::Member(_) if state.is_readable() => PartitionRole::Following,
            Role::Member(_) => PartitionRole::CatchingUp,
            Role::Idle if state.has_followed() => PartitionRole::Followed,
            Role::Idle => PartitionRole::Idle,
        })
    }

    /// The nodes that level `replica` waits for, ascending.
    fn sync_set(&self, partition: PartitionId) -> Vec<u8> {
        let members = self.plan.of(partition).members.iter();
        let sync = members.filter(|(_, membership)| *membership == Membership::Sync);
        let mut nodes: Vec<u8> = sync.map(|&(node, _)| node).collect();
        nodes.sort_unstable();
        nodes
    }
}

/// Adds one more partition of a node. A node that is in the sync set of some partitions and learner
/// of others counts as the former.
fn join(peer: &mut Option<PeerStatus>, node: u8, duty: Duty, state: LinkState) {
    let sync = Duty::Member(Membership::Sync);
    *peer = Some(match *peer {
        None => PeerStatus {
            node,
            duty,
            partitions: 1,
            state,
            lag: None,
            durable_lag: None,
            staleness_us: None,
            clock_ahead_ms: None,
            traffic: Default::default(),
        },
        Some(before) => PeerStatus {
            duty: if before.duty == sync { sync } else { duty },
            partitions: before.partitions + 1,
            state: before.state.min(state),
            ..before
        },
    });
}
