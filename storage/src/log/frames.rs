//! Frames, segments and marks: what is sealed when, and where it stands.

use crate::format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameHome, FrameKind, padded_bytes};
use crate::format::segment::SegmentHeader;
use crate::format::summary::SUMMARY_BYTES_MAX;
use crate::log::config::SEGMENT_TAIL_BYTES;
use crate::log::log::CONTENTS_ENTRY_BYTES;
use crate::log::log::Log;
use crate::log::log::SHORT_FRAME_SHARE;
use crate::log::open::OpenSegment;
use crate::log::reports::SealedFrame;
use crate::log::room::Purpose;
use crate::log::room::Room;
use crate::planted::{self, Bug, is_planted};
use crate::types::io::{BLOCK_BYTES, Block, Blocks, Io};
use crate::types::place::FileId;
use crate::types::place::Lsn;

impl<P: Blocks> Log<P> {
    /// Has all spares from now on be long enough for the longest record, and gives those back that
    /// are not.
    pub(super) fn leave_short_segments(&mut self) {
        self.releases.allow(self.supply.leave_short());
    }

    /// A clean stop: everything appended is written, then the summary of the segment. No record
    /// may be appended any more.
    pub fn close(&mut self) {
        self.phase.close();
        if !self.open.holds_records() || is_planted(Bug::CloseOnOpenFrame) {
            self.open.take_frame();
        }
    }

