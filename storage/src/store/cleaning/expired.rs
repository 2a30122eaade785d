//! What has expired as a reason to clean: for its bytes, for its entries in the index, and without any commit.
//!
//! Time passes without commits. So a look tells when more expires, and the next one is due then. What has
//! expired earns the right to clean as commits do, each byte once: so an idle store comes to rest. A segment
//! that is half given back is cleaned though the log is short enough; one with many expired keys is cleaned for
//! these, and the open segment is sealed for either when it would not fill up by itself before long.
//!
//! While the index has no room and some of its entries have expired, new keys wait instead of being refused,
//! and cleaning goes as fast as it can.

use crate::format::contents::SealedSegment;
use crate::store::cleaning::live::Counts;
use crate::store::store::Store;
use crate::types::io::Blocks;
use crate::types::place::FileId;

/// What the last look found, and when the next one is due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expired {
    /// Bytes and keys that are pointed to and have expired, at least, the open segment included.
    bytes: u64,
    keys: u64,
    /// At most so many of all keys are in the index; with more expired ones, these are worth cleaning.
    are_many: bool,
    /// When more is known to have expired.
    due_us: Option<u64>,
    /// The last look found nothing that it could do.
    is_hopeless: bool,
    /// Copies find no room.
    pub(super) is_blocked: bool,
    /// Bytes of commits at some time, and how many a second had come before that.
    sample: Sample,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at_us: u64,
    commit_bytes: u64,
    bytes_per_s: u64,
}

/// Between two looks that only time calls for, in microseconds.
const LOOK_US: u64 = 1_000_000;
/// Fewer expired keys than this are no reason to clean while the index has room.
const KEYS_MIN: u64 = 1_024;
/// While more of a segment expires within this time, it is left until then, in milliseconds.
const SETTLES_MS: u64 = 10_000;
/// An open segment that is full within this time is not sealed before, in seconds.
const FILLS_S: u64 = 30;

impl Expired {
    /// Whether nothing is known to have expired.
    pub(super) fn is_none(&self) -> bool {
        self.keys == 0
    }

    /// When time alone calls for the next look.
    pub(super) fn due_us(&self) -> Option<u64> {
        self.due_us
    }

    pub(super) fn is_due(&self, now_us: u64) -> bool {
        self.due_us.is_some_and(|due_us| due_us <= now_us)
    }

    /// A look is over: whether it has picked a segment or sealed one, and whether another one now would find the
    /// same. What was sealed is picked when it is durable.
    pub(super) fn looked(&mut self, now_us: u64, (picks, seals): (bool, bool), is_final: bool) {
        self.is_hopeless = !picks && !seals && is_final;
        if !picks && (seals || !is_final) && self.keys > 0 {
            self.look_by(now_us + LOOK_US);
        }
    }

    fn look_by(&mut self, us: u64) {
        self.due_us = Some(self.due_us.map_or(us, |due_us| due_us.min(us)));
    }

