//! Why a shard cannot be opened.

use std::fmt;
use std::io;

use penstock_storage::layout::INHERITED_MAX;
use penstock_storage::recovery::RecoveryError;
use penstock_storage::system_key::SYSTEM_KEY;

use super::TERM_BITS;

/// Why shards could not be opened.
#[derive(Debug)]
pub enum OpeningError {
    /// What stands in the files cannot be served. Nothing was changed.
    Recovery(RecoveryError),
    /// A log that the directory was not laid out for. Nothing was changed.
    LogNumber {
        /// Its number.
        log_id: u64,
        /// The first log that there is.
        first: u64,
        /// The last one.
        last: u64,
    },
    /// A key of the server's own that this version did not write. Nothing was changed.
    StrangeKey {
        /// The key.
        key: Box<[u8]>,
    },
    /// More logs would be inherited than can be. Nothing was changed.
    TooManyInherited {
        /// So many.
        logs: usize,
    },
    /// The log holds records of a term that this start was to begin. Nothing was changed.
    TermUsed {
        /// The epoch found.
        found: u32,
        /// The epoch of this start.
        epoch: u32,
    },
    /// The directory is one of a cluster's node, and the start names no cluster. Nothing was
    /// changed.
    OfCluster,
    /// The start names a cluster, and the directory holds what a node alone wrote. Nothing was
    /// changed.
    WrittenAlone,
    /// What a node of a cluster noted of a partition is not of this version.
    StrangeNote {
        /// The partition.
        partition: u16,
    },
    /// All terms are used up.
    TermsOver {
        /// Starts of this directory.
        incarnation: u64,
    },
    /// A segment is too small for the largest record.
    SegmentBytes {
        /// The size asked for.
        bytes: u64,
        /// The size needed.
        needed: u64,
        /// The largest record, in bytes.
        record_bytes_max: usize,
    },
    /// The verdict could not be acted on.
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl fmt::Display for OpeningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpeningError::Recovery(error) => error.fmt(f),
            OpeningError::LogNumber {
                log_id,
                first,
                last,
            } => write!(
                f,
                "there is a segment of log {log_id}, but the directory was laid out for logs \
                 {first} to {last}: the IDENTITY file is of an older copy of the directory"
            ),
            OpeningError::StrangeKey { key } => write!(
                f,
                "the log holds the key \"{}\", which begins with \"{}\" and is nothing that this \
                 version writes: an earlier version took it from a client, or a later one wrote \
                 it: start that version",
                key.escape_ascii(),
                SYSTEM_KEY.escape_ascii()
            ),
            OpeningError::TooManyInherited { logs } => write!(
                f,
                "{logs} logs of earlier numbers of shards would be there, and at most \
                 {INHERITED_MAX} can be: start with the number of shards of before until they are \
                 rewritten"
            ),
            OpeningError::TermUsed { found, epoch } => write!(
                f,
                "records of epoch {found:#x} are not older than this start ({epoch:#x}): the \
                 IDENTITY file is of an older copy of the directory"
            ),
            OpeningError::OfCluster => f.write_str(
                "the directory is that of a node of a cluster: start it with --cluster and its \
                 file",
            ),
            OpeningError::WrittenAlone => f.write_str(
                "--cluster needs a directory that is new or of a node of that cluster, and this \
                 one holds what a node alone wrote: give another --data",
            ),
            OpeningError::StrangeNote { partition } => write!(
                f,
                "what the log notes of partition {partition} and its cluster is not of this version"
            ),
            OpeningError::TermsOver { incarnation } => write!(
                f,
                "this directory was started {incarnation} times; terms end at {}",
                1 << TERM_BITS
            ),
            OpeningError::SegmentBytes {
                bytes,
                needed,
                record_bytes_max,
            } => write!(
                f,
                "--segment-bytes {bytes} is too small for the largest record of \
                 {record_bytes_max} bytes: it needs {needed}"
            ),
            OpeningError::System { action, error } => write!(f, "cannot {action}: {error}"),
        }
    }
}

impl std::error::Error for OpeningError {}
