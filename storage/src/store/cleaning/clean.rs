//! Making room: the few parts of a segment that still count are appended again, and the segment is
//! released.
//!
//! The life of a segment that is cleaned: it is picked by what it gives back for what it costs
//! (Rosenblum and Ousterhout, "The design and implementation of a log-structured file system",
//! 1991). It is read in chunks, past the cache. [`Data::liveness`] judges each part. A part that
//! still counts is copied into the open frame beside the commits, with the version that it has.
//! When a copy is durable the index points to it. When all parts have been judged the segment is
//! released: a contents frame of the log says so, and becomes durable only after everything before
//! it, copies and newer values alike. Then nothing can bring the file back, and it is removed. A
//! segment in which nothing counts, as a hot key leaves them behind, is released without a read.
//!
//! What must hold:
//! - for each key, the order of the parts in the log is the order of their versions, but for copies
//!   of a deletion: only the newest part of a key is ever copied, so a copy stands behind all older
//!   parts. So a deletion must stay as long as a segment stands before it, and no longer;
//! - the index points to a copy only when it is durable, because a cold key is read from there;
//! - a segment is judged only when it is sealed and durable to its end.
//!
//! Copies share the chain of the commits: a chain of their own would need a rule by which two logs
//! agree on an order, and it would spare nothing where all keys are equally hot.

use crate::log::log::Log;
use crate::store::cleaning::cleaner::{
    Backlog, Chunk, CleaningConfig, CleaningCounters, Damaged, INHERITED_PICK_US, PICK_US, Rate,
    RoomOnDisk,
};
use crate::store::cleaning::cleaning::{Cleaned, Cleaning};
use crate::store::cleaning::expiring::TICK_MS;
use crate::store::cleaning::pace::{Fill, Headroom, Occupancy, PaceCounters};
use crate::store::cleaning::sizing::DiskShare;
use crate::store::data::Data;
use crate::types::io::{Blocks, Io};
use crate::types::place::{FileId, Lsn};

impl<P: Blocks> Cleaning<P> {
    /// Sets when and how fast to clean.
    pub fn configure(&mut self, config: CleaningConfig) {
        assert!(config.space_percent_max > 100 && config.bytes_per_s >= 4096);
        self.cleaner.config = config;
    }

    /// As [`Store::set_room`](crate::store::Store::set_room).
    pub(in crate::store) fn set_room(&mut self, log: &mut Log<P>, room: RoomOnDisk) {
        if self.cleaner.room.replace(room) != Some(room) {
            self.cleaner.fullness.forget_slack();
        }
        // What is inherited may be counted as room that others give back.
        let inherited = self.inheritance.segments();
        let inherited_bytes: u64 = inherited.map(|(_, it)| it.file_bytes).sum();
        let sure = RoomOnDisk {
            log_bytes: room.log_bytes.saturating_sub(inherited_bytes),
            ..room
        };
        let segments_left = sure.more_bytes(log) / room.segment_bytes.max(1);
        log.set_segments_left(segments_left);
    }

    /// Whether from the next segment on no deletion is dropped because nothing older is in the log
    /// any more: somebody who reads the log from its begin to its end may have read that before it
    /// was released.
    pub fn keep_deletions(&mut self, keeps: bool) {
        if self.cleaner.keeps_deletions != keeps {
            self.cleaner.keeps_deletions = keeps;
            self.cleaner.must_pick = true;
        }
    }

    /// Whether deletions are being dropped out of the oldest segment. Who begins to read now may
    /// read what they hide, and never get to them.
    #[must_use]
    pub fn is_dropping_deletions(&self) -> bool {
        // Inherited segments vanish all at once.
        let victim = self.cleaner.victim.as_ref();
        victim.is_some_and(|victim| victim.is_oldest && !victim.is_inherited)
    }

    /// From now on cleaning leaves this to those who lack it, while there is room on the disk.
    pub fn hold_back(&mut self, backlog: Option<Backlog>) {
        if self.cleaner.backlog != backlog {
            self.cleaner.backlog = backlog;
            self.cleaner.must_pick = true;
        }
    }

