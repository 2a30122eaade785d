//! Records of one plain part that go into the open frame as it is.

use crate::format::direct_part::DirectBody;
use crate::format::frame::FRAME_HEADER_BYTES;
use crate::format::record::RecordSpec;
use crate::log::log::Log;
use crate::log::room::Purpose;
use crate::types::io::{Block, Blocks};
use crate::types::place::{Lsn, Place};
use crate::types::version::{Version, partition_of};

impl<P: Blocks> Log<P> {
    /// Whether records of all purposes are appended as long as the open frame has room for them.
    /// The answer holds until another frame is opened.
    pub(crate) fn takes_all(&self) -> bool {
        let has_segment = self.open.segment().is_some();
        !self.supply.is_kept_back(Purpose::Grow, has_segment)
            && !self.supply.keeps_end()
            && self.supply.reserved_bytes() == 0
    }

    /// Whether the open frame has room for so many bytes.
    #[inline]
    pub(crate) fn has_open_room(&self, bytes: usize) -> bool {
        let open = self.open.frame();
        open.is_some_and(|open| bytes <= open.body_bytes_max - open.body_bytes)
    }

    /// As [`Log::append`] of a record of one part with this body, for which the open frame has
    /// room. The key is none of the store's own.
    #[inline(always)]
    pub(crate) fn append_direct(
        &mut self,
        now_us: u64,
        record: &RecordSpec<'_>,
        body: DirectBody<'_>,
    ) -> (Lsn, Place) {
        let (segment, open) = self.open.both_mut();
        let bytes = body.part_bytes();
        let at = FRAME_HEADER_BYTES + open.body_bytes;
        record.encode_direct(body, &mut open.block.bytes_mut()[at..at + bytes]);
        self.sealing
            .record_begins(open.record_count, now_us + self.config.interval_us);
        open.body_bytes += bytes;
        open.record_count += 1;
        open.has_commits = true;
        let offset = segment.end_offset + at as u64;
        let (epoch, sequence) = (record.epoch, record.sequence);
        segment
            .summary
            .note(record.slot, epoch, sequence, offset, false);
        let partition = partition_of(record.slot);
        self.history.note(partition, Version { epoch, sequence });
        self.history.reached.note(partition, sequence);
        let place = Place::new(segment.file, offset, bytes);
        self.clock.use_at(now_us);
        self.clock.raise(record.time_ms);
        self.account.add_record(bytes as u64);
        (self.sealing.append(), place)
    }
}
