//! The segment files of a shard: asked for, told of when there are none, given back.

use std::sync::Arc;

use penstock_shard::{Now, SpareFailure};
use penstock_storage::cleaning::{Fill, RoomOnDisk};
use penstock_storage::io::Blocks;
use penstock_storage::place::FileId;
use penstock_storage::store::Store;

use super::fill_notice::FillNotice;
use crate::directory::Segments;
use crate::directory::room_share::RoomShare;
use crate::directory::spares::{SpareHandle, SpareOutcome};

/// How long after it was told that no segment can be made ready it is not told again.
const LACK_REPORT_US: u64 = 60_000_000;

/// How long after a measurement of the fill the next one is due: so many microseconds, and more for
/// each segment, whose bytes it sums up.
const FILL_US: u64 = 1_000_000;
const FILL_US_PER_SEGMENT: u64 = 40;

/// How long after a shard was told what its log may have of the disk it is told again.
const ROOM_US: u64 = 100_000;

/// The first segments are short if an earlier run left no spares: the first writes wait until they
/// are full of zeros. A write needs a spare behind the segment that it goes to, so there are two.
const FIRST_SEGMENTS: u8 = 2;
const FIRST_SEGMENT_BYTES: u64 = 4 << 20;

/// Takes what became of a request for a segment file, on the thread that makes them.
pub(crate) type DeliverSpare = Arc<dyn Fn(SpareOutcome) + Send + Sync>;

/// Where a shard has its segment files from.
pub(crate) struct SegmentSupply {
    pub(super) segments: Segments,
    spares: SpareHandle,
    deliver: DeliverSpare,
    segment_bytes: u64,
    short_bytes: u64,
    room: RoomShare,
    room_due_us: u64,
    /// Files that were given back.
    released: u64,
    /// 0 in both while the room is not known.
    fill: Fill,
    fill_due_us: u64,
    fill_notice: FillNotice,
    /// Segments to ask for yet that are to be ready soon rather than long; unknown before the first
    /// is.
    first_segments: Option<u8>,
    is_lack_reported: bool,
    /// What was told last is that what grows is answered FULL before a segment was refused.
    is_full_reported: bool,
    lack_report_due_us: u64,
}

impl SegmentSupply {
    /// A supply of segments of `segment_bytes`, and of `short_bytes` where there is no more room.
    pub(crate) fn new(
        segments: Segments,
        spares: SpareHandle,
        deliver: DeliverSpare,
        (segment_bytes, short_bytes): (u64, u64),
    ) -> Self {
        let room = spares.room_share();
        SegmentSupply {
            segments,
            spares,
            deliver,
            segment_bytes,
            short_bytes,
            room,
            room_due_us: 0,
            released: 0,
            fill: Fill::default(),
            fill_due_us: 0,
            fill_notice: FillNotice::default(),
            first_segments: None,
            is_lack_reported: false,
            is_full_reported: false,
            lack_report_due_us: 0,
        }
    }

    /// Asks for one more; `bytes_wanted` is what the log makes of the usual length.
    pub(super) fn request(&mut self, has_spares: bool, bytes_wanted: impl Fn(u64) -> u64) {
        let left = self.first_segments.get_or_insert(match has_spares {
            true => 0,
            false => FIRST_SEGMENTS,
        });
        let bytes = match *left {
            0 => self.segment_bytes,
            _ => FIRST_SEGMENT_BYTES
                .max(self.short_bytes)
                .min(self.segment_bytes),
        };
        *left = left.saturating_sub(1);
        let bytes = bytes_wanted(bytes);
        let deliver = Arc::clone(&self.deliver);
        self.spares.request(
            bytes,
            self.short_bytes.min(bytes),
            Box::new(move |outcome| deliver(outcome)),
        );
    }

    /// What the log may have of the disk as it is now, if it is time to say so.
    pub(super) fn room_news<P: Blocks>(
        &mut self,
        now: Now,
        store: &Store<P>,
    ) -> Option<RoomOnDisk> {
        if now.us < self.room_due_us {
            return None;
        }
        let log = store.log();
        // The first measurement is told before the first spare is used.
        let log_bytes = self.room.log_bytes(log.held_bytes())?;
        self.room_due_us = now.us + ROOM_US;
        Some(RoomOnDisk {
            log_bytes,
            segment_bytes: log.spare_bytes_wanted(self.segment_bytes),
        })
    }

    /// How near the log was to FULL when that was measured last.
    pub(super) fn fill(&self) -> Fill {
        self.fill
    }

