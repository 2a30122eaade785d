//! Why a data directory cannot be served.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use crate::directory::identity::{FORMAT_VERSION, IDENTITY_BYTES_MAX, IdentityError};
use crate::directory::rebuild::RebuildError;
use crate::system;
use crate::system::advice;

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
        /// Whether the data directory is still to be made.
        is_new: bool,
        /// The number of the user who owns the refused path, if the path exists.
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
    /// Its file system has no locks.
    Unlockable {
        /// The lock file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
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
                is_new: is_missing(data),
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
                is_new: is_missing(&path),
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
                let path = path.display();
                write!(out, "{path}: not a directory; name another with --data")
            }
            Self::Denied {
                path,
                action,
                data,
                is_new,
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
                    // There is nothing yet that could be given to the user.
                    None if *is_new => {
                        write!(out, "; run: install -d -m 0700 -o {user} {data}")?;
                    }
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
            Self::Unlockable { path, source } => write!(
                out,
                "{}: the file system gives no locks (flock: {source}), so nothing would keep a \
                 second server out; name a directory on a local file system with --data, or give \
                 the mount its locks (for NFS version 3: rpc.statd on both sides)",
                path.display()
            ),
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
                let path = path.display();
                write!(out, "{path}: no data yet: no server has run there")
            }
            Self::Version { path, found } => write!(
                out,
                "{}: format version {found}, and this build reads versions up to \
                 {FORMAT_VERSION}; use the build that wrote it",
                path.display()
            ),
            Self::Damaged { path, cause } => write!(
                out,
                "{}: damaged: {}; if the segments prove what it said, this makes it anew: {}; \
                 otherwise restore the directory from a backup",
                path.display(),
                words(cause),
                advice::repair(path.parent().unwrap_or(path))
            ),
            Self::Unprovable { path, cause } => write!(
                out,
                "{}: it is damaged and cannot be made anew: {cause}; restore the directory from a \
                 backup",
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

/// Whether the system says that nothing is there.
fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// What is wrong with an identity.
fn words(cause: &IdentityError) -> String {
    match cause {
        IdentityError::Length(bytes) if *bytes > IDENTITY_BYTES_MAX => {
            format!("it is longer than {IDENTITY_BYTES_MAX} bytes")
        }
        IdentityError::Length(bytes) => {
            format!("it is {bytes} bytes long, not as many as its format wants")
        }
        IdentityError::Magic => "it does not begin with PENSTOCK".into(),
        IdentityError::Version(version) => format!("format version {version}"),
        IdentityError::Damaged => "its checksum disagrees".into(),
    }
}

impl std::error::Error for DirectoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::Unlockable { source, .. } => Some(source),
            _ => None,
        }
    }
}
