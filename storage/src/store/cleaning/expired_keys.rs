//! Finds expired keys, and the segments to clean or seal for them.

use crate::format::contents::SealedSegment;
use crate::store::cleaning::cleaning::{Cleaned, Cleaning};
use crate::store::cleaning::expired::{FILLS_S, KEYS_MIN, PICK_US, SETTLES_MS};
use crate::store::cleaning::live::Counts;
use crate::store::data::Data;
use crate::types::io::Blocks;
use crate::types::place::FileId;

impl Data {
    /// What counts in a file now.
    pub(super) fn counts_in(&self, file: FileId) -> Counts {
        self.live.counts(file, self.time_ms())
    }

    /// Keys that clients find, at most: those of the index without tokens, without horizons that
    /// are known, and without the keys that are known to have expired. It is never less than that,
    /// and exact as soon as cleaning has gone through the segments of the others. How many of what
    /// has expired are tokens is not known, so all of them are taken for tokens as far as there are
    /// so many.
    #[must_use]
    pub fn visible_keys(&self) -> usize {
        let entries = self.keys.entries();
        let expired = match self.is_clearing() {
            // Those of keys that were flushed are among them.
            true => 0,
            false => self.live.expired_count(self.time_ms()),
        };
        let expired = usize::try_from(expired).unwrap_or(usize::MAX);
        let keys = entries.len() - entries.tokens();
        let keys =
            keys.saturating_sub(self.horizons.count() + self.flushes.marks() + self.owed.records());
        keys.saturating_sub(expired.saturating_sub(entries.tokens()))
    }
}

impl Data {
    /// Whether cleaning a segment gives back half of it or more, much of that because of what has
    /// expired, and waiting would not soon make it more.
    pub(super) fn is_spent(&self, segment: &SealedSegment, gain: u64) -> bool {
        let counts = self.counts_in(segment.file);
        let soon_ms = self.time_ms() + SETTLES_MS;
        gain >= segment.file_bytes / 2
            && counts.expired >= segment.file_bytes / 4
            && counts.next_ms.is_none_or(|next_ms| next_ms > soon_ms)
    }
}

impl<P: Blocks> Cleaning<P> {
    /// As [`Store::waits_for_keys`](crate::store::Store::waits_for_keys).
    pub(in crate::store) fn waits_for_keys(&self, data: &Data) -> bool {
        let expired = &self.cleaner.expired;
        self.is_full_of_expired(data)
            && !expired.is_blocked
            && (self.cleaner.victim.is_some() || !expired.is_hopeless)
    }

    /// Whether the index has no room for a new key while keys stand in it that have expired. A
    /// choice goes by this, and not by what the choice before it has found.
    pub(super) fn is_full_of_expired(&self, data: &Data) -> bool {
        let all = data.keys.entries().len() as u64;
        !data.has_room_for_keys() && self.cleaner.expired.keys > all / 16
    }

    /// Counts what has expired. Returns the bytes that have expired since the last call.
    pub(super) fn count_expired(&mut self, store: &mut Cleaned<'_, P>, now_us: u64) -> u64 {
        let now_ms = store.data.time_ms();
        let commit_bytes = store.log.counters().commit_bytes;
        let before = self.cleaner.expired.bytes;
        let (mut bytes, mut keys, mut next_ms) = (0, 0, None::<u64>);
        let sealed = store.log.sealed_segments().iter().map(|it| it.file);
        let open = store.log.open_segment().map(|(file, _)| file);
        for file in sealed.chain(open) {
            let counts = store.data.live.counts(file, now_ms);
            let (tokens, more_ms) = store.data.live.gone_tokens(file, now_ms);
            bytes += counts.expired;
            keys += counts.expired_count.max(tokens);
            next_ms = next_ms
                .into_iter()
                .chain(counts.next_ms)
                .chain(more_ms)
                .min();
        }
        let all = store.data.keys.entries().len() as u64;
        let expired = &mut self.cleaner.expired;
        expired.observe(now_us, commit_bytes);
        (expired.bytes, expired.keys) = (bytes, keys);
        expired.are_many = keys >= KEYS_MIN && keys > all / 4;
        expired.due_us = next_ms.map(|next_ms| {
            let us = (next_ms - now_ms).saturating_mul(1_000);
            // The time of the store may be slower than the clock.
            now_us.saturating_add((us + us / 32).max(PICK_US))
        });
        bytes.saturating_sub(before)
    }

    /// Whether so many keys of a file have expired that cleaning the file for them pays.
    pub(super) fn hoards_expired_keys(&self, data: &Data, file: FileId) -> bool {
        let expired = &self.cleaner.expired;
        let counts = data.counts_in(file);
        // What is superseded beside tokens hides them from the account of what has expired.
        let (tokens, _) = data.live.gone_tokens(file, data.time_ms());
        if tokens >= KEYS_MIN && tokens * 4 >= counts.count {
            return true;
        }
        let share = match self.is_full_of_expired(data) {
            true => 16,
            false if expired.are_many => 4,
            false => return false,
        };
        counts.expired_count > 0 && counts.expired_count * share >= counts.count
    }

    /// Seals the open segment for what has expired in it, if it would not be full before long by
    /// itself. Whether that was done.
    pub(super) fn seal_expired(&mut self, store: &mut Cleaned<'_, P>, now_us: u64) -> bool {
        let Some((file, bytes)) = store.log.open_segment() else {
            return false;
        };
        let counts = store.data.counts_in(file);
        // On a full disk nothing fills it up, because what would is refused.
        let is_low = store.log.is_low();
        let is_spent = match is_low {
            true => counts.expired >= bytes / 8,
            false => counts.expired >= bytes / 4 && counts.next_ms.is_none(),
        };
        if !is_spent && !self.hoards_expired_keys(store.data, file) {
            return false;
        }
        let must_be = is_low || self.is_full_of_expired(store.data);
        let left = store.log.open_segment_bytes_left();
        let fills = self
            .cleaner
            .expired
            .sample
            .bytes_per_s
            .saturating_mul(FILLS_S)
            >= left;
        if fills && !must_be {
            self.cleaner.expired.pick_by(now_us + PICK_US);
            return false;
        }
        let is_oldest = store.log.sealed_segments().is_empty() && !self.cleaner.keeps_deletions;
        let kept = store.data.copies_bytes(file, is_oldest);
        // The last spares are for what makes room for certain.
        let has_spares = !store.log.lacks_spares();
        (has_spares || (must_be && kept <= store.log.sure_bytes_of_spare()))
            && store.log.seal_for_cleaning()
    }
}
