//! The data directory: whose it is, who serves it, and its segment files.
//!
//! ```text
//! penstock-data/
//!   LOCK                     held by the process that serves; its pid is in it
//!   IDENTITY                 whole blocks, see `identity.rs`; replaced as a whole at each start
//!   segments/00000007.seg    FileId(7); for life
//!   segments/*.tmp           being made; removed at the next start
//!   segments/staging/        second names of files while a backup copies them, see `backup.rs`
//!   snapshots/3-00000009.idx of the index of log 3, see `snapshot.rs`
//!   snapshots/*.tmp          being made; removed at the next start
//!   tables/00000007.keys     key table of a segment, see `key_table.rs`; may be deleted
//!   tables/*.tmp             being made; removed at the next start
//!   CALIBRATION              how fast the disk was, see `calibrate.rs`; may be deleted
//!   lostfound/0001/          what a repair replaced, see `repair.rs`
//! ```

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fmt, process};

use penstock_storage::io::{BLOCK_BYTES, SegmentSource};
use penstock_storage::layout::Layout;
use penstock_storage::packed_place::FILES_MAX;
use penstock_storage::place::FileId;
use penstock_storage::segment::Owner;
use penstock_storage::snapshot::ProvenEnds;

use crate::advice;
use crate::backup::staging::Staging;
use crate::identity::{FORMAT_VERSION, IDENTITY_BYTES_MAX, Identity, IdentityError};
use crate::key_table::KeyTableFolder;
pub(crate) use crate::named_error::named;
use crate::read_ahead::ReadAhead;
use crate::rebuild::{RebuildError, rebuild};
use crate::snapshot::SnapshotFolder;
use crate::system;

const LOCK: &str = "LOCK";
pub(crate) const IDENTITY: &str = "IDENTITY";
const IDENTITY_TMP: &str = "IDENTITY.tmp";
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
    /// None for a directory that is only looked at and was never locked.
    lock: Option<File>,
}

impl Drop for Directory {
    /// A child process that is just being started holds a copy of the descriptor until it runs its
    /// program, so closing ours alone might leave the directory locked for a while.
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            let _ = lock.unlock();
        }
    }
}