    /// What cleaning did.
    #[must_use]
    pub fn counters(&self) -> CleaningCounters {
        self.cleaner.counters
    }

    /// The next segment that was found damaged and not told yet.
    pub fn take_damaged(&mut self) -> Option<Damaged> {
        self.cleaner.damaged.pop()
    }

    /// The last record before the first copy to which the index does not point yet, with the log
    /// durable up to `durable`: what an index that is written down now needs at most replayed.
    #[must_use]
    pub(crate) fn covered(&self, durable: Lsn) -> Lsn {
        match self.cleaner.moves.front() {
            Some(first) => durable.min(Lsn(first.lsn.0 - 1)),
            None => durable,
        }
    }

    /// When [`Store::clean`](crate::store::Store::clean) is to be called at the latest, if nothing
    /// else happens.
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        let cleaner = &self.cleaner;
        let next_us = match &cleaner.victim {
            Some(victim) if !matches!(victim.chunk, Chunk::Reading(_)) => match cleaner.rate {
                Rate::Bytes(rate) if cleaner.budget_bytes < 0 && !cleaner.holds_block() => {
                    let missing = cleaner.budget_bytes.unsigned_abs();
                    Some(cleaner.budget_us + missing * 1_000_000 / rate.max(1) + 100)
                }
                _ => Some((cleaner.budget_us + 500).max(victim.resume_us)),
            },
            Some(_) => None,
            None => {
                let must_pick = cleaner.must_pick || cleaner.lack.waits();
                let pick_us = must_pick.then_some(cleaner.next_pick_us);
                let inherited_us = self.inheritance.next().map(|_| cleaner.inherited_pick_us);
                let due_us = cleaner.expired.due_us();
                let expired_us = due_us.map(|us| us.max(cleaner.next_pick_us));
                let picks_us = [pick_us, inherited_us, expired_us];
                picks_us.into_iter().flatten().min()
            }
        };
        let paced_us = cleaner.pace.deadline_us();
        let judged_us = cleaner.fullness.deadline_us();
        let lack_us = cleaner.lack.deadline_us();
        let all_us = [next_us, paced_us, judged_us, lack_us];
        all_us.into_iter().flatten().min()
    }

    /// Whether it is time to ask once more if there is room to rewrite what is inherited.
    fn is_inherited_due(&self, now_us: u64) -> bool {
        self.inheritance.next().is_some() && now_us >= self.cleaner.inherited_pick_us
    }

    /// As [`Store::take_removable`](crate::store::Store::take_removable).
    pub(in crate::store) fn take_removable(
        &mut self,
        store: &mut Cleaned<'_, P>,
    ) -> Option<FileId> {
        self.apply_moves(store.data, store.log.durable());
        let file = store.log.take_removable()?;
        let parts_bytes = store.data.live.parts(file);
        assert!(
            parts_bytes == 0,
            "the index points to {parts_bytes} bytes of {:08}.seg, which is released",
            file.0
        );
        store.data.live.forget(file);
        Some(file)
    }

    /// As [`Store::stop_cleaning`](crate::store::Store::stop_cleaning).
    pub(in crate::store) fn stop(&mut self, log: &mut Log<P>) -> bool {
        let held_block = self.cleaner.holds_block();
        self.cleaner.victim = None;
        log.expect_relief(false);
        held_block
    }

    /// As [`Store::clean`](crate::store::Store::clean).
    pub(in crate::store) fn clean(
        &mut self,
        store: &mut Cleaned<'_, P>,
        now_us: u64,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<P::Block>>,
    ) -> bool {
        let held_block = self.cleaner.holds_block();
        self.apply_moves(store.data, store.log.durable());
        self.cleaner.refill(now_us);
        let is_low = store.log.is_low() || store.log.has_most_segments();
        if is_low {
            self.give_way();
        }
        let turns_edits_away = self.cleaner.judge_edits(now_us, &mut store.log);
        if self.waits_for_keys(store.data) {
            self.cleaner.rate = Rate::Unbounded;
        }
        if self.cleaner.victim.is_none()
            && (self.cleaner.must_pick
                || is_low
                || self.cleaner.lack.waits()
                || self.is_inherited_due(now_us)
                || self.cleaner.expired.is_due(now_us))
            && now_us >= self.cleaner.next_pick_us
        {
            self.cleaner.next_pick_us = now_us + if is_low { PICK_US / 10 } else { PICK_US };
            self.pick_next(store, now_us);
            self.cleaner.inherited_pick_us = now_us + INHERITED_PICK_US;
        }
        // What was read is judged at once: the memory that it takes may be all that a cold read or
        // the scrub would find. The next read waits until the budget is back.
        if (self.cleaner.budget_bytes >= 0 || self.cleaner.holds_block())
            && let Some(mut victim) = self.cleaner.victim.take()
        {
            if self.step(store, now_us, &mut victim, hash_of, io) {
                self.cleaner.victim = Some(victim);
            } else {
                self.cleaner.next_pick_us = now_us;
                self.cleaner.must_pick = true;
                // What the last choice found is long ago.
                self.cleaner.is_hopeless = false;
            }
        }
        let cleaner = &self.cleaner;
        let is_busy = cleaner.victim.is_some() || !cleaner.moves.is_empty();
        // Without a place for its copies it gives nothing back, until a segment can be had again.
        let is_blocked = store.log.lacks_any_spare()
            && cleaner.moves.is_empty()
            && cleaner
                .victim
                .as_ref()
                .is_some_and(|victim| victim.is_memory_short || victim.blocked_since_us.is_some());
        let relief_comes = (is_busy || !cleaner.is_hopeless) && !is_blocked;
        self.cleaner.expired.is_blocked = is_blocked;
        store.log.expect_relief(relief_comes);
        let goes_on = self.pace_writes(store, now_us) || turns_edits_away;
        goes_on || (held_block && !self.cleaner.holds_block())
    }

    /// Judges whether what grows is refused, and how fast writes may go. Whether writes that waited
    /// may go on.
    fn pace_writes(&mut self, store: &mut Cleaned<'_, P>, now_us: u64) -> bool {
        let is_low = store.log.is_low();
        let was_full = self.cleaner.fullness.is_full();
        // A log that was stuck and is low no more is judged once more, or its deadline would stay
        // for ever.
        let is_pressed = is_low || was_full || self.cleaner.fullness.deadline_us().is_some();
        let segments = store.log.sealed_segments().len();
        let is_wanted = is_pressed && store.log.wants_judgement();
        let appended_bytes = store.log.counters().appended_bytes();
        let fullness = &self.cleaner.fullness;
        if is_wanted || fullness.is_due(now_us, segments, appended_bytes, is_pressed) {
            let is_stuck = store.log.take_stuck();
            let occupancy = Occupancy {
                is_stuck,
                ..self.occupancy(store.data, store.log)
            };
            self.cleaner.fullness.judge(now_us, &occupancy);
            let is_full = self.cleaner.fullness.is_full();
            store.log.set_full(is_full);
        }
        let is_paced = is_low && store.log.is_room_coming();
        let headroom = is_paced.then(|| self.headroom(store.log));
        let goes_on = self.cleaner.pace.turn(now_us, headroom);
        goes_on || was_full != self.cleaner.fullness.is_full()
    }

    /// The bytes that are left until a segment comes back, and those that copies may need.
    fn headroom(&self, log: &Log<P>) -> Headroom {
        let log = log;
        let claimed_bytes = match &self.cleaner.victim {
            Some(victim) => {
                victim.segment.file_bytes - victim.offset.min(victim.segment.file_bytes)
            }
            // A released segment is as good as free.
            None if log.is_releasing() || log.is_segment_returning() => 0,
            None => log.longest_segment_bytes(),
        };
        Headroom {
            bytes: log.headroom_bytes(),
            // Frames of copies are not filled to the last byte, and a release takes a while.
            claimed_bytes: claimed_bytes + claimed_bytes / 8,
        }
    }

    /// What the log has and what of that counts. What counts in a segment has to have room in a
    /// spare when it is cleaned, and a spare is no more than one segment. So of each segment counts
    /// as much as a spare can have, and of each spare as much as a segment in use.
    fn occupancy(&self, data: &Data, log: &Log<P>) -> Occupancy {
        let log = log;
        let room = self.cleaner.room.filter(|_| !self.inheritance.is_there());
        let more_bytes = room.map(|room| room.more_bytes(log));
        let (mut counting_bytes, mut leaving_bytes) = (0, 0);
        let mut longest_bytes = 0;
        let soon_ms = data.time_ms() + TICK_MS;
        for (file, bytes) in log.used_segments() {
            let live = data.counts_in(file);
            counting_bytes += live.parts + live.tombstones;
            leaving_bytes += live.parts - data.live.counts(file, soon_ms).parts;
            longest_bytes = longest_bytes.max(bytes);
        }
        let room = room.filter(|_| more_bytes.is_some_and(|more| more > 0));
        let segment_bytes = match (room, log.longest_spare_bytes()) {
            (Some(room), _) => longest_bytes.max(room.segment_bytes),
            (None, Some(spare_bytes)) if longest_bytes > 0 => longest_bytes.min(spare_bytes),
            (None, spare_bytes) => longest_bytes.max(spare_bytes.unwrap_or(0)),
        };
        Occupancy {
            counting_bytes,
            leaving_bytes,
            held_bytes: log.held_bytes_within(segment_bytes),
            more_bytes,
            appended_bytes: log.counters().appended_bytes(),
            segment_bytes,
            space_percent_max: self.cleaner.config.space_percent_max,
            is_low: log.is_low(),
            relief_comes: log.is_room_coming(),
            has_headroom: log.has_spares() && log.headroom_bytes() >= segment_bytes / 8,
            is_stuck: false,
        }
    }

    /// Whether writes of clients are to wait while cleaning makes room; deletions never are.
    #[inline]
    #[must_use]
    pub fn holds_writes(&self) -> bool {
        self.cleaner.pace.holds()
    }

    /// A write waits until [`Cleaning::holds_writes`] is over; a step of cleaning tells when.
    pub fn write_waits(&mut self) {
        self.cleaner.pace.waits();
    }

    /// Bytes of records that counted when that was judged last.
    #[must_use]
    pub fn counting_bytes(&self) -> u64 {
        self.cleaner.fullness.counting_bytes()
    }

    /// As [`Store::fill`](crate::store::Store::fill).
    pub(in crate::store) fn fill(&self, data: &Data, log: &Log<P>, log_bytes: u64) -> Fill {
        // Short segments of a young log leave before the disk is full.
        let usual_bytes = log.usual_segment_bytes();
        let occupancy = Occupancy {
            segment_bytes: usual_bytes,
            ..self.occupancy(data, log)
        };
        let room = RoomOnDisk {
            log_bytes,
            segment_bytes: usual_bytes,
        };
        let more_bytes = room.more_bytes(log);
        let most_bytes = occupancy.held_bytes + more_bytes;
        Fill {
            counting_bytes: occupancy.counting_bytes,
            counting_bytes_max: occupancy.counting_bytes_max(most_bytes),
        }
    }

    /// Its share of the disk; nothing without a limit.
    #[must_use]
    pub fn disk_share(&self, log: &Log<P>) -> Option<DiskShare> {
        let config = self.cleaner.config;
        (config.log_bytes_max > 0).then_some(DiskShare {
            log_bytes_max: config.log_bytes_max,
            segment_bytes: log.longest_segment_bytes(),
            space_percent_max: config.space_percent_max,
        })
    }

    /// How often and how long writes waited for cleaning.
    #[must_use]
    pub fn pace_counters(&self) -> PaceCounters {
        self.cleaner.pace.counters()
    }
}
