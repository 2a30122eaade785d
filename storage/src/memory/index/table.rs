//! Where each key of a shard lives: in a cell of the value cache, or at a place in the log.
//!
//! Keys are not kept here. An entry matches a key if slot and hash agree *and* the key that stands
//! in the cache cell, or in the part on disk, is the same; the caller does that second comparison,
//! because for a cold entry it needs a read.
//!
//! An entry takes 12 bytes, and the entries of a slot stand in the order of their hashes, so that a
//! walk over all keys can stop anywhere and go on there. A slot has one group of entries; beyond
//! `GROUP_ENTRIES` it is split, one group at a time, by linear hashing over the first bits of the
//! hash. Within a group the probing is linear and without wrap: the home of a hash grows with the
//! hash, entries are sorted, and a probe ends at the first empty or greater one. A group that is
//! full to nine tenths is laid out anew an eighth larger, so no insertion moves more than the
//! entries of two groups, however many keys there are.

use crate::format::record::FEW_PARTS_MAX;
use crate::memory::index::entry::Candidate;
use crate::memory::index::entry::CellId;
use crate::memory::index::entry::Entry;
use crate::memory::index::entry::Home;
use crate::memory::index::entry::Position;
use crate::memory::index::entry::is_token_hash;
use crate::memory::index::fallen::Fallen;
use crate::memory::index::groups::Group;
use crate::memory::index::groups::Slot;
use crate::types::key_home::KeyHome;
use crate::types::packed_place::PackedPlace;
use crate::types::version::{PARTITIONS, SLOTS, partition_of};

/// The index of one shard.
#[derive(Debug)]
pub struct Index {
    pub(super) slots: Box<[Slot]>,
    pub(super) used: usize,
    /// How many of them are tokens.
    pub(super) tokens: usize,
    /// The same of each partition, from the first token on.
    pub(super) tokens_of: Option<Box<[u32; PARTITIONS]>>,
    /// Entries of partitions that were flushed and are not cleared. No look-up finds them, but for
    /// tokens.
    pub(super) fallen: Option<Box<Fallen>>,
    /// Slots in which two keys have had the same hash since they were empty. Nearly none.
    pub(super) crowded: Box<[u64; SLOTS as usize / 64]>,
    pub(super) heap_bytes: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

impl Index {
    /// An index without keys.
    #[must_use]
    pub fn new() -> Self {
        Index {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            used: 0,
            tokens: 0,
            tokens_of: None,
            fallen: None,
            crowded: Box::new([0; SLOTS as usize / 64]),
            heap_bytes: 0,
        }
    }

    /// Keys in the index, tokens included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.used - self.fallen.as_ref().map_or(0, |fallen| fallen.keys)
    }

