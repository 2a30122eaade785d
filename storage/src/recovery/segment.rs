//! One segment file as a start found it.

use crate::format::contents::SegmentEnd;
use crate::format::segment::SegmentHeader;
use crate::types::place::FileId;

/// One segment file of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The file.
    pub file: FileId,
    /// Its length now, in bytes.
    pub file_bytes: u64,
    /// Its first block.
    pub header: SegmentHeader,
    /// Where it ends, if a contents frame tells.
    pub stored_end: Option<SegmentEnd>,
}
