//! The entries of a slot: groups that split and merge by linear hashing.

use crate::memory::index::entry::Entry;
use crate::memory::index::entry::Position;
use crate::planted::{Bug, is_planted};

/// Entries of a slot for each of its groups, on average, above which one more group is split.
/// A group that was not split yet in a round has up to twice as many.
pub(super) const GROUP_ENTRIES: usize = 2048;

/// The entries of one slot.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// All of them, unless there are `groups`.
    pub(super) only: Group,
    /// The groups of a slot with many keys.
    pub(super) groups: Option<Box<Groups>>,
}

/// At least two groups, numbered as linear hashing over the reversed hash has it: the groups of a
/// round are those of its first bits, and each split adds one at the end.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) groups: Vec<Group>,
    pub(super) used: usize,
    pub(super) heap_bytes: usize,
}

impl Groups {
    /// The group of a hash, and how many of the first bits are the same in all of its hashes.
    #[inline]
    pub(super) fn number_of(&self, hash: u32) -> (usize, u32) {
        let round = self.groups.len().ilog2();
        let reversed = usize::try_from(hash.reverse_bits()).expect("at least 32 bits");
        let number = reversed & ((2 << round) - 1);
        let number = match number < self.groups.len() {
            true => number,
            false => number & ((1 << round) - 1),
        };
        (number, self.bits(number))
    }

    /// How many of the first bits are the same in all hashes of a group.
    #[inline]
    pub(super) fn bits(&self, number: usize) -> u32 {
        let round = self.groups.len().ilog2();
        let split = self.groups.len() - (1 << round);
        let is_of_next_round = number < split || number >> round != 0;
        round + u32::from(is_of_next_round)
    }
}

impl Slot {
    /// A slot with these entries, which are sorted.
    pub(super) fn laid_out(entries: &[Entry]) -> Slot {
        if entries.len() <= GROUP_ENTRIES {
            return Slot {
                only: Group::laid_out(0, entries.iter(), 0),
                groups: None,
            };
        }
        let mut groups = Groups {
            groups: Vec::new(),
            used: entries.len(),
            heap_bytes: 0,
        };
        let count = entries.len().div_ceil(GROUP_ENTRIES);
        groups.groups.resize_with(count, Group::default);
        let mut left = entries;
        while let Some(first) = left.first() {
            let (number, bits) = groups.number_of(first.hash);
            let prefix = first.hash >> (u32::BITS - bits);
            let end = left.partition_point(|entry| entry.hash >> (u32::BITS - bits) == prefix);
            let (of_group, rest) = left.split_at(end);
            groups.change(number, |group| {
                *group = Group::laid_out(bits, of_group.iter(), 0);
            });
            left = rest;
        }
        Slot {
            only: Group::default(),
            groups: Some(Box::new(groups)),
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.only.heap_bytes()
            + self.groups.as_ref().map_or(0, |groups| {
                size_of::<Groups>()
                    + groups.groups.capacity() * size_of::<Group>()
                    + groups.heap_bytes
            })
    }

    /// How many entries there are.
    pub(super) fn used(&self) -> usize {
        match &self.groups {
            None => self.only.used(),
            Some(groups) => groups.used,
        }
    }

    /// Takes all entries of the first group out that has some, from this group on; and its number.
    pub(super) fn take_group(&mut self, from: usize) -> Option<(Box<[Entry]>, usize)> {
        let Some(groups) = &mut self.groups else {
            let is_there = from == 0 && self.only.used > 0;
            return is_there.then(|| (std::mem::take(&mut self.only).entries, 0));
        };
        let all = groups.groups.get_mut(from..)?;
        let at = all.iter().position(|group| group.used > 0)?;
        let group = std::mem::take(&mut all[at]);
        groups.used -= group.used();
        groups.heap_bytes -= group.heap_bytes();
        Some((group.entries, from + at))
    }

    /// The group of a hash, its number, and the hash without the bits that all in the group share.
    #[inline]
    pub(super) fn group_of(&self, hash: u32) -> (u32, &Group, u32) {
        match &self.groups {
            None => (0, &self.only, hash),
            Some(groups) => {
                let (number, bits) = groups.number_of(hash);
                let group = &groups.groups[number];
                (
                    u32::try_from(number).expect("fewer groups than hashes"),
                    group,
                    hash << bits,
                )
            }
        }
    }

    pub(super) fn group_mut(&mut self, number: u32) -> &mut Group {
        match &mut self.groups {
            None => &mut self.only,
            Some(groups) => &mut groups.groups[number as usize],
        }
    }

    /// The least hash of the group behind that of `hash`.
    pub(super) fn next_group(&self, hash: u32) -> Option<u32> {
        let (_, bits) = self.groups.as_ref()?.number_of(hash);
        let prefix = hash >> (u32::BITS - bits);
        (prefix + 1 < 1 << bits).then(|| (prefix + 1) << (u32::BITS - bits))
    }

    /// Adds an entry, if that takes no more memory. Tells then whether another one has its hash.
    #[inline]
    pub(super) fn insert_within(&mut self, entry: Entry) -> Option<bool> {
        match &mut self.groups {
            None if self.only.used() < GROUP_ENTRIES => self.only.insert_within(0, entry),
            Some(groups) if groups.used < groups.groups.len() * GROUP_ENTRIES => {
                let (number, bits) = groups.number_of(entry.hash);
                let is_crowded = groups.groups[number].insert_within(bits, entry)?;
                groups.used += 1;
                Some(is_crowded)
            }
            _ => None,
        }
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        let Some(groups) = &mut self.groups else {
            self.only.insert(0, entry);
            if self.only.used() > GROUP_ENTRIES {
                let only = std::mem::take(&mut self.only);
                let mut groups = Groups {
                    used: only.used(),
                    heap_bytes: only.heap_bytes(),
                    groups: vec![only],
                };
                groups.split();
                self.groups = Some(Box::new(groups));
            }
            return;
        };
        groups.used += 1;
        let (number, bits) = groups.number_of(entry.hash);
        groups.change(number, |group| group.insert(bits, entry));
        if groups.used > groups.groups.len() * GROUP_ENTRIES {
            groups.split();
        }
    }

    pub(super) fn remove(&mut self, position: Position) {
        let at = position.at as usize;
        let Some(groups) = &mut self.groups else {
            return self.only.remove(0, at);
        };
        groups.used -= 1;
        let number = position.group as usize;
        let bits = groups.bits(number);
        groups.change(number, |group| group.remove(bits, at));
        if groups.used < groups.groups.len() * (GROUP_ENTRIES / 4) {
            groups.merge();
            if groups.groups.len() == 1 {
                self.only = groups.groups.pop().expect("there is one");
                self.groups = None;
            }
        }
    }
}

impl Groups {
    fn change(&mut self, number: usize, change: impl FnOnce(&mut Group)) {
        let group = &mut self.groups[number];
        self.heap_bytes -= group.heap_bytes();
        change(group);
        self.heap_bytes += group.heap_bytes();
    }

