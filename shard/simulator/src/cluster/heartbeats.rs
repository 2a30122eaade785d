//! The connections of heartbeats: one for each pair of nodes, on which nothing else goes.
//!
//! Bytes of a direction come in their order. While the way is cut or the reader stands still they
//! wait, as what TCP sends again. A connection with no frame for the time of a grace is closed.

use std::collections::{BTreeMap, VecDeque};

use penstock_net::link::frame::{read_link_frame, write_link_frame};
use penstock_net::link::{LinkHeader, LinkMessage, LinkReceived};

use super::event::Event;
use super::{NODES, World, number_of};

/// Of a frame of heartbeats.
const FRAME_BYTES_MAX: u32 = 4096;

/// A connection of two nodes. The first one has the lower number, and dials.
pub(super) struct Wire {
    /// The nodes, each with its run.
    ends: [(usize, u64); 2],
    /// When the last bytes to each end arrive.
    last_us: [u64; 2],
    /// What came for each end and is not read.
    waiting: [VecDeque<Vec<u8>>; 2],
    /// When each end read a frame last, by its clock.
    read_us: [u64; 2],
    /// The ends that are closed.
    is_closed: [bool; 2],
}

/// All connections of heartbeats.
#[derive(Default)]
pub(super) struct Wires {
    all: BTreeMap<u64, Wire>,
    next: u64,
}

impl Wires {
    /// The connection of a pair that is open at this node.
    fn open(&self, node: usize, run: u64, other: usize) -> Option<u64> {
        let is_open = |wire: &Wire| {
            let of_pair = wire.ends[0].0.max(wire.ends[1].0) == node.max(other)
                && wire.ends[0].0.min(wire.ends[1].0) == node.min(other);
            let at = wire.end_of(node);
            of_pair && wire.ends[at].1 == run && !wire.is_closed[at]
        };
        let mut all = self.all.iter().filter(|(_, wire)| is_open(wire));
        all.next_back().map(|(&id, _)| id)
    }
}

impl Wire {
    fn end_of(&self, node: usize) -> usize {
        usize::from(self.ends[1].0 == node)
    }
}

impl World {
    fn wires(&mut self) -> &mut Wires {
        &mut self.deciders.as_mut().expect("nodes decide").wires
    }

    /// Makes the connections that this node is to dial, and closes those that are silent.
    pub(super) fn tend_wires(&mut self, node: usize) {
        let now_us = self.clocks[node].read(self.now_us);
        let run = self.nodes[node].run;
        let grace_us = self.rules().grace_us();
        for other in (0..NODES).filter(|&other| other != node) {
            if let Some(id) = self.wires().open(node, run, other) {
                let wire = &self.wires().all[&id];
                if now_us > wire.read_us[wire.end_of(node)] + grace_us {
                    self.meet("heartbeats silent");
                    self.close_wire(id, node);
                }
            }
            if node < other && self.wires().open(node, run, other).is_none() {
                self.dial_wire(node, other);
            }
        }
    }

    fn dial_wire(&mut self, node: usize, other: usize) {
        let is_cut = self.cuts.contains(&(node, other)) || self.cuts.contains(&(other, node));
        let is_paused = self.now_us < self.nodes[other].paused_until_us;
        if self.nodes[other].cores.is_none() || is_cut || is_paused {
            return;
        }
        let ends = [node, other].map(|it| (it, self.nodes[it].run));
        let read_us = [node, other].map(|it| self.clocks[it].read(self.now_us));
        let last_us = [self.now_us; 2];
        let wires = self.wires();
        // The newest one counts.
        let is_older = |wire: &Wire| wire.ends.map(|it| it.0) == [node, other];
        wires.all.retain(|_, wire| !is_older(wire));
        wires.next += 1;
        wires.all.insert(
            wires.next,
            Wire {
                ends,
                last_us,
                waiting: Default::default(),
                read_us,
                is_closed: [false; 2],
            },
        );
        for (at, peer) in [(node, other), (other, node)] {
            let (now_us, start) = (self.clocks[at].read(self.now_us), self.nodes[peer].run);
            let number = number_of(peer);
            let decider = self.decider(at).expect("it runs");
            if decider.has_met(peer, start) {
                decider.failover.meet(now_us, number);
            }
        }
    }

    /// One end closes a connection; the other one hears of it behind all that was sent.
    fn close_wire(&mut self, id: u64, node: usize) {
        let delay_us = self.network.latency(self.setting.network_us);
        let now_us = self.now_us;
        let wire = self.wires().all.get_mut(&id).expect("it is open");
        let at = wire.end_of(node);
        wire.is_closed[at] = true;
        let when_us = (now_us + delay_us).max(wire.last_us[1 - at]);
        let to = 1 - at;
        self.at(when_us, Event::WireClosed { wire: id, to });
    }

    /// An end hears that the other one has closed the connection.
    pub(super) fn wire_closed(&mut self, id: u64, to: usize) {
        let Some(wire) = self.wires().all.get(&id) else {
            return;
        };
        let ((from, _), (node, run)) = (wire.ends[1 - to], wire.ends[to]);
        let is_unread = !wire.waiting[to].is_empty() && !wire.is_closed[to];
        let is_late = self.cuts.contains(&(from, node)) || is_unread && self.is_run(node, run);
        if is_late {
            self.after(20_000, Event::WireClosed { wire: id, to });
            return;
        }
        self.wires().all.remove(&id);
    }

