//! Files of the operator, written beside and put in place at once.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(crate) fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}.new"))
}

pub(crate) fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut options = File::options();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Writes a text with the mode and the owner of another file.
pub(crate) fn write_like(other: &Path, path: &Path, text: &str) -> io::Result<()> {
    let like = fs::metadata(other)?;
    let mut file = File::create(path)?;
    file.set_permissions(like.permissions())?;
    let is_owner = |it: &fs::Metadata| (it.uid(), it.gid()) == (like.uid(), like.gid());
    if !is_owner(&file.metadata()?) {
        std::os::unix::fs::fchown(&file, Some(like.uid()), Some(like.gid()))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

pub(crate) fn replace(temporary: &Path, path: &Path) -> io::Result<()> {
    fs::rename(temporary, path)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}
