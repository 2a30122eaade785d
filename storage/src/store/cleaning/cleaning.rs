//! Making room: what still counts in a segment of which little does is appended again, and the
//! segment is released.
//!
//! The life of a segment that is cleaned: it is picked by what it gives back for what it costs
//! (Rosenblum and Ousterhout, "The design and implementation of a log-structured file system",
//! 1991); read in chunks, past the cache; each part is judged by [`Store::fate`] and, if it still
//! counts, copied into the open frame beside the commits, with the version that it has. When a copy
//! is durable the index points to it. When all of the segment has been judged it is released: the
//! log tells so in a contents frame, which is durable only when everything before it is, copies and
//! newer values alike. Then nothing can bring the file back, and it is removed. A segment in which
//! nothing counts, as a hot key leaves them behind, is released without being read.
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

use std::collections::VecDeque;

use crate::format::contents::SealedSegment;
use crate::format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameHome, FrameKind};
use crate::format::record::{PartKind, PartView, SUCCESSOR_BYTES, part_bytes};
use crate::format::system_key::is_local;
use crate::format::system_key::is_system;
use crate::log::log::{Moved, Purpose, Room, SPARES_READY};
use crate::memory::index::{Candidate, Home};
use crate::planted::{Bug, is_planted};
use crate::store::cleaning::expiring::Expires;
use crate::store::cleaning::pace::{Fullness, Headroom, Occupancy, Pace, PaceCounters};
use crate::store::cleaning::sizing::DiskShare;
use crate::store::store::{Store, part_expires};
use crate::store::versions::KeyId;
use crate::types::io::{BLOCK_BYTES, Block, Blocks, Completion, Io, IoToken};
use crate::types::packed_place::PackedPlace;
use crate::types::place::FileId;
use crate::types::place::{Lsn, Place};
use crate::types::version::{PARTITIONS, Sequences, Version, partition_of};

use crate::store::cleaning::expired::Expired;

/// Tokens of reads for cleaning have this bit; those of other reads and of the log do not.
pub const CLEAN_TOKEN_BIT: u64 = 1 << 61;

/// When and how fast a shard cleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleaningConfig {
    /// Cleaning keeps the bytes of all segments under this share of the bytes that count, in
    /// percent, more than 100. Lower costs more copies: about 1.7 bytes are written for each byte
    /// that is overwritten evenly at 150, 2.2 at 130.
    pub space_percent_max: u32,
    /// Bytes read and copied in a second while there is little to do, at least 4096. The rate rises
    /// with every percent above the target, and is without bound when the disk is full.
    pub bytes_per_s: u64,
    /// Bytes of segments that the log may take; 0 for what the disk has. Near it, cleaning hurries.
    pub log_bytes_max: u64,
}

impl Default for CleaningConfig {
    fn default() -> Self {
        CleaningConfig {
            space_percent_max: 140,
            bytes_per_s: 32 << 20,
            log_bytes_max: 0,
        }
    }
}

/// What cleaning did since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleaningCounters {
    /// Segments that were released, or judged to their end for good.
    pub segments: u64,
    /// Those of them in which nothing counted, so that they were not read.
    pub unread: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes of those.
    pub read_bytes: u64,
    /// Deletions that were left out because nothing older than them was there any more.
    pub tombstones_dropped: u64,
    /// Values that had expired and were left out.
    pub expired_dropped: u64,
    /// Segments that cannot be cleaned because something in them cannot be read or does not check.
    pub damaged: u64,
}

/// A segment that cleaning found damaged. It is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Its file.
    pub file: FileId,
    /// Where the frame stands that does not check or cannot be read.
    pub offset: u64,
}

/// What of the log is kept for those who lack it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Somebody lacks records behind this one.
    pub behind: Lsn,
    /// Bytes of segments that are kept for that, at most: the newest.
    pub bytes_max: u64,
}

/// The cleaner of one store.
#[derive(Debug)]
pub(crate) struct Cleaner<B> {
    config: CleaningConfig,
    pub(super) victim: Option<Victim<B>>,
    /// How far the records of each partition in it go, as far as it was judged; copies left out.
    highest: Box<Sequences>,
    /// Copies that are not durable yet, in log order.
    moves: VecDeque<Move>,
    /// Sequences of segments that are damaged.
    avoided: Vec<u64>,
    damaged: Vec<Damaged>,
    /// Bytes that may be read and copied now; below zero after a step that took more.
    budget_bytes: i64,
    budget_us: u64,
    /// Bytes in a second, by how far the target is missed.
    rate: Rate,
    next_look_us: u64,
    /// Bytes of segments that may still be cleaned. Commits earn them: without commits cleaning comes
    /// to an end, however much the frames of its copies are padded.
    credit_bytes: u64,
    /// Commit bytes for which credit was given.
    credited_bytes: u64,
    /// What is kept for others.
    pub(crate) backlog: Option<Backlog>,
    /// [`Store::keep_deletions`].
    pub(crate) keeps_deletions: bool,
    has_looked: bool,
    /// The last look found nothing that could be cleaned.
    is_hopeless: bool,
    /// The last victim was an inherited segment: an own one goes first.
    was_inherited: bool,
    inherited_look_us: u64,
    /// Something changed since the last look.
    pub(crate) must_look: bool,
    /// What the last look found that has expired.
    pub(super) expired: Expired,
    tokens: u64,
    counters: CleaningCounters,
    /// How fast writes may go.
    pub(crate) pace: Pace,
    fullness: Fullness,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rate {
    Bytes(u64),
    Unbounded,
}

#[derive(Debug)]
pub(crate) struct Victim<B> {
    segment: SealedSegment,
    home: FrameHome,
    /// It is one of a log that this one continues, and leaves with it.
    is_inherited: bool,
    /// No segment stood before it when it was picked, and none comes; nor may somebody have got what stood there once
    /// who still waits for what came behind it.
    is_oldest: bool,
    /// Bytes of parts in it that count when it was picked, at most, and how many of them are copied.
    counting_bytes: u64,
    copied_bytes: u64,
    /// The frame that is judged next, and how far its body is judged.
    pub(crate) offset: u64,
    judged_bytes: usize,
    /// Since when the log has had no room for the next copy.
    blocked_since_us: Option<u64>,
    /// Nothing is read before.
    resume_us: u64,
    /// The log had no room while a chunk was held.
    is_memory_short: bool,
    /// The frame whose body was checked as it stands in the chunk.
    intact_offset: Option<u64>,
    /// The last read failed.
    has_failed: bool,
    /// Bytes of the last read.
    chunk_bytes: usize,
    chunk: Chunk<B>,
}

#[derive(Debug)]
enum Chunk<B> {
    /// Must be read; the next frame is so long.
    Missing(usize),
    Reading(u64),
    Read {
        start: u64,
        bytes: usize,
        block: B,
    },
}

#[derive(Clone, Copy, Debug)]
struct Move {
    lsn: Lsn,
    slot: u16,
    hash: u32,
    sequence: u64,
    /// Of its entries among the kept versions.
    id: KeyId,
    was: PartKind,
    kind: PartKind,
    /// It names its successor.
    is_marked: bool,
    expires: Option<Expires>,
    from: Place,
    to: Place,
}

/// What becomes of a part when its segment is cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing needs it.
    Dead,
    /// It has expired and nothing older is there: the index is to forget it.
    Expired,
    /// It must be there again, as this.
    Copied(PartKind),
    /// It is superseded by this version and kept.
    Kept(Version),
    /// It is a deletion, the newest version of its key, and kept.
    KeptDeletion,
}

