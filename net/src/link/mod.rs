//! The wire between nodes: what a primary and the members of its partitions say to each other.
//!
//! It promises, like the clients' wire: nothing is read before it was checked, no length is
//! believed, nothing is copied. Unlike there, nothing is forgiven: whatever does not check ends the
//! link, because the peer is a program of the same kind.
//!
//! It does not know: what a record is, secrets, sockets, time. Every byte is described in
//! `LINK.md`.

mod body;
mod course;
pub mod fault;
pub mod frame;
pub mod handshake;
mod history;
mod limits;
pub mod message;
mod records;
mod refused;
mod rewind;

pub use course::{Answer, Begin, Close, Handover, Join, Membership, Mode, Open, State, UnderWay};
pub use fault::LinkFault;
pub use frame::{LINK_HEADER_BYTES, LinkFrame, LinkHeader, LinkReceived, Marks};
pub use handshake::{Hello, NONCE_BYTES, NodeStart, Nonce, PROOF_BYTES, Proof, ProofRole, Welcome};
pub use history::{EpochEntry, Epochs, Position};
pub use message::LinkMessage;
pub use records::Records;
pub use refused::{RefusalCode, Refused};
pub use rewind::{Rewind, Rewound};
