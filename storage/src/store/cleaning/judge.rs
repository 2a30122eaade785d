//! Reads the segment at hand and judges its parts, one by one.

use crate::format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use crate::format::record::{PartKind, PartView, SUCCESSOR_BYTES, part_bytes};
use crate::format::system_key::{is_local, is_text_token, is_token};
use crate::log::reports::Moved;
use crate::log::room::{Purpose, Room};
use crate::planted::{Bug, is_planted};
use crate::store::cleaning::cleaner::{
    CHUNK_BYTES, Chunk, Damaged, Move, STEP_BYTES, STEP_PARTS, Victim,
};
use crate::store::cleaning::cleaning::{Cleaned, Cleaning};
use crate::store::cleaning::expiring::Expires;
use crate::store::cleaning::liveness::Liveness;
use crate::store::data::Data;
use crate::store::expiry::part_expires;
use crate::store::tokens::horizons::raised_within_ms;
use crate::store::versions::entry::KeyId;
use crate::types::io::{Asker, BLOCK_BYTES, Block, Blocks, Completion, Io, IoToken};
use crate::types::place::Place;
use crate::types::version::partition_of;

impl Data {
    /// When a copy of a part stops to count. A token that is kept behind its time is not met again
    /// at once: the log may say soon that it may be gone.
    fn copy_expires(&self, part: &PartView<'_>, is_late_token: bool) -> Option<Expires> {
        let expires = part_expires(&self.keyspaces, part)?;
        let again_ms = self.time_ms() + raised_within_ms(self.horizons.wanted_ms());
        let stays_ms = match is_text_token(part.key()) {
            true => self.horizons.text_stays_ms(partition_of(part.slot())),
            false => 0,
        };
        Some(match is_late_token {
            true => Expires {
                by_ms: again_ms.max(expires.by_ms + stays_ms),
                ..expires
            },
            false => expires,
        })
    }
}

impl<P: Blocks> Cleaning<P> {
    /// The end of a read for cleaning.
    pub fn read(&mut self, completion: Completion<P::Block>) {
        let Some(victim) = &mut self.cleaner.victim else {
            return;
        };
        let Chunk::Reading(token) = victim.chunk else {
            return;
        };
        assert_eq!(completion.token, token, "one read is under way");
        let has_brought_all = completion.brought(victim.chunk_bytes).is_ok();
        match completion.block {
            Some(block) if has_brought_all => {
                let start = victim.offset;
                let end = victim.segment.end.end_offset;
                let bytes = victim.chunk_bytes.min(in_memory(end - start));
                victim.intact_offset = None;
                victim.has_failed = false;
                victim.chunk = Chunk::Read {
                    start,
                    bytes,
                    block,
                };
            }
            // Once more, as for everybody else who reads.
            _ if !victim.has_failed => {
                victim.has_failed = true;
                victim.chunk = Chunk::Missing(victim.chunk_bytes);
            }
            _ => self.give_up(),
        }
    }

    /// When the disk is full or the log has most of the segments that it may have, own segments
    /// give room back and inherited ones only take it.
    pub(super) fn give_way(&mut self) {
        let is_idle = |victim: &mut Victim<P::Block>| {
            victim.is_inherited && !matches!(victim.chunk, Chunk::Reading(_))
        };
        if let Some(victim) = self.cleaner.victim.take_if(is_idle) {
            self.inheritance.put_back(&victim);
            self.cleaner.must_pick = true;
            self.cleaner.is_hopeless = false;
        }
    }

