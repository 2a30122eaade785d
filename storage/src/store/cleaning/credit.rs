//! What cleaning may still go through. Commits earn it: without commits cleaning comes to an end,
//! however much the frames of its copies are padded.

/// Bytes of segments that one byte of commits lets cleaning go through, at most. A segment that is
/// nine tenths full of what counts takes ten of its kind to give back one.
const CREDIT_FACTOR: u64 = 10;

/// The credit of one cleaner.
#[derive(Debug, Default)]
pub(super) struct Credit {
    /// Bytes of segments that may still be cleaned.
    bytes: u64,
    /// Commit bytes for which credit was given.
    commit_bytes: u64,
    /// The most bytes of own records that did not count any more, as far as credit was given for
    /// them; below zero while what was there at the start counts beside few own ones. `None` before
    /// anything was earned.
    dead_bytes: Option<i64>,
}

/// What a choice knows of a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Earnings {
    /// Bytes of all commits.
    pub(super) commit_bytes: u64,
    /// Bytes of own records that do not count any more.
    pub(super) dead_bytes: i64,
    /// Bytes that have expired since the last choice.
    pub(super) expired_bytes: u64,
    /// Bytes of the sealed segments and the open one.
    pub(super) used_bytes: u64,
}

impl Credit {
    /// Bytes of segments that may still be cleaned.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives credit for what was committed since the last choice, or ceased to count, if that is
    /// more, and for what has expired: each byte once. So whatever cleaning does, it comes to an
    /// end.
    pub(super) fn earn(&mut self, it: Earnings) {
        if self.dead_bytes.is_none() {
            // What an earlier run left is worth going through once.
            self.pass(it.used_bytes);
        }
        let before = self.dead_bytes.unwrap_or(it.dead_bytes);
        let died_bytes = (it.dead_bytes - before).max(0);
        let committed_bytes = it.commit_bytes - self.commit_bytes;
        self.commit_bytes = it.commit_bytes;
        self.dead_bytes = Some(before + died_bytes);
        let more_bytes = committed_bytes.max(died_bytes.cast_unsigned());
        let earned_bytes = (more_bytes + it.expired_bytes) * CREDIT_FACTOR;
        self.bytes = (self.bytes + earned_bytes).min(CREDIT_FACTOR * it.used_bytes);
    }

    /// Gives credit for one way through segments of so many bytes, and for sealing on it.
    pub(super) fn pass(&mut self, used_bytes: u64) {
        self.bytes += 2 * used_bytes;
    }

    /// A segment of so many bytes is cleaned, or sealed for that.
    pub(super) fn spend(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_or_ceases_to_count_earns_once_and_no_more_than_ten_ways() {
        let mut credit = Credit::default();
        let first = Earnings {
            commit_bytes: 0,
            dead_bytes: -50,
            expired_bytes: 0,
            used_bytes: 100,
        };
        credit.earn(first);
        assert_eq!(credit.bytes(), 200, "what was there at the start");
        let more = Earnings {
            commit_bytes: 3,
            dead_bytes: -43,
            ..first
        };
        credit.earn(more);
        assert_eq!(credit.bytes(), 270, "more ceased to count");
        credit.earn(more);
        credit.earn(Earnings {
            dead_bytes: -50,
            ..more
        });
        assert_eq!(credit.bytes(), 270);
        credit.spend(300);
        assert_eq!(credit.bytes(), 0);
        credit.earn(Earnings {
            expired_bytes: 1_000,
            ..more
        });
        assert_eq!(credit.bytes(), 1_000);
    }
}
