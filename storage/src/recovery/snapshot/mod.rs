//! Snapshots of the index: the file, its writer and reader, and when one is to be taken.

// ---- pages
pub(crate) mod coverage;
pub(crate) mod format;
pub(crate) mod load;
pub(crate) mod packed;
pub(crate) mod proof;
pub(crate) mod read;
pub(crate) mod take;
pub(crate) mod write;

pub use coverage::Coverage;
pub use format::{
    CHUNK_ENTRIES_MAX, COVERED_SEGMENTS_MAX, CoveredSegment, SNAPSHOT_MAGIC, SNAPSHOT_VERSION,
    SNAPSHOT_VERSION_OF_MARKS, SNAPSHOT_VERSION_OF_REDO, SnapshotError, SnapshotFooter,
    SnapshotHeader, SnapshotItem, SnapshotName,
};
pub use load::load;
pub use proof::{ProvenEnd, ProvenEnds, stub};
pub use read::SnapshotReader;
pub use take::{Taken, Taking};
pub use write::SnapshotWriter;