    /// Splits the next group of the round in two, by its next bit.
    fn split(&mut self) {
        let round = self.groups.len().ilog2();
        let number = self.groups.len() - (1 << round);
        let parent = std::mem::take(&mut self.groups[number]);
        let shift = u32::BITS - 1 - round;
        let upper_from = parent
            .entries
            .iter()
            .position(|entry| !entry.is_empty() && entry.hash >> shift & 1 == 1)
            .unwrap_or(parent.entries.len());
        let (lower, upper) = parent.entries.split_at(upper_from);
        self.heap_bytes -= parent.heap_bytes();
        for (number, entries) in [(Some(number), lower), (None, upper)] {
            let group = Group::laid_out(round + 1, entries.iter(), 0);
            self.heap_bytes += group.heap_bytes();
            match number {
                Some(number) => self.groups[number] = group,
                None => self.groups.push(group),
            }
        }
    }

    /// Takes back the last split.
    fn merge(&mut self) {
        let upper = self.groups.pop().expect("there are groups");
        let round = self.groups.len().ilog2();
        let number = self.groups.len() - (1 << round);
        let lower = &self.groups[number];
        let merged = Group::laid_out(round, lower.entries.iter().chain(&upper.entries), 0);
        self.heap_bytes =
            self.heap_bytes - lower.heap_bytes() - upper.heap_bytes() + merged.heap_bytes();
        self.groups[number] = merged;
    }
}

/// Entries sorted by hash, each at its home or behind it, with no empty one in between.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Behind the homes there is room for entries that do not find theirs free.
    pub(super) entries: Box<[Entry]>,
    homes: u32,
    pub(super) used: u32,
}

