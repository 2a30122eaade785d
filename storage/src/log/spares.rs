//! Room for records: spare segments, and what is said when no more can be had.

use crate::format::contents::SEGMENTS_MAX;
use crate::format::frame::{FRAME_HEADER_BYTES, padded_bytes};
use crate::format::segment::SEGMENT_BYTES_MAX;
use crate::log::config::SEGMENT_TAIL_BYTES;
use crate::log::growth::Growth;
use crate::log::log::CONTENTS_ENTRY_BYTES;
use crate::log::log::Log;
use crate::log::room::Purpose;
use crate::log::room::Room;
use crate::log::supply::Spare;
use crate::types::io::{BLOCK_BYTES, Blocks};
use crate::types::packed_place::FILES_MAX;
use crate::types::place::FileId;

/// Segments that may be reserved at a time, at most: as many as there are beside the last spare.
const SPARES_TO_RESERVE: u64 = 2;

impl<P: Blocks> Log<P> {
    /// Whether a record of `bytes`, at most `record_bytes_max`, can be appended now; opens a frame
    /// or a segment if need be. The answer holds until anything else is asked of the log.
    #[inline]
    pub fn room(&mut self, purpose: Purpose, bytes: usize) -> Room {
        if self
            .supply
            .is_kept_back(purpose, self.open.segment().is_some())
            || self.is_end_kept(purpose, bytes)
            || self.is_reserved(purpose, bytes)
        {
            return self.no_room(purpose);
        }
        match self.open.frame() {
            Some(open) if bytes <= open.body_bytes_max - open.body_bytes => Room::Yes,
            _ => self.make_room(purpose, bytes),
        }
    }

    /// Whether a record of this purpose would take the end of the open segment from deletions and
    /// edits.
    #[inline]
    fn is_end_kept(&self, purpose: Purpose, bytes: usize) -> bool {
        if purpose != Purpose::Grow || !self.supply.keeps_end() {
            return false;
        }
        self.open_segment().is_some_and(|(_, segment_bytes)| {
            let needed = self.supply.end_bytes(segment_bytes) + bytes as u64;
            self.open_segment_bytes_left() < needed
        })
    }

    /// Whether a record of this purpose would take what is reserved.
    #[inline]
    fn is_reserved(&self, purpose: Purpose, bytes: usize) -> bool {
        let reserved_bytes = self.supply.reserved_bytes();
        reserved_bytes > 0
            && matches!(purpose, Purpose::Grow | Purpose::Keep)
            && self.appendable_bytes() < reserved_bytes + (bytes + BLOCK_BYTES) as u64
    }

    /// Bytes that can be appended before another segment comes, the last spare left out.
    fn appendable_bytes(&self) -> u64 {
        let spares = self.supply.bytes().rev().skip(1);
        self.open_segment_bytes_left() + spares.sum::<u64>()
    }

    /// Keeps room for so many `records` of so many `bytes` together, the longest of which has
    /// `longest_bytes`: no record of another purpose than [`Purpose::Owed`] and cleaning takes it.
    /// They are for `purpose`. What was reserved is given back by [`Log::unreserve`].
    pub fn reserve(
        &mut self,
        purpose: Purpose,
        (bytes, records): (usize, usize),
        longest_bytes: usize,
    ) -> Room {
        // Nothing is noted of a lack: a record would still find room.
        let lack = match self.supply.is_refused() && !self.is_room_coming() {
            true => Room::Full,
            false => Room::Wait,
        };
        if purpose == Purpose::Grow && self.supply.is_full() {
            return Room::Full;
        }
        if padded_bytes(longest_bytes) > self.config.frame_bytes && self.supply.has_short() {
            if self.is_low() {
                return lack;
            }
            self.leave_short_segments();
        }
        let needed = reserved_bytes(bytes, records);
        let segment_bytes = self.longest_segment_bytes();
        if segment_bytes > 0 && needed > SPARES_TO_RESERVE * segment_bytes {
            return Room::Full;
        }
        let has_segment = self.open.segment().is_some();
        if self.supply.is_kept_back(purpose, has_segment)
            || self.is_end_kept(purpose, bytes)
            || self.appendable_bytes() < self.supply.reserved_bytes() + needed
        {
            return lack;
        }
        self.supply.reserve(needed);
        Room::Yes
    }

    /// Gives back what was kept for so many records of so many bytes.
    pub fn unreserve(&mut self, bytes: usize, records: usize) {
        self.supply.unreserve(reserved_bytes(bytes, records));
    }