    fn observe(&mut self, now_us: u64, commit_bytes: u64) {
        let passed_us = now_us.saturating_sub(self.sample.at_us);
        if passed_us >= LOOK_US {
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

impl<P: Blocks> Store<P> {
    /// What counts in a file now.
    pub(super) fn counts_in(&self, file: FileId) -> Counts {
        self.live.counts(file, self.time_ms())
    }

    /// Keys that readers find, at most: those of the index without the ones that are known to have expired. It is
    /// never less than that, and exact as soon as cleaning has gone through the segments of the others.
    #[must_use]
    pub fn visible_keys(&self) -> usize {
        let expired = self.live.expired_count(self.time_ms());
        let expired = usize::try_from(expired).unwrap_or(usize::MAX);
        self.keys.entries().len().saturating_sub(expired)
    }

    /// Whether a new key for which the index has no room now is to wait, because cleaning takes out keys that have
    /// expired.
    #[must_use]
    pub fn waits_for_keys(&self) -> bool {
        let expired = &self.cleaner.expired;
        !self.has_room_for_keys()
            && expired.keys > self.keys.entries().len() as u64 / 16
            && !expired.is_blocked
            && (self.cleaner.victim.is_some() || !expired.is_hopeless)
    }

    /// Looks at what has expired; bytes of it that had not when this was called before.
    pub(super) fn look_for_expired(&mut self, now_us: u64) -> u64 {
        let now_ms = self.time_ms();
        let commit_bytes = self.log().counters().commit_bytes;
        let before = self.cleaner.expired.bytes;
        let (mut bytes, mut keys, mut next_ms) = (0, 0, None::<u64>);
        let sealed = self.log().sealed_segments().iter().map(|it| it.file);
        let open = self.log().open_segment().map(|(file, _)| file);
        for file in sealed.chain(open) {
            let counts = self.live.counts(file, now_ms);
            bytes += counts.expired;
            keys += counts.expired_count;
            next_ms = next_ms.into_iter().chain(counts.next_ms).min();
        }
        let all = self.keys.entries().len() as u64;
        let expired = &mut self.cleaner.expired;
        expired.observe(now_us, commit_bytes);
        (expired.bytes, expired.keys) = (bytes, keys);
        expired.are_many = keys >= KEYS_MIN && keys > all / 4;
        expired.due_us = next_ms.map(|next_ms| {
            let us = (next_ms - now_ms).saturating_mul(1_000);
            // The time of the store may be slower than the clock.
            now_us.saturating_add((us + us / 32).max(LOOK_US))
        });
        bytes.saturating_sub(before)
    }

    /// Whether so many of the keys that stand in a file have expired that it is worth cleaning for these.
    pub(super) fn hoards_expired_keys(&self, file: FileId) -> bool {
        let expired = &self.cleaner.expired;
        let counts = self.counts_in(file);
        let share = match self.waits_for_keys() {
            true => 16,
            false if expired.are_many => 4,
            false => return false,
        };
        counts.expired_count > 0 && counts.expired_count * share >= counts.count
    }

    /// Whether cleaning a segment gives back half of it or more, much of that because of what has expired, and
    /// waiting would not soon make it more.
    pub(super) fn is_spent(&self, segment: &SealedSegment, gain: u64) -> bool {
        let counts = self.counts_in(segment.file);
        let soon_ms = self.time_ms() + SETTLES_MS;
        gain >= segment.file_bytes / 2
            && counts.expired >= segment.file_bytes / 4
            && counts.next_ms.is_none_or(|next_ms| next_ms > soon_ms)
    }

    /// Seals the open segment for what has expired in it, if it would not be full before long by itself.
    /// Whether that was done.
    pub(super) fn seal_expired(&mut self, now_us: u64) -> bool {
        let Some((file, bytes)) = self.log().open_segment() else {
            return false;
        };
        let counts = self.counts_in(file);
        // On a full disk nothing fills it up, because what would is refused.
        let is_low = self.log().is_low();
        let is_spent = match is_low {
            true => counts.expired >= bytes / 8,
            false => counts.expired >= bytes / 4 && counts.next_ms.is_none(),
        };
        if !is_spent && !self.hoards_expired_keys(file) {
            return false;
        }
        let must_be = is_low || self.waits_for_keys();
        let left = self.log().open_segment_bytes_left();
        let fills = self
            .cleaner
            .expired
            .sample
            .bytes_per_s
            .saturating_mul(FILLS_S)
            >= left;
        if fills && !must_be {
            self.cleaner.expired.look_by(now_us + LOOK_US);
            return false;
        }
        let is_oldest = self.log().sealed_segments().is_empty() && !self.cleaner.keeps_deletions;
        let kept = self.copies_bytes(file, is_oldest);
        // The last spares are for what makes room for certain.
        let has_spares = !self.log().lacks_spares();
        (has_spares || (must_be && kept <= self.log().sure_bytes_of_spare()))
            && self.log_mut().seal_for_cleaning()
    }
}
