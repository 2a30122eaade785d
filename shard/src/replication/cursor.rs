//! Reads a log from the disk, frame by frame, for those who are behind what the ring holds.

use penstock_storage::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use penstock_storage::io::{BLOCK_BYTES, Block, Blocks, Completion, Io};
use penstock_storage::log::DurableSegment;
use penstock_storage::place::FileId;
use penstock_storage::place::{Lsn, Place};
use penstock_storage::store::Store;

use super::reads::{LinkReads, Unread};

/// Bytes read at a time.
const CHUNK_BYTES: u64 = 256 << 10;

/// What a cursor has come upon.
#[derive(Debug, PartialEq, Eq)]
pub enum CursorStep<'a> {
    /// A frame with records behind the one asked for.
    Frame(CursorFrame<'a>),
    /// A read is under way, or no memory is free for one now.
    UnderWay,
    /// No record behind that one is durable.
    End,
    /// What was durable cannot be read, or is not what was written. Whoever asks again waits for
    /// the pause of the place.
    Damaged {
        /// The file.
        file: FileId,
        /// Where the frame should stand.
        offset: u64,
        /// What people are to be told, if it is time.
        report: Option<Unread>,
    },
}

/// Records that stand in one frame.
#[derive(Debug, PartialEq, Eq)]
pub struct CursorFrame<'a> {
    /// The first of them.
    pub first: Lsn,
    /// The last of them.
    pub last: Lsn,
    /// The file.
    pub file: FileId,
    /// Where the bytes stand in it.
    pub offset: u64,
    /// The parts; behind those of a repair there are zeros.
    pub bytes: &'a [u8],
}

/// A place in a log that moves on.
#[derive(Debug)]
pub struct LogCursor<B> {
    /// The segment and the offset of the frame that comes next, if that behind `behind` is asked
    /// for.
    at: (u64, u64),
    behind: Lsn,
    /// Nothing is left behind `behind` in the segments up to this one.
    passed: u64,
    chunk: Chunk<B>,
    has_failed: bool,
    /// What people are to be told with the next damage.
    report: Option<Unread>,
}

#[derive(Debug)]
enum Chunk<B> {
    Missing,
    Reading {
        token: u64,
        file: FileId,
        start: u64,
        bytes: u64,
    },
    Read {
        file: FileId,
        start: u64,
        bytes: usize,
        block: B,
    },
    /// The read has failed.
    Failed,
}

impl<B: Block> Default for LogCursor<B> {
    fn default() -> Self {
        LogCursor {
            at: (0, 0),
            behind: Lsn(0),
            passed: 0,
            chunk: Chunk::Missing,
            has_failed: false,
            report: None,
        }
    }
}

impl<B: Block> LogCursor<B> {
    /// Whether a completion with this token is its own.
    #[must_use]
    pub fn awaits(&self, token: u64) -> bool {
        matches!(self.chunk, Chunk::Reading { token: own, .. } if own == token)
    }

