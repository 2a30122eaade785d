//! The data directory: whose it is, who serves it, and its segment files.
//!
//! ```text
//! penstock-data/
//!   (itself)                 locked by the process that serves, see `lock.rs`
//!   LOCK                     locked besides, for older builds; the process's number is in it
//!   IDENTITY                 whole blocks, see `identity.rs`; replaced as a whole at each start
//!   segments/00000007.seg    FileId(7); for life
//!   segments/*.tmp           being made; removed at the next start
//!   segments/staging/        second names of files while a backup copies them, see `staging.rs`
//!   snapshots/3-00000009.idx of the index of log 3, see `snapshots.rs`
//!   snapshots/*.tmp          being made; removed at the next start
//!   tables/00000007.keys     key table of a segment, see `key_tables.rs`; may be deleted
//!   tables/*.tmp             being made; removed at the next start
//!   CALIBRATION              how fast the disk was, see `calibration.rs`; may be deleted
//!   lostfound/0001/          what a repair replaced, see `repair.rs`
//! ```

mod error;
mod files;
pub mod identity;
mod identity_file;
pub(crate) mod key_table_makers;
mod key_tables;
mod lock;
pub(crate) mod lock_watch;
pub mod lowering;
mod read_ahead;
mod rebuild;
pub mod repair;
pub mod room;
pub(crate) mod room_share;
mod segments;
pub mod set_aside;
pub mod snapshots;
pub mod spares;
pub(crate) mod staging;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_storage::layout::Layout;
use penstock_storage::segment::Owner;
use penstock_storage::snapshot::ProvenEnds;

pub use error::DirectoryError;
pub use files::read_at;
pub(crate) use files::{open_for_device, sync_directory};
use identity::Identity;
pub(crate) use identity_file::write_identity;
use identity_file::{IDENTITY, IDENTITY_TMP, new_hash_seed, new_identity, read_identity};
pub use key_tables::KeyTableFolder;
pub(crate) use lock::DirectoryLock;
use lock::LOCK;
pub(crate) use read_ahead::ReadAhead;
pub use rebuild::RebuildError;
use rebuild::rebuild;
pub use segments::{Progress, SegmentReader, Segments};
use snapshots::SnapshotFolder;
use staging::Staging;

use crate::system::advice::{self, Problem};

pub(crate) const SEGMENTS: &str = "segments";
const SNAPSHOTS: &str = "snapshots";
const KEY_TABLES: &str = "tables";

/// What a server wants of its directory.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryOptions {
    /// How many shards a directory that is made now gets. What another one has is changed by
    /// [`Directory::change_layout`].
    pub shards_of_new: u32,
    /// The size of new segments in bytes.
    pub segment_bytes: u64,
}

/// An open data directory. The lock is held for as long as this lives.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    identity: Identity,
    segments: Segments,
    snapshots: SnapshotFolder,
    key_tables: KeyTableFolder,
    made_now: bool,
    /// None for a directory that is looked at beside the server that runs.
    lock: Option<Arc<DirectoryLock>>,
}

impl Directory {
    /// Opens the directory to serve it. A missing directory is made, readable for its owner alone.
    /// The directory is locked, its owner is checked, and its next incarnation begins on the disk.
    ///
    /// # Errors
    /// One line that names path, value, limit and mend; nothing was changed then, except that a
    /// directory may have been made.
    pub fn open(path: &Path, options: DirectoryOptions) -> Result<Self, DirectoryError> {
        Self::open_to_serve(path, options).map_err(|error| error.of(path))
    }

