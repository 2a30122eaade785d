//! The keys that have left the index lately: what a guard asks that a key was missing all the time.
//!
//! A key in the index has the version of its last change, also as a deletion that is not durable
//! and as a value that has expired. A key that has left the index has none, so whoever found it
//! missing cannot see that it came and went. The last keys that left are kept here, a bounded
//! number of them, with the version that each had. Of those that are no longer kept, the greatest
//! sequence of each partition is known.
//!
//! What must hold: [`Removals::may_have_changed`] never says no of a key with a later change. It
//! may say yes of one without.

use crate::types::version::{PARTITIONS, Sequences, partition_of};

/// Keys that are kept. A power of two.
const KEPT: usize = 8192;

/// A key that has left the index.
#[derive(Clone, Copy, Debug, Default)]
struct Removed {
    /// Of its last change.
    sequence: u64,
    /// The number of the key before it with the same head; 0 for none.
    before: u64,
    hash: u32,
    slot: u16,
}

/// The last keys that have left the index since this began.
#[derive(Debug)]
pub(crate) struct Removals {
    /// Number n stands at n modulo [`KEPT`].
    removed: Box<[Removed]>,
    /// The newest number of the keys whose hashes have the same low bits; 0 for none.
    heads: Box<[u64]>,
    /// How many have left. They are numbered from 1.
    count: u64,
    /// Keys that are not kept have no change behind these.
    floors: Box<Sequences>,
}

impl Removals {
    /// No key is kept; the newest changes are these.
    pub(crate) fn begin(newest: &Sequences) -> Self {
        Removals {
            removed: vec![Removed::default(); KEPT].into(),
            heads: vec![0; KEPT].into(),
            count: 0,
            floors: Box::new(*newest),
        }
    }

    /// A key of this slot and hash leaves the index, whose last change has this sequence.
    pub(crate) fn leaves(&mut self, slot: u16, hash: u32, sequence: u64) {
        let sequence = self.unlink(slot, hash).max(sequence);
        self.count += 1;
        let place = place_of(self.count);
        if self.count > KEPT as u64 {
            let dropped = self.removed[place];
            let floor = &mut self.floors[partition_of(dropped.slot)];
            *floor = dropped.sequence.max(*floor);
        }
        let head = &mut self.heads[head_of(hash)];
        self.removed[place] = Removed {
            sequence,
            before: std::mem::replace(head, self.count),
            hash,
            slot,
        };
    }

    /// The changes of a partition go on after this sequence in a new epoch, and nobody asks for
    /// changes since one of an epoch before. Sequences of that epoch may be later than this one,
    /// and are no changes of the new one.
    pub(crate) fn restart(&mut self, partition: usize, sequence: u64) {
        self.floors[partition] = sequence;
        for removed in &mut self.removed {
            if partition_of(removed.slot) == partition {
                removed.sequence = 0;
            }
        }
    }

    /// All keys of a partition leave the index with the change that has this sequence.
    pub(crate) fn fall(&mut self, partition: usize, sequence: u64) {
        self.floors[partition] = sequence.max(self.floors[partition]);
    }

    /// Whether a key of this slot and hash, which is not in the index, may have a change with a
    /// later sequence than this one.
    pub(crate) fn may_have_changed(&self, slot: u16, hash: u32, since: u64) -> bool {
        if since < self.floors[partition_of(slot)] {
            return true;
        }
        let mut number = self.heads[head_of(hash)];
        while self.is_kept(number) {
            let removed = &self.removed[place_of(number)];
            if (removed.slot, removed.hash) == (slot, hash) {
                return removed.sequence > since;
            }
            number = removed.before;
        }
        false
    }

    /// Bytes of memory.
    pub(crate) const fn memory_bytes() -> usize {
        KEPT * (size_of::<Removed>() + size_of::<u64>()) + PARTITIONS * size_of::<u64>()
    }

    /// Forgets the key of this slot and hash that left before, and tells its sequence; 0 of none.
    /// So a key that comes and goes all the time takes one place.
    fn unlink(&mut self, slot: u16, hash: u32) -> u64 {
        let (mut number, mut behind) = (self.heads[head_of(hash)], None);
        while self.is_kept(number) {
            let removed = &mut self.removed[place_of(number)];
            let before = removed.before;
            if (removed.slot, removed.hash) == (slot, hash) {
                let sequence = std::mem::take(&mut removed.sequence);
                match behind {
                    Some(behind) => self.removed[place_of(behind)].before = before,
                    None => self.heads[head_of(hash)] = before,
                }
                return sequence;
            }
            (number, behind) = (before, Some(number));
        }
        0
    }

    /// Whether the key with this number is kept. Numbers of one head fall, so a walk along them
    /// ends.
    fn is_kept(&self, number: u64) -> bool {
        number > 0 && number + KEPT as u64 > self.count
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the low bits are what is asked for"
)]
fn place_of(number: u64) -> usize {
    number as usize % KEPT
}

