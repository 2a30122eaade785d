//! Reads the segment at hand and judges its parts, one by one.

use crate::format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use crate::format::record::{PartKind, PartView, SUCCESSOR_BYTES, part_bytes};
use crate::format::system_key::is_local;
use crate::log::room::{Purpose, Room};
use crate::log::told::Moved;
use crate::planted::{Bug, is_planted};
use crate::store::cleaning::cleaner::BLOCKED_US_MAX;
use crate::store::cleaning::cleaner::CHUNK_BYTES;
use crate::store::cleaning::cleaner::CLEAN_TOKEN_BIT;
use crate::store::cleaning::cleaner::Chunk;
use crate::store::cleaning::cleaner::Damaged;
use crate::store::cleaning::cleaner::Move;
use crate::store::cleaning::cleaner::STEP_BYTES;
use crate::store::cleaning::cleaner::STEP_PARTS;
use crate::store::cleaning::cleaner::Victim;
use crate::store::cleaning::liveness::Fate;
use crate::store::expiry::part_expires;
use crate::store::store::Store;
use crate::store::versions::entry::KeyId;
use crate::types::io::{BLOCK_BYTES, Block, Blocks, Completion, Io, IoToken};
use crate::types::place::Place;
use crate::types::version::partition_of;

impl<P: Blocks> Store<P> {
    /// The end of a read for cleaning.
    pub fn clean_read(&mut self, completion: Completion<P::Block>) {
        let Some(victim) = &mut self.cleaner.victim else {
            return;
        };
        let Chunk::Reading(token) = victim.chunk else {
            return;
        };
        assert_eq!(completion.token.0, token, "one read is under way");
        match (completion.result, completion.block) {
            (Ok(()), Some(block)) => {
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
            self.cleaner.must_look = true;
            self.cleaner.is_hopeless = false;
        }
    }

    /// Goes on with the segment that is cleaned; `false` when it is released or given up.
    pub(super) fn step(
        &mut self,
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
                let segment = victim.segment;
                // Before the point of no return: whatever counts was copied.
                if self.live.parts(segment.file) != self.moving_bytes(segment.file) {
                    self.tell_damaged(victim);
                    return false;
                }
                // A keyspace that keeps versions may keep what was to go.
                assert!(
                    victim.copied_bytes <= victim.counting_bytes
                        || self.keyspaces.keeps_versions()
                        || self.live.has_forgotten_times(),
                    "{} bytes of {:08}.seg were copied, of which {} counted: the others were taken for expired",
                    victim.copied_bytes,
                    segment.file.0,
                    victim.counting_bytes
                );
                match victim.is_inherited {
                    true => self.inheritance.passed(),
                    false => {
                        let sequence = segment.end.sequence;
                        let highest = *self.cleaner.highest;
                        self.log_mut().release(sequence, &highest);
                    }
                }
                self.cleaner.counters.segments += 1;
                return false;
            }
            let (start, bytes, block) = match &victim.chunk {
                Chunk::Reading(_) => return true,
                Chunk::Missing(_) if now_us < victim.resume_us || self.cleaner.budget_bytes < 0 => {
                    return true;
                }
                &Chunk::Missing(frame_bytes) => {
                    self.read_chunk(victim, frame_bytes, io);
                    return true;
                }
                Chunk::Read {
                    start,
                    bytes,
                    block,
                } => (*start, *bytes, block),
            };
            let skip = in_memory(victim.offset - start);
            let chunk = &block.bytes()[..bytes];
            let Some(rest) = chunk.get(skip..).filter(|rest| rest.len() >= BLOCK_BYTES) else {
                victim.chunk = Chunk::Missing(0);
                continue;
            };
            let Ok(frame) = FrameHeader::read(victim.home, victim.offset, rest) else {
                self.tell_damaged(victim);
                return false;
            };
            let padded = frame.padded_bytes();
            let end = victim.offset + padded as u64;
            if end > victim.segment.end.end_offset {
                self.tell_damaged(victim);
                return false;
            }
            let Some(bytes) = rest.get(..padded) else {
                victim.chunk = Chunk::Missing(padded);
                continue;
            };
            // After each read anew: another read may bring other bytes.
            if victim.intact_offset != Some(victim.offset) {
                if !FrameHeader::body_is_intact(victim.home, bytes) {
                    self.tell_damaged(victim);
                    return false;
                }
                victim.intact_offset = Some(victim.offset);
            }
            if matches!(frame.kind, FrameKind::Commit | FrameKind::Repair) {
                let body = &bytes[FRAME_HEADER_BYTES..][..frame.body_bytes as usize];
                let (judged_bytes, end) = self.judge(now_us, victim, body, &mut step, hash_of);
                victim.judged_bytes = judged_bytes;
                victim.copied_bytes += std::mem::take(&mut step.copied_bytes);
                match end {
                    JudgeEnd::AllDone => victim.blocked_since_us = None,
                    JudgeEnd::StepDone => {
                        victim.blocked_since_us = None;
                        return true;
                    }
                    JudgeEnd::NoRoom => {
                        // The block that is held may be the very one that the log needs.
                        let since_us = *victim.blocked_since_us.get_or_insert(now_us);
                        if now_us >= since_us + BLOCKED_US_MAX {
                            victim.is_memory_short = true;
                            victim.blocked_since_us = None;
                            victim.resume_us = now_us + BLOCKED_US_MAX;
                            victim.chunk = Chunk::Missing(padded);
                        }
                        return true;
                    }
                }
            }
            victim.offset = end;
            victim.judged_bytes = 0;
        }
    }

    /// Judges the parts of one frame and copies those that count. How far it came, and whether that
    /// is all of it.
    fn judge(
        &mut self,
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
            let fate = self.fate(&part, place, victim.is_oldest, hash_of);
            let hash = hash_of(part.key());
            let is_gone = fate == Fate::Expired || fate == Fate::Copied(PartKind::Tombstone);
            let expires =
                is_gone && part.kind() == PartKind::Put && !is_planted(Bug::ExpireWithoutTime);
            // A start in an earlier time would take the version before it for what the one behind
            // it superseded.
            let ends = (is_gone || fate == Fate::Dead)
                && self
                    .keyspaces
                    .rule(part.slot(), part.key())
                    .is_some_and(|rule| rule.retention_ms > 0)
                && !is_planted(Bug::EndWithoutTime);
            if expires || ends {
                let time_ms = self.time_ms();
                self.log_mut().carry_time(time_ms);
                if victim.is_inherited && !is_planted(Bug::InheritedTimeUntold) {
                    self.log_mut().owe_contents();
                }
            }
            if !self.let_go(&part, place, hash, fate, &mut step.parts) {
                return (at, JudgeEnd::StepDone);
            }
            match fate {
                Fate::Dead => {
                    self.cleaner.counters.tombstones_dropped +=
                        u64::from(part.kind() == PartKind::Tombstone);
                }
                Fate::Expired => {
                    self.forget(part.slot(), hash, place);
                    self.cleaner.counters.expired_dropped += 1;
                }
                Fate::Copied(_) if is_planted(Bug::ForgetOneMove) && bytes % 7 == 5 => {}
                Fate::Copied(_) | Fate::Kept(_) | Fate::KeptDeletion => {
                    let (kind, copy_bytes, copy) = match fate {
                        Fate::KeptDeletion => (part.kind(), bytes, Moved::Deletion),
                        Fate::Kept(successor) => (
                            part.kind(),
                            bytes
                                + if part.successor().is_none() {
                                    SUCCESSOR_BYTES
                                } else {
                                    0
                                },
                            Moved::Superseded(successor),
                        ),
                        Fate::Copied(PartKind::Tombstone) => (
                            PartKind::Tombstone,
                            bytes.max(part_bytes(part.key().len(), 0, false, 0)),
                            Moved::As(PartKind::Tombstone),
                        ),
                        _ => (PartKind::Put, bytes, Moved::As(PartKind::Put)),
                    };
                    if step.bytes < copy_bytes && step.bytes < STEP_BYTES {
                        return (at, JudgeEnd::StepDone);
                    }
                    // What leaves no segment nearer to its release has no claim to the last spares.
                    let purpose = match victim.is_inherited {
                        true => Purpose::Grow,
                        false => Purpose::Clean,
                    };
                    let is_kept_back = purpose == Purpose::Grow && self.log().is_low();
                    if is_kept_back || self.log_mut().room(purpose, copy_bytes) != Room::Yes {
                        return (at, JudgeEnd::NoRoom);
                    }
                    let is_crowded = self.is_crowded(part.slot(), hash, place);
                    let (lsn, to) = self.log_mut().append_moved(now_us, &part, copy, is_crowded);
                    step.bytes = step.bytes.saturating_sub(copy_bytes);
                    if kind == PartKind::Put {
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
                        kind,
                        is_marked: matches!(copy, Moved::Superseded(_)),
                        expires: part_expires(&self.keyspaces, &part),
                        from: place,
                        to,
                    });
                }
            }
            at += bytes;
            if at == body.len() {
                break;
            }
        }
        (at, JudgeEnd::AllDone)
    }

    /// Reads on from the frame that is judged next; tried again later if no block is free.
    fn read_chunk(
        &mut self,
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
            if let Some(block) = self.take_block(bytes) {
                break block;
            }
            if bytes == least {
                return;
            }
            bytes = (bytes / 4).next_multiple_of(BLOCK_BYTES).max(least);
        };
        self.cleaner.tokens += 1;
        let token = CLEAN_TOKEN_BIT | self.cleaner.tokens;
        victim.chunk = Chunk::Reading(token);
        victim.chunk_bytes = bytes;
        self.cleaner.counters.reads += 1;
        self.cleaner.counters.read_bytes += bytes as u64;
        self.cleaner.budget_bytes -= i64::try_from(bytes).expect("a chunk is bounded");
        io.push(Io::Read {
            token: IoToken(token),
            file: victim.segment.file,
            offset: victim.offset,
            block,
            len: u32::try_from(bytes).expect("a chunk is bounded"),
        });
    }

    /// A read failed: the segment stays as it is.
    fn give_up(&mut self) {
        if let Some(victim) = self.cleaner.victim.take() {
            self.tell_damaged(&victim);
        }
    }

    fn tell_damaged(&mut self, victim: &Victim<P::Block>) {
        if victim.is_inherited {
            self.inheritance.put_back(victim);
            self.cleaner.must_look = true;
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
