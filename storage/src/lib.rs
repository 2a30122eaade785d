//! One shard's log and index: formats, group commit, recovery, value cache.
//!
//! This crate decides; it never touches a disk, a clock or a thread. It emits reads and writes
//! ([`io::Io`]) and is told of their completion, so that the same code runs under the server's
//! rings and under a simulated disk.
//!
//! It promises: what [`log::Log::durable`] covers is found again by [`recovery`] after any crash;
//! a frame replays whole or not at all; damage is reported and never taken for the end of the log.
//!
//! It does not know: connections, requests, slots' meaning, other shards or nodes.
#![forbid(unsafe_code)]

pub mod budget;
pub mod cache;
mod checksum;
pub mod cleaning;
pub mod clock;
pub mod contents;
pub mod expiring;
pub mod frame;
mod generation;
mod growth;
pub mod histogram;
pub mod index;
pub mod inheritance;
pub mod inspect;
pub mod key_table;
pub mod keyspace;
pub mod layout;
pub mod live;
pub mod local;
pub mod log;
pub mod pace;
pub mod planted;
pub mod reached;
pub mod record;
pub mod recovery;
pub mod repair;
pub mod replica;
pub mod scrub;
pub mod segment;
pub mod sizing;
pub mod snapshot;
pub mod spare;
pub mod store;
pub mod summary;
pub mod system_key;
mod types;
pub mod versions;

pub use types::{io, packed_place, place, version};
