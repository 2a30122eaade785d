//! The group commit writer of one log.
//!
//! Records are encoded straight into the block of the open frame. A frame is sealed and written as
//! soon as fewer than `frames_in_flight_max` writes are under way and somebody waits for one of its
//! records; what arrives meanwhile joins the next frame. A small frame waits for a crowded write to
//! end first ([`super::gathering`]). Every write of a log (segment headers,
//! frames, summaries, marks) is an entry of one queue, and a record is durable only when its entry
//! and all before it are. Segment headers and marks are under way alone: they go when everything
//! before them is durable, and what stands behind them waits until they are. So a header proves
//! that the segment before ended where the header says, and a frame proves that its segment's
//! header was durable, and the mark in front of it; recovery builds on all three. It costs one
//! flush more in each segment and each idle moment.
//!
//! After a failed or short write or sync the log is poisoned: it emits nothing more and nothing
//! more becomes durable, because a later sync that succeeds proves nothing about the writes that
//! failed (Rebello et al., "Can applications recover from fsync failures?", ATC 2020).
//!
//! What must hold: `durable <= written <= sealed <= appended`.

use crate::format::contents::{History, SealedSegment};
use crate::format::frame::{FRAME_HEADER_BYTES, FrameHome};
use crate::format::record::{PARTS_MAX, PartKind, PartView, RecordSpec};
use crate::format::system_key::is_local;
use crate::histogram::Histogram;
use crate::if_planted;
use crate::log::account::LogAccount;
use crate::log::clock::LogClock;
use crate::log::config::{LogConfig, SEGMENT_TAIL_BYTES};
use crate::log::open::OpenEnd;
use crate::log::phase::Phase;
use crate::log::release::Releases;
use crate::log::reports::{DurableEnd, DurableSegment, LogCounters, Moved, Poisoned, SealedFrame};
use crate::log::sealing::Sealing;
use crate::log::supply::Supply;
use crate::log::writes::Writes;
use crate::planted::{Bug, is_planted};
use crate::types::io::{BLOCK_BYTES, Block, Blocks, Completion, Io};
use crate::types::place::{FileId, LogPosition, LogStart, Lsn, Place};
use crate::types::version::{PARTITIONS, Sequences, Version, partition_of};
use std::cmp::Ordering;
use std::collections::VecDeque;

/// The writer of one log.
pub struct Log<P: Blocks> {
    pub(super) config: LogConfig,
    pub(super) blocks: P,
    pub(super) supply: Supply,
    pub(super) releases: Releases,
    /// What the log holds before the open segment.
    pub(super) history: History,
    pub(super) open: OpenEnd<P::Block>,
    pub(super) sealing: Sealing,
    pub(super) writes: Writes<P::Block>,
    pub(super) clock: LogClock,
    pub(super) phase: Phase,
    /// Sealed frames that [`Log::take_sealed`] has not taken. `None` until [`Log::tap`].
    pub(super) tapped: Option<VecDeque<SealedFrame>>,
    pub(super) account: LogAccount,
}

/// A frame behind which nothing more fits may be shorter than the others, by so much at most.
pub(super) const SHORT_FRAME_SHARE: usize = 8;

/// What one more segment adds to a contents frame.
pub(super) const CONTENTS_ENTRY_BYTES: usize = 24;

impl<P: Blocks> Log<P> {
    /// A writer that goes on after `start`, always in a new segment, and never releases one.
    pub fn new(config: LogConfig, start: LogStart, blocks: P) -> Self {
        let mut log = Self::with_history(config, start, History::default(), blocks);
        log.supply = Supply::new(false);
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
        let writes = Writes::new(start, &history);
        Log {
            config,
            blocks,
            supply: Supply::new(true),
            releases: Releases::default(),
            history,
            open: OpenEnd::new(start),
            sealing: Sealing::new(start.last_lsn),
            writes,
            clock: LogClock::default(),
            phase: Phase::Appending,
            tapped: None,
            account: LogAccount::default(),
        }
    }

    /// Goes on behind another log too, which vanishes some day: how far its versions and its time
    /// have gone is told by a contents frame then, and every segment begins with one from now on.
    pub fn inherit(&mut self, other: &History, time_ms: u64) {
        assert!(self.open.segment().is_none(), "before anything is appended");
        let own = &mut self.history;
        let mut is_covered = other.epoch_max <= own.epoch_max && time_ms <= self.clock.time_ms();
        for partition in 0..PARTITIONS {
            is_covered &= other.last(partition) <= own.last(partition);
            own.raise(partition, other.last(partition));
        }
        own.epoch_max = own.epoch_max.max(other.epoch_max);
        // Nothing tells when it vanishes, so what is only there counts as gone.
        own.forget(&other.sequences);
        own.forget(&other.forgotten);
        own.has_released = true;
        own.is_linked |= other.is_linked;
        self.clock.raise(time_ms);
        if !is_covered {
            self.releases.owe_contents();
        }
    }

