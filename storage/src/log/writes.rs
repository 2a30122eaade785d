//! The queue of sealed writes of a log, in its order, and how far it is on the disk.
//!
//! A write is durable only when it and all before it are. Segment headers and marks are under way
//! alone.

use std::collections::VecDeque;

use crate::format::contents::History;
use crate::format::frame::{FrameHeader, FrameHome, FrameKind};
use crate::histogram::Histogram;
use crate::log::config::{LogConfig, SyncMethod};
use crate::log::gathering::{Gathering, OldestWrite};
use crate::log::release::Releases;
use crate::log::reports::{LogCounters, Poisoned};
use crate::planted::{self, Bug, is_planted};
use crate::types::io::{Asker, Block, Completion, Io, IoToken};
use crate::types::place::{FileId, LogPosition, LogStart, Lsn};

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
    announced: Lsn,
    /// When it went there.
    emitted_us: u64,
    /// Files that nothing counts in any more once this write is durable.
    releases: Vec<FileId>,
    /// A contents frame that tells what was owed.
    has_owed: bool,
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

/// Sealed writes, and how far they are on the disk.
pub(super) struct Writes<B> {
    /// In log order; the front is the oldest that is not durable.
    queue: VecDeque<Write<B>>,
    /// Token number of the front of `queue`.
    front_token: u64,
    /// Writes not emitted yet: the last ones of `queue`.
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
    announces_release: bool,
    written: Lsn,
    /// The durable LSN that the newest frame on the disk tells.
    recorded_durable: Lsn,
    /// Microseconds from the emission of each write until the device had it for good.
    flushes_us: Histogram,
    gathering: Gathering,
}

impl<B: Block> Writes<B> {
    /// No write yet, behind what an earlier run left.
    pub(super) fn new(start: LogStart, history: &History) -> Self {
        Writes {
            queue: VecDeque::new(),
            front_token: 0,
            waiting: 0,
            under_way: 0,
            sync_under_way: false,
            durable: start.last_lsn,
            durable_end: (start.last_sequence, start.end_offset),
            position: history.position,
            announces_release: history.has_released,
            written: start.last_lsn,
            recorded_durable: start.last_lsn,
            flushes_us: Histogram::default(),
            gathering: Gathering::default(),
        }
    }

    /// Whether all is durable.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Writes that are not durable.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether another write would be emitted at once, as far as `most` allow it.
    pub(super) fn has_room(&self, most: usize) -> bool {
        self.waiting == 0 && self.under_way < most
    }

    /// Until when the open frame, with `body_bytes` of records, waits for the oldest write under
    /// way. `None`: the frame does not wait.
    pub(super) fn gathers_until_us(&self, body_bytes: usize) -> Option<u64> {
        let oldest = self.queue.front().map(|write| OldestWrite {
            emitted_us: write.emitted_us,
            records: write.last_lsn.0.saturating_sub(self.durable.0),
        });
        self.gathering.until_us(oldest, body_bytes)
    }

    /// The last record that is durable.
    #[inline]
    pub(super) fn durable(&self) -> Lsn {
        self.durable
    }

    /// The last record that the disk has, durable or not.
    pub(super) fn written(&self) -> Lsn {
        self.written
    }

    /// Segment and end of the last durable frame.
    pub(super) fn durable_end(&self) -> (u64, u64) {
        self.durable_end
    }

    /// Where the last durable frame ends.
    pub(super) fn position(&self) -> Option<LogPosition> {
        self.position
    }

    /// Whether no frame on the disk tells all that is durable.
    pub(super) fn lacks_mark(&self) -> bool {
        self.durable > self.recorded_durable
    }

    /// How long writes took until the device had them for good, in microseconds.
    pub(super) fn flushes_us(&self) -> &Histogram {
        &self.flushes_us
    }

    /// Writes emitted and not durable, and the sync under way.
    pub(super) fn in_flight(&self) -> usize {
        self.under_way + usize::from(self.sync_under_way)
    }

    /// Whether a contents frame that tells a release is not durable yet.
    pub(super) fn has_release(&self) -> bool {
        self.queue.iter().any(|write| !write.releases.is_empty())
    }

    /// Whether a contents frame that tells what was owed is not durable yet.
    pub(super) fn has_owed(&self) -> bool {
        self.queue.iter().any(|write| write.has_owed)
    }

    /// Adds the first `len` bytes of a block, to be written to the file there. With it all up to
    /// `last_lsn` is durable.
    pub(super) fn push(
        &mut self,
        (file, offset): (FileId, u64),
        (block, len): (B, usize),
        last_lsn: Lsn,
        frame: Option<(FrameHome, FrameKind)>,
    ) {
        self.waiting += 1;
        self.queue.push_back(Write {
            progress: Progress::Waiting,
            file,
            offset,
            len: u32::try_from(len).expect("a frame is bounded by the record limits"),
            block: Some(block),
            last_lsn,
            frame,
            announced: Lsn(0),
            emitted_us: 0,
            releases: Vec::new(),
            has_owed: false,
        });
    }

    /// The contents frame that was added last tells these releases, and what was owed.
    pub(super) fn note_contents(&mut self, releases: Vec<FileId>, has_owed: bool) {
        let write = self.queue.back_mut().expect("just pushed");
        write.releases = releases;
        write.has_owed = has_owed;
    }

