//! The lock of an open file or of a directory, by `flock`.

use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Tries to lock what others replace meanwhile.
pub(crate) const TRIES_MAX: usize = 16;

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

/// The lock of a directory's inode: no name, so nothing that a clean-up job can remove.
#[derive(Debug)]
pub(crate) enum FolderLock {
    Locked(FileLock),
    /// The file system locks no directories.
    Unlockable(File, io::Error),
}

/// A lock has another holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InUse;

impl FolderLock {
    /// Locks the directory for one holder alone.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn exclusive(path: &Path) -> io::Result<Result<Self, InUse>> {
        Self::hold(path, FileLock::exclusive)
    }

    /// Locks the directory for one of many readers.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn shared(path: &Path) -> io::Result<Result<Self, InUse>> {
        Self::hold(path, FileLock::shared)
    }

    fn hold(
        path: &Path,
        lock: fn(File) -> io::Result<Result<FileLock, File>>,
    ) -> io::Result<Result<Self, InUse>> {
        for _ in 0..TRIES_MAX {
            let folder = match lock(File::open(path)?) {
                Ok(Ok(lock)) => FolderLock::Locked(lock),
                Ok(Err(_)) => return Ok(Err(InUse)),
                Err(error) if locks_no_directories(&error) => {
                    FolderLock::Unlockable(File::open(path)?, error)
                }
                Err(error) => return Err(error),
            };
            // Another directory may have come to that place before this one was locked.
            if folder.is_at(path)? {
                return Ok(Ok(folder));
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// The directory.
    pub(crate) fn file(&self) -> &File {
        match self {
            FolderLock::Locked(lock) => lock,
            FolderLock::Unlockable(file, _) => file,
        }
    }

    /// Why the file system has not locked it, if so.
    pub(crate) fn refusal(&self) -> Option<&io::Error> {
        match self {
            FolderLock::Locked(_) => None,
            FolderLock::Unlockable(_, why) => Some(why),
        }
    }

    /// Whether `path` names the directory.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn is_at(&self, path: &Path) -> io::Result<bool> {
        is_at(self.file(), path)
    }
}

/// Whether an open file is the one that `path` names.
///
/// # Errors
/// As the system says.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The process that has locked the file or directory at `path` by `flock`, as the kernel tells.
pub(crate) fn holder_of(path: &Path) -> Option<u32> {
    let found = fs::metadata(path).ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let place = (libc::major(found.dev()), libc::minor(found.dev()));
    holder_in(&locks, place, found.ino())
}

/// The holder of an inode in the text of `/proc/locks`, whose lines are
/// `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`.
fn holder_in(locks: &str, (major, minor): (u32, u32), inode: u64) -> Option<u32> {
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, process, at, ..] if at == place => process.parse().ok(),
            _ => None,
        }
    })
}

/// Whether `flock` of a directory was refused because it is one. A file system that locks by byte
/// ranges wants a file that is open for writing, and answers EBADF.
fn locks_no_directories(error: &io::Error) -> bool {
    let is_of_directories = [libc::EBADF, libc::EISDIR, libc::EINVAL]
        .into_iter()
        .any(|it| error.raw_os_error() == Some(it));
    is_of_directories || locks_nothing(error)
}

/// Whether `flock` was refused because the file system has no locks at all.
pub(crate) fn locks_nothing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_locks_of_directories_is_distinguished_from_a_failure() {
        let error = io::Error::from_raw_os_error;
        for refusal in [libc::EBADF, libc::EINVAL, libc::ENOLCK, libc::EOPNOTSUPP] {
            assert!(locks_no_directories(&error(refusal)), "{refusal}");
        }
        for failure in [libc::EIO, libc::EACCES, libc::EINTR] {
            assert!(!locks_no_directories(&error(failure)), "{failure}");
        }
        assert!(!locks_nothing(&error(libc::EBADF)) && locks_nothing(&error(libc::ENOLCK)));
    }

    #[test]
    fn the_holder_of_a_lock_is_found_by_its_place_in_what_the_kernel_shows() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:00:1234 0 EOF\n\
            2: FLOCK  ADVISORY  WRITE 8 fe:01:1234 0 EOF\n\
            3: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF\n\
            3: -> FLOCK  ADVISORY  WRITE 9 fe:00:1234 0 EOF\n";
        assert_eq!(holder_in(locks, (0xfe, 0), 1234), Some(4711));
        assert_eq!(holder_in(locks, (0xfe, 0), 123), None);
        assert_eq!(holder_in("", (0, 0), 0), None);
    }

    #[test]
    fn readers_of_a_directory_share_its_lock_and_a_holder_does_not() {
        let path = std::env::temp_dir().join(format!("penstock-folder-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let readers = [(); 2].map(|()| FolderLock::shared(&path).unwrap().unwrap());
        assert_eq!(FolderLock::exclusive(&path).unwrap().err(), Some(InUse));
        drop(readers);
        let holder = FolderLock::exclusive(&path).unwrap().unwrap();
        assert_eq!(FolderLock::shared(&path).unwrap().err(), Some(InUse));
        drop(holder);
        fs::remove_dir_all(&path).unwrap();
    }
}
