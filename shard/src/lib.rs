//! What one core does: requests in, replies out, and what must be durable in between.
//!
//! [`shard::Shard`] is one closed state machine: `step(now, event, &mut outbox)`. It owns the store
//! of its slots and the state of the connections that its core accepted; it executes requests,
//! sends those for other cores on in batches, and lets a reply leave only when what it depends on
//! is as durable as the request asked.
//!
//! It promises: an operation takes effect whole or not at all; operations of one connection on one
//! slot run in their order; a reply never shows what a crash could take back, unless it was asked
//! for; every queue has a bound, beyond which the answer is BUSY or the reading stops.
//!
//! It does not know: sockets, rings, threads, clocks, files.
#![forbid(unsafe_code)]

pub mod accounts;
mod admission;
pub mod audit;
pub mod bad_places;
mod chores;
pub mod cluster;
pub mod event;
pub mod execution;
pub mod firing;
pub mod front;
mod joint;
pub mod key_tables;
mod keyspaces;
pub mod lease;
mod logins;
pub mod mail;
mod member_read;
mod now;
pub mod opening;
mod phase;
mod programs;
pub mod publisher;
mod replica_waits;
pub mod replication;
mod requests;
mod scanning;
mod scans;
pub mod scripts;
mod segment_files;
mod sessions;
mod setup;
pub mod shard;
mod shell;
pub mod snapshots;
mod spare_failure;
mod step;
mod tokens;
pub mod topology;
pub mod tracking;

pub use accounts::counters::{Counters, ReplicationCounters};
pub use bad_places::BadPlace;
pub use event::{Event, Fatal, Outbox, Outside, TokenHorizon};
pub use firing::{FailedEffects, FiringCounters};
pub use joint::message::JointMail;
pub use joint::{ChangesReport, Joint, JointCounters};
pub use key_tables::{KeyTableCounters, KeyTableOrder};
pub use keyspaces::to_wire as settings_to_wire;
pub use logins::{Greeting, LoginCounters};
pub use mail::{KeyspaceMail, Mail, SessionId};
pub use now::Now;
pub use scanning::{cursor_order, slot_of_cursor};
pub use setup::{ShardConfig, hash_check};
pub use shard::Shard;
pub use shell::{Network, Shell, carry_out};
pub use snapshots::{SnapshotCounters, SnapshotPolicy, SnapshotWrite, WriteStep};
pub use spare_failure::SpareFailure;
pub use topology::Topology;
