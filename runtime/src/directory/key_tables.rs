//! The folder of key tables.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use penstock_storage::key_table::{KeyTable, TableError, TableHome};
use penstock_storage::place::FileId;

use crate::directory::files::{
    is_no_folder, list_folder, open_for_device, prepare_folder, read_at,
};
use crate::directory::segments::Segments;

/// The folder of key tables.
#[derive(Clone, Debug)]
pub struct KeyTableFolder {
    path: PathBuf,
}

impl KeyTableFolder {
    /// The folder at `path`, as it is.
    pub fn at(path: PathBuf) -> Self {
        KeyTableFolder { path }
    }

    /// Makes the folder if it is missing. Removes unfinished files of an earlier run, and tables
    /// whose segments are gone.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn prepare(&self, segments: &Segments) -> io::Result<()> {
        prepare_folder(&self.path)?;
        for (file, _) in self.list()? {
            if !segments.path(file).exists() {
                self.remove(file)?;
            }
        }
        Ok(())
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The segments that have tables, in no particular order, with the lengths of the tables in
    /// bytes; none if there is no folder.
    ///
    /// # Errors
    /// As the system says.
    pub fn list(&self) -> io::Result<Vec<(FileId, u64)>> {
        list_folder(&self.path, segment_of)
    }

    /// Opens the table of a segment to be read.
    ///
    /// # Errors
    /// As the system says.
    pub fn open(&self, file: FileId) -> io::Result<File> {
        File::open(self.file(file))
    }

    /// Whether nothing is there, also no table that is being made.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        match fs::read_dir(&self.path) {
            Err(error) if is_no_folder(&error) => Ok(true),
            entries => Ok(entries?.next().is_none()),
        }
    }

    /// Removes all tables: segments of a stopped server are going to change, or there is no room.
    ///
    /// # Errors
    /// As the system says of the first that cannot be removed; the others are.
    pub fn remove_all(&self) -> io::Result<()> {
        let removed = self.list()?.into_iter().map(|(file, _)| self.remove(file));
        removed.fold(Ok(()), Result::and)
    }

    /// The table that an earlier run left of a segment, and its file as the disk wants it; removed
    /// if what it has is not to be used.
    pub(super) fn load(
        &self,
        home: &TableHome,
        direct: bool,
    ) -> Result<(KeyTable, OwnedFd), TableError> {
        let path = self.file(home.file);
        // A missing file, or a lack of descriptors, says nothing about the contents.
        let file = File::open(&path)?;
        let load = || {
            let bytes = file.metadata()?.len();
            let table = KeyTable::load(home, bytes, &mut |offset, into: &mut [u8]| {
                read_at(&file, offset, into)
            })?;
            let fd = open_for_device(&path, direct)?;
            Ok((table, fd.into()))
        };
        load().inspect_err(|_| drop(self.remove(home.file)))
    }

    pub(super) fn file(&self, file: FileId) -> PathBuf {
        self.path.join(format!("{:08}.keys", file.0))
    }

    pub(super) fn tmp(&self, file: FileId) -> PathBuf {
        self.path.join(format!("{:08}.keys.tmp", file.0))
    }

    pub(super) fn remove(&self, file: FileId) -> io::Result<()> {
        match fs::remove_file(self.file(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The segment whose table has this name: eight digits or more, no other spelling.
fn segment_of(name: &OsStr) -> Option<FileId> {
    let digits = name.to_str()?.strip_suffix(".keys")?;
    let number: u32 = digits.parse().ok()?;
    (number > 0 && digits == format!("{number:08}")).then_some(FileId(number))
}