fn head_of(hash: u32) -> usize {
    // The lowest bit is the same for all keys of clients.
    (hash >> 1) as usize % KEPT
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// A sequence of numbers that look random.
    fn random(state: &mut u64) -> u64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        *state >> 33
    }

    #[test]
    fn a_later_change_is_never_missed_and_none_is_made_up_of_the_keys_that_are_kept() {
        for seed in 0..8_u64 {
            let (mut state, mut sequences) = (seed, [0; PARTITIONS]);
            let mut removals = Removals::begin(&sequences);
            let mut model: HashMap<(u16, u32), (u64, u64)> = HashMap::new();
            let mut asked = [0_u64; 2];
            for number in 0..40_000_u64 {
                // Few slots, and hashes of which many have one head.
                let slot = u16::try_from(random(&mut state) % 200).unwrap();
                let hash = u32::try_from(random(&mut state) % 40 * 2 * 4096).unwrap();
                let sequence = &mut sequences[partition_of(slot)];
                *sequence += 1;
                removals.leaves(slot, hash, *sequence);
                model.insert((slot, hash), (*sequence, number));
                let (slot, hash) = match random(&mut state).is_multiple_of(4) {
                    true => (slot, 1 << 20),
                    false => {
                        let nth = usize::try_from(random(&mut state)).unwrap() % model.len();
                        *model.keys().nth(nth.min(50)).unwrap()
                    }
                };
                let newest = sequences[partition_of(slot)];
                let since = newest.saturating_sub(random(&mut state) % 400);
                let answer = removals.may_have_changed(slot, hash, since);
                let known = model.get(&(slot, hash));
                let has_changed = known.is_some_and(|(sequence, _)| *sequence > since);
                assert!(answer || !has_changed, "seed {seed}: a change is missed");
                // Of the partition nothing was dropped that is later.
                let is_kept = since >= removals.floors[partition_of(slot)];
                if is_kept {
                    assert_eq!(answer, has_changed, "seed {seed}: slot {slot} hash {hash}");
                }
                asked[usize::from(has_changed)] += u64::from(is_kept);
            }
            assert!(asked.iter().all(|asked| *asked > 1_000), "{asked:?}");
        }
    }

    #[test]
    fn a_key_that_comes_and_goes_all_the_time_takes_one_place_and_pushes_out_none_newer() {
        let mut removals = Removals::begin(&[0; PARTITIONS]);
        removals.leaves(0, 2, 1);
        for sequence in 2..=KEPT as u64 {
            removals.leaves(0, 4, sequence);
        }
        assert!(removals.may_have_changed(0, 2, 0));
        assert!(!removals.may_have_changed(0, 2, 1));
        assert!(!removals.may_have_changed(0, 4, KEPT as u64));
        removals.leaves(0, 4, KEPT as u64 + 1);
        assert!(!removals.may_have_changed(0, 4, KEPT as u64 + 1));
        assert!(removals.may_have_changed(0, 4, KEPT as u64));
        assert!(
            !removals.may_have_changed(0, 2, 1),
            "what was dropped is older"
        );
        assert!(removals.may_have_changed(0, 2, 0));
    }

    #[test]
    fn what_left_before_it_began_may_have_changed() {
        let mut newest = [0; PARTITIONS];
        newest[1] = 7;
        let removals = Removals::begin(&newest);
        assert!(removals.may_have_changed(64, 2, 6));
        assert!(!removals.may_have_changed(64, 2, 7));
        assert!(!removals.may_have_changed(0, 2, 0));
    }

    #[test]
    fn sequences_of_an_epoch_before_are_no_changes_of_the_new_one() {
        let mut removals = Removals::begin(&[0; PARTITIONS]);
        // The first keys of both partitions are dropped, whose floors rise.
        for sequence in 1..=KEPT as u64 {
            let hash = u32::try_from(sequence * 2).unwrap();
            removals.leaves(0, hash, sequence);
            removals.leaves(64, hash, sequence);
        }
        let last = u32::try_from(KEPT * 2).unwrap();
        assert!(removals.may_have_changed(0, 1 << 20, 50), "it was dropped");
        assert!(removals.may_have_changed(0, last, 50));
        removals.restart(0, 50);
        assert!(!removals.may_have_changed(0, 1 << 20, 50), "dropped before");
        assert!(!removals.may_have_changed(0, last, 50), "kept from before");
        assert!(removals.may_have_changed(0, last, 49));
        assert!(removals.may_have_changed(64, last, 50), "of another");
        // What leaves in the new epoch counts.
        removals.leaves(0, last, 51);
        assert!(removals.may_have_changed(0, last, 50));
        assert!(!removals.may_have_changed(0, last, 51));
        assert!(!removals.may_have_changed(0, 4, 51));
    }

    #[test]
    fn its_memory_is_what_it_says() {
        let removals = Removals::begin(&[0; PARTITIONS]);
        let bytes = size_of_val(&*removals.removed)
            + size_of_val(&*removals.heads)
            + size_of_val(&*removals.floors);
        assert_eq!(bytes, Removals::memory_bytes());
    }
}
