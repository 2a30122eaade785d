//! HELLO, WELCOME and PROOF: each node says who it is and proves that it knows the cluster's
//! secret.
//!
//! A proof is the keyed BLAKE3 digest of [`proof_input`] under the secret of the cluster. The owner
//! of the link has the secret, computes digests and compares them.

use crate::batch::{read_u16, read_u32};
use crate::link::body::zero;
use crate::link::fault::LinkFault;
use crate::link::node_name::NodeName;

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;
/// 32 random bytes, new for each connection.
pub type Nonce = [u8; NONCE_BYTES];
/// A keyed digest of [`proof_input`].
pub type Proof = [u8; PROOF_BYTES];

pub(crate) const HELLO_BYTES: usize = 96;
pub(crate) const WELCOME_BYTES: usize = 128;

/// HELLO: what the source tells of itself, and which node it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Lowest and highest version of the link that the source speaks.
    pub versions: (u16, u16),
    /// Version of the format of the node's log.
    pub log_format: u32,
    /// Id of the cluster.
    pub cluster_id: [u8; 16],
    /// Id of the node.
    pub node_id: [u8; 16],
    /// Which start of the node.
    pub start: NodeStart,
    /// The nonce of this connection.
    pub nonce: Nonce,
    /// Number of the node in its cluster, the low byte of its epochs.
    pub node: u8,
    /// Number of the node that it wants.
    pub to_node: u8,
    /// Number of the shard that speaks.
    pub shard: u16,
    /// Number of shards of the node.
    pub shards: u16,
    /// Which shard of the other node it wants.
    pub to_shard: u16,
    /// Largest record that the node may ship, in bytes.
    pub record_bytes_max: u32,
    /// Longest frame that the node reads, in bytes.
    pub frame_bytes_max: u32,
}

/// Which start of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStart {
    /// Rises at every start.
    pub incarnation: u32,
    /// A random number. Two starts with one incarnation and different start ids come from copies of
    /// one directory. 0 if the start id is not known.
    pub start_id: u32,
}

impl NodeStart {
    fn read(body: &[u8]) -> Self {
        NodeStart {
            incarnation: read_u32(body, 40),
            start_id: read_u32(body, 44),
        }
    }

    fn write(self, body: &mut [u8]) {
        body[40..44].copy_from_slice(&self.incarnation.to_le_bytes());
        body[44..48].copy_from_slice(&self.start_id.to_le_bytes());
    }
}

/// WELCOME: what the destination tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version of the link from the next frame on.
    pub version: u16,
    /// Version of the format of the node's log.
    pub log_format: u32,
    /// Id of the cluster.
    pub cluster_id: [u8; 16],
    /// Id of the node.
    pub node_id: [u8; 16],
    /// Which start of the node.
    pub start: NodeStart,
    /// The nonce of this connection.
    pub nonce: Nonce,
    /// Number of the node in its cluster.
    pub node: u8,
    /// Number of the shard that answers.
    pub shard: u16,
    /// Number of shards of the node.
    pub shards: u16,
    /// Largest record that the node takes, in bytes.
    pub record_bytes_max: u32,
    /// Longest frame that the node reads, in bytes.
    pub frame_bytes_max: u32,
    /// The destination's proof.
    pub proof: Proof,
}

/// Whose proof it is. The role is part of the digest, so neither side can send the other's proof
/// back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofRole {
    /// The destination, in WELCOME.
    Destination,
    /// The source, in PROOF.
    Source,
}

/// Bytes of a channel binding: `tls-exporter` of RFC 9266.
pub const BINDING_BYTES: usize = 32;

/// What carries a link, and what that has proved. It arrives with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// The bytes as they are.
    Plain,
    /// TLS with certificates on both sides.
    Tls {
        /// What no other connection has.
        binding: [u8; BINDING_BYTES],
        /// The node in the certificate of the other side. `None` if it names no node, or several.
        certified: Option<NodeName>,
    },
}

impl Channel {
    fn binding(&self) -> Option<&[u8; BINDING_BYTES]> {
        match self {
            Channel::Plain => None,
            Channel::Tls { binding, .. } => Some(binding),
        }
    }
}

const PLAIN_INPUT_BYTES: usize = 32 + HELLO_BYTES + WELCOME_BYTES - PROOF_BYTES;

/// What a proof is the digest of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofInput {
    bytes: [u8; PLAIN_INPUT_BYTES + BINDING_BYTES],
    len: usize,
}

