//! Picks the segment that is cleaned next, if one pays.

use crate::format::contents::SealedSegment;
use crate::log::log::Log;
use crate::log::supply::SPARES_READY;
use crate::planted::{Bug, is_planted};
use crate::store::cleaning::cleaner::{Move, Rate, Victim};
use crate::store::cleaning::cleaning::{Cleaned, Cleaning};
use crate::store::cleaning::credit::Earnings;
use crate::store::data::Data;
use crate::types::io::Blocks;

/// What a look at all segments comes to.
struct Choice {
    /// How fast to clean.
    rate: Rate,
    /// Whether releases are told at once, each with a list of all segments, so that their files are
    /// back before they are needed. A log of the most segments needs no file: a release makes them
    /// fewer before it is told. A list for each would leave no room for copies in short segments.
    must_tell: bool,
    /// The segment that pays most, and whether it is the oldest.
    picked: Option<(SealedSegment, bool)>,
}

/// What the sealed segments come to, in bytes.
#[derive(Default)]
struct Sums {
    /// What they take of the disk.
    total_bytes: u64,
    /// What counts in them.
    counting_bytes: u64,
    /// What counts of that until something older is gone.
    tombstone_bytes: u64,
    /// The longest one.
    segment_bytes: u64,
}

impl Sums {
    fn of(segments: &[SealedSegment], data: &Data) -> Self {
        let mut sums = Sums::default();
        for segment in segments {
            let live = data.counts_in(segment.file);
            sums.total_bytes += segment.file_bytes;
            sums.counting_bytes += live.parts + live.tombstones;
            // Where something older stands before it, a deletion takes the place of what has
            // expired.
            sums.tombstone_bytes += live.deletions;
            // Deletions that are kept stay wherever they stand.
            let kept_bytes = data.versions.copies(segment.file).deletion_bytes;
            sums.tombstone_bytes += live.tombstones.saturating_sub(kept_bytes);
            sums.segment_bytes = sums.segment_bytes.max(segment.file_bytes);
        }
        sums
    }
}

impl<P: Blocks> Cleaning<P> {
    /// Releases a segment in which nothing counts: what was in it need not be known, but for how
    /// far its records went. Whether that was done.
    fn release_unread(&mut self, store: &mut Cleaned<'_, P>, segment: &SealedSegment) -> bool {
        let (parts, tombstones) = (
            store.data.live.parts(segment.file),
            store.data.live.tombstones(segment.file),
        );
        // The index also points to expired parts. A segment with such parts is read, so that their
        // keys leave the index.
        let counts = parts > 0 || (tombstones > 0 && !is_planted(Bug::DropUnread));
        // A version that leaves takes an entry with it, and the time at which it left is told.
        if counts || !store.data.versions.is_empty() || store.data.keyspaces.keeps_versions() {
            return false;
        }
        let reached = &store.log.history().reached;
        let Some(&highest) = reached.of_segment(segment.end.last_lsn) else {
            return false;
        };
        store.log.release(segment.end.sequence, &highest);
        self.cleaner.counters.segments += 1;
        self.cleaner.counters.unread += 1;
        true
    }

    /// Picks the segment to clean next, if too much of the log does not count any more.
    pub(super) fn pick_next(&mut self, store: &mut Cleaned<'_, P>, now_us: u64) {
        let used = store.log.used_segments();
        let counts = used.map(|(file, _)| store.data.counts_in(file));
        let counting_bytes: u64 = counts.map(|it| it.parts + it.tombstones).sum();
        let counters = store.log.counters();
        let appended_bytes = counters.appended_bytes();
        let earnings = Earnings {
            commit_bytes: counters.commit_bytes,
            dead_bytes: appended_bytes.cast_signed() - counting_bytes.cast_signed(),
            expired_bytes: self.count_expired(store, now_us),
            used_bytes: store.log.used_bytes(),
        };
        self.cleaner.credit.earn(earnings);
        let Choice {
            rate,
            must_tell,
            picked,
        } = self.choose(store.data, store.log);
        self.cleaner.must_pick = false;
        self.cleaner.rate = rate;
        store.log.set_tight(must_tell);
        let durable_end = store.log.durable_end();
        let newest = store.log.sealed_segments().last();
        let is_settled = newest.is_none_or(|segment| {
            (segment.end.sequence, segment.end.end_offset)
                <= (durable_end.segment_sequence, durable_end.end_offset)
        });
        // With a spare that is still to come more can be copied than without.
        let awaits_spare = store.log.awaits_spare() || store.log.is_segment_returning();
        let is_final = is_settled && !awaits_spare;
        let may_seal = picked.is_none() && is_final;
        let is_sealed = may_seal && (self.seal_wasted(store) || self.seal_expired(store, now_us));
        self.cleaner.is_hopeless = picked.is_none() && is_final && !is_sealed;
        self.cleaner
            .expired
            .picked(now_us, (picked.is_some(), is_sealed), is_final);
        let must_make_room = store.log.is_low() || store.log.has_most_segments();
        let goes_before = picked.is_none() || !self.cleaner.was_inherited;
        if !must_make_room && goes_before && self.take_inherited(store.log) {
            if rate == Rate::Bytes(0) || rate == Rate::Unbounded {
                self.cleaner.rate = Rate::Bytes(self.cleaner.config.bytes_per_s);
            }
            return;
        }
        self.cleaner.was_inherited = false;
        if let Some((segment, is_oldest)) = picked {
            let cleaner = &mut self.cleaner;
            cleaner.credit.spend(segment.file_bytes);
            if self.release_unread(store, &segment) {
                self.cleaner.next_pick_us = now_us;
                self.cleaner.must_pick = true;
                return;
            }
            let home = store.log.home_of(&segment);
            self.cleaner.highest.fill(0);
            let mut victim = Victim::new(segment, home, is_oldest);
            victim.counting_bytes = store.data.counts_in(segment.file).parts;
            self.cleaner.victim = Some(victim);
        }
    }

