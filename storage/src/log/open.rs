//! The end of a log, where records are appended: the open segment and the open frame in it.

use crate::format::contents::{SealedSegment, SegmentEnd};
use crate::format::frame::FRAME_HEADER_BYTES;
use crate::format::segment::SegmentHeader;
use crate::format::summary::Summary;
use crate::types::io::{BLOCK_BYTES, Block};
use crate::types::place::{FileId, LogStart, Lsn};

/// The segment that frames are appended to.
pub(super) struct OpenSegment {
    pub(super) header: SegmentHeader,
    pub(super) file: FileId,
    /// Where the next frame goes.
    pub(super) end_offset: u64,
    pub(super) summary: Summary,
}

/// The frame that records are appended to.
pub(super) struct OpenFrame<B> {
    pub(super) block: B,
    /// Bytes of the body so far, and at most.
    pub(super) body_bytes: usize,
    pub(super) body_bytes_max: usize,
    pub(super) record_count: u32,
    /// Not all of its records were moved by cleaning.
    pub(super) has_commits: bool,
}

/// Where a log ends.
///
/// What must hold: an open frame stands behind the end of the open segment.
pub(super) struct OpenEnd<B> {
    /// Where the log ended before `segment`.
    before: LogStart,
    segment: Option<OpenSegment>,
    frame: Option<OpenFrame<B>>,
}

impl<B: Block> OpenEnd<B> {
    /// The end of a log that an earlier run left. The next frame begins a segment.
    pub(super) fn new(before: LogStart) -> Self {
        OpenEnd {
            before,
            segment: None,
            frame: None,
        }
    }

    /// Where the log ended before the open segment.
    pub(super) fn before(&self) -> &LogStart {
        &self.before
    }

    /// The open segment.
    #[inline]
    pub(super) fn segment(&self) -> Option<&OpenSegment> {
        self.segment.as_ref()
    }

    /// The open frame.
    #[inline]
    pub(super) fn frame(&self) -> Option<&OpenFrame<B>> {
        self.frame.as_ref()
    }

    /// The open segment, to append a frame to.
    pub(super) fn segment_mut(&mut self) -> &mut OpenSegment {
        self.segment.as_mut().expect("frames stand in a segment")
    }

    /// The open segment and the open frame, to append a record to.
    #[inline]
    pub(super) fn both_mut(&mut self) -> (&mut OpenSegment, &mut OpenFrame<B>) {
        let frame = self.frame.as_mut().expect("room() opened a frame");
        let segment = self
            .segment
            .as_mut()
            .expect("an open frame stands in a segment");
        (segment, frame)
    }

    /// Whether the open frame holds a record.
    pub(super) fn holds_records(&self) -> bool {
        self.frame.as_ref().is_some_and(|it| it.record_count > 0)
    }

    /// Bytes of the open frame's body.
    pub(super) fn body_bytes(&self) -> usize {
        self.frame.as_ref().map_or(0, |it| it.body_bytes)
    }

    /// Begins a frame of `frame_bytes` in a block.
    pub(super) fn begin_frame(&mut self, block: B, frame_bytes: usize) {
        self.frame = Some(OpenFrame {
            block,
            body_bytes: 0,
            body_bytes_max: frame_bytes - FRAME_HEADER_BYTES,
            record_count: 0,
            has_commits: false,
        });
    }

    /// Takes the open frame away, to seal it or to give its place up.
    pub(super) fn take_frame(&mut self) -> Option<OpenFrame<B>> {
        self.frame.take()
    }

    /// Begins a segment in a file. Its header fills the first block.
    pub(super) fn begin_segment(&mut self, header: SegmentHeader, file: FileId) {
        self.segment = Some(OpenSegment {
            header,
            file,
            end_offset: BLOCK_BYTES as u64,
            summary: Summary::new(),
        });
    }

    /// Ends the open segment, whose last record is `last_lsn`.
    pub(super) fn end_segment(&mut self, last_lsn: Lsn) -> SealedSegment {
        let segment = self.segment.take().expect("a segment is open");
        self.before = LogStart {
            last_sequence: segment.header.sequence,
            end_offset: segment.end_offset,
            last_lsn,
            is_unproven: false,
        };
        SealedSegment {
            file: segment.file,
            salt: segment.header.salt,
            file_bytes: segment.header.segment_bytes,
            end: SegmentEnd {
                sequence: segment.header.sequence,
                end_offset: segment.end_offset,
                last_lsn,
            },
        }
    }
}
