//! The group commit writer of one log.
//!
//! Records are encoded straight into the block of the open frame. A frame is sealed and written as
//! soon as fewer than `frames_in_flight_max` writes are under way and somebody waits for one of its
//! records; what arrives meanwhile joins the next frame. Every write of a log (segment headers,
//! frames, summaries, marks) is an entry of one queue, and a record is durable only when its entry
//! and all before it are. After a failed or short write or sync the log is poisoned: it emits
//! nothing more and nothing more becomes durable, because a later sync that succeeds proves
//! nothing about the writes that failed (Rebello et al., "Can applications recover from fsync
//! failures?", ATC 2020).
//!
//! What must hold: `durable <= written <= sealed <= appended`.

use std::collections::VecDeque;

use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, padded_bytes};
use crate::io::{BLOCK_BYTES, Block, Blocks, Completion, FileId, Io, IoFailure, IoToken};
use crate::record::{PARTS_MAX, PartKind, RecordSpec};
use crate::segment::{Owner, SegmentHeader};
use crate::summary::{SUMMARY_BYTES_MAX, Summary};

/// The ordinal of a record in its log, dense from 1; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// Where a part stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The segment file.
    pub file: FileId,
    /// Offset of the part in the file, a multiple of 8.
    pub offset: u64,
    /// Bytes of the part, a multiple of 8.
    pub bytes: u32,
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
    /// Frame writes under way at the same time, at most.
    pub frames_in_flight_max: usize,
    /// Sealed frames that wait for the disk, at most.
    pub frames_sealed_max: usize,
    /// How frames are made durable.
    pub sync: SyncMethod,
    /// How long a record that is wanted only "within the interval" may wait, in microseconds.
    pub interval_us: u64,
    /// Idleness after which a mark frame records how far the log is durable, in microseconds.
    pub idle_mark_us: u64,
}

/// Where an earlier run of the log ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStart {
    /// Sequence of its last segment; 0 if there is none.
    pub last_sequence: u64,
    /// Where the frames of that segment end.
    pub end_offset: u64,
    /// Its last record.
    pub last_lsn: Lsn,
}

/// Whether a record can be appended now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It can.
    Yes,
    /// Frames wait for the disk, or a spare segment is on its way: ask again after a completion.
    Wait,
    /// No spare segment can be had: the disk is full.
    Full,
}

/// The log accepts and acknowledges nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poisoned {
    /// What failed.
    pub failure: IoFailure,
    /// The file.
    pub file: FileId,
    /// The offset of the write; 0 for a sync.
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
    /// Mark frames.
    pub marks: u64,
    /// Segments taken into use.
    pub segments: u64,
}

/// Tokens of the log have this bit; those of reads do not.
pub const LOG_TOKEN_BIT: u64 = 1 << 63;
const SYNC_TOKEN_BIT: u64 = 1 << 62;

struct Spare {
    file: FileId,
    salt: u64,
    bytes: u64,
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
}

/// The writer of one log.
pub struct Log<P: Blocks> {
    config: LogConfig,
    blocks: P,
    spares: VecDeque<Spare>,
    spare_refused: bool,
    /// Where the log ended before `segment`.
    before: LogStart,
    segment: Option<OpenSegment>,
    open: Option<OpenFrame<P::Block>>,
    /// Sealed writes in log order; the front is the oldest that is not durable.
    writes: VecDeque<Write<P::Block>>,
    /// Token number of the front of `writes`.
    front_token: u64,
    waiting: usize,
    under_way: usize,
    syncs_under_way: usize,

    durable: Lsn,
    written: Lsn,
    sealed: Lsn,
    appended: Lsn,
    /// The highest record that somebody waits for.
    wanted: Lsn,
    /// When the open frame is to be sealed although nobody waits.
    interval_end_us: Option<u64>,
    /// The durable LSN that the newest frame header tells.
    recorded_durable: Lsn,
    active_us: u64,
    time_ms: u64,
    closing: bool,
    poisoned: Option<Poisoned>,
    counters: LogCounters,
}

/// Spare segments that are to be ready ahead.
const SPARES_READY: usize = 2;

impl<P: Blocks> Log<P> {
    /// A writer that goes on after `start`, always in a new segment.
    pub fn new(config: LogConfig, start: LogStart, blocks: P) -> Self {
        assert!(config.frame_bytes.is_multiple_of(BLOCK_BYTES) && config.frames_in_flight_max > 0);
        Log {
            config,
            blocks,
            spares: VecDeque::new(),
            spare_refused: false,
            before: start,
            segment: None,
            open: None,
            writes: VecDeque::new(),
            front_token: 0,
            waiting: 0,
            under_way: 0,
            syncs_under_way: 0,
            durable: start.last_lsn,
            written: start.last_lsn,
            sealed: start.last_lsn,
            appended: start.last_lsn,
            wanted: Lsn(0),
            interval_end_us: None,
            recorded_durable: start.last_lsn,
            active_us: 0,
            time_ms: 0,
            closing: false,
            poisoned: None,
            counters: LogCounters::default(),
        }
    }

