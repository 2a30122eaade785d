//! Where a value of an option came from, and why a configuration is refused.

use std::fmt;
use std::path::{Path, PathBuf};

use super::OPTIONS;
use super::environment::VariableError;
use super::option::ConfigOption;

/// Where a value came from. The order is the rank: a later one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The table in this file.
    Default,
    /// The TOML file, at this line (from 1).
    File {
        /// Line of the key in the file.
        line: usize,
    },
    /// A `PENSTOCK_...` variable.
    Environment,
    /// A file that a `PENSTOCK_..._FILE` variable names.
    EnvironmentFile,
    /// A flag of the command.
    Flag,
}

/// Why a configuration is refused. Each shows as one line: where, what was written, what is
/// allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The file cannot be read: mend its path or its permissions.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: String,
    },
    /// The file is not TOML: mend that line.
    NotToml {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What the parser says.
        cause: String,
    },
    /// No such option: mend the name.
    Unknown {
        /// Where it was written, with the name.
        source: String,
        /// That there is none, and which name is nearest or what took its place.
        cause: String,
    },
    /// The option exists and does not take that value: mend the value.
    BadValue {
        /// Where it was written, with the name.
        source: String,
        /// What was written.
        value: String,
        /// What may be written.
        allowed: String,
    },
    /// A variable is none, or its file gives no value.
    Variable(VariableError),
    /// The value is allowed, but not together with another: change one of the two.
    Conflict {
        /// Where it was written, with the name.
        source: String,
        /// What was written.
        value: String,
        /// What it conflicts with and how to mend it.
        cause: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Unreadable { path, cause } => {
                write!(
                    f,
                    "cannot read the configuration {}: {cause}",
                    path.display()
                )
            }
            ConfigError::NotToml { path, line, cause } => {
                write!(f, "{}:{line}: not TOML: {cause}", path.display())
            }
            ConfigError::Unknown { source, cause } => write!(f, "{source}: {cause}"),
            ConfigError::Variable(error) => error.fmt(f),
            ConfigError::BadValue {
                source,
                value,
                allowed,
            } => write!(f, "{source} = {value:?}: allowed is {allowed}"),
            ConfigError::Conflict {
                source,
                value,
                cause,
            } => write!(f, "{source} = {value:?}: {cause}"),
        }
    }
}

impl std::error::Error for ConfigError {}

pub(super) fn position(name: &str) -> Option<usize> {
    OPTIONS.iter().position(|option| option.name == name)
}

/// How an option is called at its origin: `penstock.toml:3: shards`, `PENSTOCK_SHARDS`, `--shards`.
pub(super) fn source_text(option: &ConfigOption, origin: Origin, file: Option<&Path>) -> String {
    match origin {
        Origin::Default => format!("{} (default)", option.name),
        Origin::File { line } => format!(
            "{}:{line}: {}",
            file.unwrap_or(Path::new("")).display(),
            option.name
        ),
        Origin::Environment => option.variable(),
        Origin::EnvironmentFile => option.file_variable(),
        Origin::Flag => option.flag(),
    }
}
