//! The fixed properties of a log.

use crate::format::frame::padded_bytes;
use crate::format::segment::Owner;
use crate::format::summary::SUMMARY_BYTES_MAX;
use crate::types::io::BLOCK_BYTES;

/// How a frame is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMethod {
    /// The write itself completes only when durable.
    DurableWrite,
    /// A plain write, then a sync of the file.
    WriteThenSync,
}

/// The fixed properties of a log.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Written into every segment.
    pub owner: Owner,
    /// The start of the node.
    pub incarnation: u64,
    /// The log's number, never reused.
    pub log_id: u64,
    /// Bytes of a standard frame block, a multiple of [`BLOCK_BYTES`].
    pub frame_bytes: usize,
    /// Bytes of a record, at most; a segment must have at least
    /// [`LogConfig::segment_bytes_min`].
    pub record_bytes_max: usize,
    /// Writes emitted and not durable yet, at most.
    pub frames_in_flight_max: usize,
    /// Sealed frames that are not durable yet, at most; more records have to wait.
    pub frames_sealed_max: usize,
    /// How frames are made durable.
    pub sync: SyncMethod,
    /// How long a record that nobody waits for may stay in memory, in microseconds.
    pub interval_us: u64,
    /// Idleness after which a mark frame records how far the log is durable, in microseconds.
    pub idle_mark_us: u64,
}

impl LogConfig {
    /// The smallest segment that this log can use: four of its largest frames, and what every
    /// segment holds besides.
    #[must_use]
    pub fn segment_bytes_min(&self) -> u64 {
        segment_bytes_min(self.frame_bytes, self.record_bytes_max)
    }

    /// The smallest segment for records that fit in a frame of the usual length, a multiple of
    /// [`BLOCK_BYTES`].
    #[must_use]
    pub fn segment_bytes_first(&self) -> u64 {
        let bytes = segment_bytes_min(self.frame_bytes, 0);
        bytes.next_multiple_of(BLOCK_BYTES as u64)
    }
}

/// As [`LogConfig::segment_bytes_min`].
#[must_use]
pub fn segment_bytes_min(frame_bytes: usize, record_bytes_max: usize) -> u64 {
    let frame_bytes_max = padded_bytes(record_bytes_max).max(frame_bytes);
    (BLOCK_BYTES + 4 * frame_bytes_max) as u64 + SEGMENT_TAIL_BYTES
}

/// What a segment keeps free behind its commit frames: one mark and the summary. One mark is
/// enough, because another one needs a commit frame between.
pub(super) const SEGMENT_TAIL_BYTES: u64 = (BLOCK_BYTES + SUMMARY_BYTES_MAX) as u64;
