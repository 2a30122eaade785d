//! Making a data directory that recovery refuses one that it serves again, by giving up what cannot
//! be read and nothing else.
//!
//! [`plan`] reads everything and changes nothing. It keeps every frame that checks whole, before
//! and behind the damage: what was acknowledged last stays the last, because versions decide and
//! not the position in the log. In the place of a damaged stretch goes a repair frame, which counts
//! the LSNs of the records that stood there, so that no other byte of the log has to change, and
//! holds those of its records whose parts all check. A plan is tried on the directory as it would
//! be then, before anybody acts on it.
//!
//! Acting on it is not done here: [`Rebuild::read`] gives the bytes of each file that changes.

use crate::format::contents::{Contents, SegmentEnd};
use crate::format::corruption::Corruption;
use crate::format::frame::{FRAME_HEADER_BYTES, FRAME_MAGIC, FrameHeader, FrameHome, FrameKind};
use crate::format::frame_body::is_sound;
use crate::format::layout::{InheritedEnd, Layout};
use crate::format::record::read_u32;
use crate::format::row::Row;
use crate::format::segment::{Owner, SEGMENT_BYTES_MAX, SegmentHeader};
use crate::format::spare::holds_frame_of;
use crate::recovery::refusal::RecoveryError;
use crate::recovery::replay::{recover, replay_ended};
use crate::recovery::segment::Segment;
use crate::recovery::snapshot::proof::ProvenEnds;
use crate::recovery::spares::{FileKind, ReadExtent, classify, stored_salt};
use crate::recovery::survey::survey_laid_out;
use crate::repair::damage::Damage;
use crate::repair::damage::Loss;
use crate::repair::damage::Plan;
use crate::repair::rebuild::Rebuild;
use crate::repair::rebuild::{BLOCK, within};
use crate::repair::salvage::SALVAGE_BYTES_MAX;
use crate::repair::salvage::Salvage;
use crate::repair::sources::Patient;
use crate::repair::sources::Repaired;
use crate::types::io::{BLOCK_BYTES, SegmentSource};
use crate::types::place::FileId;
use crate::types::place::{LogStart, Lsn};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;

/// No log gets there.
const LSN_END: u64 = 1 << 62;

/// Segments that may be missing from a log, at most: no number in a header makes a repair endless.
const SEGMENTS_MISSING_MAX: u32 = 1_000;

/// Looks for all damage and for what can be done about it.
///
/// # Errors
/// The files cannot be listed.
pub fn plan(source: &mut impl SegmentSource, owner: Owner) -> io::Result<Plan> {
    plan_laid_out(source, owner, &Layout::new(u16::MAX), &ProvenEnds::new())
}

/// As [`plan`]: inherited logs must end where `layout` tells, and void ones need no repair. No
/// other log may end before what is `proven` of it.
///
/// # Errors
/// As for [`plan`].
pub fn plan_laid_out(
    source: &mut impl SegmentSource,
    owner: Owner,
    layout: &Layout,
    proven: &ProvenEnds,
) -> io::Result<Plan> {
    let mut files = source.files()?;
    // What a start serves needs no repair, and what it refuses does: the start decides, not what is
    // looked at below with more or less care.
    if attempt(source, owner, (layout, proven), &Plan::default()).is_ok() {
        return Ok(Plan::default());
    }
    files.sort_unstable();
    let mut planner = Planner {
        next_file: files.last().map_or(1, |(file, _)| file.0 + 1),
        source: Patient(source),
        owner,
        plan: Plan::default(),
        logs: BTreeMap::new(),
        proven,
    };
    for &(file, file_bytes) in &files {
        planner.sort(file, file_bytes);
    }
    for &log_id in proven
        .keys()
        .filter(|&log_id| layout.own().contains(log_id))
    {
        planner.logs.entry(log_id).or_default();
    }
    for (log_id, places) in std::mem::take(&mut planner.logs) {
        if !layout.is_void(log_id) {
            planner.log(log_id, places, layout.end_of(log_id));
        }
    }
    let mut plan = planner.plan;
    if plan.beyond.is_empty() {
        plan.beyond
            .extend(attempt(source, owner, (layout, proven), &plan).err());
    }
    Ok(plan)
}

