//! Records that follow the last one of the open frame and differ from it in little: each is made
//! from the bytes of the one before.
//!
//! Each has its own log position and its own bytes. What only the newest one decides is noted once
//! for all of them, before anything else is asked of the log.

use crate::format::frame::FRAME_HEADER_BYTES;
use crate::format::next_part::encode_next;
use crate::format::record::read_u32;
use crate::log::log::Log;
use crate::log::room::Purpose;
use crate::planted::{self, Bug};
use crate::types::io::{Block, Blocks};
use crate::types::place::{Lsn, Place};
use crate::types::version::{Version, partition_of};
use std::ops::Range;

/// Records of one part each, as long as the last one of the open frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeats {
    /// Bytes of each.
    part_bytes: usize,
    /// Where the value stands in each.
    value_at: usize,
    /// How many were appended.
    records: u64,
}

impl Repeats {
    /// How many were appended.
    #[inline]
    pub(crate) fn records(&self) -> u64 {
        self.records
    }
}

impl<P: Blocks> Log<P> {
    /// The part at the end of the open frame, if it stands at `place` and records that let the
    /// store hold no more may follow it.
    pub(crate) fn last_part(&self, place: Place) -> Option<&[u8]> {
        let (open, segment) = (self.open.frame()?, self.open.segment()?);
        let body_offset = segment.end_offset + FRAME_HEADER_BYTES as u64;
        let start = place.offset.checked_sub(body_offset)?;
        let start = usize::try_from(start).expect("a segment has at most 1 GiB");
        if place.file != segment.file || self.supply.is_kept_back(Purpose::Keep, true) {
            return None;
        }
        let body = &open.block.bytes()[FRAME_HEADER_BYTES..][..open.body_bytes];
        let part = body.get(start..).filter(|part| !part.is_empty())?;
        (read_u32(part) as usize == part.len()).then_some(part)
    }

    /// Records that follow the last one, of one part of so many bytes whose value stands at
    /// `value_at`.
    pub(crate) fn repeats(&self, part_bytes: usize, value_at: usize) -> Repeats {
        Repeats {
            part_bytes,
            value_at,
            records: 0,
        }
    }

    /// Appends the next one of such records. It has this sequence, and in the `fields` of its value
    /// what `value` has there. `None` if the open frame has no room for it.
    #[inline]
    pub(crate) fn append_next(
        &mut self,
        repeats: &mut Repeats,
        sequence: u64,
        value: &[u8],
        fields: impl Iterator<Item = Range<usize>>,
    ) -> Option<Lsn> {
        let len = repeats.part_bytes;
        let open = self.open.frame_mut();
        let open = open.expect("the last record stands in it");
        if len > open.body_bytes_max - open.body_bytes {
            return None;
        }
        let from = FRAME_HEADER_BYTES + open.body_bytes - len;
        let parts = &mut open.block.bytes_mut()[from..from + 2 * len];
        encode_next(parts, sequence, repeats.value_at, value, fields);
        open.body_bytes += len;
        let counted = planted::or(Bug::RunOneLsn, u32::from(repeats.records != 1), 1);
        open.record_count += counted;
        repeats.records += 1;
        Some(self.sealing.append(counted))
    }

    /// Ends a run of such records: notes what they changed in `slot` and the version of the last
    /// one. Returns the place of the last record.
    pub(crate) fn end_repeats(
        &mut self,
        now_us: u64,
        repeats: &Repeats,
        slot: u16,
        version: Version,
    ) -> Place {
        let (segment, open) = self.open.both_mut();
        let end = segment.end_offset + (FRAME_HEADER_BYTES + open.body_bytes) as u64;
        let offset = end - repeats.part_bytes as u64;
        let (epoch, sequence) = (version.epoch, version.sequence);
        segment.summary.note(slot, epoch, sequence, offset, false);
        let partition = partition_of(slot);
        self.history.note(partition, version);
        self.history.reached.note(partition, sequence);
        self.clock.use_at(now_us);
        let bytes = repeats.records * repeats.part_bytes as u64;
        self.account.add_commits(repeats.records, bytes);
        Place::new(segment.file, offset, repeats.part_bytes)
    }
}
