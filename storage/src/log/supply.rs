//! The supply of segments of one log: its spares, and what the log says when no more can be had.
//!
//! The last spare belongs to cleaning: it needs at most one segment before it gives one back, and
//! room in it to tell so. Without that spare the log would be stuck for good.

use std::collections::VecDeque;

use crate::log::growth::Growth;
use crate::log::room::{Purpose, Room};
use crate::planted::{Bug, is_planted};
use crate::types::place::FileId;

/// A file that can become the next segment.
pub(super) struct Spare {
    pub(super) file: FileId,
    pub(super) salt: u64,
    pub(super) bytes: u64,
    pub(super) is_reused: bool,
}

/// Spare segments that are to be ready: two ahead, and one that only cleaning takes.
pub const SPARES_READY: usize = 3;
/// With fewer spares nothing but cleaning goes on in a new segment.
const SPARES_TO_ROTATE: usize = 2;

/// So many more segments have room where the log does as on a large disk: other logs may take some
/// of them before the room is told again.
const SEGMENTS_FAR: u64 = 2 * SPARES_READY as u64;

/// The share of a segment that is its end: what only deletions, edits and cleaning take.
const END_SHARE: u64 = 4;

/// Spare segments, and what is refused while they are lacking.
pub(super) struct Supply {
    spares: VecDeque<Spare>,
    is_refused: bool,
    /// How many more segments can surely be made. Where nobody says, any number can until one is
    /// refused.
    segments_left: u64,
    /// How often a spare was refused.
    refusals: u64,
    /// How long new segments are, if they begin short.
    growth: Option<Growth>,
    /// The last spare is left to cleaning.
    keeps_reserve: bool,
    /// Cleaning can still give segments back.
    relief_comes: bool,
    /// Whether what grows the store is refused, and whether that was judged since a spare was
    /// refused.
    is_full: bool,
    is_judged: bool,
    /// No more segments can be had beside those that are there, or soon: releases are told at once.
    is_tight: bool,
    /// What grows the store found no room since that was judged, and nothing came.
    is_stuck: bool,
    /// What takes no more room than before found none since it was last asked.
    has_lack: bool,
    /// Such is refused.
    refuses_edits: bool,
    /// Bytes that are kept for [`Purpose::Owed`].
    reserved_bytes: u64,
}