/// Whether a start would be served after the plan.
fn attempt(
    source: &mut impl SegmentSource,
    owner: Owner,
    (layout, proven): (&Layout, &ProvenEnds),
    plan: &Plan,
) -> Result<(), RecoveryError> {
    let mut repaired = Repaired { source, plan };
    let mut survey = survey_laid_out(&mut repaired, owner, layout)?;
    for &log_id in proven
        .keys()
        .filter(|&log_id| layout.own().contains(log_id))
    {
        survey.logs.entry(log_id).or_default();
    }
    for (log_id, segments) in &survey.logs {
        if layout.end_of(*log_id).is_none() {
            let found = recover(&mut repaired, segments, &mut |_, _| Ok(()))?;
            proven.get(log_id).map_or(Ok(()), |end| end.check(&found))?;
        }
    }
    for &InheritedEnd { log_id, end } in &layout.inherited {
        let segments = survey.logs.get(&log_id).map_or(&[][..], Vec::as_slice);
        replay_ended(&mut repaired, segments, log_id, end, &mut |_| Ok(()))?;
    }
    Ok(())
}

/// A file that claims a place in a log.
struct Claim {
    pub(super) file: FileId,
    file_bytes: u64,
    home: FrameHome,
    /// Its header if it checks, or why it is refused.
    header: Result<SegmentHeader, Row>,
    content: Content,
}

/// What stands in a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Content {
    /// Its frames that check whole and follow each other, perhaps with gaps.
    frames: Vec<Found>,
    /// The highest LSN that any frame header in it knows to have been durable.
    durable_lsn: Lsn,
    /// What its last contents frame tells.
    contents: Option<Contents>,
    /// The end of the last block that is not zero, even if the file ends within it.
    used_bytes: u64,
    /// The end of the farthest frame whose header is there.
    reach_bytes: u64,
}

/// A frame that checks whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    offset: u64,
    end_offset: u64,
    first_lsn: Lsn,
    last_lsn: Lsn,
    time_ms: u64,
}

/// Where a segment ends, by what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatedEnd {
    /// The header of its successor says so.
    Exactly { offset: u64, lsn: Lsn },
    /// Its successor begins with this record; `None` if the first record of the successor is not
    /// known.
    Before(Option<Lsn>),
    /// It is the last.
    Last,
}

impl StatedEnd {
    /// Whether a frame may belong to the segment.
    fn covers(self, frame: &Found) -> bool {
        match self {
            StatedEnd::Exactly { offset, lsn } => {
                frame.end_offset <= offset && frame.last_lsn <= lsn
            }
            StatedEnd::Before(next) => next.is_none_or(|next| frame.last_lsn < next),
            StatedEnd::Last => true,
        }
    }

    /// The stretch behind the last whole frame, which ends at `at` with record `lsn`, and the last
    /// record that is known to have been there.
    fn tail(self, content: &Content, at: u64, lsn: Lsn) -> Option<(Range<u64>, Lsn)> {
        let behind = at..content.used_bytes.max(at + BLOCK);
        match self {
            StatedEnd::Exactly { offset, lsn } => Some((at..offset, lsn)),
            StatedEnd::Before(next) => next.map(|next| (behind, Lsn(next.0 - 1))),
            StatedEnd::Last => Some((behind, content.durable_lsn.max(lsn))),
        }
    }
}

struct Planner<'a, S> {
    pub(super) source: Patient<'a, S>,
    owner: Owner,
    next_file: u32,
    pub(super) plan: Plan,
    /// The claims for each place of each log.
    logs: BTreeMap<u64, BTreeMap<u64, Vec<Claim>>>,
    proven: &'a ProvenEnds,
}