    /// Goes on with the inherited segments, if there are any. Commits need not earn that: each is
    /// gone through once. They vanish all at once, so an older part of a deleted key never stays
    /// behind.
    fn take_inherited(&mut self, log: &mut Log<P>) -> bool {
        let Some((inherited, offset)) = self.inheritance.next() else {
            return false;
        };
        // A segment may have been left in the middle. The parts copied before would be copied
        // again, because the index does not point to their copies yet.
        let file = inherited.segment.file;
        let copied = |moved: &&Move| moved.from.file == file;
        if let Some(last) = self.cleaner.moves.iter().rfind(copied) {
            let lsn = last.lsn;
            log.want_durable(lsn);
            return false;
        }
        let mut victim = Victim::new(inherited.segment, inherited.home, true);
        victim.is_inherited = true;
        victim.offset = offset.max(victim.offset);
        self.cleaner.victim = Some(victim);
        self.cleaner.was_inherited = true;
        true
    }

    /// Seals the open segment for cleaning while the disk is full and no sealed segment can be
    /// cleaned. It pays where a quarter of the segment was written and does not count any more, as
    /// by a counter that changes again and again, and the segment is nearly full or nobody may
    /// fill it. A deletion or an edit that waits takes less. Sealing costs credit, as the cleaning
    /// behind it does. Returns whether the segment was sealed.
    fn seal_wasted(&mut self, store: &mut Cleaned<'_, P>) -> bool {
        let Some((file, bytes)) = store.log.open_segment().filter(|_| store.log.is_low()) else {
            return false;
        };
        let left = store.log.open_segment_bytes_left();
        let is_awaited = self.cleaner.lack.waits();
        let is_used_up = left < bytes / 8 || is_awaited || store.log.lacks_room();
        let gain_min = bytes / if is_awaited { 16 } else { 4 };
        let gain = bytes.saturating_sub(left + store.data.counts_in(file).parts);
        // Cleaning copies what still counts into the next spare, which may be a short one. Without
        // room for all of it there, the last spare would be used up and no segment released.
        let is_oldest = store.log.sealed_segments().is_empty() && !self.cleaner.keeps_deletions;
        let kept = store.data.copies_bytes(file, is_oldest);
        let fits = kept <= store.log.sure_bytes_of_spare();
        let pays = self.cleaner.credit.bytes() >= 2 * bytes && gain >= gain_min;
        let seals = is_used_up && pays && fits && store.log.seal_for_cleaning();
        if seals {
            self.cleaner.credit.spend(bytes);
        }
        seals
    }

