//! The wire between nodes: what a primary and the members of its partitions say to each other.
//!
//! As on the clients' wire, a field is read only after it was checked, a length only if the bytes
//! are there, and no bytes are copied. Unlike there, every fault ends the link, because the peer is
//! a node and not a client that needs an answer.
//!
//! Records are opaque bytes here. The owner of a link has its secret, socket and clock. `LINK.md`
//! describes every byte.

mod body;
mod course;
pub mod fault;
pub mod frame;
pub mod handshake;
pub mod heartbeat;
mod history;
mod limits;
pub mod message;
mod node_name;
mod partition_set;
mod publish;
mod records;
mod refused;
mod rewind;

pub use course::{Answer, Begin, Close, Handover, Join, Membership, Mode, Open, State, UnderWay};
pub use fault::LinkFault;
pub use frame::{LINK_HEADER_BYTES, LinkFrame, LinkHeader, LinkReceived, Marks};
pub use handshake::{
    Channel, Hello, NONCE_BYTES, NodeStart, Nonce, PROOF_BYTES, Proof, ProofRole, Welcome,
};
pub use heartbeat::{
    Claim, Claims, Confirm, HEARTBEAT_FRAME_BYTES_MAX, HEARTBEAT_SHARD, Heartbeat,
};
pub use history::{EpochEntry, Epochs, Position};
pub use message::LinkMessage;
pub use node_name::NodeName;
pub use partition_set::PartitionSet;
pub use publish::{PUBLISH_SHARD, Publish};
pub use records::Records;
pub use refused::{RefusalCode, Refused};
pub use rewind::{Rewind, Rewound};