    /// The process of a node is gone, and its connections with it.
    pub(super) fn close_wires(&mut self, node: usize, is_power_cut: bool) {
        let wires = &self.deciders.as_ref().expect("nodes decide").wires;
        let of_node = |wire: &Wire| wire.ends.iter().any(|&(it, _)| it == node);
        let ids = wires.all.iter().filter(|(_, wire)| of_node(wire));
        for id in ids.map(|(&id, _)| id).collect::<Vec<_>>() {
            let silence_us = self.silence(is_power_cut);
            let now_us = self.now_us;
            let wire = self.wires().all.get_mut(&id).expect("just seen");
            let at = wire.end_of(node);
            if !std::mem::replace(&mut wire.is_closed[at], true) {
                let (to, when_us) = (1 - at, (now_us + silence_us).max(wire.last_us[1 - at]));
                self.at(when_us, Event::WireClosed { wire: id, to });
            }
        }
    }

    /// Connections of a node break, and what is on its way with them.
    pub(super) fn break_wires(&mut self, node: usize) {
        let of_node = |wire: &Wire| wire.ends.iter().any(|&(it, _)| it == node);
        self.wires().all.retain(|_, wire| !of_node(wire));
    }

    /// Sends a heartbeat to each node that this one is connected to.
    pub(super) fn beat(&mut self, node: usize) {
        let run = self.nodes[node].run;
        for other in (0..NODES).filter(|&other| other != node) {
            let Some(wire) = self.wires().open(node, run, other) else {
                continue;
            };
            let now_us = self.clocks[node].read(self.now_us);
            let mut claims = Vec::new();
            let decider = self.decider(node).expect("it runs");
            let heartbeat = decider.failover.send(now_us, number_of(other), &mut claims);
            let frame = frame(&LinkMessage::Heartbeat(heartbeat));
            self.send_wire(wire, node, frame);
        }
    }

    fn send_wire(&mut self, id: u64, from: usize, bytes: Vec<u8>) {
        let delay_us = self.heartbeat_latency();
        let now_us = self.now_us;
        let Some(wire) = self.wires().all.get_mut(&id) else {
            return;
        };
        let to = 1 - wire.end_of(from);
        wire.last_us[to] = wire.last_us[to].max(now_us + delay_us);
        let when_us = wire.last_us[to];
        let bytes = Event::WireBytes {
            wire: id,
            to,
            bytes,
        };
        self.at(when_us, bytes);
    }

    pub(super) fn wire_bytes(&mut self, id: u64, to: usize, bytes: Vec<u8>) {
        if let Some(wire) = self.wires().all.get_mut(&id) {
            wire.waiting[to].push_back(bytes);
            self.read_wire(id, to);
        }
    }

    /// What waits on its way between such nodes comes.
    pub(super) fn read_wires(&mut self, between: impl Fn(usize, usize) -> bool) {
        let Some(deciders) = &self.deciders else {
            return;
        };
        let all = deciders.wires.all.iter();
        let ways = all.flat_map(|(&id, wire)| [0, 1].map(|to| (id, to, wire.ends)));
        let ways: Vec<_> = ways.collect();
        for (id, to, ends) in ways {
            if between(ends[1 - to].0, ends[to].0) {
                self.read_wire(id, to);
            }
        }
    }

    fn read_wire(&mut self, id: u64, to: usize) {
        loop {
            let Some(wire) = self.wires().all.get(&id) else {
                return;
            };
            let ((from, _), (node, run)) = (wire.ends[1 - to], wire.ends[to]);
            let is_closed = wire.is_closed[to];
            let is_paused = self.now_us < self.nodes[node].paused_until_us;
            let is_cut = self.cuts.contains(&(from, node));
            if is_cut || is_paused || is_closed || !self.is_run(node, run) {
                return;
            }
            let now_us = self.clocks[node].read(self.now_us);
            let wire = self.wires().all.get_mut(&id).expect("just seen");
            let Some(bytes) = wire.waiting[to].pop_front() else {
                return;
            };
            wire.read_us[to] = now_us;
            self.read_frame(id, from, node, &bytes);
        }
    }

    fn read_frame(&mut self, wire: u64, from: usize, to: usize, bytes: &[u8]) {
        let Ok(LinkReceived::Frame(read)) = read_link_frame(bytes, 1, FRAME_BYTES_MAX) else {
            panic!("frames travel whole");
        };
        let number = number_of(from);
        let now_us = self.clocks[to].read(self.now_us);
        match read.message {
            LinkMessage::Heartbeat(heartbeat) => {
                self.note_standings(to);
                let table = self.nodes[to].leases();
                let decider = self.decider(to).expect("it runs");
                let confirm = decider.failover.read(now_us, number, &heartbeat);
                decider.failover.publish(&table);
                if !confirm.granted.is_empty() {
                    self.meet("granted");
                }
                let frame = frame(&LinkMessage::Confirm(confirm));
                self.send_wire(wire, to, frame);
            }
            LinkMessage::Confirm(confirm) => {
                let table = self.nodes[to].leases();
                let decider = self.decider(to).expect("it runs");
                decider.failover.confirm(now_us, number, &confirm);
                decider.failover.publish(&table);
            }
            other => panic!("{other:?} on a connection of heartbeats"),
        }
    }
}

fn frame(message: &LinkMessage<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = LinkHeader {
        number: 1,
        ..LinkHeader::default()
    };
    write_link_frame(&mut bytes, header, message);
    bytes
}
