//! The open segment and the open frame.

use crate::format::segment::SegmentHeader;
use crate::format::summary::Summary;
use crate::types::place::FileId;

pub(super) struct OpenSegment {
    pub(super) header: SegmentHeader,
    pub(super) file: FileId,
    /// Where the next frame goes.
    pub(super) end_offset: u64,
    pub(super) summary: Summary,
}

pub(super) struct OpenFrame<B> {
    pub(super) block: B,
    /// Bytes of the body so far, and at most.
    pub(super) body_bytes: usize,
    pub(super) body_bytes_max: usize,
    pub(super) record_count: u32,
    /// Not all of its records were moved by cleaning.
    pub(super) has_commits: bool,
}
