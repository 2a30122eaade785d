//! Links between nodes: frames that are delivered, spoiled and lost.

use super::*;

pub(super) struct Link {
    pub(super) id: u64,
    /// Of the source, and of the destination.
    pub(super) lives: (u64, u64),
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// Bytes on their way to the destination and to the source.
    pub(super) there: Vec<u8>,
    pub(super) back: Vec<u8>,
    /// How much of them has arrived.
    pub(super) arrived: (usize, usize),
}

impl World {
    pub(super) fn connect(&mut self) {
        for from in 0..NODES {
            for to in (0..NODES).filter(|&to| to != from) {
                let pair = (from, to);
                if self.links.contains_key(&pair)
                    || self.cut.contains(&pair)
                    || self.random.one_in(3)
                {
                    continue;
                }
                let id = self.next_link;
                self.next_link += 1;
                let link = Link {
                    id,
                    lives: (self.nodes[from].life, self.nodes[to].life),
                    sender: Sender::new(self.nodes[to].number, (0, 0), PENDING_BYTES_MAX / 2),
                    receiver: Receiver::new(
                        LinkId(id),
                        self.nodes[from].number,
                        (0, 0),
                        KeptLimits {
                            bytes_max: PENDING_BYTES_MAX,
                            frame_bytes_max: 4 << 20,
                        },
                    ),
                    there: Vec::new(),
                    back: Vec::new(),
                    arrived: (0, 0),
                };
                self.links.insert(pair, link);
            }
        }
    }

    pub(super) fn drop_a_link(&mut self) {
        let pairs: Vec<_> = self.links.keys().copied().collect();
        if !pairs.is_empty() {
            let pair = pairs[self.random.below(pairs.len())];
            let link = self.links.remove(&pair).expect("just seen");
            self.close(pair, link);
        }
    }

    pub(super) fn close(&mut self, (_, to): (usize, usize), link: Link) {
        assert_eq!(link.lives.1, self.nodes[to].life);
        link.receiver.close(&mut self.nodes[to].partitions);
    }

    /// Some bytes arrive at one end of a link.
    pub(super) fn deliver(&mut self) {
        let pairs: Vec<_> = self.links.keys().copied().collect();
        if pairs.is_empty() {
            return;
        }
        let pair = pairs[self.random.below(pairs.len())];
        let link = self.links.get_mut(&pair).expect("just seen");
        let is_there = self.random.one_in(2);
        let (bytes, arrived) = match is_there {
            true => (&link.there, &mut link.arrived.0),
            false => (&link.back, &mut link.arrived.1),
        };
        let left = bytes.len() - *arrived;
        *arrived += match self.random.one_in(3) {
            true => self.random.below(left + 1),
            false => left,
        };
        match is_there {
            true => self.read_there(pair, false),
            false => self.read_back(pair),
        }
    }

    /// The destination reads what has arrived.
    pub(super) fn read_there(&mut self, pair: (usize, usize), is_spoilt: bool) {
        let (_, to) = pair;
        let mut link = self.links.remove(&pair).expect("the caller saw it");
        let mut start = 0;
        let mut work = VecDeque::new();
        let mut refused = None;
        loop {
            let left = &link.there[start..link.arrived.0];
            let frame = match read_link_frame(left, link.receiver.next_number(), FRAME_BYTES_MAX) {
                Ok(LinkReceived::Frame(frame)) => frame,
                Ok(LinkReceived::Incomplete { .. }) => break,
                Err(fault) => panic!("{fault}"),
            };
            let node = &mut self.nodes[to];
            if let Err(refusal) =
                link.receiver
                    .frame(&frame, &mut node.partitions, &mut node.log, &mut work)
            {
                refused = Some(refusal);
                break;
            }
            start += frame.bytes;
        }
        link.there.drain(..start);
        link.arrived.0 -= start;
        self.links.insert(pair, link);
        self.work(to, pair, work);
        if let Some(refusal) = refused {
            assert!(is_spoilt, "link {pair:?} is refused: {refusal:?}");
            self.met.one("refused on purpose");
            let link = self.links.remove(&pair).expect("just put back");
            self.close(pair, link);
        }
    }

    /// The source reads what has arrived.
    pub(super) fn read_back(&mut self, pair: (usize, usize)) {
        let (from, _) = pair;
        let mut link = self.links.remove(&pair).expect("the caller saw it");
        let mut start = 0;
        let mut work = VecDeque::new();
        loop {
            let left = &link.back[start..link.arrived.1];
            let frame = match read_link_frame(left, link.sender.next_number(), FRAME_BYTES_MAX) {
                Ok(LinkReceived::Frame(frame)) => frame,
                Ok(LinkReceived::Incomplete { .. }) => break,
                Err(fault) => panic!("{fault}"),
            };
            let node = &self.nodes[from];
            link.sender
                .frame(
                    &frame,
                    &node.partitions,
                    &node.log,
                    node.log.last(),
                    &mut work,
                )
                .unwrap_or_else(|refusal| panic!("link {pair:?} is refused: {refusal:?}"));
            start += frame.bytes;
        }
        link.back.drain(..start);
        link.arrived.1 -= start;
        self.links.insert(pair, link);
        self.work(from, pair, work);
        self.release(from);
    }

    /// A frame of records loses a byte of its last record on its way through the source's memory.
    pub(super) fn spoil(&mut self) {
        let pairs: Vec<_> = self.links.keys().copied().collect();
        for pair in pairs {
            let link = self.links.get_mut(&pair).expect("just seen");
            let left = &link.there[..];
            let number = link.receiver.next_number();
            let Ok(LinkReceived::Frame(frame)) = read_link_frame(left, number, FRAME_BYTES_MAX)
            else {
                continue;
            };
            let LinkMessage::Records(shipped) = frame.message else {
                continue;
            };
            let mut bytes = shipped.bytes.to_vec();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            let spoilt = LinkMessage::Records(Records {
                count: shipped.count,
                bytes: &bytes,
            });
            let mut written = Vec::new();
            write_link_frame(&mut written, frame.header, &spoilt);
            let end = frame.bytes;
            link.there.splice(..end, written);
            link.there.truncate(end);
            link.arrived.0 = end;
            self.read_there(pair, true);
            return;
        }
    }
}