    /// A value of another log was left out, because it had expired by the time that the log
    /// carries: a contents frame is to tell this time, or a start without that log might be before
    /// it.
    pub fn owe_contents(&mut self) {
        self.releases.owe_contents();
    }

    /// Whether what was taken over by [`Log::inherit`], or the time of what was left out, would be
    /// forgotten with the other logs.
    #[must_use]
    pub fn owes_contents(&self) -> bool {
        self.releases.owes_contents() || self.writes.has_owed()
    }

    /// The position that the next record gets.
    pub(crate) fn next_lsn(&self) -> Lsn {
        Lsn(self.sealing.appended().0 + 1)
    }

    /// Bytes that a record may have, at most.
    #[must_use]
    pub fn record_bytes_max(&self) -> usize {
        self.config.record_bytes_max
    }

    /// Appends a record for which [`Log::room`] said yes, and tells where its parts stand: in as
    /// many of `places`. Its frame is sealed within the interval even if nobody waits for it.
    ///
    /// # Panics
    /// If it has no part, more than [`PARTS_MAX`], or more than there are `places`.
    #[inline]
    pub fn append(&mut self, now_us: u64, record: &RecordSpec<'_>, places: &mut [Place]) -> Lsn {
        let (segment, open) = self.open.both_mut();
        let body = &mut open.block.bytes_mut()
            [FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + open.body_bytes_max];
        assert!(
            (1..=places.len().min(PARTS_MAX)).contains(&record.parts.len()),
            "{} parts",
            record.parts.len()
        );
        self.sealing
            .record_begins(open.record_count, now_us + self.config.interval_us);
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
        self.clock.use_at(now_us);
        self.clock.raise(record.time_ms);
        self.account.add_record((open.body_bytes - before) as u64);
        self.sealing.append()
    }

    /// Appends a copy of a part that stands in a sealed segment, as a record of its own with the
    /// version it has. [`Log::room`] must have said yes to its length for [`Purpose::Clean`].
    /// `moved` may make a tombstone of a put that has expired; `is_crowded` as for
    /// [`PartView::encode_moved`].
    ///
    /// [`Purpose::Clean`]: crate::log::Purpose::Clean
    pub fn append_moved(
        &mut self,
        now_us: u64,
        part: &PartView<'_>,
        moved: Moved,
        is_crowded: bool,
    ) -> (Lsn, Place) {
        let (segment, open) = self.open.both_mut();
        let body = &mut open.block.bytes_mut()
            [FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + open.body_bytes_max];
        self.sealing
            .record_begins(open.record_count, now_us + self.config.interval_us);
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
        self.account.add_copy(bytes as u64);
        (self.sealing.append(), place)
    }

    /// Somebody waits for `lsn`: its frame is written as soon as one may be.
    #[inline]
    pub fn want_durable(&mut self, lsn: Lsn) {
        self.sealing.want(lsn);
    }

