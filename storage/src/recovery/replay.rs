//! Finding out after a stop of any kind what the log holds, before anything is served.
//!
//! A log is accepted frame by frame from its first segment on; magic, segment, own offset, LSN and
//! both salted CRCs must agree. All segments but the last reach exactly the end that their
//! successor's header tells, because that header was written after all before it was durable. In
//! the last segment a bad frame is the torn end of the crash, unless a later frame header proves
//! that it was durable once; later bytes are looked at for that evidence only, never to go on
//! replaying. The table of cases is [`Row`], printed in `FORMAT.md`.

use crate::format::corruption::Corruption;
use crate::format::row::Row;
use crate::format::row::Rows;
use crate::recovery::refusal::RecoveryError;
use crate::recovery::spares::RottenSpare;
use crate::recovery::window::{CHUNK_BYTES, Window, read_at};
use std::collections::BTreeMap;
use std::io;

use crate::format::contents::{Contents, History, SealedSegment, SegmentEnd};
use crate::format::frame::{FRAME_HEADER_BYTES, FrameError, FrameHeader, FrameHome, FrameKind};
use crate::format::layout::Layout;
use crate::format::record::{PartError, PartKind, PartView};
use crate::format::segment::{Owner, SegmentHeader};
use crate::format::summary::Summary;
use crate::format::system_key::is_local;
use crate::memory::keys::LOOK_AHEAD;
use crate::planted::{Bug, is_planted};
use crate::recovery::snapshot::snapshot::{SnapshotFooter, SnapshotHeader};
use crate::types::io::{BLOCK_BYTES, SegmentSource};
use crate::types::place::FileId;
use crate::types::place::{LogPosition, LogStart, Lsn, Place};
use crate::types::version::partition_of;

use crate::format::frame_body::{is_zero, kept_parts, read_records};
use crate::recovery::spares::{FileKind, Look, classify};

/// One segment file of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The file.
    pub file: FileId,
    /// Its length now, in bytes.
    pub file_bytes: u64,
    /// Its first block.
    pub header: SegmentHeader,
    /// Where it ends, if a contents frame tells.
    pub told_end: Option<SegmentEnd>,
}

/// What the files of a data directory are, by their first blocks.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The segments of each log, in order.
    pub logs: BTreeMap<u64, Vec<Segment>>,
    /// Files of segments that their log has released: nothing in them counts any more. They are to be
    /// removed, but not before the file that tells so is synced: what was read of it may only have
    /// been in memory.
    pub released: BTreeMap<u64, Vec<FileId>>,
    /// Files of logs that are void; they are to be deleted.
    pub void: Vec<FileId>,
    /// Files that hold nothing and may be taken into use, with their lengths.
    pub spares: Vec<(FileId, u64)>,
    /// Files that served before and were to serve again, with their lengths; they hold nothing that counts.
    /// They are to be deleted, or to serve under another salt.
    pub reused: Vec<(FileId, u64)>,
    /// Spares that hold what nobody wrote and that proves nothing; they are to be set aside and told.
    pub rotten: Vec<RottenSpare>,
    /// Files that were torn when they were about to be taken into use; they hold nothing that was
    /// ever durable and are to be deleted before the log is written.
    pub torn_activations: Vec<FileId>,
    /// The rows of the table that the files themselves fell under.
    pub rows: Rows,
}

/// What one log held.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Where the writer goes on.
    pub start: LogStart,
    /// Its segments, and how far its sequences and epochs have gone.
    pub history: History,
    /// The newest time that a frame carries, in unix milliseconds.
    pub time_ms: u64,
    /// Commit frames replayed.
    pub frames: u64,
    /// Records replayed.
    pub records: u64,
    /// Records that an earlier repair gave up: they have an LSN and are not there.
    pub given_up: u64,
    /// The end of the last segment was torn by a crash and left out.
    pub torn: Option<TornTail>,
    /// The file of the last record. It is to be synced before anything that was read is served:
    /// what is only in the system's memory is not durable yet.
    pub last_file: Option<FileId>,
    /// Files of segments that have a successor, and the lengths to which they can be cut. The last
    /// segment keeps its length: if it is found shorter, somebody else has cut it.
    pub truncate: Vec<(FileId, u64)>,
    /// The file of a last segment that holds no record and proves nothing that the one before it
    /// does not. `start` does not count it, so it is to be deleted for good (the directory synced)
    /// before the log is written.
    pub release: Option<FileId>,
    /// The rows of the table that its segments fell under.
    pub rows: Rows,
}

