//! The plan that a node took last from etcd, in its data directory: no start goes back behind it,
//! and an operator puts it into an etcd that lost it.

use std::fs;
use std::io;
use std::path::Path;

use crate::cluster::plan::replacing::{beside, replace, write_new};

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
    let path = directory.join(NAME);
    let temporary = beside(&path);
    // Of a run that was ended.
    drop(fs::remove_file(&temporary));
    write_new(&temporary, text.as_bytes(), 0o644)?;
    replace(&temporary, &path)
}
