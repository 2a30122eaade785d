//! The data directory of a stopped server, as commands open it.

use penstock::directory::{Directory, DirectoryError};
use penstock_storage::layout::Layout;

use super::Failure;

/// The exit code and the line of a directory that cannot be opened.
pub(super) fn cannot_open(error: DirectoryError) -> Failure {
    match error {
        DirectoryError::Damaged { .. } | DirectoryError::Unprovable { .. } => Failure::no(error),
        _ => Failure::usage(error),
    }
}

/// Which logs the directory consists of.
pub(super) fn layout_of(directory: &Directory) -> Result<Layout, Failure> {
    let identity = directory.identity();
    identity.layout().ok_or_else(|| {
        Failure::no(format_args!(
            "{}: IDENTITY tells of {} shards, and no node has so many",
            directory.path().display(),
            identity.log_count
        ))
    })
}