    fn open_to_serve(path: &Path, options: DirectoryOptions) -> Result<Self, DirectoryError> {
        let at = |action| move |source| DirectoryError::io(path, action, source);
        let made_now = make_directory(path)?;
        refuse_foreign(path)?;
        let lock = DirectoryLock::take(path)?;
        let identity = match read_identity(path)? {
            Some(found) => {
                let hash_seed = match found.hash_seed {
                    0 => new_hash_seed().map_err(at("choose a hash for"))?,
                    seed => seed,
                };
                Identity {
                    incarnation: found.incarnation + 1,
                    segment_bytes: options.segment_bytes,
                    value_bytes_max: found.value_bytes_held(),
                    hash_seed,
                    ..found
                }
            }
            None => new_identity(options).map_err(at("choose an identity for"))?,
        };
        let folder = path.join(SEGMENTS);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(DirectoryError::io(&folder, "create", error));
            }
            _ => {}
        }
        write_identity(path, &identity).map_err(at("write IDENTITY in"))?;
        Staging::clear(&folder).map_err(|error| DirectoryError::io(&folder, "clean", error))?;
        let segments = Segments::open(folder)?;
        let snapshots = snapshots_of(path);
        snapshots
            .prepare()
            .map_err(|error| DirectoryError::io(snapshots.path(), "prepare", error))?;
        let key_tables = key_tables_of(path);
        // No start needs them. What stands in the way of the folder keeps them from being made,
        // which is counted.
        let _ = key_tables.prepare(&segments);
        Ok(Self {
            path: path.into(),
            identity,
            segments,
            snapshots,
            key_tables,
            made_now,
            lock: Some(Arc::new(lock)),
        })
    }

    /// Opens the directory of a stopped server to look at it: locks it, changes nothing in it.
    ///
    /// # Errors
    /// As for [`Directory::open`].
    pub fn inspect(path: &Path) -> Result<Self, DirectoryError> {
        Self::open_existing(path, |path| DirectoryLock::take_to_read(path).map(Some))
    }

    /// Opens the directory of a stopped server to change what stands in it: as
    /// [`Directory::inspect`], but nobody else can come in between.
    ///
    /// # Errors
    /// As for [`Directory::open`].
    pub fn repair(path: &Path) -> Result<Self, DirectoryError> {
        Self::open_existing(path, |path| DirectoryLock::take(path).map(Some))
    }

    /// Opens the directory of a stopped server whose IDENTITY is damaged, with the one that its
    /// segments prove; it is put in place by [`crate::directory::repair::put_identity`]. Nobody
    /// else can come in between.
    ///
    /// # Errors
    /// As for [`Directory::open`], and [`DirectoryError::Unprovable`].
    pub fn without_identity(path: &Path) -> Result<Self, DirectoryError> {
        let prove = |segments: &Segments| {
            rebuild(&mut segments.reader()).map_err(|cause| DirectoryError::Unprovable {
                path: path.join(IDENTITY),
                cause,
            })
        };
        Self::open_existing_with(path, |path| DirectoryLock::take(path).map(Some), prove)
    }

    /// Looks at the directory of a server that runs: takes no lock. What its files hold changes
    /// meanwhile, and they come and go.
    ///
    /// # Errors
    /// As for [`Directory::open`].
    pub fn beside(path: &Path) -> Result<Self, DirectoryError> {
        Self::open_existing(path, |_| Ok(None))
    }

    fn open_existing(
        path: &Path,
        lock: impl FnOnce(&Path) -> Result<Option<DirectoryLock>, DirectoryError>,
    ) -> Result<Self, DirectoryError> {
        let read = |_: &Segments| {
            read_identity(path)?.ok_or_else(|| DirectoryError::Empty { path: path.into() })
        };
        Self::open_existing_with(path, lock, read)
    }

    fn open_existing_with(
        path: &Path,
        lock: impl FnOnce(&Path) -> Result<Option<DirectoryLock>, DirectoryError>,
        identify: impl FnOnce(&Segments) -> Result<Identity, DirectoryError>,
    ) -> Result<Self, DirectoryError> {
        Self::identified(path, lock, identify).map_err(|error| error.of(path))
    }

    fn identified(
        path: &Path,
        lock: impl FnOnce(&Path) -> Result<Option<DirectoryLock>, DirectoryError>,
        identify: impl FnOnce(&Segments) -> Result<Identity, DirectoryError>,
    ) -> Result<Self, DirectoryError> {
        if !path.is_dir() {
            let source = fs::read_dir(path)
                .err()
                .unwrap_or(io::ErrorKind::NotADirectory.into());
            return Err(DirectoryError::io(path, "open", source));
        }
        refuse_foreign(path)?;
        let lock = lock(path)?;
        let segments = Segments::beside(path.join(SEGMENTS));
        let identity = identify(&segments)?;
        Ok(Self {
            path: path.into(),
            identity,
            segments,
            snapshots: snapshots_of(path),
            key_tables: key_tables_of(path),
            made_now: false,
            lock: lock.map(Arc::new),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its lock.
    ///
    /// # Panics
    /// The directory is looked at beside the server that runs.
    pub(crate) fn lock(&self) -> &Arc<DirectoryLock> {
        self.lock.as_ref().expect("what is opened is locked")
    }

    /// What is wrong with how the directory is kept from others.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let lock = self.lock.as_ref().and_then(|lock| lock.problem());
        lock.into_iter().chain(open_to_others(&self.path)).collect()
    }

    /// Whose it is, with the incarnation that began when it was opened.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether it was made by this start.
    pub fn is_new(&self) -> bool {
        self.made_now || self.identity.incarnation == 1
    }

    /// Notes durably that values of up to `value_bytes` are accepted from now on, and that new
    /// segments have `segment_bytes`. To be called before any such value is accepted, and not
    /// before this start is known to have room for them: no later one may have less.
    ///
    /// # Errors
    /// As the system says; no larger values than before may be accepted then.
    pub fn accept_values(
        &mut self,
        value_bytes: u32,
        segment_bytes: u64,
    ) -> Result<(), DirectoryError> {
        let before = &self.identity;
        if value_bytes <= before.value_bytes_max && segment_bytes == before.segment_bytes {
            return Ok(());
        }
        let identity = Identity {
            value_bytes_max: value_bytes.max(before.value_bytes_max),
            segment_bytes,
            ..self.identity.clone()
        };
        write_identity(&self.path, &identity)
            .map_err(|error| DirectoryError::io(&self.path, "write IDENTITY in", error))?;
        self.identity = identity;
        Ok(())
    }

    /// Replaces which logs it consists of, durably and at once.
    ///
    /// # Errors
    /// As the system says; what was there holds then.
    pub fn change_layout(&mut self, layout: &Layout) -> Result<(), DirectoryError> {
        let identity = Identity {
            log_count: u32::from(layout.shards),
            first_log: layout.first_log,
            inherited: layout.inherited.clone(),
            ..self.identity.clone()
        };
        write_identity(&self.path, &identity)
            .map_err(|error| DirectoryError::io(&self.path, "write IDENTITY in", error))?;
        self.identity = identity;
        Ok(())
    }

    /// Its segment files; a clone may go to another thread.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Its snapshots of the index; a clone may go to another thread.
    pub fn snapshots(&self) -> &SnapshotFolder {
        &self.snapshots
    }

    /// Whose segments and snapshots they are.
    pub fn owner(&self) -> Owner {
        Owner {
            cluster_id: self.identity.cluster_id,
            node_id: self.identity.node_id,
        }
    }

    /// What its snapshots prove of its logs.
    ///
    /// # Errors
    /// The folder of snapshots cannot be listed.
    pub fn proven_ends(&self) -> Result<ProvenEnds, DirectoryError> {
        self.snapshots
            .proven_ends(self.owner())
            .map_err(|error| DirectoryError::io(self.snapshots.path(), "list", error))
    }

    /// Its key tables; a clone may go to another thread.
    pub fn key_tables(&self) -> &KeyTableFolder {
        &self.key_tables
    }
}

/// A directory that every user may write in: whoever removes and makes names there decides what a
/// start reads.
fn open_to_others(path: &Path) -> Option<Problem> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    (mode & 0o002 != 0).then(|| Problem {
        cause: format!(
            "{}: mode {mode:04o}: every user of this machine may remove and replace its files",
            path.display()
        ),
        mend: format!("chmod o-w {}", advice::word(path)),
    })
}

