//! What runs must meet.

use super::*;

/// How often what a run must meet was met.
#[derive(Debug, Default)]
pub struct Met {
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl Met {
    pub(super) fn one(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub fn add(&mut self, other: &Met) {
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }

    pub fn check(&self) {
        for what in [
            "acked at replica",
            "acked at disk",
            "unknown",
            "promoted",
            "deposed by a link",
            "restarted as primary",
            "restarted",
            "tail saved",
            "received tail saved",
            "rewound",
            "scanned",
            "overrun",
            "released",
            "refused on purpose",
            "not whole",
            "behind",
        ] {
            assert!(self.counts.contains_key(what), "never met: {what}");
        }
    }
}