    /// The next frame with a record behind `behind`.
    pub fn next<P: Blocks<Block = B>>(
        &mut self,
        store: &mut Store<P>,
        behind: Lsn,
        reads: &mut LinkReads,
        io: &mut Vec<Io<B>>,
    ) -> CursorStep<'_> {
        loop {
            if let Chunk::Reading { .. } = self.chunk {
                return CursorStep::UnderWay;
            }
            if self.behind != behind {
                (self.behind, self.at, self.passed) = (behind, (0, 0), 0);
            }
            let found = store.log().durable_segment_behind(behind, self.passed);
            let Some(segment) = found else {
                return CursorStep::End;
            };
            let sequence = segment.home.segment_sequence;
            if self.at.0 != sequence {
                self.at = (sequence, BLOCK_BYTES as u64);
            }
            if self.at.1 >= segment.end_offset {
                if !segment.is_whole {
                    return CursorStep::End;
                }
                self.passed = sequence;
                continue;
            }
            match self.next_frame(&segment) {
                NextFrame::Frame(frame, start) => {
                    self.has_failed = false;
                    let offset = self.at.1;
                    reads.succeeded(segment.file, offset);
                    self.at.1 += frame.padded_bytes() as u64;
                    let last = Lsn(frame.end_lsn().0 - 1);
                    let holds_records = matches!(frame.kind, FrameKind::Commit | FrameKind::Repair);
                    if !holds_records || last <= behind {
                        continue;
                    }
                    self.behind = last;
                    let Chunk::Read { block, .. } = &self.chunk else {
                        unreachable!("it was looked at");
                    };
                    let start = start + FRAME_HEADER_BYTES;
                    return CursorStep::Frame(CursorFrame {
                        first: frame.first_lsn,
                        last,
                        file: segment.file,
                        offset: offset + FRAME_HEADER_BYTES as u64,
                        bytes: &block.bytes()[start..start + frame.body_bytes as usize],
                    });
                }
                NextFrame::Damaged => {
                    let (file, offset) = (segment.file, self.at.1);
                    self.report = reads.failed(file, offset).or(self.report);
                    self.chunk = Chunk::Missing;
                    // Other bytes may come with another read.
                    self.has_failed = !self.has_failed;
                    if !self.has_failed {
                        let report = self.report.take();
                        return CursorStep::Damaged {
                            file,
                            offset,
                            report,
                        };
                    }
                }
                NextFrame::Missing(needed) => {
                    let left = segment.end_offset - self.at.1;
                    let bytes = left.min(CHUNK_BYTES.max(needed));
                    let place = Place {
                        file: segment.file,
                        offset: self.at.1,
                        bytes: u32::try_from(bytes).expect("a segment has at most 1 GiB"),
                    };
                    // Who holds a block while it waits for another one may wait for itself.
                    self.chunk = Chunk::Missing;
                    // Memory may be short: then a frame at a time.
                    let read = reads.begin(store, place, io).or_else(|| {
                        let bytes = u32::try_from(needed.min(left)).expect("as above");
                        reads.begin(store, Place { bytes, ..place }, io)
                    });
                    let Some((token, len)) = read else {
                        return CursorStep::UnderWay;
                    };
                    self.chunk = Chunk::Reading {
                        token,
                        file: segment.file,
                        start: self.at.1,
                        bytes: u64::from(len),
                    };
                    return CursorStep::UnderWay;
                }
            }
        }
    }

    /// Releases what was read, because nothing is asked for now. Whether something was released.
    pub fn release(&mut self) -> bool {
        let has_block = matches!(self.chunk, Chunk::Read { .. });
        if has_block {
            self.chunk = Chunk::Missing;
        }
        has_block
    }

    /// The end of its read.
    pub fn read(&mut self, completion: Completion<B>) {
        let Chunk::Reading {
            file, start, bytes, ..
        } = self.chunk
        else {
            return;
        };
        let bytes = usize::try_from(bytes).expect("a chunk is bounded");
        let has_brought_all = completion.brought(bytes).is_ok();
        self.chunk = match completion.block {
            Some(block) if has_brought_all => Chunk::Read {
                file,
                start,
                bytes,
                block,
            },
            // As bytes that do not check.
            _ => Chunk::Failed,
        };
    }

    /// The frame that comes next, and where it begins in the chunk.
    fn next_frame(&self, segment: &DurableSegment) -> NextFrame {
        let (file, start, bytes, block) = match &self.chunk {
            Chunk::Read {
                file,
                start,
                bytes,
                block,
            } => (file, start, bytes, block),
            Chunk::Failed => return NextFrame::Damaged,
            Chunk::Missing | Chunk::Reading { .. } => {
                return NextFrame::Missing(BLOCK_BYTES as u64);
            }
        };
        let skip = match self.at.1.checked_sub(*start) {
            Some(skip) if *file == segment.file => usize::try_from(skip).expect("in a segment"),
            _ => return NextFrame::Missing(BLOCK_BYTES as u64),
        };
        let Some(rest) = block.bytes()[..*bytes]
            .get(skip..)
            .filter(|rest| rest.len() >= BLOCK_BYTES)
        else {
            return NextFrame::Missing(BLOCK_BYTES as u64);
        };
        let Ok(frame) = FrameHeader::read(segment.home, self.at.1, rest) else {
            return NextFrame::Damaged;
        };
        let padded = frame.padded_bytes();
        if self.at.1 + padded as u64 > segment.end_offset {
            return NextFrame::Damaged;
        }
        match rest.get(..padded) {
            None => NextFrame::Missing(padded as u64),
            Some(bytes) if FrameHeader::body_is_intact(segment.home, bytes) => {
                NextFrame::Frame(frame, skip)
            }
            Some(_) => NextFrame::Damaged,
        }
    }
}

enum NextFrame {
    Frame(FrameHeader, usize),
    /// So many bytes are needed.
    Missing(u64),
    Damaged,
}
