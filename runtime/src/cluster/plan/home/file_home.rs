//! The plan in a file that all nodes have, or copies of.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cluster::plan::home::{
    HomeError, PLAN_BYTES_MAX, PlanHome, Revision, StoredPlan, Swapped, Watched,
};
use crate::cluster::plan::replacing::{beside, replace, write_like, write_new};
use crate::system::file_lock::FileLock;

/// Between two readings of a watch.
const POLL_EVERY: Duration = Duration::from_millis(200);
/// The wait for another command that changes the file.
const LOCK: Duration = Duration::from_secs(2);

/// A file.
pub(crate) struct FileHome {
    path: PathBuf,
}

impl FileHome {
    pub(crate) fn new(path: &Path) -> FileHome {
        FileHome {
            path: path.to_path_buf(),
        }
    }

    /// The lock of the folder: one command at a time compares and replaces.
    fn lock(path: &Path) -> Result<FileLock, HomeError> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let failed = |error: io::Error| refused(&format!("its folder: {error}"));
        let mut file = File::open(folder).map_err(failed)?;
        let began = Instant::now();
        loop {
            match FileLock::exclusive(file).map_err(failed)? {
                Ok(lock) => return Ok(lock),
                Err(_) if began.elapsed() > LOCK => {
                    return Err(refused("another command has it locked for 2 s"));
                }
                Err(again) => file = again,
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn read(&self) -> io::Result<StoredPlan> {
        let mut bytes = Vec::new();
        let longest = PLAN_BYTES_MAX as u64 + 1;
        File::open(&self.path)?
            .take(longest)
            .read_to_end(&mut bytes)?;
        let revision = Revision::Digest(*blake3::hash(&bytes).as_bytes());
        let text = match bytes.len() > PLAN_BYTES_MAX {
            true => String::from_utf8_lossy(&bytes).into_owned(),
            false => String::from_utf8(bytes).map_err(|_| io::Error::other("it is no text"))?,
        };
        Ok(StoredPlan { text, revision })
    }
}

impl PlanHome for FileHome {
    fn load(&mut self) -> Result<Option<StoredPlan>, HomeError> {
        match self.read() {
            Ok(plan) => Ok(Some(plan)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(HomeError::Unavailable(format!("cannot be read: {error}"))),
        }
    }

    fn compare_and_swap(
        &mut self,
        expected: Option<&Revision>,
        text: &str,
    ) -> Result<Swapped, HomeError> {
        let failed = |error: io::Error| refused(&error.to_string());
        // What stands behind a symbolic link is changed, and not the link.
        let path = match self.path.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.path.clone(),
            other => other.map_err(failed)?,
        };
        let lock = FileHome::lock(&path)?;
        let there = self.load()?;
        if there.as_ref().map(|it| &it.revision) != expected {
            return Ok(Swapped::Conflict(there));
        }
        let temporary = beside(&path);
        let written = match there {
            Some(_) => write_like(&path, &temporary, text),
            None => {
                drop(fs::remove_file(&temporary));
                write_new(&temporary, text.as_bytes(), 0o644)
            }
        };
        written
            .and_then(|()| replace(&temporary, &path))
            .map_err(|error| {
                drop(fs::remove_file(&temporary));
                failed(error)
            })?;
        drop(lock);
        let revision = *blake3::hash(text.as_bytes()).as_bytes();
        Ok(Swapped::Done(Revision::Digest(revision)))
    }

    fn watch(&mut self, known: &Revision, longest: Duration) -> Result<Watched, HomeError> {
        let until = Instant::now() + longest;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(POLL_EVERY));
            match self.load()? {
                None => return Ok(Watched::Gone),
                Some(plan) if plan.revision != *known => return Ok(Watched::Changed(plan)),
                Some(_) if left <= POLL_EVERY => return Ok(Watched::Same),
                Some(_) => {}
            }
        }
    }
}

fn refused(cause: &str) -> HomeError {
    HomeError::Refused(format!("was not changed: {cause}"))
}
