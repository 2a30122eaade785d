//! Who is at the other end: what both sides tell of themselves, and what their proofs are made of.
//!
//! A proof is a keyed digest (BLAKE3) under the secret of the cluster over what [`proof_input`]
//! gives. The secret does not come here: the owner computes and compares.

use crate::batch::{read_u16, read_u32};
use crate::link::body::zero;
use crate::link::fault::LinkFault;

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;
/// Random and fresh for each connection.
pub type Nonce = [u8; NONCE_BYTES];
/// A keyed digest.
pub type Proof = [u8; PROOF_BYTES];

pub(crate) const HELLO_BYTES: usize = 96;
pub(crate) const WELCOME_BYTES: usize = 128;

/// What the source tells of itself, and whom it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Lowest and highest version of the link that it speaks.
    pub versions: (u16, u16),
    /// Version of the format of its records.
    pub log_format: u32,
    /// The cluster.
    pub cluster_id: [u8; 16],
    /// The node.
    pub node_id: [u8; 16],
    /// Which start of the node.
    pub start: NodeStart,
    /// Of this connection.
    pub nonce: Nonce,
    /// Number of the node in its cluster, the low byte of its epochs.
    pub node: u8,
    /// Number of the node that it wants.
    pub to_node: u8,
    /// Which of its shards speaks.
    pub shard: u16,
    /// How many it has.
    pub shards: u16,
    /// Which shard of the other node it wants.
    pub to_shard: u16,
    /// Bytes of its largest record.
    pub record_bytes_max: u32,
    /// Bytes of a frame that it takes.
    pub frame_bytes_max: u32,
}

/// Which start of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStart {
    /// Rises at every start.
    pub incarnation: u32,
    /// Random: two starts under one incarnation are those of copies of one directory. 0 if it is
    /// not known.
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

/// What the destination tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version of the link that is spoken from here on.
    pub version: u16,
    /// Version of the format of its records.
    pub log_format: u32,
    /// The cluster.
    pub cluster_id: [u8; 16],
    /// The node.
    pub node_id: [u8; 16],
    /// Which start of the node.
    pub start: NodeStart,
    /// Of this connection.
    pub nonce: Nonce,
    /// Number of the node in its cluster.
    pub node: u8,
    /// Which of its shards answers.
    pub shard: u16,
    /// How many it has.
    pub shards: u16,
    /// Bytes of the largest record that it takes.
    pub record_bytes_max: u32,
    /// Bytes of a frame that it takes.
    pub frame_bytes_max: u32,
    /// That it knows the secret.
    pub proof: Proof,
}

/// Whose proof it is: it is of no use as the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofRole {
    /// Of WELCOME.
    Destination,
    /// Of PROOF.
    Source,
}

/// Bytes of what a proof is computed over.
pub const PROOF_INPUT_BYTES: usize = 32 + HELLO_BYTES + WELCOME_BYTES - PROOF_BYTES;

/// What a proof is computed over: a label, and all that both have said, with both nonces. The
/// proof in `welcome` does not count.
#[must_use]
pub fn proof_input(role: ProofRole, hello: &Hello, welcome: &Welcome) -> [u8; PROOF_INPUT_BYTES] {
    let label: &[u8; 32] = match role {
        ProofRole::Destination => b"penstock link 1, the destination",
        ProofRole::Source => b"penstock link 1, the source     ",
    };
    let mut input = [0; PROOF_INPUT_BYTES];
    input[..32].copy_from_slice(label);
    input[32..32 + HELLO_BYTES].copy_from_slice(&hello.encode());
    let welcome = welcome.encode();
    input[32 + HELLO_BYTES..].copy_from_slice(&welcome[..WELCOME_BYTES - PROOF_BYTES]);
    input
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
