//! Versions of keys that are kept: the table in memory, and how a start collects it.

// ---- pages
pub(crate) mod collect;
pub(crate) mod copies;
pub(crate) mod entry;
pub(crate) mod table;

pub use entry::{KeptVersion, VersionEntry};
