//! Segments that are given back: a release is told in a contents frame, and only then the file may
//! go.

use crate::types::place::FileId;

/// The files of released segments on their way out of the log.
#[derive(Default)]
pub(super) struct Releases {
    /// Released files that no contents frame has told yet.
    unannounced: Vec<FileId>,
    /// Files that may be removed.
    removable: Vec<FileId>,
    /// A file was removed, and its room has not been offered to the supply yet.
    room_returns: bool,
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

    /// A contents frame tells these.
    pub(super) fn take_unannounced(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.unannounced)
    }

    /// Allows `files` to be removed: a durable frame tells that the log no longer has them.
    pub(super) fn allow(&mut self, files: impl IntoIterator<Item = FileId>) {
        self.removable.extend(files);
    }

    /// The next file that may be removed.
    pub(super) fn take_removable(&mut self) -> Option<FileId> {
        let file = self.removable.pop()?;
        self.room_returns = true;
        Some(file)
    }

    /// A spare came, or was refused: that is what became of the room of a removed file.
    pub(super) fn room_returned(&mut self) {
        self.room_returns = false;
    }

    /// Whether the room of a file is on its way back.
    pub(super) fn is_room_returning(&self) -> bool {
        self.room_returns || !self.removable.is_empty()
    }
}