/// Bytes read at a time: what fits in a standard frame block.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes copied in one turn of the loop, at most: what a commit that shares the frame waits for.
const STEP_BYTES: usize = 64 << 10;
/// Parts judged in one turn, at most.
const STEP_PARTS: usize = 2048;
/// How long a chunk in memory waits for room in the log, and then the next read, in microseconds.
const BLOCKED_US_MAX: u64 = 10_000;
/// Between two looks at all segments, in microseconds.
const LOOK_US: u64 = 10_000;
/// As long between two looks whether there is room to rewrite what is inherited, in microseconds.
const INHERITED_LOOK_US: u64 = 100_000;
/// Bytes of segments that one byte of commits lets cleaning go through, at most. A segment that is
/// nine tenths full of what counts takes ten of its kind to give back one.
const CREDIT_FACTOR: u64 = 10;
/// What may be saved up for one burst, in bytes.
const BURST_BYTES: i64 = 1 << 20;

impl<B> Victim<B> {
    fn new(segment: SealedSegment, home: FrameHome, is_oldest: bool) -> Self {
        Victim {
            segment,
            home,
            is_inherited: false,
            is_oldest,
            counting_bytes: u64::MAX,
            copied_bytes: 0,
            offset: BLOCK_BYTES as u64,
            judged_bytes: 0,
            blocked_since_us: None,
            resume_us: 0,
            is_memory_short: false,
            intact_offset: None,
            has_failed: false,
            chunk_bytes: 0,
            chunk: Chunk::Missing(0),
        }
    }

    pub(crate) fn end_offset(&self) -> u64 {
        self.segment.end.end_offset
    }
}

impl<B> Cleaner<B> {
    /// The last copy that is not known to be durable.
    pub(crate) fn last_move(&self) -> Option<Lsn> {
        self.moves.back().map(|moved| moved.lsn)
    }

    /// See [`Store::is_dropping_deletions`]. Inherited segments vanish all at once.
    pub(crate) fn is_dropping_deletions(&self) -> bool {
        let victim = self.victim.as_ref();
        victim.is_some_and(|victim| victim.is_oldest && !victim.is_inherited)
    }

    pub(crate) fn new() -> Self {
        Cleaner {
            config: CleaningConfig::default(),
            victim: None,
            highest: Box::new([0; PARTITIONS]),
            moves: VecDeque::new(),
            avoided: Vec::new(),
            damaged: Vec::new(),
            budget_bytes: 0,
            budget_us: 0,
            rate: Rate::Bytes(0),
            next_look_us: 0,
            credit_bytes: 0,
            credited_bytes: 0,
            backlog: None,
            keeps_deletions: false,
            has_looked: false,
            is_hopeless: false,
            was_inherited: false,
            inherited_look_us: 0,
            must_look: true,
            expired: Expired::default(),
            tokens: 0,
            counters: CleaningCounters::default(),
            pace: Pace::default(),
            fullness: Fullness::default(),
        }
    }

    fn holds_block(&self) -> bool {
        let chunk = self.victim.as_ref().map(|victim| &victim.chunk);
        matches!(chunk, Some(Chunk::Read { .. }))
    }

    fn refill(&mut self, now_us: u64) {
        let passed_us = now_us.saturating_sub(self.budget_us).min(1_000_000);
        self.budget_us = now_us;
        self.budget_bytes = match self.rate {
            Rate::Unbounded => BURST_BYTES,
            Rate::Bytes(rate) => {
                let more = i64::try_from(rate.min(1 << 40) * passed_us / 1_000_000)
                    .expect("at most 2^40 bytes");
                (self.budget_bytes + more).min(BURST_BYTES)
            }
        };
    }
}

impl<P: Blocks> Store<P> {
    /// Sets when and how fast to clean.
    pub fn set_cleaning(&mut self, config: CleaningConfig) {
        assert!(config.space_percent_max > 100 && config.bytes_per_s >= 4096);
        self.cleaner.config = config;
    }

    /// What cleaning did.
    #[must_use]
    pub fn cleaning_counters(&self) -> CleaningCounters {
        self.cleaner.counters
    }

    /// The next segment that was found damaged and not told yet.
    pub fn take_damaged(&mut self) -> Option<Damaged> {
        self.cleaner.damaged.pop()
    }

    /// The last record before the first copy to which the index does not point yet: what an index
    /// that is written down now needs at most replayed.
    #[must_use]
    pub fn covered(&self) -> Lsn {
        let durable = self.log().durable();
        match self.cleaner.moves.front() {
            Some(first) => durable.min(Lsn(first.lsn.0 - 1)),
            None => durable,
        }
    }

