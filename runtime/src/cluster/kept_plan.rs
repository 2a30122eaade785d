//! The plan that a node took last from etcd, in its data directory: no start goes back behind it,
//! and an operator puts it into an etcd that lost it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// The name of the file in the data directory.
pub(crate) const NAME: &str = "PLAN";

/// The text; `None` if the directory has none.
///
/// # Errors
/// What the system said.
pub(crate) fn read(directory: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(directory.join(NAME)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Keeps a text. It is durable when this returns.
///
/// # Errors
/// What the system said; what was kept before is there still.
pub(crate) fn keep(directory: &Path, text: &str) -> io::Result<()> {
    let temporary = directory.join(format!("{NAME}.tmp"));
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, directory.join(NAME))?;
    File::open(directory)?.sync_all()
}