    /// Tokens in the index.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Whether no key is in the index.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that the index takes, unused room included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let mut fixed_bytes = size_of_val(&*self.slots) + size_of_val(&*self.crowded);
        if self.tokens_of.is_some() {
            fixed_bytes += size_of::<[u32; PARTITIONS]>();
        }
        if let Some(fallen) = &self.fallen {
            fixed_bytes += size_of_val(&*fallen.slots);
        }
        size_of::<Self>() + fixed_bytes + self.heap_bytes
    }

    /// The entries of `slot` whose hash is `hash`.
    #[inline]
    pub fn candidates(&self, slot: u16, hash: u32) -> Candidates<'_> {
        let fallen = match &self.fallen {
            Some(fallen) if is_token_hash(hash) => Some(&fallen.slots[usize::from(slot)]),
            _ => None,
        };
        Candidates::of(&self.slots[usize::from(slot)], fallen, slot, hash)
    }

    /// The entries of `slot` whose hash is `hash` that a flush has taken away.
    fn fallen_candidates(&self, slot: u16, hash: u32) -> impl Iterator<Item = Candidate> {
        let tables = self.fallen.iter();
        tables.flat_map(move |fallen| {
            let table = &fallen.slots[usize::from(slot)];
            let mut all = Candidates::of(table, None, slot, hash);
            all.has_fallen = true;
            all
        })
    }

    /// The cell of the one key that has this slot and hash. `None` if there are more keys, or none,
    /// or the key has no cell.
    #[inline(always)]
    #[must_use]
    pub(crate) fn only_cell(&self, slot: u16, hash: u32) -> Option<CellId> {
        let (_, group, local) = self.slots[usize::from(slot)].group_of(hash);
        let at = group.first_not_less(hash, local);
        let entry = group.entries.get(at)?;
        let is_crowded = group
            .entries
            .get(at + 1)
            .is_some_and(|next| next.hash == hash && !next.is_empty());
        match entry.word {
            [cell, 0] if entry.hash == hash && !is_crowded => cell.checked_sub(1).map(CellId),
            _ => None,
        }
    }

    /// Whether several keys have this slot and hash.
    #[inline]
    #[must_use]
    pub fn is_crowded(&self, slot: u16, hash: u32) -> bool {
        self.has_crowded(slot) && self.is_crowded_now(slot, hash)
            || self.fallen.is_some() && self.candidates(slot, hash).nth(1).is_some()
    }

    /// Whether two keys of a slot may have the same hash.
    #[inline]
    fn has_crowded(&self, slot: u16) -> bool {
        self.crowded[usize::from(slot) / 64] >> (slot % 64) & 1 == 1
    }

    fn is_crowded_now(&self, slot: u16, hash: u32) -> bool {
        let (_, group, local) = self.slots[usize::from(slot)].group_of(hash);
        // Entries of one hash stand side by side.
        let second = group.entries.get(group.first_not_less(hash, local) + 1);
        second.is_some_and(|entry| entry.hash == hash && !entry.is_empty())
    }

    /// The cell that a key with this hash is most likely in: a hint that looks at one entry only.
    #[inline]
    #[must_use]
    pub fn likely_cell(&self, slot: u16, hash: u32) -> Option<CellId> {
        let (_, group, local) = self.slots[usize::from(slot)].group_of(hash);
        let entry = group.entries.get(group.home(local))?;
        match entry.word {
            [cell, 0] if entry.hash == hash => cell.checked_sub(1).map(CellId),
            _ => None,
        }
    }

    /// Loads the entry at the home of a hash. What it gives means nothing.
    #[inline]
    #[must_use]
    pub(crate) fn load(&self, slot: u16, hash: u32) -> u32 {
        let (_, group, local) = self.slots[usize::from(slot)].group_of(hash);
        let entry = group.entries.get(group.home(local));
        entry.map_or(0, |entry| entry.hash)
    }

    /// Whether a key with this hash finds room without growth, as far as the number of keys goes.
    #[must_use]
    pub fn has_free_entry(&self, slot: u16, hash: u32) -> bool {
        let (_, group, _) = self.slots[usize::from(slot)].group_of(hash);
        !group.is_full()
    }

    /// Whether new keys with these hashes find room without growth, all of them together.
    #[must_use]
    pub(crate) fn has_free_entries(&self, slot: u16, hashes: &[u32]) -> bool {
        let groups = &self.slots[usize::from(slot)];
        if hashes.len() > FEW_PARTS_MAX {
            // In the order of their groups: nothing is compared with all others.
            let mut hashes = hashes.to_vec();
            hashes.sort_unstable_by_key(|&hash| groups.group_of(hash).0);
            let mut of_groups =
                hashes.chunk_by(|a, b| groups.group_of(*a).0 == groups.group_of(*b).0);
            return of_groups.all(|all| {
                groups
                    .group_of(all[0])
                    .1
                    .has_room_for(all.iter().map(|_| 1).sum())
            });
        }
        hashes.iter().all(|&hash| {
            let (number, group, _) = groups.group_of(hash);
            let in_group = hashes.iter().filter(|&&it| groups.group_of(it).0 == number);
            group.has_room_for(in_group.map(|_| 1).sum())
        })
    }

    /// Adds an entry for a key that has no entry, known to be in `cell`.
    pub fn insert(&mut self, slot: u16, hash: u32, cell: CellId) {
        self.insert_entry(slot, Entry::cached(hash, cell));
    }

    /// Adds an entry for a key that has no entry and is on disk only.
    pub fn insert_cold(&mut self, slot: u16, hash: u32, place: PackedPlace) {
        assert!(place != PackedPlace::default(), "a cold key has a place");
        self.insert_entry(slot, Entry::new(hash, place.bits()));
    }

    /// Adds entries of one slot for keys that have no entry and are on disk only, given in the
    /// order of their hashes. An empty slot is laid out at once, which takes a tenth of the time of
    /// as many insertions.
    ///
    /// # Panics
    /// If the entries are not in order.
    pub fn insert_sorted(&mut self, slot: u16, sorted: impl Iterator<Item = (u32, PackedPlace)>) {
        let entries: Vec<Entry> = sorted
            .map(|(hash, place)| {
                assert!(place != PackedPlace::default(), "a cold key has a place");
                Entry::new(hash, place.bits())
            })
            .collect();
        assert!(entries.is_sorted_by_key(|entry| entry.hash), "not sorted");
        let table = &mut self.slots[usize::from(slot)];
        if table.heap_bytes() == 0 {
            *table = Slot::laid_out(&entries);
            self.heap_bytes += table.heap_bytes();
            self.used += entries.len();
            let tokens = entries.iter().filter(|entry| is_token_hash(entry.hash));
            let tokens = tokens.count();
            if tokens > 0 {
                self.counts_tokens(slot, u32::try_from(tokens).expect("of one slot"));
            }
            if entries.windows(2).any(|two| two[0].hash == two[1].hash) {
                self.becomes_crowded(slot);
            }
        } else {
            entries
                .into_iter()
                .for_each(|entry| self.insert_entry(slot, entry));
        }
    }

    /// The position of the entry of `cell`, whose key has this slot and hash. The entry must exist.
    #[inline]
    #[must_use]
    pub fn position_of(&self, slot: u16, hash: u32, cell: CellId) -> Position {
        let is_it = |candidate: &Candidate| candidate.home == Home::Memory(cell);
        self.candidates(slot, hash)
            .find(is_it)
            .or_else(|| self.fallen_candidates(slot, hash).find(is_it))
            .expect("every cached key has an index entry")
            .position
    }

    /// Records that the key has come into memory.
    pub fn set_cell(&mut self, position: Position, cell: CellId) {
        let entry = self.entry_mut(position);
        *entry = Entry::cached(entry.hash, cell);
    }

    /// Records that the key is on disk only and its newest part at `place`: it has left memory, or
    /// the part has another place now.
    pub fn set_cold(&mut self, position: Position, place: PackedPlace) {
        assert!(
            place != PackedPlace::default(),
            "a key that is neither logged nor cached would be lost"
        );
        let entry = self.entry_mut(position);
        *entry = Entry::new(entry.hash, place.bits());
    }

    /// Removes an entry and closes the gap, so that no probe stops early.
    pub fn remove(&mut self, position: Position) {
        let slot = match (&mut self.fallen, position.has_fallen) {
            (Some(fallen), true) => &mut fallen.slots[usize::from(position.slot)],
            _ => &mut self.slots[usize::from(position.slot)],
        };
        let before = slot.heap_bytes();
        let entry = slot.group_mut(position.group).entries[position.at as usize];
        let tokens = u32::from(is_token_hash(entry.hash));
        self.tokens -= tokens as usize;
        if let Some(of) = &mut self.tokens_of {
            of[partition_of(position.slot)] -= tokens;
        }
        slot.remove(position);
        let after = slot.heap_bytes();
        self.heap_bytes = self.heap_bytes - before + after;
        self.used -= 1;
        if let Some(fallen) = self.fallen.as_mut().filter(|_| position.has_fallen) {
            fallen.keys -= 1 - tokens as usize;
            fallen.tokens[partition_of(position.slot)] -= tokens;
        } else if after == 0 {
            self.crowded[usize::from(position.slot) / 64] &= !(1 << (position.slot % 64));
        }
    }

    /// Visits the entries from `from` on in the order of slots and hashes, at least `entries` of
    /// them unless they end before, and all that have the same slot and hash as the last of those.
    /// Returns where to go on, or `None` at the end.
    ///
    /// Insertions and removals between two calls move nothing in this order. So an entry that is
    /// there from the begin to the end of a walk is visited exactly once.
    pub fn walk(
        &self,
        from: KeyHome,
        entries: usize,
        visit: &mut impl FnMut(KeyHome, Candidate),
    ) -> Option<KeyHome> {
        let mut visited = 0;
        let mut last = None;
        let mut from_hash = from.hash;
        for slot in from.slot..SLOTS {
            let table = &self.slots[usize::from(slot)];
            let mut hash = Some(from_hash);
            from_hash = 0;
            while let Some(first) = hash {
                let (number, group, local) = table.group_of(first);
                let mut at = group.first_not_less(first, local);
                while let Some(entry) = group.entries.get(at) {
                    if entry.is_empty() {
                        at += 1;
                        continue;
                    }
                    let cursor = KeyHome::new(slot, entry.hash);
                    if visited >= entries && last != Some(cursor) {
                        return Some(cursor);
                    }
                    last = Some(cursor);
                    visited += 1;
                    let position = Position {
                        slot,
                        has_fallen: false,
                        group: number,
                        at: u32::try_from(at).expect("groups are small"),
                    };
                    visit(
                        cursor,
                        Candidate {
                            position,
                            home: entry.home(),
                        },
                    );
                    at += 1;
                }
                hash = table.next_group(first);
            }
        }
        None
    }

    pub(super) fn insert_entry(&mut self, slot: u16, entry: Entry) {
        let tokens = u32::from(is_token_hash(entry.hash));
        if tokens > 0 {
            self.counts_tokens(slot, tokens);
        }
        self.used += 1;
        let table = &mut self.slots[usize::from(slot)];
        let is_crowded = match table.insert_within(entry) {
            Some(is_crowded) => is_crowded,
            None => {
                let before = table.heap_bytes();
                table.insert(entry);
                self.heap_bytes = self.heap_bytes - before + table.heap_bytes();
                self.is_crowded_now(slot, entry.hash)
            }
        };
        if is_crowded {
            self.becomes_crowded(slot);
        }
    }

    /// So many more entries of a slot are tokens.
    fn counts_tokens(&mut self, slot: u16, tokens: u32) {
        self.tokens += tokens as usize;
        let new = || Box::new([0; PARTITIONS]);
        self.tokens_of.get_or_insert_with(new)[partition_of(slot)] += tokens;
    }

    #[cold]
    fn becomes_crowded(&mut self, slot: u16) {
        self.crowded[usize::from(slot) / 64] |= 1 << (slot % 64);
    }

    fn entry_mut(&mut self, position: Position) -> &mut Entry {
        let slot = match (&mut self.fallen, position.has_fallen) {
            (Some(fallen), true) => &mut fallen.slots[usize::from(position.slot)],
            _ => &mut self.slots[usize::from(position.slot)],
        };
        &mut slot.group_mut(position.group).entries[position.at as usize]
    }
}