    /// Goes on with the segment that is cleaned; `false` when it is released or given up.
    pub(super) fn step(
        &mut self,
        store: &mut Cleaned<'_, P>,
        now_us: u64,
        victim: &mut Victim<P::Block>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<P::Block>>,
    ) -> bool {
        let mut step = Step {
            bytes: STEP_BYTES,
            parts: STEP_PARTS,
            copied_bytes: 0,
        };
        loop {
            if victim.offset >= victim.segment.end.end_offset {
                self.end_of_segment(store, victim);
                return false;
            }
            match &victim.chunk {
                Chunk::Reading(_) => return true,
                Chunk::Missing(_) if now_us < victim.resume_us || self.cleaner.budget_bytes < 0 => {
                    return true;
                }
                &Chunk::Missing(frame_bytes) => {
                    self.read_chunk(store, victim, frame_bytes, io);
                    return true;
                }
                Chunk::Read { .. } => {}
            }
            let (frame, at) = match next_frame(victim) {
                NextFrame::Whole(frame, at) => (frame, at),
                NextFrame::Missing(frame_bytes) => {
                    victim.chunk = Chunk::Missing(frame_bytes);
                    continue;
                }
                NextFrame::Damaged => {
                    self.report_damaged(victim);
                    return false;
                }
            };
            let padded = frame.padded_bytes();
            victim.intact_offset = Some(victim.offset);
            if matches!(frame.kind, FrameKind::Commit | FrameKind::Repair) {
                let body_start = at + FRAME_HEADER_BYTES;
                let body = &victim.chunk.bytes()[body_start..][..frame.body_bytes as usize];
                let (judged_bytes, end) =
                    self.judge(store, now_us, victim, body, &mut step, hash_of);
                victim.judged_bytes = judged_bytes;
                victim.copied_bytes += std::mem::take(&mut step.copied_bytes);
                match end {
                    JudgeEnd::AllDone => victim.blocked_since_us = None,
                    JudgeEnd::StepDone => {
                        victim.blocked_since_us = None;
                        return true;
                    }
                    JudgeEnd::NoRoom => {
                        victim.wait_for_room(now_us, padded);
                        return true;
                    }
                }
            }
            victim.offset += padded as u64;
            victim.judged_bytes = 0;
        }
    }

    /// Releases a segment whose parts are all judged, or gives it up if a part that counts was not
    /// copied.
    fn end_of_segment(&mut self, store: &mut Cleaned<'_, P>, victim: &Victim<P::Block>) {
        let segment = victim.segment;
        // Before the point of no return: each part that counts was copied.
        if store.data.live.parts(segment.file) != self.moving_bytes(store.data, segment.file) {
            self.report_damaged(victim);
            return;
        }
        // A keyspace that keeps versions may keep a part that was to go.
        assert!(
            victim.copied_bytes <= victim.counting_bytes
                || store.data.keyspaces.keeps_versions()
                || store.data.live.has_forgotten_times(),
            "{} bytes of {:08}.seg were copied, of which {} counted: the others were taken for \
             expired",
            victim.copied_bytes,
            segment.file.0,
            victim.counting_bytes
        );
        match victim.is_inherited {
            true => self.inheritance.passed(),
            false => {
                let sequence = segment.end.sequence;
                let highest = *self.cleaner.highest;
                store.log.release(sequence, &highest);
            }
        }
        self.cleaner.counters.segments += 1;
    }

    /// Judges the parts of one frame and copies those that count. How far it came, and whether that
    /// is all of it.
    fn judge(
        &mut self,
        store: &mut Cleaned<'_, P>,
        now_us: u64,
        victim: &Victim<P::Block>,
        body: &[u8],
        step: &mut Step,
        hash_of: &impl Fn(&[u8]) -> u32,
    ) -> (usize, JudgeEnd) {
        let mut at = victim.judged_bytes;
        // Behind the parts of a repair stand zeros, which are no part.
        while let Ok(part) = PartView::read(&body[at..]) {
            let bytes = part.bytes().len();
            let offset = victim.offset + (FRAME_HEADER_BYTES + at) as u64;
            let place = Place::new(victim.segment.file, offset, bytes);
            if step.parts == 0 {
                return (at, JudgeEnd::StepDone);
            }
            step.parts -= 1;
            if !part.is_copy() && !is_local(part.key()) {
                let highest = &mut self.cleaner.highest[partition_of(part.slot())];
                *highest = (*highest).max(part.sequence());
            }
            let judged = Judged {
                liveness: store.data.liveness(
                    store.log.history(),
                    &part,
                    place,
                    victim.is_oldest,
                    hash_of,
                ),
                hash: hash_of(part.key()),
                part,
                place,
            };
            store.carry_time_of_drop(victim, &judged);
            if !store.data.drop_versions(&judged, &mut step.parts) {
                return (at, JudgeEnd::StepDone);
            }
            match judged.liveness {
                Liveness::Dead => {
                    self.cleaner.counters.tombstones_dropped +=
                        u64::from(part.kind() == PartKind::Tombstone);
                }
                Liveness::Expired => {
                    store
                        .data
                        .forget(part.slot(), judged.hash, (place, part.sequence()));
                    self.cleaner.counters.expired_dropped += 1;
                }
                Liveness::Copied(_) if is_planted(Bug::ForgetOneMove) && bytes % 7 == 5 => {}
                Liveness::Copied(_) | Liveness::Kept(_) | Liveness::KeptDeletion => {
                    if let Some(end) = self.copy(store, now_us, victim.is_inherited, &judged, step)
                    {
                        return (at, end);
                    }
                }
            }
            at += bytes;
            if at == body.len() {
                break;
            }
        }
        (at, JudgeEnd::AllDone)
    }