impl Recovered {
    /// Whether the log ends with a mark or summary, or with a segment's header, that proves
    /// everything before it.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        !self.start.is_unproven
    }
}

/// What a crash left half written. None of it was acknowledged as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub file: FileId,
    /// Where the good frames end.
    pub offset: u64,
    /// The first record that is not there.
    pub lsn: Lsn,
    /// From there to the last block that is not zero.
    pub bytes: u64,
}

/// Reads the first block of every file and sorts the files into logs and spares. Spares are read whole.
///
/// # Errors
/// [`RecoveryError`] for a file that cannot be read, is not of `owner`, has another version, or is
/// damaged although it must have been durable; and for a gap in a log.
pub fn survey(source: &mut impl SegmentSource, owner: Owner) -> Result<Survey, RecoveryError> {
    survey_with(source, owner, &Layout::new(u16::MAX), Look::Whole)
}

/// As [`survey`]; of void logs nothing but the files is told.
///
/// # Errors
/// As for [`survey`].
pub fn survey_laid_out(
    source: &mut impl SegmentSource,
    owner: Owner,
    layout: &Layout,
) -> Result<Survey, RecoveryError> {
    survey_with(source, owner, layout, Look::Whole)
}

/// As [`survey_laid_out`], but of spares only [`HEAD_BYTES`] are read: before [`prove_spare`] has read the
/// rest of one, it may be neither written nor removed.
///
/// # Errors
/// As for [`survey`].
pub fn survey_heads(
    source: &mut impl SegmentSource,
    owner: Owner,
    layout: &Layout,
) -> Result<Survey, RecoveryError> {
    survey_with(source, owner, layout, Look::Head)
}

fn survey_with(
    source: &mut impl SegmentSource,
    owner: Owner,
    layout: &Layout,
    look: Look,
) -> Result<Survey, RecoveryError> {
    let mut files = source
        .files()
        .map_err(|error| RecoveryError::Read { file: None, error })?;
    files.sort_unstable();
    let mut survey = Survey::default();
    for (file, file_bytes) in files {
        match classify(source, file, file_bytes, Some(owner), look)? {
            FileKind::Spare => {
                survey.rows.insert(Row::Spare);
                survey.spares.push((file, file_bytes));
            }
            FileKind::ReusedSpare => {
                survey.rows.insert(Row::ReusedSpare);
                survey.reused.push((file, file_bytes));
            }
            FileKind::RottenSpare(rotten) => {
                survey.rows.insert(Row::RottenSpare);
                survey.rotten.push(rotten);
            }
            FileKind::TornActivation => {
                survey.rows.insert(Row::TornActivation);
                survey.torn_activations.push(file);
            }
            FileKind::Segment(segment) if layout.is_void(segment.header.log_id) => {
                survey.void.push(file);
            }
            FileKind::Segment(segment) => survey
                .logs
                .entry(segment.header.log_id)
                .or_default()
                .push(segment),
        }
    }
    for segments in survey.logs.values() {
        // It is read whole before its log is judged, and the others at the same time.
        let newest = segments.iter().max_by_key(|it| it.header.sequence);
        newest.inspect(|last| source.will_read(last.file, BLOCK_BYTES as u64));
    }
    for (&log_id, segments) in &mut survey.logs {
        let released = settle_contents(source, segments)?;
        if !released.is_empty() {
            survey.rows.insert(Row::Released);
            survey.released.insert(log_id, released);
        }
    }
    Ok(survey)
}