    /// Whether a record of `bytes` can be appended now; opens a frame or a segment if need be.
    #[inline]
    pub fn room(&mut self, bytes: usize) -> Room {
        match &self.open {
            Some(open) if bytes <= open.body_bytes_max - open.body_bytes => Room::Yes,
            _ => self.make_room(bytes),
        }
    }

    /// Appends a record for which [`Log::room`] said yes, and tells where its parts stand.
    #[inline]
    pub fn append(&mut self, now_us: u64, record: &RecordSpec<'_>, places: &mut [Place; PARTS_MAX]) -> Lsn {
        let open = self.open.as_mut().expect("room() opened a frame");
        let segment = self.segment.as_mut().expect("an open frame stands in a segment");
        let body = &mut open.block.bytes_mut()[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + open.body_bytes_max];
        let before = open.body_bytes;
        for (ordinal, place) in places.iter_mut().enumerate().take(record.parts.len()) {
            let bytes = record.encode_part(ordinal, &mut body[open.body_bytes..]);
            let offset = segment.end_offset + (FRAME_HEADER_BYTES + open.body_bytes) as u64;
            let part_bytes = u32::try_from(bytes).expect("a part is bounded by the record limits");
            *place = Place { file: segment.file, offset, bytes: part_bytes };
            open.body_bytes += bytes;
            let tombstone = record.parts[ordinal].kind == PartKind::Tombstone;
            segment.summary.note(record.slot, record.epoch, record.sequence, offset, tombstone);
        }
        open.record_count += 1;
        self.appended.0 += 1;
        self.active_us = now_us;
        self.time_ms = self.time_ms.max(record.time_ms);
        self.counters.records += 1;
        self.counters.record_bytes += (open.body_bytes - before) as u64;
        self.appended
    }

    /// Somebody waits for `lsn`: its frame is written as soon as one may be.
    #[inline]
    pub fn want_durable(&mut self, lsn: Lsn) {
        self.wanted = self.wanted.max(lsn);
    }

    /// Everything appended so far is to be durable within the interval.
    #[inline]
    pub fn want_durable_within_interval(&mut self, now_us: u64) {
        if self.interval_end_us.is_none() {
            self.interval_end_us = Some(now_us + self.config.interval_us);
        }
    }

