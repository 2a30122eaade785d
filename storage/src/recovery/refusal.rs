//! Why a start refuses a data directory, in types and in words.

use crate::format::corruption::Corruption;
use crate::format::corruption::Within;
use std::fmt;
use std::io;

use crate::format::contents::SegmentEnd;
use crate::format::row::Row;
use crate::format::segment::Owner;
use crate::recovery::snapshot::format::SnapshotName;
use crate::types::place::FileId;
use crate::types::place::Lsn;

/// Why a data directory cannot be served.
#[derive(Debug)]
pub enum RecoveryError {
    /// A file could not be read.
    Read {
        /// The file.
        file: Option<FileId>,
        /// What the system said.
        error: io::Error,
    },
    /// A file of another node or cluster lies in the directory.
    Foreign {
        /// The file.
        file: FileId,
        /// What its header says.
        found: Owner,
    },
    /// Written by a version with another format.
    Version {
        /// The file.
        file: FileId,
        /// What was found, in words.
        found: String,
    },
    /// Something that was durable is not what was written.
    Corrupt(Corruption),
    /// No file holds a segment of a log that goes on behind it.
    SegmentMissing {
        /// The log.
        log_id: u64,
        /// The sequence of the segment.
        sequence: u64,
        /// The file of the segment that is there instead. It is not at fault.
        next: FileId,
        /// The first record that may be missing.
        lsn_from: Lsn,
        /// The last record that may be missing.
        lsn_to: Lsn,
    },
    /// A log ends before the last record that a snapshot proves durable.
    TailLost {
        /// The log.
        log_id: u64,
        /// Where it ends; none if it has no segment.
        end: Option<(FileId, u64)>,
        /// The first record that is lost.
        lsn_from: Lsn,
        /// The last record that is proved.
        lsn_to: Lsn,
        /// What proves it.
        snapshot: SnapshotName,
    },
    /// The last segments of an inherited log are missing.
    EndMissing {
        /// The log.
        log_id: u64,
        /// The first record that may be missing.
        lsn_from: Lsn,
        /// Where it must end.
        end: SegmentEnd,
    },
}

impl RecoveryError {
    /// The row of the table that refuses the log; none if a read failed.
    #[must_use]
    pub fn row(&self) -> Option<Row> {
        match self {
            RecoveryError::Read { .. } => None,
            RecoveryError::Foreign { .. } => Some(Row::Foreign),
            RecoveryError::Version { .. } => Some(Row::OtherFormat),
            RecoveryError::Corrupt(corruption) => Some(corruption.row),
            RecoveryError::SegmentMissing { .. } | RecoveryError::EndMissing { .. } => {
                Some(Row::SegmentMissing)
            }
            RecoveryError::TailLost { .. } => Some(Row::TailLost),
        }
    }

    /// Whether something that was durable is lost or damaged: a repair or a backup is the way out.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            RecoveryError::Corrupt(_)
            | RecoveryError::SegmentMissing { .. }
            | RecoveryError::TailLost { .. }
            | RecoveryError::EndMissing { .. } => true,
            RecoveryError::Read { .. }
            | RecoveryError::Foreign { .. }
            | RecoveryError::Version { .. } => false,
        }
    }

    /// The same in words, with the path of each file in the data directory `data`.
    #[must_use]
    pub fn within<'a>(&'a self, data: &'a str) -> Within<'a, Self> {
        Within::new(self, data)
    }
}

impl fmt::Display for Within<'_, RecoveryError> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (segments, snapshots) = (self.folder("segments"), self.folder("snapshots"));
        match self.subject {
            RecoveryError::Read {
                file: Some(file),
                error,
            } => write!(f, "cannot read {segments}{:08}.seg: {error}", file.0),
            RecoveryError::Read { file: None, error } => {
                write!(f, "cannot list the segments: {error}")
            }
            RecoveryError::Foreign { file, found } => write!(
                f,
                "{segments}{:08}.seg belongs to node {} of cluster {}, not to this data directory",
                file.0,
                Hex(&found.node_id),
                Hex(&found.cluster_id)
            ),
            RecoveryError::Version { file, found } => write!(
                f,
                "{segments}{:08}.seg has {found}, which this version does not read",
                file.0
            ),
            RecoveryError::Corrupt(corruption) => corruption.within(self.data).fmt(f),
            RecoveryError::SegmentMissing {
                log_id,
                sequence,
                next,
                lsn_from,
                lsn_to,
            } => write!(
                f,
                "segment {sequence} of log {log_id} is missing: no file holds it, and records \
                 between LSN {} and {} were durable there (if cleaning has released it, the list \
                 that tells so is lost); the segment behind it, {segments}{:08}.seg, is in place",
                lsn_from.0, lsn_to.0, next.0
            ),
            RecoveryError::TailLost {
                log_id,
                end,
                lsn_from,
                lsn_to,
                snapshot,
            } => {
                match end {
                    Some((file, offset)) => write!(
                        f,
                        "log {log_id} ends at LSN {}, in {segments}{:08}.seg at offset {offset}",
                        lsn_from.0 - 1,
                        file.0
                    )?,
                    None => write!(f, "log {log_id} has no segment")?,
                }
                write!(
                    f,
                    ", but the snapshot {snapshots}{snapshot} proves that all records up to LSN \
                     {} were durable: LSN {} to {} are lost",
                    lsn_to.0, lsn_from.0, lsn_to.0
                )
            }
            RecoveryError::EndMissing {
                log_id,
                lsn_from,
                end,
            } => write!(
                f,
                "the end of log {log_id} is missing: IDENTITY tells that its last segment is {} \
                 and its last record LSN {} (records from LSN {} on)",
                end.sequence, end.last_lsn.0, lsn_from.0
            ),
        }
    }
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.within("").fmt(f)
    }
}

impl std::error::Error for RecoveryError {}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
