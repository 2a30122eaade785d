//! The group commit writer of one log.
//!
//! Records are encoded straight into the block of the open frame. A frame is sealed and written as
//! soon as fewer than `frames_in_flight_max` writes are under way and somebody waits for one of its
//! records; what arrives meanwhile joins the next frame. Every write of a log (segment headers,
//! frames, summaries, marks) is an entry of one queue, and a record is durable only when its entry
//! and all before it are. Segment headers and marks are under way alone: they go when everything
//! before them is durable, and what stands behind them waits until they are. So a header proves that
//! the segment before ended where the header says, and a frame proves that its segment's header was
//! durable, and the mark in front of it; recovery builds on all three. It costs one flush more in
//! each segment and each idle moment.
//!
//! After a failed or short write or sync the log is poisoned: it emits nothing more and nothing
//! more becomes durable, because a later sync that succeeds proves nothing about the writes that
//! failed (Rebello et al., "Can applications recover from fsync failures?", ATC 2020).
//!
//! What must hold: `durable <= written <= sealed <= appended`.

use crate::types::place::LogPosition;
use crate::types::place::LogStart;
use crate::types::place::Lsn;
use crate::types::place::Place;
use std::cmp::Ordering;
use std::collections::VecDeque;

use crate::format::contents::{History, SEGMENTS_MAX, SealedSegment, SegmentEnd};
use crate::format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameHome, FrameKind, padded_bytes};
use crate::format::record::{PARTS_MAX, PartKind, PartView, RecordSpec};
use crate::format::segment::{Owner, SEGMENT_BYTES_MAX, SegmentHeader};
use crate::format::summary::{SUMMARY_BYTES_MAX, Summary};
use crate::format::system_key::is_local;
use crate::histogram::Histogram;
use crate::log::growth::Growth;
use crate::planted::{Bug, is_planted};
use crate::types::io::{BLOCK_BYTES, Block, Blocks, Completion, Io, IoFailure, IoToken};
use crate::types::packed_place::FILES_MAX;
use crate::types::place::FileId;
use crate::types::version::{PARTITIONS, Sequences, Version, partition_of};

/// What a copy that cleaning makes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The newest part of its key, as this.
    As(PartKind),
    /// A deletion that is kept and the newest version of its key.
    Deletion,
    /// A version that this one superseded and that is kept.
    Superseded(Version),
}

/// How a frame is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMethod {
    /// The write itself completes only when durable.
    DurableWrite,
    /// A plain write, then a sync of the file.
    WriteThenSync,
}

/// The fixed properties of a log.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Written into every segment.
    pub owner: Owner,
    /// The start of the node.
    pub incarnation: u64,
    /// The log's number, never reused.
    pub log_id: u64,
    /// Bytes of a standard frame block, a multiple of [`BLOCK_BYTES`].
    pub frame_bytes: usize,
    /// Bytes of a record, at most; a segment must have at least
    /// [`LogConfig::segment_bytes_min`].
    pub record_bytes_max: usize,
    /// Writes emitted and not durable yet, at most.
    pub frames_in_flight_max: usize,
    /// Sealed frames that are not durable yet, at most; more records have to wait.
    pub frames_sealed_max: usize,
    /// How frames are made durable.
    pub sync: SyncMethod,
    /// How long a record that nobody waits for may stay in memory, in microseconds.
    pub interval_us: u64,
    /// Idleness after which a mark frame records how far the log is durable, in microseconds.
    pub idle_mark_us: u64,
}

impl LogConfig {
    /// The smallest segment that this log can use: four of its largest frames, and what every
    /// segment holds besides.
    #[must_use]
    pub fn segment_bytes_min(&self) -> u64 {
        segment_bytes_min(self.frame_bytes, self.record_bytes_max)
    }

    /// The smallest segment for records that fit in a frame of the usual length, a multiple of [`BLOCK_BYTES`].
    #[must_use]
    pub fn segment_bytes_first(&self) -> u64 {
        let bytes = segment_bytes_min(self.frame_bytes, 0);
        bytes.next_multiple_of(BLOCK_BYTES as u64)
    }
}

/// As [`LogConfig::segment_bytes_min`].
#[must_use]
pub fn segment_bytes_min(frame_bytes: usize, record_bytes_max: usize) -> u64 {
    let frame_bytes_max = padded_bytes(record_bytes_max).max(frame_bytes);
    (BLOCK_BYTES + 4 * frame_bytes_max) as u64 + SEGMENT_TAIL_BYTES
}

/// Where the durable part of a log ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurableEnd {
    /// The log.
    pub log_id: u64,
    /// Its last durable record.
    pub lsn: Lsn,
    /// Sequence of the segment with the last durable frame of any kind; 0 if there is none.
    pub segment_sequence: u64,
    /// Where that frame ends.
    pub end_offset: u64,
}

/// A segment that can be read, as far as it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableSegment {
    /// The file.
    pub file: FileId,
    /// What its frames are checked by.
    pub home: FrameHome,
    /// Where the durable ones end.
    pub end_offset: u64,
    /// Nothing more comes behind that.
    pub is_whole: bool,
}

/// A frame of records that was sealed: it goes to the disk now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedFrame {
    /// Its first record.
    pub first: Lsn,
    /// The parts of its records.
    pub bytes: Vec<u8>,
}

/// Whether a record can be appended now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It can.
    Yes,
    /// Frames wait for the disk, a spare segment is on its way, or no block is free: ask again
    /// after a completion, of a read as well.
    Wait,
    /// No spare segment can be had: the disk is full.
    Full,
}

/// What a record is appended for, and with it how deep it may reach into the last spare segments.
/// When no more can be had, the last ones belong to what makes room again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The store holds more after it: refused as soon as no more spares can be had.
    Grow,
    /// The store holds no more after it: a deletion, an edit, a value no longer than the one before.
    Keep,
    /// The store keeps less after it, which gives cleaning something to do where all else counts: few
    /// bytes, and as deep as cleaning itself.
    Relieve,
    /// Cleaning moves what it found: every move leaves a segment nearer to its release.
    Clean,
}

/// The log accepts and acknowledges nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poisoned {
    /// What failed.
    pub failure: IoFailure,
    /// The file.
    pub file: FileId,
    /// The offset of the write, or of the first write that the sync was to cover.
    pub offset: u64,
}

/// What the log has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Records appended.
    pub records: u64,
    /// Bytes of those records.
    pub record_bytes: u64,
    /// Commit frames sealed.
    pub frames: u64,
    /// Durable writes and syncs asked of the device.
    pub flushes: u64,
    /// Bytes written to the device.
    pub device_bytes: u64,
    /// Bytes of those that fill frames up to the block size.
    pub padding_bytes: u64,
    /// Mark frames.
    pub marks: u64,
    /// Segments taken into use.
    pub segments: u64,
    /// Records of those that cleaning moved.
    pub moved_records: u64,
    /// Bytes of those.
    pub moved_bytes: u64,
    /// Segments released.
    pub released: u64,
    /// Bytes of the frames that hold a commit, as the device sees them.
    pub commit_bytes: u64,
}

/// Tokens of the log have this bit; those of reads do not.
pub const LOG_TOKEN_BIT: u64 = 1 << 63;
const SYNC_TOKEN_BIT: u64 = 1 << 62;

