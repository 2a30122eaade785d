//! The lock of a data directory: one process serves it or changes it, and others see which one.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process;

use crate::directory::error::DirectoryError;
use crate::system::file_lock::FileLock;

pub(super) const LOCK: &str = "LOCK";

/// A lock that is held for as long as this lives.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    file: FileLock,
}

impl DirectoryLock {
    /// Locks the directory to serve or to change it, and leaves the process's number in the file.
    pub(super) fn take(path: &Path) -> Result<Self, DirectoryError> {
        let path = path.join(LOCK);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| DirectoryError::io(&path, "open", error))?;
        let lock = Self::hold(file, &path)?;
        let write = || {
            lock.file.set_len(0)?;
            writeln!(&*lock.file, "{}", process::id())
        };
        write().map_err(|error| DirectoryError::io(&path, "write", error))?;
        Ok(lock)
    }

    /// Whether another process holds the lock of a directory, which is not touched.
    ///
    /// # Errors
    /// [`DirectoryError::Locked`] if one does.
    pub(crate) fn find(path: &Path) -> Result<(), DirectoryError> {
        Self::take_to_read(path).map(drop)
    }

    /// Locks a directory that is only read, without writing to it; none if it was never locked.
    pub(super) fn take_to_read(path: &Path) -> Result<Option<Self>, DirectoryError> {
        let path = path.join(LOCK);
        match File::open(&path) {
            Ok(file) => Self::hold(file, &path).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(DirectoryError::io(&path, "open", error)),
        }
    }

    fn hold(file: File, path: &Path) -> Result<Self, DirectoryError> {
        match FileLock::exclusive(file) {
            Ok(Ok(file)) => Ok(DirectoryLock { file }),
            Ok(Err(file)) => {
                let holder = io::read_to_string(file).unwrap_or_default();
                Err(DirectoryError::Locked {
                    path: path.into(),
                    pid: holder.trim().parse().ok(),
                })
            }
            Err(error) => Err(DirectoryError::io(path, "lock", error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_directory_is_free_when_it_is_closed_though_a_child_still_holds_the_descriptor() {
        let path = std::env::temp_dir().join(format!("penstock-copied-{}", process::id()));
        fs::create_dir_all(&path).expect("make");
        let held = DirectoryLock::take(&path).expect("lock");
        // What a child has between its start and its program.
        let copy = held.file.try_clone().expect("copy");
        drop(held);
        DirectoryLock::take(&path).expect("it is free");
        drop(copy);
        fs::remove_dir_all(&path).expect("clean");
    }
}
