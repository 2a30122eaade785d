//! The logs of a data directory: one for each shard, and those of earlier generations that are not
//! rewritten yet.
//!
//! A change of the number of shards begins a *generation* of logs: the shards get new ones,
//! numbered behind all that ever were, and inherit the old ones. An inherited log is never written
//! again, and where it ends is told here. A log of an earlier generation that is not inherited is
//! void.

use crate::format::contents::SegmentEnd;

/// Logs that can be inherited at a time.
pub const INHERITED_MAX: usize = 1024;

/// The logs of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The number of the first shard's log.
    pub first_log: u64,
    /// Shards, each with one log.
    pub shards: u16,
    /// Logs of earlier generations that still count, ascending.
    pub inherited: Vec<InheritedEnd>,
}

/// Where an inherited log ends for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InheritedEnd {
    /// The log.
    pub log_id: u64,
    /// Its last segment, where its frames end, and its last record.
    pub end: SegmentEnd,
}

impl Layout {
    /// A new directory of so many shards.
    #[must_use]
    pub fn new(shards: u16) -> Self {
        Layout {
            first_log: 1,
            shards,
            inherited: Vec::new(),
        }
    }

    /// The log of a shard.
    #[must_use]
    pub fn log_of(&self, shard: u16) -> u64 {
        self.first_log + u64::from(shard)
    }

    /// The logs of the shards.
    #[must_use]
    pub fn own(&self) -> std::ops::Range<u64> {
        self.first_log..self.first_log + u64::from(self.shards)
    }

    /// Where an inherited log ends; `None` if it is none.
    #[must_use]
    pub fn end_of(&self, log_id: u64) -> Option<SegmentEnd> {
        let inherited = self.inherited.iter();
        inherited
            .filter(|log| log.log_id == log_id)
            .map(|log| log.end)
            .next()
    }

    /// Whether nothing of this log counts: all shards have taken it over.
    #[must_use]
    pub fn is_void(&self, log_id: u64) -> bool {
        log_id > 0 && log_id < self.first_log && self.end_of(log_id).is_none()
    }

    /// The next generation, in which `ends` are inherited too; a log without a segment is left out.
    #[must_use]
    pub fn changed_to(&self, shards: u16, ends: impl IntoIterator<Item = InheritedEnd>) -> Self {
        let mut inherited = self.inherited.clone();
        inherited.extend(ends.into_iter().filter(|log| log.end.sequence > 0));
        Layout {
            first_log: self.own().end,
            shards,
            inherited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::place::Lsn;

    fn ended(log_id: u64, sequence: u64) -> InheritedEnd {
        InheritedEnd {
            log_id,
            end: SegmentEnd {
                sequence,
                end_offset: 8192,
                last_lsn: Lsn(sequence),
            },
        }
    }

    #[test]
    fn no_number_of_a_log_is_ever_used_again() {
        let first = Layout::new(2);
        assert_eq!(first.own(), 1..3);
        let second = first.changed_to(3, [ended(1, 4), ended(2, 0)]);
        assert_eq!(second.own(), 3..6);
        assert_eq!((second.log_of(0), second.log_of(2)), (3, 5));
        assert!(second.end_of(1).is_some());
        assert!(second.is_void(2), "it held nothing");
        assert!(!second.is_void(1) && !second.is_void(3) && !second.is_void(0));
        let third = second.changed_to(1, [ended(3, 1), ended(4, 0), ended(5, 2)]);
        assert_eq!(third.own(), 6..7);
        let ids: Vec<u64> = third.inherited.iter().map(|log| log.log_id).collect();
        assert_eq!(ids, [1, 3, 5], "older generations first");
        let rewritten = Layout {
            inherited: Vec::new(),
            ..third
        };
        assert!((1..6).all(|log_id| rewritten.is_void(log_id)));
    }
}
