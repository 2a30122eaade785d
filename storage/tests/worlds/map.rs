//! Where what stands in a sound image: headers, frames, and what follows the last frame of a file.

use penstock_storage::frame::{FrameHeader, FrameKind};
use penstock_storage::inspect::inspect;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::place::FileId;
use penstock_storage::recovery::Event;

use crate::image::Image;
use crate::life::OWNER;

/// One stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub file: FileId,
    pub start: usize,
    pub end: usize,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The header of the segment.
    Header,
    Frame(FrameHeader),
    /// Behind the last frame.
    Rest,
}

impl Span {
    pub fn is_frame(&self, kind: FrameKind) -> bool {
        matches!(self.what, What::Frame(frame) if frame.kind == kind)
    }

    /// The frame, which this must be.
    pub fn frame(&self) -> FrameHeader {
        match self.what {
            What::Frame(frame) => frame,
            What::Header | What::Rest => panic!("{self:?} is no frame"),
        }
    }
}

/// All stretches of the segments in `image`, which is sound, in log order.
pub fn map(image: &mut Image) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let report = inspect(image, Some(OWNER), &mut |event| match event {
        Event::Segment(segment) => {
            let (file, end) = (segment.file, BLOCK_BYTES);
            spans.push(Span {
                file,
                start: 0,
                end,
                what: What::Header,
            });
        }
        Event::Frame(file, frame) => {
            let start = usize::try_from(frame.offset).expect("small files");
            spans.push(Span {
                file: *file,
                start,
                end: start + frame.padded_bytes(),
                what: What::Frame(**frame),
            });
        }
        Event::Contents(_) | Event::Prefetch(_) | Event::Part(..) => {}
    });
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    let mut whole = Vec::new();
    for (number, &span) in spans.iter().enumerate() {
        whole.push(span);
        let is_last = spans
            .get(number + 1)
            .is_none_or(|next| next.file != span.file);
        let (start, end) = (span.end, image.files[&span.file].len());
        if is_last && start < end {
            whole.push(Span {
                start,
                end,
                what: What::Rest,
                ..span
            });
        }
    }
    whole
}

/// Commit frames of the map.
pub fn commits(spans: &[Span]) -> Vec<Span> {
    let spans = spans.iter().copied();
    spans
        .filter(|span| span.is_frame(FrameKind::Commit))
        .collect()
}
