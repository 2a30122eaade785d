//! The directory that holds the backups of one node.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use blake3::{Hash, Hasher};

use super::manifest::{EXTENSION, Manifest, ManifestError, SegmentCopy};
use super::{BackupError, path_text};
use crate::directory::identity::Identity;
use crate::directory::sync_directory;
use crate::system::file_lock::{FileLock, FolderLock, InUse};
use crate::system::named_error::named;

const LOCK: &str = "LOCK";
const SEGMENTS: &str = "segments";
const TMP: &str = "tmp";
/// Bytes read and written at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes of a manifest, at most: two million segments.
const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// A segment that was backed up: log, sequence, salt, bytes.
pub(crate) type Known = HashSet<(u64, u64, u64, u64)>;

/// A directory of backups, held against everybody else who would write to it.
#[derive(Debug)]
pub(crate) struct Vault {
    path: PathBuf,
    _folder: FolderLock,
    /// Of the file LOCK: what earlier builds lock.
    _lock: FileLock,
}

impl Vault {
    /// Opens the directory of backups to write one. Makes a missing directory, and removes the
    /// unfinished files of an interrupted backup.
    ///
    /// # Errors
    /// [`BackupError::Vault`] if it holds anything else, or another process writes to it.
    pub(crate) fn open(path: &Path) -> Result<Self, BackupError> {
        let mut builder = DirBuilder::new();
        builder.mode(0o700).recursive(true);
        let at = |error: io::Error| named(path, &error);
        let made_now = !path.exists();
        builder.create(path).map_err(at)?;
        for entry in fs::read_dir(path).map_err(at)? {
            let name = entry
                .map_err(at)?
                .file_name()
                .to_string_lossy()
                .into_owned();
            let extension = Path::new(&name).extension();
            let is_ours = name == LOCK
                || name == SEGMENTS
                || name == "lost+found"
                || extension.is_some_and(|extension| extension == EXTENSION || extension == TMP);
            if !is_ours {
                return Err(BackupError::Vault(format!(
                    "{}: not a directory of backups: it holds '{name}'; name an empty or a new \
                     one with --to",
                    path.display()
                )));
            }
        }
        builder.create(path.join(SEGMENTS)).map_err(at)?;
        let folder = FolderLock::exclusive(path).map_err(at)?;
        let folder = folder.map_err(|InUse| in_use(path))?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join(LOCK))
            .map_err(at)?;
        let lock = FileLock::exclusive(lock).map_err(at)?;
        let lock = lock.map_err(|_| in_use(path))?;
        if made_now {
            let above = path.parent().filter(|above| !above.as_os_str().is_empty());
            sync_directory(above.unwrap_or(Path::new("."))).map_err(at)?;
        }
        let vault = Vault {
            path: path.into(),
            _folder: folder,
            _lock: lock,
        };
        vault.remove_if(|path| path.extension().is_some_and(|extension| extension == TMP))?;
        Ok(vault)
    }

    /// The segments that the backups here name.
    ///
    /// # Errors
    /// [`BackupError::Vault`] if they are of another node.
    pub(crate) fn known(&self, identity: &Identity) -> Result<Known, BackupError> {
        let mut known = Known::new();
        for (name, manifest) in manifests(&self.path)? {
            let Ok(manifest) = manifest else { continue };
            if (manifest.cluster_id, manifest.node_id) != (identity.cluster_id, identity.node_id) {
                return Err(BackupError::Vault(format!(
                    "{}: {name} is a backup of another node; give each node a directory of its \
                     own with --to",
                    self.path.display()
                )));
            }
            for (_, log, segment) in manifest.numbered() {
                known.insert((log.log_id, segment.sequence, segment.salt, segment.bytes));
            }
        }
        Ok(known)
    }

    /// Takes the first `bytes` of `source` in, unless it holds the same already; the hash of them
    /// and whether they were copied. `is_known` spares writing what is most likely there.
    pub(crate) fn put(
        &mut self,
        log_id: u64,
        sequence: u64,
        source: &Path,
        bytes: u64,
        is_known: bool,
    ) -> Result<(Hash, bool), BackupError> {
        let path_of = |hash| {
            let segment = SegmentCopy {
                sequence,
                salt: 0,
                bytes,
                hash,
            };
            segment_path(&self.path, log_id, &segment)
        };
        let is_there = |path: &Path| fs::metadata(path).is_ok_and(|found| found.len() == bytes);
        if is_known {
            let hash = pour(source, bytes, &mut io::sink());
            let hash = hash.map_err(|fault| fault.named(source, source))?;
            if is_there(&path_of(hash)) {
                return Ok((hash, false));
            }
        }
        let made = self.path.join(SEGMENTS).join(format!("new.{TMP}"));
        let mut file = new_file(&made).map_err(|error| named(&made, &error))?;
        let hash = pour(source, bytes, &mut file).map_err(|fault| {
            // Its room goes back at once, not at the next backup.
            let _ = fs::remove_file(&made);
            fault.named(source, &made)
        })?;
        let path = path_of(hash);
        if is_there(&path) {
            fs::remove_file(&made).map_err(|error| named(&made, &error))?;
            return Ok((hash, false));
        }
        file.sync_all()
            .and_then(|()| fs::rename(&made, &path))
            .map_err(|error| named(&path, &error))?;
        Ok((hash, true))
    }

    /// Writes the manifest of a backup whose segments are all here; its name. The time is moved
    /// behind that of the newest backup.
    pub(crate) fn publish(&mut self, manifest: &mut Manifest) -> Result<String, BackupError> {
        sync_directory(&self.path.join(SEGMENTS)).map_err(|error| named(&self.path, &error))?;
        let newest = names(&self.path)?.pop();
        while newest
            .as_ref()
            .is_some_and(|newest| manifest.name() <= *newest)
        {
            manifest.time_ms += 1;
        }
        let name = manifest.name();
        let (made, path) = (self.path.join(format!("new.{TMP}")), self.path.join(&name));
        let write = || {
            let mut file = new_file(&made)?;
            file.write_all(manifest.encode().as_bytes())?;
            file.sync_all()?;
            fs::rename(&made, &path)?;
            sync_directory(&self.path)
        };
        write().map_err(|error| named(&path, &error))?;
        Ok(name)
    }

    /// Removes all but the newest `keep` backups, and every segment that none of those names; how
    /// many backups. One that cannot be read counts as none, and then no segment is removed.
    pub(crate) fn prune(&mut self, keep: usize) -> Result<u64, BackupError> {
        let found = manifests(&self.path)?;
        let is_readable = found.iter().all(|(_, manifest)| manifest.is_ok());
        let whole: Vec<_> = found
            .into_iter()
            .filter_map(|(name, manifest)| Some((name, manifest.ok()?)))
            .collect();
        let (old, kept) = whole.split_at(whole.len().saturating_sub(keep.max(1)));
        for (name, _) in old {
            let path = self.path.join(name);
            fs::remove_file(&path).map_err(|error| named(&path, &error))?;
        }
        // A manifest must be gone for good before what it names.
        sync_directory(&self.path).map_err(|error| named(&self.path, &error))?;
        if is_readable {
            let needed: BTreeSet<PathBuf> = kept
                .iter()
                .flat_map(|(_, manifest)| manifest.numbered())
                .map(|(_, log, segment)| segment_path(&self.path, log.log_id, segment))
                .collect();
            self.remove_if(|path| {
                path.extension().is_some_and(|extension| extension == "seg")
                    && !needed.contains(path)
            })?;
        }
        Ok(old.len() as u64)
    }

    /// Removes the files here, or in the folder of segments, that a rule is true of.
    fn remove_if(&self, rule: impl Fn(&Path) -> bool) -> io::Result<()> {
        for folder in [self.path.clone(), self.path.join(SEGMENTS)] {
            for entry in fs::read_dir(&folder).map_err(|error| named(&folder, &error))? {
                let path = entry.map_err(|error| named(&folder, &error))?.path();
                if path.is_file() && rule(&path) {
                    fs::remove_file(&path).map_err(|error| named(&path, &error))?;
                }
            }
        }
        Ok(())
    }
}

