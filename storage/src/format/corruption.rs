//! Damage in a file of the log, in types and in words.

use crate::format::row::Row;
use crate::types::place::FileId;
use crate::types::place::Lsn;
use std::fmt;

/// Damage, with what it puts at risk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The row of the table that refuses it.
    pub row: Row,
    /// The log, if it is known.
    pub log_id: Option<u64>,
    /// The file.
    pub file: FileId,
    /// Where in the file.
    pub offset: u64,
    /// The first record concerned.
    pub lsn_from: Lsn,
    /// The last record known to have been durable there, if it is known.
    pub lsn_to: Option<Lsn>,
    /// What is wrong, in words.
    pub cause: &'static str,
}

impl Corruption {
    /// The same in words, with the path of the file in the data directory `data`.
    #[must_use]
    pub fn within<'a>(&'a self, data: &'a str) -> Within<'a, Self> {
        Within::new(self, data)
    }
}

/// A message that names files by their paths. Without a directory it names them by their names.
#[derive(Clone, Copy, Debug)]
pub struct Within<'a, T> {
    pub(crate) subject: &'a T,
    pub(crate) data: &'a str,
}

impl<'a, T> Within<'a, T> {
    pub(crate) fn new(subject: &'a T, data: &'a str) -> Self {
        Within { subject, data }
    }

    /// A folder of the data directory, as the beginning of a path.
    pub(crate) fn folder(&self, name: &'static str) -> Folder<'_> {
        Folder {
            data: self.data,
            name,
        }
    }
}

/// A folder of the data directory, as the beginning of a path; nothing without a directory.
pub(crate) struct Folder<'a> {
    pub(crate) data: &'a str,
    name: &'static str,
}

impl fmt::Display for Folder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.data {
            "" => Ok(()),
            data => write!(f, "{}/{}/", data.trim_end_matches('/'), self.name),
        }
    }
}

impl fmt::Display for Within<'_, Corruption> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Corruption {
            log_id,
            file,
            offset,
            lsn_from,
            lsn_to,
            cause,
            ..
        } = self.subject;
        let segments = self.folder("segments");
        write!(
            f,
            "{segments}{:08}.seg is damaged at offset {offset}: {cause}",
            file.0
        )?;
        if let Some(log_id) = log_id {
            write!(f, " (log {log_id}, records from LSN {}", lsn_from.0)?;
            match lsn_to {
                Some(to) => write!(f, " to {} were durable)", to.0)?,
                None => write!(f, " on)")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.within("").fmt(f)
    }
}