impl<S: SegmentSource> Planner<'_, S> {
    /// Finds the log and the place in the log that a file claims.
    fn sort(&mut self, file: FileId, file_bytes: u64) {
        let (home, header, first_lsn) = match classify(
            &mut self.source,
            file,
            file_bytes,
            Some(self.owner),
            ReadExtent::Whole,
        ) {
            Ok(
                FileKind::Spare
                | FileKind::ReusedSpare
                | FileKind::RottenSpare(_)
                | FileKind::TornActivation,
            ) => return,
            Ok(FileKind::Segment(Segment { header, .. })) => {
                (header.home(), Ok(header), header.first_lsn)
            }
            Err(error) => {
                let (Some(row), RecoveryError::Corrupt(_)) = (error.row(), &error) else {
                    self.plan.beyond.push(error);
                    return;
                };
                let Some(home) = self.home_by_frames(file, file_bytes) else {
                    return self.give_up_file(file, file_bytes, row);
                };
                (home, Err(row), Lsn(0))
            }
        };
        let content = self.content(file, file_bytes, home, first_lsn);
        self.logs
            .entry(home.log_id)
            .or_default()
            .entry(home.segment_sequence)
            .or_default()
            .push(Claim {
                file,
                file_bytes,
                home,
                header,
                content,
            });
    }

    /// The log, the sequence and a salt of a file without a header: those under which most of its
    /// frames check. The salt enters a frame's CRCs as 32 bits of state alone, so the CRC of a
    /// header gives it, and that of the body shows whether it is right.
    fn home_by_frames(&mut self, file: FileId, file_bytes: u64) -> Option<FrameHome> {
        let mut votes: HashMap<(u64, u64, u64), u32> = HashMap::new();
        let mut block = [0; BLOCK_BYTES];
        // What is left of an earlier use of the file may be more than what stands there of this
        // one.
        let stored = stored_salt(&mut self.source, file, file_bytes)
            .ok()
            .flatten();
        let mut at = BLOCK;
        while at + BLOCK <= file_bytes {
            let offset = at;
            at += BLOCK;
            if self.source.read_at(file, offset, &mut block).ok() != Some(BLOCK_BYTES)
                || read_u32(&block) != FRAME_MAGIC
            {
                continue;
            }
            let home = match stored {
                Some(salt) if holds_frame_of(salt, offset, &block) => {
                    FrameHome::named_by(&block, salt)
                }
                _ => FrameHome::by_frame(&block),
            };
            let Ok(frame) = FrameHeader::read(home, offset, &block) else {
                continue;
            };
            if self.body(file, file_bytes, home, &frame).is_some() {
                let key = (home.log_id, home.segment_sequence, home.salt);
                *votes.entry(key).or_default() += 1;
                at = offset + frame.padded_bytes() as u64;
            }
        }
        let (&(log_id, segment_sequence, salt), _) = votes
            .iter()
            .max_by_key(|((_, _, salt), votes)| (Some(*salt) == stored, **votes))?;
        Some(FrameHome {
            log_id,
            segment_sequence,
            salt,
        })
    }

    /// The body of a frame whose header checks, if it checks as well.
    fn body(
        &mut self,
        file: FileId,
        file_bytes: u64,
        home: FrameHome,
        frame: &FrameHeader,
    ) -> Option<Vec<u8>> {
        let padded = frame.padded_bytes();
        if padded as u64
            > file_bytes
                .min(SEGMENT_BYTES_MAX)
                .checked_sub(frame.offset)?
        {
            return None;
        }
        let mut bytes = vec![0; padded];
        let read = self.source.read_at(file, frame.offset, &mut bytes).ok()?;
        (read == padded && FrameHeader::body_is_intact(home, &bytes)).then(|| {
            bytes.truncate(FRAME_HEADER_BYTES + frame.body_bytes as usize);
            bytes.split_off(FRAME_HEADER_BYTES)
        })
    }

    /// Every whole frame of a segment, damage or not between them. Only what was written to its
    /// place of this use of the file checks, so this is no search for something like a frame.
    fn content(
        &mut self,
        file: FileId,
        file_bytes: u64,
        home: FrameHome,
        first_lsn: Lsn,
    ) -> Content {
        let mut content = Content::default();
        let mut block = [0; BLOCK_BYTES];
        let mut at = BLOCK;
        let mut next_lsn = first_lsn;
        while at < file_bytes {
            let offset = at;
            at += BLOCK;
            let read = self.source.read_at(file, offset, &mut block).unwrap_or(0);
            if block[..read].iter().all(|&byte| byte == 0) {
                continue;
            }
            content.used_bytes = at;
            let Ok(frame) = FrameHeader::read(home, offset, &block[..read]) else {
                continue;
            };
            content.durable_lsn = content.durable_lsn.max(frame.durable_lsn);
            let reach_bytes = offset + frame.padded_bytes() as u64;
            content.reach_bytes = content.reach_bytes.max(reach_bytes);
            let is_next = match content.frames.last() {
                // Nothing can be missing between frames that touch.
                Some(before) if before.end_offset == offset => frame.first_lsn == next_lsn,
                _ => frame.first_lsn >= next_lsn,
            };
            let is_possible = frame.durable_lsn < frame.first_lsn && frame.first_lsn.0 < LSN_END;
            if !is_next || !is_possible {
                continue;
            }
            let Some(body) = self.body(file, file_bytes, home, &frame) else {
                continue;
            };
            if !is_sound(&frame, &body) {
                continue;
            }
            if frame.kind == FrameKind::Contents {
                content.contents = Contents::read(&body);
            }
            at = offset + frame.padded_bytes() as u64;
            next_lsn = frame.end_lsn();
            content.used_bytes = at;
            content.frames.push(Found {
                offset,
                end_offset: at,
                first_lsn: frame.first_lsn,
                last_lsn: Lsn(next_lsn.0 - 1),
                time_ms: frame.time_ms,
            });
        }
        content
    }

    /// Gives up a file that says nothing of its place.
    fn give_up_file(&mut self, file: FileId, file_bytes: u64, row: Row) {
        self.plan.removals.push(file);
        self.plan.damages.push(Damage {
            row,
            file,
            stretch: 0..file_bytes,
            loss: Some(Loss::File(file)),
            kept_records: 0,
            lost_records: None,
            lost_parts: Vec::new(),
            remedy: "the file leaves the directory",
        });
    }

    /// Walks along a log as recovery would, and mends what stands in its way.
    fn log(&mut self, log_id: u64, places: BTreeMap<u64, Vec<Claim>>, log_end: Option<SegmentEnd>) {
        let mut claims: BTreeMap<u64, Claim> = BTreeMap::new();
        for (sequence, rivals) in places {
            if let Some(claim) = self.choose(rivals) {
                claims.insert(sequence, claim);
            }
        }
        let mut walk = Walk {
            end: LogStart::default(),
            incarnation: 0,
            time_ms: 0,
        };
        // What its newest contents frame lists is what it consists of.
        let mut listed_contents = None;
        for (&sequence, claim) in claims.iter().rev() {
            if let Some(contents) = &claim.content.contents
                && sequence < u64::MAX
            {
                listed_contents = Some((sequence, contents.segments.clone()));
                break;
            }
        }
        let (dense_from, listed) = listed_contents.unwrap_or((1, Vec::new()));
        claims.retain(|sequence, _| {
            *sequence >= dense_from || listed.iter().any(|end| end.sequence == *sequence)
        });
        let listed_sequences: Vec<u64> = listed.iter().map(|end| end.sequence).collect();
        let mut expected = listed_sequences.into_iter().chain(dense_from..);
        let mut missing = 0;
        let mut file = FileId(0);
        while let Some((&last, _)) = claims.last_key_value() {
            let sequence = expected.next().expect("sequences do not end");
            let next = sequence.checked_add(1).and_then(|next| claims.get(&next));
            let stated_end = match listed.iter().find(|end| end.sequence == sequence) {
                _ if sequence == last => match log_end {
                    Some(end) if end.sequence == sequence => StatedEnd::Exactly {
                        offset: end.end_offset,
                        lsn: end.last_lsn,
                    },
                    _ => StatedEnd::Last,
                },
                Some(end) => StatedEnd::Exactly {
                    offset: end.end_offset,
                    lsn: end.last_lsn,
                },
                None => match next.map(|next| (&next.header, &next.content)) {
                    None => StatedEnd::Before(None),
                    Some((Ok(header), _)) => StatedEnd::Exactly {
                        offset: header.previous_end_offset,
                        lsn: header.previous_end_lsn,
                    },
                    // The frame in its first place begins with what follows this segment.
                    Some((Err(_), content)) => StatedEnd::Before(
                        content
                            .frames
                            .first()
                            .filter(|frame| frame.offset == BLOCK)
                            .map(|frame| frame.first_lsn),
                    ),
                },
            };
            if sequence > walk.end.last_sequence + 1 {
                // What was between was released.
                let claim = claims.get(&sequence);
                let header = claim.and_then(|claim| claim.header.ok());
                let first = claim.and_then(|claim| claim.content.frames.first());
                walk.end = LogStart {
                    last_sequence: sequence - 1,
                    end_offset: header.map_or(0, |header| header.previous_end_offset),
                    last_lsn: match (header, first) {
                        (Some(header), _) => header.previous_end_lsn,
                        (None, Some(frame)) => Lsn(frame.first_lsn.0.saturating_sub(1)),
                        (None, None) => walk.end.last_lsn,
                    },
                    is_unproven: false,
                };
            }
            file = claims.values().next().map_or(FileId(0), |claim| claim.file);
            let done = match claims.remove(&sequence) {
                Some(claim) => self.segment(&claim, sequence, stated_end, &mut walk),
                None if missing == SEGMENTS_MISSING_MAX => None,
                None => {
                    missing += 1;
                    self.missing(log_id, sequence, stated_end, &mut walk)
                }
            };
            if done.is_none() {
                return self.contradicts(log_id, file, &walk);
            }
        }
        if log_end.is_none() && self.lost_tail(log_id, &mut walk).is_none() {
            self.contradicts(log_id, file, &walk);
        }
    }

    /// A file that does not fit to those beside it.
    fn contradicts(&mut self, log_id: u64, file: FileId, walk: &Walk) {
        self.plan.beyond.push(RecoveryError::Corrupt(Corruption {
            row: Row::HeaderContradicts,
            log_id: Some(log_id),
            file,
            offset: 0,
            lsn_from: Lsn(walk.end.last_lsn.0 + 1),
            lsn_to: None,
            cause: "it contradicts the segments beside it",
        }));
    }

    /// Puts an empty segment behind the end of a log that ends before its proven end. So no
    /// acknowledged LSN is given out again.
    fn lost_tail(&mut self, log_id: u64, walk: &mut Walk) -> Option<()> {
        let Some(end) = self
            .proven
            .get(&log_id)
            .filter(|end| end.lsn > walk.end.last_lsn)
        else {
            return Some(());
        };
        walk.incarnation = walk.incarnation.max(end.incarnation);
        walk.time_ms = walk.time_ms.max(end.time_ms);
        let stated_end = StatedEnd::Before(Some(Lsn(end.lsn.0 + 1)));
        let sequence = walk.end.last_sequence.checked_add(1)?;
        self.missing(log_id, sequence, stated_end, walk)?;
        let damage = self.plan.damages.last_mut().expect("just pushed");
        damage.row = Row::TailLost;
        damage.remedy = "an empty segment behind the end of the log counts them";
        Some(())
    }

    /// Chooses the file that holds most among those that claim one place.
    fn choose(&mut self, mut rivals: Vec<Claim>) -> Option<Claim> {
        rivals.sort_by_key(|claim| {
            let last_lsn = claim.content.frames.last().map(|frame| frame.last_lsn);
            (
                last_lsn,
                claim.header.is_ok(),
                std::cmp::Reverse(claim.file),
            )
        });
        let chosen = rivals.pop()?;
        for rival in rivals {
            self.give_up_file(rival.file, rival.file_bytes, Row::SegmentTwice);
            // A copy of an earlier state of the same file holds nothing that the other does not.
            if chosen.content.frames.starts_with(&rival.content.frames) && rival.home == chosen.home
            {
                let damage = self.plan.damages.last_mut().expect("just pushed");
                (damage.loss, damage.lost_records) = (None, Some(0));
            }
        }
        Some(chosen)
    }

    /// Mends one segment; `None` if it cannot be fitted to those beside it.
    fn segment(
        &mut self,
        claim: &Claim,
        sequence: u64,
        stated_end: StatedEnd,
        walk: &mut Walk,
    ) -> Option<()> {
        let mut rebuild = Rebuild::of(claim.file, claim.file_bytes, true);
        let header = self.header(claim, &mut rebuild, walk)?;
        walk.incarnation = header.incarnation;
        walk.time_ms = walk.time_ms.max(header.created_ms);
        let row = |stretch: &Range<u64>| match stated_end {
            StatedEnd::Last => Row::LastDamaged,
            _ if stretch.end > claim.file_bytes => Row::EarlierCutShort,
            _ => Row::EarlierDamaged,
        };
        let proven = self.proven.get(&header.log_id);
        let proven_lsn = proven.map_or(Lsn(0), |end| end.lsn);
        let durable_lsn = claim.content.durable_lsn.max(proven_lsn);
        let (mut at, mut lsn) = (BLOCK, walk.end.last_lsn);
        for frame in &claim.content.frames {
            let is_next = frame.offset == at && frame.first_lsn.0 == lsn.0 + 1;
            // Behind a gap in which no record was durable the log is torn, and a start cuts it.
            let is_record_gone = frame.first_lsn.0 > lsn.0 + 1;
            let is_torn = stated_end == StatedEnd::Last && durable_lsn <= lsn && is_record_gone;
            if !stated_end.covers(frame) || frame.first_lsn <= lsn || (!is_next && is_torn) {
                break;
            }
            if !is_next {
                let stretch = at..frame.offset;
                let lsns = (lsn, Lsn(frame.first_lsn.0 - 1));
                self.mend(claim, &mut rebuild, row(&stretch), stretch, lsns, walk)?;
            }
            (at, lsn) = (frame.end_offset, frame.last_lsn);
            walk.time_ms = walk.time_ms.max(frame.time_ms);
        }
        if let Some((stretch, end_lsn)) = stated_end.tail(&claim.content, at, lsn) {
            if end_lsn < lsn {
                return None;
            }
            let is_whole = end_lsn == lsn
                && match stated_end {
                    StatedEnd::Exactly { offset, .. } => at == offset,
                    _ => true,
                };
            if !is_whole {
                at = stretch.end;
                let lsns = (lsn, end_lsn);
                lsn = self.mend(claim, &mut rebuild, row(&stretch), stretch, lsns, walk)?;
            }
        }
        if stated_end == StatedEnd::Last && claim.file_bytes < header.segment_bytes {
            self.lengthen(claim, &header, lsn, &mut rebuild);
        }
        walk.end = LogStart {
            last_sequence: sequence,
            end_offset: at,
            last_lsn: lsn,
            is_unproven: false,
        };
        if !rebuild.blanks.is_empty() {
            self.plan.rebuilds.push(rebuild);
        }
        Some(())
    }

    /// The header of a segment that follows what was walked: its own, or one made anew. `None` if
    /// the segment does not follow.
    fn header(
        &mut self,
        claim: &Claim,
        rebuild: &mut Rebuild,
        walk: &Walk,
    ) -> Option<SegmentHeader> {
        let header = match claim.header {
            Ok(header) => header,
            // The frames tell the length of a segment that is cut short.
            Err(_) => {
                let blocks_bytes = claim.file_bytes.next_multiple_of(BLOCK);
                let bytes = blocks_bytes.max(claim.content.reach_bytes);
                walk.header(self.owner, claim.home, bytes)
            }
        };
        let end = walk.end;
        let follows = header.first_lsn.0 == end.last_lsn.0 + 1
            && header.previous_sequence == end.last_sequence
            && header.previous_end_offset == end.end_offset
            && header.previous_end_lsn == end.last_lsn;
        if !follows || header.segment_bytes > SEGMENT_BYTES_MAX {
            return None;
        }
        if let Err(row) = claim.header {
            rebuild.blank(0..BLOCK);
            let mut block = [0; BLOCK_BYTES];
            header.encode(&mut block);
            rebuild.patches.push((0, block.to_vec()));
            self.plan.damages.push(Damage {
                row,
                file: claim.file,
                stretch: 0..BLOCK,
                loss: None,
                kept_records: 0,
                lost_records: Some(0),
                lost_parts: Vec::new(),
                remedy: "its header is made anew from its frames",
            });
        }
        Some(header)
    }

    /// Plans zeros for the end of a last segment that was cut off. Any record behind `lsn` may be
    /// lost with it.
    fn lengthen(&mut self, claim: &Claim, header: &SegmentHeader, lsn: Lsn, rebuild: &mut Rebuild) {
        self.plan.damages.push(Damage {
            row: Row::LastCutShort,
            file: claim.file,
            stretch: claim.file_bytes..header.segment_bytes,
            loss: Some(Loss::Records {
                log_id: header.log_id,
                from: Lsn(lsn.0 + 1),
                to: None,
            }),
            kept_records: 0,
            lost_records: None,
            lost_parts: Vec::new(),
            remedy: "zeros take the place of what was cut off",
        });
        rebuild.bytes = header.segment_bytes;
        rebuild.blank(claim.file_bytes..header.segment_bytes);
    }

    /// Puts an empty segment in the place of one that is gone.
    fn missing(
        &mut self,
        log_id: u64,
        sequence: u64,
        stated_end: StatedEnd,
        walk: &mut Walk,
    ) -> Option<()> {
        let lsn = walk.end.last_lsn;
        let (end_offset, last_lsn) = match stated_end {
            StatedEnd::Exactly { offset, lsn } => (offset, lsn),
            StatedEnd::Before(Some(next)) if next.0 > lsn.0 + 1 => (2 * BLOCK, Lsn(next.0 - 1)),
            StatedEnd::Before(_) | StatedEnd::Last => (BLOCK, lsn),
        };
        let is_possible = if end_offset == BLOCK {
            last_lsn == lsn
        } else {
            last_lsn >= lsn
        };
        if !is_possible
            || !(BLOCK..=SEGMENT_BYTES_MAX).contains(&end_offset)
            || !end_offset.is_multiple_of(BLOCK)
        {
            return None;
        }
        let file = FileId(self.next_file);
        self.next_file = self.next_file.checked_add(1)?;
        let home = FrameHome {
            log_id,
            segment_sequence: sequence,
            // The file was never used before, so any salt is fresh.
            salt: sequence,
        };
        let mut rebuild = Rebuild::of(file, end_offset, false);
        let mut block = [0; BLOCK_BYTES];
        walk.header(self.owner, home, end_offset).encode(&mut block);
        rebuild.patches.push((0, block.to_vec()));
        let count = u32::try_from(last_lsn.0 - lsn.0).ok()?;
        let stretch = BLOCK..end_offset;
        rebuild.put_repair(home, stretch.clone(), lsn, count, &[], walk.time_ms);
        self.plan.damages.push(Damage {
            row: Row::SegmentMissing,
            file,
            stretch,
            loss: (count > 0).then_some(Loss::Records {
                log_id,
                from: Lsn(lsn.0 + 1),
                to: Some(last_lsn),
            }),
            kept_records: 0,
            lost_records: Some(u64::from(count)),
            lost_parts: Vec::new(),
            remedy: "an empty segment takes its place",
        });
        self.plan.rebuilds.push(rebuild);
        walk.end = LogStart {
            last_sequence: sequence,
            end_offset,
            last_lsn,
            is_unproven: false,
        };
        Some(())
    }

    /// Puts a repair in the place of a stretch that held the records behind `lsns.0` up to
    /// `lsns.1`, and returns the last of them. At the end of the last segment there may be more.
    fn mend(
        &mut self,
        claim: &Claim,
        rebuild: &mut Rebuild,
        row: Row,
        stretch: Range<u64>,
        lsns: (Lsn, Lsn),
        walk: &Walk,
    ) -> Option<Lsn> {
        let (before, mut last) = lsns;
        let is_whole_blocks = stretch.end.is_multiple_of(BLOCK);
        if stretch.is_empty() || !is_whole_blocks || stretch.end > SEGMENT_BYTES_MAX {
            return None;
        }
        let mut salvage = self.salvage(claim, &stretch);
        let mut count = last.0.checked_sub(before.0)?;
        if row == Row::LastDamaged && stretch.end >= claim.content.used_bytes {
            count = count.max(salvage.kept_records + salvage.broken);
            last = Lsn(before.0 + count);
        } else if salvage.kept_records > count {
            salvage = Salvage::default();
        }
        let lost = count - salvage.kept_records;
        let count = u32::try_from(count).ok()?;
        rebuild.bytes = rebuild.bytes.max(stretch.end);
        rebuild.blank(stretch.clone());
        rebuild.put_repair(
            claim.home,
            stretch.clone(),
            before,
            count,
            &salvage.kept,
            walk.time_ms,
        );
        self.plan.damages.push(Damage {
            row,
            file: claim.file,
            stretch,
            loss: (lost > 0).then_some(Loss::Records {
                log_id: claim.home.log_id,
                from: Lsn(before.0 + 1),
                to: Some(last),
            }),
            kept_records: salvage.kept_records,
            lost_records: Some(lost),
            lost_parts: salvage.lost,
            remedy: "a repair frame takes its place",
        });
        Some(last)
    }

    /// The whole records of a damaged stretch. A part counts only where one must begin: behind the
    /// header of a frame whose place is sure, or behind another part. What looks like a part inside
    /// a value is what some client has put there.
    fn salvage(&mut self, claim: &Claim, stretch: &Range<u64>) -> Salvage {
        let mut salvage = Salvage::default();
        let end = stretch.end.min(claim.file_bytes);
        if end <= stretch.start || end - stretch.start > SALVAGE_BYTES_MAX {
            return salvage;
        }
        let mut bytes = vec![0; within(stretch.start, end)];
        match self.source.read_at(claim.file, stretch.start, &mut bytes) {
            Ok(read) => bytes.truncate(read),
            Err(_) => return salvage,
        }
        let mut at = 0;
        while at < bytes.len() {
            let offset = stretch.start + at as u64;
            let is_frame = at == 0 || FrameHeader::read(claim.home, offset, &bytes[at..]).is_ok();
            let frame_end = if is_frame {
                salvage.frame(&bytes, at + FRAME_HEADER_BYTES)
            } else {
                at + 1
            };
            at = frame_end.next_multiple_of(BLOCK_BYTES);
        }
        salvage
    }
}

/// How far a log has been followed.
struct Walk {
    pub(super) end: LogStart,
    /// The incarnation of the newest header, and the newest time of a frame.
    incarnation: u64,
    time_ms: u64,
}

impl Walk {
    /// A header for the segment that comes next.
    fn header(&self, owner: Owner, home: FrameHome, segment_bytes: u64) -> SegmentHeader {
        SegmentHeader {
            owner,
            incarnation: self.incarnation,
            log_id: home.log_id,
            chain: 0,
            // Nobody knows any more: zeros behind the frames do no harm.
            is_reused: true,
            sequence: home.segment_sequence,
            salt: home.salt,
            first_lsn: Lsn(self.end.last_lsn.0 + 1),
            previous_sequence: self.end.last_sequence,
            previous_end_offset: self.end.end_offset,
            previous_end_lsn: self.end.last_lsn,
            segment_bytes,
            created_ms: self.time_ms,
        }
    }
}
