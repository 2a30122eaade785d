//! The replay of one log, frame by frame.

use crate::format::contents::{Contents, SegmentEnd};
use crate::format::corruption::Corruption;
use crate::format::frame::{FRAME_HEADER_BYTES, FrameError, FrameHeader, FrameHome, FrameKind};
use crate::format::frame_body::{is_zero, kept_parts, read_records};
use crate::format::record::{PartError, PartKind, PartView};
use crate::format::row::Row;
use crate::format::summary::Summary;
use crate::format::system_key::is_local;
use crate::if_planted;
use crate::memory::keys::PREFETCH_KEYS_MAX;
use crate::planted::{Bug, is_planted};
use crate::recovery::recovered::Recovered;
use crate::recovery::recovered::TornTail;
use crate::recovery::refusal::RecoveryError;
use crate::recovery::segment::Segment;
use crate::recovery::window::{CHUNK_BYTES, Window, read_at};
use crate::types::io::{BLOCK_BYTES, SegmentSource};
use crate::types::place::FileId;
use crate::types::place::{LogPosition, LogStart, Lsn, Place};
use crate::types::version::partition_of;
use std::io;

/// What replay comes upon, in log order.
#[derive(Debug)]
pub enum Event<'a> {
    /// A segment; its frames follow.
    Segment(&'a Segment),
    /// The list of segments in the frame that comes next.
    Contents(&'a Contents),
    /// A frame of this file that checks whole; its parts follow.
    Frame(FileId, &'a FrameHeader),
    /// The parts that come next, at most [`PREFETCH_KEYS_MAX`], so that their keys can be
    /// prefetched.
    Prefetch(&'a [PartView<'a>]),
    /// A part and where it stands.
    Part(PartView<'a>, Place),
}

pub(super) struct Replay<'a, S> {
    pub(super) source: &'a mut S,
    pub(super) visit: &'a mut dyn FnMut(Event<'_>) -> io::Result<()>,
    pub(super) buffer: Vec<u8>,
    /// The segment replayed last holds a contents frame.
    pub(super) has_contents: bool,
    /// What stands before is not read.
    pub(super) position: Option<LogPosition>,
    pub(super) found: Recovered,
}

