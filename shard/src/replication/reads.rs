//! Reads of the log that are under way for links, and places whose reads fail again and again.

use std::collections::BTreeMap;
use std::fmt;

use penstock_storage::io::{Asker, Blocks, Io, IoToken};
use penstock_storage::place::FileId;
use penstock_storage::place::Place;
use penstock_storage::store::Store;

/// Reads of a place that may fail before people are told and the next one waits.
const READS_MAX: u32 = 3;

/// The first pause before another read of such a place, and the longest one: each is twice as long
/// as the one before.
const PAUSE_US_MIN: u64 = 1_000;
const PAUSE_US_MAX: u64 = 1_000_000;

/// People are told again after so many reads more.
const REPORTED_AGAIN_READS: u32 = 64;

/// Nobody has asked for a place for so long behind its pause: the next read is a first one.
const FORGET_US: u64 = 60_000_000;

/// Places that are known to fail, at most.
const PLACES_MAX: usize = 1_024;

/// Reads under way, also those that nobody waits for any more: a file stays while it is read.
///
/// A read that fails is tried again, because its partition does not go on without it, and other
/// bytes may come. Whoever reads for links asks here, so one rule paces them all: three reads
/// follow each other, and each further one waits for a pause that grows to a second.
#[derive(Debug)]
pub struct LinkReads {
    next_token: u64,
    files: BTreeMap<u64, FileId>,
    now_us: u64,
    unread: BTreeMap<(FileId, u64), Tries>,
}

/// A place that links have tried to read again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The file.
    pub file: FileId,
    /// Where.
    pub offset: u64,
    /// Reads that failed, or did not bring what stands there.
    pub tries: u32,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unread {
            file,
            offset,
            tries,
        } = self;
        write!(
            f,
            "{:08}.seg cannot be read at offset {offset}: tried {tries} times, and tried again at \
             least each second",
            file.0
        )
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    count: u32,
    /// No read begins before.
    again_us: u64,
}

impl Default for LinkReads {
    fn default() -> Self {
        LinkReads {
            next_token: 1,
            files: BTreeMap::new(),
            now_us: 0,
            unread: BTreeMap::new(),
        }
    }
}

impl LinkReads {
    /// A turn begins.
    pub fn begin_turn(&mut self, now_us: u64) {
        self.now_us = now_us;
    }

    /// Begins the aligned read of a place: its token and how many bytes it brings; `None` if no
    /// memory is free for it now, or the place is paused.
    pub fn begin<P: Blocks>(
        &mut self,
        store: &mut Store<P>,
        place: Place,
        io: &mut Vec<Io<P::Block>>,
    ) -> Option<(u64, u32)> {
        if self.is_paused(place) {
            return None;
        }
        let token = self.next_token;
        let request = store.read(IoToken::new(Asker::Link, token), place)?;
        let Io::Read { len, .. } = request else {
            unreachable!("a store reads");
        };
        io.push(request);
        self.files.insert(token, place.file);
        self.next_token += 1;
        Some((token, len))
    }

    /// A read has ended.
    pub fn ended(&mut self, token: u64) {
        self.files.remove(&token);
    }

    /// Whether a file is read.
    #[must_use]
    pub fn is_reading(&self, file: FileId) -> bool {
        self.files.values().any(|&read| read == file)
    }

    // ---- reads that fail ----

    /// A read failed, or did not bring what stands there. What people are to be told of it, if it
    /// is time.
    pub fn failed(&mut self, file: FileId, offset: u64) -> Option<Unread> {
        let now_us = self.now_us;
        let is_known = self.unread.contains_key(&(file, offset));
        if !is_known && self.unread.len() >= PLACES_MAX {
            self.unread.pop_first();
        }
        self.unread
            .retain(|_, tries| now_us < tries.again_us + FORGET_US);
        let tries = self.unread.entry((file, offset)).or_default();
        tries.count = tries.count.saturating_add(1);
        let pauses = tries.count.checked_sub(READS_MAX);
        let pause_us = pauses.map_or(0, |pauses| {
            // Beyond ten doublings the longest one is passed.
            (PAUSE_US_MIN << pauses.min(10)).min(PAUSE_US_MAX)
        });
        tries.again_us = now_us + pause_us;
        let tries = tries.count;
        let is_reported = pauses.is_some_and(|pauses| pauses.is_multiple_of(REPORTED_AGAIN_READS));
        is_reported.then_some(Unread {
            file,
            offset,
            tries,
        })
    }

    /// A read brought what stands there.
    pub fn succeeded(&mut self, file: FileId, offset: u64) {
        if !self.unread.is_empty() {
            self.unread.remove(&(file, offset));
        }
    }

    /// Whether the next read of a place waits.
    #[must_use]
    pub fn is_paused(&self, place: Place) -> bool {
        let tries = self.unread.get(&(place.file, place.offset));
        tries.is_some_and(|tries| self.now_us < tries.again_us)
    }

    /// How often a place was read in vain, if that was too often.
    #[must_use]
    pub fn unread(&self, file: FileId, offset: u64) -> Option<Unread> {
        let tries = self.unread.get(&(file, offset))?.count;
        (tries >= READS_MAX).then_some(Unread {
            file,
            offset,
            tries,
        })
    }

    /// When the first pause ends.
    #[must_use]
    pub fn again_us(&self) -> Option<u64> {
        let pauses = self.unread.values().map(|tries| tries.again_us);
        pauses.filter(|&again_us| again_us > self.now_us).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_fail_wait_longer_and_longer_and_are_reported_seldom() {
        let mut reads = LinkReads::default();
        let place = Place::new(FileId(7), 4096, 512);
        let mut now_us = 5;
        let mut pauses = Vec::new();
        let mut tries = Vec::new();
        for _ in 0..3 + REPORTED_AGAIN_READS {
            reads.begin_turn(now_us);
            assert!(!reads.is_paused(place));
            tries.extend(reads.failed(place.file, place.offset).map(|it| it.tries));
            let again_us = reads.again_us();
            assert_eq!(reads.is_paused(place), again_us.is_some());
            pauses.push(again_us.map_or(0, |again_us| again_us - now_us));
            now_us = again_us.unwrap_or(now_us);
        }
        assert_eq!(pauses[..5], [0, 0, 1_000, 2_000, 4_000]);
        assert_eq!(pauses[20..].iter().min(), Some(&PAUSE_US_MAX));
        assert_eq!(pauses.iter().max(), Some(&PAUSE_US_MAX));
        assert_eq!(tries, [3, 3 + REPORTED_AGAIN_READS]);
        reads.succeeded(place.file, place.offset);
        assert!(!reads.is_paused(place) && reads.again_us().is_none());
        assert_eq!(reads.unread(place.file, place.offset), None);
    }

    #[test]
    fn places_that_fail_are_bounded_and_forgotten() {
        let mut reads = LinkReads::default();
        for offset in 0..2 * PLACES_MAX as u64 {
            reads.failed(FileId(1), offset);
        }
        assert_eq!(reads.unread.len(), PLACES_MAX);
        reads.begin_turn(PAUSE_US_MAX + FORGET_US);
        reads.failed(FileId(2), 0);
        assert_eq!(reads.unread.len(), 1);
        // Nobody waits for a pause that nobody asks behind.
        assert_eq!(reads.again_us(), None);
    }
}
