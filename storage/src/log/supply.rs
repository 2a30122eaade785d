//! The spare segments of a log.

use crate::types::place::FileId;

pub(super) struct Spare {
    pub(super) file: FileId,
    pub(super) salt: u64,
    pub(super) bytes: u64,
    pub(super) is_reused: bool,
}

/// Spare segments that are to be ready: two ahead, and one that only cleaning takes.
pub const SPARES_READY: usize = 3;

/// With fewer spares nothing but cleaning goes on in a new segment.
pub(super) const SPARES_TO_ROTATE: usize = 2;
