//! The numbers of appended and sealed records, and the rule by which the open frame is sealed.

use crate::planted::{Bug, is_planted};
use crate::types::place::Lsn;

/// How far records are appended and sealed, and who waits for the open frame.
///
/// What must hold: `sealed <= appended`.
pub(super) struct Sealing {
    appended: Lsn,
    sealed: Lsn,
    /// The highest record that somebody waits for.
    wanted: Lsn,
    /// When the open frame is to be sealed although nobody waits. Means something only while the
    /// frame holds a record.
    interval_end_us: u64,
}

impl Sealing {
    /// The numbers of a log whose last record is `last`.
    pub(super) fn new(last: Lsn) -> Self {
        Sealing {
            appended: last,
            sealed: last,
            wanted: Lsn(0),
            interval_end_us: 0,
        }
    }

    /// The last record that was appended.
    #[inline]
    pub(super) fn appended(&self) -> Lsn {
        self.appended
    }

    /// The last record of a sealed frame.
    pub(super) fn sealed(&self) -> Lsn {
        self.sealed
    }

    /// A record is about to be appended to a frame of `record_count` records. The first one begins
    /// the interval.
    #[inline]
    pub(super) fn record_begins(&mut self, record_count: u32, interval_end_us: u64) {
        if record_count == 0 || is_planted(Bug::RestartInterval) {
            self.interval_end_us = interval_end_us;
        }
    }

    /// Gives the next record its number.
    #[inline]
    pub(super) fn append(&mut self) -> Lsn {
        self.appended.0 += 1;
        self.appended
    }

    /// A frame of so many records was sealed.
    pub(super) fn seal(&mut self, records: u32) {
        self.sealed.0 += u64::from(records);
    }

    /// Somebody waits for `lsn`.
    #[inline]
    pub(super) fn want(&mut self, lsn: Lsn) {
        self.wanted = self.wanted.max(lsn);
    }

    /// Whether somebody waits for a record of the open frame.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted > self.sealed
    }

    /// Whether somebody waits for a record of the open frame, or its interval is over.
    pub(super) fn is_due(&self, now_us: u64) -> bool {
        self.is_wanted() || now_us >= self.interval_end_us
    }

    /// When the open frame is due although nobody waits.
    pub(super) fn due_us(&self) -> u64 {
        self.interval_end_us
    }
}