    /// Everything up to this record survives a crash from now on.
    #[inline]
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.writes.durable()
    }

    /// Where the durable records end on the disk. A copy of the segments up to there has all that
    /// survives a crash.
    #[must_use]
    pub fn durable_end(&self) -> DurableEnd {
        let (segment_sequence, end_offset) = self.writes.durable_end();
        DurableEnd {
            log_id: self.config.log_id,
            lsn: self.writes.durable(),
            segment_sequence,
            end_offset,
        }
    }

    /// Where the frame of the last durable record ends, or a later one of its segment.
    #[must_use]
    pub fn position(&self) -> Option<LogPosition> {
        self.writes.position()
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
        self.sealing.appended()
    }

    /// The end of the loop's turn: seals and emits what may go now.
    pub fn pump(&mut self, now_us: u64, io: &mut Vec<Io<P::Block>>) {
        if self.phase.is_poisoned() {
            return;
        }
        if self.is_releasing() && self.supply.hurries_release() && !self.phase.is_closing() {
            self.release_within();
        }
        self.emit(now_us, io);
        if self.may_seal() {
            let gathers = self.gathers_until_us().is_some_and(|until| now_us < until);
            if !gathers && (self.sealing.is_due(now_us) || self.phase.is_closing()) {
                self.seal_open();
                self.emit(now_us, io);
            }
        } else if self.writes.is_empty() {
            self.mark_idle(now_us, io);
        }
        let counters = &mut self.account.counters;
        self.writes.emit_sync(&self.config, counters, io);
        self.invariants();
    }

    /// When [`Log::pump`] is to be called at the latest.
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        if self.phase.is_poisoned() {
            None
        } else if self.may_seal() {
            match self.gathers_until_us() {
                Some(until_us) if self.sealing.is_wanted() => Some(until_us),
                Some(until_us) => Some(until_us.max(self.sealing.due_us())),
                None => Some(self.sealing.due_us()),
            }
        } else {
            // With writes under way the next completion is what pump has to wait for.
            let must_rest = self.writes.is_empty()
                && match self.open.segment() {
                    Some(_) => {
                        self.phase.is_closing()
                            || self.writes.lacks_mark()
                            || self.is_releasing()
                            || self.releases.owes_contents()
                    }
                    None => self.must_prove_start(),
                };
            must_rest.then(|| self.clock.active_us() + self.config.idle_mark_us)
        }
    }

    /// The segments before the open one, ascending. All of them are sealed, not all durable.
    #[must_use]
    pub fn sealed_segments(&self) -> &[SealedSegment] {
        &self.history.segments
    }

    /// Keeps a copy of each frame of records that is sealed from now on, until
    /// [`Log::take_sealed`]. Whoever asks for that must take them in every turn: nothing else
    /// bounds them.
    pub fn tap(&mut self) {
        self.tapped.get_or_insert_default();
    }

    /// Keeps no copies from now on, and gives up those that were not taken.
    pub fn untap(&mut self) {
        self.tapped = None;
    }

    /// The next frame that was sealed.
    pub fn take_sealed(&mut self) -> Option<SealedFrame> {
        self.tapped.as_mut()?.pop_front()
    }

    /// The segment with the first durable record behind `behind` that is still there, or one before
    /// it that holds none; `None` if there is none. Only segments behind the one of the sequence
    /// `after` count.
    #[must_use]
    pub fn durable_segment_behind(&self, behind: Lsn, after: u64) -> Option<DurableSegment> {
        if behind >= self.writes.durable() {
            return None;
        }
        let (sequence, end_offset) = self.writes.durable_end();
        let segments = &self.history.segments;
        let is_passed = |segment: &SealedSegment| {
            segment.end.last_lsn <= behind || segment.end.sequence <= after
        };
        let at = segments.partition_point(is_passed);
        let (file, home, sealed_end) = match (segments.get(at), self.open.segment()) {
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

    /// The file of the open segment and its length.
    #[must_use]
    pub fn open_segment(&self) -> Option<(FileId, u64)> {
        let segment = self.open.segment()?;
        Some((segment.file, segment.header.segment_bytes))
    }

    /// Bytes that may still be appended to the open segment, about.
    #[must_use]
    pub fn open_segment_bytes_left(&self) -> u64 {
        self.open.segment().map_or(0, |segment| {
            let taken = segment.end_offset + SEGMENT_TAIL_BYTES;
            let open = self.open.body_bytes() as u64;
            segment.header.segment_bytes.saturating_sub(taken + open)
        })
    }

    /// The newest time that this run has stamped on a record, or carried.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.clock.time_ms()
    }

    /// Raises the log's clock to `time_ms` before a record is left out because of the time. The
    /// frame that reports the release carries this time, so no start begins at an earlier time.
    pub fn carry_time(&mut self, time_ms: u64) {
        self.clock.raise(time_ms);
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
        self.account.counters.released += 1;
        if_planted! { Bug::RemoveBeforeAnnounced, return self.releases.allow([segment.file]) }
        self.releases.begin(segment.file);
    }

    /// Whether a release waits for a contents frame to tell it.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        self.releases.is_any_unannounced()
    }

    /// The next file that may be removed.
    pub fn take_removable(&mut self) -> Option<FileId> {
        self.releases.take_removable()
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> LogCounters {
        self.account.counters
    }

    /// How many records the frames hold that hold a commit.
    #[must_use]
    pub fn batches(&self) -> &Histogram {
        self.account.batches()
    }

    /// How long writes took until the device had them for good, in microseconds.
    #[must_use]
    pub fn flushes_us(&self) -> &Histogram {
        self.writes.flushes_us()
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
        self.phase.check()?;
        let (sync, releases) = (self.config.sync, &mut self.releases);
        let done = self.writes.completed(now_us, sync, completion, releases);
        if let Err(poisoned) = done {
            self.phase.poison(poisoned);
            return Err(poisoned);
        }
        self.clock.use_at(now_us);
        self.invariants();
        Ok(())
    }

    /// Writes emitted and not durable, and the sync under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.writes.in_flight()
    }

    pub(super) fn emit(&mut self, now_us: u64, io: &mut Vec<Io<P::Block>>) {
        let counters = &mut self.account.counters;
        self.writes.emit(now_us, &self.config, counters, io);
    }

    pub(super) fn invariants(&self) {
        let (durable, written) = (self.writes.durable(), self.writes.written());
        let (sealed, appended) = (self.sealing.sealed(), self.sealing.appended());
        assert!(
            durable <= written && written <= sealed && sealed <= appended,
            "durable {durable:?} <= written {written:?} <= sealed {sealed:?} \
             <= appended {appended:?}",
        );
    }
}