struct Spare {
    file: FileId,
    salt: u64,
    bytes: u64,
    is_reused: bool,
}

struct OpenSegment {
    header: SegmentHeader,
    file: FileId,
    /// Where the next frame goes.
    end_offset: u64,
    summary: Summary,
}

struct OpenFrame<B> {
    block: B,
    /// Bytes of the body so far, and at most.
    body_bytes: usize,
    body_bytes_max: usize,
    record_count: u32,
    /// Not all of its records were moved by cleaning.
    has_commits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Waiting,
    UnderWay,
    Written,
    Syncing,
    Durable,
}

struct Write<B> {
    progress: Progress,
    file: FileId,
    offset: u64,
    len: u32,
    block: Option<B>,
    /// The last record that is durable once this write and all before it are.
    last_lsn: Lsn,
    /// The segment of a frame and its kind; a segment header has none.
    frame: Option<(FrameHome, FrameKind)>,
    /// What its frame tells durable; set when it goes to the disk.
    told: Lsn,
    /// When it went there.
    emitted_us: u64,
    /// Files that nothing counts in any more once this write is durable.
    releases: Vec<FileId>,
    /// A contents frame that tells what was owed.
    tells_owed: bool,
}

impl<B> Write<B> {
    /// Whether nothing else may be under way with it.
    fn is_alone(&self) -> bool {
        match self.frame {
            None | Some((_, FrameKind::Mark)) => true,
            // What a release relies on must be durable before it.
            Some((_, FrameKind::Contents)) => !is_planted(Bug::ContentsTooEarly),
            Some(_) => false,
        }
    }
}

/// The writer of one log.
pub struct Log<P: Blocks> {
    config: LogConfig,
    blocks: P,
    spares: VecDeque<Spare>,
    spare_refused: bool,
    /// How long new segments are, if they begin short.
    growth: Option<Growth>,
    /// The last spare is left to cleaning.
    keeps_reserve: bool,
    /// Cleaning can still give segments back.
    relief_comes: bool,
    /// Whether what grows the store is refused, and whether that was judged since a spare was refused.
    is_full: bool,
    is_judged: bool,
    /// No more segments can be had beside those that are there, or soon: releases are told at once.
    is_tight: bool,
    /// What grows the store found no room since that was judged, and nothing came.
    is_stuck: bool,
    /// What takes no more room than before was refused since it was last asked.
    has_refused: bool,
    /// A file was removed, and what became of its room is not told yet.
    room_returns: bool,
    /// Where the log ended before `segment`.
    before: LogStart,
    /// What it held until there.
    history: History,
    /// Files of released segments that no contents frame has told yet.
    releasing: Vec<FileId>,
    /// Files of released segments that may be removed.
    removable: Vec<FileId>,
    segment: Option<OpenSegment>,
    open: Option<OpenFrame<P::Block>>,
    /// Sealed writes in log order; the front is the oldest that is not durable.
    writes: VecDeque<Write<P::Block>>,
    /// Token number of the front of `writes`.
    front_token: u64,
    /// Writes not emitted yet: the last ones of `writes`.
    waiting: usize,
    /// Writes emitted and not durable.
    under_way: usize,
    sync_under_way: bool,

    durable: Lsn,
    /// Segment and end of the last durable frame.
    durable_end: (u64, u64),
    /// Where the last durable frame ends.
    position: Option<LogPosition>,
    /// A durable frame tells a release.
    tells_released: bool,
    /// What was taken over from other logs is told by no frame of this one yet.
    owes_contents: bool,
    written: Lsn,
    sealed: Lsn,
    appended: Lsn,
    /// The highest record that somebody waits for.
    wanted: Lsn,
    /// When the open frame is to be sealed although nobody waits; means something only while it
    /// holds a record.
    interval_end_us: u64,
    /// The durable LSN that the newest frame on the disk tells.
    recorded_durable: Lsn,
    active_us: u64,
    time_ms: u64,
    closing: bool,
    poisoned: Option<Poisoned>,
    /// Frames that were sealed since they were last taken, for who asked for them.
    tapped: Option<VecDeque<SealedFrame>>,
    counters: LogCounters,
    /// Records of each frame that holds a commit.
    batches: Histogram,
    /// Microseconds from the emission of each write until the device had it for good.
    flushes_us: Histogram,
}

/// Spare segments that are to be ready: two ahead, and one that only cleaning takes.
pub const SPARES_READY: usize = 3;
/// With fewer spares nothing but cleaning goes on in a new segment.
const SPARES_TO_ROTATE: usize = 2;
/// A frame behind which nothing more fits may be shorter than the others, by so much at most.
const SHORT_FRAME_SHARE: usize = 8;
/// What one more segment adds to a contents frame.
const CONTENTS_ENTRY_BYTES: usize = 24;
/// What a segment keeps free behind its commit frames: one mark and the summary. One mark is
/// enough, because another one needs a commit frame between.
const SEGMENT_TAIL_BYTES: u64 = (BLOCK_BYTES + SUMMARY_BYTES_MAX) as u64;

impl<P: Blocks> Log<P> {
    /// A writer that goes on after `start`, always in a new segment, and never releases one.
    pub fn new(config: LogConfig, start: LogStart, blocks: P) -> Self {
        let mut log = Self::with_history(config, start, History::default(), blocks);
        log.keeps_reserve = false;
        log
    }

    /// A writer that goes on after `start` and what was before it, always in a new segment.
    pub fn with_history(
        config: LogConfig,
        start: LogStart,
        mut history: History,
        blocks: P,
    ) -> Self {
        history.reached.run_begins();
        assert!(config.frame_bytes.is_multiple_of(BLOCK_BYTES) && config.frame_bytes > 0);
        assert!(config.frames_in_flight_max > 0 && config.frames_sealed_max > 0);
        let (position, tells_released) = (history.position, history.has_released);
        Log {
            config,
            blocks,
            spares: VecDeque::new(),
            spare_refused: false,
            growth: None,
            keeps_reserve: true,
            relief_comes: false,
            is_full: false,
            is_judged: false,
            is_tight: false,
            is_stuck: false,
            has_refused: false,
            room_returns: false,
            before: start,
            history,
            releasing: Vec::new(),
            removable: Vec::new(),
            segment: None,
            open: None,
            writes: VecDeque::new(),
            front_token: 0,
            waiting: 0,
            under_way: 0,
            sync_under_way: false,
            durable: start.last_lsn,
            durable_end: (start.last_sequence, start.end_offset),
            position,
            tells_released,
            owes_contents: false,
            written: start.last_lsn,
            sealed: start.last_lsn,
            appended: start.last_lsn,
            wanted: Lsn(0),
            interval_end_us: 0,
            recorded_durable: start.last_lsn,
            active_us: 0,
            time_ms: 0,
            closing: false,
            poisoned: None,
            tapped: None,
            counters: LogCounters::default(),
            batches: Histogram::default(),
            flushes_us: Histogram::default(),
        }
    }

