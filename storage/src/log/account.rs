//! What a log counts.

use crate::format::frame::padded_bytes;
use crate::histogram::Histogram;
use crate::log::reports::LogCounters;

/// The counters of a log, and how many records its frames hold.
#[derive(Default)]
pub(super) struct LogAccount {
    /// What was done so far.
    pub(super) counters: LogCounters,
    /// Records of each frame that holds a commit.
    batches: Histogram,
}

impl LogAccount {
    /// How many records the frames hold that hold a commit.
    pub(super) fn batches(&self) -> &Histogram {
        &self.batches
    }

    /// Counts a record of so many bytes.
    #[inline]
    pub(super) fn add_record(&mut self, bytes: u64) {
        self.counters.records += 1;
        self.counters.record_bytes += bytes;
    }

    /// Counts a copy that cleaning has made.
    pub(super) fn add_copy(&mut self, bytes: u64) {
        self.add_record(bytes);
        self.counters.moved_records += 1;
        self.counters.moved_bytes += bytes;
    }

    /// Counts a frame of records that is sealed.
    pub(super) fn add_frame(&mut self, record_count: u32, has_commits: bool, body_bytes: usize) {
        self.counters.frames += 1;
        if has_commits {
            self.batches.add(u64::from(record_count), 1);
            self.counters.commit_bytes += padded_bytes(body_bytes) as u64;
        }
    }
}