fn snapshots_of(path: &Path) -> SnapshotFolder {
    SnapshotFolder::at(path.join(SNAPSHOTS))
}

fn key_tables_of(path: &Path) -> KeyTableFolder {
    KeyTableFolder::at(path.join(KEY_TABLES))
}

/// Makes the directory and those above it; whether it did.
fn make_directory(path: &Path) -> Result<bool, DirectoryError> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(false),
        Ok(_) => return Err(DirectoryError::NotADirectory { path: path.into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(DirectoryError::io(path, "open", error)),
    }
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| DirectoryError::io(path, "create", error))?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    sync_directory(above.unwrap_or(Path::new(".")))
        .map_err(|error| DirectoryError::io(path, "sync the directory above", error))?;
    Ok(true)
}

/// Makes the directory, or takes one that is there and empty, and locks it. The caller fills the
/// directory and writes its identity last.
///
/// # Errors
/// As for [`Directory::open`]; [`DirectoryError::NotEmpty`] if anything is in it.
pub(crate) fn claim_empty(path: &Path) -> Result<DirectoryLock, DirectoryError> {
    make_directory(path)?;
    let list = |error| DirectoryError::io(path, "list", error);
    for entry in fs::read_dir(path).map_err(list)? {
        let name = entry.map_err(list)?.file_name();
        if name != "lost+found" {
            return Err(DirectoryError::NotEmpty {
                path: path.into(),
                entry: name.to_string_lossy().into_owned(),
            });
        }
    }
    DirectoryLock::take(path)
}

/// A directory without an identity is ours only if nothing is in it but what an interrupted first
/// start, or a fresh file system, leaves.
fn refuse_foreign(path: &Path) -> Result<(), DirectoryError> {
    let list = |path: &Path| {
        let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name()));
        names.collect::<io::Result<Vec<_>>>()
    };
    let names = list(path).map_err(|error| DirectoryError::io(path, "list", error))?;
    if names.iter().any(|name| name == IDENTITY) {
        return Ok(());
    }
    for name in names {
        let ours = if name == SEGMENTS || name == SNAPSHOTS || name == KEY_TABLES {
            let inside = list(&path.join(&name))
                .map_err(|error| DirectoryError::io(&path.join(&name), "list", error))?;
            inside.is_empty()
        } else {
            name == LOCK || name == IDENTITY_TMP || name == "lost+found"
        };
        if !ours {
            let entry = name.to_string_lossy().into_owned();
            return Err(DirectoryError::Foreign {
                path: path.into(),
                entry,
            });
        }
    }
    Ok(())
}
