//! What plain items of a reply frame come to.

use penstock_storage::place::Lsn;

/// Items of a reply frame that were answered without an operation.
pub(crate) struct DirectAnswers {
    /// GETs and SETs.
    pub(crate) reads: u64,
    pub(crate) sets: u64,
    /// Up to where the log is durable, as long as the event lasts.
    durable: Lsn,
    /// The newest record that the answers show, and how many show what is not durable.
    pub(crate) newest: Lsn,
    pub(crate) waiting: u64,
}

impl DirectAnswers {
    pub(crate) fn new(durable: Lsn) -> Self {
        DirectAnswers {
            reads: 0,
            sets: 0,
            durable,
            newest: Lsn(0),
            waiting: 0,
        }
    }

    /// The answer to a GET shows what is durable when the log is durable up to there.
    #[inline]
    pub(crate) fn read(&mut self, lsn: Lsn) {
        self.reads += 1;
        self.shows(lsn);
    }

    /// The same of a SET.
    #[inline]
    pub(crate) fn set(&mut self, lsn: Lsn) {
        self.sets += 1;
        self.shows(lsn);
    }

    #[inline]
    fn shows(&mut self, lsn: Lsn) {
        self.newest = self.newest.max(lsn);
        self.waiting += u64::from(lsn > self.durable);
    }
}