    /// Appends the copy of a part, and notes what the copy changes when it is durable. Returns why
    /// there is none now.
    fn copy(
        &mut self,
        store: &mut Cleaned<'_, P>,
        now_us: u64,
        is_inherited: bool,
        judged: &Judged<'_>,
        step: &mut Step,
    ) -> Option<JudgeEnd> {
        let &Judged {
            ref part,
            place,
            hash,
            ..
        } = judged;
        let copy = judged.copy();
        if step.bytes < copy.bytes && step.bytes < STEP_BYTES {
            return Some(JudgeEnd::StepDone);
        }
        // An inherited segment is no nearer to its release, and so has no claim to the last spares.
        let purpose = match is_inherited {
            true => Purpose::Grow,
            false => Purpose::Clean,
        };
        let is_kept_back = purpose == Purpose::Grow && store.log.is_low();
        if is_kept_back || store.log.room(purpose, copy.bytes) != Room::Yes {
            return Some(JudgeEnd::NoRoom);
        }
        let is_crowded = store.data.is_crowded(part.slot(), hash, place);
        let (lsn, to) = store.log.append_moved(now_us, part, copy.moved, is_crowded);
        step.bytes = step.bytes.saturating_sub(copy.bytes);
        // The log does not say yet that this token may be gone, although the account does.
        let is_late_token = is_token(part.key()) && store.data.is_expired(part.expiry_ms());
        if copy.kind == PartKind::Put && !is_late_token {
            step.copied_bytes += u64::from(place.bytes);
        }
        self.cleaner.budget_bytes -= i64::from(to.bytes);
        self.cleaner.moves.push_back(Move {
            lsn,
            slot: part.slot(),
            hash,
            sequence: part.sequence(),
            // Versions may be kept before the copy is durable, if none are now.
            id: KeyId::new(part.slot(), hash, part.key()),
            was: part.kind(),
            kind: copy.kind,
            is_marked: matches!(copy.moved, Moved::Superseded(_)),
            expires: store.data.copy_expires(part, is_late_token),
            from: place,
            to,
        });
        None
    }

    /// Reads on from the frame that is judged next; tried again later if no block is free.
    fn read_chunk(
        &mut self,
        store: &mut Cleaned<'_, P>,
        victim: &mut Victim<P::Block>,
        frame_bytes: usize,
        io: &mut Vec<Io<P::Block>>,
    ) {
        let left = in_memory(victim.segment.end.end_offset - victim.offset);
        let least = left.min(frame_bytes.max(BLOCK_BYTES));
        // After the log found no room beside a chunk, no more than a frame is held.
        let mut bytes = match victim.is_memory_short {
            true => least,
            false => left.min(CHUNK_BYTES.max(frame_bytes)),
        };
        victim.chunk = Chunk::Missing(frame_bytes);
        // Memory may be short, or a part of a standard frame block all that is left.
        let block = loop {
            if let Some(block) = store.blocks.take(bytes) {
                break block;
            }
            if bytes == least {
                return;
            }
            bytes = (bytes / 4).next_multiple_of(BLOCK_BYTES).max(least);
        };
        self.cleaner.tokens += 1;
        let token = IoToken::new(Asker::Cleaning, self.cleaner.tokens);
        victim.chunk = Chunk::Reading(token);
        victim.chunk_bytes = bytes;
        self.cleaner.counters.reads += 1;
        self.cleaner.counters.read_bytes += bytes as u64;
        self.cleaner.budget_bytes -= i64::try_from(bytes).expect("a chunk is bounded");
        io.push(Io::Read {
            token,
            file: victim.segment.file,
            offset: victim.offset,
            block,
            len: u32::try_from(bytes).expect("a chunk is bounded"),
        });
    }

    /// A read failed: the segment stays as it is.
    fn give_up(&mut self) {
        if let Some(victim) = self.cleaner.victim.take() {
            self.report_damaged(&victim);
        }
    }

    fn report_damaged(&mut self, victim: &Victim<P::Block>) {
        if victim.is_inherited {
            self.inheritance.put_back(victim);
            self.cleaner.must_pick = true;
            if !self.inheritance.failed() {
                return;
            }
        } else {
            self.cleaner.avoided.push(victim.segment.end.sequence);
        }
        self.cleaner.counters.damaged += 1;
        self.cleaner.damaged.push(Damaged {
            file: victim.segment.file,
            offset: victim.offset,
        });
    }
}

