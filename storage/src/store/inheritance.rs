//! What a store takes over from logs of an earlier generation, laid out for another number of
//! shards.
//!
//! Every shard of the new generation replays all inherited logs and keeps the parts of its own
//! slots. Then cleaning goes through their segments once, in their order, and appends what its
//! index points to again in the shard's own log. When nothing of this shard points there any more
//! and all that took its place is durable, the shard has taken over. Inherited logs vanish all at
//! once, when all shards have: so no older part stands behind a deletion that is left out, and in
//! the own log no segment is the oldest before that.

use crate::format::contents::{History, SealedSegment};
use crate::format::frame::FrameHome;
use crate::store::cleaning::cleaner::Victim;
use crate::types::place::{FileId, Lsn};

/// Times that a segment is tried that cannot be read or does not check.
const TRIES: u32 = 3;

/// One log of an earlier generation.
#[derive(Clone, Debug)]
pub struct InheritedLog {
    /// Its number.
    pub log_id: u64,
    /// What it holds.
    pub history: History,
    /// The newest time that it carries, in unix milliseconds.
    pub time_ms: u64,
}

/// How far a store has come with what it inherited.
#[derive(Debug, Default)]
pub struct Inheritance {
    pub(super) segments: Vec<Inherited>,
    /// The segment that is judged next.
    pub(super) next: usize,
    /// Where in it.
    offset: u64,
    failures: u32,
    /// The last record when all was judged: what took the place of inherited parts is not behind
    /// it.
    pub(super) judged_at: Option<Lsn>,
}

/// A segment of an inherited log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inherited {
    pub(crate) segment: SealedSegment,
    pub(crate) home: FrameHome,
}

impl Inheritance {
    pub(super) fn of(logs: &[InheritedLog]) -> Self {
        let segments = logs.iter().flat_map(|log| {
            log.history.segments.iter().map(|&segment| Inherited {
                segment,
                home: FrameHome {
                    log_id: log.log_id,
                    segment_sequence: segment.end.sequence,
                    salt: segment.salt,
                },
            })
        });
        Inheritance {
            segments: segments.collect(),
            ..Inheritance::default()
        }
    }

    /// Whether inherited logs are there.
    #[inline]
    #[must_use]
    pub fn is_there(&self) -> bool {
        !self.segments.is_empty()
    }

    /// Bytes of inherited segments that are still to be gone through.
    #[must_use]
    pub fn bytes_left(&self) -> u64 {
        let left = self.segments.get(self.next..).unwrap_or_default();
        left.iter().map(|left| left.segment.file_bytes).sum()
    }

    /// The segments of inherited logs, each with the number of its log.
    pub fn segments(&self) -> impl Iterator<Item = (u64, &SealedSegment)> {
        let segments = self.segments.iter();
        segments.map(|inherited| (inherited.home.log_id, &inherited.segment))
    }

    /// The files of inherited logs.
    pub fn files(&self) -> impl Iterator<Item = FileId> {
        self.segments().map(|(_, segment)| segment.file)
    }

    /// The segment to be judged next and the frame from which on.
    pub(crate) fn next(&self) -> Option<(Inherited, u64)> {
        let next = self.segments.get(self.next)?;
        (self.failures < TRIES).then_some((*next, self.offset))
    }

    /// Goes on with this frame another time. A segment that was judged to its end and still counts
    /// is judged anew.
    pub(crate) fn put_back<B>(&mut self, victim: &Victim<B>) {
        let is_over = victim.offset >= victim.end_offset();
        self.offset = if is_over { 0 } else { victim.offset };
    }

    /// Its segment cannot be read, or what was read does not check. Whether that was tried often
    /// enough.
    pub(crate) fn failed(&mut self) -> bool {
        self.failures += 1;
        self.failures >= TRIES
    }

    /// The segment was judged to its end.
    pub(crate) fn passed(&mut self) {
        (self.next, self.offset) = (self.next + 1, 0);
        self.failures = 0;
    }

    pub(super) fn is_judged(&self) -> bool {
        self.next == self.segments.len()
    }
}
