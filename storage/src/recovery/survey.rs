//! What the files of a data directory are, by their first blocks, and where each log's segments
//! end.

use crate::format::contents::{Contents, SegmentEnd};
use crate::format::corruption::Corruption;
use crate::format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use crate::format::layout::Layout;
use crate::format::row::Row;
use crate::format::row::Rows;
use crate::format::segment::Owner;
use crate::planted::{Bug, is_planted};
use crate::recovery::refusal::RecoveryError;
use crate::recovery::segment::Segment;
use crate::recovery::spares::RottenSpare;
use crate::recovery::spares::{FileKind, ReadExtent, classify};
use crate::recovery::window::Window;
use crate::types::io::{BLOCK_BYTES, SegmentSource};
use crate::types::place::FileId;
use crate::types::place::Lsn;
use std::collections::BTreeMap;

/// What the files of a data directory are, by their first blocks.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The segments of each log, in order.
    pub logs: BTreeMap<u64, Vec<Segment>>,
    /// Files of segments that their log has released: nothing in them counts any more. They are to
    /// be removed after the file that reports the release is synced: the survey may have read the
    /// report from the page cache alone.
    pub released: BTreeMap<u64, Vec<FileId>>,
    /// Files of logs that are void; they are to be deleted.
    pub void: Vec<FileId>,
    /// Files that hold nothing and may be taken into use, with their lengths.
    pub spares: Vec<(FileId, u64)>,
    /// Files that served before and were to serve again, with their lengths; they hold nothing that
    /// counts. They are to be deleted, or to serve under another salt.
    pub reused: Vec<(FileId, u64)>,
    /// Spares that hold what nobody wrote and that proves nothing; they are to be set aside and
    /// told.
    pub rotten: Vec<RottenSpare>,
    /// Files that were torn when they were about to be taken into use; they hold nothing that was
    /// ever durable and are to be deleted before the log is written.
    pub torn_activations: Vec<FileId>,
    /// The rows of the table that the files themselves fell under.
    pub rows: Rows,
}

/// Reads the first block of every file and sorts the files into logs and spares. Spares are read
/// whole.
///
/// # Errors
/// [`RecoveryError`] for a file that cannot be read, is not of `owner`, has another version, or is
/// damaged although it must have been durable; and for a gap in a log.
pub fn survey(source: &mut impl SegmentSource, owner: Owner) -> Result<Survey, RecoveryError> {
    survey_with(source, owner, &Layout::new(u16::MAX), ReadExtent::Whole)
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
    survey_with(source, owner, layout, ReadExtent::Whole)
}

/// As [`survey_laid_out`], but of spares only [`HEAD_BYTES`] are read: before [`prove_spare`] has
/// read the rest of one, it may be neither written nor removed.
///
/// # Errors
/// As for [`survey`].
///
/// [`HEAD_BYTES`]: crate::recovery::HEAD_BYTES
/// [`prove_spare`]: crate::recovery::prove_spare
pub fn survey_heads(
    source: &mut impl SegmentSource,
    owner: Owner,
    layout: &Layout,
) -> Result<Survey, RecoveryError> {
    survey_with(source, owner, layout, ReadExtent::Head)
}

/// Classifies each file. `extent` says how much of a spare is read.
fn survey_with(
    source: &mut impl SegmentSource,
    owner: Owner,
    layout: &Layout,
    extent: ReadExtent,
) -> Result<Survey, RecoveryError> {
    let mut files = source
        .files()
        .map_err(|error| RecoveryError::Read { file: None, error })?;
    files.sort_unstable();
    let mut survey = Survey::default();
    for (file, file_bytes) in files {
        match classify(source, file, file_bytes, Some(owner), extent)? {
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
        // The newest segment of each log is read before that log is judged. Announcing all of them
        // here makes their reads run side by side.
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
    let (dense_from, listed_ends, released) = match newest_contents(source, segments)? {
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
                segment.stored_end = listed(sequence).map(|at| contents.segments[at]);
                if segment.stored_end.is_none() && !is_planted(Bug::ReplayReleased) {
                    released.push(segment.file);
                }
                segment.stored_end.is_some()
            });
            (from, contents.segments, released)
        }
        None => (1, Vec::new(), Vec::new()),
    };
    // The first record that the segment before, the last whose place is sure, can hold.
    let mut lsn_before = Lsn(1);
    let expected = listed_ends
        .iter()
        .map(|end| end.sequence)
        .chain(dense_from..);
    for (expected, segment) in expected.zip(segments.iter()) {
        if segment.header.sequence != expected {
            let lsn_to = match listed_ends.iter().find(|end| end.sequence == expected) {
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
/// has released anything begins each segment with one, so only segments that hold no frame at all
/// can stand behind it, and those that begin with a repair frame: a repair tells nothing of
/// releases.
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

/// Whether a segment begins with a frame that is no repair, and its last contents frame, going from
/// frame to frame by their headers.
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