    /// Everything up to this record survives a crash from now on.
    #[inline]
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.durable
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
        self.emit_waiting(io);
        let interval_over = self.interval_end_us.is_some_and(|end| now_us >= end);
        let wanted = self.wanted > self.sealed || interval_over || self.closing;
        if wanted && self.waiting == 0 && self.under_way < self.config.frames_in_flight_max {
            self.seal_open();
            self.emit_waiting(io);
        }
        self.emit_syncs(io);
        if self.writes.is_empty() && self.open.as_ref().is_none_or(|open| open.record_count == 0) {
            self.rest(now_us, io);
        }
        self.invariants();
    }

    /// When [`Log::pump`] is to be called at the latest.
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        let mark = (self.durable > self.recorded_durable && self.writes.is_empty()).then(|| self.active_us + self.config.idle_mark_us);
        let interval = if self.appended > self.sealed { self.interval_end_us } else { None };
        match (mark, interval) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The end of one of the log's writes or syncs.
    ///
    /// # Errors
    /// [`Poisoned`] if it failed, now or earlier: the owner must stop acknowledging and exit.
    pub fn completed(&mut self, now_us: u64, completion: Completion<P::Block>) -> Result<(), Poisoned> {
        if let Some(poisoned) = self.poisoned {
            return Err(poisoned);
        }
        let number = completion.token.0 & !LOG_TOKEN_BIT;
        let is_sync = number & SYNC_TOKEN_BIT != 0;
        if let Err(failure) = completion.result {
            let poisoned = match is_sync {
                true => Poisoned { failure, file: FileId(low_u32(number)), offset: 0 },
                false => {
                    let write = &self.writes[self.queue_index(number)];
                    Poisoned { failure, file: write.file, offset: write.offset }
                }
            };
            self.poisoned = Some(poisoned);
            return Err(poisoned);
        }
        self.active_us = now_us;
        if is_sync {
            self.syncs_under_way -= 1;
            let file = FileId(low_u32(number));
            for write in self.writes.iter_mut().filter(|w| w.progress == Progress::Syncing && w.file == file) {
                write.progress = Progress::Durable;
            }
        } else {
            let index = self.queue_index(number);
            let write = &mut self.writes[index];
            assert_eq!(write.progress, Progress::UnderWay, "a write completes once");
            self.under_way -= 1;
            write.progress = match self.config.sync {
                SyncMethod::DurableWrite => Progress::Durable,
                SyncMethod::WriteThenSync => Progress::Written,
            };
        }
        self.advance();
        Ok(())
    }

    /// Spare segments that somebody should prepare now.
    #[must_use]
    pub fn spares_wanted(&self) -> usize {
        SPARES_READY.saturating_sub(self.spares.len())
    }

    /// A zero-written file of `bytes` is ready; `salt` was never used before.
    pub fn add_spare(&mut self, file: FileId, salt: u64, bytes: u64) {
        assert!(file.0 != 0, "file numbers start at 1");
        self.spare_refused = false;
        self.spares.push_back(Spare { file, salt, bytes });
    }

    /// No spare can be had for lack of space.
    pub fn spare_refused(&mut self) {
        self.spare_refused = true;
    }

    /// A clean stop: everything appended is written, then the summary of the segment. No record
    /// may be appended any more.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Whether a clean stop is complete and durable.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closing && self.open.is_none() && self.writes.is_empty() && self.segment.is_none()
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> LogCounters {
        self.counters
    }

    /// Writes and syncs under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.under_way + self.syncs_under_way
    }

    #[cold]
    fn make_room(&mut self, bytes: usize) -> Room {
        if self.poisoned.is_some() || self.closing {
            return Room::Wait;
        }
        if self.open.is_some() {
            if self.waiting >= self.config.frames_sealed_max {
                return Room::Wait;
            }
            self.seal_open();
        }
        let block_bytes = padded_bytes(bytes).max(self.config.frame_bytes);
        let fits = |segment: &OpenSegment| {
            segment.end_offset + (block_bytes + SUMMARY_BYTES_MAX) as u64 <= segment.header.segment_bytes
        };
        if !self.segment.as_ref().is_some_and(fits) {
            let room = self.rotate();
            if room != Room::Yes {
                return room;
            }
            assert!(self.segment.as_ref().is_some_and(fits), "segments are far larger than records, checked at start");
        }
        let Some(block) = self.blocks.take(block_bytes) else { return Room::Wait };
        let body_bytes_max = block_bytes - FRAME_HEADER_BYTES;
        self.open = Some(OpenFrame { block, body_bytes: 0, body_bytes_max, record_count: 0 });
        Room::Yes
    }

    /// Seals the segment with its summary and takes the next spare into use.
    fn rotate(&mut self) -> Room {
        if self.spares.is_empty() {
            return if self.spare_refused { Room::Full } else { Room::Wait };
        }
        let Some(mut block) = self.blocks.take(BLOCK_BYTES) else { return Room::Wait };
        if self.segment.is_some() && !self.seal_segment() {
            return Room::Wait;
        }
        let spare = self.spares.pop_front().expect("checked above");
        let header = SegmentHeader {
            owner: self.config.owner,
            incarnation: self.config.incarnation,
            log_id: self.config.log_id,
            stream: 0,
            sequence: self.before.last_sequence + 1,
            salt: spare.salt,
            first_lsn: Lsn(self.appended.0 + 1),
            previous_sequence: self.before.last_sequence,
            previous_end_offset: self.before.end_offset,
            previous_end_lsn: self.before.last_lsn,
            segment_bytes: spare.bytes,
            created_ms: self.time_ms,
        };
        header.encode(block.bytes_mut().first_chunk_mut().expect("blocks have at least one unit"));
        self.push_write(spare.file, 0, block, BLOCK_BYTES);
        self.segment = Some(OpenSegment { header, file: spare.file, end_offset: BLOCK_BYTES as u64, summary: Summary::new() });
        self.counters.segments += 1;
        Room::Yes
    }

    /// Ends the open segment with its summary. `false` if no block is free now.
    fn seal_segment(&mut self) -> bool {
        assert!(self.open.is_none(), "a segment is sealed between frames");
        let segment = self.segment.as_ref().expect("the caller checked");
        let Some(mut block) = self.blocks.take(SUMMARY_BYTES_MAX) else { return false };
        let body_bytes = segment.summary.encode(&mut block.bytes_mut()[FRAME_HEADER_BYTES..]);
        self.push_frame(FrameKind::Summary, block, body_bytes, 0);
        let segment = self.segment.take().expect("the caller checked");
        self.before = LogStart { last_sequence: segment.header.sequence, end_offset: segment.end_offset, last_lsn: self.appended };
        true
    }

    fn seal_open(&mut self) {
        let Some(open) = self.open.take() else { return };
        if open.record_count == 0 {
            return;
        }
        self.interval_end_us = None;
        self.counters.frames += 1;
        self.push_frame(FrameKind::Commit, open.block, open.body_bytes, open.record_count);
    }

    fn push_frame(&mut self, kind: FrameKind, mut block: P::Block, body_bytes: usize, record_count: u32) {
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
        header.seal(segment.header.home(), block.bytes_mut());
        let (file, offset, len) = (segment.file, segment.end_offset, header.padded_bytes());
        segment.end_offset += len as u64;
        self.recorded_durable = self.durable;
        self.sealed.0 += u64::from(record_count);
        self.push_write(file, offset, block, len);
    }

    fn push_write(&mut self, file: FileId, offset: u64, block: P::Block, len: usize) {
        self.counters.device_bytes += len as u64;
        self.waiting += 1;
        self.writes.push_back(Write {
            progress: Progress::Waiting,
            file,
            offset,
            len: u32::try_from(len).expect("a frame is bounded by the record limits"),
            block: Some(block),
            last_lsn: self.sealed,
        });
    }

    fn emit_waiting(&mut self, io: &mut Vec<Io<P::Block>>) {
        if self.waiting == 0 {
            return;
        }
        let durable = self.config.sync == SyncMethod::DurableWrite;
        let first = self.writes.len() - self.waiting;
        for (number, write) in (self.front_token + first as u64..).zip(self.writes.range_mut(first..)) {
            // Headers and summaries are small and rare: the bound is of frames' order, not exact.
            if self.under_way >= self.config.frames_in_flight_max {
                break;
            }
            let block = write.block.take().expect("a waiting write owns its block");
            write.progress = Progress::UnderWay;
            self.waiting -= 1;
            self.under_way += 1;
            self.counters.flushes += u64::from(durable);
            io.push(Io::Write { token: IoToken(LOG_TOKEN_BIT | number), file: write.file, offset: write.offset, block, len: write.len, durable });
        }
    }

    /// One sync for each file with writes that are done and not covered by a sync yet.
    fn emit_syncs(&mut self, io: &mut Vec<Io<P::Block>>) {
        if self.config.sync == SyncMethod::DurableWrite || self.syncs_under_way > 0 {
            return;
        }
        let mut synced: Option<FileId> = None;
        for write in self.writes.iter_mut().filter(|w| w.progress == Progress::Written) {
            write.progress = Progress::Syncing;
            if synced != Some(write.file) {
                synced = Some(write.file);
                self.syncs_under_way += 1;
                self.counters.flushes += 1;
                let token = IoToken(LOG_TOKEN_BIT | SYNC_TOKEN_BIT | u64::from(write.file.0));
                io.push(Io::Sync { token, file: write.file });
            }
        }
    }

    /// Nothing is under way and nothing waits: a mark after some idleness, or the end.
    fn rest(&mut self, now_us: u64, io: &mut Vec<Io<P::Block>>) {
        let idle = self.durable > self.recorded_durable && now_us >= self.active_us + self.config.idle_mark_us;
        if self.segment.is_none() || !(self.closing || idle) {
            return;
        }
        // A frame that was opened and never used gives its place to the mark.
        self.open = None;
        if self.closing {
            self.seal_segment();
        } else if self.segment.as_ref().is_some_and(|s| s.end_offset + (BLOCK_BYTES + SUMMARY_BYTES_MAX) as u64 <= s.header.segment_bytes)
            && let Some(block) = self.blocks.take(BLOCK_BYTES)
        {
            self.counters.marks += 1;
            self.push_frame(FrameKind::Mark, block, 0, 0);
        }
        self.emit_waiting(io);
    }

    /// Moves `written` and `durable` over the entries that are done, oldest first.
    fn advance(&mut self) {
        while let Some(write) = self.writes.front() {
            if write.progress != Progress::Durable {
                break;
            }
            self.durable = write.last_lsn;
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

    fn queue_index(&self, number: u64) -> usize {
        let index = usize::try_from(number - self.front_token).expect("a token of this log");
        assert!(index < self.writes.len(), "a token of this log");
        index
    }

    fn invariants(&self) {
        assert!(
            self.durable <= self.written && self.written <= self.sealed && self.sealed <= self.appended,
            "durable {:?} <= written {:?} <= sealed {:?} <= appended {:?}",
            self.durable,
            self.written,
            self.sealed,
            self.appended
        );
    }
}

fn low_u32(number: u64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