    /// When [`Store::clean`] is to be called at the latest, if nothing else happens.
    #[must_use]
    pub fn cleaning_deadline_us(&self) -> Option<u64> {
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
                let look_us = cleaner.must_look.then_some(cleaner.next_look_us);
                let inherited_us = self.inheritance.next().map(|_| cleaner.inherited_look_us);
                let due_us = cleaner.expired.due_us();
                let expired_us = due_us.map(|us| us.max(cleaner.next_look_us));
                let looks_us = [look_us, inherited_us, expired_us];
                looks_us.into_iter().flatten().min()
            }
        };
        let paced_us = cleaner.pace.deadline_us();
        let judged_us = cleaner.fullness.deadline_us();
        [next_us, paced_us, judged_us].into_iter().flatten().min()
    }

    /// Whether it is time to look once more if there is room to rewrite what is inherited.
    fn is_inherited_due(&self, now_us: u64) -> bool {
        self.inheritance.next().is_some() && now_us >= self.cleaner.inherited_look_us
    }

    /// The next file that may be removed, because the log tells durably that it is released.
    pub fn take_removable(&mut self) -> Option<FileId> {
        self.apply_moves();
        let file = self.log_mut().take_removable()?;
        let parts_bytes = self.live.parts(file);
        assert!(
            parts_bytes == 0,
            "the index points to {parts_bytes} bytes of {:08}.seg, which is released",
            file.0
        );
        self.live.forget(file);
        Some(file)
    }

    /// Cleans no more: the segment under way stays as it is. Whether that gave memory back.
    pub fn stop_cleaning(&mut self) -> bool {
        let held_block = self.cleaner.holds_block();
        self.cleaner.victim = None;
        self.log_mut().expect_relief(false);
        held_block
    }

    /// One bounded step, once in each turn between two changes. `hash_of` is the shard's key hash.
    /// Whether it gave back memory that the log or a read may wait for.
    pub fn clean(
        &mut self,
        now_us: u64,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<P::Block>>,
    ) -> bool {
        let held_block = self.cleaner.holds_block();
        self.apply_moves();
        self.cleaner.refill(now_us);
        let is_low = self.log().is_low() || self.log().has_most_segments();
        if is_low {
            self.give_way();
        }
        if self.waits_for_keys() {
            self.cleaner.rate = Rate::Unbounded;
        }
        if self.cleaner.victim.is_none()
            && (self.cleaner.must_look
                || is_low
                || self.is_inherited_due(now_us)
                || self.cleaner.expired.is_due(now_us))
            && now_us >= self.cleaner.next_look_us
        {
            self.cleaner.next_look_us = now_us + if is_low { LOOK_US / 10 } else { LOOK_US };
            self.look(now_us);
            self.cleaner.inherited_look_us = now_us + INHERITED_LOOK_US;
        }
        // What was read is judged at once: the memory that it takes may be all that a cold read or the scrub
        // would find. The next read waits until the budget is back.
        if (self.cleaner.budget_bytes >= 0 || self.cleaner.holds_block())
            && let Some(mut victim) = self.cleaner.victim.take()
        {
            if self.step(now_us, &mut victim, hash_of, io) {
                self.cleaner.victim = Some(victim);
            } else {
                self.cleaner.next_look_us = now_us;
                self.cleaner.must_look = true;
                // What the last look found is long ago.
                self.cleaner.is_hopeless = false;
            }
        }
        let cleaner = &self.cleaner;
        let is_busy = cleaner.victim.is_some() || !cleaner.moves.is_empty();
        // Without a place for its copies it gives nothing back, until a segment can be had again.
        let is_blocked = self.log().is_starved()
            && cleaner.moves.is_empty()
            && cleaner
                .victim
                .as_ref()
                .is_some_and(|victim| victim.is_memory_short || victim.blocked_since_us.is_some());
        let relief_comes = (is_busy || !cleaner.is_hopeless) && !is_blocked;
        self.cleaner.expired.is_blocked = is_blocked;
        self.log_mut().expect_relief(relief_comes);
        let goes_on = self.pace_writes(now_us);
        goes_on || (held_block && !self.cleaner.holds_block())
    }

    /// Judges whether what grows is refused, and how fast writes may go. Whether writes that waited may go on.
    fn pace_writes(&mut self, now_us: u64) -> bool {
        let is_low = self.log().is_low();
        let was_full = self.cleaner.fullness.is_full();
        // A log that was stuck and is low no more is judged once more, or its deadline would stay for ever.
        let concerns = is_low || was_full || self.cleaner.fullness.deadline_us().is_some();
        let segments = self.log().sealed_segments().len();
        if concerns
            && (self.log().wants_judgement() || self.cleaner.fullness.is_due(now_us, segments))
        {
            let is_stuck = self.log_mut().take_stuck();
            let occupancy = Occupancy {
                is_stuck,
                ..self.occupancy()
            };
            self.cleaner.fullness.judge(now_us, &occupancy);
            let is_full = self.cleaner.fullness.is_full();
            self.log_mut().set_full(is_full);
        }
        let is_paced = is_low && self.log().is_room_coming();
        let headroom = is_paced.then(|| self.headroom());
        let goes_on = self.cleaner.pace.turn(now_us, headroom);
        goes_on || was_full != self.cleaner.fullness.is_full()
    }

    /// What is left until a segment comes back, and what copies may need of that.
    fn headroom(&self) -> Headroom {
        let log = self.log();
        let claimed_bytes = match &self.cleaner.victim {
            Some(victim) => {
                victim.segment.file_bytes - victim.offset.min(victim.segment.file_bytes)
            }
            // One that is released is as good as there.
            None if log.is_releasing() || log.is_segment_returning() => 0,
            None => log.longest_segment_bytes(),
        };
        Headroom {
            bytes: log.headroom_bytes(),
            // Frames of copies are not filled to the last byte, and a release takes a while.
            claimed_bytes: claimed_bytes + claimed_bytes / 8,
        }
    }

    /// What the log has and what of that counts.
    fn occupancy(&self) -> Occupancy {
        let log = self.log();
        let (mut counting_bytes, mut held_bytes, mut segment_bytes) = (0, log.spare_bytes(), 0);
        let sealed = log
            .sealed_segments()
            .iter()
            .map(|it| (it.file, it.file_bytes));
        for (file, bytes) in sealed.chain(log.open_segment()) {
            let live = self.counts_in(file);
            counting_bytes += live.parts + live.tombstones;
            held_bytes += bytes;
            segment_bytes = segment_bytes.max(bytes);
        }
        Occupancy {
            counting_bytes,
            held_bytes,
            segment_bytes,
            space_percent_max: self.cleaner.config.space_percent_max,
            is_low: log.is_low(),
            relief_comes: log.is_room_coming(),
            is_stuck: false,
        }
    }

    /// Whether writes of clients are to wait while cleaning makes room; deletions never are.
    #[inline]
    #[must_use]
    pub fn holds_writes(&self) -> bool {
        self.cleaner.pace.holds()
    }

    /// A write waits until [`Store::holds_writes`] is over; [`Store::clean`] tells when.
    pub fn write_waits(&mut self) {
        self.cleaner.pace.waits();
    }

    /// Bytes of records that counted when the log was last low or full.
    #[must_use]
    pub fn counting_bytes(&self) -> u64 {
        self.cleaner.fullness.counting_bytes()
    }

    /// Its share of the disk; nothing without a limit.
    #[must_use]
    pub fn disk_share(&self) -> Option<DiskShare> {
        let config = self.cleaner.config;
        (config.log_bytes_max > 0).then_some(DiskShare {
            log_bytes_max: config.log_bytes_max,
            segment_bytes: self.log().longest_segment_bytes(),
            space_percent_max: config.space_percent_max,
        })
    }

    /// How often and how long writes waited for cleaning.
    #[must_use]
    pub fn pace_counters(&self) -> PaceCounters {
        self.cleaner.pace.counters()
    }

    /// The end of a read for cleaning.
    pub fn clean_read(&mut self, completion: Completion<P::Block>) {
        let Some(victim) = &mut self.cleaner.victim else {
            return;
        };
        let Chunk::Reading(token) = victim.chunk else {
            return;
        };
        assert_eq!(completion.token.0, token, "one read is under way");
        match (completion.result, completion.block) {
            (Ok(()), Some(block)) => {
                let start = victim.offset;
                let end = victim.segment.end.end_offset;
                let bytes = victim.chunk_bytes.min(in_memory(end - start));
                victim.intact_offset = None;
                victim.has_failed = false;
                victim.chunk = Chunk::Read {
                    start,
                    bytes,
                    block,
                };
            }
            // Once more, as for everybody else who reads.
            _ if !victim.has_failed => {
                victim.has_failed = true;
                victim.chunk = Chunk::Missing(victim.chunk_bytes);
            }
            _ => self.give_up(),
        }
    }

    /// When the disk is full or the log has most of the segments that it may have, own segments give room
    /// back and inherited ones only take it.
    fn give_way(&mut self) {
        let is_idle = |victim: &mut Victim<P::Block>| {
            victim.is_inherited && !matches!(victim.chunk, Chunk::Reading(_))
        };
        if let Some(victim) = self.cleaner.victim.take_if(is_idle) {
            self.inheritance.put_back(&victim);
            self.cleaner.must_look = true;
            self.cleaner.is_hopeless = false;
        }
    }

    /// What becomes of a part that stands at `place` of a sealed and durable segment: the one
    /// function that says what counts. `is_oldest` if no segment stands before it, and [`Store::keep_deletions`] was not wanted.
    #[must_use]
    pub fn fate(
        &self,
        part: &PartView<'_>,
        place: Place,
        is_oldest: bool,
        hash_of: &impl Fn(&[u8]) -> u32,
    ) -> Fate {
        if is_local(part.key()) {
            return match self.locals.stands_at(part.slot(), place) {
                true => Fate::Copied(PartKind::Put),
                false => Fate::Dead,
            };
        }
        let hash = hash_of(part.key());
        // The index points to what an earlier version took from a client.
        if is_system(part.key()) && self.keys.pointer_to(part.slot(), hash, place).is_none() {
            return match self.keyspaces.is_at(part, place) {
                true => Fate::Copied(PartKind::Put),
                false => Fate::Dead,
            };
        }
        match part.kind() {
            PartKind::Put => {
                match self.keys.pointer_to(part.slot(), hash, place) {
                    None => {
                        return match self.successor_of(part, place, hash) {
                            Some(version) if !is_planted(Bug::DropKeptVersion) => {
                                Fate::Kept(version)
                            }
                            _ => Fate::Dead,
                        };
                    }
                    // It is swept: the deletion is in the log and not durable yet.
                    Some(Candidate {
                        home: Home::Memory(id),
                        ..
                    }) if self.keys.cell(id).is_deleted() => return Fate::Dead,
                    Some(_) => {}
                }
                if !self.is_expired(part.expiry_ms()) || self.keeps_expired(part) {
                    return Fate::Copied(PartKind::Put);
                }
                // An older value of the key, perhaps without an expiry, must not come back.
                if is_oldest || is_planted(Bug::DropExpired) {
                    Fate::Expired
                } else {
                    Fate::Copied(PartKind::Tombstone)
                }
            }
            PartKind::Tombstone => {
                // What was there before it is gone with its segments; what came after it is newer.
                let mut candidates = self.keys.entries().candidates(part.slot(), hash);
                let is_over = candidates.any(|candidate| match candidate.home {
                    Home::Memory(id) if self.keys.cell(id).key() == part.key() => {
                        // Behind a tail that has diverged older versions may follow, until its keys
                        // are written anew.
                        let is_newer = self.version(id) > part.version();
                        assert!(
                            is_newer || self.log().history().is_linked,
                            "a deletion that is durable has left the index"
                        );
                        is_newer
                    }
                    _ => false,
                });
                if let Some(successor) = self.successor_of(part, place, hash) {
                    return Fate::Kept(successor);
                }
                if self.is_kept_deletion(part, place, hash) {
                    return Fate::KeptDeletion;
                }
                let id = KeyId::new(part.slot(), hash, part.key());
                let known = self.versions.get(id, part.sequence());
                if known.is_some_and(|(_, version)| version.place != place) {
                    // An earlier run copied it already, and the copy is what is kept.
                    return Fate::Dead;
                }
                // What is older must not seem to be what the next version superseded.
                let is_over = is_over && self.keyspaces.rule(part.slot(), part.key()).is_none();
                if is_oldest || is_over || is_planted(Bug::DropTombstone) {
                    Fate::Dead
                } else {
                    Fate::Copied(PartKind::Tombstone)
                }
            }
        }
    }

    /// The version that superseded the one at this place, if that is kept.
    fn successor_of(&self, part: &PartView<'_>, place: Place, hash: u32) -> Option<Version> {
        if self.versions.is_empty() {
            return None;
        }
        let rule = self.keyspaces.rule(part.slot(), part.key())?;
        let id = KeyId::new(part.slot(), hash, part.key());
        let (_, version) = self.versions.get(id, part.sequence())?;
        if version.place != place {
            return None;
        }
        let now_ms = self.time_ms();
        let newer = self.versions.successor(id, rule, now_ms, part.sequence())?;
        Some(newer.version)
    }

    /// Whether the deletion at this place is the newest version of its key and something before it is
    /// kept.
    fn is_kept_deletion(&self, part: &PartView<'_>, place: Place, hash: u32) -> bool {
        let id = KeyId::new(part.slot(), hash, part.key());
        let rule = self.keyspaces.rule(part.slot(), part.key());
        let known = self.versions.get(id, part.sequence());
        let newest = self.versions.newest(id);
        let is_newest = newest.is_some_and(|it| it.version.sequence == part.sequence());
        let (Some(rule), Some((_, version))) = (rule, known) else {
            return false;
        };
        let (now_ms, sequence) = (self.time_ms(), part.sequence());
        is_newest
            && version.place == place
            && self.versions.needs_deletion(id, rule, now_ms, sequence)
    }

    /// Whether a value that has expired and is the newest of its key is kept for its time.
    fn keeps_expired(&self, part: &PartView<'_>) -> bool {
        let rule = self.keyspaces.rule(part.slot(), part.key());
        // What had expired when it was written took the place of the one before it then.
        let ended_ms = part.expiry_ms().unwrap_or(0).max(part.time_ms());
        rule.is_some_and(|rule| rule.keeps_ended(ended_ms, self.time_ms()))
    }

    /// Takes out what goes with a part of this fate: its own entry, and those of older versions, of which
    /// none is kept either. At most `left`, which falls; whether all of it is out.
    fn let_go(
        &mut self,
        part: &PartView<'_>,
        place: Place,
        hash: u32,
        fate: Fate,
        left: &mut usize,
    ) -> bool {
        if self.versions.is_empty() {
            return true;
        }
        let id = KeyId::new(part.slot(), hash, part.key());
        let through = match fate {
            Fate::Dead | Fate::Expired => {
                let known = self.versions.get(id, part.sequence());
                if known.is_none_or(|(_, version)| version.place != place) {
                    return true;
                }
                part.sequence()
            }
            // Its own entry goes when the deletion that takes its place is durable.
            Fate::Copied(PartKind::Tombstone) if part.kind() == PartKind::Put => {
                part.sequence() - 1
            }
            _ => return true,
        };
        let live = &mut self.live;
        self.versions
            .remove_through(id, through, left, |place| live.loses(place))
    }

    /// The part of a version stands elsewhere now.
    fn moved_version(&mut self, moved: &Move) {
        let Move {
            id,
            sequence,
            is_marked,
            from,
            to,
            ..
        } = *moved;
        if !self.versions.is_empty()
            && self.versions.moved(id, sequence, (from, to), is_marked) == Some(true)
        {
            self.live.loses(from);
            self.live.gains(to);
        }
    }

    /// Takes the entry that points to this place, and its cell, out.
    fn forget(&mut self, slot: u16, hash: u32, place: Place) {
        let Some(candidate) = self.keys.pointer_to(slot, hash, place) else {
            return;
        };
        self.live.loses(place);
        self.keys.remove(candidate.position, candidate.home);
    }

    /// Whether a part that is copied shares its hash with another key in the index. What the index does
    /// not point to is a deletion: for all that its hash tells, any entry may be another key's.
    fn is_crowded(&self, slot: u16, hash: u32, place: Place) -> bool {
        match self.keys.pointer_to(slot, hash, place) {
            Some(_) => self.keys.entries().is_crowded(slot, hash),
            None => self.keys.entries().candidates(slot, hash).next().is_some(),
        }
    }

    /// Lets the index point to the copies that are durable by now.
    pub(crate) fn apply_moves(&mut self) {
        let durable = match is_planted(Bug::MoveBeforeDurable) {
            true => self.log().appended(),
            false => self.log().durable(),
        };
        while let Some(&moved) = self.cleaner.moves.front() {
            if moved.lsn > durable {
                break;
            }
            self.cleaner.moves.pop_front();
            match moved.kind {
                PartKind::Tombstone if moved.was == PartKind::Put => {
                    // Of a value that had expired, unless the key has changed since. Nothing of it
                    // is kept.
                    self.forget(moved.slot, moved.hash, moved.from);
                    let live = &mut self.live;
                    if !self.versions.is_empty() {
                        // Older ones went before the copy was made.
                        let mut left = usize::MAX;
                        self.versions.remove_through(
                            moved.id,
                            moved.sequence,
                            &mut left,
                            |place| {
                                live.loses(place);
                            },
                        );
                    }
                    self.live.gains_tombstone(moved.to);
                }
                PartKind::Tombstone => {
                    self.moved_version(&moved);
                    self.live.gains_tombstone(moved.to);
                }
                PartKind::Put => {
                    // Unless the key has changed since.
                    if let Some(candidate) =
                        self.keys.pointer_to(moved.slot, moved.hash, moved.from)
                    {
                        let packed = PackedPlace::new(moved.to, moved.sequence);
                        let Candidate { position, home } = candidate;
                        self.keys.point_to(position, home, packed);
                        self.live.loses(moved.from);
                        self.live.gains_until(moved.to, moved.expires);
                    } else if self.keyspaces.moved(moved.slot, moved.from, moved.to) {
                        self.live.loses(moved.from);
                        self.live.gains(moved.to);
                    } else if self.locals.stands_at(moved.slot, moved.from) {
                        self.locals.moved(moved.slot, moved.to);
                        self.live.loses(moved.from);
                        self.live.gains(moved.to);
                    }
                    self.moved_version(&moved);
                }
            }
        }
    }

    /// Whether a copy of what stands there is not durable yet.
    pub(crate) fn is_moving(&self, from: Place) -> bool {
        self.cleaner.moves.iter().any(|moved| moved.from == from)
    }

    /// Logs a key's part that stands at `from` again, as a deletion of the same version, and lets the index
    /// forget the key when that is durable. The log must have room.
    pub(crate) fn move_as_deletion(
        &mut self,
        now_us: u64,
        part: &PartView<'_>,
        hash: u32,
        from: Place,
    ) -> Lsn {
        let kind = PartKind::Tombstone;
        let (lsn, to) = self
            .log_mut()
            .append_moved(now_us, part, Moved::As(kind), true);
        self.cleaner.must_look = true;
        self.cleaner.moves.push_back(Move {
            lsn,
            slot: part.slot(),
            hash,
            sequence: part.sequence(),
            id: KeyId::new(part.slot(), hash, part.key()),
            was: PartKind::Put,
            kind,
            is_marked: false,
            expires: None,
            from,
            to,
        });
        lsn
    }

    /// Releases a segment in which nothing counts: what was in it need not be known, but for how far its
    /// records went. Whether that was done.
    fn release_unread(&mut self, segment: &SealedSegment) -> bool {
        let (parts, tombstones) = (
            self.live.parts(segment.file),
            self.live.tombstones(segment.file),
        );
        // What has expired is pointed to: it is read, so that its keys leave the index.
        let counts = parts > 0 || (tombstones > 0 && !is_planted(Bug::DropUnread));
        // A version that leaves takes an entry with it, and the time at which it left is told.
        if counts || !self.versions.is_empty() || self.keyspaces.keeps_versions() {
            return false;
        }
        let reached = &self.log().history().reached;
        let Some(&highest) = reached.of_segment(segment.end.last_lsn) else {
            return false;
        };
        self.log_mut().release(segment.end.sequence, &highest);
        self.cleaner.counters.segments += 1;
        self.cleaner.counters.unread += 1;
        true
    }

    /// Looks at all segments: is there too much that does not count, and where is most of it?
    fn look(&mut self, now_us: u64) {
        let commit_bytes = self.log().counters().commit_bytes;
        let sealed_bytes: u64 = self
            .log()
            .sealed_segments()
            .iter()
            .map(|s| s.file_bytes)
            .sum();
        let segments = self.log().sealed_segments().iter();
        let segment_bytes_max = segments.map(|s| s.file_bytes).max().unwrap_or(0);
        let has_refused = self.log_mut().take_refused();
        let cleaner = &mut self.cleaner;
        let mut earned_bytes = (commit_bytes - cleaner.credited_bytes) * CREDIT_FACTOR;
        if !std::mem::replace(&mut cleaner.has_looked, true) {
            // What an earlier run left is worth going through once.
            earned_bytes += 2 * sealed_bytes;
        }
        cleaner.credited_bytes = commit_bytes;
        // Likewise what has expired, each byte once.
        earned_bytes += self.look_for_expired(now_us) * CREDIT_FACTOR;
        let cleaner = &mut self.cleaner;
        if has_refused {
            // What was refused can earn nothing: a segment is gone through on its behalf.
            earned_bytes += segment_bytes_max;
        }
        cleaner.credit_bytes =
            (cleaner.credit_bytes + earned_bytes).min(CREDIT_FACTOR * sealed_bytes);
        let (rate, picked) = self.pick();
        self.cleaner.must_look = false;
        self.cleaner.rate = rate;
        self.log_mut().set_tight(rate == Rate::Unbounded);
        let durable_end = self.log().durable_end();
        let newest = self.log().sealed_segments().last();
        let is_settled = newest.is_none_or(|segment| {
            (segment.end.sequence, segment.end.end_offset)
                <= (durable_end.segment_sequence, durable_end.end_offset)
        });
        // With a spare that is still to come more can be copied than without.
        let is_final = is_settled && !self.log().awaits_spare();
        let may_seal = picked.is_none() && is_final;
        let is_sealed = may_seal && (self.seal_wasted() || self.seal_expired(now_us));
        self.cleaner.is_hopeless = picked.is_none() && is_final && !is_sealed;
        self.cleaner
            .expired
            .looked(now_us, (picked.is_some(), is_sealed), is_final);
        let must_make_room = self.log().is_low() || self.log().has_most_segments();
        let goes_before = picked.is_none() || !self.cleaner.was_inherited;
        if !must_make_room && goes_before && self.take_inherited() {
            if rate == Rate::Bytes(0) || rate == Rate::Unbounded {
                self.cleaner.rate = Rate::Bytes(self.cleaner.config.bytes_per_s);
            }
            return;
        }
        self.cleaner.was_inherited = false;
        if let Some((segment, is_oldest)) = picked {
            let cleaner = &mut self.cleaner;
            cleaner.credit_bytes = cleaner.credit_bytes.saturating_sub(segment.file_bytes);
            if self.release_unread(&segment) {
                self.cleaner.next_look_us = now_us;
                self.cleaner.must_look = true;
                return;
            }
            let home = self.log().home_of(&segment);
            self.cleaner.highest.fill(0);
            let mut victim = Victim::new(segment, home, is_oldest);
            victim.counting_bytes = self.counts_in(segment.file).parts;
            self.cleaner.victim = Some(victim);
        }
    }

    /// Goes on with the inherited segments, if there are any. Commits need not earn that: each is gone
    /// through once. They vanish all at once, so an older part of a deleted key never stays behind.
    fn take_inherited(&mut self) -> bool {
        let Some((inherited, offset)) = self.inheritance.next() else {
            return false;
        };
        // Of a segment that was left in the middle: what was copied before that would be copied again while
        // the index does not point to the copies.
        let file = inherited.segment.file;
        let copied = |moved: &&Move| moved.from.file == file;
        if let Some(last) = self.cleaner.moves.iter().rfind(copied)
            && !is_planted(Bug::CopyInheritedAgain)
        {
            let lsn = last.lsn;
            self.log_mut().want_durable(lsn);
            return false;
        }
        let mut victim = Victim::new(inherited.segment, inherited.home, true);
        victim.is_inherited = true;
        victim.offset = offset.max(victim.offset);
        self.cleaner.victim = Some(victim);
        self.cleaner.was_inherited = true;
        true
    }

    /// When the disk is full and nothing sealed can be cleaned, what could be may be the open segment
    /// itself: full of a counter that was changed again and again. Whether it was sealed for that.
    fn seal_wasted(&mut self) -> bool {
        let Some((file, bytes)) = self.log().open_segment().filter(|_| self.log().is_low()) else {
            return false;
        };
        let is_used_up = self.log().open_segment_bytes_left() < bytes / 8;
        let gain = bytes.saturating_sub(self.counts_in(file).parts);
        // It becomes a sealed segment that the next one, perhaps a short one, must take the rest of;
        // otherwise the last spare would be gone for nothing.
        let is_oldest = self.log().sealed_segments().is_empty() && !self.cleaner.keeps_deletions;
        let kept = self.copies_bytes(file, is_oldest);
        let fits = kept <= self.log().sure_bytes_of_spare();
        is_used_up && gain >= bytes / 4 && fits && self.log_mut().seal_for_cleaning()
    }

    /// How fast to clean, and which segment, if there is one that pays; whether it is the oldest.
    fn pick(&self) -> (Rate, Option<(SealedSegment, bool)>) {
        let durable_end = self.log().durable_end();
        let durable_end = (durable_end.segment_sequence, durable_end.end_offset);
        let is_low = self.log().is_low();
        let segments = self.log().sealed_segments();
        let credit = self.cleaner.credit_bytes;
        if segments.is_empty() {
            return (Rate::Bytes(0), None);
        }
        let mut total_bytes = 0;
        let mut counting_bytes = 0;
        let mut tombstone_bytes = 0;
        for segment in segments {
            let live = self.counts_in(segment.file);
            total_bytes += segment.file_bytes;
            counting_bytes += live.parts + live.tombstones;
            // Where something older stands before it, a deletion takes the place of what has expired.
            tombstone_bytes += live.deletions;
            // Deletions that are kept stay wherever they stand.
            let kept_bytes = self.versions.copies(segment.file).deletion_bytes;
            tombstone_bytes += live.tombstones.saturating_sub(kept_bytes);
        }
        let segment_bytes = segments.iter().map(|s| s.file_bytes).max().unwrap_or(0);
        let config = self.cleaner.config;
        let wanted_bytes = counting_bytes * u64::from(config.space_percent_max) / 100;
        let bound_bytes = self.sealed_bytes_max(segment_bytes);
        // Many starts leave many short segments.
        let are_many = segments.len() > self.log().segments_max() / 2;
        let is_tight = is_low || total_bytes >= bound_bytes || self.log().has_most_segments();
        // Some segments of slack: a short log is not worth cleaning.
        let is_wasteful = total_bytes > wanted_bytes + 2 * segment_bytes;
        let is_index_full = self.waits_for_keys();
        let rate = if is_tight || is_index_full {
            Rate::Unbounded
        } else {
            let excess = total_bytes.saturating_sub(wanted_bytes + 2 * segment_bytes);
            let percent = excess * 100 / wanted_bytes.max(segment_bytes).max(1);
            Rate::Bytes(config.bytes_per_s * (1 + percent.min(100)))
        };
        let is_short = is_wasteful || is_tight || are_many;
        if !is_short && self.cleaner.expired.is_none() {
            return (rate, None);
        }
        let held_from = match is_tight || is_index_full {
            true => segments.len(),
            false => self.held_from(segments),
        };
        // What can be copied for sure before the victim's own release gives a segment back.
        let sure_bytes = match self.log().lacks_spares() {
            true => self.log().sure_bytes(),
            false => u64::MAX,
        };
        let may_be_oldest = !self.has_older() && !self.cleaner.keeps_deletions;
        let mut best: Option<(u128, usize)> = None;
        for (at, segment) in segments[..held_from].iter().enumerate() {
            let end = (segment.end.sequence, segment.end.end_offset);
            if end > durable_end || self.cleaner.avoided.contains(&segment.end.sequence) {
                continue;
            }
            let hoards_keys = self.hoards_expired_keys(segment.file);
            // Expired keys are taken out once, so no credit is needed for an end.
            if segment.file_bytes > credit && !hoards_keys {
                continue;
            }
            let is_oldest = at == 0 && may_be_oldest;
            let kept = self.copies_bytes(segment.file, is_oldest);
            let gain = segment.file_bytes.saturating_sub(kept);
            let is_crowded = is_oldest && tombstone_bytes > total_bytes / 8 && !is_low;
            if kept > sure_bytes {
                continue;
            }
            let gain_min = segment.file_bytes / if is_tight { 16 } else { 8 };
            if !is_short && !hoards_keys && !self.is_spent(segment, gain) {
                continue;
            }
            if gain < gain_min.max(1) && !is_crowded && !are_many && !hoards_keys {
                continue;
            }
            let cost = u128::from(segment.file_bytes + kept + 1);
            let score = match is_crowded {
                true => u128::MAX,
                false if is_index_full && !is_tight => {
                    let keys = self.counts_in(segment.file).expired_count;
                    (u128::from(keys) << 32) / cost
                }
                false => (u128::from(gain) << 32) / cost,
            };
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, at));
            }
        }
        let picked = best.map(|(_, at)| (segments[at], at == 0 && may_be_oldest));
        (rate, picked)
    }

    /// Bytes of sealed segments with which no more file can be made beside the open segment and the spares: only whole
    /// ones are, and a short one for each shard is left out.
    fn sealed_bytes_max(&self, segment_bytes: u64) -> u64 {
        let short_bytes = self.log().config().segment_bytes_min();
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

    /// Bytes that copies of what counts in a file take, at most.
    pub(super) fn copies_bytes(&self, file: FileId, is_oldest: bool) -> u64 {
        let live = self.counts_in(file);
        if self.versions.is_empty() {
            let deletions = live.tombstones + live.deletions;
            return live.parts + if is_oldest { 0 } else { deletions };
        }
        let kept = self.versions.copies(file);
        let deletions = match is_oldest {
            true => kept.deletion_bytes,
            false => live.tombstones.max(kept.deletion_bytes) + live.deletions,
        };
        live.parts + deletions + kept.unmarked * SUCCESSOR_BYTES as u64
    }

    /// Whether inherited parts stand before the first segment.
    fn has_older(&self) -> bool {
        self.is_inheriting() && !is_planted(Bug::OwnTombstoneDropped)
    }

    /// Goes on with the segment that is cleaned; `false` when it is released or given up.
    fn step(
        &mut self,
        now_us: u64,
        victim: &mut Victim<P::Block>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<P::Block>>,
    ) -> bool {
        let mut step = Step {
            bytes: STEP_BYTES,
            parts: STEP_PARTS,
            copied_bytes: 0,
        };
        loop {
            if victim.offset >= victim.segment.end.end_offset {
                let segment = victim.segment;
                // Before the point of no return: whatever counts was copied.
                if self.live.parts(segment.file) != self.moving_bytes(segment.file) {
                    self.tell_damaged(victim);
                    return false;
                }
                // A keyspace that keeps versions may keep what was to go.
                assert!(
                    victim.copied_bytes <= victim.counting_bytes
                        || self.keyspaces.keeps_versions()
                        || self.live.has_forgotten_times(),
                    "{} bytes of {:08}.seg were copied, of which {} counted: the others were taken for expired",
                    victim.copied_bytes,
                    segment.file.0,
                    victim.counting_bytes
                );
                match victim.is_inherited {
                    true => self.inheritance.passed(),
                    false => {
                        let sequence = segment.end.sequence;
                        let highest = *self.cleaner.highest;
                        self.log_mut().release(sequence, &highest);
                    }
                }
                self.cleaner.counters.segments += 1;
                return false;
            }
            let (start, bytes, block) = match &victim.chunk {
                Chunk::Reading(_) => return true,
                Chunk::Missing(_) if now_us < victim.resume_us || self.cleaner.budget_bytes < 0 => {
                    return true;
                }
                &Chunk::Missing(frame_bytes) => {
                    self.read_chunk(victim, frame_bytes, io);
                    return true;
                }
                Chunk::Read {
                    start,
                    bytes,
                    block,
                } => (*start, *bytes, block),
            };
            let skip = in_memory(victim.offset - start);
            let chunk = &block.bytes()[..bytes];
            let Some(rest) = chunk.get(skip..).filter(|rest| rest.len() >= BLOCK_BYTES) else {
                victim.chunk = Chunk::Missing(0);
                continue;
            };
            let Ok(frame) = FrameHeader::read(victim.home, victim.offset, rest) else {
                self.tell_damaged(victim);
                return false;
            };
            let padded = frame.padded_bytes();
            let end = victim.offset + padded as u64;
            if end > victim.segment.end.end_offset {
                self.tell_damaged(victim);
                return false;
            }
            let Some(bytes) = rest.get(..padded) else {
                victim.chunk = Chunk::Missing(padded);
                continue;
            };
            // After each read anew: another read may bring other bytes.
            if victim.intact_offset != Some(victim.offset) {
                if !FrameHeader::body_is_intact(victim.home, bytes) {
                    self.tell_damaged(victim);
                    return false;
                }
                victim.intact_offset = Some(victim.offset);
            }
            if matches!(frame.kind, FrameKind::Commit | FrameKind::Repair) {
                let body = &bytes[FRAME_HEADER_BYTES..][..frame.body_bytes as usize];
                let (judged_bytes, end) = self.judge(now_us, victim, body, &mut step, hash_of);
                victim.judged_bytes = judged_bytes;
                victim.copied_bytes += std::mem::take(&mut step.copied_bytes);
                match end {
                    JudgeEnd::AllDone => victim.blocked_since_us = None,
                    JudgeEnd::StepDone => {
                        victim.blocked_since_us = None;
                        return true;
                    }
                    JudgeEnd::NoRoom => {
                        // The block that is held may be the very one that the log needs.
                        let since_us = *victim.blocked_since_us.get_or_insert(now_us);
                        if now_us >= since_us + BLOCKED_US_MAX {
                            victim.is_memory_short = true;
                            victim.blocked_since_us = None;
                            victim.resume_us = now_us + BLOCKED_US_MAX;
                            victim.chunk = Chunk::Missing(padded);
                        }
                        return true;
                    }
                }
            }
            victim.offset = end;
            victim.judged_bytes = 0;
        }
    }

    /// Bytes of the parts in a file that count and that are copied already.
    fn moving_bytes(&self, file: FileId) -> u64 {
        let moves = self.cleaner.moves.iter();
        moves
            .filter(|moved| moved.from.file == file)
            .filter(|moved| {
                let version = self.versions.get(moved.id, moved.sequence);
                self.keys
                    .pointer_to(moved.slot, moved.hash, moved.from)
                    .is_some()
                    || version.is_some_and(|(_, it)| it.is_counted && it.place == moved.from)
                    || self.keyspaces.stands_at(moved.slot, moved.from)
                    || self.locals.stands_at(moved.slot, moved.from)
            })
            .map(|moved| u64::from(moved.from.bytes))
            .sum()
    }

    /// Judges the parts of one frame and copies those that count. How far it came, and whether that
    /// is all of it.
    fn judge(
        &mut self,
        now_us: u64,
        victim: &Victim<P::Block>,
        body: &[u8],
        step: &mut Step,
        hash_of: &impl Fn(&[u8]) -> u32,
    ) -> (usize, JudgeEnd) {
        let mut at = victim.judged_bytes;
        // Behind the parts of a repair stand zeros, which are no part.
        while let Ok(part) = PartView::read(&body[at..]) {
            let bytes = part.bytes().len();
            let offset = victim.offset + (FRAME_HEADER_BYTES + at) as u64;
            let place = Place::new(victim.segment.file, offset, bytes);
            if step.parts == 0 {
                return (at, JudgeEnd::StepDone);
            }
            step.parts -= 1;
            if !part.is_copy() && !is_local(part.key()) {
                let highest = &mut self.cleaner.highest[partition_of(part.slot())];
                *highest = (*highest).max(part.sequence());
            }
            let fate = self.fate(&part, place, victim.is_oldest, hash_of);
            let hash = hash_of(part.key());
            let is_gone = fate == Fate::Expired || fate == Fate::Copied(PartKind::Tombstone);
            let expires =
                is_gone && part.kind() == PartKind::Put && !is_planted(Bug::ExpireWithoutTime);
            // A start in an earlier time would take the version before it for what the one behind it
            // superseded.
            let ends = (is_gone || fate == Fate::Dead)
                && self
                    .keyspaces
                    .rule(part.slot(), part.key())
                    .is_some_and(|rule| rule.retention_ms > 0)
                && !is_planted(Bug::EndWithoutTime);
            if expires || ends {
                let time_ms = self.time_ms();
                self.log_mut().carry_time(time_ms);
                if victim.is_inherited && !is_planted(Bug::InheritedTimeUntold) {
                    self.log_mut().owe_contents();
                }
            }
            if !self.let_go(&part, place, hash, fate, &mut step.parts) {
                return (at, JudgeEnd::StepDone);
            }
            match fate {
                Fate::Dead => {
                    self.cleaner.counters.tombstones_dropped +=
                        u64::from(part.kind() == PartKind::Tombstone);
                }
                Fate::Expired => {
                    self.forget(part.slot(), hash, place);
                    self.cleaner.counters.expired_dropped += 1;
                }
                Fate::Copied(_) if is_planted(Bug::ForgetOneMove) && bytes % 7 == 5 => {}
                Fate::Copied(_) | Fate::Kept(_) | Fate::KeptDeletion => {
                    let (kind, copy_bytes, copy) = match fate {
                        Fate::KeptDeletion => (part.kind(), bytes, Moved::Deletion),
                        Fate::Kept(successor) => (
                            part.kind(),
                            bytes
                                + if part.successor().is_none() {
                                    SUCCESSOR_BYTES
                                } else {
                                    0
                                },
                            Moved::Superseded(successor),
                        ),
                        Fate::Copied(PartKind::Tombstone) => (
                            PartKind::Tombstone,
                            bytes.max(part_bytes(part.key().len(), 0, false, 0)),
                            Moved::As(PartKind::Tombstone),
                        ),
                        _ => (PartKind::Put, bytes, Moved::As(PartKind::Put)),
                    };
                    if step.bytes < copy_bytes && step.bytes < STEP_BYTES {
                        return (at, JudgeEnd::StepDone);
                    }
                    // What leaves no segment nearer to its release has no claim to the last spares.
                    let purpose = match victim.is_inherited {
                        true => Purpose::Grow,
                        false => Purpose::Clean,
                    };
                    let is_kept_back = purpose == Purpose::Grow && self.log().is_low();
                    if is_kept_back || self.log_mut().room(purpose, copy_bytes) != Room::Yes {
                        return (at, JudgeEnd::NoRoom);
                    }
                    let is_crowded = self.is_crowded(part.slot(), hash, place);
                    let (lsn, to) = self.log_mut().append_moved(now_us, &part, copy, is_crowded);
                    step.bytes = step.bytes.saturating_sub(copy_bytes);
                    if kind == PartKind::Put {
                        step.copied_bytes += u64::from(place.bytes);
                    }
                    self.cleaner.budget_bytes -= i64::from(to.bytes);
                    self.cleaner.moves.push_back(Move {
                        lsn,
                        slot: part.slot(),
                        hash,
                        sequence: part.sequence(),
                        // Versions may be kept before the copy is durable, if none are now.
                        id: KeyId::new(part.slot(), hash, part.key()),
                        was: part.kind(),
                        kind,
                        is_marked: matches!(copy, Moved::Superseded(_)),
                        expires: part_expires(&self.keyspaces, &part),
                        from: place,
                        to,
                    });
                }
            }
            at += bytes;
            if at == body.len() {
                break;
            }
        }
        (at, JudgeEnd::AllDone)
    }

    /// Reads on from the frame that is judged next; tried again later if no block is free.
    fn read_chunk(
        &mut self,
        victim: &mut Victim<P::Block>,
        frame_bytes: usize,
        io: &mut Vec<Io<P::Block>>,
    ) {
        let left = in_memory(victim.segment.end.end_offset - victim.offset);
        let least = left.min(frame_bytes.max(BLOCK_BYTES));
        // After the log found no room beside a chunk, no more than a frame is held.
        let mut bytes = match victim.is_memory_short {
            true => least,
            false => left.min(CHUNK_BYTES.max(frame_bytes)),
        };
        victim.chunk = Chunk::Missing(frame_bytes);
        // Memory may be short, or a part of a standard frame block all that is left.
        let block = loop {
            if let Some(block) = self.take_block(bytes) {
                break block;
            }
            if bytes == least {
                return;
            }
            bytes = (bytes / 4).next_multiple_of(BLOCK_BYTES).max(least);
        };
        self.cleaner.tokens += 1;
        let token = CLEAN_TOKEN_BIT | self.cleaner.tokens;
        victim.chunk = Chunk::Reading(token);
        victim.chunk_bytes = bytes;
        self.cleaner.counters.reads += 1;
        self.cleaner.counters.read_bytes += bytes as u64;
        self.cleaner.budget_bytes -= i64::try_from(bytes).expect("a chunk is bounded");
        io.push(Io::Read {
            token: IoToken(token),
            file: victim.segment.file,
            offset: victim.offset,
            block,
            len: u32::try_from(bytes).expect("a chunk is bounded"),
        });
    }

    /// A read failed: the segment stays as it is.
    fn give_up(&mut self) {
        if let Some(victim) = self.cleaner.victim.take() {
            self.tell_damaged(&victim);
        }
    }

    fn tell_damaged(&mut self, victim: &Victim<P::Block>) {
        if victim.is_inherited {
            self.inheritance.put_back(victim);
            self.cleaner.must_look = true;
            if !self.inheritance.failed() {
                return;
            }
        } else {
            self.cleaner.avoided.push(victim.segment.end.sequence);
        }
        self.cleaner.counters.damaged += 1;
        self.cleaner.damaged.push(Damaged {
            file: victim.segment.file,
            offset: victim.offset,
        });
    }
}

/// Why no more parts of a frame are judged now.
enum JudgeEnd {
    AllDone,
    StepDone,
    NoRoom,
}

/// What one turn may still do.
struct Step {
    bytes: usize,
    parts: usize,
    /// Bytes of parts, deletions left out, that were copied.
    copied_bytes: u64,
}

fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a segment has at most 1 GiB")
}
