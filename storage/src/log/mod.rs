//! The writer of one log: records in, writes and syncs out. The layer uses small types and formats,
//! and does not know what the records mean.

// ---- pages
pub(crate) mod account;
pub(crate) mod clock;
pub(crate) mod config;
pub(crate) mod direct;
pub(crate) mod frames;
pub(crate) mod gathering;
pub(crate) mod growth;
#[expect(
    clippy::module_inception,
    reason = "the type gives its name to the layer"
)]
pub(crate) mod log;
pub(crate) mod open;
pub(crate) mod phase;
pub(crate) mod release;
pub(crate) mod reports;
pub(crate) mod room;
pub(crate) mod sealing;
pub(crate) mod spares;
pub(crate) mod supply;
pub(crate) mod writes;

pub use config::{LogConfig, SyncMethod, segment_bytes_min};
pub use log::Log;
pub use reports::{DurableEnd, DurableSegment, LogCounters, Moved, Poisoned, SealedFrame};
pub use room::{Purpose, Room};
pub use supply::SPARES_READY;
