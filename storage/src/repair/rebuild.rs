//! The bytes with which a damaged segment is rebuilt.

use crate::format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameHome, FrameKind, padded_bytes};
use crate::types::io::BLOCK_BYTES;
use crate::types::io::SegmentSource;
use crate::types::place::FileId;
use crate::types::place::Lsn;
use std::io;
use std::ops::Range;

pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;
/// Bytes of a repair frame that holds no parts, at most: recovery reads a frame as a whole.
pub(super) const FILLER_BYTES_MAX: u64 = 1 << 20;

/// A file as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// Its number, that of the file it replaces if there is one.
    pub file: FileId,
    /// Its length.
    pub bytes: u64,
    /// Where nothing of the old file is taken over; zeros but for the patches.
    pub(super) blanks: Vec<Range<u64>>,
    /// What is written there.
    pub(super) patches: Vec<(u64, Vec<u8>)>,
    /// Whether it takes anything from a file that is there.
    pub(super) has_old: bool,
}

impl Rebuild {
    pub(super) fn of(file: FileId, bytes: u64, has_old: bool) -> Self {
        Rebuild {
            file,
            bytes,
            blanks: Vec::new(),
            patches: Vec::new(),
            has_old,
        }
    }

    /// The bytes of the new file from `offset` on. `into` ends within the file.
    ///
    /// # Errors
    /// What cannot be read of the old file outside the stretches that are given up.
    pub fn read(
        &self,
        source: &mut impl SegmentSource,
        offset: u64,
        into: &mut [u8],
    ) -> io::Result<()> {
        into.fill(0);
        let end = offset + into.len() as u64;
        let mut at = offset;
        while self.has_old && at < end {
            let blank = self.blanks.iter().find(|blank| blank.contains(&at));
            if let Some(blank) = blank {
                at = blank.end.min(end);
                continue;
            }
            let next = self.blanks.iter().map(|blank| blank.start);
            let next = next
                .filter(|&start| start > at)
                .min()
                .unwrap_or(end)
                .min(end);
            let stretch = &mut into[within(offset, at)..within(offset, next)];
            source.read_at(self.file, at, stretch)?;
            at = next;
        }
        for (start, bytes) in &self.patches {
            let (from, to) = ((*start).max(offset), (start + bytes.len() as u64).min(end));
            if from < to {
                into[within(offset, from)..within(offset, to)]
                    .copy_from_slice(&bytes[within(*start, from)..within(*start, to)]);
            }
        }
        Ok(())
    }
}

pub(super) fn within(start: u64, at: u64) -> usize {
    usize::try_from(at - start).expect("a place in memory")
}

impl Rebuild {
    pub(super) fn blank(&mut self, stretch: Range<u64>) {
        self.blanks.push(stretch);
    }

    /// Fills a stretch with repair frames: the first counts `count` records behind `before` and
    /// holds `kept`, the others hold nothing.
    pub(super) fn put_repair(
        &mut self,
        home: FrameHome,
        stretch: Range<u64>,
        before: Lsn,
        count: u32,
        kept: &[u8],
        time_ms: u64,
    ) {
        let last = Lsn(before.0 + u64::from(count));
        let mut at = stretch.start;
        let mut is_first = true;
        while at < stretch.end {
            let parts = if is_first { kept } else { &[] };
            let least = padded_bytes(parts.len());
            let bytes = (least as u64).max(FILLER_BYTES_MAX).min(stretch.end - at);
            let mut frame = vec![0; within(0, bytes)];
            frame[FRAME_HEADER_BYTES..][..parts.len()].copy_from_slice(parts);
            let header = FrameHeader {
                kind: FrameKind::Repair,
                offset: at,
                first_lsn: Lsn(if is_first { before.0 } else { last.0 } + 1),
                durable_lsn: if is_first { before } else { last },
                record_count: if is_first { count } else { 0 },
                body_bytes: u32::try_from(frame.len() - FRAME_HEADER_BYTES)
                    .expect("a segment has at most 1 GiB"),
                time_ms,
            };
            header.seal(home, &mut frame);
            // The rest is zeros, and blank anyway. A header can claim a stretch of a whole GiB.
            frame.truncate(least);
            frame.shrink_to_fit();
            self.patches.push((at, frame));
            at += bytes;
            is_first = false;
        }
    }
}
