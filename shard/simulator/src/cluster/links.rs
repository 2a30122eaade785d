//! The links between shards of different nodes, and the network below them.

use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::sync::Arc;

use penstock_net::link::message::LINK_EPOCHS_MAX;
use penstock_shard::Event as ShardEvent;
use penstock_shard::Topology;
use penstock_shard::replication::LinkId;

use super::event::Event;
use super::{NODES, World, number_of};

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) node: usize,
    pub(super) run: u64,
    pub(super) shard: usize,
}

/// A link between two shards; the source is the end that ships.
pub(super) struct Link {
    pub(super) source: End,
    pub(super) destination: End,
    /// When the last bytes of each direction arrive.
    pub(super) there_us: u64,
    pub(super) back_us: u64,
    /// What came for an end that reads no more now, or while the way is cut.
    pub(super) waiting: [VecDeque<Vec<u8>>; 2],
    /// The ends that are gone: source, destination.
    pub(super) is_gone: [bool; 2],
}

impl Link {
    /// The end that gets the bytes of a direction.
    pub(super) fn end(&self, is_there: bool) -> End {
        match is_there {
            true => self.destination,
            false => self.source,
        }
    }
}

impl World {
    /// Makes the links by which this node ships, as the file that it has read last asks for them.
    pub(super) fn dial(&mut self, node: usize) {
        let plan = Arc::clone(&self.nodes[node].plan);
        let ours = Topology::new(self.nodes[node].shards);
        for other in (0..NODES).filter(|&other| other != node) {
            let is_cut = self.cuts.contains(&(node, other)) || self.cuts.contains(&(other, node));
            let is_paused = self.now_us < self.nodes[other].paused_until_us;
            if self.nodes[other].cores.is_none() || is_cut || is_paused {
                continue;
            }
            let theirs = Topology::new(self.nodes[other].shards);
            let pairs: BTreeSet<(usize, usize)> = self
                .partitions
                .iter()
                .filter(|&&partition| {
                    let assignment = &plan.partitions[usize::from(partition)];
                    let (me, peer) = (number_of(node), number_of(other));
                    let holds = |number| assignment.members.iter().any(|&(it, _)| it == number);
                    assignment.primary == me && holds(peer)
                        || assignment.is_handed_over && assignment.primary == peer && holds(me)
                })
                .map(|&partition| {
                    let slot = partition * 64;
                    let owners = (ours.owner(slot), theirs.owner(slot));
                    (usize::from(owners.0), usize::from(owners.1))
                })
                .collect();
            for (shard, to_shard) in pairs {
                if self.linked.contains_key(&(node, shard, other, to_shard)) {
                    continue;
                }
                self.connect((node, shard), (other, to_shard));
            }
        }
    }

    pub(super) fn connect(&mut self, source: (usize, usize), destination: (usize, usize)) {
        let link = self.next_link;
        self.next_link += 1;
        let end = |world: &World, (node, shard): (usize, usize)| End {
            node,
            run: world.nodes[node].run,
            shard,
        };
        let (from, to) = (end(self, source), end(self, destination));
        self.linked
            .insert((from.node, from.shard, to.node, to.shard), link);
        self.links.insert(
            link,
            Link {
                source: from,
                destination: to,
                there_us: self.now_us,
                back_us: self.now_us,
                waiting: Default::default(),
                is_gone: [false; 2],
            },
        );
        for (me, peer, is_outgoing) in [(from, to, true), (to, from, false)] {
            let up = ShardEvent::LinkUp {
                link: LinkId(link),
                peer: self.nodes[peer.node].peer(&self.setting, peer.shard),
                is_outgoing,
            };
            self.step(me.node, me.shard, up);
        }
    }

    /// What a node tells people of a link.
    pub(super) fn report_link(&mut self, end: End, line: &str) {
        let End { node, run, .. } = end;
        self.trace.fold_bytes(line.as_bytes());
        if line.contains("cannot be read at") {
            self.meet("read damaged");
        }
        if self.has_gone_back && line.contains("must be started on an empty directory") {
            // It is told at both ends; the one that ends the link says so of itself.
            if line.starts_with("a link is ended: ") {
                self.meet("an epoch was written twice");
                self.after(1_000, Event::Empty { node, run });
            }
        }
        // A history keeps so many epochs, and these nodes start that often while another one is
        // away. People empty the one that is refused.
        let is_forgotten = self.nodes.iter().any(|it| it.run > LINK_EPOCHS_MAX as u64);
        if is_forgotten
            && line.starts_with("a link is ended by the other node: ")
            && line.contains("have no epoch in common")
        {
            self.meet("emptied, because the epochs in common are forgotten");
            self.after(1_000, Event::Empty { node, run });
        }
        if line.contains("and not by this one") {
            self.meet("deposed");
        }
    }

    /// Sends what a shard has to send by a link.
    pub(super) fn send_link_output(&mut self, end: End, link: LinkId) {
        let End { node, shard, .. } = end;
        let mut bytes = Vec::new();
        let core = self.core(node, shard).expect("it runs");
        core.shard
            .execution_mut()
            .take_link_output(link, &mut bytes);
        if !bytes.is_empty() {
            self.send_link(node, shard, link.0, bytes);
            // More may have come meanwhile.
            self.turn_at(node, shard, self.now_us + self.setting.network_us / 4);
        }
    }

    /// A shard ends a link.
    pub(super) fn end_link(&mut self, end: End, link: LinkId, last_words: Vec<u8>) {
        let End { node, shard, .. } = end;
        self.meet("link ended by a node");
        if self.links.contains_key(&link.0) {
            self.send_link(node, shard, link.0, last_words);
            let is_destination = self.links[&link.0].destination.node == node;
            let delay_us = self.network.latency(self.setting.network_us);
            self.end_here(link.0, is_destination, delay_us);
        }
        self.step(node, shard, ShardEvent::LinkDown { link });
    }