impl<S: SegmentSource> Replay<'_, S> {
    /// A segment that has a successor: every byte up to the end that the successor tells was
    /// durable, and nothing behind it counts.
    pub(super) fn earlier_segment(
        &mut self,
        segment: &Segment,
        stated_end: SegmentEnd,
    ) -> Result<(), RecoveryError> {
        let lost = |row, found: &Recovered, cause| {
            corrupt(row, segment, found, Some(stated_end.last_lsn), cause)
        };
        if segment.file_bytes < stated_end.end_offset {
            return Err(lost(
                Row::EarlierCutShort,
                &self.found,
                "the file is shorter than the next segment says",
            ));
        }
        let is_covered = self
            .position
            .is_some_and(|position| segment.header.sequence < position.sequence);
        if is_covered {
            self.follow(segment)?;
            self.found.start = LogStart {
                last_sequence: stated_end.sequence,
                end_offset: stated_end.end_offset,
                last_lsn: stated_end.last_lsn,
                is_unproven: false,
            };
            self.found.rows.insert(Row::EarlierCovered);
            if segment.file_bytes > stated_end.end_offset {
                self.found
                    .truncate
                    .push((segment.file, stated_end.end_offset));
            }
            return Ok(());
        }
        if let Some(cause) = self.frames(segment, stated_end.end_offset)? {
            return Err(lost(Row::EarlierDamaged, &self.found, cause));
        }
        if self.found.start.last_lsn != stated_end.last_lsn {
            let cause = "it does not end with the record that was told";
            return Err(lost(Row::EarlierDamaged, &self.found, cause));
        }
        self.found.rows.insert(Row::EarlierIntact);
        if segment.file_bytes > stated_end.end_offset {
            self.found
                .truncate
                .push((segment.file, stated_end.end_offset));
        }
        Ok(())
    }

    /// The newest segment, which ends where the crash or the stop left it.
    pub(super) fn last_segment(&mut self, segment: &Segment) -> Result<(), RecoveryError> {
        // No length in a header makes the reader believe in more than the file has.
        let limit = segment.header.segment_bytes.min(segment.file_bytes);
        let bad = self.frames(segment, limit)?;
        if !self.has_position(segment)? {
            let cause = "the frames before the position of the snapshot are not there";
            return Err(corrupt(Row::LastDamaged, segment, &self.found, None, cause));
        }
        let rest = self.behind_end(segment)?;
        let cause = bad.unwrap_or("something stands behind the end");
        let last_lsn = self.found.start.last_lsn;
        let lsn_to = (rest.durable_lsn > last_lsn).then_some(rest.durable_lsn);
        if lsn_to.is_some() || rest.goes_on {
            return Err(corrupt(
                Row::LastDamaged,
                segment,
                &self.found,
                lsn_to,
                cause,
            ));
        }
        if segment.file_bytes < segment.header.segment_bytes {
            return Err(corrupt(
                Row::LastCutShort,
                segment,
                &self.found,
                None,
                "the file is shorter than its header says",
            ));
        }
        let LogStart {
            end_offset: offset,
            last_lsn,
            is_unproven,
            ..
        } = self.found.start;
        if rest.end_offset > offset {
            self.found.rows.insert(Row::LastTorn);
            self.found.start.is_unproven = true;
            let bytes = rest.end_offset - offset;
            self.found.torn = Some(TornTail {
                file: segment.file,
                offset,
                lsn: Lsn(last_lsn.0 + 1),
                bytes,
            });
        } else if last_lsn >= segment.header.first_lsn {
            self.found.rows.insert(if is_unproven {
                Row::LastUnmarked
            } else {
                Row::LastMarked
            });
        }
        Ok(())
    }

    /// Whether the last segment really reaches the position that the replay began at. A good frame
    /// behind the position stands where only a log that reached it could write one; without any,
    /// what stands before is read: a lost tail may begin anywhere.
    fn has_position(&mut self, segment: &Segment) -> Result<bool, RecoveryError> {
        let Some(position) = self.position.filter(|position| {
            position.sequence == segment.header.sequence
                && position.offset == self.found.start.end_offset
        }) else {
            return Ok(true);
        };
        let home = segment.header.home();
        let mut window = Window {
            file: segment.file,
            start: 0,
            filled: 0,
        };
        let (mut offset, mut lsn) = (BLOCK_BYTES as u64, segment.header.first_lsn);
        while offset < position.offset {
            let source = &mut *self.source;
            let Some(block) = window.bytes(source, &mut self.buffer, offset, BLOCK_BYTES)? else {
                return Ok(false);
            };
            let Ok(frame) = FrameHeader::read(home, offset, block) else {
                return Ok(false);
            };
            let padded = frame.padded_bytes();
            if frame.first_lsn != lsn || padded as u64 > position.offset - offset {
                return Ok(false);
            }
            let frame_bytes = window.bytes(source, &mut self.buffer, offset, padded)?;
            if !frame_bytes.is_some_and(|bytes| FrameHeader::body_is_intact(home, bytes)) {
                return Ok(false);
            }
            (offset, lsn) = (offset + padded as u64, frame.end_lsn());
        }
        Ok(offset == position.offset && lsn.0 == position.lsn.0 + 1)
    }

    /// Checks that a segment follows those found so far.
    fn follow(&mut self, segment: &Segment) -> Result<(), RecoveryError> {
        let start = &mut self.found.start;
        let header = &segment.header;
        if header.previous_sequence > start.last_sequence
            && header.sequence.checked_sub(1) == Some(header.previous_sequence)
            && header.first_lsn.0.checked_sub(1) == Some(header.previous_end_lsn.0)
            && header.previous_end_lsn >= start.last_lsn
        {
            // What was between was released, as the contents tell: it has no gaps else.
            *start = LogStart {
                last_sequence: header.previous_sequence,
                end_offset: header.previous_end_offset,
                last_lsn: header.previous_end_lsn,
                is_unproven: false,
            };
        }
        if header.first_lsn.0 != start.last_lsn.0 + 1
            || (
                header.previous_sequence,
                header.previous_end_offset,
                header.previous_end_lsn,
            ) != (start.last_sequence, start.end_offset, start.last_lsn)
        {
            return Err(corrupt(
                Row::HeaderContradicts,
                segment,
                &self.found,
                None,
                "its header does not follow the segment before it",
            ));
        }
        Ok(())
    }

    /// Replays the frames of a segment up to `limit` or the first that is not good. Returns what is
    /// wrong with that one.
    fn frames(
        &mut self,
        segment: &Segment,
        limit: u64,
    ) -> Result<Option<&'static str>, RecoveryError> {
        self.follow(segment)?;
        self.visit(segment, Event::Segment(segment))?;
        let mut summary = self.begin_segment(segment);
        let mut offset = self.found.start.end_offset;
        self.source.will_read(segment.file, offset);
        let mut window = Window {
            file: segment.file,
            start: 0,
            filled: 0,
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut bad = None;
        while offset < limit {
            let next = self.next_frame(segment, (offset, limit), &mut window, &mut buffer)?;
            let (frame, body) = match next {
                Ok(found) => found,
                Err(cause) => {
                    bad = Some(cause);
                    break;
                }
            };
            self.frame(segment, &frame, body, &mut summary)?;
            offset += frame.padded_bytes() as u64;
            self.found.start.end_offset = offset;
            self.found.start.last_lsn = Lsn(frame.end_lsn().0 - 1);
            self.found.start.is_unproven = frame.durable_lsn < self.found.start.last_lsn;
            if frame.kind == FrameKind::Summary
                || (frame.kind == FrameKind::Mark && is_planted(Bug::StopAtMark))
            {
                break;
            }
        }
        self.buffer = buffer;
        self.note_position(segment);
        Ok(bad)
    }

    /// Sets where the frames of a segment begin: behind its header, or at the position of the
    /// snapshot. Returns an empty summary to compare with the segment's own, unless frames before
    /// the position are not read.
    fn begin_segment(&mut self, segment: &Segment) -> Option<Summary> {
        let start = &mut self.found.start;
        *start = LogStart {
            last_sequence: segment.header.sequence,
            end_offset: BLOCK_BYTES as u64,
            is_unproven: false,
            ..*start
        };
        let is_within = |position: &LogPosition| position.sequence == segment.header.sequence;
        let Some(position) = self.position.filter(is_within) else {
            return Some(Summary::new());
        };
        start.end_offset = position.offset;
        start.last_lsn = position.lsn;
        start.is_unproven = position.is_unproven;
        None
    }

    /// The frame at an offset below the limit, and its body. `Ok(Err(_))` says why no good frame
    /// stands there.
    fn next_frame<'b>(
        &mut self,
        segment: &Segment,
        (offset, limit): (u64, u64),
        window: &mut Window,
        buffer: &'b mut Vec<u8>,
    ) -> Result<Result<(FrameHeader, &'b [u8]), &'static str>, RecoveryError> {
        let home = segment.header.home();
        let Some(block) = window.bytes(self.source, buffer, offset, BLOCK_BYTES)? else {
            return Ok(Err("the file ends there"));
        };
        let frame = match FrameHeader::read(home, offset, block) {
            Ok(frame) => frame,
            Err(FrameError::Absent) => return Ok(Err("no frame of this segment stands there")),
            Err(FrameError::Unsupported {
                version,
                kind,
                flags,
            }) => {
                return Err(RecoveryError::Version {
                    file: segment.file,
                    found: format!("a frame of version {version}, kind {kind}, flags {flags:#x}"),
                });
            }
        };
        // The header checks, so these fields were written so: no crash explains them.
        let padded = frame.padded_bytes();
        let contradiction = if frame.first_lsn.0 != self.found.start.last_lsn.0 + 1
            || frame.durable_lsn > self.found.start.last_lsn
        {
            Some("the frame does not follow the one before it")
        } else {
            (padded as u64 > limit - offset).then_some("the frame is longer than its segment")
        };
        if let Some(cause) = contradiction {
            let row = Row::FrameContradicts;
            return Err(corrupt(row, segment, &self.found, None, cause));
        }
        let Some(bytes) = window.bytes(self.source, buffer, offset, padded)? else {
            return Ok(Err("the file ends within the frame"));
        };
        if !FrameHeader::body_is_intact(home, bytes) {
            return Ok(Err("the body of the frame does not check"));
        }
        let body = &bytes[FRAME_HEADER_BYTES..][..frame.body_bytes as usize];
        Ok(Ok((frame, body)))
    }

    /// Notes the end of what was replayed as the position of the log, if the segment has a record.
    fn note_position(&mut self, segment: &Segment) {
        let (start, header) = (self.found.start, &segment.header);
        if start.last_lsn >= header.first_lsn {
            self.found.history.position = Some(LogPosition {
                sequence: header.sequence,
                file: segment.file,
                salt: header.salt,
                offset: start.end_offset,
                lsn: start.last_lsn,
                is_unproven: start.is_unproven,
                has_released: self.found.history.has_released,
            });
        }
    }

    /// Checks and visits what is in a good frame. All parts are checked before the first is
    /// visited: a frame replays whole or not at all.
    pub(super) fn frame(
        &mut self,
        segment: &Segment,
        frame: &FrameHeader,
        body: &[u8],
        summary: &mut Option<Summary>,
    ) -> Result<(), RecoveryError> {
        let last_lsn = (frame.record_count > 0).then(|| Lsn(frame.end_lsn().0 - 1));
        let wrong = |found: &Recovered, cause| {
            let row = Row::FrameBodyContradicts;
            Err(corrupt(row, segment, found, last_lsn, cause))
        };
        let body = match frame.kind {
            FrameKind::Repair => kept_parts(body),
            _ => Some(body),
        };
        let Some(body) = body else {
            return wrong(&self.found, "a repair holds neither parts nor zeros");
        };
        let mut parts = Vec::new();
        match frame.kind {
            FrameKind::Commit | FrameKind::Repair => {
                let records = match read_records(body, |part| parts.push(part)) {
                    Ok(records) => records,
                    Err(PartError::Damaged) => {
                        return wrong(&self.found, "a part in a good frame does not check");
                    }
                    Err(PartError::Unsupported {
                        kind,
                        flags,
                        encoding,
                    }) => {
                        let found =
                            format!("a part of kind {kind}, flags {flags:#x}, encoding {encoding}");
                        return Err(RecoveryError::Version {
                            file: segment.file,
                            found,
                        });
                    }
                };
                if frame.kind == FrameKind::Repair {
                    // A repair leaves the summary as it was: nothing is left to compare it with.
                    *summary = None;
                }
                if !self.count_records(frame, records) {
                    let cause = "the frame does not hold the records that it counts";
                    return wrong(&self.found, cause);
                }
            }
            FrameKind::Mark if body.is_empty() && frame.record_count == 0 => {}
            FrameKind::Summary if frame.record_count == 0 => {
                let read = Summary::read(body);
                if read.is_none() || summary.is_some() && read != *summary {
                    return wrong(&self.found, "the summary does not agree with the segment");
                }
            }
            FrameKind::Contents if frame.record_count == 0 => {
                let Some(contents) = Contents::read(body) else {
                    return wrong(&self.found, "the list of segments cannot be read");
                };
                self.has_contents = true;
                self.found.history.take_in(&contents);
                self.visit(segment, Event::Contents(&contents))?;
            }
            FrameKind::Mark | FrameKind::Summary | FrameKind::Contents => {
                return wrong(&self.found, "a frame without records counts some");
            }
        }
        self.found.time_ms = self.found.time_ms.max(frame.time_ms);
        self.visit(segment, Event::Frame(segment.file, frame))?;
        self.parts(segment, frame, &parts, summary)
    }

    /// Counts the records of a frame. A repair holds fewer records than its header counts, and the
    /// rest was given up; any other frame holds as many, and at least one. Whether it is so.
    fn count_records(&mut self, frame: &FrameHeader, records: u32) -> bool {
        let given_up = match frame.kind {
            FrameKind::Repair => frame.record_count.checked_sub(records),
            _ => (records == frame.record_count && records > 0).then_some(0),
        };
        let Some(given_up) = given_up else {
            return false;
        };
        self.found.frames += u64::from(records > 0);
        self.found.records += u64::from(records);
        self.found.given_up += u64::from(given_up);
        true
    }

    /// Notes and visits the parts of a frame.
    fn parts(
        &mut self,
        segment: &Segment,
        frame: &FrameHeader,
        parts: &[PartView<'_>],
        summary: &mut Option<Summary>,
    ) -> Result<(), RecoveryError> {
        let mut offset = frame.offset + FRAME_HEADER_BYTES as u64;
        for parts in parts.chunks(PREFETCH_KEYS_MAX) {
            self.visit(segment, Event::Prefetch(parts))?;
            for &part in parts {
                let bytes = part.bytes().len();
                let place = Place::new(segment.file, offset, bytes);
                self.note_version(&part);
                if let Some(summary) = summary.as_mut().filter(|_| !is_local(part.key())) {
                    let (epoch, sequence) = (part.epoch(), part.sequence());
                    let is_tombstone = part.kind() == PartKind::Tombstone;
                    summary.note(part.slot(), epoch, sequence, place.offset, is_tombstone);
                }
                offset += bytes as u64;
                if_planted!(Bug::ReplayFirstPart, part.ordinal() > 0, continue);
                if_planted!(Bug::GroupInPart, part.is_last_of_group(), continue);
                self.visit(segment, Event::Part(part, place))?;
            }
        }
        Ok(())
    }

    /// Notes a part in the history of the log: the highest version of the partition, the highest
    /// epoch, and whether the log holds local records.
    fn note_version(&mut self, part: &PartView<'_>) {
        let history = &mut self.found.history;
        let partition = partition_of(part.slot());
        if is_local(part.key()) {
            history.is_linked = true;
            return;
        }
        if !part.is_copy() {
            history.reached.note(partition, part.sequence());
        }
        // A copy by cleaning has the version of its original. In a log with local records, that
        // version may be older than the first local record, and then its epoch must not count for
        // the partition. So such a copy only raises the highest epoch of the log.
        match history.is_linked && part.is_copy() {
            true => history.epoch_max = history.epoch_max.max(part.epoch()),
            false => history.note(partition, part.version()),
        }
    }

    fn visit(&mut self, segment: &Segment, event: Event<'_>) -> Result<(), RecoveryError> {
        (self.visit)(event).map_err(|error| RecoveryError::Read {
            file: Some(segment.file),
            error,
        })
    }

    /// Reads the blocks behind the good frames of the last segment.
    fn behind_end(&mut self, segment: &Segment) -> Result<BehindEnd, RecoveryError> {
        let home: FrameHome = segment.header.home();
        let mut at = self.found.start.end_offset;
        let end = self.found.start;
        let mut rest = BehindEnd {
            end_offset: at,
            durable_lsn: Lsn(0),
            goes_on: false,
        };
        self.buffer.resize(self.buffer.len().max(CHUNK_BYTES), 0);
        loop {
            let read = read_at(
                self.source,
                segment.file,
                at,
                &mut self.buffer[..CHUNK_BYTES],
            )?;
            for (position, block) in (at..)
                .step_by(BLOCK_BYTES)
                .zip(self.buffer[..read].chunks(BLOCK_BYTES))
            {
                let frame = FrameHeader::read(home, position, block);
                // What an earlier use of the file has left tells nothing, torn frames as little.
                let is_void = match segment.header.is_reused {
                    true => frame == Err(FrameError::Absent),
                    false => is_zero(block),
                };
                if is_void {
                    continue;
                }
                rest.end_offset = position + block.len() as u64;
                if let Ok(frame) = frame {
                    rest.durable_lsn = rest.durable_lsn.max(frame.durable_lsn);
                    rest.goes_on |=
                        position > end.end_offset && frame.first_lsn.0 == end.last_lsn.0 + 1;
                }
            }
            if read < CHUNK_BYTES {
                return Ok(rest);
            }
            at += CHUNK_BYTES as u64;
        }
    }
}

/// What stands behind the good frames of a segment.
struct BehindEnd {
    /// The end of the last block that is not zero or, in a file that served before, that begins
    /// with a header of a frame.
    pub(super) end_offset: u64,
    /// The highest LSN that a frame header there knows to have been durable.
    durable_lsn: Lsn,
    /// A frame stands there that begins with the very next record, though not in the next place: so
    /// only a mark can have been between, and that was durable before anything was written behind.
    goes_on: bool,
}

/// Damage behind the good frames found so far.
fn corrupt(
    row: Row,
    segment: &Segment,
    found: &Recovered,
    lsn_to: Option<Lsn>,
    cause: &'static str,
) -> RecoveryError {
    RecoveryError::Corrupt(Corruption {
        row,
        log_id: Some(segment.header.log_id),
        file: segment.file,
        offset: if found.start.last_sequence == segment.header.sequence {
            found.start.end_offset
        } else {
            0
        },
        lsn_from: Lsn(found.start.last_lsn.0 + 1),
        lsn_to,
        cause,
    })
}