    /// Measures how near the log is to FULL, if that is due. What people should know of that before
    /// what grows is refused.
    pub(super) fn fill_news<P: Blocks>(&mut self, now: Now, store: &Store<P>) -> Option<String> {
        if now.us < self.fill_due_us {
            return None;
        }
        let segments = store.log().sealed_segments().len() as u64;
        self.fill_due_us = now.us + FILL_US + FILL_US_PER_SEGMENT * segments;
        let log_bytes = self.room.log_bytes(store.log().held_bytes());
        // Inherited logs take room that is free when they are gone. How long segments are is not
        // known before there is one.
        let is_known = store.log().held_bytes() > 0 && !store.cleaning().inheritance().is_there();
        let log_bytes = log_bytes.filter(|_| is_known);
        self.fill = log_bytes.map_or_else(Fill::default, |bytes| store.fill(bytes));
        let percent = self.fill_notice.due(self.fill)?;
        Some(format!(
            "{percent} % of what the disk carries counts: {} MiB of records, and from {} MiB on \
             what grows may be answered FULL; delete some, or make room (disk_bytes_max, the file \
             system)",
            self.fill.counting_bytes >> 20,
            self.fill.counting_bytes_max >> 20
        ))
    }

    /// What people should know when what grows is answered FULL before a segment is refused, and
    /// when that ends. As [`SegmentSupply::news`], and at most as often.
    pub(super) fn full_news(
        &mut self,
        now: Now,
        is_full: bool,
        carried: impl Fn() -> String,
    ) -> Option<String> {
        if is_full && !self.is_lack_reported && now.us >= self.lack_report_due_us {
            (self.is_lack_reported, self.is_full_reported) = (true, true);
            self.lack_report_due_us = now.us + LACK_REPORT_US;
            return Some(format!(
                "what grows is answered FULL: the disk or disk_bytes_max is used up but for what \
                 deletions and edits need{}",
                carried()
            ));
        }
        let ends = !is_full && self.is_full_reported;
        ends.then(|| {
            (self.is_lack_reported, self.is_full_reported) = (false, false);
            "what grows is taken again".into()
        })
    }

    /// Gives a file back.
    pub(super) fn release(&mut self, file: FileId) {
        self.released += 1;
        self.spares.release(file);
    }

    /// Whether another answer comes behind this refusal: a file that the shard has given back had
    /// not arrived by then.
    pub(super) fn is_overtaken(&self, outcome: &SpareOutcome) -> bool {
        matches!(outcome, SpareOutcome::Refused { released, .. } if *released < self.released)
    }

    /// The shard has taken over what it inherited.
    pub(super) fn taken_over(&self) {
        let deliver = Arc::clone(&self.deliver);
        self.spares
            .taken_over(Box::new(move |outcome| deliver(outcome)));
    }

    /// Whether the log waits for a segment.
    pub(super) fn set_starved(&self, is_starved: bool) {
        self.spares.set_starved(is_starved);
    }

    /// What people should know of an outcome. The helper tries again each second and tells each
    /// time, they are told of changes, and at most once in a minute. A store that is cleaned at its
    /// bound lacks one again and again. `carried` is what the shard's share of the disk carries.
    pub(super) fn news(
        &mut self,
        now: Now,
        outcome: &SpareOutcome,
        is_full: bool,
        carried: impl Fn() -> String,
    ) -> Option<String> {
        // While cleaning gives back what is written a segment is refused now and then, and nothing
        // else is.
        let lack = match outcome {
            SpareOutcome::Failed { failure, error } => {
                let mend = match failure {
                    SpareFailure::NoDescriptor => {
                        "; close connections, or raise LimitNOFILE (ulimit -n)"
                    }
                    SpareFailure::System => "",
                };
                Some(format!("no segment can be made ready: {error}{mend}"))
            }
            SpareOutcome::Refused { free_bytes, .. } if is_full => Some(format!(
                "no segment can be made ready, and what grows is answered FULL: the disk or \
                 disk_bytes_max is used up ({free_bytes} bytes of the disk are free){}",
                carried()
            )),
            _ => None,
        };
        let is_due = match lack {
            Some(_) => now.us >= self.lack_report_due_us,
            None => !is_full,
        };
        (lack.is_some() != self.is_lack_reported && is_due).then(|| {
            self.is_lack_reported = lack.is_some();
            self.is_full_reported =
                matches!(outcome, SpareOutcome::Refused { .. }) && lack.is_some();
            self.lack_report_due_us = now.us + LACK_REPORT_US;
            lack.unwrap_or_else(|| "what grows is taken again".into())
        })
    }
}