    /// How fast to clean, and which segment, if there is one that pays.
    fn choose(&self, data: &Data, log: &Log<P>) -> Choice {
        let durable_end = log.durable_end();
        let durable_end = (durable_end.segment_sequence, durable_end.end_offset);
        let is_low = log.is_low();
        let segments = log.sealed_segments();
        let credit = self.cleaner.credit.bytes();
        if segments.is_empty() {
            return Choice {
                rate: Rate::Bytes(0),
                must_tell: false,
                picked: None,
            };
        }
        let Sums {
            total_bytes,
            counting_bytes,
            tombstone_bytes,
            segment_bytes,
        } = Sums::of(segments, data);
        let config = self.cleaner.config;
        let wanted_bytes = counting_bytes * u64::from(config.space_percent_max) / 100;
        let bound_bytes = self.sealed_bytes_max(log, segment_bytes);
        // Many starts leave many short segments.
        let are_many = segments.len() > log.segments_max() / 2;
        let lacks_files = is_low || total_bytes >= bound_bytes;
        let is_tight = lacks_files || log.has_most_segments();
        // Some segments of slack: a short log is not worth cleaning.
        let is_wasteful = total_bytes > wanted_bytes + 2 * segment_bytes;
        let is_index_full = self.is_full_of_expired(data);
        let rate = if is_tight || is_index_full {
            Rate::Unbounded
        } else {
            let excess = total_bytes.saturating_sub(wanted_bytes + 2 * segment_bytes);
            let percent = excess * 100 / wanted_bytes.max(segment_bytes).max(1);
            Rate::Bytes(config.bytes_per_s * (1 + percent.min(100)))
        };
        let must_tell = lacks_files || is_index_full;
        let choice = |picked| Choice {
            rate,
            must_tell,
            picked,
        };
        let is_short = is_wasteful || is_tight || are_many;
        if !is_short && self.cleaner.expired.is_none() {
            return choice(None);
        }
        let held_from = match is_tight || is_index_full {
            true => segments.len(),
            false => self.held_from(segments),
        };
        // What can be copied for sure before the victim's own release gives a segment back.
        let sure_bytes = match log.lacks_spares() {
            true => log.sure_bytes(),
            false => u64::MAX,
        };
        let may_be_oldest = !self.has_older() && !self.cleaner.keeps_deletions;
        let of_marks = data.files_of_marks();
        let mut best: Option<(u128, usize)> = None;
        for (at, segment) in segments[..held_from].iter().enumerate() {
            let end = (segment.end.sequence, segment.end.end_offset);
            if end > durable_end || self.cleaner.avoided.contains(&segment.end.sequence) {
                continue;
            }
            let is_oldest = at == 0 && may_be_oldest;
            if !is_oldest && of_marks.contains(&segment.file) {
                continue;
            }
            let hoards_keys = self.hoards_expired_keys(data, segment.file);
            let kept = data.copies_bytes(segment.file, is_oldest);
            let gain = segment.file_bytes.saturating_sub(kept);
            // Expired keys are taken out once, so no credit is needed for an end.
            if segment.file_bytes > credit && !hoards_keys {
                continue;
            }
            let is_crowded = is_oldest && tombstone_bytes > total_bytes / 8 && !is_low;
            if kept > sure_bytes {
                continue;
            }
            let gain_min = segment.file_bytes / if is_tight { 16 } else { 8 };
            if !is_short && !hoards_keys && !data.is_spent(segment, gain) {
                continue;
            }
            if gain < gain_min.max(1) && !is_crowded && !are_many && !hoards_keys {
                continue;
            }
            let cost = u128::from(segment.file_bytes + kept + 1);
            let score = match is_crowded {
                true => u128::MAX,
                false if is_index_full && !is_tight => {
                    let keys = data.counts_in(segment.file).expired_count;
                    (u128::from(keys) << 32) / cost
                }
                false => (u128::from(gain) << 32) / cost,
            };
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, at));
            }
        }
        choice(best.map(|(_, at)| (segments[at], at == 0 && may_be_oldest)))
    }

    /// Bytes of sealed segments with which no more file can be made beside the open segment and the
    /// spares: only whole ones are, and a short one for each shard is left out.
    fn sealed_bytes_max(&self, log: &Log<P>, segment_bytes: u64) -> u64 {
        let short_bytes = log.config().segment_bytes_min();
        match self.cleaner.config.log_bytes_max {
            0 => u64::MAX,
            most => {
                let files = most.saturating_sub(short_bytes) / segment_bytes.max(1);
                files.saturating_sub(1 + SPARES_READY as u64) * segment_bytes
            }
        }
    }

    /// From which segment on all are kept for others.
    fn held_from(&self, segments: &[SealedSegment]) -> usize {
        let Some(backlog) = self.cleaner.backlog else {
            return segments.len();
        };
        let mut bytes = 0;
        let is_held = |segment: &&SealedSegment| {
            bytes += segment.file_bytes;
            segment.end.last_lsn > backlog.behind && bytes <= backlog.bytes_max
        };
        segments.len() - segments.iter().rev().take_while(is_held).count()
    }

    /// Whether inherited parts stand before the first segment.
    fn has_older(&self) -> bool {
        self.inheritance.is_there() && !is_planted(Bug::OwnTombstoneDropped)
    }
}
