//! The lock of a data directory: one process serves it or changes it, and others see which one.
//!
//! ```text
//! the directory itself   its inode is locked: no name, so nothing that a clean-up job removes
//! LOCK                   locked besides: builds before this one know that file alone
//! ```
//!
//! Both are `flock`. LOCK is a name, so removing or replacing the file lets an older build in.
//! [`DirectoryLock::check`] notices that; `lock_watch.rs` calls it once a second.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, process};

use crate::directory::error::DirectoryError;
use crate::directory::identity::Identity;
use crate::directory::identity_file::read_identity;
use crate::system::advice::Problem;
use crate::system::file_lock::{
    FileLock, FolderLock, InUse, TRIES_MAX, holder_of, is_at, locks_nothing,
};

pub(super) const LOCK: &str = "LOCK";
/// How long a process holds LOCK that only looks whether somebody does, at most.
const PROBE_HOLD: Duration = Duration::from_millis(20);

/// A lock that is held for as long as this lives.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    /// The directory, whatever the working directory becomes.
    path: PathBuf,
    folder: FolderLock,
    /// The file LOCK; none in a directory that is only read and was never locked.
    file: Mutex<Option<FileLock>>,
}

/// What a check of a held lock has found in order, or has put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Everything is as it was.
    Held,
    /// LOCK was removed or replaced; it is there and locked again.
    Restored,
}

/// Why a check of a held lock has not found it in order.
#[derive(Debug)]
pub(crate) enum LockFault {
    /// Another process may own the directory, or has owned it. The holder must stop at once.
    Lost(Loss),
    /// The check could not be made, or LOCK could not be restored; nothing else is known.
    Unknown(DirectoryError),
}

/// How the lock of a directory was lost.
#[derive(Debug)]
pub(crate) enum Loss {
    /// Another directory, or none, stands at the path.
    Moved { path: PathBuf },
    /// LOCK was removed or replaced, and another process has locked it since.
    Taken { path: PathBuf, pid: Option<u32> },
    /// Another server has begun in the directory, and may have ended since.
    Served { path: PathBuf, start: u64 },
}

impl DirectoryLock {
    /// Locks the directory to serve or to change it, and leaves the process's number in LOCK.
    pub(super) fn take(path: &Path) -> Result<Self, DirectoryError> {
        let folder = lock_folder(path)?;
        let file = take_file(&path.join(LOCK))?;
        Self::of(path, folder, Some(file))
    }

    /// Whether another process holds the lock of a directory, which is not touched.
    ///
    /// # Errors
    /// [`DirectoryError::Locked`] if one does.
    pub(crate) fn find(path: &Path) -> Result<(), DirectoryError> {
        Self::take_to_read(path).map(drop)
    }

    /// Locks a directory that is only read, without writing to it.
    pub(super) fn take_to_read(path: &Path) -> Result<Self, DirectoryError> {
        let folder = lock_folder(path)?;
        let name = path.join(LOCK);
        let file = match File::open(&name) {
            Ok(file) => Some(hold(file, &name)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(DirectoryError::io(&name, "open", error)),
        };
        Self::of(path, folder, file)
    }

    fn of(path: &Path, folder: FolderLock, file: Option<FileLock>) -> Result<Self, DirectoryError> {
        let path = std::path::absolute(path)
            .map_err(|error| DirectoryError::io(path, "name the place of", error))?;
        let file = Mutex::new(file);
        Ok(DirectoryLock { path, folder, file })
    }

    /// Where LOCK is.
    pub(crate) fn name(&self) -> PathBuf {
        self.path.join(LOCK)
    }

    /// What is wrong with the protection that this lock gives, if anything.
    pub(crate) fn problem(&self) -> Option<Problem> {
        let why = self.folder.refusal()?;
        Some(Problem {
            cause: format!(
                "the file system locks no directories ({why}): the file LOCK alone keeps a second \
                 server out, and who removes the file lets one in"
            ),
            mend: "put the data directory on a local file system".into(),
        })
    }

    /// Looks whether the directory is still this holder's, which began with `identity`. Restores
    /// LOCK if the file was removed or replaced.
    ///
    /// # Errors
    /// [`LockFault`].
    pub(crate) fn check(&self, identity: &Identity) -> Result<Standing, LockFault> {
        let at = |action| move |error| unknown(&self.path, action, error);
        if !self.folder.is_at(&self.path).map_err(at("look at"))? {
            let path = self.path.clone();
            return Err(LockFault::Lost(Loss::Moved { path }));
        }
        let standing = self.check_file()?;
        // Behind LOCK: who begins from here on finds it locked.
        let found = read_identity(&self.path).map_err(LockFault::Unknown)?;
        match found {
            Some(found)
                if found.incarnation > identity.incarnation
                    || found.node_id != identity.node_id =>
            {
                let (path, start) = (self.path.clone(), found.incarnation);
                Err(LockFault::Lost(Loss::Served { path, start }))
            }
            _ => Ok(standing),
        }
    }

    fn check_file(&self) -> Result<Standing, LockFault> {
        let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let name = self.name();
        let unchecked = |error| unknown(&name, "look at", error);
        if let Some(file) = &*held
            && is_at(file, &name).map_err(unchecked)?
        {
            return Ok(Standing::Held);
        }
        for last in [false, false, true] {
            match take_file(&name) {
                Ok(file) => {
                    *held = Some(file);
                    break;
                }
                Err(DirectoryError::Locked { path, pid }) if last => {
                    return Err(LockFault::Lost(Loss::Taken { path, pid }));
                }
                // An older build may only have looked whether somebody is there.
                Err(DirectoryError::Locked { .. }) => std::thread::sleep(PROBE_HOLD),
                Err(error) => return Err(LockFault::Unknown(error)),
            }
        }
        Ok(Standing::Restored)
    }
}

/// Locks the inode of a directory.
fn lock_folder(path: &Path) -> Result<FolderLock, DirectoryError> {
    match FolderLock::exclusive(path) {
        Ok(Ok(folder)) => Ok(folder),
        Ok(Err(InUse)) => Err(DirectoryError::Locked {
            path: path.into(),
            pid: holder(path),
        }),
        Err(error) => Err(DirectoryError::io(path, "lock", error)),
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Moved { path } => write!(
                f,
                "{}: the data directory was moved away, removed or replaced while it is served; \
                 nothing more is written; start again with --data that names its place",
                path.display()
            ),
            Loss::Taken { path, pid } => {
                let holder = pid.map_or("another process".into(), |pid| format!("process {pid}"));
                write!(
                    f,
                    "{}: the file was removed or replaced, and {holder} has locked the directory \
                     since; nothing more is written here; stop the other one too and compare what \
                     both have acknowledged since it began",
                    path.display()
                )
            }
            Loss::Served { path, start } => write!(
                f,
                "{}: another server has begun there (start {start}) while this one served; \
                 nothing more is written; compare what both have acknowledged since",
                path.display()
            ),
        }
    }
}

