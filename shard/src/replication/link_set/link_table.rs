//! The links of one shard that are there: who is at the other end, bytes that came, bytes to send.

use std::collections::BTreeMap;

use penstock_net::link::frame::write_link_frame;
use penstock_net::link::message::REFUSED_TEXT_BYTES_MAX;
use penstock_net::link::{LinkHeader, LinkMessage, Refused};
use penstock_storage::io::{Block, Completion};
use penstock_storage::place::Lsn;

use crate::replication::cursor::LogCursor;
use crate::replication::epoch::Epoch;
use crate::replication::handshake::Peer;
use crate::replication::partition::{Partition, Role};
use crate::replication::receiver::{KeptLimits, LinkRefusal};
use crate::replication::sender::Counting;
use crate::replication::standing::{LinkState, Traffic};
use crate::replication::{LinkId, PartitionId};

use super::receiver_link::ReceiverLink;
use super::sender_link::SenderLink;

/// Senders and receivers by link, and what went over the links with each node.
#[derive(Debug)]
pub(super) struct LinkTable<B> {
    pub(super) senders: BTreeMap<LinkId, SenderLink<B>>,
    pub(super) receivers: BTreeMap<LinkId, ReceiverLink>,
    /// By node, of links by which this node ships and of others. The frames of links that are there
    /// are not in it.
    traffic: BTreeMap<(u8, bool), Traffic>,
}

impl<B> Default for LinkTable<B> {
    fn default() -> Self {
        LinkTable {
            senders: BTreeMap::new(),
            receivers: BTreeMap::new(),
            traffic: BTreeMap::new(),
        }
    }
}

impl<B: Block> LinkTable<B> {
    /// A link to a peer that has proven itself.
    pub(super) fn connected(&mut self, link: LinkId, peer: Peer, window_bytes: usize) {
        self.traffic.entry((peer.node, true)).or_default().links += 1;
        self.senders
            .insert(link, SenderLink::new(peer, window_bytes));
    }

    /// A link from a peer that has proven itself.
    pub(super) fn accepted(&mut self, link: LinkId, peer: Peer, limits: KeptLimits) {
        self.traffic.entry((peer.node, false)).or_default().links += 1;
        self.receivers
            .insert(link, ReceiverLink::new(link, peer, limits));
    }

    /// Takes a sender out whose link has ended.
    pub(super) fn remove_sender(&mut self, link: LinkId) -> Option<SenderLink<B>> {
        let ended = self.senders.remove(&link)?;
        let traffic = self.traffic.entry((ended.peer.node, true)).or_default();
        traffic.sent_frames += ended.sender.sent();
        traffic.received_frames += ended.sender.next_number() - 1;
        Some(ended)
    }

    /// Takes a receiver out whose link has ended.
    pub(super) fn remove_receiver(&mut self, link: LinkId) -> Option<ReceiverLink> {
        let ended = self.receivers.remove(&link)?;
        let traffic = self.traffic.entry((ended.node, false)).or_default();
        traffic.sent_frames += ended.receiver.sent();
        traffic.received_frames += ended.receiver.next_number() - 1;
        Some(ended)
    }

    /// The output of a link that this side ends: what is left to be sent and REFUSED. `None` if
    /// there is no such link.
    pub(super) fn last_output(&mut self, link: LinkId, refusal: &LinkRefusal) -> Option<Vec<u8>> {
        let (sent, output) = match self.senders.get_mut(&link) {
            Some(it) => {
                it.sender.abandon(&mut it.output);
                (it.sender.sent(), &mut it.output)
            }
            None => {
                let it = self.receivers.get_mut(&link)?;
                (it.receiver.sent(), &mut it.output)
            }
        };
        let mut output = std::mem::take(output);
        let header = LinkHeader {
            number: sent + 1,
            ..LinkHeader::default()
        };
        let refused = LinkMessage::Refused(Refused {
            code: refusal.code,
            text: short(&refusal.text),
        });
        write_link_frame(&mut output, header, &refused);
        Some(output)
    }

    /// Links with nodes that are not named.
    pub(super) fn strangers(&self, is_named: impl Fn(u8) -> bool) -> Vec<(LinkId, u8)> {
        let senders = self.senders.iter().map(|(&link, it)| (link, it.peer.node));
        let receivers = self.receivers.iter().map(|(&link, it)| (link, it.node));
        let all = senders.chain(receivers);
        all.filter(|&(_, node)| !is_named(node)).collect()
    }

    /// Bytes that came by a link and were not taken in; `None` of a link that is gone.
    pub(super) fn input_bytes(&self, link: LinkId) -> Option<usize> {
        match self.senders.get(&link) {
            Some(it) => Some(it.input.len()),
            None => Some(self.receivers.get(&link)?.input.len()),
        }
    }

    /// Bytes have come by a link.
    pub(super) fn came(&mut self, link: LinkId, bytes: &[u8]) {
        let key = if let Some(it) = self.senders.get_mut(&link) {
            it.input.extend_from_slice(bytes);
            (it.peer.node, true)
        } else if let Some(it) = self.receivers.get_mut(&link) {
            it.input.extend_from_slice(bytes);
            (it.node, false)
        } else {
            return;
        };
        self.traffic.entry(key).or_default().received_bytes += bytes.len() as u64;
    }