impl AsRef<[u8]> for ProofInput {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The bytes that a proof is the digest of: a label for the role and the channel, HELLO, WELCOME
/// without its proof, and over TLS the channel binding. HELLO and WELCOME contain both nonces.
#[must_use]
pub fn proof_input(
    role: ProofRole,
    hello: &Hello,
    welcome: &Welcome,
    channel: &Channel,
) -> ProofInput {
    let label: &[u8; 32] = match (role, channel) {
        (ProofRole::Destination, Channel::Plain) => b"penstock link 1, the destination",
        (ProofRole::Source, Channel::Plain) => b"penstock link 1, the source     ",
        (ProofRole::Destination, Channel::Tls { .. }) => b"penstock link 1, tls destination",
        (ProofRole::Source, Channel::Tls { .. }) => b"penstock link 1, tls source     ",
    };
    let mut bytes = [0; PLAIN_INPUT_BYTES + BINDING_BYTES];
    let (plain, end) = bytes.split_at_mut(PLAIN_INPUT_BYTES);
    plain[..32].copy_from_slice(label);
    plain[32..32 + HELLO_BYTES].copy_from_slice(&hello.encode());
    let welcome = welcome.encode();
    plain[32 + HELLO_BYTES..].copy_from_slice(&welcome[..WELCOME_BYTES - PROOF_BYTES]);
    let mut len = PLAIN_INPUT_BYTES;
    if let Some(binding) = channel.binding() {
        end.copy_from_slice(binding);
        len += BINDING_BYTES;
    }
    ProofInput { bytes, len }
}

fn array<const N: usize>(body: &[u8], at: usize) -> [u8; N] {
    body[at..at + N].try_into().expect("as many bytes")
}

impl Hello {
    pub(crate) fn read(body: &[u8]) -> Result<Self, LinkFault> {
        if body.len() != HELLO_BYTES {
            return Err(LinkFault::BodyLength {
                kind: "HELLO",
                len: body.len(),
                needed: HELLO_BYTES,
            });
        }
        Ok(Hello {
            versions: (read_u16(body, 0), read_u16(body, 2)),
            log_format: read_u32(body, 4),
            cluster_id: array(body, 8),
            node_id: array(body, 24),
            start: NodeStart::read(body),
            nonce: array(body, 48),
            node: body[80],
            to_node: body[81],
            shard: read_u16(body, 82),
            shards: read_u16(body, 84),
            to_shard: read_u16(body, 86),
            record_bytes_max: read_u32(body, 88),
            frame_bytes_max: read_u32(body, 92),
        })
    }

    pub(crate) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut body = [0; HELLO_BYTES];
        body[0..2].copy_from_slice(&self.versions.0.to_le_bytes());
        body[2..4].copy_from_slice(&self.versions.1.to_le_bytes());
        body[4..8].copy_from_slice(&self.log_format.to_le_bytes());
        body[8..24].copy_from_slice(&self.cluster_id);
        body[24..40].copy_from_slice(&self.node_id);
        self.start.write(&mut body);
        body[48..80].copy_from_slice(&self.nonce);
        body[80] = self.node;
        body[81] = self.to_node;
        body[82..84].copy_from_slice(&self.shard.to_le_bytes());
        body[84..86].copy_from_slice(&self.shards.to_le_bytes());
        body[86..88].copy_from_slice(&self.to_shard.to_le_bytes());
        body[88..92].copy_from_slice(&self.record_bytes_max.to_le_bytes());
        body[92..96].copy_from_slice(&self.frame_bytes_max.to_le_bytes());
        body
    }
}

impl Welcome {
    pub(crate) fn read(body: &[u8]) -> Result<Self, LinkFault> {
        if body.len() != WELCOME_BYTES {
            return Err(LinkFault::BodyLength {
                kind: "WELCOME",
                len: body.len(),
                needed: WELCOME_BYTES,
            });
        }
        zero(&body[2..4], "what stands behind the version in WELCOME")?;
        zero(&body[81..82], "what stands behind the node in WELCOME")?;
        zero(&body[86..88], "what stands behind the shards in WELCOME")?;
        Ok(Welcome {
            version: read_u16(body, 0),
            log_format: read_u32(body, 4),
            cluster_id: array(body, 8),
            node_id: array(body, 24),
            start: NodeStart::read(body),
            nonce: array(body, 48),
            node: body[80],
            shard: read_u16(body, 82),
            shards: read_u16(body, 84),
            record_bytes_max: read_u32(body, 88),
            frame_bytes_max: read_u32(body, 92),
            proof: array(body, 96),
        })
    }

    pub(crate) fn encode(&self) -> [u8; WELCOME_BYTES] {
        let mut body = [0; WELCOME_BYTES];
        body[0..2].copy_from_slice(&self.version.to_le_bytes());
        body[4..8].copy_from_slice(&self.log_format.to_le_bytes());
        body[8..24].copy_from_slice(&self.cluster_id);
        body[24..40].copy_from_slice(&self.node_id);
        self.start.write(&mut body);
        body[48..80].copy_from_slice(&self.nonce);
        body[80] = self.node;
        body[82..84].copy_from_slice(&self.shard.to_le_bytes());
        body[84..86].copy_from_slice(&self.shards.to_le_bytes());
        body[88..92].copy_from_slice(&self.record_bytes_max.to_le_bytes());
        body[92..96].copy_from_slice(&self.frame_bytes_max.to_le_bytes());
        body[96..128].copy_from_slice(&self.proof);
        body
    }
}
