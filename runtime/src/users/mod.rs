//! The users' file on the disk, and new secrets. What stands in the file: `net/RIGHTS.md`.

mod edit;
mod secrets;

use std::fmt;
use std::path::Path;

use penstock_net::limits::USERS_FILE_BYTES_MAX;
use penstock_net::users::{Users, UsersError};

use crate::system::private_file::{PrivateFileError, read_private};

pub use edit::{EditFileError, edit};
pub use secrets::{new_decoy, new_key, new_password, new_salt};

/// Why a users' file is not used, in one line that names the file, and the line in it.
#[derive(Debug)]
pub enum UsersFileError {
    /// The file cannot be read, or others may read it.
    File(PrivateFileError),
    /// What stands in it is wrong.
    Text {
        /// The file.
        path: std::path::PathBuf,
        /// The line, and what is wrong.
        error: UsersError,
    },
}

impl fmt::Display for UsersFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UsersFileError::File(error) => error.fmt(f),
            UsersFileError::Text { path, error } => {
                write!(f, "{}:{}: {}", path.display(), error.line, error.fault)
            }
        }
    }
}

impl std::error::Error for UsersFileError {}

/// Reads the users of a file that nobody else may read.
///
/// # Errors
/// [`UsersFileError`].
pub fn read_users(path: &Path) -> Result<Users, UsersFileError> {
    let bytes = read_private(path, USERS_FILE_BYTES_MAX).map_err(UsersFileError::File)?;
    Users::read(&bytes).map_err(|error| UsersFileError::Text {
        path: path.to_path_buf(),
        error,
    })
}