/// Sorts the segments of a log, finds out which of them it consists of, and takes the released ones
/// out. Each of the others must be there once.
pub(crate) fn settle_contents(
    source: &mut impl SegmentSource,
    segments: &mut Vec<Segment>,
) -> Result<Vec<FileId>, RecoveryError> {
    segments.sort_unstable_by_key(|segment| (segment.header.sequence, segment.file));
    if let Some(pair) = segments
        .array_windows()
        .find(|[a, b]| a.header.sequence == b.header.sequence)
    {
        return Err(RecoveryError::Corrupt(Corruption {
            row: Row::SegmentTwice,
            log_id: Some(pair[1].header.log_id),
            file: pair[1].file,
            offset: 0,
            lsn_from: pair[1].header.first_lsn,
            lsn_to: None,
            cause: "two files claim one place in the log",
        }));
    }
    let (dense_from, told, released) = match newest_contents(source, segments)? {
        Some((from, contents)) => {
            let listed = |sequence| {
                let by_sequence = |end: &SegmentEnd| end.sequence.cmp(&sequence);
                contents.segments.binary_search_by(by_sequence).ok()
            };
            let mut released = Vec::new();
            segments.retain_mut(|segment| {
                let sequence = segment.header.sequence;
                if sequence >= from {
                    return true;
                }
                segment.told_end = listed(sequence).map(|at| contents.segments[at]);
                if segment.told_end.is_none() && !is_planted(Bug::ReplayReleased) {
                    released.push(segment.file);
                }
                segment.told_end.is_some()
            });
            (from, contents.segments, released)
        }
        None => (1, Vec::new(), Vec::new()),
    };
    // The first record that the segment before, the last whose place is sure, can hold.
    let mut lsn_before = Lsn(1);
    let expected = told.iter().map(|end| end.sequence).chain(dense_from..);
    for (expected, segment) in expected.zip(segments.iter()) {
        if segment.header.sequence != expected {
            let lsn_to = match told.iter().find(|end| end.sequence == expected) {
                Some(end) => end.last_lsn,
                None => segment.header.previous_end_lsn,
            };
            return Err(RecoveryError::SegmentMissing {
                log_id: segment.header.log_id,
                sequence: expected,
                next: segment.file,
                lsn_from: lsn_before,
                lsn_to,
            });
        }
        lsn_before = segment.header.first_lsn;
    }
    Ok(released)
}

/// The newest contents frame of a log and the sequence of the segment that holds it. A contents
/// frame is under way alone, so one that checks proves that all before it was durable. A log that
/// has released anything begins each segment with one, so only segments that hold no frame at all can stand behind
/// it, and those that begin with a repair frame: a repair tells nothing of releases.
pub(crate) fn newest_contents(
    source: &mut impl SegmentSource,
    segments: &[Segment],
) -> Result<Option<(u64, Contents)>, RecoveryError> {
    for segment in segments.iter().rev() {
        let (begins_as_written, contents) = last_contents(source, segment)?;
        if begins_as_written || contents.is_some() {
            // No log comes so far; the next number must exist.
            let contents = contents.filter(|_| segment.header.sequence < u64::MAX);
            return Ok(contents.map(|contents| (segment.header.sequence, contents)));
        }
    }
    Ok(None)
}

/// Whether a segment begins with a frame that is no repair, and its last contents frame, going from frame to frame
/// by their headers.
fn last_contents(
    source: &mut impl SegmentSource,
    segment: &Segment,
) -> Result<(bool, Option<Contents>), RecoveryError> {
    let home = segment.header.home();
    let limit = segment.header.segment_bytes.min(segment.file_bytes);
    let mut window = Window {
        file: segment.file,
        start: 0,
        filled: 0,
    };
    let mut buffer = Vec::new();
    let (mut begins_as_written, mut newest) = (false, None);
    let mut offset = BLOCK_BYTES as u64;
    while offset < limit {
        let Some(block) = window.bytes(source, &mut buffer, offset, BLOCK_BYTES)? else {
            break;
        };
        let Ok(frame) = FrameHeader::read(home, offset, block) else {
            break;
        };
        let padded = frame.padded_bytes();
        if padded as u64 > limit - offset {
            break;
        }
        if frame.kind == FrameKind::Contents {
            let Some(bytes) = window.bytes(source, &mut buffer, offset, padded)? else {
                break;
            };
            if !FrameHeader::body_is_intact(home, bytes) {
                break;
            }
            let body = &bytes[FRAME_HEADER_BYTES..][..frame.body_bytes as usize];
            newest = Contents::read(body).or(newest);
        }
        begins_as_written |= offset == BLOCK_BYTES as u64 && frame.kind != FrameKind::Repair;
        offset += padded as u64;
    }
    Ok((begins_as_written, newest))
}