impl Group {
    pub(super) fn used(&self) -> usize {
        self.used as usize
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.entries)
    }

    /// Whether one entry more would fill it over nine tenths.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        !self.has_room_for(1)
    }

    /// Whether so many more entries leave it as sparse as look-ups need it.
    #[inline]
    pub(super) fn has_room_for(&self, entries: u32) -> bool {
        (self.used + entries) * 10 <= self.homes * 9
    }

    /// Where an entry stands if its place is free; `local` is its hash without the bits that all in
    /// the group share.
    #[inline]
    pub(super) fn home(&self, local: u32) -> usize {
        home(local, self.homes)
    }

    /// Where the first entry with this hash or a greater one of its run stands, or would.
    #[inline]
    pub(super) fn first_not_less(&self, hash: u32, local: u32) -> usize {
        let mut at = self.home(local);
        while let Some(entry) = self.entries.get(at)
            && entry.hash < hash
            && !entry.is_empty()
        {
            at += 1;
        }
        at
    }

    pub(super) fn insert(&mut self, bits: u32, entry: Entry) {
        if self.insert_within(bits, entry).is_some() {
            return;
        }
        let homes_min = match self.is_full() {
            true => 0,
            false => self.homes + self.homes / 8,
        };
        self.lay_out_with(bits, entry, homes_min);
    }

    /// Adds an entry, if there is room behind its home. Tells then whether another one has its
    /// hash.
    #[inline]
    fn insert_within(&mut self, bits: u32, entry: Entry) -> Option<bool> {
        if self.is_full() {
            return None;
        }
        let at = self.first_not_less(entry.hash, local(entry.hash, bits));
        let run = self.entries.get(at..).unwrap_or_default();
        let is_crowded = run
            .first()
            .is_some_and(|next| next.hash == entry.hash && !next.is_empty());
        let run = run.iter().position(Entry::is_empty)?;
        self.entries.copy_within(at..at + run, at + 1);
        self.entries[at] = entry;
        self.used += 1;
        Some(is_crowded)
    }

    pub(super) fn remove(&mut self, bits: u32, at: usize) {
        let rest = &self.entries[at + 1..];
        // What stands at its home stays, and all behind it.
        let run = rest
            .iter()
            .zip(at + 1..)
            .position(|(entry, at)| {
                let home = self.home(local(entry.hash, bits));
                entry.is_empty() || at - home <= usize::from(is_planted(Bug::LeaveGap))
            })
            .unwrap_or(rest.len());
        self.entries.copy_within(at + 1..at + 1 + run, at);
        self.entries[at + run] = Entry::default();
        self.used -= 1;
        if self.used == 0 {
            *self = Group::default();
        } else if self.homes > HOMES_MIN && self.used * 2 < self.homes {
            let entries = std::mem::take(&mut self.entries);
            *self = Group::laid_out(bits, entries.iter(), 0);
        }
    }

    /// Lays all entries and one more out anew, with at least so many homes.
    #[cold]
    fn lay_out_with(&mut self, bits: u32, entry: Entry, homes_min: u32) {
        let at = self.first_not_less(entry.hash, local(entry.hash, bits));
        let (before, behind) = self.entries.split_at(at);
        let mut layout = Layout::new(bits, self.used + 1, homes_min);
        layout.take(before);
        layout.take(&[entry]);
        layout.take(behind);
        *self = layout.end();
    }

    /// Lays `entries` out, which are sorted, in a group that they fill to four fifths.
    pub(super) fn laid_out<'a>(
        bits: u32,
        entries: impl Iterator<Item = &'a Entry> + Clone,
        homes_min: u32,
    ) -> Self {
        let used = entries.clone().filter(|entry| !entry.is_empty()).count();
        let used = u32::try_from(used).expect("groups are small");
        if used == 0 {
            return Group::default();
        }
        let mut layout = Layout::new(bits, used, homes_min);
        for entry in entries {
            layout.take(std::slice::from_ref(entry));
        }
        layout.end()
    }
}

/// A group that is laid out anew, in one pass over its entries.
struct Layout {
    laid: Vec<Entry>,
    bits: u32,
    homes: u32,
    used: u32,
    /// The first place behind the last entry.
    next: usize,
}

impl Layout {
    /// Room for `used` entries, which fill four fifths of it, or for more.
    fn new(bits: u32, used: u32, homes_min: u32) -> Self {
        let homes = (used + used / 4 + 1).max(HOMES_MIN).max(homes_min);
        let room = homes as usize + homes as usize / 64 + 3;
        Layout {
            laid: vec![Entry::default(); room],
            bits,
            homes,
            used,
            next: 0,
        }
    }

    /// Takes in entries whose hashes are not less than those before. Empty ones are passed over.
    #[inline]
    fn take(&mut self, entries: &[Entry]) {
        let (bits, homes, mut next) = (self.bits, self.homes, self.next);
        for entry in entries {
            if entry.is_empty() {
                continue;
            }
            next = home(local(entry.hash, bits), homes).max(next);
            if next >= self.laid.len() {
                self.laid.resize(next + 1, Entry::default());
            }
            self.laid[next] = *entry;
            next += 1;
        }
        self.next = next;
    }

    /// The group, with some room behind its last entry.
    fn end(mut self) -> Group {
        let places_min = self.next + self.next / 64 + 1;
        if places_min > self.laid.len() {
            self.laid.resize(places_min, Entry::default());
        }
        Group {
            entries: self.laid.into_boxed_slice(),
            homes: self.homes,
            used: self.used,
        }
    }
}

const HOMES_MIN: u32 = 4;

#[inline]
pub(super) fn home(local: u32, homes: u32) -> usize {
    usize::try_from((u64::from(local) * u64::from(homes)) >> u32::BITS).expect("below the homes")
}

/// A hash without its first bits, which all in a group share.
#[inline]
pub(super) fn local(hash: u32, bits: u32) -> u32 {
    hash << bits
}
