//! One shard's log and keys: formats, group commit, recovery, value cache.
//!
//! This crate decides; it never touches a disk, a clock or a thread. It emits reads and writes
//! ([`io::Io`]) and is told of their completion, so that the same code runs under the server's
//! rings and under a simulated disk.
//!
//! It promises: what [`log::Log::durable`] covers is found again by [`recovery`] after any crash;
//! a frame replays whole or not at all; damage is reported and never taken for the end of the log.
//!
//! It does not know: connections, requests, slots' meaning, other shards or nodes.
//!
//! # Layers
//!
//! A layer uses the layers above it in this table and no other. A test reads the imports and fails
//! when one points the other way. `cargo tidy` fails when files import each other in a circle.
//!
//! | folder | holds | does not know |
//! |---|---|---|
//! | `types` | versions, places, ordinals of records, requests to the disk | every other layer |
//! | `format` | records, frames, segments: encoders and checks of every byte in the log | memory |
//! | `memory` | index and value cache as one type, and the budget of both | how a log is written |
//! | `log` | the writer: append, write queue, supply of segments, release | what records mean |
//! | `store` | changes, cold reads, keyspaces, kept versions, cleaning, scrub | how a start reads |
//! | `recovery` | survey, replay, snapshots: a directory becomes memory | who serves it |
//! | `repair` | a report of a directory, and a repair of what a start refuses | running stores |
//! | `scan` | sorted tables of the keys of sealed segments | stores |
//!
//! Other crates name a module without its layer: `penstock_storage::record`.
#![forbid(unsafe_code)]

mod format;
pub mod histogram;
pub mod log;
mod memory;
pub mod planted;
pub mod recovery;
pub mod repair;
mod scan;
pub mod store;
mod types;

pub use format::{
    checksum, contents, direct_part, extension, frame, head, horizon, layout, reached, record,
    redo, segment, spare, summary, system_key, token,
};
pub use memory::{budget, cache, index, timers};
pub use recovery::snapshot;
pub use repair::inspect;
pub use scan::key_table;
pub use store::cleaning::{expiring, live, pace, sizing};
pub use store::{cleaning, clock, inheritance, keyspace, local, replica, scrub, versions};
pub use types::{io, key_home, packed_place, place, version};