/// Holds a directory of backups against removal of what is in it, without writing to it.
pub(crate) fn hold_to_read(path: &Path) -> Result<Held, BackupError> {
    let folder = match FolderLock::shared(path) {
        Ok(folder) => Some(folder.map_err(|InUse| in_use(path))?),
        // Whoever reads tells it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(named(path, &error).into()),
    };
    let file = match File::open(path.join(LOCK)) {
        Ok(lock) => match FileLock::shared(lock).map_err(|error| named(path, &error))? {
            Ok(lock) => Some(lock),
            Err(_) => return Err(in_use(path)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(named(path, &error).into()),
    };
    Ok(Held {
        _folder: folder,
        _file: file,
    })
}

/// A directory of backups that is held against removal of what is in it.
#[derive(Debug)]
pub(crate) struct Held {
    _folder: Option<FolderLock>,
    _file: Option<FileLock>,
}

fn in_use(path: &Path) -> BackupError {
    BackupError::Vault(format!(
        "{}: another process uses these backups; wait for it",
        path.display()
    ))
}

/// The names of all manifests, oldest first.
pub(crate) fn names(path: &Path) -> io::Result<Vec<String>> {
    let at = |error: io::Error| named(path, &error);
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(at)? {
        let name = entry
            .map_err(at)?
            .file_name()
            .to_string_lossy()
            .into_owned();
        if Path::new(&name)
            .extension()
            .is_some_and(|extension| extension == EXTENSION)
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// All manifests, oldest first.
pub(crate) fn manifests(path: &Path) -> io::Result<Vec<(String, Result<Manifest, ManifestError>)>> {
    names(path)?
        .into_iter()
        .map(|name| {
            let path = path.join(&name);
            let mut bytes = Vec::new();
            File::open(&path)
                .and_then(|file| file.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes))
                .map_err(|error| named(&path, &error))?;
            Ok((name, Manifest::decode(&bytes)))
        })
        .collect()
}

/// Where a segment is.
pub(crate) fn segment_path(vault: &Path, log_id: u64, segment: &SegmentCopy) -> PathBuf {
    vault.join(SEGMENTS).join(format!(
        "{log_id}-{}-{}.seg",
        segment.sequence, segment.hash
    ))
}

/// How many segment files no manifest names, and their bytes.
pub(crate) fn unnamed(vault: &Path, manifests: &[&Manifest]) -> io::Result<(u64, u64)> {
    let named_by: BTreeSet<PathBuf> = manifests
        .iter()
        .flat_map(|manifest| manifest.numbered())
        .map(|(_, log, segment)| segment_path(vault, log.log_id, segment))
        .collect();
    let folder = vault.join(SEGMENTS);
    let at = |error: io::Error| named(&folder, &error);
    let (mut count, mut bytes) = (0, 0);
    for entry in fs::read_dir(&folder).map_err(at)? {
        let entry = entry.map_err(at)?;
        if !named_by.contains(&entry.path()) {
            count += 1;
            bytes += entry.metadata().map_err(at)?.len();
        }
    }
    Ok((count, bytes))
}

/// Why the bytes of a file could not be passed on.
#[derive(Debug)]
pub(crate) enum PourFault {
    /// The file cannot be read.
    Source(io::Error),
    /// The file ends before so many bytes.
    Short { wanted: u64 },
    /// What takes the bytes refuses them.
    Target(io::Error),
}

impl PourFault {
    /// As an error that names the file it is about.
    pub(crate) fn named(&self, source: &Path, target: &Path) -> io::Error {
        match self {
            PourFault::Source(error) => named(source, error),
            PourFault::Short { wanted } => {
                let text = format!("it has fewer than its {wanted} bytes");
                named(source, &io::Error::new(io::ErrorKind::UnexpectedEof, text))
            }
            PourFault::Target(error) => named(target, error),
        }
    }
}

/// Passes the first `bytes` of a file on; their hash.
///
/// # Errors
/// [`PourFault`], by the side that failed.
pub(crate) fn pour(source: &Path, bytes: u64, into: &mut impl Write) -> Result<Hash, PourFault> {
    let mut file = File::open(source).map_err(PourFault::Source)?;
    let mut hasher = Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut left = bytes;
    while left > 0 {
        let step = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let chunk = &mut chunk[..step];
        file.read_exact(chunk).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => PourFault::Short { wanted: bytes },
            _ => PourFault::Source(error),
        })?;
        hasher.update(chunk);
        into.write_all(chunk).map_err(PourFault::Target)?;
        left -= step as u64;
    }
    Ok(hasher.finalize())
}

pub(crate) fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

/// One line that says why a backup cannot be used.
pub(crate) fn unusable(vault: &Path, name: &str, cause: &dyn std::fmt::Display) -> String {
    format!("{}: {cause}", path_text(&vault.join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_are_free_when_they_are_closed_though_a_child_still_holds_the_descriptor() {
        let path = std::env::temp_dir().join(format!("penstock-vault-{}", std::process::id()));
        let held = Vault::open(&path).expect("made");
        let copy = held._lock.try_clone().expect("copy");
        assert!(hold_to_read(&path).is_err(), "a writer has it");
        fs::remove_file(path.join(LOCK)).expect("removed");
        assert!(hold_to_read(&path).is_err(), "the name is not the lock");
        assert!(Vault::open(&path).is_err(), "nor for another writer");
        drop(held);
        let reader = hold_to_read(&path).expect("it is free");
        drop(copy);
        assert!(Vault::open(&path).is_err(), "a reader has it");
        drop(reader);
        fs::remove_dir_all(&path).expect("clean");
    }
}
