//! What a start hands to a store.

use crate::memory::budget::Budget;
use crate::memory::keys::Keys;
use crate::store::cleaning::live::Live;
use crate::store::keyspace::keyspaces::Keyspaces;
use crate::store::local::LocalRecords;
use crate::store::versions::table::Versions;

/// All that stands in memory when a store opens: what a replay of the log has built, or nothing.
#[derive(Debug)]
pub struct Loaded {
    pub(crate) keys: Keys,
    pub(crate) budget: Budget,
    pub(crate) live: Live,
    pub(crate) locals: LocalRecords,
    pub(crate) keyspaces: Keyspaces,
    pub(crate) versions: Versions,
    /// The newest time that the log carries, in unix milliseconds.
    pub(crate) time_ms: u64,
}