    /// What to say to a record of this purpose when there is no room.
    pub(super) fn no_room(&mut self, purpose: Purpose) -> Room {
        let is_room_coming = self.is_room_coming();
        self.supply.no_room(purpose, is_room_coming)
    }

    /// Whether a segment comes back by itself: cleaning gives one, or has given one that is on its
    /// way.
    pub(crate) fn is_room_coming(&self) -> bool {
        // A release is told in what is left of the segment, or in the next one.
        let can_announce = self.is_releasing() && (self.fits_contents() || !self.supply.is_empty());
        self.supply.relief_comes() || can_announce || self.is_segment_returning()
    }

    /// Whether a segment was given back, or a spare came, and what comes behind it is not told yet.
    pub(crate) fn is_segment_returning(&self) -> bool {
        // What comes back to a log with all its spares is for nobody.
        let comes_back = self.releases.is_room_returning() || self.writes.has_release();
        comes_back && self.lacks_spares()
    }

    /// Begins with short segments that grow with the log up to `most_bytes`. Asked for before the
    /// first one is used.
    pub fn grow_segments(&mut self, most_bytes: u64) {
        assert!(self.open.segment().is_none(), "before anything is appended");
        let segments = self.history.segments.iter();
        let longest_bytes = segments.map(|it| it.file_bytes).max().unwrap_or(0);
        let whole_bytes = self
            .config
            .segment_bytes_min()
            .next_multiple_of(BLOCK_BYTES as u64);
        let first_bytes = self.config.segment_bytes_first();
        self.supply.grow(Growth::new(
            first_bytes,
            whole_bytes,
            most_bytes,
            longest_bytes,
        ));
    }

    /// Bytes of the spares that are wanted: `usual_bytes`, if the log does not begin with short
    /// ones.
    #[must_use]
    pub fn spare_bytes_wanted(&self, usual_bytes: u64) -> u64 {
        self.supply.bytes_wanted(usual_bytes)
    }

    /// Spare segments that somebody should prepare now.
    #[must_use]
    pub fn spares_wanted(&self) -> usize {
        let has_sealed = !self.history.segments.is_empty();
        self.supply
            .wanted(self.open.segment().is_some(), has_sealed)
    }

    /// Whether a segment could be begun at once.
    #[must_use]
    pub fn has_spares(&self) -> bool {
        !self.supply.is_empty()
    }

    /// A zero-written file is ready; its length `bytes` is [`LogConfig::segment_bytes_min`] to
    /// [`SEGMENT_BYTES_MAX`], its `salt` was never used before.
    ///
    /// [`LogConfig::segment_bytes_min`]: crate::log::LogConfig::segment_bytes_min
    pub fn add_spare(&mut self, file: FileId, salt: u64, bytes: u64) {
        self.add(file, salt, bytes, false);
    }

    /// Likewise, but a file that served before, with a [`SpareHeader`] of this `salt` in its first
    /// and its last block.
    ///
    /// [`SpareHeader`]: crate::format::spare::SpareHeader
    pub fn add_reused_spare(&mut self, file: FileId, salt: u64, bytes: u64) {
        self.add(file, salt, bytes, true);
    }

    pub(super) fn add(&mut self, file: FileId, salt: u64, bytes: u64, is_reused: bool) {
        assert!(
            (1..FILES_MAX).contains(&file.0),
            "file number {} is not 1 to {}",
            file.0,
            FILES_MAX - 1
        );
        let least_bytes = match self.supply.begins_short() {
            true => self
                .config
                .segment_bytes_first()
                .min(self.config.segment_bytes_min()),
            false => self.config.segment_bytes_min(),
        };
        assert!(
            (least_bytes..=SEGMENT_BYTES_MAX).contains(&bytes),
            "a segment of {bytes} bytes"
        );
        let spare = Spare {
            file,
            salt,
            bytes,
            is_reused,
        };
        match self.supply.add(spare) {
            true => self.releases.answer_comes(),
            false => self.releases.allow([file]),
        }
        if !self.lacks_spares() {
            self.supply.completed();
            self.releases.room_settled();
        }
    }

    /// No spare can be had for lack of space. To be said behind the last file that was removed:
    /// whoever makes spares has seen that one go.
    pub fn spare_refused(&mut self) {
        self.supply.refuse();
        self.releases.room_settled();
    }