    /// Goes on behind another log too, which vanishes some day: how far its versions and its time have
    /// gone is told by a contents frame then, and every segment begins with one from now on.
    pub fn inherit(&mut self, other: &History, time_ms: u64) {
        assert!(self.segment.is_none(), "before anything is appended");
        let own = &mut self.history;
        let mut is_told = other.epoch_max <= own.epoch_max && time_ms <= self.time_ms;
        for partition in 0..PARTITIONS {
            is_told &= other.last(partition) <= own.last(partition);
            own.raise(partition, other.last(partition));
        }
        own.epoch_max = own.epoch_max.max(other.epoch_max);
        // Nothing tells when it vanishes, so what is only there counts as gone.
        own.forget(&other.sequences);
        own.forget(&other.forgotten);
        own.has_released = true;
        own.is_linked |= other.is_linked;
        self.time_ms = self.time_ms.max(time_ms);
        self.owes_contents |= !is_told;
    }

    /// A value of another log was left out, because it had expired by the time that the log carries: a
    /// contents frame is to tell this time, or a start without that log might be before it.
    pub fn owe_contents(&mut self) {
        self.owes_contents = true;
    }

    /// Whether what was taken over by [`Log::inherit`], or the time of what was left out, would be forgotten
    /// with the other logs.
    #[must_use]
    pub fn owes_contents(&self) -> bool {
        self.owes_contents || self.writes.iter().any(|write| write.tells_owed)
    }

    /// Whether a record of `bytes`, at most `record_bytes_max`, can be appended now; opens a frame
    /// or a segment if need be. The answer holds until anything else is asked of the log.
    #[inline]
    pub fn room(&mut self, purpose: Purpose, bytes: usize) -> Room {
        if self.is_kept_back(purpose) {
            return self.no_room(purpose);
        }
        match &self.open {
            Some(open) if bytes <= open.body_bytes_max - open.body_bytes => Room::Yes,
            _ => self.make_room(purpose, bytes),
        }
    }

    /// Whether what is left of the log is kept back from a record of this purpose. The last spare
    /// belongs to cleaning: it needs at most one segment before it gives one back, and room in it to
    /// tell so. Without it the log would be stuck for good.
    fn is_kept_back(&self, purpose: Purpose) -> bool {
        let is_needed = self.spares.is_empty() && self.segment.is_some();
        match purpose {
            Purpose::Clean | Purpose::Relieve => false,
            _ if is_planted(Bug::NoReserve) || !self.keeps_reserve => false,
            Purpose::Keep => is_needed,
            Purpose::Grow => is_needed || (self.is_low() && (self.is_full || !self.is_judged)),
        }
    }

    /// What to say when there is none: wait while room may come. What would grow is refused at once
    /// when the log is full; what makes room, or takes none, when cleaning cannot help either.
    fn no_room(&mut self, purpose: Purpose) -> Room {
        match purpose {
            _ if !self.spare_refused => Room::Wait,
            // Nobody cleans a log that keeps no reserve.
            Purpose::Grow if self.is_full || !self.keeps_reserve => Room::Full,
            Purpose::Grow => {
                self.is_stuck |= self.is_judged && !self.is_room_coming();
                Room::Wait
            }
            Purpose::Keep | Purpose::Relieve if self.is_room_coming() => Room::Wait,
            Purpose::Keep | Purpose::Relieve => {
                self.has_refused = true;
                Room::Full
            }
            Purpose::Clean => Room::Wait,
        }
    }

    /// Whether a segment comes back by itself: cleaning gives one, or has given one that is on its way.
    pub(crate) fn is_room_coming(&self) -> bool {
        // A release is told in what is left of the segment, or in the next one.
        let tells = self.is_releasing() && (self.fits_contents() || !self.spares.is_empty());
        self.relief_comes || tells || self.is_segment_returning()
    }

    /// Whether a segment was given back, and what became of its room is not told yet.
    pub(crate) fn is_segment_returning(&self) -> bool {
        let told = || self.writes.iter().any(|write| !write.releases.is_empty());
        self.room_returns || !self.removable.is_empty() || told()
    }

    /// Appends a record for which [`Log::room`] said yes, and tells where its parts stand. Its
    /// frame is sealed within the interval even if nobody waits for it.
    #[inline]
    pub fn append(
        &mut self,
        now_us: u64,
        record: &RecordSpec<'_>,
        places: &mut [Place; PARTS_MAX],
    ) -> Lsn {
        let open = self.open.as_mut().expect("room() opened a frame");
        let segment = self
            .segment
            .as_mut()
            .expect("an open frame stands in a segment");
        let body = &mut open.block.bytes_mut()
            [FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + open.body_bytes_max];
        assert!(
            (1..=PARTS_MAX).contains(&record.parts.len()),
            "{} parts",
            record.parts.len()
        );
        if open.record_count == 0 || is_planted(Bug::RestartInterval) {
            self.interval_end_us = now_us + self.config.interval_us;
        }
        let before = open.body_bytes;
        let version = Version {
            epoch: record.epoch,
            sequence: record.sequence,
        };
        let is_local = is_local(record.parts[0].key);
        match is_local {
            true => self.history.is_linked = true,
            false => {
                let partition = partition_of(record.slot);
                self.history.note(partition, version);
                self.history.reached.note(partition, version.sequence);
            }
        }
        for (ordinal, place) in places.iter_mut().enumerate().take(record.parts.len()) {
            let bytes = record.encode_part(ordinal, &mut body[open.body_bytes..]);
            let offset = segment.end_offset + (FRAME_HEADER_BYTES + open.body_bytes) as u64;
            *place = Place::new(segment.file, offset, bytes);
            open.body_bytes += bytes;
            let tombstone = record.parts[ordinal].kind == PartKind::Tombstone;
            if !is_local {
                let (epoch, sequence) = (version.epoch, version.sequence);
                segment
                    .summary
                    .note(record.slot, epoch, sequence, offset, tombstone);
            }
        }
        open.record_count += 1;
        open.has_commits = true;
        self.appended.0 += 1;
        self.active_us = now_us;
        self.time_ms = self.time_ms.max(record.time_ms);
        self.counters.records += 1;
        self.counters.record_bytes += (open.body_bytes - before) as u64;
        self.appended
    }

    /// Appends a copy of a part that stands in a sealed segment, as a record of its own with the
    /// version it has. [`Log::room`] must have said yes to its length for [`Purpose::Clean`]. `moved`
    /// may make a tombstone of a put that has expired; `is_crowded` as for [`PartView::encode_moved`].
    pub fn append_moved(
        &mut self,
        now_us: u64,
        part: &PartView<'_>,
        moved: Moved,
        is_crowded: bool,
    ) -> (Lsn, Place) {
        let open = self.open.as_mut().expect("room() opened a frame");
        let segment = self
            .segment
            .as_mut()
            .expect("an open frame stands in a segment");
        let body = &mut open.block.bytes_mut()
            [FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + open.body_bytes_max];
        if open.record_count == 0 {
            self.interval_end_us = now_us + self.config.interval_us;
        }
        let (kind, bytes) = match moved {
            Moved::As(kind) => (
                kind,
                part.encode_moved(kind, is_crowded, &mut body[open.body_bytes..]),
            ),
            Moved::Deletion => (
                part.kind(),
                part.encode_deletion(is_crowded, &mut body[open.body_bytes..]),
            ),
            Moved::Superseded(successor) => (
                part.kind(),
                part.encode_superseded(successor, is_crowded, &mut body[open.body_bytes..]),
            ),
        };
        let offset = segment.end_offset + (FRAME_HEADER_BYTES + open.body_bytes) as u64;
        let place = Place::new(segment.file, offset, bytes);
        let is_tombstone = kind == PartKind::Tombstone;
        let (slot, epoch, sequence) = (part.slot(), part.epoch(), part.sequence());
        if !is_local(part.key()) {
            segment
                .summary
                .note(slot, epoch, sequence, place.offset, is_tombstone);
        }
        open.body_bytes += bytes;
        open.record_count += 1;
        self.appended.0 += 1;
        self.counters.records += 1;
        self.counters.record_bytes += bytes as u64;
        self.counters.moved_records += 1;
        self.counters.moved_bytes += bytes as u64;
        (self.appended, place)
    }