/// Replays one log in order, handing every part of every good frame to `visit`.
///
/// # Errors
/// [`RecoveryError`] if something durable is damaged or of another format; whatever `visit` fails
/// with, as a read error.
pub fn recover(
    source: &mut impl SegmentSource,
    segments: &[Segment],
    visit: &mut dyn FnMut(&PartView<'_>, Place) -> io::Result<()>,
) -> Result<Recovered, RecoveryError> {
    replay(source, segments, &mut |event| match event {
        Event::Part(part, place) => visit(&part, place),
        Event::Segment(_) | Event::Contents(_) | Event::Frame(..) | Event::Ahead(_) => Ok(()),
    })
}

/// Replays one log that was proved to end at `end`, as [`replay`] does: also its last segment must
/// reach exactly that.
///
/// # Errors
/// As for [`recover`].
pub fn replay_ended(
    source: &mut impl SegmentSource,
    segments: &[Segment],
    log_id: u64,
    end: SegmentEnd,
    visit: &mut dyn FnMut(Event<'_>) -> io::Result<()>,
) -> Result<Recovered, RecoveryError> {
    if is_planted(Bug::InheritedEndUnchecked) {
        return replay(source, segments, visit);
    }
    let last = segments.last();
    if last.is_none_or(|last| last.header.sequence < end.sequence) {
        return Err(RecoveryError::EndMissing {
            log_id,
            lsn_from: last.map_or(Lsn(1), |last| last.header.first_lsn),
            end,
        });
    }
    let is_behind = |segment: &&Segment| segment.header.sequence > end.sequence;
    if let Some(behind) = segments.iter().find(is_behind) {
        return Err(RecoveryError::Corrupt(Corruption {
            row: Row::HeaderContradicts,
            log_id: Some(log_id),
            file: behind.file,
            offset: 0,
            lsn_from: behind.header.first_lsn,
            lsn_to: None,
            cause: "it stands behind the end of its log that IDENTITY tells",
        }));
    }
    replay_behind(source, segments, (None, Some(end)), visit)
}

/// Replays one log behind the position of a snapshot that fits it, as [`replay`] does all of it. What
/// stands before is not read: of those segments only headers and lengths are compared. None if the
/// log ends before the last record that the snapshot may have seen.
///
/// # Errors
/// As for [`recover`].
pub fn recover_behind(
    source: &mut impl SegmentSource,
    segments: &[Segment],
    (header, footer): (&SnapshotHeader, &SnapshotFooter),
    visit: &mut dyn FnMut(Event<'_>) -> io::Result<()>,
) -> Result<Option<Recovered>, RecoveryError> {
    let mut is_left_out = false;
    let snapshot = Some((header, footer));
    let to = footer.to;
    // A later start has taken the log for shorter and given its LSNs out anew: an earlier version of the server
    // did that when the tail was lost. The records that the walk saw may not be those.
    let is_passed_over = |segment: &Segment| {
        segment.header.incarnation > header.incarnation && segment.header.first_lsn <= to
    };
    if segments.iter().any(is_passed_over) {
        return Ok(None);
    }
    let recovered = replay_behind(
        source,
        segments,
        (snapshot, None),
        &mut |event| match event {
            Event::Part(part, _)
                if is_planted(Bug::SkipTailTombstones) && part.kind() == PartKind::Tombstone =>
            {
                Ok(())
            }
            Event::Part(..) if is_left_out => Ok(()),
            Event::Frame(file, frame) => {
                is_left_out = is_planted(Bug::ReplayFromTo) && frame.end_lsn() <= Lsn(to.0 + 1);
                visit(Event::Frame(file, frame))
            }
            other => visit(other),
        },
    )?;
    Ok((recovered.start.last_lsn >= to).then_some(recovered))
}

/// What replay comes upon, in log order.
#[derive(Debug)]
pub enum Event<'a> {
    /// A segment; its frames follow.
    Segment(&'a Segment),
    /// What the frame that comes next tells of which segments there are.
    Contents(&'a Contents),
    /// A frame of this file that checks whole; its parts follow.
    Frame(FileId, &'a FrameHeader),
    /// At most [`LOOK_AHEAD`] parts that come next, so that what they need can be loaded together.
    Ahead(&'a [PartView<'a>]),
    /// A part and where it stands.
    Part(PartView<'a>, Place),
}

/// Replays one log, with all that is found on the way.
///
/// # Errors
/// As for [`recover`].
pub fn replay(
    source: &mut impl SegmentSource,
    segments: &[Segment],
    visit: &mut dyn FnMut(Event<'_>) -> io::Result<()>,
) -> Result<Recovered, RecoveryError> {
    replay_behind(source, segments, (None, None), visit)
}

fn replay_behind(
    source: &mut impl SegmentSource,
    segments: &[Segment],
    (snapshot, end): (
        Option<(&SnapshotHeader, &SnapshotFooter)>,
        Option<SegmentEnd>,
    ),
    visit: &mut dyn FnMut(Event<'_>) -> io::Result<()>,
) -> Result<Recovered, RecoveryError> {
    let mut found = Recovered::default();
    if let Some((header, footer)) = snapshot {
        found.history.sequences.clone_from(&header.sequences);
        found.history.epoch_max = header.epoch_max;
        found.history.is_linked = header.is_linked;
        if !header.is_linked {
            found.history.forgotten.clone_from(&header.sequences);
        }
        found.history.has_released = header.has_released;
        found.time_ms = footer.time_ms;
    }
    let mut replay = Replay {
        source,
        visit,
        buffer: Vec::new(),
        has_contents: false,
        position: snapshot.map(|(header, _)| header.position()),
        found,
    };
    for (index, segment) in segments.iter().enumerate() {
        let before = replay.found.start;
        replay.has_contents = false;
        match segments.get(index + 1) {
            Some(next) => {
                let told = segment.told_end.unwrap_or(SegmentEnd {
                    sequence: segment.header.sequence,
                    end_offset: next.header.previous_end_offset,
                    last_lsn: next.header.previous_end_lsn,
                });
                replay.earlier_segment(segment, told)?;
            }
            None => match end {
                Some(end) => replay.earlier_segment(segment, end)?,
                None => replay.last_segment(segment)?,
            },
        }
        let has_contents = replay.has_contents;
        let found = &mut replay.found;
        // A file that an earlier start has cut cannot be the last again.
        let mut earlier = segments[..index].iter();
        let is_cut = earlier
            .next_back()
            .is_some_and(|last| last.file_bytes < last.header.segment_bytes);
        if found.start.last_lsn > before.last_lsn || end.is_some() {
            found.last_file = Some(segment.file);
        } else if index + 1 == segments.len()
            && (before.is_unproven
                || is_cut
                || has_contents && !is_planted(Bug::ReleaseWithContents))
        {
            found.rows.insert(Row::LastKept);
            // Its header is what the verdict on the segment before it rests on.
            found.last_file = Some(segment.file);
        } else if index + 1 == segments.len() {
            found.rows.insert(Row::LastEmpty);
            found.start = before;
            found.release = Some(segment.file);
            // The one before is the last then, and keeps its length.
            let last = segments[..index].last().map(|segment| segment.file);
            found
                .truncate
                .retain(|&(file, _)| Some(file) != last || is_planted(Bug::CutBeforeRelease));
            break;
        }
        found.history.segments.push(SealedSegment {
            file: segment.file,
            salt: segment.header.salt,
            file_bytes: segment.file_bytes,
            end: SegmentEnd {
                sequence: segment.header.sequence,
                end_offset: found.start.end_offset,
                last_lsn: found.start.last_lsn,
            },
        });
        found.history.reached.segment_ends(found.start.last_lsn);
    }
    for &(file, bytes) in &replay.found.truncate {
        for segment in &mut replay.found.history.segments {
            if segment.file == file {
                segment.file_bytes = bytes;
            }
        }
    }
    Ok(replay.found)
}

struct Replay<'a, S> {
    source: &'a mut S,
    visit: &'a mut dyn FnMut(Event<'_>) -> io::Result<()>,
    buffer: Vec<u8>,
    /// The segment replayed last holds a contents frame.
    has_contents: bool,
    /// What stands before is not read.
    position: Option<LogPosition>,
    found: Recovered,
}
impl<S: SegmentSource> Replay<'_, S> {
    /// A segment that has a successor: every byte up to the end that the successor tells was
    /// durable, and nothing behind it counts.
    fn earlier_segment(
        &mut self,
        segment: &Segment,
        told: SegmentEnd,
    ) -> Result<(), RecoveryError> {
        let lost = |row, found: &Recovered, cause| {
            corrupt(row, segment, found, Some(told.last_lsn), cause)
        };
        if segment.file_bytes < told.end_offset {
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
                last_sequence: told.sequence,
                end_offset: told.end_offset,
                last_lsn: told.last_lsn,
                is_unproven: false,
            };
            self.found.rows.insert(Row::EarlierCovered);
            if segment.file_bytes > told.end_offset {
                self.found.truncate.push((segment.file, told.end_offset));
            }
            return Ok(());
        }
        if let Some(cause) = self.frames(segment, told.end_offset)? {
            return Err(lost(Row::EarlierDamaged, &self.found, cause));
        }
        if self.found.start.last_lsn != told.last_lsn {
            let cause = "it does not end with the record that was told";
            return Err(lost(Row::EarlierDamaged, &self.found, cause));
        }
        self.found.rows.insert(Row::EarlierIntact);
        if segment.file_bytes > told.end_offset {
            self.found.truncate.push((segment.file, told.end_offset));
        }
        Ok(())
    }

    /// The newest segment, which ends where the crash or the stop left it.
    fn last_segment(&mut self, segment: &Segment) -> Result<(), RecoveryError> {
        // No length in a header makes the reader believe in more than the file has.
        let limit = segment.header.segment_bytes.min(segment.file_bytes);
        let bad = self.frames(segment, limit)?;
        if !self.has_position(segment)? {
            let cause = "the frames before the position of the snapshot are not there";
            return Err(corrupt(Row::LastDamaged, segment, &self.found, None, cause));
        }
        let rest = self.rest(segment)?;
        let cause = bad.unwrap_or("something stands behind the end");
        let last_lsn = self.found.start.last_lsn;
        let lsn_to = (rest.durable_lsn > last_lsn).then_some(rest.durable_lsn);
        if (lsn_to.is_some() || rest.goes_on) && !is_planted(Bug::CutOnAnyBadFrame) {
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

    /// Whether the last segment really reaches the position that the replay began at. A good frame behind the
    /// position stands where only a log that reached it could write one; without any, what stands before is read: a
    /// lost tail may begin anywhere.
    fn has_position(&mut self, segment: &Segment) -> Result<bool, RecoveryError> {
        let Some(position) = self.position.filter(|position| {
            position.sequence == segment.header.sequence
                && position.offset == self.found.start.end_offset
                && !is_planted(Bug::IgnoreProvenEnd)
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

    /// Replays the frames of a segment up to `limit` or the first that is not good, and tells what
    /// is wrong with that one.
    fn frames(
        &mut self,
        segment: &Segment,
        limit: u64,
    ) -> Result<Option<&'static str>, RecoveryError> {
        let home = segment.header.home();
        let header = &segment.header;
        self.follow(segment)?;
        self.visit(segment, Event::Segment(segment))?;
        let mut offset = BLOCK_BYTES as u64;
        self.found.start = LogStart {
            last_sequence: header.sequence,
            end_offset: offset,
            is_unproven: false,
            ..self.found.start
        };
        // A repair leaves the summary as it was, so there is nothing to compare it with any more.
        let mut summary = Some(Summary::new());
        if let Some(position) = self.position
            && position.sequence == header.sequence
        {
            offset = position.offset;
            self.found.start.end_offset = offset;
            self.found.start.last_lsn = position.lsn;
            self.found.start.is_unproven = position.is_unproven;
            summary = None;
        }
        self.source.will_read(segment.file, offset);
        let mut window = Window {
            file: segment.file,
            start: 0,
            filled: 0,
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut bad = None;
        while offset < limit {
            let Some(block) = window.bytes(self.source, &mut buffer, offset, BLOCK_BYTES)? else {
                bad = Some("the file ends there");
                break;
            };
            let frame = match FrameHeader::read(home, offset, block) {
                Ok(frame) => frame,
                Err(FrameError::Absent) => {
                    bad = Some("no frame of this segment stands there");
                    break;
                }
                Err(FrameError::Unsupported {
                    version,
                    kind,
                    flags,
                }) => {
                    let found =
                        format!("a frame of version {version}, kind {kind}, flags {flags:#x}");
                    return Err(RecoveryError::Version {
                        file: segment.file,
                        found,
                    });
                }
            };
            // The header checks, so these were written so: no crash explains them.
            let padded = frame.padded_bytes();
            if frame.first_lsn.0 != self.found.start.last_lsn.0 + 1
                || frame.durable_lsn > self.found.start.last_lsn
            {
                return Err(corrupt(
                    Row::FrameContradicts,
                    segment,
                    &self.found,
                    None,
                    "the frame does not follow the one before it",
                ));
            }
            if padded as u64 > limit - offset {
                return Err(corrupt(
                    Row::FrameContradicts,
                    segment,
                    &self.found,
                    None,
                    "the frame is longer than its segment",
                ));
            }
            let Some(bytes) = window.bytes(self.source, &mut buffer, offset, padded)? else {
                bad = Some("the file ends within the frame");
                break;
            };
            if !FrameHeader::body_is_intact(home, bytes) {
                bad = Some("the body of the frame does not check");
                break;
            }
            self.frame(
                segment,
                &frame,
                &bytes[FRAME_HEADER_BYTES..][..frame.body_bytes as usize],
                &mut summary,
            )?;
            offset += padded as u64;
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
        let LogStart {
            end_offset,
            last_lsn,
            is_unproven,
            ..
        } = self.found.start;
        if last_lsn >= header.first_lsn {
            self.found.history.position = Some(LogPosition {
                sequence: header.sequence,
                file: segment.file,
                salt: header.salt,
                offset: end_offset,
                lsn: last_lsn,
                is_unproven,
                has_released: self.found.history.has_released,
            });
        }
        Ok(bad)
    }

    /// Checks and visits what is in a good frame.
    fn frame(
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
        // All parts are checked before the first is visited: a frame replays whole or not at all.
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
                let given_up = if frame.kind == FrameKind::Repair {
                    *summary = None;
                    frame.record_count.checked_sub(records)
                } else {
                    (records == frame.record_count && records > 0).then_some(0)
                };
                let Some(given_up) = given_up else {
                    return wrong(
                        &self.found,
                        "the frame does not hold the records that it counts",
                    );
                };
                self.found.frames += u64::from(records > 0);
                self.found.records += u64::from(records);
                self.found.given_up += u64::from(given_up);
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
                self.found.history.take_told(&contents);
                self.visit(segment, Event::Contents(&contents))?;
            }
            FrameKind::Mark | FrameKind::Summary | FrameKind::Contents => {
                return wrong(&self.found, "a frame without records counts some");
            }
        }
        self.found.time_ms = self.found.time_ms.max(frame.time_ms);
        self.visit(segment, Event::Frame(segment.file, frame))?;
        let mut offset = frame.offset + FRAME_HEADER_BYTES as u64;
        for parts in parts.chunks(LOOK_AHEAD) {
            self.visit(segment, Event::Ahead(parts))?;
            for &part in parts {
                let bytes = part.bytes().len();
                let place = Place::new(segment.file, offset, bytes);
                let history = &mut self.found.history;
                let is_local = is_local(part.key());
                if !is_local && !part.is_copy() {
                    let partition = partition_of(part.slot());
                    history.reached.note(partition, part.sequence());
                }
                match is_local {
                    true => history.is_linked = true,
                    // Behind local records a copy may be of a version from before them.
                    false if history.is_linked && part.is_copy() => {
                        history.epoch_max = history.epoch_max.max(part.epoch());
                    }
                    false => history.note(partition_of(part.slot()), part.version()),
                }
                let is_tombstone = part.kind() == PartKind::Tombstone;
                if let Some(summary) = summary.as_mut().filter(|_| !is_local) {
                    let (epoch, sequence) = (part.epoch(), part.sequence());
                    summary.note(part.slot(), epoch, sequence, place.offset, is_tombstone);
                }
                if part.ordinal() == 0 || !is_planted(Bug::ReplayFirstPart) {
                    self.visit(segment, Event::Part(part, place))?;
                }
                offset += bytes as u64;
            }
        }
        Ok(())
    }

    fn visit(&mut self, segment: &Segment, event: Event<'_>) -> Result<(), RecoveryError> {
        (self.visit)(event).map_err(|error| RecoveryError::Read {
            file: Some(segment.file),
            error,
        })
    }

    /// Looks through what stands behind the good frames of the last segment.
    fn rest(&mut self, segment: &Segment) -> Result<Rest, RecoveryError> {
        let home: FrameHome = segment.header.home();
        let mut at = self.found.start.end_offset;
        let end = self.found.start;
        let mut rest = Rest {
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
struct Rest {
    /// The end of the last block that is not zero or, in a file that served before, that begins with a
    /// header of a frame.
    end_offset: u64,
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