impl<P: Blocks> Cleaned<'_, P> {
    /// Raises the log's clock to the store's time before a part is dropped because of the time. The
    /// frame that reports the drop carries this time, so a restart cannot begin at a time at which
    /// the part had not expired, or at which the version was still kept.
    fn carry_time_of_drop(&mut self, victim: &Victim<P::Block>, judged: &Judged<'_>) {
        let (part, liveness) = (&judged.part, judged.liveness);
        let is_gone = matches!(
            liveness,
            Liveness::Expired | Liveness::Copied(PartKind::Tombstone)
        );
        let expires =
            is_gone && part.kind() == PartKind::Put && !is_planted(Bug::ExpireWithoutTime);
        // At an earlier time, a start would take the version before this one for the version
        // that its successor superseded.
        let ends = (is_gone || liveness == Liveness::Dead)
            && self
                .data
                .keyspaces
                .rule(part.slot(), part.key())
                .is_some_and(|rule| rule.retention_ms > 0);
        if expires || ends {
            let time_ms = self.data.time_ms();
            self.log.carry_time(time_ms);
            if victim.is_inherited && !is_planted(Bug::InheritedTimeUnannounced) {
                self.log.owe_contents();
            }
        }
    }
}

/// A part, and what becomes of it.
pub(super) struct Judged<'a> {
    pub(super) part: PartView<'a>,
    pub(super) place: Place,
    pub(super) hash: u32,
    pub(super) liveness: Liveness,
}

/// The copy that cleaning makes of a part.
struct CopyOf {
    kind: PartKind,
    /// Bytes in the log, at most.
    bytes: usize,
    moved: Moved,
}

impl Judged<'_> {
    fn copy(&self) -> CopyOf {
        let (part, bytes) = (&self.part, self.part.bytes().len());
        let (kind, bytes, moved) = match self.liveness {
            Liveness::KeptDeletion => (part.kind(), bytes, Moved::Deletion),
            Liveness::Kept(successor) => {
                let mark_bytes = match part.successor() {
                    None => SUCCESSOR_BYTES,
                    Some(_) => 0,
                };
                (
                    part.kind(),
                    bytes + mark_bytes,
                    Moved::Superseded(successor),
                )
            }
            Liveness::Copied(PartKind::Tombstone) => (
                PartKind::Tombstone,
                bytes.max(part_bytes(part.key().len(), 0, false, 0)),
                Moved::As(PartKind::Tombstone),
            ),
            _ => (PartKind::Put, bytes, Moved::As(PartKind::Put)),
        };
        CopyOf { kind, bytes, moved }
    }
}

/// What stands at the offset of the segment that is cleaned.
enum NextFrame {
    /// A frame that checks, and where it stands in the chunk.
    Whole(FrameHeader, usize),
    /// The chunk ends before the frame does; a frame of so many bytes is to be read, 0 if its
    /// length is not known.
    Missing(usize),
    /// No frame of the segment, or one that does not check.
    Damaged,
}

/// The frame that is judged next, from the chunk that was read.
fn next_frame<B: Block>(victim: &Victim<B>) -> NextFrame {
    let Chunk::Read { start, .. } = &victim.chunk else {
        return NextFrame::Missing(0);
    };
    let at = in_memory(victim.offset - start);
    let rest = victim.chunk.bytes().get(at..);
    let Some(rest) = rest.filter(|rest| rest.len() >= BLOCK_BYTES) else {
        return NextFrame::Missing(0);
    };
    let Ok(frame) = FrameHeader::read(victim.home, victim.offset, rest) else {
        return NextFrame::Damaged;
    };
    let padded = frame.padded_bytes();
    if victim.offset + padded as u64 > victim.segment.end.end_offset {
        return NextFrame::Damaged;
    }
    let Some(bytes) = rest.get(..padded) else {
        return NextFrame::Missing(padded);
    };
    // After each read anew: another read may bring other bytes.
    let is_intact = victim.intact_offset == Some(victim.offset)
        || FrameHeader::body_is_intact(victim.home, bytes);
    match is_intact {
        true => NextFrame::Whole(frame, at),
        false => NextFrame::Damaged,
    }
}

/// Why no more parts of a frame are judged now.
enum JudgeEnd {
    AllDone,
    StepDone,
    NoRoom,
}

/// What one turn may still do.
struct Step {
    pub(super) bytes: usize,
    pub(super) parts: usize,
    /// Bytes of parts, deletions left out, that were copied.
    copied_bytes: u64,
}

fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a segment has at most 1 GiB")
}