    /// Somebody waits for `lsn`: its frame is written as soon as one may be.
    #[inline]
    pub fn want_durable(&mut self, lsn: Lsn) {
        self.wanted = self.wanted.max(lsn);
    }

    /// Everything up to this record survives a crash from now on.
    #[inline]
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// Where that ends on the disk: whoever copies the segments up to there has all that survives.
    #[must_use]
    pub fn durable_end(&self) -> DurableEnd {
        let (segment_sequence, end_offset) = self.durable_end;
        DurableEnd {
            log_id: self.config.log_id,
            lsn: self.durable,
            segment_sequence,
            end_offset,
        }
    }

    /// Where the frame of the last durable record ends, or a later one of its segment.
    #[must_use]
    pub fn position(&self) -> Option<LogPosition> {
        self.position
    }

    /// What it holds before its open segment, and how far versions have gone.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The last record appended.
    #[inline]
    #[must_use]
    pub fn appended(&self) -> Lsn {
        self.appended
    }

    /// The end of the loop's turn: seals and emits what may go now.
    pub fn pump(&mut self, now_us: u64, io: &mut Vec<Io<P::Block>>) {
        if self.poisoned.is_some() {
            return;
        }
        if self.is_releasing() && (self.is_low() || self.is_tight) && !self.closing {
            self.release_within();
        }
        self.emit_waiting(now_us, io);
        if self.may_seal() {
            let interval_over = now_us >= self.interval_end_us;
            if self.wanted > self.sealed || interval_over || self.closing {
                self.seal_open();
                self.emit_waiting(now_us, io);
            }
        } else if self.writes.is_empty() {
            self.rest(now_us, io);
        }
        self.emit_sync(io);
        self.invariants();
    }