    /// A file of [`Log::take_removable`] has not gone yet: another answer comes behind it.
    pub fn removal_goes_on(&mut self) {
        self.releases.answer_comes();
    }

    /// Bytes of copies that the log can surely take before a spare comes: in the open segment or,
    /// if that is more, in the last spare. The padding of frames and the frame that reports the
    /// release are left out.
    #[must_use]
    pub fn sure_bytes(&self) -> u64 {
        let list = padded_bytes(self.history.body_bytes() + CONTENTS_ENTRY_BYTES) as u64;
        let open = self.open_segment_bytes_left().saturating_sub(list);
        self.copies_within(open).max(self.sure_bytes_of_spare())
    }

    /// The same of the next spare alone.
    #[must_use]
    pub fn sure_bytes_of_spare(&self) -> u64 {
        let list = padded_bytes(self.history.body_bytes() + CONTENTS_ENTRY_BYTES) as u64;
        let taken = BLOCK_BYTES as u64 + SEGMENT_TAIL_BYTES + 2 * list;
        let spare = self.supply.next_bytes().unwrap_or(0);
        self.copies_within(spare.saturating_sub(taken))
    }

    /// Bytes of copies that so much room takes: a part that does not fit any more leaves the rest
    /// of its frame empty.
    fn copies_within(&self, bytes: u64) -> u64 {
        if self.config.frame_bytes >= 64 << 10 {
            bytes / 8 * 7
        } else {
            bytes / 2
        }
    }

    /// Seals the open segment before it is full, so that it can be cleaned, even if that takes the
    /// last spare. Whether that was done.
    pub fn seal_for_cleaning(&mut self) -> bool {
        let may = !self.supply.is_empty()
            && self.open.segment().is_some()
            && self.phase.takes_records()
            && self.writes.len() < self.config.frames_sealed_max;
        if may {
            self.seal_open();
        }
        may && self.rotate() == Room::Yes
    }

    /// Whether fewer spares are there than should be.
    #[must_use]
    pub fn lacks_spares(&self) -> bool {
        self.spares_wanted() > 0
    }

    /// Whether a spare was asked for that has neither come nor been refused.
    #[must_use]
    pub fn awaits_spare(&self) -> bool {
        self.lacks_spares() && !self.supply.is_refused()
    }

    /// How many segments the log may have, so that a list of them fills at most a quarter of one,
    /// and at most half of what the smallest ones have for frames: cleaning needs the rest for its
    /// copies, and every segment that it begins begins with the list.
    #[must_use]
    pub fn segments_max(&self) -> usize {
        let next = self.supply.next_bytes();
        let Some(spare_bytes) = next.filter(|_| self.history.has_released) else {
            return SEGMENTS_MAX;
        };
        let fixed = self.history.body_bytes() - self.history.segments.len() * CONTENTS_ENTRY_BYTES;
        let frames_bytes = spare_bytes - BLOCK_BYTES as u64 - SEGMENT_TAIL_BYTES;
        let list_bytes = (spare_bytes / 4).min(frames_bytes / 2);
        let list_bytes = usize::try_from(list_bytes).unwrap_or(usize::MAX);
        (list_bytes.saturating_sub(FRAME_HEADER_BYTES + fixed) / CONTENTS_ENTRY_BYTES)
            .min(SEGMENTS_MAX)
    }

    /// Whether the log has as many segments as it may have but for those that cleaning needs to
    /// make fewer of them.
    #[must_use]
    pub fn has_most_segments(&self) -> bool {
        let most = self.segments_max();
        self.history.segments.len() >= most - most / 8
    }

    /// Whether cleaning has something to do or to release, so that room comes back by itself.
    pub fn expect_relief(&mut self, relief_comes: bool) {
        self.supply.expect_relief(relief_comes);
    }

    /// Whether no more segments can be had beside those that are there, or soon. A release is told
    /// at once then, so that the file is back before it is needed.
    pub(crate) fn set_tight(&mut self, is_tight: bool) {
        self.supply.set_tight(is_tight);
    }

    /// Whether a write waits for [`Log::set_full`]: it found no room, or nobody judged since a
    /// spare was refused.
    pub(crate) fn wants_judgement(&self) -> bool {
        self.supply.wants_judgement()
    }

    /// Whether what grows the store found no room since this was asked last, and nothing came.
    pub(crate) fn take_stuck(&mut self) -> bool {
        self.supply.take_stuck()
    }

