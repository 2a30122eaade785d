//! What the replay of a log came to.

use crate::format::contents::History;
use crate::format::row::Rows;
use crate::types::place::FileId;
use crate::types::place::{LogStart, Lsn};

/// What one log held.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Where the writer goes on.
    pub start: LogStart,
    /// Its segments, and how far its sequences and epochs have gone.
    pub history: History,
    /// The newest time that a frame carries, in unix milliseconds.
    pub time_ms: u64,
    /// Commit frames replayed.
    pub frames: u64,
    /// Records replayed.
    pub records: u64,
    /// Records that an earlier repair gave up: they have an LSN and are not there.
    pub given_up: u64,
    /// The end of the last segment was torn by a crash and left out.
    pub torn: Option<TornTail>,
    /// The file of the last record. It is to be synced before anything that was read is served:
    /// what is only in the system's memory is not durable yet.
    pub last_file: Option<FileId>,
    /// Files of segments that have a successor, and the lengths to which they can be cut. The last
    /// segment keeps its length: if it is found shorter, somebody else has cut it.
    pub truncate: Vec<(FileId, u64)>,
    /// The file of a last segment that holds no record and proves nothing that the one before it
    /// does not. `start` does not count it, so it is to be deleted for good (the directory synced)
    /// before the log is written.
    pub release: Option<FileId>,
    /// The rows of the table that its segments fell under.
    pub rows: Rows,
}

impl Recovered {
    /// Whether the log ends with a mark or summary, or with a segment's header, that proves
    /// everything before it.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        !self.start.is_unproven
    }
}

/// What a crash left half written. None of it was acknowledged as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub file: FileId,
    /// Where the good frames end.
    pub offset: u64,
    /// The first record that is not there.
    pub lsn: Lsn,
    /// From there to the last block that is not zero.
    pub bytes: u64,
}