    /// So many bytes of a link are on their way.
    pub(super) fn went(&mut self, link: LinkId, bytes: usize) {
        let key = match (self.senders.get(&link), self.receivers.get(&link)) {
            (Some(it), _) => (it.peer.node, true),
            (None, Some(it)) => (it.node, false),
            (None, None) => return,
        };
        self.traffic.entry(key).or_default().sent_bytes += bytes as u64;
    }

    /// What is to be sent by a link.
    pub(super) fn output(&mut self, link: LinkId) -> Option<&mut Vec<u8>> {
        match self.senders.get_mut(&link) {
            Some(it) => Some(&mut it.output),
            None => Some(&mut self.receivers.get_mut(&link)?.output),
        }
    }

    /// How many bytes are to be sent by a link.
    pub(super) fn output_bytes(&self, link: LinkId) -> usize {
        match (self.senders.get(&link), self.receivers.get(&link)) {
            (Some(it), _) => it.output.len(),
            (None, Some(it)) => it.output.len(),
            (None, None) => 0,
        }
    }

    /// Links with something to be sent.
    pub(super) fn sendable(&self) -> impl Iterator<Item = LinkId> + '_ {
        let senders = self.senders.iter().map(|(&link, it)| (link, &it.output));
        let receivers = self.receivers.iter().map(|(&link, it)| (link, &it.output));
        let all = senders.chain(receivers);
        all.filter(|(_, output)| !output.is_empty())
            .map(|(link, _)| link)
    }

    /// Releases the memory in which senders read the log.
    pub(super) fn release_cursors(&mut self) {
        for it in self.senders.values_mut() {
            it.cursor = LogCursor::default();
        }
    }

    /// The end of a read, if a sender's cursor waits for it; otherwise it is given back.
    pub(super) fn read(&mut self, completion: Completion<B>) -> Option<Completion<B>> {
        let token = completion.token.number;
        let mut cursors = self.senders.values_mut().map(|it| &mut it.cursor);
        match cursors.find(|cursor| cursor.awaits(token)) {
            Some(cursor) => {
                cursor.read(completion);
                None
            }
            None => Some(completion),
        }
    }

    /// Senders to a node.
    pub(super) fn senders_to(&self, node: u8) -> impl Iterator<Item = &SenderLink<B>> + Clone {
        self.senders.values().filter(move |it| it.peer.node == node)
    }

    /// Up to which record of this log a node has all of a partition, by links on which it was
    /// opened in such an epoch; `None` if it has joined by none of them.
    pub(super) fn received_by(
        &self,
        node: u8,
        partition: PartitionId,
        is_of: impl Fn(Epoch) -> bool,
    ) -> Option<Lsn> {
        let links = self.senders_to(node).map(|link| &link.sender);
        let links = links.filter(|sender| sender.opened(partition).is_some_and(&is_of));
        let received = links.filter_map(|sender| match sender.counting(partition) {
            Counting::UpTo(lsn) => Some(lsn),
            Counting::Not => None,
        });
        received.max()
    }

    /// Memory that bytes from and to peers take.
    pub(super) fn buffer_bytes(&self) -> usize {
        let senders = self.senders.values();
        let senders = senders.map(|it| it.input.capacity() + it.output.capacity());
        let receivers = self.receivers.values();
        let receivers = receivers.map(|it| it.input.capacity() + it.output.capacity());
        senders.chain(receivers).sum()
    }

    /// By how many milliseconds the store time of a node that ships to this one is ahead of the
    /// clock here.
    pub(super) fn clock_ahead_ms(&self, node: u8) -> Option<i64> {
        let links = self.receivers.values().filter(|it| it.node == node);
        links.filter_map(|it| it.clock_offset.ahead_ms()).max()
    }

    /// What went over the links by which a node is shipped to, or by which it ships.
    pub(super) fn traffic(&self, node: u8, is_outgoing: bool) -> Traffic {
        let known = self.traffic.get(&(node, is_outgoing));
        let mut traffic = known.copied().unwrap_or_default();
        if is_outgoing {
            for link in self.senders_to(node) {
                traffic.sent_frames += link.sender.sent();
                traffic.received_frames += link.sender.next_number() - 1;
            }
        } else {
            for link in self.receivers.values().filter(|it| it.node == node) {
                traffic.sent_frames += link.receiver.sent();
                traffic.received_frames += link.receiver.next_number() - 1;
            }
        }
        traffic
    }

    /// How far the link is by which a node ships a partition to this one.
    pub(super) fn state_from(&self, node: u8, partition: &Partition) -> LinkState {
        let mut links = self.receivers.iter().filter(|(_, it)| it.node == node);
        match partition.role() {
            Role::Member(member) if links.clone().any(|(link, _)| *link == member.link) => {
                match partition.is_readable() {
                    true => LinkState::Live,
                    false => LinkState::CatchingUp,
                }
            }
            _ if links.next().is_some() => LinkState::Handshake,
            _ => LinkState::Absent,
        }
    }

    /// The state of the link that ships a partition to a node; `slot` is a slot of the partition.
    pub(super) fn state_to(&self, node: u8, partition: PartitionId, slot: u16) -> LinkState {
        let links = self.senders_to(node).filter(|link| link.carries(slot));
        let states = links.map(|link| link.sender.link_state(partition));
        states.max().unwrap_or(LinkState::Absent)
    }
}

/// As much of a text as a refusal takes.
fn short(text: &str) -> &str {
    text.get(..text.floor_char_boundary(REFUSED_TEXT_BYTES_MAX.min(text.len())))
        .unwrap_or_default()
}