    /// Whether a clean stop is complete and durable.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.phase.is_closing() && self.writes.is_empty() && self.open.segment().is_none()
    }

    /// Whether the open frame holds something that may be written beside what is under way.
    pub(super) fn may_seal(&self) -> bool {
        self.open.holds_records() && self.writes.has_room(self.config.frames_in_flight_max)
    }

    /// Until when the open frame waits for the write under way, so that more records share its own
    /// write. `None`: the frame does not wait. A clean stop gathers nothing.
    pub(super) fn gathers_until_us(&self) -> Option<u64> {
        if self.phase.is_closing() {
            return None;
        }
        self.writes.gathers_until_us(self.open.body_bytes())
    }

    #[cold]
    pub(super) fn make_room(&mut self, purpose: Purpose, bytes: usize) -> Room {
        assert!(
            bytes <= self.config.record_bytes_max,
            "a record of {bytes} bytes"
        );
        if !self.phase.takes_records() {
            return Room::Wait;
        }
        if self.open.frame().is_some() {
            if self.writes.len() >= self.config.frames_sealed_max {
                return Room::Wait;
            }
            self.seal_open();
        }
        let block_bytes = padded_bytes(bytes).max(self.config.frame_bytes);
        let is_long = block_bytes > self.config.frame_bytes;
        if is_long && self.supply.has_short() {
            // The last spares of a full disk, short as they are, are left to what makes room.
            if self.is_low() && purpose != Purpose::Clean {
                return self.no_room(purpose);
            }
            self.leave_short_segments();
        }
        // With no other segment after it, this one must take the frame that reports a release.
        let report_bytes = match self.supply.is_empty() && self.supply.keeps_reserve() {
            true => padded_bytes(self.history.body_bytes()) as u64,
            false => 0,
        };
        // The last frame of a segment takes what is left, if that is worth a write.
        let short_bytes = padded_bytes(bytes).max(self.config.frame_bytes / SHORT_FRAME_SHARE);
        let frame_within = |segment: &OpenSegment| {
            let tail_bytes = planted::or(Bug::SegmentEndOffByOne, 0, SEGMENT_TAIL_BYTES);
            let taken = segment.end_offset + tail_bytes + report_bytes;
            let left = segment.header.segment_bytes.saturating_sub(taken);
            let left = usize::try_from(left).expect("a segment has at most 1 GiB");
            let frame_bytes = block_bytes.min(left - left % BLOCK_BYTES);
            (frame_bytes >= short_bytes).then_some(frame_bytes)
        };
        let mut frame_bytes = self.open.segment().and_then(frame_within);
        if frame_bytes.is_none() {
            if !self.supply.has_for(purpose, self.open.segment().is_some()) {
                return self.no_room(purpose);
            }
            let is_kept_back = matches!(purpose, Purpose::Keep | Purpose::Grow);
            if self.has_most_segments() && is_kept_back && self.supply.keeps_reserve() {
                return match self.supply.relief_comes() || self.is_releasing() {
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
        self.open
            .begin_frame(block, frame_bytes.expect("found above"));
        Room::Yes
    }

    /// Seals the segment with its summary and takes the next spare into use.
    pub(super) fn rotate(&mut self) -> Room {
        assert!(!self.supply.is_empty(), "a spare is asked for before");
        if self.history.segments.len() >= self.segments_max() {
            return match self.supply.keeps_reserve() {
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
        if self.open.segment().is_some() && !self.seal_segment() {
            return Room::Wait;
        }
        let spare = self.supply.take().expect("checked above");
        let before = self.open.before();
        let header = SegmentHeader {
            owner: self.config.owner,
            incarnation: self.config.incarnation,
            log_id: self.config.log_id,
            chain: 0,
            is_reused: spare.is_reused,
            sequence: before.last_sequence + 1,
            salt: spare.salt,
            first_lsn: self.next_lsn(),
            previous_sequence: before.last_sequence,
            previous_end_offset: before.end_offset,
            previous_end_lsn: before.last_lsn,
            segment_bytes: spare.bytes,
            created_ms: self.clock.time_ms(),
        };
        header.encode(
            block
                .bytes_mut()
                .first_chunk_mut()
                .expect("blocks have at least one unit"),
        );
        self.push_write(spare.file, 0, block, BLOCK_BYTES, None);
        self.open.begin_segment(header, spare.file);
        self.account.counters.segments += 1;
        let sealed = self.history.segments.iter();
        self.supply
            .begins(self.clock.active_us(), sealed.map(|it| it.file_bytes));
        if let Some(block) = contents {
            self.push_contents(block);
        }
        Room::Yes
    }

    /// Ends the open segment with its summary. `false` if no block is free now.
    fn seal_segment(&mut self) -> bool {
        assert!(
            self.open.frame().is_none(),
            "a segment is sealed between frames"
        );
        let segment = self.open.segment().expect("the caller checked");
        let Some(mut block) = self.blocks.take(SUMMARY_BYTES_MAX) else {
            return false;
        };
        let body_bytes = segment
            .summary
            .encode(&mut block.bytes_mut()[FRAME_HEADER_BYTES..]);
        self.push_frame(FrameKind::Summary, block, body_bytes, 0);
        let appended = self.sealing.appended();
        self.history.segments.push(self.open.end_segment(appended));
        self.history.reached.segment_ends(appended);
        true
    }

    pub(super) fn seal_open(&mut self) {
        let Some(open) = self.open.take_frame() else {
            return;
        };
        if open.record_count == 0 {
            return;
        }
        self.account
            .add_frame(open.record_count, open.has_commits, open.body_bytes);
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
        let segment = self.open.segment_mut();
        let header = FrameHeader {
            kind,
            offset: segment.end_offset,
            first_lsn: Lsn(self.sealing.sealed().0 + 1),
            durable_lsn: self.writes.durable(),
            record_count,
            body_bytes: u32::try_from(body_bytes).expect("a frame is bounded by the record limits"),
            time_ms: self.clock.time_ms(),
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
        self.account.counters.padding_bytes += (len - FRAME_HEADER_BYTES - body_bytes) as u64;
        self.sealing.seal(record_count);
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
        self.account.counters.device_bytes += len as u64;
        let last_lsn = self.sealing.sealed();
        self.writes
            .push((file, offset), (block, len), last_lsn, frame);
    }

    /// Tells in the open segment which ones are before it.
    fn push_contents(&mut self, mut block: P::Block) {
        let body = &mut block.bytes_mut()[FRAME_HEADER_BYTES..];
        let body_bytes = self.history.encode(body);
        self.push_frame(FrameKind::Contents, block, body_bytes, 0);
        let (releases, has_owed) = self.releases.announce();
        self.writes.note_contents(releases, has_owed);
    }

    /// Whether the open segment has room to tell which ones are before it.
    pub(super) fn fits_contents(&self) -> bool {
        let open = self.open.frame();
        let open_bytes = open.map_or(0, |open| padded_bytes(open.body_bytes)) as u64;
        let contents_bytes = padded_bytes(self.history.body_bytes()) as u64;
        self.open.segment().is_some_and(|segment| {
            let taken = segment.end_offset + open_bytes + contents_bytes;
            taken + SEGMENT_TAIL_BYTES <= segment.header.segment_bytes
        })
    }

    /// Tells releases that are not to wait until the log needs another segment.
    pub(super) fn release_within(&mut self) {
        if !self.fits_contents() {
            // A new segment begins with what is to be told, and gives back more than it takes.
            self.seal_open();
            if !self.supply.is_empty() {
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

    /// Nothing is under way and nothing waits: writes the write-idle mark after some idleness, or
    /// seals the log that ends.
    pub(super) fn mark_idle(&mut self, now_us: u64, io: &mut Vec<Io<P::Block>>) {
        let Some(segment) = self.open.segment() else {
            if self.must_prove_start() && self.rotate() != Room::Yes {
                self.clock.use_at(now_us);
            }
            self.emit(now_us, io);
            return;
        };
        let idle_long = now_us >= self.clock.active_us() + self.config.idle_mark_us;
        let idle = idle_long && self.writes.lacks_mark();
        if self.phase.is_closing() {
            if !self.seal_segment() {
                self.clock.use_at(now_us);
            }
        } else if idle_long && (self.is_releasing() || self.releases.owes_contents()) {
            self.release_within();
            self.clock.use_at(now_us);
        } else if idle {
            assert!(
                segment.end_offset + SEGMENT_TAIL_BYTES <= segment.header.segment_bytes,
                "a mark always has its place"
            );
            // A frame that was opened and never used gives its place to the mark.
            self.open.take_frame();
            match self.blocks.take(BLOCK_BYTES) {
                Some(block) => {
                    self.account.counters.marks += 1;
                    self.push_frame(FrameKind::Mark, block, 0, 0);
                }
                None => self.clock.use_at(now_us),
            }
        }
        self.emit(now_us, io);
    }

    /// Whether the next segment is wanted now, for the sake of what its first frames prove.
    pub(super) fn must_prove_start(&self) -> bool {
        let has_news = self.open.before().is_unproven || self.releases.owes_contents();
        has_news && !self.supply.is_empty() && !self.phase.is_closing()
    }
}