/// Opens LOCK, which is made if it is missing, locks it and leaves the process's number in it.
fn take_file(name: &Path) -> Result<FileLock, DirectoryError> {
    let at = |action| move |error| DirectoryError::io(name, action, error);
    for _ in 0..TRIES_MAX {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(name)
            .map_err(at("open"))?;
        let lock = hold(file, name)?;
        // Another file may have come to that place before this one was locked.
        if !is_at(&lock, name).map_err(at("look at"))? {
            continue;
        }
        lock.set_len(0).map_err(at("write"))?;
        writeln!(&*lock, "{}", process::id()).map_err(at("write"))?;
        return Ok(lock);
    }
    Err(at("lock")(io::ErrorKind::ResourceBusy.into()))
}

fn hold(file: File, name: &Path) -> Result<FileLock, DirectoryError> {
    match FileLock::exclusive(file) {
        Ok(Ok(lock)) => Ok(lock),
        Ok(Err(file)) => Err(DirectoryError::Locked {
            path: name.into(),
            pid: number_in(file),
        }),
        Err(source) if locks_nothing(&source) => Err(DirectoryError::Unlockable {
            path: name.into(),
            source,
        }),
        Err(error) => Err(DirectoryError::io(name, "lock", error)),
    }
}

/// The process that has locked a directory: as the kernel tells, or as LOCK does. LOCK is not
/// locked for the question, because its holder may be about to lock the file.
fn holder(path: &Path) -> Option<u32> {
    let of_lock = || File::open(path.join(LOCK)).ok().and_then(number_in);
    holder_of(path).or_else(of_lock)
}

fn number_in(file: File) -> Option<u32> {
    let text = io::read_to_string(file).unwrap_or_default();
    text.trim().parse().ok()
}

