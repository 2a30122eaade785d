//! Why a data directory cannot be served.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use penstock_shard::opening::OpeningError;
use penstock_storage::recovery::RecoveryError;

use super::clock_check::ClockAhead;
use crate::directory::DirectoryError;
use crate::system::advice;
use crate::system::open_files::TooFewOpenFiles;

/// Why a data directory cannot be served.
#[derive(Debug)]
pub enum OpenError {
    /// The data directory cannot be used.
    Directory(DirectoryError),
    /// What stands in the data directory is damaged or not ours. No record was touched.
    Refused {
        /// The data directory.
        data: PathBuf,
        /// Why.
        refusal: RecoveryError,
    },
    /// What stands in the data directory cannot be served, for another reason.
    Opening(OpeningError),
    /// More shards than the CPUs that the process may use.
    Cores {
        /// Shards asked for.
        shards: u32,
        /// CPUs allowed.
        allowed: usize,
    },
    /// An option has a value that this machine or another option forbids.
    Option(String),
    /// The clock is far ahead of the log, and nobody vouches for it.
    Time(ClockAhead),
    /// The limit of open files is too low.
    OpenFiles(TooFewOpenFiles),
    /// The system refused something else.
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Directory(error) => error.fmt(f),
            OpenError::Refused { data, refusal } => {
                let refusal_text = refusal.within(&data.to_string_lossy()).to_string();
                write!(
                    f,
                    "{refusal_text}; no record was touched; to see all: {}",
                    advice::inspect(data)
                )?;
                match refusal.is_damage() {
                    true => write!(
                        f,
                        "; to see what a mend would give up: {}",
                        advice::repair(data)
                    ),
                    false => Ok(()),
                }
            }
            OpenError::Opening(error) => error.fmt(f),
            OpenError::Cores { shards, allowed } => write!(
                f,
                "--shards {shards} needs as many CPUs, and this process may use {allowed}: ask \
                 for at most {allowed}"
            ),
            OpenError::Option(text) => f.write_str(text),
            OpenError::Time(ahead) => ahead.fmt(f),
            OpenError::OpenFiles(error) => error.fmt(f),
            OpenError::System { action, error } => write!(f, "cannot {action}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Why the shards of the data directory `data` could not be opened.
pub(super) fn opening(data: &Path) -> impl Fn(OpeningError) -> OpenError {
    move |error| match error {
        OpeningError::Recovery(refusal) => OpenError::Refused {
            data: data.into(),
            refusal,
        },
        error => OpenError::Opening(error),
    }
}

/// What `action` was refused with.
pub(crate) fn system(action: &'static str) -> impl Fn(io::Error) -> OpenError {
    move |error| OpenError::System { action, error }
}
