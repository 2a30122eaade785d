//! What links tell of themselves: counters, delays, memory, how far each other node is.

use std::collections::BTreeSet;

use penstock_storage::histogram::Histogram;
use penstock_storage::io::Block;
use penstock_storage::place::Lsn;

use crate::replication::PartitionId;
use crate::replication::partition::{Partition, Role};
use crate::replication::sender::Confirmed;
use crate::replication::standing::{Lag, LinkState, Traffic};
use crate::topology::Topology;

use super::{LeftOpen, LinkCounters, LinkMemory, LinkSet, Outgoing};

impl<B: Block> LinkSet<B> {
    /// What was done.
    #[must_use]
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// How long it took until members told to have received, and to have on their disks, what was shipped to them live, in
    /// microseconds from the turn in which it was appended.
    #[must_use]
    pub fn delays(&self) -> (&Histogram, &Histogram) {
        (&self.received_us, &self.durable_us)
    }

    /// What links take of the memory.
    #[must_use]
    pub fn memory(&self) -> LinkMemory {
        let kept = self.partitions.values().map(Partition::kept_bytes);
        let outgoing = self.outgoing.values();
        let outgoing = outgoing.map(|it| it.input.capacity() + it.output.capacity());
        let incoming = self.incoming.values();
        let incoming = incoming.map(|it| it.input.capacity() + it.output.capacity());
        LinkMemory {
            ring_bytes: self.ring.bytes() as u64,
            received_bytes: kept.sum::<usize>() as u64,
            buffer_bytes: outgoing.chain(incoming).sum::<usize>() as u64,
        }
    }

    /// By how many milliseconds the time of the store of a node that ships to this one is ahead of the clock here.
    #[must_use]
    pub fn clock_ahead_ms(&self, node: u8) -> Option<i64> {
        let links = self.incoming.values().filter(|it| it.node == node);
        links.filter_map(|it| it.clock_offset.ahead_ms()).max()
    }

    /// What went over the links by which a node is shipped to, or by which it ships.
    #[must_use]
    pub fn traffic(&self, node: u8, is_outgoing: bool) -> Traffic {
        let mut traffic = self
            .traffic
            .get(&(node, is_outgoing))
            .copied()
            .unwrap_or_default();
        if is_outgoing {
            for link in self.outgoing.values().filter(|it| it.peer.node == node) {
                traffic.sent_frames += link.sender.sent();
                traffic.received_frames += link.sender.next_number() - 1;
            }
        } else {
            for link in self.incoming.values().filter(|it| it.node == node) {
                traffic.sent_frames += link.receiver.sent();
                traffic.received_frames += link.receiver.next_number() - 1;
            }
        }
        traffic
    }

    /// How far the link is by which a node ships a partition to this one.
    #[must_use]
    pub fn state_from(&self, node: u8, partition: PartitionId) -> LinkState {
        let mut links = self.incoming.iter().filter(|(_, it)| it.node == node);
        let Some(state) = self.partitions.get(&partition) else {
            return LinkState::Absent;
        };
        match state.role() {
            Role::Member(member) if links.clone().any(|(link, _)| *link == member.link) => {
                match state.is_readable() {
                    true => LinkState::Live,
                    false => LinkState::CatchingUp,
                }
            }
            _ if links.next().is_some() => LinkState::Handshake,
            _ => LinkState::Absent,
        }
    }

    /// How far the link is by which a partition is shipped to a node.
    #[must_use]
    pub fn state_to(&self, node: u8, partition: PartitionId) -> LinkState {
        let slot = self.tags.slot(partition);
        let links = self.outgoing.values().filter(|link| {
            link.peer.node == node && Topology::new(link.peer.shards).owner(slot) == link.peer.shard
        });
        let states = links.map(|link| link.sender.link_state(partition));
        states.max().unwrap_or(LinkState::Absent)
    }

    /// What a member has not confirmed so far of what this node writes; unknown if it has not told where it stands
    /// since this start.
    #[must_use]
    pub fn lag(&self, now_us: u64, node: u8, confirmed: Confirmed) -> Option<Lag> {
        let (records, behind) = self.lacking(node, confirmed)?;
        let behind = behind.and_then(|lsn| self.timeline.behind(lsn));
        Some(Lag {
            records,
            bytes: behind.map_or(0, |it| it.bytes),
            us: behind.map_or(0, |it| now_us.saturating_sub(it.since_us)),
        })
    }

    /// How many records a member lacks, and behind which record of the log they stand.
    fn lacking(&self, node: u8, confirmed: Confirmed) -> Option<(u64, Option<Lsn>)> {
        let is_there = |link: &&Outgoing<B>| link.peer.node == node;
        let left = self.left.get(&node);
        let (mut records, mut behind) = (0, None);
        let mut lack = |count: u64, from: Option<Lsn>| {
            records += count;
            if count > 0 {
                let from = from.unwrap_or_default();
                behind = Some(behind.map_or(from, |before: Lsn| before.min(from)));
            }
        };
        for link in self.outgoing.values().filter(is_there) {
            let (count, from) = link.sender.unconfirmed(confirmed);
            lack(count, from);
        }
        let open = left.map_or_else(LeftOpen::default, |left| left.open(confirmed));
        if !self.outgoing.values().any(|link| is_there(&link)) {
            lack(open.records, open.behind);
        }
        for (&number, state) in &self.partitions {
            let is_written = matches!(state.role(), Role::Primary { begun: Some(_), .. });
            let members = self.members.get(&number).into_iter().flatten();
            if !is_written || !members.into_iter().any(|(member, _)| *member == node) {
                continue;
            }
            let links = self.outgoing.values().filter(is_there);
            let shipped = links.filter_map(|link| link.sender.shipped(number)).max();
            let (has, from) = match (shipped, left) {
                (Some((has, from)), _) => (has, Some(from)),
                (None, Some(left)) => (*left.shipped.get(&number)?, open.behind),
                (None, None) => return None,
            };
            lack(state.applied().sequence.saturating_sub(has), from);
        }
        Some((records, behind))
    }

    /// What every member has, needs no account of when it was appended.
    pub fn forget_times(&mut self) {
        let nodes: BTreeSet<u8> = self
            .members
            .values()
            .flat_map(|members| members.iter().map(|(node, _)| *node))
            .collect();
        let mut until = self.ring.last();
        for node in nodes {
            match self.lacking(node, Confirmed::Durable) {
                Some((0, _)) => {}
                Some((_, behind)) => until = until.min(behind.unwrap_or_default()),
                None => return,
            }
        }
        self.timeline.forget(until);
    }
}
