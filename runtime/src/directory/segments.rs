//! The folder of segment files, and how far those who read it have come.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_storage::packed_place::FILES_MAX;
use penstock_storage::place::FileId;

use crate::directory::error::DirectoryError;
use crate::directory::files::{open_for_device, sync_directory};
use crate::system::named_error::named;

mod reader;

pub use reader::SegmentReader;

/// The folder with second names of files, in the folder of the segments because a file has all its
/// names on one file system.
pub(super) const STAGING: &str = "staging";

/// The folder of segment files.
#[derive(Clone, Debug)]
pub struct Segments {
    folder: PathBuf,
    direct: bool,
    progress: Arc<Progress>,
}

impl Segments {
    /// Removes what an earlier run was making, and tries whether the file system takes O_DIRECT.
    pub(super) fn open(folder: PathBuf) -> Result<Self, DirectoryError> {
        let at = |action| {
            let folder = folder.clone();
            move |source| DirectoryError::io(&folder, action, source)
        };
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

    /// The folder of a server that is stopped or runs elsewhere, as it is.
    pub(super) fn beside(folder: PathBuf) -> Self {
        Self {
            folder,
            direct: false,
            progress: Arc::default(),
        }
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
                if file_id(&name).is_none() && name != STAGING {
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
        SegmentReader::new(self.clone())
    }
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
