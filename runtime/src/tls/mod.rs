//! TLS 1.3 around the bytes of a connection: state without sockets, and the files that it is made
//! from.
//!
//! What must hold: nothing older than TLS 1.3, no early data, no tickets, no renegotiation (TLS 1.3
//! has none). The life of a connection stands in `DESIGN.md`, what clients see in `PROTOCOL.md`.

mod chain;
mod connection;
mod current;
mod files;
mod identity;
mod links;
mod names;
mod verifiers;

pub(crate) use connection::{Peer, TlsConnection, TlsFault};
pub(crate) use current::{Change, ServedByPort, ServedTls};
pub(crate) use files::TlsFiles;
pub(crate) use names::common_name;
