//! What the next contents frame has to tell, and the files that may be removed when it is durable.

use crate::types::place::FileId;

/// The files of released segments on their way out of the log.
#[derive(Default)]
pub(super) struct Releases {
    /// Released files that no contents frame has told yet.
    unannounced: Vec<FileId>,
    /// No contents frame tells yet what was taken over from other logs.
    owes_contents: bool,
    /// Files that may be removed.
    removable: Vec<FileId>,
    /// The maker of spares has an answer to give: a file was removed, or a spare came and more are
    /// wanted.
    is_answer_due: bool,
}

impl Releases {
    /// Nothing in this file counts any more.
    pub(super) fn begin(&mut self, file: FileId) {
        self.unannounced.push(file);
    }

    /// Whether a release waits for a contents frame to tell it.
    pub(super) fn is_any_unannounced(&self) -> bool {
        !self.unannounced.is_empty()
    }

    /// A contents frame has to tell what was taken over from other logs.
    pub(super) fn owe_contents(&mut self) {
        self.owes_contents = true;
    }

    /// Whether a contents frame has to tell what was taken over from other logs.
    pub(super) fn owes_contents(&self) -> bool {
        self.owes_contents
    }

    /// A contents frame is written. Returns the releases that it tells, and whether it tells what
    /// was owed.
    pub(super) fn announce(&mut self) -> (Vec<FileId>, bool) {
        (
            std::mem::take(&mut self.unannounced),
            std::mem::take(&mut self.owes_contents),
        )
    }

    /// Allows `files` to be removed: a durable frame tells that the log no longer has them.
    pub(super) fn allow(&mut self, files: impl IntoIterator<Item = FileId>) {
        self.removable.extend(files);
    }

    /// The next file that may be removed.
    pub(super) fn take_removable(&mut self) -> Option<FileId> {
        let file = self.removable.pop()?;
        self.is_answer_due = true;
        Some(file)
    }

    /// The maker of spares goes on with the next, or with a file that leaves just now.
    pub(super) fn answer_comes(&mut self) {
        self.is_answer_due = true;
    }

    /// A spare was refused, or no more are wanted: nothing is on its way.
    pub(super) fn room_settled(&mut self) {
        self.is_answer_due = false;
    }

    /// Whether the room of a file is on its way back, or a spare is being made.
    pub(super) fn is_room_returning(&self) -> bool {
        self.is_answer_due || !self.removable.is_empty()
    }
}