fn unknown(path: &Path, action: &'static str, error: io::Error) -> LockFault {
    LockFault::Unknown(DirectoryError::io(path, action, error))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::directory::DirectoryOptions;
    use crate::directory::identity_file::{new_identity, write_identity};

    /// A directory with an identity; gone at the end.
    struct Data(PathBuf, Identity);

    impl Data {
        fn new(name: &str) -> Data {
            let path = std::env::temp_dir().join(format!("penstock-{name}-{}", process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).expect("make");
            let options = DirectoryOptions {
                shards_of_new: 1,
                segment_bytes: 1 << 20,
            };
            let identity = new_identity(options).expect("choose");
            write_identity(&path, &identity).expect("write");
            Data(path, identity)
        }

        fn lock_file(&self) -> PathBuf {
            self.0.join(LOCK)
        }
    }

    impl Drop for Data {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// What builds before this one do, and all that they do.
    fn take_as_before(path: &Path) -> Option<FileLock> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join(LOCK))
            .expect("open");
        let lock = FileLock::exclusive(file)
            .expect("the file system locks")
            .ok()?;
        lock.set_len(0).expect("write");
        writeln!(&*lock, "4711").expect("write");
        Some(lock)
    }

    #[test]
    fn a_directory_is_free_when_it_is_closed_though_a_child_still_holds_the_descriptors() {
        let data = Data::new("copied");
        let held = DirectoryLock::take(&data.0).expect("lock");
        // What a child has between its start and its program.
        let file = held.file.lock().unwrap();
        let copies = (
            file.as_ref().unwrap().try_clone().expect("copy"),
            held.folder.file().try_clone().expect("copy"),
        );
        drop(file);
        drop(held);
        DirectoryLock::take(&data.0).expect("it is free");
        drop(copies);
    }

    #[test]
    fn this_build_and_the_one_before_keep_each_other_out_in_both_orders() {
        let data = Data::new("both-orders");
        let before = take_as_before(&data.0).expect("it is free");
        for refused in [
            DirectoryLock::take(&data.0),
            DirectoryLock::take_to_read(&data.0),
        ] {
            match refused {
                Err(DirectoryError::Locked { pid, .. }) => assert_eq!(pid, Some(4711)),
                other => panic!("{other:?}"),
            }
        }
        drop(before);
        let held = DirectoryLock::take(&data.0).expect("it is free");
        assert!(take_as_before(&data.0).is_none());
        drop(held);
        let reader = DirectoryLock::take_to_read(&data.0).expect("it is free");
        assert!(take_as_before(&data.0).is_none());
        drop(reader);
        assert!(take_as_before(&data.0).is_some());
    }

    #[test]
    fn a_check_restores_a_lock_file_that_was_removed_or_replaced() {
        let data = Data::new("restored");
        let held = DirectoryLock::take(&data.0).expect("lock");
        let standing = || held.check(&data.1).expect("it is ours");
        assert_eq!(standing(), Standing::Held);
        let (lock, other) = (data.lock_file(), data.0.join("other"));
        let meddle: [&dyn Fn(); 3] = [
            &|| fs::remove_file(&lock).unwrap(),
            &|| fs::rename(&lock, &other).unwrap(),
            &|| {
                fs::write(&other, "1\n").unwrap();
                fs::rename(&other, &lock).unwrap();
            },
        ];
        for meddle in meddle {
            meddle();
            assert_eq!(standing(), Standing::Restored);
            assert!(take_as_before(&data.0).is_none(), "it is locked again");
            let number = fs::read_to_string(&lock).unwrap();
            assert_eq!(number.trim(), process::id().to_string());
            assert_eq!(standing(), Standing::Held);
        }
    }

    #[test]
    fn a_check_finds_the_directory_lost_when_an_older_build_has_taken_it_or_was_there() {
        let data = Data::new("lost");
        let held = DirectoryLock::take(&data.0).expect("lock");
        let lost = |expected: &str| match held.check(&data.1) {
            Err(LockFault::Lost(loss)) => {
                let text = loss.to_string();
                assert!(text.contains(expected), "{text}");
            }
            other => panic!("{other:?}"),
        };
        fs::remove_file(data.lock_file()).unwrap();
        let before = take_as_before(&data.0).expect("that is how it gets in");
        lost("process 4711 has locked the directory since");
        // It begins and ends between two checks.
        let next = Identity {
            incarnation: data.1.incarnation + 1,
            ..data.1.clone()
        };
        write_identity(&data.0, &next).unwrap();
        drop(before);
        lost("another server has begun there (start 2)");
    }

    #[test]
    fn a_check_finds_the_directory_lost_when_it_was_moved_away_or_replaced() {
        let data = Data::new("moved");
        let held = DirectoryLock::take(&data.0).expect("lock");
        let elsewhere = data.0.with_extension("elsewhere");
        let is_moved = || {
            matches!(
                held.check(&data.1),
                Err(LockFault::Lost(Loss::Moved { .. }))
            )
        };
        fs::rename(&data.0, &elsewhere).unwrap();
        assert!(is_moved(), "nothing is there");
        fs::create_dir(&data.0).unwrap();
        assert!(is_moved(), "another one is there");
        assert!(!data.lock_file().exists(), "and is left alone");
        fs::remove_dir(&data.0).unwrap();
        fs::rename(&elsewhere, &data.0).unwrap();
        assert!(!is_moved());
    }

    #[test]
    fn a_file_system_without_locks_is_named_and_one_without_locks_of_directories_is_a_problem() {
        let error = io::Error::from_raw_os_error;
        let data = Data::new("unlockable");
        let folder = FolderLock::Unlockable(File::open(&data.0).unwrap(), error(libc::EBADF));
        let file = take_file(&data.lock_file()).expect("lock");
        let held = DirectoryLock::of(&data.0, folder, Some(file)).expect("a path");
        let problem = held.problem().expect("it is one");
        assert!(
            problem.cause.contains("locks no directories (Bad file"),
            "{problem:?}"
        );
        // LOCK alone still keeps others out, and is checked.
        assert!(take_as_before(&data.0).is_none());
        fs::remove_file(data.lock_file()).unwrap();
        assert_eq!(held.check(&data.1).expect("ours"), Standing::Restored);
        let refused = DirectoryError::Unlockable {
            path: data.lock_file(),
            source: error(libc::ENOLCK),
        };
        assert!(
            refused
                .to_string()
                .contains("gives no locks (flock: No locks"),
            "{refused}"
        );
    }
}
