//! Finding out after a stop of any kind what the log holds, before anything is served.
//!
//! A log is accepted frame by frame from its first segment on; magic, segment, own offset, LSN and
//! both salted CRCs must agree. All segments but the last reach exactly the end that their
//! successor's header tells, because that header was written after all before it was durable. In
//! the last segment a bad frame is the torn end of the crash, unless a later frame header proves
//! that it was durable once; later bytes are looked at for that evidence only, never to go on
//! replaying. The table of cases is [`Row`], printed in `FORMAT.md`.

use crate::format::contents::{SealedSegment, SegmentEnd};
use crate::format::corruption::Corruption;
use crate::format::record::{PartKind, PartView};
use crate::format::row::Row;
use crate::planted::{self, Bug, is_planted};
use crate::recovery::frames::Event;
use crate::recovery::frames::Replay;
use crate::recovery::recovered::Recovered;
use crate::recovery::refusal::RecoveryError;
use crate::recovery::segment::Segment;
use crate::recovery::snapshot::format::{SnapshotFooter, SnapshotHeader};
use crate::types::io::SegmentSource;
use crate::types::place::{Lsn, Place};
use std::io;

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
        Event::Segment(_) | Event::Contents(_) | Event::Frame(..) | Event::Prefetch(_) => Ok(()),
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
    let end = planted::or(Bug::InheritedEndUnchecked, None, Some(end));
    replay_behind(source, segments, (None, end), visit)
}

/// Replays one log behind the position of a snapshot that fits it, as [`replay`] does all of it.
/// What stands before is not read: of those segments only headers and lengths are compared. None if
/// the log ends before the last record that the snapshot may have seen.
///
/// # Errors
/// As for [`recover`].
pub fn recover_behind(
    source: &mut impl SegmentSource,
    segments: &[Segment],
    (header, footer): (&SnapshotHeader, &SnapshotFooter),
    visit: &mut dyn FnMut(Event<'_>) -> io::Result<()>,
) -> Result<Option<Recovered>, RecoveryError> {
    let snapshot = Some((header, footer));
    let to = footer.to;
    let mut is_left_out = is_left_out(to);
    // A later start has taken the log for shorter and given its LSNs out anew: an earlier version
    // of the server did that when the tail was lost. The records that the walk saw may not be
    // those.
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
        &mut |event| match is_left_out(&event) {
            true => Ok(()),
            false => visit(event),
        },
    )?;
    Ok((recovered.start.last_lsn >= to).then_some(recovered))
}

/// Whether a planted bug leaves out what is found behind a snapshot: nothing, without one.
fn is_left_out(to: Lsn) -> impl FnMut(&Event<'_>) -> bool {
    let mut is_before = false;
    move |event| match event {
        Event::Part(part, _) => {
            let is_skipped = is_planted(Bug::SkipTailTombstones);
            is_before || is_skipped && part.kind() == PartKind::Tombstone
        }
        Event::Frame(_, frame) => {
            is_before = is_planted(Bug::ReplayFromTo) && frame.end_lsn() <= Lsn(to.0 + 1);
            false
        }
        _ => false,
    }
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
                let stated_end = segment.stored_end.unwrap_or(SegmentEnd {
                    sequence: segment.header.sequence,
                    end_offset: next.header.previous_end_offset,
                    last_lsn: next.header.previous_end_lsn,
                });
                replay.earlier_segment(segment, stated_end)?;
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
