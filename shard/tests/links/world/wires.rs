//! Links between nodes: bytes that are delivered in pieces, and end anywhere.

use super::*;

/// Bytes on their way from one end to the other.
#[derive(Default)]
pub(super) struct Wire {
    pub(super) bytes: VecDeque<u8>,
    pub(super) is_spoilt: bool,
}

pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) there: Wire,
    pub(super) back: Wire,
}

impl World {
    pub(super) fn connect(&mut self) {
        for from in 0..self.nodes.len() {
            for to in 0..self.nodes.len() {
                if self.nodes[from].number == self.nodes[to].number {
                    continue;
                }
                let pair = (from, to);
                if self.links.contains_key(&pair)
                    || self.cut.contains(&pair)
                    || self.random.once_in(3)
                {
                    continue;
                }
                let id = LinkId(self.next_link);
                self.next_link += 1;
                let (source, destination) = (self.nodes[from].peer(), self.nodes[to].peer());
                self.nodes[from].links.connected(id, destination);
                self.nodes[to].links.accepted(id, source);
                let link = Link {
                    id,
                    there: Wire::default(),
                    back: Wire::default(),
                };
                self.links.insert(pair, link);
            }
        }
    }

    /// Cuts the link from one node to another.
    pub(super) fn part(&mut self, from: usize, to: usize) {
        self.cut.insert((from, to));
        self.close((from, to));
    }

    pub(super) fn close(&mut self, pair: (usize, usize)) {
        if let Some(link) = self.links.remove(&pair) {
            self.nodes[pair.0].links.closed(link.id);
            self.nodes[pair.1].links.closed(link.id);
        }
    }

    pub(super) fn drop_a_link(&mut self) {
        if let Some(pair) = self.any_link() {
            self.close(pair);
        }
    }

    pub(super) fn any_link(&mut self) -> Option<(usize, usize)> {
        let pairs: Vec<_> = self.links.keys().copied().collect();
        match pairs.len() {
            0 => None,
            len => Some(pairs[self.random.below(len)]),
        }
    }

    /// What a node has to say goes onto its wires.
    pub(super) fn send(&mut self, at: usize) {
        for (&(from, to), link) in &mut self.links {
            let wire = match at {
                _ if at == from => &mut link.there,
                _ if at == to => &mut link.back,
                _ => continue,
            };
            if let Some(output) = self.nodes[at].links.output(link.id) {
                wire.bytes.extend(output.drain(..));
            }
        }
    }

    /// Some bytes arrive at one end of a link.
    pub(super) fn deliver(&mut self) {
        let Some(pair) = self.any_link() else { return };
        let is_there = self.random.once_in(2);
        let is_part = self.random.once_in(3);
        let link = self.links.get_mut(&pair).expect("just seen");
        let (wire, to) = match is_there {
            true => (&mut link.there, pair.1),
            false => (&mut link.back, pair.0),
        };
        let links = &mut self.nodes[to].links;
        if !links.may_read(link.id) {
            return;
        }
        let count = match is_part {
            true => self.random.below(wire.bytes.len() + 1),
            false => wire.bytes.len(),
        };
        let bytes: Vec<u8> = wire.bytes.drain(..count).collect();
        links.came(link.id, &bytes);
    }

    /// A bit changes on its way.
    pub(super) fn spoil(&mut self) {
        let Some(pair) = self.any_link() else { return };
        let link = self.links.get_mut(&pair).expect("just seen");
        let wire = match self.random.once_in(2) {
            true => &mut link.there,
            false => &mut link.back,
        };
        if wire.bytes.is_empty() {
            return;
        }
        let at = self.random.below(wire.bytes.len());
        wire.bytes[at] ^= 1 << self.random.below(8);
        wire.is_spoilt = true;
    }
}