/// Iterates over the entries of one slot and hash.
#[derive(Debug)]
pub struct Candidates<'a> {
    pub(super) group: &'a Group,
    slot: u16,
    number: u32,
    pub(super) hash: u32,
    pub(super) at: usize,
    /// The group stands in a table that a flush has taken away.
    has_fallen: bool,
    /// Such a table, whose entries follow.
    fallen: Option<&'a Slot>,
}

impl<'a> Candidates<'a> {
    #[inline]
    fn of(table: &'a Slot, fallen: Option<&'a Slot>, slot: u16, hash: u32) -> Self {
        let (number, group, local) = table.group_of(hash);
        Candidates {
            group,
            slot,
            number,
            hash,
            at: group.first_not_less(hash, local),
            has_fallen: false,
            fallen,
        }
    }

    /// Goes on with the table that a flush has taken away, if there is one.
    #[cold]
    fn next_fallen(&mut self) -> Option<Candidate> {
        *self = Candidates {
            has_fallen: true,
            ..Candidates::of(self.fallen.take()?, None, self.slot, self.hash)
        };
        self.next()
    }
}

impl Iterator for Candidates<'_> {
    type Item = Candidate;

    #[inline]
    fn next(&mut self) -> Option<Candidate> {
        let entry = self.group.entries.get(self.at);
        let Some(entry) = entry.filter(|it| it.hash == self.hash && !it.is_empty()) else {
            return match self.fallen {
                None => None,
                Some(_) => self.next_fallen(),
            };
        };
        let position = Position {
            slot: self.slot,
            has_fallen: self.has_fallen,
            group: self.number,
            at: u32::try_from(self.at).expect("groups are small"),
        };
        self.at += 1;
        Some(Candidate {
            position,
            home: entry.home(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::memory::index::groups::GROUP_ENTRIES;
    use crate::memory::index::groups::local;
    use crate::types::place::{FileId, Place};

    fn random(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |bound| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        }
    }

    fn cell(number: u64) -> CellId {
        CellId(u32::try_from(number).unwrap())
    }

    /// Well spread, and never twice the same.
    fn spread(number: u32) -> u32 {
        number.wrapping_mul(2_654_435_761)
    }

    impl Index {
        /// Everything that must hold for probes to find what is there.
        fn check(&self) {
            let (mut used, mut tokens) = (0, 0);
            let mut heap_bytes = 0;
            for (slot_number, slot) in (0..SLOTS).zip(&self.slots) {
                heap_bytes += slot.heap_bytes();
                let groups = match &slot.groups {
                    None => std::slice::from_ref(&slot.only),
                    Some(groups) => {
                        let of_groups: usize = groups.groups.iter().map(Group::heap_bytes).sum();
                        assert_eq!(of_groups, groups.heap_bytes);
                        &groups.groups[..]
                    }
                };
                for (number, group) in groups.iter().enumerate() {
                    let bits = slot.groups.as_ref().map_or(0, |groups| groups.bits(number));
                    let mut last = None;
                    let mut is_behind_gap = true;
                    let mut count = 0;
                    for (at, entry) in group.entries.iter().enumerate() {
                        if entry.is_empty() {
                            is_behind_gap = true;
                            continue;
                        }
                        let home = group.home(local(entry.hash, bits));
                        assert!(home <= at && (home == at || !is_behind_gap), "a gap");
                        assert!(last <= Some(entry.hash), "not sorted");
                        if last == Some(entry.hash) {
                            assert!(self.is_crowded(slot_number, entry.hash), "crowded");
                        }
                        if let Some(groups) = &slot.groups {
                            assert_eq!(groups.number_of(entry.hash), (number, bits));
                        }
                        (last, is_behind_gap) = (Some(entry.hash), false);
                        count += 1;
                        tokens += usize::from(is_token_hash(entry.hash));
                    }
                    assert_eq!(count, group.used());
                    used += count;
                }
            }
            assert_eq!((used, heap_bytes), (self.used, self.heap_bytes));
            assert_eq!(tokens, self.tokens);
        }
    }

    /// Random insertions and removals, with all hashes different, with few, and with those at both
    /// ends, in one slot and in some: the index answers as a map does.
    #[test]
    fn agrees_with_a_map_under_random_insertions_and_removals() {
        for seed in 1..=12u64 {
            let mut next = random(seed);
            let slots = [1, 1, 3, SLOTS][usize::try_from(seed % 4).unwrap()];
            let place_of = |number: u32| {
                let slot = u16::try_from(number % u32::from(slots)).unwrap();
                let hash = match seed % 3 {
                    0 => spread(number),
                    1 => (u32::MAX - 150).wrapping_add(spread(number) % 300),
                    _ => spread(number % 700),
                };
                KeyHome { slot, hash }
            };
            let mut index = Index::new();
            let mut model: BTreeMap<u32, KeyHome> = BTreeMap::new();
            for step in 0..40_000u32 {
                // First mostly insertions, at the end mostly removals.
                let grows = next(40_000) >= u64::from(step);
                let number = u32::try_from(next(8_000)).unwrap();
                let KeyHome { slot, hash } = place_of(number);
                if model.contains_key(&number) && !grows {
                    model.remove(&number);
                    index.remove(index.position_of(slot, hash, CellId(number)));
                } else if !model.contains_key(&number) && grows {
                    model.insert(number, KeyHome { slot, hash });
                    index.insert(slot, hash, CellId(number));
                }
                if step % 4_000 == 0 {
                    index.check();
                    for (&number, &KeyHome { slot, hash }) in &model {
                        let position = index.position_of(slot, hash, CellId(number));
                        assert_eq!(position.slot, slot, "seed {seed}");
                        let is_only = index.candidates(slot, hash).count() == 1;
                        let only = is_only.then_some(CellId(number));
                        assert_eq!(index.only_cell(slot, hash), only, "seed {seed}");
                    }
                    let all: usize = (0..8_000u32)
                        .map(place_of)
                        .collect::<std::collections::BTreeSet<_>>()
                        .into_iter()
                        .map(|KeyHome { slot, hash }| index.candidates(slot, hash).count())
                        .sum();
                    assert_eq!(all, model.len(), "seed {seed}");
                }
            }
            for (number, KeyHome { slot, hash }) in std::mem::take(&mut model) {
                index.remove(index.position_of(slot, hash, CellId(number)));
            }
            index.check();
            assert_eq!((index.len(), index.heap_bytes), (0, 0), "seed {seed}");
        }
    }

    /// However many keys a slot has, and however alike their hashes are, an index that was given
    /// them in order is the one that insertions make, and goes on as that one does.
    #[test]
    fn sorted_entries_make_the_index_that_insertions_make() {
        for (count, mask) in [0, 1, 3, 500, 2_048, 2_049, 5_000, 70_000]
            .into_iter()
            .flat_map(|count| [u32::MAX, 0xFFF0_0000, 0].map(|mask| (count, mask)))
            .filter(|&(count, mask)| count < 10_000 || mask != 0)
        {
            let mut hashes: Vec<u32> = (0..count).map(|number| spread(number) & mask).collect();
            hashes.sort_unstable();
            let packed =
                |number: u64| PackedPlace::new(Place::new(FileId(1), number * 8, 56), number);
            let places = (0u64..).map(packed);
            let (mut at_once, mut one_by_one) = (Index::new(), Index::new());
            at_once.insert_sorted(5, hashes.iter().copied().zip(places.clone()));
            at_once.check();
            for (&hash, place) in hashes.iter().zip(places) {
                one_by_one.insert_cold(5, hash, place);
            }
            let all = |index: &Index| {
                let mut all = Vec::new();
                index.walk(KeyHome::default(), usize::MAX, &mut |at, found| {
                    all.push((at, found.home));
                });
                // Entries of one hash may stand in any order.
                all.sort_unstable_by_key(|&(at, home)| match home {
                    Home::Disk(place) => (at, place.bits()),
                    Home::Memory(_) => panic!("none is in memory"),
                });
                all
            };
            assert_eq!(all(&at_once), all(&one_by_one), "{count} {mask:x}");
            // More of them, in order again, and others that come alone.
            at_once.insert_sorted(5, [(7, packed(900_000)), (9, packed(900_001))].into_iter());
            for number in 0..3_000 {
                at_once.insert(5, spread(number ^ 0x8000_0000), CellId(number));
            }
            at_once.check();
            assert_eq!(at_once.len(), count as usize + 3_002);
        }
    }

    #[test]
    fn a_cold_entry_keeps_its_place_when_the_index_grows() {
        let mut index = Index::new();
        let place = |n: u32| Place::new(FileId(n + 1), u64::from(n) * 64, 56);
        for n in 0..5_000u32 {
            let packed = PackedPlace::new(place(n), u64::from(n) + (7 << 32));
            index.insert_cold(9, spread(n), packed);
        }
        for n in 0..5_000u32 {
            let mut candidates = index.candidates(9, spread(n));
            let Some(Home::Disk(packed)) = candidates.next().map(|found| found.home) else {
                panic!("key {n} is gone")
            };
            assert_eq!(packed.place(), Some(place(n)));
            assert!(packed.is_sequence(u64::from(n)) && !packed.is_sequence(u64::from(n) + 1));
        }
    }

    /// A walk in steps, between which keys come and go and groups grow, split and shrink, visits
    /// the keys that stay exactly once and in order.
    #[test]
    fn a_walk_visits_each_key_that_stays_once_and_in_order() {
        for seed in 1..=10u64 {
            let mut next = random(seed);
            let slots = [1u32, 5, 2_000][usize::try_from(seed % 3).unwrap()];
            let place_of = |number: u32| {
                let slot = u16::try_from(number % slots * 8).unwrap();
                (
                    slot,
                    spread(number)
                        & [u32::MAX, 0xF000_0000, 0xFFF0_0000]
                            [usize::try_from(seed / 3 % 3).unwrap()],
                )
            };
            let mut index = Index::new();
            for number in 0..6_000u32 {
                let (slot, hash) = place_of(number);
                index.insert(slot, hash, CellId(number));
            }
            let mut visits = vec![0; 6_000];
            let mut guests = std::collections::VecDeque::new();
            let mut next_guest = 6_000u32;
            let mut from = Some(KeyHome::default());
            let mut last = KeyHome::default();
            while let Some(cursor) = from {
                let entries = usize::try_from(1 + next(100)).unwrap();
                from = index.walk(cursor, entries, &mut |at, found| {
                    assert!(at >= last, "seed {seed}: not in order");
                    last = at;
                    let Home::Memory(cell) = found.home else {
                        panic!("none is cold")
                    };
                    assert_eq!(place_of(cell.0), (at.slot, at.hash));
                    assert_eq!(index.position_of(at.slot, at.hash, cell), found.position);
                    if let Some(visits) = visits.get_mut(cell.0 as usize) {
                        *visits += 1;
                    }
                });
                // Waves of guests come and go.
                let grows = (next_guest / 10_000).is_multiple_of(2) || guests.is_empty();
                for _ in 0..next(300) {
                    if grows {
                        let (slot, hash) = place_of(next_guest);
                        index.insert(slot, hash, CellId(next_guest));
                        guests.push_back(next_guest);
                    } else if let Some(guest) = guests.pop_front() {
                        let (slot, hash) = place_of(guest);
                        index.remove(index.position_of(slot, hash, CellId(guest)));
                    }
                    next_guest += 1;
                }
            }
            assert!(visits.iter().all(|&visits| visits == 1), "seed {seed}");
            index.check();
        }
    }

    /// However many keys stand in a slot, an insertion or removal lays out two groups at most.
    #[test]
    fn no_group_outgrows_its_bound_with_many_keys_in_one_slot() {
        let mut index = Index::new();
        let mut next = random(3);
        let hashes: Vec<u32> = (0..200_000)
            .map(|_| u32::try_from(next(1 << 31)).unwrap() << 1)
            .collect();
        let largest = |index: &Index| {
            let groups = index.slots[77].groups.as_ref().expect("many keys");
            groups.groups.iter().map(Group::used).max()
        };
        for (number, &hash) in hashes.iter().enumerate() {
            index.insert(77, hash, cell(number as u64));
            if number > 2 * GROUP_ENTRIES && number % 997 == 0 {
                assert!(largest(&index) < Some(2 * GROUP_ENTRIES + 500));
            }
        }
        index.check();
        assert!(index.memory_bytes() - Index::new().memory_bytes() <= 16 * index.len());
        for (number, &hash) in hashes.iter().enumerate().skip(5_000) {
            index.remove(index.position_of(77, hash, cell(number as u64)));
            if number % 997 == 0 {
                assert!(largest(&index) < Some(2 * GROUP_ENTRIES + 500));
            }
        }
        index.check();
        assert!(index.memory_bytes() - Index::new().memory_bytes() <= 40 * index.len());
    }

    #[test]
    fn a_key_takes_at_most_sixteen_bytes_with_many_keys_in_all_slots() {
        let mut index = Index::new();
        let packed = PackedPlace::new(Place::new(FileId(1), 4_096, 1_100), 1);
        let mut next = random(5);
        for number in 0..4_000_000u32 {
            let slot = u16::try_from(next(u64::from(SLOTS))).unwrap();
            index.insert_cold(slot, spread(number), packed);
            if number >= 2_000_000 && number % 100_000 == 0 {
                let bytes = index.memory_bytes();
                assert!(bytes <= 16 * index.len(), "{bytes} bytes for {number} keys");
            }
        }
    }

    /// Partitions fall while keys and tokens come and go: look-ups find what came behind, and all
    /// tokens, in every state of clearing.
    #[test]
    fn what_has_fallen_is_not_found_but_for_tokens_and_leaves_once() {
        for seed in 1..=6u64 {
            let mut next = random(seed);
            let mut index = Index::new();
            // By slot and hash: the cell, and those that have fallen and were not told.
            let mut model: BTreeMap<(u16, u32), u32> = BTreeMap::new();
            let mut fallen: Vec<u32> = Vec::new();
            let (mut cell, mut falls) = (0, 0);
            for step in 0..60_000u32 {
                // Two partitions; one slot has several groups.
                let slot = [3, 3, 3, 3, 60, 64, 70][usize::try_from(next(7)).unwrap()];
                let hash = spread(u32::try_from(next(9_000)).unwrap());
                match next(100) {
                    0 if step % 7 == 0 && !index.has_fallen(partition_of(slot)) => {
                        let partition = partition_of(slot);
                        index.fall(partition);
                        falls += 1;
                        model.retain(|&(slot, hash), cell| {
                            let falls = partition_of(slot) == partition && !is_token_hash(hash);
                            fallen.extend(falls.then_some(*cell));
                            !falls
                        });
                    }
                    1..6 => {
                        let entries = usize::try_from(next(900)).unwrap();
                        index.clear(entries, &mut |_, home| {
                            let Home::Memory(CellId(id)) = home else {
                                panic!("all are cached");
                            };
                            let at = fallen.iter().position(|cell| *cell == id);
                            fallen.swap_remove(at.expect("it is told once"));
                        });
                    }
                    6..30 => {
                        let found = index.candidates(slot, hash).next();
                        let expected = model.remove(&(slot, hash));
                        assert_eq!(found.is_some(), expected.is_some());
                        if let Some(found) = found {
                            assert_eq!(found.home, Home::Memory(CellId(expected.unwrap())));
                            index.remove(found.position);
                        }
                    }
                    _ if model.contains_key(&(slot, hash)) => {
                        let found = index.candidates(slot, hash).next().expect("it is there");
                        cell += 1;
                        index.set_cell(found.position, CellId(cell));
                        model.insert((slot, hash), cell);
                        let position = index.position_of(slot, hash, CellId(cell));
                        assert_eq!(position, found.position);
                    }
                    _ => {
                        cell += 1;
                        index.insert(slot, hash, CellId(cell));
                        model.insert((slot, hash), cell);
                    }
                }
                assert_eq!(index.len(), model.len(), "seed {seed}, step {step}");
            }
            while index.clear(usize::MAX, &mut |_, _| fallen.truncate(fallen.len() - 1)) {}
            assert!(fallen.is_empty() && falls > 5, "{falls} falls");
            index.check();
            let tokens = model
                .keys()
                .filter(|(_, hash)| is_token_hash(*hash))
                .count();
            assert_eq!((index.tokens(), index.len()), (tokens, model.len()));
        }
    }
}
