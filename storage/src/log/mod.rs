//! The writer of one log: records in, writes and syncs out. The layer uses small types and formats, and does not
//! know what the records mean.

// ---- pages
pub(crate) mod growth;
#[expect(
    clippy::module_inception,
    reason = "the type gives its name to the layer"
)]
pub(crate) mod log;

pub use log::{
    DurableEnd, DurableSegment, LOG_TOKEN_BIT, Log, LogConfig, LogCounters, Moved, Poisoned,
    Purpose, Room, SPARES_READY, SealedFrame, SyncMethod, segment_bytes_min,
};