    /// The end of a write or sync. What is told durably released by it goes to `releases`.
    ///
    /// # Errors
    /// [`Poisoned`] if it failed.
    pub(super) fn completed(
        &mut self,
        now_us: u64,
        sync: SyncMethod,
        completion: Completion<B>,
        releases: &mut Releases,
    ) -> Result<(), Poisoned> {
        let number = completion.token.number;
        let index = usize::try_from(number - self.front_token).expect("a token of this log");
        let write = &mut self.queue[index];
        if let Err(failure) = completion.result
            && !is_planted(Bug::IgnoreWriteError)
        {
            return Err(Poisoned {
                failure,
                file: write.file,
                offset: write.offset,
            });
        }
        if completion.token.asker == Asker::LogSync {
            self.sync_under_way = false;
            for write in self.queue.iter_mut().filter(|write| {
                write.progress == Progress::Syncing
                    || (write.progress == Progress::Written && is_planted(Bug::SyncCoversLater))
            }) {
                write.progress = Progress::Durable;
                self.under_way -= 1;
                let took_us = now_us.saturating_sub(write.emitted_us);
                self.flushes_us.add(took_us, 1);
                self.gathering.add(took_us);
            }
        } else {
            assert_eq!(write.progress, Progress::UnderWay, "a write completes once");
            match planted::or(Bug::SkipFlush, SyncMethod::DurableWrite, sync) {
                SyncMethod::DurableWrite => {
                    write.progress = Progress::Durable;
                    self.under_way -= 1;
                    let took_us = now_us.saturating_sub(write.emitted_us);
                    self.flushes_us.add(took_us, 1);
                    self.gathering.add(took_us);
                    let past_gap = self.durable.max(write.last_lsn);
                    self.durable = planted::or(Bug::DurablePastGap, past_gap, self.durable);
                }
                SyncMethod::WriteThenSync => write.progress = Progress::Written,
            }
        }
        self.advance(releases);
        Ok(())
    }

    /// Emits what waits and may be under way with what is.
    pub(super) fn emit(
        &mut self,
        now_us: u64,
        config: &LogConfig,
        counters: &mut LogCounters,
        io: &mut Vec<Io<B>>,
    ) {
        let durable = config.sync == SyncMethod::DurableWrite && !is_planted(Bug::SkipFlush);
        while self.waiting > 0 && self.under_way < config.frames_in_flight_max {
            let index = self.queue.len() - self.waiting;
            if index > 0
                && !is_planted(Bug::HeaderTooEarly)
                && (self.queue[index].is_alone() || self.queue[0].is_alone())
            {
                return;
            }
            let write = &mut self.queue[index];
            let mut block = write.block.take().expect("a waiting write owns its block");
            // It may have been sealed long ago. What goes to the disk after a record was durable
            // proves it, should the record be found damaged.
            if let Some((home, _)) = write.frame {
                let announced = planted::or(Bug::AnnounceWritten, self.written, self.durable);
                FrameHeader::announce_durable(home, block.bytes_mut(), announced);
                write.announced = announced;
                self.recorded_durable = self.durable;
            }
            write.progress = Progress::UnderWay;
            write.emitted_us = now_us;
            self.waiting -= 1;
            self.under_way += 1;
            counters.flushes += u64::from(durable);
            let token = IoToken::new(Asker::LogWrite, self.front_token + index as u64);
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
    pub(super) fn emit_sync(
        &mut self,
        config: &LogConfig,
        counters: &mut LogCounters,
        io: &mut Vec<Io<B>>,
    ) {
        if config.sync == SyncMethod::DurableWrite || self.sync_under_way {
            return;
        }
        let Some(first) = self
            .queue
            .iter()
            .position(|write| write.progress == Progress::Written)
        else {
            return;
        };
        let file = self.queue[first].file;
        for write in self
            .queue
            .iter_mut()
            .filter(|write| write.progress == Progress::Written)
        {
            assert!(write.file == file, "writes under way stand in one file");
            write.progress = Progress::Syncing;
        }
        self.sync_under_way = true;
        counters.flushes += 1;
        io.push(Io::Sync {
            token: IoToken::new(Asker::LogSync, self.front_token + first as u64),
            file,
        });
    }

    /// Moves `written` and `durable` over the entries that are done, oldest first.
    fn advance(&mut self, releases: &mut Releases) {
        while let Some(write) = self.queue.front() {
            if write.progress != Progress::Durable {
                break;
            }
            self.durable = write.last_lsn;
            if let Some((home, _)) = write.frame {
                let end_offset = write.offset + u64::from(write.len);
                self.durable_end = (home.segment_sequence, end_offset);
            }
            if matches!(write.frame, Some((_, FrameKind::Contents))) {
                self.announces_release = true;
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
                    is_unproven: write.announced < write.last_lsn,
                    has_released: self.announces_release,
                });
            }
            releases.allow(write.releases.iter().copied());
            self.queue.pop_front();
            self.front_token += 1;
        }
        self.written = self.written.max(self.durable);
        for write in &self.queue {
            if matches!(write.progress, Progress::Waiting | Progress::UnderWay) {
                break;
            }
            self.written = self.written.max(write.last_lsn);
        }
    }
}
