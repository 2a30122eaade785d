//! What tells one state of a file from another without reading the file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A state of a file. Two are equal unless the file was changed, or another one is in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Of the contents: seconds and nanoseconds.
    changed: (i64, i64),
    /// Of owner, mode and name, too.
    touched: (i64, i64),
}

impl FileStamp {
    /// The state of a file now; `None` if there is none.
    pub(crate) fn of(path: &Path) -> Option<FileStamp> {
        let file = fs::metadata(path).ok()?;
        Some(FileStamp {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.size(),
            changed: (file.mtime(), file.mtime_nsec()),
            touched: (file.ctime(), file.ctime_nsec()),
        })
    }
}
