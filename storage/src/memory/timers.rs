//! When armed keys expire, in the order of time: who fires asks for the next ones, without a look
//! at any other key.
//!
//! A timer names slot and hash of a key and no more, and it may be out of date: the key may be
//! gone, not armed any more, or have another expiry. So its key is looked up first.
//! A change of a key in memory takes its timer along. What is out of date comes from a snapshot,
//! from a replay, or from a key that shares its hash, and leaves at its time.
//!
//! The timers are a B-tree, whose nodes come and go one by one. A wheel with slots of time would
//! find the next one as fast, but would not be walked in order beside changes, as a snapshot does.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::types::key_home::KeyHome;

/// Bytes of memory that a timer takes at most, its share of half-filled nodes included.
pub const TIMER_BYTES: usize = 32;

/// An armed key may expire then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer {
    /// In unix milliseconds.
    pub expiry_ms: u64,
    /// The slot of the key.
    pub slot: u16,
    /// The hash of the key.
    pub hash: u32,
}

impl Timer {
    /// Where the index finds the key.
    #[must_use]
    pub fn home(&self) -> KeyHome {
        KeyHome::new(self.slot, self.hash)
    }
}

/// A timer in twelve bytes, in the order of timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Packed([u32; 3]);

impl From<Timer> for Packed {
    fn from(timer: Timer) -> Self {
        let [a, b, c, d, e, f, ..] = timer.expiry_ms.to_le_bytes();
        let [slot_low, slot_high] = timer.slot.to_le_bytes();
        Packed([
            u32::from_le_bytes([c, d, e, f]),
            u32::from_le_bytes([slot_low, slot_high, a, b]),
            timer.hash,
        ])
    }
}

impl From<Packed> for Timer {
    fn from(Packed([high, middle, hash]): Packed) -> Self {
        let ([c, d, e, f], [slot_low, slot_high, a, b]) =
            (high.to_le_bytes(), middle.to_le_bytes());
        Timer {
            expiry_ms: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
            slot: u16::from_le_bytes([slot_low, slot_high]),
            hash,
        }
    }
}

/// The timers of a shard.
#[derive(Debug, Default)]
pub struct Timers {
    all: BTreeSet<Packed>,
}

impl Timers {
    /// Adds a timer, once.
    pub(crate) fn insert(&mut self, timer: Timer) {
        self.all.insert(timer.into());
    }

    /// Takes a timer out, if it is there.
    pub(crate) fn remove(&mut self, timer: Timer) {
        self.all.remove(&timer.into());
    }

    /// The first timer behind this one, or the first of all.
    #[must_use]
    pub fn next_behind(&self, timer: Option<Timer>) -> Option<Timer> {
        let behind = match timer {
            Some(timer) => Bound::Excluded(Packed::from(timer)),
            None => Bound::Unbounded,
        };
        let mut range = self.all.range((behind, Bound::Unbounded));
        range.next().map(|&packed| packed.into())
    }

    /// When the first key may expire.
    #[inline]
    #[must_use]
    pub fn earliest_ms(&self) -> Option<u64> {
        let first = self.all.first().copied()?;
        Some(Timer::from(first).expiry_ms)
    }

    /// Visits the timers behind one, or from the first on, so many of them. Returns the last one
    /// unless none stands behind it.
    pub(crate) fn walk(
        &self,
        behind: Option<Timer>,
        entries: usize,
        visit: &mut impl FnMut(Timer),
    ) -> Option<Timer> {
        let behind = match behind {
            Some(timer) => Bound::Excluded(Packed::from(timer)),
            None => Bound::Unbounded,
        };
        let mut range = self.all.range((behind, Bound::Unbounded));
        let mut last = None;
        for _ in 0..entries.max(1) {
            let timer = Timer::from(*range.next()?);
            visit(timer);
            last = Some(timer);
        }
        last
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Bytes of memory, at most.
    #[inline]
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.all.len() * TIMER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::EXPIRY_MS_MAX;

    fn timer(expiry_ms: u64, slot: u16, hash: u32) -> Timer {
        Timer {
            expiry_ms,
            slot,
            hash,
        }
    }

    #[test]
    fn timers_come_in_the_order_of_time_slot_and_hash_whatever_their_bits() {
        let mut sorted = Vec::new();
        for expiry_ms in [
            1,
            255,
            256,
            65_535,
            65_536,
            1 << 32,
            EXPIRY_MS_MAX - 1,
            EXPIRY_MS_MAX,
        ] {
            for slot in [0, 1, 255, 256, 16_383] {
                sorted.extend([0, 1, 1 << 31, u32::MAX].map(|hash| timer(expiry_ms, slot, hash)));
            }
        }
        let mut timers = Timers::default();
        for &timer in sorted.iter().rev() {
            timers.insert(timer);
            timers.insert(timer);
        }
        assert_eq!(timers.len(), sorted.len());
        assert_eq!(timers.earliest_ms(), Some(1));
        let mut found = Vec::new();
        let mut last = None;
        while let Some(next) = timers.next_behind(last) {
            found.push(next);
            last = Some(next);
        }
        assert_eq!(found, sorted);
        for entries in [1, 3, sorted.len(), sorted.len() + 1] {
            let (mut walked, mut from) = (Vec::new(), None);
            loop {
                from = timers.walk(from, entries, &mut |timer| walked.push(timer));
                if from.is_none() {
                    break;
                }
            }
            assert_eq!(walked, sorted, "{entries} at a time");
        }
        sorted.iter().for_each(|&timer| timers.remove(timer));
        assert!(timers.is_empty() && timers.earliest_ms().is_none());
    }
}
