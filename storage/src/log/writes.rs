//! The sealed writes of a log, in its order.

use crate::format::frame::{FrameHome, FrameKind};
use crate::planted::{Bug, is_planted};
use crate::types::place::FileId;
use crate::types::place::Lsn;

/// Tokens of the log have this bit; those of reads do not.
pub const LOG_TOKEN_BIT: u64 = 1 << 63;

pub(super) const SYNC_TOKEN_BIT: u64 = 1 << 62;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    UnderWay,
    Written,
    Syncing,
    Durable,
}

pub(super) struct Write<B> {
    pub(super) progress: Progress,
    pub(super) file: FileId,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) block: Option<B>,
    /// The last record that is durable once this write and all before it are.
    pub(super) last_lsn: Lsn,
    /// The segment of a frame and its kind; a segment header has none.
    pub(super) frame: Option<(FrameHome, FrameKind)>,
    /// What its frame tells durable; set when it goes to the disk.
    pub(super) told: Lsn,
    /// When it went there.
    pub(super) emitted_us: u64,
    /// Files that nothing counts in any more once this write is durable.
    pub(super) releases: Vec<FileId>,
    /// A contents frame that tells what was owed.
    pub(super) tells_owed: bool,
}

impl<B> Write<B> {
    /// Whether nothing else may be under way with it.
    pub(super) fn is_alone(&self) -> bool {
        match self.frame {
            None | Some((_, FrameKind::Mark)) => true,
            // What a release relies on must be durable before it.
            Some((_, FrameKind::Contents)) => !is_planted(Bug::ContentsTooEarly),
            Some(_) => false,
        }
    }
}
