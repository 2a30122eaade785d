//! The segment files that a shard has asked for, and those that it is about to give back.

use penstock_storage::place::FileId;

use crate::spare_failure::SpareFailure;

/// Files that come and go.
#[derive(Debug, Default)]
pub(crate) struct SegmentFiles {
    /// Files that were asked for and have not come.
    requested: usize,
    /// Why the last one that was asked for did not come, if not for want of space.
    failure: Option<SpareFailure>,
    /// Files of released segments that reads under way still refer to.
    leaving: Vec<FileId>,
    has_reported_taken_over: bool,
}

impl SegmentFiles {
    /// How many more files to ask for, so that `wanted` are on their way.
    pub(crate) fn request(&mut self, wanted: usize) -> usize {
        let more = wanted.saturating_sub(self.requested);
        self.requested += more;
        more
    }

    /// One has come. While the log `is_low` on them, what grows may still be refused for the same
    /// cause.
    pub(crate) fn came(&mut self, is_low: bool) {
        self.requested = self.requested.saturating_sub(1);
        if !is_low {
            self.failure = None;
        }
    }

    /// None comes now; of another cause than want of space `failure` tells.
    pub(crate) fn refused(&mut self, failure: Option<SpareFailure>) {
        self.failure = failure;
    }

    /// Why the last one did not come, if not for want of space.
    #[inline]
    pub(crate) fn failure(&self) -> Option<SpareFailure> {
        self.failure
    }

    /// A segment is released: its file leaves when no read refers to it.
    pub(crate) fn leave(&mut self, file: FileId) {
        self.leaving.push(file);
    }

    /// Whether a released file is still read.
    pub(crate) fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// The released files. [`SegmentFiles::leave`] gives back those that are still read.
    pub(crate) fn take_leaving(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.leaving)
    }

    /// Whether it was told that the inherited logs are not needed any more.
    pub(crate) fn has_reported_taken_over(&self) -> bool {
        self.has_reported_taken_over
    }

    /// It is told.
    pub(crate) fn report_taken_over(&mut self) {
        self.has_reported_taken_over = true;
    }
}