    /// There may be room for more of what links have brought to a shard.
    pub(super) fn read_waiting_links(&mut self, end: End) {
        let reads = |link: &Link, is_there: bool| {
            link.end(is_there) == end && !link.waiting[usize::from(is_there)].is_empty()
        };
        let waiting: Vec<(u64, bool)> = self
            .links
            .iter()
            .flat_map(|(&id, link)| [false, true].map(|there| (id, reads(link, there), there)))
            .filter(|&(_, reads, _)| reads)
            .map(|(id, _, is_there)| (id, is_there))
            .collect();
        for (link, is_there) in waiting {
            self.read_link(link, is_there);
        }
    }

    pub(super) fn send_link(&mut self, node: usize, shard: usize, link: u64, bytes: Vec<u8>) {
        let Some(state) = self.links.get(&link) else {
            return;
        };
        let is_there = (state.source.node, state.source.shard) == (node, shard);
        if bytes.is_empty() || state.is_gone[usize::from(!is_there)] {
            return;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            // Bytes come in pieces, in their order.
            let len = match self.network.chance(200_000) {
                true => 1 + self.network.index(rest.len()),
                false => rest.len(),
            };
            let (piece, left) = rest.split_at(len);
            rest = left;
            let delay_us = self.network.latency(self.setting.network_us);
            let now_us = self.now_us;
            let state = self.links.get_mut(&link).expect("looked up above");
            let last_us = match is_there {
                true => &mut state.there_us,
                false => &mut state.back_us,
            };
            *last_us = (*last_us).max(now_us + delay_us);
            let when_us = *last_us;
            let bytes = Event::LinkBytes {
                link,
                is_there,
                bytes: piece.to_vec(),
            };
            self.at(when_us, bytes);
        }
    }

    /// Hands over what has come by a link, as far as its end takes it.
    pub(super) fn read_link(&mut self, link: u64, is_there: bool) {
        loop {
            let Some(state) = self.links.get(&link) else {
                return;
            };
            let (end, from) = (state.end(is_there), state.end(!is_there));
            let is_paused = self.now_us < self.nodes[end.node].paused_until_us;
            let is_cut = self.cuts.contains(&(from.node, end.node));
            if is_cut || is_paused || !self.is_run(end.node, end.run) {
                return;
            }
            let core = self.core(end.node, end.shard).expect("it runs");
            if !core.shard.execution().may_read_link(LinkId(link)) {
                return;
            }
            let state = self.links.get_mut(&link).expect("looked up above");
            if state.is_gone[usize::from(is_there)] {
                return;
            }
            let Some(bytes) = state.waiting[usize::from(is_there)].pop_front() else {
                return;
            };
            let received = ShardEvent::LinkReceived {
                link: LinkId(link),
                bytes: &bytes,
            };
            self.step(end.node, end.shard, received);
        }
    }

    /// One end of a link goes; the other hears of it behind all that was sent.
    pub(super) fn end_here(&mut self, link: u64, is_destination: bool, silence_us: u64) {
        let state = self.links.get_mut(&link).expect("a link");
        if std::mem::replace(&mut state.is_gone[usize::from(is_destination)], true) {
            return;
        }
        let last_us = match is_destination {
            true => state.back_us,
            false => state.there_us,
        };
        let gone = Event::LinkGone {
            link,
            is_there: !is_destination,
        };
        self.at((self.now_us + silence_us).max(last_us), gone);
    }

    /// The end to which a direction leads hears that the other one is gone.
    pub(super) fn end_is_gone(&mut self, link: u64, is_there: bool) {
        let Some(state) = self.links.get(&link) else {
            return;
        };
        let (end, from) = (state.end(is_there), state.end(!is_there));
        let is_unread = !state.waiting[usize::from(is_there)].is_empty()
            && self.is_run(end.node, end.run)
            && !state.is_gone[usize::from(is_there)];
        if self.cuts.contains(&(from.node, end.node)) || is_unread {
            // Later, behind what it did not read yet.
            self.after(20_000, Event::LinkGone { link, is_there });
            return;
        }
        let state = self.links.remove(&link).expect("looked up above");
        let (source, destination) = (state.source, state.destination);
        let pair = (
            source.node,
            source.shard,
            destination.node,
            destination.shard,
        );
        if self.linked.get(&pair) == Some(&link) {
            self.linked.remove(&pair);
        }
        if self.is_run(end.node, end.run) && !state.is_gone[usize::from(is_there)] {
            let down = ShardEvent::LinkDown { link: LinkId(link) };
            self.step(end.node, end.shard, down);
        }
    }

    pub(super) fn heal(&mut self, from: usize, to: usize) {
        self.cuts.remove(&(from, to));
        // As what is sent again comes: at once, in order.
        self.read_all(|source, destination| (source, destination) == (from, to));
        self.read_wires(|source, destination| (source, destination) == (from, to));
    }

    /// What waits on its way between such nodes comes.
    pub(super) fn read_all(&mut self, between: impl Fn(usize, usize) -> bool) {
        let ways = |(&id, link): (&u64, &Link)| {
            let is_meant = |is_there: bool| {
                let ends = (link.end(!is_there).node, link.end(is_there).node);
                between(ends.0, ends.1) && !link.waiting[usize::from(is_there)].is_empty()
            };
            [false, true].map(|is_there| (id, is_there, is_meant(is_there)))
        };
        let waiting: Vec<_> = self.links.iter().flat_map(ways).collect();
        for (link, is_there, is_meant) in waiting {
            if is_meant {
                self.read_link(link, is_there);
            }
        }
    }
}
