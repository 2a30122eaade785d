//! The staging folder: second names for the segment files of a server that runs, so that what they
//! hold stays while it is copied, whatever cleaning removes meanwhile.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use penstock_storage::place::FileId;

use crate::directory::segments::{STAGING, Segments};
use crate::system::file_lock::FileLock;
use crate::system::named_error::named;

const LOCK: &str = "LOCK";

/// Links to segment files. Dropping it removes them.
#[derive(Debug)]
pub(crate) struct Staging {
    segments: Segments,
    folder: PathBuf,
    linked: BTreeSet<FileId>,
    _lock: FileLock,
}

impl Staging {
    /// Takes the staging folder of `segments`, empty; none if another backup uses it.
    ///
    /// # Errors
    /// As the system says; the text names the folder.
    pub(crate) fn open(segments: &Segments) -> io::Result<Option<Self>> {
        let folder = Self::folder_of(segments);
        let open = || -> io::Result<Option<FileLock>> {
            match DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            let Some(lock) = hold(&folder)? else {
                return Ok(None);
            };
            remove_links(&folder)?;
            Ok(Some(lock))
        };
        let lock = open().map_err(|error| named(&folder, &error))?;
        Ok(lock.map(|lock| Staging {
            segments: segments.clone(),
            folder,
            linked: BTreeSet::new(),
            _lock: lock,
        }))
    }

    /// Removes what a backup that was killed has left in the folder of segments, and nothing of one
    /// that runs.
    pub(crate) fn clear(segments: &Path) -> io::Result<()> {
        let folder = segments.join(STAGING);
        if !folder.is_dir() {
            return Ok(());
        }
        match hold(&folder)? {
            Some(_lock) => fs::remove_dir_all(&folder),
            None => Ok(()),
        }
    }

    /// Where the staging folder of `segments` is.
    pub(crate) fn folder_of(segments: &Segments) -> PathBuf {
        segments.folder().join(STAGING)
    }

    /// Links every segment that is not linked yet. Returns how many were removed before they could
    /// be linked.
    ///
    /// # Errors
    /// As the system says; the text names the file.
    pub(crate) fn link(&mut self) -> io::Result<u64> {
        let mut gone = 0;
        for (file, _) in self.segments.list()? {
            if self.linked.contains(&file) {
                continue;
            }
            let path = self.segments.path(file);
            match fs::hard_link(&path, self.path(file)) {
                Ok(()) => drop(self.linked.insert(file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => gone += 1,
                Err(error) => return Err(named(&path, &error)),
            }
        }
        Ok(gone)
    }

    /// The files that are linked.
    pub(crate) fn files(&self) -> impl Iterator<Item = FileId> {
        self.linked.iter().copied()
    }

    /// Where the link of a file is.
    pub(crate) fn path(&self, file: FileId) -> PathBuf {
        self.folder.join(format!("{:08}.seg", file.0))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed now is by the next backup or start.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The lock of a staging folder; none if somebody has it.
fn hold(folder: &Path) -> io::Result<Option<FileLock>> {
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(folder.join(LOCK))?;
    Ok(FileLock::exclusive(lock)?.ok())
}

fn remove_links(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() != LOCK {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