    /// Whether what grows the store is to be refused from now on while spares are lacking.
    pub(crate) fn set_full(&mut self, is_full: bool) {
        self.supply.set_full(is_full);
    }

    /// Whether what grows the store is refused: too much of the log counts for what it may take of
    /// the disk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.supply.is_full()
    }

    /// Bytes that can be appended before another segment comes, the last spare left out, and what
    /// is left to deletions and edits.
    pub(crate) fn headroom_bytes(&self) -> u64 {
        let spares = self.supply.bytes().rev().skip(1);
        let open = self.open_segment();
        let end_bytes = open.map_or(0, |(_, bytes)| self.supply.end_bytes(bytes));
        self.open_segment_bytes_left().saturating_sub(end_bytes) + spares.sum::<u64>()
    }

    /// Bytes of the longest among the last sealed segment, the open one and the spares.
    pub(crate) fn longest_segment_bytes(&self) -> u64 {
        let sealed = self
            .sealed_segments()
            .iter()
            .next_back()
            .map(|it| it.file_bytes);
        let open = self.open_segment().map(|(_, bytes)| bytes);
        let spares = self.supply.bytes();
        spares.chain(sealed).chain(open).max().unwrap_or(0)
    }

    /// Bytes of the segments that it has when it is large.
    pub(crate) fn usual_segment_bytes(&self) -> u64 {
        let longest_bytes = self.longest_segment_bytes();
        let most_bytes = self.supply.most_bytes();
        most_bytes.map_or(longest_bytes, |most_bytes| most_bytes.max(longest_bytes))
    }

    /// The files of the sealed segments and the open one, and their lengths.
    pub(crate) fn used_segments(&self) -> impl Iterator<Item = (FileId, u64)> {
        let sealed = self.sealed_segments().iter();
        let sealed = sealed.map(|it| (it.file, it.file_bytes));
        sealed.chain(self.open_segment())
    }

    /// Bytes of the sealed segments and the open one.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_segments().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes of all segments that it has, spares included.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes_within(u64::MAX)
    }

    /// The same, of each segment so many at most.
    pub(crate) fn held_bytes_within(&self, most_bytes: u64) -> u64 {
        let used = self.used_segments().map(|(_, bytes)| bytes);
        let all = used.chain(self.supply.bytes());
        all.map(|bytes| bytes.min(most_bytes)).sum()
    }

    /// Bytes of the longest spare, if there is one.
    pub(crate) fn longest_spare_bytes(&self) -> Option<u64> {
        self.supply.bytes().max()
    }

    /// Whether what grows the store is refused, or found no room and none comes.
    pub(crate) fn lacks_room(&self) -> bool {
        self.supply.is_full() || self.supply.is_stuck()
    }

    /// Whether a deletion or an edit found no room since the last call, and none was coming.
    pub(crate) fn take_lack(&mut self) -> bool {
        self.supply.take_lack()
    }

    /// How often a spare was refused.
    pub(crate) fn spare_refusals(&self) -> u64 {
        self.supply.refusals()
    }

    /// So many more segments can surely be made for it as things are.
    pub(crate) fn set_segments_left(&mut self, segments_left: u64) {
        self.supply.set_segments_left(segments_left);
    }

    /// Whether deletions and edits that find no room are refused from now on, or wait.
    pub(crate) fn refuse_edits(&mut self, refuses_edits: bool) {
        self.supply.refuse_edits(refuses_edits);
    }

    /// Whether no more spares can be had and the last ones are kept back.
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.supply.is_low()
    }

    /// Whether it has no spare at all, none of the usual length can be had, and none comes back by
    /// itself: even a short one, of [`LogConfig::segment_bytes_min`], helps then: the frame that
    /// reports a release fits. What counts in longer segments has no room in it, so none is taken
    /// before.
    ///
    /// [`LogConfig::segment_bytes_min`]: crate::log::LogConfig::segment_bytes_min
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.lacks_any_spare() && !self.is_room_coming()
    }

    /// Whether it has no spare at all, and none of the usual length can be had.
    #[must_use]
    pub fn lacks_any_spare(&self) -> bool {
        self.supply.lacks_any()
    }
}

/// What is kept for so many records of so many bytes: each may stand in a frame of its own, and a
/// frame that does not fit leaves the end of its segment empty.
fn reserved_bytes(bytes: usize, records: usize) -> u64 {
    (padded_bytes(2 * bytes) + (records + 1) * BLOCK_BYTES) as u64
}
