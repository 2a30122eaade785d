//! Snapshots of the index: the file, its writer and reader, and when one is to be taken.

// ---- pages
pub(crate) mod packed;
pub(crate) mod proof;
#[expect(clippy::module_inception, reason = "split in the next step")]
pub(crate) mod snapshot;

pub use proof::{ProvenEnd, ProvenEnds, stub};
pub use snapshot::{
    CHUNK_ENTRIES_MAX, COVERED_SEGMENTS_MAX, Coverage, CoveredSegment, SNAPSHOT_MAGIC,
    SNAPSHOT_VERSION, SnapshotError, SnapshotFooter, SnapshotHeader, SnapshotItem, SnapshotName,
    SnapshotReader, SnapshotWriter, Taken, Taking, load,
};
