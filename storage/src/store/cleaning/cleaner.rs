//! The state of cleaning: the segment at hand, the copies under way, and what may be spent on them.

use crate::format::contents::SealedSegment;
use crate::format::frame::FrameHome;
use crate::format::record::PartKind;
use crate::log::log::Log;
use crate::store::cleaning::credit::Credit;
use crate::store::cleaning::expired::Expired;
use crate::store::cleaning::expiring::Expires;
use crate::store::cleaning::lack::{Facts, Lack};
use crate::store::cleaning::pace::{Fullness, Pace};
use crate::store::versions::entry::KeyId;
use crate::types::io::{BLOCK_BYTES, Block, Blocks, IoToken};
use crate::types::place::{FileId, Lsn, Place};
use crate::types::version::{PARTITIONS, Sequences};
use std::collections::VecDeque;

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

/// What a log may have of the disk as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomOnDisk {
    /// Bytes of all its segments, those that can still be made included, and a short one for a log
    /// that has none at all.
    pub log_bytes: u64,
    /// Bytes of the segments that are made now.
    pub segment_bytes: u64,
}

impl RoomOnDisk {
    /// Bytes of the segments that can still be made for a log: only whole ones are, and a short one
    /// is left for a log that has none at all.
    pub(super) fn more_bytes<P: Blocks>(self, log: &Log<P>) -> u64 {
        let short_bytes = log.config().segment_bytes_min();
        let short_bytes = short_bytes.next_multiple_of(BLOCK_BYTES as u64);
        let left_bytes = self
            .log_bytes
            .saturating_sub(log.held_bytes() + short_bytes);
        left_bytes - left_bytes % self.segment_bytes.max(1)
    }
}