impl Supply {
    /// No spare yet; the last one is left to cleaning, if anything cleans.
    pub(super) fn new(keeps_reserve: bool) -> Self {
        Supply {
            spares: VecDeque::new(),
            is_refused: false,
            segments_left: u64::MAX,
            refusals: 0,
            growth: None,
            keeps_reserve,
            relief_comes: false,
            is_full: false,
            is_judged: false,
            is_tight: false,
            is_stuck: false,
            has_lack: false,
            refuses_edits: false,
            reserved_bytes: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spares.is_empty()
    }

    /// Whether the last spare is left to cleaning.
    pub(super) fn keeps_reserve(&self) -> bool {
        self.keeps_reserve
    }

    /// Whether cleaning can still give segments back.
    pub(super) fn relief_comes(&self) -> bool {
        self.relief_comes
    }

    /// Bytes of the next spare, if there is one.
    pub(super) fn next_bytes(&self) -> Option<u64> {
        self.spares.front().map(|spare| spare.bytes)
    }

    /// Bytes of each spare, the next one first.
    pub(super) fn bytes(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.spares.iter().map(|spare| spare.bytes)
    }

    /// Whether what is left of the log is kept back from a record of this purpose.
    pub(super) fn is_kept_back(&self, purpose: Purpose, has_segment: bool) -> bool {
        let is_needed = self.spares.is_empty() && has_segment;
        match purpose {
            Purpose::Clean | Purpose::Relieve | Purpose::Owed => false,
            _ if is_planted(Bug::NoReserve) || !self.keeps_reserve => false,
            Purpose::Keep => is_needed,
            Purpose::Grow => is_needed || self.is_full || (self.is_low() && !self.is_judged),
        }
    }

    /// Whether the end of the open segment is left to deletions and edits: they have no other room
    /// while only cleaning may take the last spare. Unless the room is far from used up, nobody
    /// knows whether another one comes before it is there.
    pub(super) fn keeps_end(&self) -> bool {
        let lacks_second = self.spares.len() < SPARES_TO_ROTATE && !self.has_far_room();
        self.keeps_reserve && lacks_second && !is_planted(Bug::NoReserve)
    }

    /// Whether all spares that are wanted come for certain.
    fn has_far_room(&self) -> bool {
        !self.is_refused && self.segments_left >= SEGMENTS_FAR
    }

    /// So many more segments can be made now.
    pub(super) fn set_segments_left(&mut self, segments_left: u64) {
        self.segments_left = segments_left;
    }

    /// Bytes at the end of an open segment of so many that what grows leaves to others.
    pub(super) fn end_bytes(&self, segment_bytes: u64) -> u64 {
        match self.keeps_end() {
            true => segment_bytes / END_SHARE,
            false => 0,
        }
    }

    /// Whether a record of this purpose may take the next spare into use.
    pub(super) fn has_for(&self, purpose: Purpose, has_segment: bool) -> bool {
        let needed = match purpose {
            Purpose::Clean | Purpose::Relieve | Purpose::Owed => 1,
            _ if !self.keeps_reserve => 1,
            _ if !has_segment && self.has_far_room() => 1,
            _ if is_planted(Bug::NoReserve) => 1,
            Purpose::Keep | Purpose::Grow => SPARES_TO_ROTATE,
        };
        self.spares.len() >= needed
    }

    /// What to say when there is no room: wait while room may come. What would grow is refused at
    /// once when the log is full; what makes room, or takes none, when cleaning cannot help either.
    pub(super) fn no_room(&mut self, purpose: Purpose, is_room_coming: bool) -> Room {
        match purpose {
            Purpose::Grow if self.is_full() => Room::Full,
            _ if !self.is_refused => Room::Wait,
            // Nobody cleans a log that keeps no reserve.
            Purpose::Grow if !self.keeps_reserve => Room::Full,
            Purpose::Grow => {
                self.is_stuck |= self.is_judged && !is_room_coming;
                Room::Wait
            }
            Purpose::Keep | Purpose::Relieve if is_room_coming => Room::Wait,
            Purpose::Keep | Purpose::Relieve => {
                self.has_lack = true;
                match self.refuses_edits {
                    true => Room::Full,
                    false => Room::Wait,
                }
            }
            Purpose::Clean | Purpose::Owed => Room::Wait,
        }
    }

    /// New segments begin short.
    pub(super) fn grow(&mut self, growth: Growth) {
        self.growth = Some(growth);
    }

    /// Whether new segments begin short.
    pub(super) fn begins_short(&self) -> bool {
        self.growth.is_some()
    }

    /// Whether spares may be too short for the longest record.
    pub(super) fn has_short(&self) -> bool {
        self.growth.as_ref().is_some_and(|it| !it.is_whole())
    }

    /// Has all spares from now on be long enough for the longest record. Returns the files that are
    /// not.
    pub(super) fn leave_short(&mut self) -> impl Iterator<Item = FileId> + use<> {
        let mut short = VecDeque::new();
        if let Some(growth) = &mut self.growth {
            growth.needs_whole();
            let spares = std::mem::take(&mut self.spares).into_iter();
            (self.spares, short) = spares.partition(|spare| growth.takes(spare.bytes));
        }
        short.into_iter().map(|spare| spare.file)
    }

    /// Bytes of the spares that are wanted: `usual_bytes`, if the log does not begin with short
    /// ones.
    pub(super) fn bytes_wanted(&self, usual_bytes: u64) -> u64 {
        let growth = self.growth.as_ref();
        growth.map_or(usual_bytes, |growth| growth.next_bytes().min(usual_bytes))
    }

    /// Bytes of the segments that a large log has, if it begins with short ones.
    pub(super) fn most_bytes(&self) -> Option<u64> {
        self.growth.as_ref().map(Growth::most_bytes)
    }

    /// Spares that are wanted now by a log with or without an open segment and sealed ones.
    pub(super) fn wanted(&self, has_segment: bool, has_sealed: bool) -> usize {
        let is_new = self.growth.is_some() && !has_sealed;
        // The first one before the others: another log may have none yet.
        match !has_segment && self.spares.is_empty() {
            true => 1,
            // Nothing can be cleaned yet.
            false if is_new => (SPARES_READY - 1).saturating_sub(self.spares.len()),
            false => SPARES_READY.saturating_sub(self.spares.len()),
        }
    }

    /// Bytes that are kept for what is decided.
    #[inline]
    pub(super) fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    pub(super) fn reserve(&mut self, bytes: u64) {
        self.reserved_bytes += bytes;
    }

    pub(super) fn unreserve(&mut self, bytes: u64) {
        self.reserved_bytes -= bytes;
    }

    /// Takes a spare in. `false` if it is too short: it was asked for before a long record came.
    pub(super) fn add(&mut self, spare: Spare) -> bool {
        let growth = self.growth.as_ref();
        if growth.is_some_and(|growth| !growth.takes(spare.bytes)) {
            return false;
        }
        self.spares.push_back(spare);
        self.segments_left = self.segments_left.saturating_sub(1);
        true
    }

    /// Gives the next spare out.
    pub(super) fn take(&mut self) -> Option<Spare> {
        self.spares.pop_front()
    }

    /// A segment was begun behind sealed ones of so many bytes.
    pub(super) fn begins(&mut self, now_us: u64, held_bytes: impl Iterator<Item = u64>) {
        if let Some(growth) = &mut self.growth {
            growth.begins(now_us, held_bytes.sum());
        }
    }

    /// All spares that are wanted are there.
    pub(super) fn completed(&mut self) {
        self.is_refused = false;
    }

    /// No spare can be had for lack of space.
    pub(super) fn refuse(&mut self) {
        self.is_judged &= self.is_low();
        self.is_refused = true;
        self.refusals += 1;
    }

    /// How often a spare was refused.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Whether no more spares could be had when one was asked for last.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Whether no more spares can be had and the last ones are kept back.
    pub(super) fn is_low(&self) -> bool {
        self.is_refused && self.spares.len() < SPARES_READY
    }

    /// Whether there is no spare at all and none can be had.
    pub(super) fn lacks_any(&self) -> bool {
        self.is_refused && self.spares.is_empty()
    }

    /// Whether a release is told at once, so that the file is back before it is needed.
    pub(super) fn hurries_release(&self) -> bool {
        self.is_low() || self.is_tight
    }

    pub(super) fn expect_relief(&mut self, relief_comes: bool) {
        self.relief_comes = relief_comes;
    }

    pub(super) fn set_tight(&mut self, is_tight: bool) {
        self.is_tight = is_tight;
    }

    pub(super) fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
        self.is_judged = true;
    }

    /// Whether what grows the store is refused.
    pub(super) fn is_full(&self) -> bool {
        self.is_full && self.keeps_reserve
    }

    /// Whether a write waits for [`Supply::set_full`].
    pub(super) fn wants_judgement(&self) -> bool {
        self.is_stuck || !self.is_judged
    }

    /// Whether what grows the store found no room since that was judged, and nothing came.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    pub(super) fn take_stuck(&mut self) -> bool {
        std::mem::take(&mut self.is_stuck)
    }

    pub(super) fn take_lack(&mut self) -> bool {
        std::mem::take(&mut self.has_lack)
    }

    /// Whether what takes no more room than before and finds none is refused from now on, or waits.
    pub(super) fn refuse_edits(&mut self, refuses_edits: bool) {
        self.refuses_edits = refuses_edits;
    }
}
