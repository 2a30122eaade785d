//! Looking through sealed segments while the shard serves: what rots is told while a backup or
//! another node may still have it, and not by the start that needs it.
//!
//! One small read at a time, and so few of them that all sealed segments are read once within a
//! period. Every frame is checked as recovery checks it, up to the end that the log knows of its
//! segment; of a frame that is longer than one read only the checksums are. A start begins at
//! another segment than the one before, so that a node that is often started looks everywhere too.

use crate::format::contents::SealedSegment;
use crate::format::corruption::Corruption;
use crate::format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameHome};
use crate::format::frame_body::is_sound;
use crate::format::row::Row;
use crate::format::segment::{FirstBlock, SegmentHeader};
use crate::log::reports::DurableEnd;
use crate::types::io::BLOCK_BYTES;
use crate::types::place::Lsn;
use crc32fast::Hasher;

/// Bytes of one read: little beside what cold reads may cost.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// Reads of a place before it is told damaged: what passes the second time is not on the disk.
const TRIES: u32 = 2;

/// Between two tries, and when no block is free, in microseconds.
pub(super) const AGAIN_US: u64 = 100_000;

/// What was looked through since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubCounters {
    /// Bytes read.
    pub bytes: u64,
    /// Times that the last sealed segment was passed.
    pub passes: u64,
    /// Segments found damaged, in each pass anew.
    pub damaged: u64,
}

/// Where a shard is in looking through its log.
#[derive(Debug, Default)]
pub struct Scrub {
    /// 0 is never.
    pub(super) period_us: u64,
    /// Decides where the first pass begins.
    pub(super) seed: u64,
    /// The next read is due then; if one is under way, when it was begun.
    pub(super) next_us: u64,
    /// Bytes of all sealed segments when the last was taken up: they fill the period.
    pub(super) total_bytes: u64,
    /// Segments up to this sequence have been looked at in this pass.
    seen: u64,
    /// The pass ends behind this sequence. What is sealed meanwhile is left to the next pass:
    /// otherwise a log that grows faster than it is looked through would never be begun anew.
    until: u64,
    pub(super) segment: Option<ScrubbedSegment>,
    /// Bytes that are being read; 0 if none are.
    pub(super) reading_bytes: usize,
    pub(super) tokens: u64,
    pub(super) found: Vec<Corruption>,
    pub(super) counters: ScrubCounters,
}

/// The segment that is looked at.
#[derive(Debug)]
pub(super) struct ScrubbedSegment {
    pub(super) sealed: SealedSegment,
    home: FrameHome,
    /// Where the next frame begins; 0 for the header of the segment.
    pub(super) offset: u64,
    /// The first record that can stand there.
    lsn: Lsn,
    /// The frame there, if it is longer than a read.
    long: Option<Long>,
    tries: u32,
}

/// A frame that is read in pieces.
#[derive(Debug)]
struct Long {
    frame: FrameHeader,
    /// The CRC of its body as it should be, and as far as it was read.
    crc: u32,
    hasher: Hasher,
    /// What is read next.
    pub(super) at: u64,
}

/// What is not what was written, at the place where the frame begins.
pub(super) struct Wrong {
    row: Row,
    cause: &'static str,
    /// The last record concerned, if the frame itself tells.
    last: Option<Lsn>,
}

impl Scrub {
    /// Takes the next segment of the pass up, of those that are sealed and durable.
    pub(super) fn pick(&mut self, sealed: &[SealedSegment], durable: DurableEnd) {
        let known = (durable.segment_sequence, durable.end_offset);
        let count = sealed.partition_point(|it| (it.end.sequence, it.end.end_offset) <= known);
        let sealed = &sealed[..count];
        if sealed.is_empty() {
            return;
        }
        if self.seen == 0 && self.counters == ScrubCounters::default() {
            let first = usize::try_from(self.seed % count as u64).expect("below a length");
            self.seen = sealed[first].end.sequence - 1;
            self.until = sealed[count - 1].end.sequence;
        }
        let mut next = sealed.partition_point(|it| it.end.sequence <= self.seen);
        if next == count || sealed[next].end.sequence > self.until {
            self.counters.passes += 1;
            self.until = sealed[count - 1].end.sequence;
            next = 0;
        }
        self.total_bytes = sealed.iter().map(|it| it.end.end_offset).sum();
        let before = next
            .checked_sub(1)
            .map(|before| sealed[before].end.last_lsn);
        let segment = sealed[next];
        self.segment = Some(ScrubbedSegment {
            sealed: segment,
            home: FrameHome {
                log_id: durable.log_id,
                segment_sequence: segment.end.sequence,
                salt: segment.salt,
            },
            offset: 0,
            lsn: Lsn(before.unwrap_or_default().0 + 1),
            long: None,
            tries: 0,
        });
    }

    /// What was released meanwhile is nobody's loss.
    pub(super) fn forget_released(&mut self, sealed: &[SealedSegment]) {
        if let Some(segment) = &self.segment {
            let sequence = segment.sealed.end.sequence;
            let is_there = sealed
                .binary_search_by(|it| it.end.sequence.cmp(&sequence))
                .is_ok();
            if !is_there {
                self.leave();
            }
        }
    }

    /// Goes on behind this segment.
    pub(super) fn leave(&mut self) {
        if let Some(segment) = self.segment.take() {
            self.seen = segment.sealed.end.sequence;
        }
    }

