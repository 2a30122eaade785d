//! The lock of an open file, by `flock`.

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Deref;

/// An open file and its lock, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: File,
}

impl Drop for FileLock {
    /// A child process that is just being started holds a copy of the descriptor until it runs its
    /// program. The lock lives as long as any copy does, unless it is given up by name.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl FileLock {
    /// Locks the file for one holder alone; the file if another holder has it.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn exclusive(file: File) -> io::Result<Result<Self, File>> {
        Self::held(file.try_lock(), file)
    }

    /// Locks the file for one of many readers; the file if a holder has it alone.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn shared(file: File) -> io::Result<Result<Self, File>> {
        Self::held(file.try_lock_shared(), file)
    }

    fn held(locked: Result<(), TryLockError>, file: File) -> io::Result<Result<Self, File>> {
        match locked {
            Ok(()) => Ok(Ok(FileLock { file })),
            Err(TryLockError::WouldBlock) => Ok(Err(file)),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Deref for FileLock {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}
