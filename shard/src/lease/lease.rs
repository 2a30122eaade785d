//! The lease of a primary: until when each member lets it serve each partition.

use std::collections::VecDeque;

use penstock_net::link::PartitionSet;
use penstock_net::link::message::LINK_PARTITIONS;

use super::rules::LeaseRules;

/// Heartbeats to one node whose sending is remembered. Older ones confirm nothing.
const UNDER_WAY_MAX: usize = 128;

/// What other nodes lend to this one.
#[derive(Debug)]
pub struct Lease {
    lease_us: u64,
    peers: Vec<Peer>,
}

#[derive(Debug)]
struct Peer {
    node: u8,
    /// The number of the last heartbeat.
    last: u64,
    /// Heartbeats and when each was sent, ascending.
    sent: VecDeque<(u64, u64)>,
    /// The end of the lease of each partition by this node; 0: it never granted it.
    ends_us: Box<[u64; LINK_PARTITIONS as usize]>,
}

impl Lease {
    /// Nobody lends anything yet.
    #[must_use]
    pub fn new(rules: LeaseRules) -> Self {
        Lease {
            lease_us: rules.lease_us(),
            peers: Vec::new(),
        }
    }

    /// Heartbeats that are confirmed from now on lend for another time.
    pub fn set_rules(&mut self, rules: LeaseRules) {
        self.lease_us = rules.lease_us();
    }

    /// A heartbeat is about to be sent to a node. Its number.
    pub fn send(&mut self, now_us: u64, node: u8) -> u64 {
        let peer = self.peer_mut(node);
        peer.last += 1;
        if peer.sent.len() == UNDER_WAY_MAX {
            peer.sent.pop_front();
        }
        peer.sent.push_back((peer.last, now_us));
        peer.last
    }

    /// A node has confirmed a heartbeat. One that was not sent, or long ago, counts for nothing.
    pub fn confirm(&mut self, node: u8, number: u64, granted: &PartitionSet) {
        let Some(sent_us) = self.sent_us(node, number) else {
            return;
        };
        let end_us = sent_us + self.lease_us;
        let peer = self.peer_mut(node);
        for partition in granted.iter() {
            let before_us = &mut peer.ends_us[usize::from(partition)];
            *before_us = end_us.max(*before_us);
        }
    }

    /// Whether a node has read a heartbeat of this one within a lease.
    #[must_use]
    pub fn is_confirmed(&self, now_us: u64, node: u8, number: u64) -> bool {
        let sent_us = self.sent_us(node, number);
        sent_us.is_some_and(|sent_us| now_us < sent_us + self.lease_us)
    }

    /// The end of the lease of a partition with this sync set. An empty one needs no lease.
    pub fn end_us(&self, partition: u16, sync: impl IntoIterator<Item = u8>) -> u64 {
        let ends_us = sync.into_iter().map(|node| self.end_by(node, partition));
        ends_us.min().unwrap_or(u64::MAX)
    }

    /// The end of the lease of a partition by one member; 0 if it never granted it.
    #[must_use]
    pub fn end_by(&self, node: u8, partition: u16) -> u64 {
        let peer = self.peers.iter().find(|peer| peer.node == node);
        peer.map_or(0, |peer| peer.ends_us[usize::from(partition)])
    }

    /// When a heartbeat was sent.
    pub(super) fn sent_us(&self, node: u8, number: u64) -> Option<u64> {
        let peer = self.peers.iter().find(|peer| peer.node == node)?;
        let (first, _) = peer.sent.front()?;
        let at = usize::try_from(number.checked_sub(*first)?).ok()?;
        peer.sent.get(at).map(|&(_, sent_us)| sent_us)
    }

    fn peer_mut(&mut self, node: u8) -> &mut Peer {
        let at = self.peers.iter().position(|peer| peer.node == node);
        let at = at.unwrap_or_else(|| {
            self.peers.push(Peer {
                node,
                last: 0,
                sent: VecDeque::with_capacity(UNDER_WAY_MAX),
                ends_us: Box::new([0; LINK_PARTITIONS as usize]),
            });
            self.peers.len() - 1
        });
        &mut self.peers[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: LeaseRules = LeaseRules::QUIET;

    fn all() -> PartitionSet {
        (0..LINK_PARTITIONS).collect()
    }

    #[test]
    fn a_lease_counts_from_the_sending_of_what_every_member_confirmed() {
        let mut lease = Lease::new(RULES);
        assert_eq!(lease.end_us(7, []), u64::MAX);
        assert_eq!(lease.end_us(7, [2]), 0);
        let first = lease.send(1_000_000, 2);
        assert_eq!(lease.send(1_100_000, 3), 1);
        lease.confirm(2, first, &all());
        assert_eq!(lease.end_us(7, [2]), 1_400_000);
        assert_eq!(lease.end_us(7, [2, 3]), 0);
        lease.confirm(3, 1, &PartitionSet::from_iter([7]));
        assert_eq!(lease.end_us(7, [2, 3]), 1_400_000);
        assert_eq!(lease.end_us(8, [2, 3]), 0);
    }

    #[test]
    fn what_comes_late_or_was_never_sent_lends_nothing() {
        let mut lease = Lease::new(RULES);
        let numbers: Vec<u64> = (0..200).map(|at| lease.send(at * 1000, 2)).collect();
        lease.confirm(2, numbers[199], &all());
        let end_us = lease.end_us(7, [2]);
        // One of before, one that is forgotten, one that is yet to be sent, none.
        for number in [numbers[150], numbers[0], numbers[199] + 1, 0] {
            lease.confirm(2, number, &all());
            assert_eq!(lease.end_us(7, [2]), end_us);
        }
        assert!(lease.is_confirmed(199_000 + 399_999, 2, numbers[199]));
        assert!(!lease.is_confirmed(199_000 + 400_000, 2, numbers[199]));
        assert!(!lease.is_confirmed(199_000, 2, numbers[0]));
        assert!(!lease.is_confirmed(199_000, 3, 1));
    }
}
