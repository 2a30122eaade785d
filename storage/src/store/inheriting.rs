//! How a store takes the keys of inherited logs over into its own.

use crate::format::contents::SealedSegment;
use crate::if_planted;
use crate::planted::{Bug, is_planted};
use crate::store::inheritance::Inheritance;
use crate::store::inheritance::InheritedLog;
use crate::store::store::Store;
use crate::types::io::Blocks;
use crate::types::place::FileId;

impl<P: Blocks> Store<P> {
    /// Takes `logs` over, oldest first, whose parts were replayed before those of the own log.
    pub fn inherit(&mut self, logs: &[InheritedLog]) {
        for InheritedLog {
            history, time_ms, ..
        } in logs
        {
            if_planted!(Bug::SequencesNotTakenOver, continue);
            self.data.numbering.raise(&history.sequences);
            self.log_mut().inherit(history, *time_ms);
        }
        self.inheritance = Inheritance::of(logs);
    }

    /// Bytes of inherited segments that are still to be gone through.
    #[must_use]
    pub fn inherited_bytes(&self) -> u64 {
        let inheritance = &self.inheritance;
        let left = inheritance.segments.get(inheritance.next..);
        left.into_iter()
            .flatten()
            .map(|inherited| inherited.segment.file_bytes)
            .sum()
    }

    /// Whether inherited logs are there.
    #[inline]
    #[must_use]
    pub fn is_inheriting(&self) -> bool {
        self.inheritance.is_there()
    }

    /// The segments of inherited logs, each with the number of its log.
    pub fn inherited_segments(&self) -> impl Iterator<Item = (u64, &SealedSegment)> {
        let segments = self.inheritance.segments.iter();
        segments.map(|inherited| (inherited.home.log_id, &inherited.segment))
    }

    /// The files of inherited logs.
    pub fn inherited_files(&self) -> impl Iterator<Item = FileId> {
        self.inherited_segments().map(|(_, segment)| segment.file)
    }

    /// Whether the inherited logs could vanish for all that this store needs of them. Between two
    /// changes.
    ///
    /// # Panics
    /// If the index points into one of them although all was judged.
    pub fn has_taken_over(&mut self) -> bool {
        if !self.inheritance.is_there() || !self.inheritance.is_judged() {
            return false;
        }
        let appended = self.log().appended();
        let judged_at = *self.inheritance.judged_at.get_or_insert(appended);
        if_planted!(Bug::TakenOverUndurable, return true);
        self.log_mut().want_durable(judged_at);
        if self.log().durable() < judged_at || self.log().owes_contents() {
            return false;
        }
        self.apply_moves();
        for inherited in &self.inheritance.segments {
            let file = inherited.segment.file;
            let parts_bytes = self.data.live.parts(file);
            assert!(
                parts_bytes == 0 || is_planted(Bug::ForgetOneMove),
                "the index points to {parts_bytes} bytes of {:08}.seg, all of which was judged",
                file.0
            );
        }
        true
    }

    /// The inherited logs have vanished. Returns their files, to which nothing refers any more.
    pub fn forget_inherited(&mut self) -> Vec<FileId> {
        let files: Vec<FileId> = self.inherited_files().collect();
        for &file in &files {
            self.data.live.forget(file);
        }
        self.inheritance = Inheritance::default();
        self.cleaner.must_pick = true;
        files
    }
}