/// What cleaning did since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleaningCounters {
    /// Segments that were released, or judged to their end for good.
    pub segments: u64,
    /// Segments among them that were not read, because nothing in them counted.
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
pub(super) struct Cleaner<B> {
    pub(super) config: CleaningConfig,
    pub(super) victim: Option<Victim<B>>,
    /// How far the records of each partition in it go, as far as it was judged; copies left out.
    pub(super) highest: Box<Sequences>,
    /// Copies that are not durable yet, in log order.
    pub(super) moves: VecDeque<Move>,
    /// Sequences of segments that are damaged.
    pub(super) avoided: Vec<u64>,
    pub(super) damaged: Vec<Damaged>,
    /// Bytes that may be read and copied now; below zero after a step that took more.
    pub(super) budget_bytes: i64,
    pub(super) budget_us: u64,
    /// Bytes in a second, by how far the target is missed.
    pub(super) rate: Rate,
    pub(super) next_pick_us: u64,
    /// What may still be cleaned.
    pub(super) credit: Credit,
    /// What is kept for others.
    pub(super) backlog: Option<Backlog>,
    /// Whether no deletion is dropped from the next segment on.
    pub(super) keeps_deletions: bool,
    /// The last choice found nothing that could be cleaned.
    pub(super) is_hopeless: bool,
    /// The last victim was an inherited segment: an own one goes first.
    pub(super) was_inherited: bool,
    pub(super) inherited_pick_us: u64,
    /// Something changed since the last choice.
    pub(super) must_pick: bool,
    /// What had expired at the last choice.
    pub(super) expired: Expired,
    pub(super) tokens: u64,
    pub(super) counters: CleaningCounters,
    /// How fast writes may go.
    pub(super) pace: Pace,
    pub(super) fullness: Fullness,
    /// Edits and deletions that find no room.
    pub(super) lack: Lack,
    /// What the log may have of the disk, if somebody has said.
    pub(super) room: Option<RoomOnDisk>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rate {
    Bytes(u64),
    Unbounded,
}

#[derive(Debug)]
pub(crate) struct Victim<B> {
    pub(super) segment: SealedSegment,
    pub(super) home: FrameHome,
    /// It is one of a log that this one continues, and leaves with it.
    pub(super) is_inherited: bool,
    /// No segment stood before it when it was picked, and none comes. No member may have got
    /// records of earlier segments and still lack later ones.
    pub(super) is_oldest: bool,
    /// Upper bound of the bytes in it that counted when it was picked, and how many bytes were
    /// copied.
    pub(super) counting_bytes: u64,
    pub(super) copied_bytes: u64,
    /// The frame that is judged next, and how far its body is judged.
    pub(crate) offset: u64,
    pub(super) judged_bytes: usize,
    /// Since when the log has had no room for the next copy.
    pub(super) blocked_since_us: Option<u64>,
    /// Nothing is read before.
    pub(super) resume_us: u64,
    /// The log had no room while a chunk was held.
    pub(super) is_memory_short: bool,
    /// The frame whose body was checked as it stands in the chunk.
    pub(super) intact_offset: Option<u64>,
    /// The last read failed.
    pub(super) has_failed: bool,
    /// Bytes of the last read.
    pub(super) chunk_bytes: usize,
    pub(super) chunk: Chunk<B>,
}

#[derive(Debug)]
pub(super) enum Chunk<B> {
    /// Must be read; the next frame is so long.
    Missing(usize),
    Reading(IoToken),
    Read {
        start: u64,
        bytes: usize,
        block: B,
    },
}

impl<B: Block> Chunk<B> {
    /// The bytes that were read; none while they are missing.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Read { bytes, block, .. } => &block.bytes()[..*bytes],
            Chunk::Missing(_) | Chunk::Reading(_) => &[],
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub(super) lsn: Lsn,
    pub(super) slot: u16,
    pub(super) hash: u32,
    pub(super) sequence: u64,
    /// The key's id among the kept versions.
    pub(super) id: KeyId,
    pub(super) was: PartKind,
    pub(super) kind: PartKind,
    /// It names its successor.
    pub(super) is_marked: bool,
    pub(super) expires: Option<Expires>,
    pub(super) from: Place,
    pub(super) to: Place,
}

/// Bytes read at a time: what fits in a standard frame block.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// Bytes copied in one turn of the loop, at most: what a commit that shares the frame waits for.
pub(super) const STEP_BYTES: usize = 64 << 10;

/// Parts judged in one turn, at most.
pub(super) const STEP_PARTS: usize = 2048;

/// How long a chunk in memory waits for room in the log, and then the next read, in microseconds.
pub(super) const BLOCKED_US_MAX: u64 = 10_000;

/// Between two choices among all segments, in microseconds.
pub(super) const PICK_US: u64 = 10_000;

/// As long between two tries to rewrite inherited segments, in microseconds.
pub(super) const INHERITED_PICK_US: u64 = 100_000;

/// What may be saved up for one burst, in bytes.
const BURST_BYTES: i64 = 1 << 20;

impl<B> Victim<B> {
    pub(super) fn new(segment: SealedSegment, home: FrameHome, is_oldest: bool) -> Self {
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

    /// The log has no room for a copy. After a while the chunk is given back and read again later,
    /// not more than the frame of `frame_bytes` at a time: its block may be the very one that the
    /// log needs.
    pub(super) fn wait_for_room(&mut self, now_us: u64, frame_bytes: usize) {
        let since_us = *self.blocked_since_us.get_or_insert(now_us);
        if now_us >= since_us + BLOCKED_US_MAX {
            self.is_memory_short = true;
            self.blocked_since_us = None;
            self.resume_us = now_us + BLOCKED_US_MAX;
            self.chunk = Chunk::Missing(frame_bytes);
        }
    }
}

impl<B> Cleaner<B> {
    pub(super) fn new() -> Self {
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
            next_pick_us: 0,
            credit: Credit::default(),
            backlog: None,
            keeps_deletions: false,
            is_hopeless: false,
            was_inherited: false,
            inherited_pick_us: 0,
            must_pick: true,
            expired: Expired::default(),
            tokens: 0,
            counters: CleaningCounters::default(),
            pace: Pace::default(),
            fullness: Fullness::default(),
            lack: Lack::default(),
            room: None,
        }
    }

    /// Judges whether edits and deletions that find no room are refused. Whether they are from now
    /// on: those that waited are to try again.
    pub(super) fn judge_edits<P: Blocks>(&mut self, now_us: u64, log: &mut Log<P>) -> bool {
        let facts = Facts {
            found_none: log.take_lack(),
            appended_bytes: log.counters().appended_bytes(),
            is_hopeless: self.is_hopeless,
            refusals: log.spare_refusals(),
        };
        let refused = self.lack.refuses();
        if self.lack.turn(now_us, facts) {
            // What found no room can earn nothing: cleaning goes through the log once for it, and
            // seals what it needs for that.
            self.credit.pass(log.used_bytes());
            self.must_pick = true;
            self.is_hopeless = false;
        }
        let refuses = self.lack.refuses();
        log.refuse_edits(refuses);
        refuses && !refused
    }

    pub(super) fn holds_block(&self) -> bool {
        let chunk = self.victim.as_ref().map(|victim| &victim.chunk);
        matches!(chunk, Some(Chunk::Read { .. }))
    }

    pub(super) fn refill(&mut self, now_us: u64) {
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
