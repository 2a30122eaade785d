//! Files with secrets, or with what is kept of them: nobody else may read or write them.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What others may not do with a file.
const OTHERS: u32 = 0o007;
/// What the group may not do with a file of a person, and with one of root: systemd gives a service
/// its credentials as files of root that the group, or an entry of an access list, may read.
const GROUP: u32 = 0o070;
const GROUP_OF_ROOT: u32 = 0o030;

/// Why a private file is not used.
#[derive(Debug)]
pub enum PrivateFileError {
    /// It is not there, or cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is a directory, a pipe or a device.
    NoFile(PathBuf),
    /// Others may read or write it.
    Open {
        /// The file.
        path: PathBuf,
        /// What they may do.
        what: &'static str,
        /// Its mode.
        mode: u32,
    },
    /// It is longer than any such file.
    TooLong {
        /// The file.
        path: PathBuf,
        /// How long it is.
        bytes: u64,
        /// The limit.
        max: usize,
    },
}

/// Names the file.
impl fmt::Display for PrivateFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path().display(), self.cause())
    }
}

impl std::error::Error for PrivateFileError {}

impl PrivateFileError {
    fn path(&self) -> &Path {
        match self {
            PrivateFileError::NoFile(path)
            | PrivateFileError::Unreadable { path, .. }
            | PrivateFileError::Open { path, .. }
            | PrivateFileError::TooLong { path, .. } => path,
        }
    }

    /// What is wrong, for messages that have named the file.
    #[must_use]
    pub fn cause(&self) -> String {
        match self {
            PrivateFileError::Unreadable { error, .. } => format!("cannot be read: {error}"),
            PrivateFileError::NoFile(_) => "it is no file".into(),
            PrivateFileError::Open { path, what, mode } => {
                let path = path.display();
                format!("others may {what} it (mode {mode:04o}): chmod 600 {path}")
            }
            PrivateFileError::TooLong { bytes, max, .. } => {
                format!("it has {bytes} bytes, and at most {max} are read")
            }
        }
    }

    /// Whether there is no such file.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, PrivateFileError::Unreadable { error, .. }
            if error.kind() == io::ErrorKind::NotFound)
    }
}

/// Reads a file that nobody else may read or write, of at most so many bytes.
///
/// # Errors
/// [`PrivateFileError`].
pub fn read_private(path: &Path, bytes_max: usize) -> Result<Vec<u8>, PrivateFileError> {
    let (file, metadata) = open_private(path, false)?;
    read_opened(path, file, &metadata, bytes_max)
}

/// Opens such a file, also for writing, and tells what it is.
///
/// # Errors
/// [`PrivateFileError`].
pub(crate) fn open_private(
    path: &Path,
    is_writable: bool,
) -> Result<(File, Metadata), PrivateFileError> {
    let unreadable = |error| PrivateFileError::Unreadable {
        path: path.to_path_buf(),
        error,
    };
    let mut options = OpenOptions::new();
    // A pipe without a writer would make the opening wait.
    let options = options
        .read(true)
        .write(is_writable)
        .custom_flags(libc::O_NONBLOCK);
    let file = options.open(path).map_err(unreadable)?;
    // Of the opened file: the name may stand for another one by now.
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(PrivateFileError::NoFile(path.to_path_buf()));
    }
    match opened_to(metadata.mode(), metadata.uid()) {
        None => Ok((file, metadata)),
        Some(what) => Err(PrivateFileError::Open {
            path: path.to_path_buf(),
            what,
            mode: metadata.mode() & 0o7777,
        }),
    }
}

/// Reads what was opened.
///
/// # Errors
/// [`PrivateFileError`].
pub(crate) fn read_opened(
    path: &Path,
    file: File,
    metadata: &Metadata,
    bytes_max: usize,
) -> Result<Vec<u8>, PrivateFileError> {
    let limit = bytes_max as u64 + 1;
    // With room for all of it: what grows leaves copies behind. `read_to_end` wants 32 bytes more.
    let room = usize::try_from(metadata.len()).map_or(bytes_max, |bytes| bytes.min(bytes_max));
    let mut bytes = Vec::with_capacity(room + 64);
    let read = file.take(limit).read_to_end(&mut bytes);
    read.map_err(|error| PrivateFileError::Unreadable {
        path: path.to_path_buf(),
        error,
    })?;
    match bytes.len() > bytes_max {
        true => Err(PrivateFileError::TooLong {
            path: path.to_path_buf(),
            bytes: metadata.len(),
            max: bytes_max,
        }),
        false => Ok(bytes),
    }
}

/// What others may do with a file of this mode and owner.
fn opened_to(mode: u32, owner: u32) -> Option<&'static str> {
    let group = if owner == 0 { GROUP_OF_ROOT } else { GROUP };
    match mode & (OTHERS | group) {
        0 => None,
        open if open & 0o022 != 0 => Some("write"),
        _ => Some("read"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_private_if_its_owner_alone_or_the_group_of_root_may_read_it() {
        for (mode, owner, open) in [
            (0o600, 1000, None),
            (0o400, 1000, None),
            (0o640, 1000, Some("read")),
            (0o620, 1000, Some("write")),
            (0o604, 1000, Some("read")),
            (0o640, 0, None),
            (0o440, 0, None),
            (0o660, 0, Some("write")),
            (0o644, 0, Some("read")),
            (0o666, 0, Some("write")),
            (0o601, 0, Some("read")),
        ] {
            assert_eq!(opened_to(mode, owner), open, "{mode:o} of {owner}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_or_that_is_none_or_is_too_long_is_refused_by_its_name() {
        let folder = std::env::temp_dir().join(format!("penstock-private-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("secret");
        fs::write(&path, b"pencil").expect("written");
        let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        set(0o644);
        let message = read_private(&path, 10).expect_err("refused").to_string();
        let name = path.display();
        assert_eq!(
            message,
            format!("{name}: others may read it (mode 0644): chmod 600 {name}")
        );
        set(0o600);
        assert_eq!(read_private(&path, 10).expect("private"), b"pencil");
        let message = read_private(&path, 5).expect_err("refused").to_string();
        assert_eq!(
            message,
            format!("{name}: it has 6 bytes, and at most 5 are read")
        );
        let message = read_private(&folder, 10).expect_err("refused").to_string();
        assert_eq!(message, format!("{}: it is no file", folder.display()));
        let missing = read_private(&folder.join("none"), 10).expect_err("missing");
        assert!(missing.is_missing());
        fs::remove_dir_all(&folder).expect("removed");
    }
}
