//! Which node of a cluster writes which partition. The reply to HELLO tells it for all partitions,
//! MOVED and NOT_PRIMARY for one.

use crate::batch::{padded, push_padded, read_u16, read_u32};
use crate::link::message::LINK_PARTITIONS;
use crate::refusal::Refusal;
use crate::request::Version;
use crate::slot::SLOTS;

/// Bytes of the address of a node, at most.
pub const ADDRESS_BYTES_MAX: usize = 255;
const HEAD_BYTES: usize = 8;
const NODE_BYTES: usize = 8;
/// Bytes of a node with the shortest address.
const NODE_BYTES_MIN: usize = NODE_BYTES + 8;
const RANGE_BYTES: usize = 16;

/// The partition of a slot.
#[inline]
#[must_use]
pub fn partition_of(slot: u16) -> u16 {
    slot / (SLOTS / LINK_PARTITIONS)
}

/// Where clients find a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// Its number, 1 to 255.
    pub node: u8,
    /// HOST:PORT.
    pub clients: String,
}

/// Neighbouring partitions that one node writes in one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterRange {
    /// First partition.
    pub first: u16,
    /// Last partition.
    pub last: u16,
    /// The node.
    pub node: u8,
    /// If two ranges name a partition, the one with the higher generation is right.
    pub generation: u32,
}

/// What a node knows of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Rises whenever any partition gets another generation.
    pub version: u32,
    /// All nodes.
    pub nodes: Vec<NodeAddress>,
    /// All partitions, ascending.
    pub writers: Vec<WriterRange>,
}

impl Placement {
    /// Appends the part of the reply to HELLO that follows the slot ranges.
    pub(crate) fn write(&self, body: &mut Vec<u8>) {
        let count = |len: usize| u16::try_from(len).expect("few nodes and partitions");
        body.extend_from_slice(&self.version.to_le_bytes());
        body.extend_from_slice(&count(self.nodes.len()).to_le_bytes());
        body.extend_from_slice(&count(self.writers.len()).to_le_bytes());
        for NodeAddress { node, clients } in &self.nodes {
            let mut length = clients.len().min(ADDRESS_BYTES_MAX);
            length = clients.floor_char_boundary(length);
            let mut head = [0; NODE_BYTES];
            head[0] = *node;
            head[1] = u8::try_from(length).expect("cut above");
            body.extend_from_slice(&head);
            push_padded(body, &clients.as_bytes()[..length]);
        }
        for range in &self.writers {
            let mut bytes = [0; RANGE_BYTES];
            bytes[0..2].copy_from_slice(&range.first.to_le_bytes());
            bytes[2..4].copy_from_slice(&range.last.to_le_bytes());
            bytes[4] = range.node;
            bytes[8..12].copy_from_slice(&range.generation.to_le_bytes());
            body.extend_from_slice(&bytes);
        }
    }

    /// Reads the part of the reply to HELLO that follows the slot ranges.
    ///
    /// # Errors
    /// [`Refusal::Placement`] names what is wrong.
    pub(crate) fn read(bytes: &[u8]) -> Result<Placement, Refusal> {
        let wrong = |what| Refusal::Placement { what };
        let head = bytes
            .get(..HEAD_BYTES)
            .ok_or(wrong("it is shorter than its head"))?;
        let (nodes_count, writers_count) = (read_u16(head, 4), read_u16(head, 6));
        let mut rest = &bytes[HEAD_BYTES..];
        // The count comes from the wire. Nothing is allocated for it before the bytes are there.
        if usize::from(nodes_count) * NODE_BYTES_MIN > rest.len() {
            return Err(wrong("it tells more nodes than it has room for"));
        }
        let mut nodes = Vec::with_capacity(nodes_count.into());
        for _ in 0..nodes_count {
            let short = wrong("a node is cut off");
            let head = rest.get(..NODE_BYTES).ok_or(short)?;
            let (node, length) = (head[0], usize::from(head[1]));
            if length == 0 {
                return Err(wrong("the address of a node is empty"));
            }
            let short = wrong("the address of a node is cut off");
            let end = NODE_BYTES + padded(length);
            let address = rest.get(NODE_BYTES..end).ok_or(short)?;
            let clients = std::str::from_utf8(&address[..length])
                .map_err(|_| wrong("the address of a node is not UTF-8"))?
                .to_string();
            nodes.push(NodeAddress { node, clients });
            rest = &rest[end..];
        }
        let ranges = rest
            .get(..usize::from(writers_count) * RANGE_BYTES)
            .ok_or(wrong("it tells more ranges of partitions than there are"))?;
        let writers: Vec<WriterRange> = ranges
            .chunks_exact(RANGE_BYTES)
            .map(|range| WriterRange {
                first: read_u16(range, 0),
                last: read_u16(range, 2),
                node: range[4],
                generation: read_u32(range, 8),
            })
            .collect();
        if writers
            .iter()
            .any(|range| range.first > range.last || range.last >= LINK_PARTITIONS)
        {
            return Err(wrong("a range names partitions that cannot be"));
        }
        Ok(Placement {
            version: read_u32(head, 0),
            nodes,
            writers,
        })
    }
}

/// Who writes a partition, as MOVED and NOT_PRIMARY tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The node.
    pub node: u8,
    /// In which generation.
    pub generation: u32,
    /// Where clients find it.
    pub clients: String,
}

impl Writer {
    /// The version field of a reply item that names a writer: the lowest epoch that the node may
    /// have in that generation.
    #[must_use]
    pub fn version(node: u8, generation: u32) -> Version {
        Version {
            epoch: generation << 18 | u32::from(node),
            sequence: 0,
        }
    }

    /// Reads the writer from a reply item: its version field, and the last word of its message,
    /// which is the address. `None` if the item names no writer.
    #[must_use]
    pub fn read(version: Version, message: &[u8]) -> Option<Writer> {
        let (generation, node) = (version.epoch >> 18, version.epoch.to_le_bytes()[0]);
        let clients = std::str::from_utf8(message).ok()?.rsplit(' ').next()?;
        (node > 0 && clients.contains(':')).then(|| Writer {
            node,
            generation,
            clients: clients.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_sends_elsewhere_names_node_generation_and_address() {
        let writer = Writer::read(
            Writer::version(3, 9),
            b"partition 7 is written by node 3 at 10.0.0.3:7411",
        );
        let expected = Writer {
            node: 3,
            generation: 9,
            clients: "10.0.0.3:7411".into(),
        };
        assert_eq!(writer, Some(expected));
        // A server without a cluster tells neither node nor generation.
        assert_eq!(Writer::read(Version::default(), b"elsewhere at x:1"), None);
        assert_eq!(Writer::read(Writer::version(3, 9), b"elsewhere"), None);
    }
}