    pub(super) fn note_damage(&mut self, wrong: &Wrong) {
        if let Some(segment) = &self.segment {
            self.counters.damaged += 1;
            self.found.push(Corruption {
                row: wrong.row,
                log_id: Some(segment.home.log_id),
                file: segment.sealed.file,
                offset: segment.offset,
                lsn_from: segment.lsn,
                lsn_to: Some(wrong.last.unwrap_or(segment.sealed.end.last_lsn)),
                cause: wrong.cause,
            });
        }
        self.leave();
    }
}

impl ScrubbedSegment {
    /// Where the next read begins.
    pub(super) fn at(&self) -> u64 {
        self.long.as_ref().map_or(self.offset, |long| long.at)
    }

    pub(super) fn wrong(&self, cause: &'static str, frame: Option<&FrameHeader>) -> Wrong {
        Wrong {
            row: match self.offset {
                0 => Row::HeaderDamaged,
                _ => Row::EarlierDamaged,
            },
            cause,
            last: frame
                .filter(|frame| frame.record_count > 0)
                .map(|frame| Lsn(frame.end_lsn().0 - 1)),
        }
    }

    /// Counts a try that failed, and begins the frame anew.
    pub(super) fn is_tried_enough(&mut self) -> bool {
        self.long = None;
        self.tries += 1;
        self.tries >= TRIES
    }

    fn passed(&mut self, frame: &FrameHeader) {
        self.offset += frame.padded_bytes() as u64;
        self.lsn = frame.end_lsn();
        self.tries = 0;
    }

    /// Checks what was read from [`ScrubbedSegment::at`] on. A frame that does not end there is
    /// read again from its start, or in pieces if it began there.
    pub(super) fn check(&mut self, mut rest: &[u8]) -> Result<(), Wrong> {
        let all = rest.len();
        let end = self.sealed.end.end_offset;
        if self.offset == 0 {
            let (block, behind) = rest.split_at(BLOCK_BYTES);
            let block = block.first_chunk().expect("a whole block");
            let FirstBlock::Segment(header) = SegmentHeader::read(block) else {
                return Err(self.wrong("its header does not check", None));
            };
            if header.home() != self.home {
                return Err(self.wrong("its header is that of another segment", None));
            }
            (self.lsn, self.offset) = (header.first_lsn, BLOCK_BYTES as u64);
            rest = behind;
        }
        loop {
            if let Some(mut long) = self.long.take() {
                let frame_end = self.offset + long.frame.padded_bytes() as u64;
                let left = usize::try_from(frame_end - long.at).expect("a frame is in memory once");
                let (piece, behind) = rest.split_at(left.min(rest.len()));
                long.hasher.update(piece);
                long.at += piece.len() as u64;
                rest = behind;
                if long.at < frame_end {
                    self.long = Some(long);
                    return Ok(());
                }
                if long.hasher.finalize() != long.crc {
                    return Err(self.wrong("the body of a frame does not check", Some(&long.frame)));
                }
                self.passed(&long.frame);
            }
            if self.offset >= end {
                break;
            }
            if rest.is_empty() {
                return Ok(());
            }
            let Ok(frame) = FrameHeader::read(self.home, self.offset, rest) else {
                return Err(self.wrong("no frame begins where one must", None));
            };
            let padded = frame.padded_bytes();
            if padded as u64 > end - self.offset || frame.first_lsn != self.lsn {
                return Err(self.wrong("a frame contradicts its place", None));
            }
            if let Some((bytes, behind)) = rest.split_at_checked(padded) {
                let body = &bytes[FRAME_HEADER_BYTES..][..frame.body_bytes as usize];
                if !FrameHeader::body_is_intact(self.home, bytes) || !is_sound(&frame, body) {
                    return Err(self.wrong("the body of a frame does not check", Some(&frame)));
                }
                self.passed(&frame);
                rest = behind;
            } else if rest.len() == all {
                let (crc, mut hasher) = FrameHeader::body_crc_in_pieces(self.home, rest);
                hasher.update(&rest[FRAME_HEADER_BYTES..]);
                let at = self.offset + rest.len() as u64;
                self.long = Some(Long {
                    frame,
                    crc,
                    hasher,
                    at,
                });
                return Ok(());
            } else {
                return Ok(());
            }
        }
        match self.lsn.0 - 1 == self.sealed.end.last_lsn.0 {
            true => Ok(()),
            false => Err(self.wrong("it does not end with the record that was told", None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::contents::SegmentEnd;
    use crate::types::place::FileId;

    fn sealed(sequence: u64) -> SealedSegment {
        SealedSegment {
            file: FileId(u32::try_from(sequence).expect("few")),
            salt: 0,
            file_bytes: 8192,
            end: SegmentEnd {
                sequence,
                end_offset: 8192,
                last_lsn: Lsn(sequence),
            },
        }
    }

    #[test]
    fn a_segment_is_checked_again_although_others_are_sealed_faster_than_they_are_checked() {
        let mut scrub = Scrub {
            seed: 3,
            ..Scrub::default()
        };
        let mut segments: Vec<_> = (1..=10).map(sealed).collect();
        let mut firsts = Vec::new();
        for pick in 0..100 {
            let durable = DurableEnd {
                segment_sequence: u64::MAX,
                ..DurableEnd::default()
            };
            scrub.pick(&segments, durable);
            scrub.counters.bytes += 1;
            if scrub
                .segment
                .as_ref()
                .expect("there are some")
                .sealed
                .end
                .sequence
                == 1
            {
                firsts.push(pick);
            }
            scrub.leave();
            // Two are sealed for each that is looked at. One of them is released before long.
            let next = segments.last().expect("there are some").end.sequence + 1;
            segments.extend([sealed(next), sealed(next + 1)]);
            segments.remove(segments.len() - 3);
        }
        assert!(firsts.len() >= 3, "looked at the first one at {firsts:?}");
    }
}
