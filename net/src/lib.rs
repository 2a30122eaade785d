//! The wire: frames, requests and replies as views over bytes, and one connection's receiving
//! state. The client is the crate `penstock-client`.
//!
//! It promises: nothing is read before it was checked, no length is believed, no item is copied;
//! damage to one frame or item leaves the connection usable wherever its framing survives.
//!
//! `expression` reads guards, effects and values as people write them. `program` is RUN, in
//! `RUN.md`.
//!
//! `rights` is what users may do, and `users` the file that says so, in `RIGHTS.md`.
//!
//! `link` is the wire between nodes, in `LINK.md`. `resp` is the port for clients of Redis, in
//! `RESP.md`.
//!
//! It does not know: what a request means to a store, shards, disks, time. It makes no
//! system call. Every byte is described in `PROTOCOL.md`.
#![forbid(unsafe_code)]

pub mod apply;
pub mod auth;
pub mod batch;
pub mod expression;
pub mod field;
pub mod frame;
pub mod hello;
pub mod instruction;
pub mod item;
pub mod keyspace;
pub mod level;
pub mod limits;
pub mod link;
pub mod pieces;
pub mod ping;
pub mod placement;
pub mod program;
pub mod receive;
pub mod refusal;
pub mod reply;
pub mod request;
pub mod resp;
pub mod rights;
pub mod scan;
pub mod script;
pub mod slot;
pub mod status;
pub mod stranger;
pub mod users;
pub mod version;