impl Directory {
    /// Opens the directory to serve it: makes it if it does not exist (readable for nobody else),
    /// locks it, checks that it is ours, and begins its next incarnation on disk.
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
        let lock = lock(path)?;
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
        let segments = Segments::open(folder)?;
        let snapshots = snapshots_of(path);
        snapshots
            .prepare()
            .map_err(|error| DirectoryError::io(snapshots.path(), "prepare", error))?;
        let key_tables = key_tables_of(path);
        // No start needs them. What stands in the way of the folder keeps them from being made, which is counted.
        let _ = key_tables.prepare(&segments);
        Ok(Self {
            path: path.into(),
            identity,
            segments,
            snapshots,
            key_tables,
            made_now,
            lock: Some(lock),
        })
    }

    /// Opens the directory of a stopped server to look at it: locks it, changes nothing in it.
    ///
    /// # Errors
    /// As for [`Directory::open`].
    pub fn inspect(path: &Path) -> Result<Self, DirectoryError> {
        Self::look_at(path, lock_to_read)
    }

    /// Opens the directory of a stopped server to change what stands in it: as
    /// [`Directory::inspect`], but nobody else can come in between.
    ///
    /// # Errors
    /// As for [`Directory::open`].
    pub fn repair(path: &Path) -> Result<Self, DirectoryError> {
        Self::look_at(path, |path| lock(path).map(Some))
    }

    /// Opens the directory of a stopped server whose IDENTITY is damaged, with the one that its segments
    /// prove; it is put in place by [`crate::repair::put_identity`]. Nobody else can come in between.
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
        Self::look_with(path, |path| lock(path).map(Some), prove)
    }

    /// Looks at the directory of a server that runs: takes no lock. What its files hold changes
    /// meanwhile, and they come and go.
    ///
    /// # Errors
    /// As for [`Directory::open`].
    pub fn beside(path: &Path) -> Result<Self, DirectoryError> {
        Self::look_at(path, |_| Ok(None))
    }

    fn look_at(
        path: &Path,
        lock: impl FnOnce(&Path) -> Result<Option<File>, DirectoryError>,
    ) -> Result<Self, DirectoryError> {
        let read = |_: &Segments| {
            read_identity(path)?.ok_or_else(|| DirectoryError::Empty { path: path.into() })
        };
        Self::look_with(path, lock, read)
    }

    fn look_with(
        path: &Path,
        lock: impl FnOnce(&Path) -> Result<Option<File>, DirectoryError>,
        identify: impl FnOnce(&Segments) -> Result<Identity, DirectoryError>,
    ) -> Result<Self, DirectoryError> {
        Self::looked_at(path, lock, identify).map_err(|error| error.of(path))
    }

    fn looked_at(
        path: &Path,
        lock: impl FnOnce(&Path) -> Result<Option<File>, DirectoryError>,
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
        let segments = Segments {
            folder: path.join(SEGMENTS),
            direct: false,
            progress: Arc::default(),
        };
        let identity = identify(&segments)?;
        Ok(Self {
            path: path.into(),
            identity,
            segments,
            snapshots: snapshots_of(path),
            key_tables: key_tables_of(path),
            made_now: false,
            lock,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
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
    /// segments have `segment_bytes`. To be called before any such value is accepted, and not before
    /// this start is known to have room for them: no later one may have less.
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

/// The folder of segment files.
#[derive(Clone, Debug)]
pub struct Segments {
    folder: PathBuf,
    direct: bool,
    progress: Arc<Progress>,
}

impl Segments {
    /// Removes what an earlier run was making, and tries whether the file system takes O_DIRECT.
    fn open(folder: PathBuf) -> Result<Self, DirectoryError> {
        let at = |action| {
            let folder = folder.clone();
            move |source| DirectoryError::io(&folder, action, source)
        };
        Staging::clear(&folder).map_err(at("clean"))?;
        for entry in fs::read_dir(&folder).map_err(at("list"))? {
            let path = entry.map_err(at("list"))?.path();
            if path.extension().is_some_and(|extension| extension == "tmp") {
                fs::remove_file(&path).map_err(at("clean"))?;
            }
        }
        let probe = folder.join("direct.tmp");
        File::create(&probe).map_err(at("create a file in"))?;
        let direct = match open_for_device(&probe, true) {
            Ok(_) => true,
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => false,
            Err(error) => return Err(DirectoryError::io(&probe, "open", error)),
        };
        fs::remove_file(&probe).map_err(at("clean"))?;
        Ok(Self {
            folder,
            direct,
            progress: Arc::default(),
        })
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The data directory that it belongs to.
    pub fn data(&self) -> &Path {
        self.folder.parent().unwrap_or(Path::new("."))
    }

    /// How far those who read have come.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Whether files are opened past the page cache (O_DIRECT). If not, the file system refused.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Where a file is.
    pub fn path(&self, file: FileId) -> PathBuf {
        self.folder.join(format!("{:08}.seg", file.0))
    }

    /// Opens a file for the disk that reads and writes it.
    ///
    /// # Errors
    /// As the system says; the text names the file.
    pub fn open_file(&self, file: FileId) -> io::Result<OwnedFd> {
        let path = self.path(file);
        open_for_device(&path, self.direct)
            .map(OwnedFd::from)
            .map_err(|error| named(&path, &error))
    }

    /// Cuts a file to `bytes`, durably.
    ///
    /// # Errors
    /// As the system says; the text names the file.
    pub fn truncate(&self, file: FileId, bytes: u64) -> io::Result<()> {
        let path = self.path(file);
        let cut = || {
            let file = OpenOptions::new().write(true).open(&path)?;
            file.set_len(bytes)?;
            file.sync_all()
        };
        cut().map_err(|error| named(&path, &error))
    }

    /// Removes a file; a power cut may bring it back.
    ///
    /// # Errors
    /// As the system says; the text names the file.
    pub fn remove_soon(&self, file: FileId) -> io::Result<()> {
        let path = self.path(file);
        fs::remove_file(&path).map_err(|error| named(&path, &error))
    }

    /// Removes a file, durably.
    ///
    /// # Errors
    /// As the system says; the text names the file.
    pub fn remove(&self, file: FileId) -> io::Result<()> {
        self.remove_soon(file)?;
        self.sync()
    }

    /// Makes the names in the folder durable.
    ///
    /// # Errors
    /// As the system says; the text names the folder.
    pub fn sync(&self) -> io::Result<()> {
        sync_directory(&self.folder).map_err(|error| named(&self.folder, &error))
    }

    /// The files that are there, in no particular order, with their lengths in bytes.
    ///
    /// # Errors
    /// As the system says; the text names the folder.
    pub fn list(&self) -> io::Result<Vec<(FileId, u64)>> {
        let list = || {
            let mut files = Vec::new();
            for entry in fs::read_dir(&self.folder)? {
                let entry = entry?;
                if let Some(file) = file_id(&entry.file_name()) {
                    if file.0 >= FILES_MAX {
                        return Err(numbers_over(file));
                    }
                    match entry.metadata() {
                        Ok(found) => files.push((file, found.len())),
                        // A server that runs has removed it since the folder was read.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Ok(files)
        };
        list().map_err(|error: io::Error| named(&self.folder, &error))
    }

    /// Names in the folder that no file of ours has, in order; a start passes them over.
    ///
    /// # Errors
    /// As for [`Segments::list`].
    pub fn strangers(&self) -> io::Result<Vec<String>> {
        let list = || {
            let mut names = Vec::new();
            for entry in fs::read_dir(&self.folder)? {
                let name = entry?.file_name();
                if file_id(&name).is_none() && !Staging::is_named(&name) {
                    names.push(name.to_string_lossy().into_owned());
                }
            }
            names.sort_unstable();
            Ok(names)
        };
        list().map_err(|error: io::Error| named(&self.folder, &error))
    }

    /// The lowest number above those of all files that are there.
    ///
    /// # Errors
    /// As for [`Segments::list`].
    pub fn next_file(&self) -> io::Result<FileId> {
        let highest = self.list()?.into_iter().map(|(file, _)| file.0).max();
        Ok(FileId(highest.map_or(1, |highest| highest + 1)))
    }

    /// Bytes of all segment files and spares together.
    ///
    /// # Errors
    /// As for [`Segments::list`].
    pub fn bytes(&self) -> io::Result<u64> {
        Ok(self.list()?.into_iter().map(|(_, bytes)| bytes).sum())
    }

    /// A reader for recovery and inspection.
    pub fn reader(&self) -> SegmentReader {
        SegmentReader {
            segments: self.clone(),
            open: None,
            synced: HashSet::new(),
            ahead: ReadAhead::default(),
            announced: HashSet::new(),
        }
    }
}

/// Reads segment files in whatever order recovery wants, one open at a time.
///
/// Each file is synced before a byte behind its first block is read: what an earlier process wrote and
/// did not flush may be in the page cache only, and recovery must not build on what a power cut can
/// still take back. Who reads the first block alone builds on nothing else in that file: a header was
/// durable before anything was written behind it, and that before the header of the next segment.
#[derive(Debug)]
pub struct SegmentReader {
    segments: Segments,
    open: Option<(FileId, File)>,
    synced: HashSet<FileId>,
    ahead: ReadAhead,
    announced: HashSet<FileId>,
}

/// How much of what a start has to read was read, in bytes. Shared by all shards.
#[derive(Debug, Default)]
pub struct Progress {
    expected: AtomicU64,
    read: AtomicU64,
    all: AtomicU64,
}

impl Progress {
    /// From here on it counts.
    pub fn begin(&self) {
        self.expected.store(0, Ordering::Relaxed);
        self.read.store(0, Ordering::Relaxed);
    }

    /// So many more bytes are to be read.
    pub fn expect(&self, bytes: u64) {
        self.expected.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many were.
    pub fn read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
        self.all.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that were read since the directory was opened.
    pub fn bytes(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    /// How far it is, 0 to 99: nothing is done before all is said.
    pub fn percent(&self) -> u64 {
        let expected = self.expected.load(Ordering::Relaxed).max(1);
        (self.read.load(Ordering::Relaxed) * 100 / expected).min(99)
    }
}

impl SegmentReader {
    /// The open file; synced, if more than its first block is going to be read.
    fn file(&mut self, id: FileId, end: u64) -> io::Result<&File> {
        let file = match self.open.take() {
            Some((open, file)) if open == id => file,
            _ => {
                let path = self.segments.path(id);
                let file = File::open(&path).map_err(|error| named(&path, &error))?;
                // What is read beyond what is asked for costs a start time. If this fails, it does.
                let _ = system::read_as_asked(file.as_fd());
                file
            }
        };
        if end > BLOCK_BYTES as u64 && self.synced.insert(id) {
            let path = self.segments.path(id);
            file.sync_all().map_err(|error| named(&path, &error))?;
        }
        Ok(&self.open.insert((id, file)).1)
    }
}

impl SegmentSource for SegmentReader {
    fn files(&mut self) -> io::Result<Vec<(FileId, u64)>> {
        self.segments.list()
    }

    fn will_read(&mut self, id: FileId, offset: u64) {
        // Once, from wherever that was. Whatever fails is told by the read.
        if self.announced.insert(id) && self.file(id, u64::MAX).is_ok() {
            self.open
                .iter()
                .for_each(|(_, file)| self.ahead.announce(file, offset));
        }
    }

    fn read_at(&mut self, id: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let path = self.segments.path(id);
        let file = self.file(id, offset + into.len() as u64)?;
        let mut filled = 0;
        while filled < into.len() {
            match file.read_at(&mut into[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(moved) => filled += moved,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(named(&path, &error)),
            }
        }
        self.segments.progress.read(filled as u64);
        Ok(filled)
    }
}

/// Opens an existing file for reading and writing, past the page cache if `direct`.
pub(crate) fn open_for_device(path: &Path, direct: bool) -> io::Result<File> {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
}

/// Makes a folder for the eyes of its owner alone if it is not there, and removes what an earlier run did
/// not finish in it: `*.tmp`.
pub(crate) fn prepare_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "tmp") {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Whether there is no folder where one was looked for.
pub(crate) fn is_no_folder(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// What a folder has whose name `parse` knows, in no particular order, with the lengths in bytes; nothing
/// if there is no folder.
pub(crate) fn list_folder<T>(
    path: &Path,
    parse: impl Fn(&OsStr) -> Option<T>,
) -> io::Result<Vec<(T, u64)>> {
    let entries = match fs::read_dir(path) {
        Err(error) if is_no_folder(&error) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Some(name) = parse(&entry.file_name()) else {
            continue;
        };
        match entry.metadata() {
            Ok(metadata) => found.push((name, metadata.len())),
            // It was removed between the list and the look.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// There is no segment of this number.
pub(crate) fn numbers_over(file: FileId) -> io::Error {
    io::Error::other(format!(
        "segment number {} is too high: they end at {}",
        file.0,
        FILES_MAX - 1
    ))
}

/// The number of a segment file by its name: eight digits or more, no other spelling.
fn file_id(name: &OsStr) -> Option<FileId> {
    let digits = name.to_str()?.strip_suffix(".seg")?;
    let number: u32 = digits.parse().ok()?;
    (number > 0 && digits == format!("{number:08}")).then_some(FileId(number))
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

/// Makes the directory, or takes one that is there and empty, and locks it: for whoever fills it
/// and writes its identity last.
///
/// # Errors
/// As for [`Directory::open`]; [`DirectoryError::NotEmpty`] if anything is in it.
pub(crate) fn claim_empty(path: &Path) -> Result<File, DirectoryError> {
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
    lock(path)
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

fn lock(path: &Path) -> Result<File, DirectoryError> {
    let path = path.join(LOCK);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|error| DirectoryError::io(&path, "open", error))?;
    hold(&file, &path)?;
    let write = |file: &mut File| {
        file.set_len(0)?;
        writeln!(file, "{}", process::id())
    };
    write(&mut file).map_err(|error| DirectoryError::io(&path, "write", error))?;
    Ok(file)
}

/// Holds a directory that is only looked at, without writing to it.
fn lock_to_read(path: &Path) -> Result<Option<File>, DirectoryError> {
    let path = path.join(LOCK);
    match File::open(&path) {
        Ok(file) => {
            hold(&file, &path)?;
            Ok(Some(file))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DirectoryError::io(&path, "open", error)),
    }
}

fn hold(file: &File, path: &Path) -> Result<(), DirectoryError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let holder = io::read_to_string(file).unwrap_or_default();
            Err(DirectoryError::Locked {
                path: path.into(),
                pid: holder.trim().parse().ok(),
            })
        }
        Err(TryLockError::Error(error)) => Err(DirectoryError::io(path, "lock", error)),
    }
}

pub(crate) fn read_identity(path: &Path) -> Result<Option<Identity>, DirectoryError> {
    let path = path.join(IDENTITY);
    let block = match File::open(&path) {
        Ok(file) => {
            // One byte more than a whole one, so that a longer file is seen and not loaded.
            let mut block = Vec::with_capacity(BLOCK_BYTES + 1);
            io::Read::read_to_end(
                &mut io::Read::take(file, IDENTITY_BYTES_MAX as u64 + 1),
                &mut block,
            )
            .map_err(|error| DirectoryError::io(&path, "read", error))?;
            block
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DirectoryError::io(&path, "open", error)),
    };
    match Identity::decode(&block) {
        Ok(identity) => Ok(Some(identity)),
        Err(IdentityError::Version(found)) => Err(DirectoryError::Version { path, found }),
        Err(cause) => Err(DirectoryError::Damaged { path, cause }),
    }
}

fn new_identity(options: DirectoryOptions) -> io::Result<Identity> {
    let (mut cluster_id, mut node_id) = ([0; 16], [0; 16]);
    system::fill_random(&mut cluster_id)?;
    system::fill_random(&mut node_id)?;
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Ok(Identity {
        cluster_id,
        node_id,
        incarnation: 1,
        log_count: options.shards_of_new,
        first_log: 1,
        inherited: Vec::new(),
        segment_bytes: options.segment_bytes,
        // None is accepted yet, see [`Directory::accept_values`].
        value_bytes_max: 1,
        created_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
        hash_seed: new_hash_seed()?,
    })
}

/// Zero would say that there is none yet.
fn new_hash_seed() -> io::Result<u64> {
    Ok(system::random_u64()?.max(1))
}

/// Replaces the file as a whole: after a power cut it is the old one or the new one.
pub(crate) fn write_identity(path: &Path, identity: &Identity) -> io::Result<()> {
    let (tmp, path_of_it) = (path.join(IDENTITY_TMP), path.join(IDENTITY));
    let bytes = identity.encode();
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&tmp)?;
    file.write_all(&bytes)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()?;
    // The file of before stays beside it, so that the next one has its room also on a full disk.
    if system::exchange(&tmp, &path_of_it).is_err() {
        fs::rename(&tmp, &path_of_it)?;
    }
    sync_directory(path)
}

/// Why a data directory cannot be served. Each prints as one line with the mend in it.
#[derive(Debug)]
pub enum DirectoryError {
    /// The path is something else.
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The user may not.
    Denied {
        /// What was refused.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The data directory.
        data: PathBuf,
        /// To whom what was refused belongs, by number, if it is there.
        owner: Option<u32>,
        /// Who tried, by number.
        user: u32,
    },
    /// A process serves it.
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process, if it has written its number.
        pid: Option<u32>,
    },
    /// Not empty and not ours.
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Something in it.
        entry: String,
    },
    /// To be filled, and something is there.
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// Something in it.
        entry: String,
    },
    /// No server has ever run there.
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// Written in a format that this build does not read.
    Version {
        /// The identity file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The identity file is not what was written.
    Damaged {
        /// The identity file.
        path: PathBuf,
        /// What is wrong with it.
        cause: IdentityError,
    },
    /// Its identity is damaged, and its segments do not prove what it was.
    Unprovable {
        /// The identity file.
        path: PathBuf,
        /// What is missing.
        cause: RebuildError,
    },
    /// Anything else that the system reports.
    Io {
        /// What it is about.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The report.
        source: io::Error,
    },
}

impl DirectoryError {
    /// The same about the data directory `data`, in which the path lies.
    pub(crate) fn of(self, data: &Path) -> Self {
        match self {
            Self::Denied {
                path,
                action,
                owner,
                user,
                ..
            } => Self::Denied {
                path,
                action,
                data: data.into(),
                owner,
                user,
            },
            other => other,
        }
    }

    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Denied {
                owner: fs::metadata(&path).ok().map(|found| found.uid()),
                user: system::user(),
                data: path.clone(),
                path,
                action,
            },
            io::ErrorKind::NotADirectory => Self::NotADirectory { path },
            _ => Self::Io {
                path,
                action,
                source,
            },
        }
    }
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotADirectory { path } => {
                write!(
                    out,
                    "{}: not a directory; name another with --data",
                    path.display()
                )
            }
            Self::Denied {
                path,
                action,
                data,
                owner,
                user,
            } => {
                write!(
                    out,
                    "{}: user {user} has no permission to {action} it",
                    path.display()
                )?;
                let data = advice::word(data);
                match owner {
                    Some(owner) if owner == user => {
                        write!(out, ", though it is the owner; run: chmod -R u+rwX {data}")?
                    }
                    Some(owner) => write!(
                        out,
                        ", which belongs to user {owner}; run: chown -R {user} {data}"
                    )?,
                    None => write!(out, "; run: chown -R {user} {data}")?,
                }
                write!(out, " (as root), or name another directory with --data")
            }
            Self::Locked { path, pid } => {
                let holder = pid.map_or("another process".into(), |pid| format!("process {pid}"));
                write!(
                    out,
                    "{}: in use by {holder}; stop that one first, or name another directory with \
                     --data",
                    path.display()
                )
            }
            Self::Foreign { path, entry } => write!(
                out,
                "{}: not a data directory: it holds '{entry}' and no IDENTITY; name an empty or a \
                 new one with --data",
                path.display()
            ),
            Self::NotEmpty { path, entry } => write!(
                out,
                "{}: not empty: it holds '{entry}'; name an empty or a new directory",
                path.display()
            ),
            Self::Empty { path } => {
                write!(
                    out,
                    "{}: no data yet: no server has run there",
                    path.display()
                )
            }
            Self::Version { path, found } => write!(
                out,
                "{}: format version {found}, and this build reads versions up to {FORMAT_VERSION}; use \
                 the build that wrote it",
                path.display()
            ),
            Self::Damaged { path, cause } => {
                let cause = match cause {
                    IdentityError::Length(bytes) if *bytes > IDENTITY_BYTES_MAX => {
                        format!("it is longer than {IDENTITY_BYTES_MAX} bytes")
                    }
                    IdentityError::Length(bytes) => {
                        format!("it is {bytes} bytes long, not as many as its format wants")
                    }
                    IdentityError::Magic => "it does not begin with PENSTOCK".into(),
                    IdentityError::Version(version) => format!("format version {version}"),
                    IdentityError::Damaged => "its checksum disagrees".into(),
                };
                write!(
                    out,
                    "{}: damaged: {cause}; if the segments prove what it said, this makes it anew: {}; otherwise restore the directory from a backup",
                    path.display(),
                    advice::repair(path.parent().unwrap_or(path))
                )
            }
            Self::Unprovable { path, cause } => write!(
                out,
                "{}: it is damaged and cannot be made anew: {cause}; restore the directory from a backup",
                path.display()
            ),
            Self::Io {
                path,
                action,
                source,
            } => {
                write!(out, "{}: cannot {action} it: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for DirectoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_free_when_it_is_closed_though_a_child_still_holds_the_descriptor() {
        let path = std::env::temp_dir().join(format!("penstock-copied-{}", process::id()));
        let options = DirectoryOptions {
            shards_of_new: 1,
            segment_bytes: 1 << 20,
        };
        let held = Directory::open(&path, options).expect("open");
        let lock = held.lock.as_ref().expect("it is locked");
        // What a child has between its start and its program.
        let copy = lock.try_clone().expect("copy");
        drop(held);
        Directory::open(&path, options).expect("it is free");
        drop(copy);
        fs::remove_dir_all(&path).expect("clean");
    }
}
