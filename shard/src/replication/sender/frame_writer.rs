//! Writes the frames of one link: numbers them, fills the open one, announces what is durable.

use penstock_net::link::frame::{begin_link_frame, finish_link_frame, write_link_frame};
use penstock_net::link::message::{RECORDS, RECORDS_HEAD_BYTES, records_head};
use penstock_net::link::{LINK_HEADER_BYTES, LinkHeader, LinkMessage, Marks};
use penstock_storage::place::Lsn;

use crate::replication::freshness::Echoing;
use crate::replication::record::ShippedRecord;

use super::frames_under_way::{FramesUnderWay, SentFrame};

/// Bytes of records of one frame, about.
pub(super) const FRAME_BYTES: usize = 128 << 10;

/// The frames that one side of a link sends.
#[derive(Debug)]
pub(super) struct FrameWriter {
    /// The last frame that was sent.
    number: u64,
    /// Up to this frame the member was told that all is durable here.
    announced: u64,
    /// The frame that is being filled.
    open: Option<OpenFrame>,
    pub(super) under_way: FramesUnderWay,
    /// The clock of the member that goes back to it.
    pub(super) echoing: Echoing,
}

#[derive(Debug)]
struct OpenFrame {
    start: usize,
    count: u32,
    /// Records of the frame that are no part of a scan, and so follow each other.
    dense: u32,
    first: Lsn,
    lsn: Lsn,
    is_live: bool,
}

impl FrameWriter {
    /// On a link on which `sent` frames went out so far.
    pub(super) fn new(sent: u64, window_bytes: usize) -> Self {
        FrameWriter {
            number: sent,
            announced: 0,
            open: None,
            under_way: FramesUnderWay::new(sent, window_bytes),
            echoing: Echoing::default(),
        }
    }

    /// The number of the last frame that was sent.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Adds a record to the open frame. Records of a scan are not dense.
    pub(super) fn put(
        &mut self,
        time_ms: u64,
        lsn: Lsn,
        record: &ShippedRecord<'_>,
        (is_live, is_dense): (bool, bool),
        out: &mut Vec<u8>,
    ) {
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.is_live != is_live || out.len() - open.start > FRAME_BYTES)
        {
            self.flush(time_ms, out);
        }
        let open = self.open.get_or_insert_with(|| {
            let start = begin_link_frame(out);
            out.extend_from_slice(&[0; RECORDS_HEAD_BYTES]);
            OpenFrame {
                start,
                count: 0,
                dense: 0,
                first: lsn,
                lsn: Lsn(0),
                is_live,
            }
        });
        out.extend_from_slice(record.bytes);
        open.count += 1;
        open.dense += u32::from(is_dense);
        open.first = open.first.min(lsn);
        open.lsn = open.lsn.max(lsn);
    }

    /// Sends the open frame.
    pub(super) fn flush(&mut self, time_ms: u64, out: &mut [u8]) {
        let Some(open) = self.open.take() else { return };
        let head = open.start + LINK_HEADER_BYTES;
        out[head..head + RECORDS_HEAD_BYTES].copy_from_slice(&records_head(open.count));
        let header = self.header(time_ms);
        finish_link_frame(out, open.start, header, RECORDS);
        self.under_way.push(SentFrame {
            number: self.number,
            first: open.first,
            lsn: open.lsn,
            bytes: out.len() - open.start,
            dense: open.dense,
            live: open.is_live.then_some((open.first, open.dense)),
            is_awaited: true,
        });
    }

    /// Sends a message behind the open frame. It is durable with what stands before it.
    pub(super) fn send(&mut self, time_ms: u64, message: &LinkMessage<'_>, out: &mut Vec<u8>) {
        self.flush(time_ms, out);
        let header = self.header(time_ms);
        write_link_frame(out, header, message);
        self.under_way.push(SentFrame {
            number: self.number,
            ..SentFrame::default()
        });
    }

    /// The link ends: the open frame is not sent, because half a frame would hide what comes behind
    /// it.
    pub(super) fn abandon(&mut self, out: &mut Vec<u8>) {
        if let Some(open) = self.open.take() {
            out.truncate(open.start);
        }
    }

    /// Whether the member waits to hear that something is durable, or its clock.
    pub(super) fn has_news(&self) -> bool {
        self.under_way.is_awaited(self.announced) || self.echoing.is_news()
    }

    fn header(&mut self, time_ms: u64) -> LinkHeader {
        self.number += 1;
        self.announced = self.under_way.durable();
        LinkHeader {
            number: self.number,
            marks: Marks {
                durable: self.announced,
                received: self.echoing.echo(),
            },
            time: time_ms,
        }
    }
}
