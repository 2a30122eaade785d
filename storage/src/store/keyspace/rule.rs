//! The rule by which versions of a key are kept.

use crate::planted::{self, Bug};
use crate::store::keyspace::settings::Since;
use crate::types::version::Version;

/// The rule by which versions of a key are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Superseded versions that are kept, at most. 0 is any number.
    pub versions: u8,
    /// How long a superseded version is kept, in milliseconds. 0 is for ever.
    pub retention_ms: u64,
    /// Only versions that were superseded behind this point are kept.
    pub since: Since,
    /// The number of the longest prefix that the key begins with and that has a record, dropped or
    /// not.
    pub(crate) number: u16,
}

impl Rule {
    /// Whether a version that `newer` superseded at `end_ms` is kept. The version before the newest
    /// has rank 1. If a version is not kept, no older one is. An expiry ends no version: after a
    /// start that does not find the expired part, nobody could tell when the version before it
    /// ended.
    #[inline]
    #[must_use]
    pub fn keeps(&self, rank: u32, newer: Version, end_ms: u64, now_ms: u64) -> bool {
        let one_less = self.versions.saturating_sub(1);
        let versions = planted::or(Bug::KeepOneLess, one_less, self.versions);
        (self.versions == 0 || rank <= u32::from(versions))
            && self.keeps_ended(end_ms, now_ms)
            && newer > self.since.version
    }

    /// Whether what ended then is kept for its time.
    #[inline]
    #[must_use]
    pub fn keeps_ended(&self, end_ms: u64, now_ms: u64) -> bool {
        self.retention_ms == 0 || end_ms.saturating_add(self.retention_ms) > now_ms
    }

    /// From when on what ended then is not kept any more, if there is such a time.
    #[must_use]
    pub fn release_ms(&self, end_ms: u64) -> Option<u64> {
        (self.retention_ms > 0).then(|| end_ms.saturating_add(self.retention_ms))
    }

    /// From when on every version is kept that is not beyond the count.
    #[must_use]
    pub fn complete_from_ms(&self, now_ms: u64) -> u64 {
        match self.retention_ms {
            0 => self.since.time_ms,
            ms => self.since.time_ms.max(now_ms.saturating_sub(ms)),
        }
    }
}
