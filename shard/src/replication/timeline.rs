//! When what stands in the log was appended: how old, and how long, is what a member lacks.
//!
//! One mark for each turn that appended something. When there are many, because somebody lacks
//! much, the older ones are merged: what they stand for may seem older than it is, never younger.

use std::collections::VecDeque;

use penstock_storage::place::Lsn;

/// Marks, at most.
const MARKS_MAX: usize = 4096;
/// So many of the newest marks are never merged.
const MARKS_KEPT: usize = MARKS_MAX / 4;

/// What was appended when, from the oldest record that somebody lacks.
#[derive(Debug)]
pub struct Timeline {
    marks: VecDeque<Mark>,
    /// The last record that was noted, and the bytes of all up to there.
    appended: Lsn,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    /// The last of the records that it stands for.
    lsn: Lsn,
    /// When the first of them was there.
    us: u64,
    /// Bytes of the log before them.
    bytes_before: u64,
}

/// What stands behind a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// When the first of it was appended, in microseconds.
    pub since_us: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl Timeline {
    /// For a log that ends at `appended`. All its records count as appended when the clock began,
    /// and as no bytes.
    #[must_use]
    pub fn new(appended: Lsn) -> Self {
        let mut timeline = Timeline {
            marks: VecDeque::new(),
            appended: Lsn(0),
            bytes: 0,
        };
        timeline.note(0, appended, 0);
        timeline
    }

    /// The log has all up to `appended` by now, `bytes` in this life.
    pub fn note(&mut self, now_us: u64, appended: Lsn, bytes: u64) {
        if appended == self.appended {
            return;
        }
        self.marks.push_back(Mark {
            lsn: appended,
            us: now_us,
            bytes_before: self.bytes,
        });
        (self.appended, self.bytes) = (appended, bytes);
        if self.marks.len() > MARKS_MAX {
            self.merge();
        }
    }

    /// What stands behind a record; `None` if nothing does.
    #[must_use]
    pub fn behind(&self, lsn: Lsn) -> Option<Behind> {
        let at = self.marks.partition_point(|mark| mark.lsn <= lsn);
        self.marks.get(at).map(|mark| Behind {
            since_us: mark.us,
            bytes: self.bytes - mark.bytes_before,
        })
    }

    /// Nobody lacks what stands up to this record.
    pub fn forget(&mut self, lsn: Lsn) {
        while self.marks.front().is_some_and(|mark| mark.lsn <= lsn) {
            self.marks.pop_front();
        }
    }

    fn merge(&mut self) {
        let newest = self.marks.split_off(self.marks.len() - MARKS_KEPT);
        let older = std::mem::take(&mut self.marks);
        for (at, mark) in older.into_iter().enumerate() {
            match self.marks.back_mut().filter(|_| at % 2 == 1) {
                Some(before) => before.lsn = mark.lsn,
                None => self.marks.push_back(mark),
            }
        }
        self.marks.extend(newest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_a_record_is_as_old_as_the_turn_that_appended_it() {
        let mut timeline = Timeline::new(Lsn(10));
        timeline.note(500, Lsn(12), 100);
        timeline.note(600, Lsn(12), 100);
        timeline.note(700, Lsn(15), 250);
        let behind = |lsn| timeline.behind(Lsn(lsn)).map(|it| (it.since_us, it.bytes));
        assert_eq!(behind(3), Some((0, 250)));
        assert_eq!(behind(10), Some((500, 250)));
        assert_eq!(behind(11), Some((500, 250)));
        assert_eq!(behind(12), Some((700, 150)));
        assert_eq!(behind(15), None);
        timeline.forget(Lsn(12));
        assert_eq!(timeline.marks.len(), 1);
        assert_eq!(timeline.behind(Lsn(12)).map(|it| it.bytes), Some(150));
    }

    #[test]
    fn however_much_is_lacked_the_oldest_is_known_and_nothing_seems_younger() {
        let mut timeline = Timeline::new(Lsn(0));
        for turn in 1..100_000 {
            timeline.note(10 * turn, Lsn(turn), 8 * turn);
            assert!(timeline.marks.len() <= MARKS_MAX);
        }
        let oldest = timeline.behind(Lsn(0)).expect("all of it");
        assert_eq!((oldest.since_us, oldest.bytes), (10, 8 * 99_999));
        for turn in 1..100_000 {
            let behind = timeline.behind(Lsn(turn - 1)).expect("some");
            assert!(behind.since_us <= 10 * turn && behind.bytes >= 8 * (100_000 - turn));
        }
        let newest = timeline.behind(Lsn(99_500)).expect("some");
        assert_eq!(newest.since_us, 10 * 99_501);
    }
}