    /// When [`Log::pump`] is to be called at the latest.
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        if self.poisoned.is_some() {
            None
        } else if self.may_seal() {
            Some(self.interval_end_us)
        } else {
            // With writes under way the next completion is what pump has to wait for.
            let must_rest = self.writes.is_empty()
                && match self.segment {
                    Some(_) => {
                        self.closing
                            || self.durable > self.recorded_durable
                            || self.is_releasing()
                            || self.owes_contents
                    }
                    None => self.must_prove_start(),
                };
            must_rest.then(|| self.active_us + self.config.idle_mark_us)
        }
    }

    /// The end of one of the log's writes or syncs.
    ///
    /// # Errors
    /// [`Poisoned`] if it failed, now or earlier: the owner must stop acknowledging and exit.
    pub fn completed(
        &mut self,
        now_us: u64,
        completion: Completion<P::Block>,
    ) -> Result<(), Poisoned> {
        if let Some(poisoned) = self.poisoned {
            return Err(poisoned);
        }
        let number = completion.token.0 & !(LOG_TOKEN_BIT | SYNC_TOKEN_BIT);
        let index = usize::try_from(number - self.front_token).expect("a token of this log");
        let write = &mut self.writes[index];
        if let Err(failure) = completion.result
            && !is_planted(Bug::IgnoreWriteError)
        {
            let poisoned = Poisoned {
                failure,
                file: write.file,
                offset: write.offset,
            };
            self.poisoned = Some(poisoned);
            return Err(poisoned);
        }
        self.active_us = now_us;
        if completion.token.0 & SYNC_TOKEN_BIT != 0 {
            self.sync_under_way = false;
            for write in self.writes.iter_mut().filter(|write| {
                write.progress == Progress::Syncing
                    || (write.progress == Progress::Written && is_planted(Bug::SyncCoversLater))
            }) {
                write.progress = Progress::Durable;
                self.under_way -= 1;
                self.flushes_us
                    .add(now_us.saturating_sub(write.emitted_us), 1);
            }
        } else {
            assert_eq!(write.progress, Progress::UnderWay, "a write completes once");
            match self.config.sync {
                SyncMethod::DurableWrite => {
                    write.progress = Progress::Durable;
                    self.under_way -= 1;
                    self.flushes_us
                        .add(now_us.saturating_sub(write.emitted_us), 1);
                    if is_planted(Bug::DurablePastGap) {
                        self.durable = self.durable.max(write.last_lsn);
                    }
                }
                SyncMethod::WriteThenSync if is_planted(Bug::SkipFlush) => {
                    write.progress = Progress::Durable;
                    self.under_way -= 1;
                }
                SyncMethod::WriteThenSync => write.progress = Progress::Written,
            }
        }
        self.advance();
        Ok(())
    }

    /// Begins with short segments that grow with the log up to `most_bytes`. Asked for before the first one is used.
    pub fn grow_segments(&mut self, most_bytes: u64) {
        assert!(self.segment.is_none(), "before anything is appended");
        let segments = self.history.segments.iter();
        let longest_bytes = segments.map(|it| it.file_bytes).max().unwrap_or(0);
        let whole_bytes = self
            .config
            .segment_bytes_min()
            .next_multiple_of(BLOCK_BYTES as u64);
        let first_bytes = self.config.segment_bytes_first();
        self.growth = Some(Growth::new(
            first_bytes,
            whole_bytes,
            most_bytes,
            longest_bytes,
        ));
    }

    /// Bytes of the spares that are wanted: `usual_bytes`, if the log does not begin with short ones.
    #[must_use]
    pub fn spare_bytes_wanted(&self, usual_bytes: u64) -> u64 {
        let growth = self.growth.as_ref();
        growth.map_or(usual_bytes, |growth| growth.next_bytes().min(usual_bytes))
    }

    /// Spare segments that somebody should prepare now.
    #[must_use]
    pub fn spares_wanted(&self) -> usize {
        let is_new = self.growth.is_some() && self.history.segments.is_empty();
        // The first one before the others: another log may have none yet.
        match self.segment.is_none() && self.spares.is_empty() {
            true => 1,
            // Nothing can be cleaned yet.
            false if is_new => (SPARES_READY - 1).saturating_sub(self.spares.len()),
            false => SPARES_READY.saturating_sub(self.spares.len()),
        }
    }

    /// Has all spares from now on be long enough for the longest record, and gives those back that are not.
    fn leave_short_segments(&mut self) {
        let Some(growth) = &mut self.growth else {
            return;
        };
        growth.needs_whole();
        let spares = std::mem::take(&mut self.spares).into_iter();
        let (long, short): (VecDeque<_>, VecDeque<_>) =
            spares.partition(|spare| growth.takes(spare.bytes));
        self.spares = long;
        self.removable
            .extend(short.into_iter().map(|spare| spare.file));
    }

    /// Whether a segment could be begun at once.
    #[must_use]
    pub fn has_spares(&self) -> bool {
        !self.spares.is_empty()
    }

    /// A zero-written file is ready; its length `bytes` is [`LogConfig::segment_bytes_min`] to
    /// [`SEGMENT_BYTES_MAX`], its `salt` was never used before.
    pub fn add_spare(&mut self, file: FileId, salt: u64, bytes: u64) {
        self.add(file, salt, bytes, false);
    }

    /// Likewise, but a file that served before, with a [`SpareHeader`] of this `salt` in its first and its
    /// last block.
    ///
    /// [`SpareHeader`]: crate::format::spare::SpareHeader
    pub fn add_reused_spare(&mut self, file: FileId, salt: u64, bytes: u64) {
        self.add(file, salt, bytes, true);
    }

    fn add(&mut self, file: FileId, salt: u64, bytes: u64, is_reused: bool) {
        assert!(
            (1..FILES_MAX).contains(&file.0),
            "file number {} is not 1 to {}",
            file.0,
            FILES_MAX - 1
        );
        let least_bytes = match self.growth {
            Some(_) => self
                .config
                .segment_bytes_first()
                .min(self.config.segment_bytes_min()),
            None => self.config.segment_bytes_min(),
        };
        assert!(
            (least_bytes..=SEGMENT_BYTES_MAX).contains(&bytes),
            "a segment of {bytes} bytes"
        );
        if self
            .growth
            .as_ref()
            .is_some_and(|growth| !growth.takes(bytes))
        {
            // It was asked for before a long record came.
            self.removable.push(file);
            return;
        }
        self.spares.push_back(Spare {
            file,
            salt,
            bytes,
            is_reused,
        });
        self.room_returns = false;
        self.spare_refused &= self.spares.len() < SPARES_READY;
    }

    /// No spare can be had for lack of space.
    pub fn spare_refused(&mut self) {
        self.is_judged &= self.is_low();
        self.spare_refused = true;
        self.room_returns = false;
    }

    /// The segments before the open one, ascending. All of them are sealed, not all durable.
    #[must_use]
    pub fn sealed_segments(&self) -> &[SealedSegment] {
        &self.history.segments
    }

    /// Keeps a copy of each frame of records that is sealed from now on, until [`Log::take_sealed`]. Whoever
    /// asks for that must take them in every turn: nothing else bounds them.
    pub fn tap(&mut self) {
        self.tapped.get_or_insert_default();
    }

    /// The next frame that was sealed.
    pub fn take_sealed(&mut self) -> Option<SealedFrame> {
        self.tapped.as_mut()?.pop_front()
    }

    /// The segment with the first durable record behind `behind` that is still there, or one before it that
    /// holds none; `None` if there is none. Only segments behind the one of the sequence `after` count.
    #[must_use]
    pub fn durable_segment_behind(&self, behind: Lsn, after: u64) -> Option<DurableSegment> {
        if behind >= self.durable {
            return None;
        }
        let (sequence, end_offset) = self.durable_end;
        let segments = &self.history.segments;
        let is_passed = |segment: &SealedSegment| {
            segment.end.last_lsn <= behind || segment.end.sequence <= after
        };
        let at = segments.partition_point(is_passed);
        let (file, home, sealed_end) = match (segments.get(at), &self.segment) {
            (Some(segment), _) => (
                segment.file,
                self.home_of(segment),
                Some(segment.end.end_offset),
            ),
            (None, Some(open)) if open.header.sequence > after => {
                (open.file, open.header.home(), None)
            }
            (None, _) => return None,
        };
        let end_offset = match home.segment_sequence.cmp(&sequence) {
            Ordering::Less => sealed_end?,
            Ordering::Equal => end_offset,
            Ordering::Greater => return None,
        };
        Some(DurableSegment {
            file,
            home,
            end_offset,
            is_whole: sealed_end == Some(end_offset),
        })
    }

    /// What the frames of a sealed segment are checked by.
    #[must_use]
    pub fn home_of(&self, segment: &SealedSegment) -> FrameHome {
        FrameHome {
            log_id: self.config.log_id,
            segment_sequence: segment.end.sequence,
            salt: segment.salt,
        }
    }

    /// Bytes of copies that the log can surely take before a spare comes: in the open segment or, if
    /// that is more, in the last spare. Frames that are filled up, and what tells the release, are
    /// left out.
    #[must_use]
    pub fn sure_bytes(&self) -> u64 {
        let list = padded_bytes(self.history.body_bytes() + CONTENTS_ENTRY_BYTES) as u64;
        let open = self.open_segment_bytes_left().saturating_sub(list);
        self.copies_within(open).max(self.sure_bytes_of_spare())
    }

    /// The same of the next spare alone.
    #[must_use]
    pub fn sure_bytes_of_spare(&self) -> u64 {
        let list = padded_bytes(self.history.body_bytes() + CONTENTS_ENTRY_BYTES) as u64;
        let taken = BLOCK_BYTES as u64 + SEGMENT_TAIL_BYTES + 2 * list;
        let spare = self.spares.front().map_or(0, |spare| spare.bytes);
        self.copies_within(spare.saturating_sub(taken))
    }

    /// Bytes of copies that so much room takes: a part that does not fit any more leaves the rest of its
    /// frame empty.
    fn copies_within(&self, bytes: u64) -> u64 {
        if self.config.frame_bytes >= 64 << 10 {
            bytes / 8 * 7
        } else {
            bytes / 2
        }
    }

    /// The file of the open segment and its length.
    #[must_use]
    pub fn open_segment(&self) -> Option<(FileId, u64)> {
        let segment = self.segment.as_ref()?;
        Some((segment.file, segment.header.segment_bytes))
    }

    /// Seals the open segment before it is full, so that it can be cleaned, even if that takes the
    /// last spare. Whether that was done.
    pub fn seal_for_cleaning(&mut self) -> bool {
        let may = !self.spares.is_empty()
            && self.segment.is_some()
            && !self.closing
            && self.poisoned.is_none()
            && self.writes.len() < self.config.frames_sealed_max;
        if may {
            self.seal_open();
        }
        may && self.rotate() == Room::Yes
    }

    /// Whether fewer spares are there than should be.
    #[must_use]
    pub fn lacks_spares(&self) -> bool {
        self.spares.len() < SPARES_READY
    }

    /// Whether a spare was asked for that has neither come nor been refused.
    #[must_use]
    pub fn awaits_spare(&self) -> bool {
        self.lacks_spares() && !self.spare_refused
    }

    /// How many segments the log may have, so that a list of them fills at most a quarter of one.
    #[must_use]
    pub fn segments_max(&self) -> usize {
        let Some(spare) = self.spares.front().filter(|_| self.history.has_released) else {
            return SEGMENTS_MAX;
        };
        let fixed = self.history.body_bytes() - self.history.segments.len() * CONTENTS_ENTRY_BYTES;
        let list_bytes = usize::try_from(spare.bytes / 4).unwrap_or(usize::MAX);
        (list_bytes.saturating_sub(FRAME_HEADER_BYTES + fixed) / CONTENTS_ENTRY_BYTES)
            .min(SEGMENTS_MAX)
    }

    /// Whether the log has as many segments as it may have but for those that cleaning needs to make
    /// fewer of them.
    #[must_use]
    pub fn has_most_segments(&self) -> bool {
        let most = self.segments_max();
        self.history.segments.len() >= most - most / 8
    }

    /// Bytes that may still be appended to the open segment, about.
    #[must_use]
    pub fn open_segment_bytes_left(&self) -> u64 {
        self.segment.as_ref().map_or(0, |segment| {
            let taken = segment.end_offset + SEGMENT_TAIL_BYTES;
            let open = self.open.as_ref().map_or(0, |open| open.body_bytes as u64);
            segment.header.segment_bytes.saturating_sub(taken + open)
        })
    }

    /// The newest time that this run has stamped on a record, or carried.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// Something is about to be left out of the log because of the time: what tells so carries this
    /// time, so that no start is in a time before it.
    pub fn carry_time(&mut self, time_ms: u64) {
        self.time_ms = self.time_ms.max(time_ms);
    }

    /// Whether cleaning has something to do or to release, so that room comes back by itself.
    pub fn expect_relief(&mut self, relief_comes: bool) {
        self.relief_comes = relief_comes;
    }

    /// Whether no more segments can be had beside those that are there, or soon. A release is told at once then, so
    /// that the file is back before it is needed.
    pub(crate) fn set_tight(&mut self, is_tight: bool) {
        self.is_tight = is_tight;
    }

    /// Whether a write waits for [`Log::set_full`]: it found no room, or nobody judged since a spare was refused.
    pub(crate) fn wants_judgement(&self) -> bool {
        self.is_stuck || !self.is_judged
    }

    /// Whether what grows the store found no room since this was asked last, and nothing came.
    pub(crate) fn take_stuck(&mut self) -> bool {
        std::mem::take(&mut self.is_stuck)
    }

    /// Whether what grows the store is to be refused from now on while spares are lacking.
    pub(crate) fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
        self.is_judged = true;
    }

    /// Whether what grows the store is refused: too much of the log counts for what it may take of the disk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full && self.keeps_reserve
    }

    /// Bytes that can be appended before another segment comes, the last spare left out.
    pub(crate) fn headroom_bytes(&self) -> u64 {
        let spares = self.spares.iter().rev().skip(1);
        self.open_segment_bytes_left() + spares.map(|spare| spare.bytes).sum::<u64>()
    }

    /// Bytes of the longest among the last sealed segment, the open one and the spares.
    pub(crate) fn longest_segment_bytes(&self) -> u64 {
        let sealed = self
            .sealed_segments()
            .iter()
            .next_back()
            .map(|it| it.file_bytes);
        let open = self.open_segment().map(|(_, bytes)| bytes);
        let spares = self.spares.iter().map(|spare| spare.bytes);
        spares.chain(sealed).chain(open).max().unwrap_or(0)
    }

    /// Bytes of spares.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spares.iter().map(|spare| spare.bytes).sum()
    }

    /// Whether a deletion or an edit was refused as FULL since the last call.
    pub(crate) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.has_refused)
    }

    /// Whether no more spares can be had and the last ones are kept back.
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.spare_refused && self.spares.len() < SPARES_READY
    }

    /// Whether it has no spare at all and none of the usual length can be had: even a short one, of
    /// [`LogConfig::segment_bytes_min`], is welcome then, because it takes what tells a release.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.spare_refused && self.spares.is_empty()
    }

    /// Its fixed properties.
    #[must_use]
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Nothing in this sealed segment counts any more: whatever of it was still needed is appended
    /// elsewhere. Its file may be removed as soon as [`Log::take_removable`] tells it, when the log
    /// itself tells durably that the segment is gone, and with that all that was appended before.
    /// `highest` is how far the records of each partition in it went, copies left out.
    pub fn release(&mut self, sequence: u64, highest: &Sequences) {
        let by_sequence = |segment: &SealedSegment| segment.end.sequence.cmp(&sequence);
        let found = self.history.segments.binary_search_by(by_sequence);
        let segment = self
            .history
            .segments
            .remove(found.expect("only a sealed segment is released, once"));
        self.history.has_released = true;
        self.history.forget(highest);
        self.counters.released += 1;
        match is_planted(Bug::RemoveBeforeTold) {
            true => self.removable.push(segment.file),
            false => self.releasing.push(segment.file),
        }
    }

    /// Whether a release waits for a contents frame to tell it.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        !self.releasing.is_empty()
    }

    /// The next file that may be removed.
    pub fn take_removable(&mut self) -> Option<FileId> {
        let file = self.removable.pop()?;
        self.room_returns = true;
        Some(file)
    }

    /// A clean stop: everything appended is written, then the summary of the segment. No record
    /// may be appended any more.
    pub fn close(&mut self) {
        self.closing = true;
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.record_count == 0 || is_planted(Bug::CloseOnOpenFrame))
        {
            self.open = None;
        }
    }

    /// Whether a clean stop is complete and durable.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closing && self.writes.is_empty() && self.segment.is_none()
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> LogCounters {
        self.counters
    }

    /// How many records the frames hold that hold a commit.
    #[must_use]
    pub fn batches(&self) -> &Histogram {
        &self.batches
    }

    /// How long writes took until the device had them for good, in microseconds.
    #[must_use]
    pub fn flushes_us(&self) -> &Histogram {
        &self.flushes_us
    }

    /// Writes emitted and not durable, and the sync under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.under_way + usize::from(self.sync_under_way)
    }

    /// Whether the open frame holds something and may be written now.
    fn may_seal(&self) -> bool {
        let holds_records = self.open.as_ref().is_some_and(|open| open.record_count > 0);
        holds_records && self.waiting == 0 && self.under_way < self.config.frames_in_flight_max
    }

    #[cold]
    fn make_room(&mut self, purpose: Purpose, bytes: usize) -> Room {
        assert!(
            bytes <= self.config.record_bytes_max,
            "a record of {bytes} bytes"
        );
        if self.poisoned.is_some() || self.closing {
            return Room::Wait;
        }
        if self.open.is_some() {
            if self.writes.len() >= self.config.frames_sealed_max {
                return Room::Wait;
            }
            self.seal_open();
        }
        let block_bytes = padded_bytes(bytes).max(self.config.frame_bytes);
        let is_long = block_bytes > self.config.frame_bytes;
        if is_long
            && self
                .growth
                .as_ref()
                .is_some_and(|growth| !growth.is_whole())
        {
            // The last spares of a full disk, short as they are, are left to what makes room.
            if self.is_low() && purpose != Purpose::Clean {
                return self.no_room(purpose);
            }
            self.leave_short_segments();
        }
        // With no other segment behind it, this one must take what tells a release.
        let telling_bytes = match self.spares.is_empty() && self.keeps_reserve {
            true => padded_bytes(self.history.body_bytes()) as u64,
            false => 0,
        };
        // The last frame of a segment takes what is left, if that is worth a write.
        let short_bytes = padded_bytes(bytes).max(self.config.frame_bytes / SHORT_FRAME_SHARE);
        let frame_within = |segment: &OpenSegment| {
            let tail_bytes = match is_planted(Bug::SegmentEndOffByOne) {
                true => 0,
                false => SEGMENT_TAIL_BYTES,
            };
            let taken = segment.end_offset + tail_bytes + telling_bytes;
            let left = segment.header.segment_bytes.saturating_sub(taken);
            let left = usize::try_from(left).expect("a segment has at most 1 GiB");
            let frame_bytes = block_bytes.min(left - left % BLOCK_BYTES);
            (frame_bytes >= short_bytes).then_some(frame_bytes)
        };
        let mut frame_bytes = self.segment.as_ref().and_then(frame_within);
        if frame_bytes.is_none() {
            let needed = match purpose {
                Purpose::Clean | Purpose::Relieve => 1,
                _ if self.segment.is_none() || !self.keeps_reserve => 1,
                _ if is_planted(Bug::NoReserve) => 1,
                Purpose::Keep | Purpose::Grow => SPARES_TO_ROTATE,
            };
            if self.spares.len() < needed {
                return self.no_room(purpose);
            }
            let is_kept_back = matches!(purpose, Purpose::Keep | Purpose::Grow);
            if self.has_most_segments() && is_kept_back && self.keeps_reserve {
                return match self.relief_comes || self.is_releasing() {
                    true => Room::Wait,
                    false => Room::Full,
                };
            }
            let room = self.rotate();
            if room != Room::Yes {
                return room;
            }
            frame_bytes = Some(block_bytes);
        }
        let Some(block) = self.blocks.take(block_bytes) else {
            return Room::Wait;
        };
        let body_bytes_max = frame_bytes.expect("found above") - FRAME_HEADER_BYTES;
        self.open = Some(OpenFrame {
            block,
            body_bytes: 0,
            body_bytes_max,
            record_count: 0,
            has_commits: false,
        });
        Room::Yes
    }

    /// Seals the segment with its summary and takes the next spare into use.
    fn rotate(&mut self) -> Room {
        assert!(!self.spares.is_empty(), "a spare is asked for before");
        if self.history.segments.len() >= self.segments_max() {
            return match self.keeps_reserve {
                true => Room::Wait,
                false => Room::Full,
            };
        }
        let Some(mut block) = self.blocks.take(BLOCK_BYTES) else {
            return Room::Wait;
        };
        let contents = if self.history.has_released {
            // The segment that is sealed now is one of them.
            let body_bytes = self.history.body_bytes() + CONTENTS_ENTRY_BYTES;
            let Some(block) = self.blocks.take(padded_bytes(body_bytes)) else {
                return Room::Wait;
            };
            Some(block)
        } else {
            None
        };
        if self.segment.is_some() && !self.seal_segment() {
            return Room::Wait;
        }
        let spare = self.spares.pop_front().expect("checked above");
        let header = SegmentHeader {
            owner: self.config.owner,
            incarnation: self.config.incarnation,
            log_id: self.config.log_id,
            stream: 0,
            is_reused: spare.is_reused,
            sequence: self.before.last_sequence + 1,
            salt: spare.salt,
            first_lsn: Lsn(self.appended.0 + 1),
            previous_sequence: self.before.last_sequence,
            previous_end_offset: self.before.end_offset,
            previous_end_lsn: self.before.last_lsn,
            segment_bytes: spare.bytes,
            created_ms: self.time_ms,
        };
        header.encode(
            block
                .bytes_mut()
                .first_chunk_mut()
                .expect("blocks have at least one unit"),
        );
        self.push_write(spare.file, 0, block, BLOCK_BYTES, None);
        self.segment = Some(OpenSegment {
            header,
            file: spare.file,
            end_offset: BLOCK_BYTES as u64,
            summary: Summary::new(),
        });
        self.counters.segments += 1;
        if let Some(growth) = &mut self.growth {
            let sealed = self.history.segments.iter();
            growth.begins(self.active_us, sealed.map(|it| it.file_bytes).sum());
        }
        if let Some(block) = contents {
            self.push_contents(block);
        }
        Room::Yes
    }

    /// Ends the open segment with its summary. `false` if no block is free now.
    fn seal_segment(&mut self) -> bool {
        assert!(self.open.is_none(), "a segment is sealed between frames");
        let segment = self.segment.as_ref().expect("the caller checked");
        let Some(mut block) = self.blocks.take(SUMMARY_BYTES_MAX) else {
            return false;
        };
        let body_bytes = segment
            .summary
            .encode(&mut block.bytes_mut()[FRAME_HEADER_BYTES..]);
        self.push_frame(FrameKind::Summary, block, body_bytes, 0);
        let segment = self.segment.take().expect("the caller checked");
        self.history.segments.push(SealedSegment {
            file: segment.file,
            salt: segment.header.salt,
            file_bytes: segment.header.segment_bytes,
            end: SegmentEnd {
                sequence: segment.header.sequence,
                end_offset: segment.end_offset,
                last_lsn: self.appended,
            },
        });
        self.history.reached.segment_ends(self.appended);
        self.before = LogStart {
            last_sequence: segment.header.sequence,
            end_offset: segment.end_offset,
            last_lsn: self.appended,
            is_unproven: false,
        };
        true
    }

    fn seal_open(&mut self) {
        let Some(open) = self.open.take() else { return };
        if open.record_count == 0 {
            return;
        }
        self.counters.frames += 1;
        if open.has_commits {
            self.batches.add(u64::from(open.record_count), 1);
            self.counters.commit_bytes += padded_bytes(open.body_bytes) as u64;
        }
        self.push_frame(
            FrameKind::Commit,
            open.block,
            open.body_bytes,
            open.record_count,
        );
    }

    fn push_frame(
        &mut self,
        kind: FrameKind,
        mut block: P::Block,
        body_bytes: usize,
        record_count: u32,
    ) {
        let segment = self.segment.as_mut().expect("frames stand in a segment");
        let header = FrameHeader {
            kind,
            offset: segment.end_offset,
            first_lsn: Lsn(self.sealed.0 + 1),
            durable_lsn: self.durable,
            record_count,
            body_bytes: u32::try_from(body_bytes).expect("a frame is bounded by the record limits"),
            time_ms: self.time_ms,
        };
        let home = segment.header.home();
        if let Some(tapped) = &mut self.tapped
            && record_count > 0
        {
            tapped.push_back(SealedFrame {
                first: header.first_lsn,
                bytes: block.bytes()[FRAME_HEADER_BYTES..][..body_bytes].to_vec(),
            });
        }
        header.seal(home, block.bytes_mut());
        let (file, offset, len) = (segment.file, segment.end_offset, header.padded_bytes());
        segment.end_offset += len as u64;
        self.counters.padding_bytes += (len - FRAME_HEADER_BYTES - body_bytes) as u64;
        self.sealed.0 += u64::from(record_count);
        self.push_write(file, offset, block, len, Some((home, kind)));
    }

    fn push_write(
        &mut self,
        file: FileId,
        offset: u64,
        block: P::Block,
        len: usize,
        frame: Option<(FrameHome, FrameKind)>,
    ) {
        self.counters.device_bytes += len as u64;
        self.waiting += 1;
        self.writes.push_back(Write {
            progress: Progress::Waiting,
            file,
            offset,
            len: u32::try_from(len).expect("a frame is bounded by the record limits"),
            block: Some(block),
            last_lsn: self.sealed,
            frame,
            told: Lsn(0),
            emitted_us: 0,
            releases: Vec::new(),
            tells_owed: false,
        });
    }

    /// Tells in the open segment which ones are before it.
    fn push_contents(&mut self, mut block: P::Block) {
        let body = &mut block.bytes_mut()[FRAME_HEADER_BYTES..];
        let body_bytes = self.history.encode(body);
        self.push_frame(FrameKind::Contents, block, body_bytes, 0);
        let releases = std::mem::take(&mut self.releasing);
        let write = self.writes.back_mut().expect("just pushed");
        write.releases = releases;
        write.tells_owed = std::mem::take(&mut self.owes_contents);
    }

    /// Whether the open segment has room to tell which ones are before it.
    fn fits_contents(&self) -> bool {
        let open = self.open.as_ref();
        let open_bytes = open.map_or(0, |open| padded_bytes(open.body_bytes)) as u64;
        let contents_bytes = padded_bytes(self.history.body_bytes()) as u64;
        self.segment.as_ref().is_some_and(|segment| {
            let taken = segment.end_offset + open_bytes + contents_bytes;
            taken + SEGMENT_TAIL_BYTES <= segment.header.segment_bytes
        })
    }

    /// Tells releases that are not to wait until the log needs another segment.
    fn release_within(&mut self) {
        if !self.fits_contents() {
            // A new segment begins with what is to be told, and gives back more than it takes.
            self.seal_open();
            if !self.spares.is_empty() {
                self.rotate();
            }
            return;
        }
        let body_bytes = self.history.body_bytes();
        if let Some(block) = self.blocks.take(padded_bytes(body_bytes)) {
            // A frame that was opened and never used gives its place.
            self.seal_open();
            self.push_contents(block);
        }
    }

    fn emit_waiting(&mut self, now_us: u64, io: &mut Vec<Io<P::Block>>) {
        let durable = self.config.sync == SyncMethod::DurableWrite && !is_planted(Bug::SkipFlush);
        while self.waiting > 0 && self.under_way < self.config.frames_in_flight_max {
            let index = self.writes.len() - self.waiting;
            if index > 0
                && !is_planted(Bug::HeaderTooEarly)
                && (self.writes[index].is_alone() || self.writes[0].is_alone())
            {
                return;
            }
            let write = &mut self.writes[index];
            let mut block = write.block.take().expect("a waiting write owns its block");
            // It may have been sealed long ago. What goes to the disk after a record was durable
            // proves it, should the record be found damaged.
            if let Some((home, _)) = write.frame {
                let told = match is_planted(Bug::TellWritten) {
                    true => self.written,
                    false => self.durable,
                };
                FrameHeader::tell_durable(home, block.bytes_mut(), told);
                write.told = told;
                self.recorded_durable = self.durable;
            }
            write.progress = Progress::UnderWay;
            write.emitted_us = now_us;
            self.waiting -= 1;
            self.under_way += 1;
            self.counters.flushes += u64::from(durable);
            let token = IoToken(LOG_TOKEN_BIT | (self.front_token + index as u64));
            io.push(Io::Write {
                token,
                file: write.file,
                offset: write.offset,
                block,
                len: write.len,
                durable,
            });
        }
    }

    /// One sync for all writes that are done and not covered by a sync yet. They stand in one file:
    /// a segment header is under way alone.
    fn emit_sync(&mut self, io: &mut Vec<Io<P::Block>>) {
        if self.config.sync == SyncMethod::DurableWrite || self.sync_under_way {
            return;
        }
        let Some(first) = self
            .writes
            .iter()
            .position(|write| write.progress == Progress::Written)
        else {
            return;
        };
        let file = self.writes[first].file;
        for write in self
            .writes
            .iter_mut()
            .filter(|write| write.progress == Progress::Written)
        {
            assert!(write.file == file, "writes under way stand in one file");
            write.progress = Progress::Syncing;
        }
        self.sync_under_way = true;
        self.counters.flushes += 1;
        io.push(Io::Sync {
            token: IoToken(LOG_TOKEN_BIT | SYNC_TOKEN_BIT | (self.front_token + first as u64)),
            file,
        });
    }

    /// Nothing is under way and nothing waits: a mark after some idleness, or the end.
    fn rest(&mut self, now_us: u64, io: &mut Vec<Io<P::Block>>) {
        let Some(segment) = &self.segment else {
            if self.must_prove_start() && self.rotate() != Room::Yes {
                self.active_us = now_us;
            }
            self.emit_waiting(now_us, io);
            return;
        };
        let idle_long = now_us >= self.active_us + self.config.idle_mark_us;
        let idle = idle_long && self.durable > self.recorded_durable;
        if self.closing {
            if !self.seal_segment() {
                self.active_us = now_us;
            }
        } else if idle_long && (self.is_releasing() || self.owes_contents) {
            self.release_within();
            self.active_us = now_us;
        } else if idle {
            assert!(
                segment.end_offset + SEGMENT_TAIL_BYTES <= segment.header.segment_bytes,
                "a mark always has its place"
            );
            // A frame that was opened and never used gives its place to the mark.
            self.open = None;
            match self.blocks.take(BLOCK_BYTES) {
                Some(block) => {
                    self.counters.marks += 1;
                    self.push_frame(FrameKind::Mark, block, 0, 0);
                }
                None => self.active_us = now_us,
            }
        }
        self.emit_waiting(now_us, io);
    }

    /// Whether the next segment is wanted now, for the sake of what its first frames prove.
    fn must_prove_start(&self) -> bool {
        let has_news = self.before.is_unproven || self.owes_contents;
        has_news && !self.spares.is_empty() && !self.closing
    }

    /// Moves `written` and `durable` over the entries that are done, oldest first.
    fn advance(&mut self) {
        while let Some(write) = self.writes.front() {
            if write.progress != Progress::Durable {
                break;
            }
            self.durable = write.last_lsn;
            if let Some((home, _)) = write.frame {
                let end_offset = write.offset + u64::from(write.len);
                self.durable_end = (home.segment_sequence, end_offset);
            }
            if matches!(write.frame, Some((_, FrameKind::Contents))) {
                self.tells_released = true;
            }
            if let Some((home, _)) = write.frame
                && self.position.is_none_or(|position| {
                    // A segment counts from its first record on: without one its file may go.
                    position.sequence == home.segment_sequence || position.lsn < write.last_lsn
                })
            {
                self.position = Some(LogPosition {
                    sequence: home.segment_sequence,
                    file: write.file,
                    salt: home.salt,
                    offset: write.offset + u64::from(write.len),
                    lsn: write.last_lsn,
                    is_unproven: write.told < write.last_lsn,
                    has_released: self.tells_released,
                });
            }
            self.removable.extend_from_slice(&write.releases);
            self.writes.pop_front();
            self.front_token += 1;
        }
        self.written = self.written.max(self.durable);
        for write in &self.writes {
            if matches!(write.progress, Progress::Waiting | Progress::UnderWay) {
                break;
            }
            self.written = self.written.max(write.last_lsn);
        }
        self.invariants();
    }

    fn invariants(&self) {
        assert!(
            self.durable <= self.written
                && self.written <= self.sealed
                && self.sealed <= self.appended,
            "durable {:?} <= written {:?} <= sealed {:?} <= appended {:?}",
            self.durable,
            self.written,
            self.sealed,
            self.appended
        );
    }
}
