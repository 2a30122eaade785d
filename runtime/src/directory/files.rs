//! Files and folders as all parts of a data directory open, list and sync them.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

/// Opens an existing file for reading and writing, past the page cache if `direct`.
pub(crate) fn open_for_device(path: &Path, direct: bool) -> io::Result<File> {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
}

/// Makes a folder for the eyes of its owner alone if it is not there, and removes what an earlier
/// run did not finish in it: `*.tmp`.
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

/// What a folder has whose name `parse` knows, in no particular order, with the lengths in bytes;
/// nothing if there is no folder.
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

/// Fills `into` from `offset`; returns how many bytes the file had.
///
/// # Errors
/// As the system says.
pub fn read_at(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(moved) => filled += moved,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
