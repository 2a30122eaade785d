//! What runs must meet.

use super::*;

/// How often what a run must meet was met.
#[derive(Debug, Default)]
pub struct Met {
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl Met {
    pub(super) fn one(&mut self, what: &'static str) {
        self.more(what, 1);
    }

    pub(super) fn more(&mut self, what: &'static str, count: u64) {
        if count > 0 {
            *self.counts.entry(what).or_default() += count;
        }
    }

    pub(super) fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    pub fn add(&mut self, other: &Met) {
        for (what, &count) in &other.counts {
            self.more(what, count);
        }
    }

    pub fn check(&self) {
        for what in [
            "acked at replica",
            "acked at disk",
            "unknown",
            "promoted",
            "deposed by a link",
            "restarted",
            "restarted as primary",
            "tail saved",
            "scanned",
            "read from the log",
            "released",
            "rewritten",
            "swept",
            "new enough",
            "stale",
            "other shards",
            "refused on purpose",
            "told refused",
            "failed reads",
            "not whole",
            "behind",
            "forced in a scan or a rewind",
        ] {
            assert!(self.counts.contains_key(what), "never met: {what}");
        }
    }
}
