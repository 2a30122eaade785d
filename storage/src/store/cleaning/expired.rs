//! What has expired as a reason to clean: for its bytes, for its entries in the index, and without
//! any commit.
//!
//! Time passes without commits. So each choice notes when more expires, and the next is due then.
//! What has expired earns the right to clean as commits do, each byte once: so an idle store comes
//! to rest. A segment that is half given back is cleaned though the log is short enough; one with
//! many expired keys is cleaned for these, and the open segment is sealed for either when it would
//! not fill up by itself before long.
//!
//! While the index has no room and some of its entries have expired, new keys wait instead of being
//! refused, and cleaning goes as fast as it can.

/// What the last choice found, and when the next one is due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expired {
    /// Bytes and keys that are pointed to and have expired, at least, the open segment included.
    pub(super) bytes: u64,
    pub(super) keys: u64,
    /// At most so many of all keys are in the index; with more expired ones, these are worth
    /// cleaning.
    pub(super) are_many: bool,
    /// When more is known to have expired.
    pub(super) due_us: Option<u64>,
    /// The last choice found nothing that it could do.
    pub(super) is_hopeless: bool,
    /// Copies find no room.
    pub(super) is_blocked: bool,
    /// Bytes of commits at some time, and how many a second had come before that.
    pub(super) sample: Sample,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    at_us: u64,
    pub(super) commit_bytes: u64,
    pub(super) bytes_per_s: u64,
}

/// Between two choices that only time calls for, in microseconds.
pub(super) const PICK_US: u64 = 1_000_000;

/// Fewer expired keys than this are no reason to clean while the index has room.
pub(super) const KEYS_MIN: u64 = 1_024;

/// While more of a segment expires within this time, it is left until then, in milliseconds.
pub(super) const SETTLES_MS: u64 = 10_000;

/// An open segment that is full within this time is not sealed before, in seconds.
pub(super) const FILLS_S: u64 = 30;

impl Expired {
    /// Whether nothing is known to have expired.
    pub(super) fn is_none(&self) -> bool {
        self.keys == 0
    }

    /// When time alone calls for the next choice.
    pub(super) fn due_us(&self) -> Option<u64> {
        self.due_us
    }

    pub(super) fn is_due(&self, now_us: u64) -> bool {
        self.due_us.is_some_and(|due_us| due_us <= now_us)
    }

    /// Notes the end of a choice: whether it picked a segment or sealed one, and whether another
    /// choice now would end in the same way. A sealed segment is picked when it is durable.
    pub(super) fn picked(&mut self, now_us: u64, (picks, seals): (bool, bool), is_final: bool) {
        self.is_hopeless = !picks && !seals && is_final;
        if !picks && (seals || !is_final) && self.keys > 0 {
            self.pick_by(now_us + PICK_US);
        }
    }

    pub(super) fn pick_by(&mut self, us: u64) {
        self.due_us = Some(self.due_us.map_or(us, |due_us| due_us.min(us)));
    }

    pub(super) fn observe(&mut self, now_us: u64, commit_bytes: u64) {
        let passed_us = now_us.saturating_sub(self.sample.at_us);
        if passed_us >= PICK_US {
            let grown = u128::from(commit_bytes - self.sample.commit_bytes);
            let bytes_per_s = grown * 1_000_000 / u128::from(passed_us);
            self.sample = Sample {
                at_us: now_us,
                commit_bytes,
                bytes_per_s: u64::try_from(bytes_per_s).unwrap_or(u64::MAX),
            };
        }
    }
}
