//! Where each key of a shard lives: an open-addressing table from the hash of a key to the place of
//! its newest part in the log and, while it is in memory, to its cache cell.
//!
//! Keys are not kept here. An entry matches a key if the hashes agree *and* the key that stands in
//! the cache cell, or in the part on disk, is the same; the caller does that second comparison,
//! because for a cold entry it needs a read.
//!
//! Linear probing with backward-shift deletion: no tombstones, so a probe ends at the first empty
//! entry. The table doubles when it is seven eighths full.

use crate::io::FileId;
use crate::log::Place;
use crate::planted::{Bug, is_planted};

/// The number of a cell in the value cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellId(pub u32);

/// A position in the table; valid until the next insertion or removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(usize);

/// One key: 24 bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    hash: u32,
    /// Cell number + 1; 0 while the value is not in memory.
    cell: u32,
    /// File number; 0 while nothing has been logged for the key yet. File numbers start at 1.
    file: u32,
    /// Offset of the part in its file, in units of 8 bytes.
    offset_eighths: u32,
    /// Length of the part, in units of 8 bytes.
    bytes_eighths: u32,
    /// Low bits of the part's sequence: a block that holds an older part is told by them.
    sequence_low: u32,
}

impl Entry {
    #[inline]
    fn is_empty(&self) -> bool {
        self.cell == 0 && self.file == 0
    }
}

/// The table of one shard.
#[derive(Debug)]
pub struct Index {
    entries: Vec<Entry>,
    mask: usize,
    used: usize,
}

const ENTRIES_MIN: usize = 1024;

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

impl Index {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Index {
            entries: vec![Entry::default(); ENTRIES_MIN],
            mask: ENTRIES_MIN - 1,
            used: 0,
        }
    }

    /// Keys in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether no key is in the table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Bytes of memory that the table takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }

    /// The entries whose hash is `hash`, in probe order.
    #[inline]
    pub fn candidates(&self, hash: u32) -> Candidates<'_> {
        Candidates {
            index: self,
            hash,
            at: hash as usize & self.mask,
        }
    }

    /// The cell that a key with this hash is most likely in: a hint that looks at one entry only.
    #[inline]
    #[must_use]
    pub fn likely_cell(&self, hash: u32) -> Option<CellId> {
        let entry = &self.entries[hash as usize & self.mask];
        entry
            .cell
            .checked_sub(1)
            .filter(|_| entry.hash == hash)
            .map(CellId)
    }

    /// Adds an entry for a key that has no entry, known to be in `cell`, not logged yet.
    pub fn insert(&mut self, hash: u32, cell: CellId) {
        self.insert_entry(Entry {
            hash,
            cell: cell.0 + 1,
            ..Entry::default()
        });
    }

    /// Adds an entry for a key that has no entry and is on disk only.
    pub fn insert_cold(&mut self, hash: u32, place: Place, sequence: u64) {
        let mut entry = Entry {
            hash,
            ..Entry::default()
        };
        entry.set_place(place, sequence);
        self.insert_entry(entry);
    }

    /// The position of the entry of `cell`, whose key has `hash`. The entry must exist.
    #[inline]
    #[must_use]
    pub fn position_of(&self, hash: u32, cell: CellId) -> Position {
        let mut at = hash as usize & self.mask;
        loop {
            let entry = &self.entries[at];
            assert!(!entry.is_empty(), "every cached key has an index entry");
            if entry.cell == cell.0 + 1 {
                return Position(at);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Records that the newest part of the entry's key stands at `place`.
    #[inline]
    pub fn set_place(&mut self, position: Position, place: Place, sequence: u64) {
        self.entries[position.0].set_place(place, sequence);
    }

    /// Records that the key has come into memory (`Some`) or left it (`None`).
    /// Only a key that has a place on disk may leave.
    pub fn set_cell(&mut self, position: Position, cell: Option<CellId>) {
        let entry = &mut self.entries[position.0];
        entry.cell = cell.map_or(0, |cell| cell.0 + 1);
        assert!(
            !entry.is_empty(),
            "a key that is neither logged nor cached would be lost"
        );
    }

    /// Where the newest part of the entry's key stands, if it was logged.
    #[must_use]
    pub fn place(&self, position: Position) -> Option<Place> {
        self.entries[position.0].place()
    }

    /// Whether the low bits of `sequence` are those of the entry's newest part.
    #[must_use]
    pub fn is_sequence(&self, position: Position, sequence: u64) -> bool {
        self.entries[position.0].sequence_low == low_bits(sequence)
    }

    /// Removes an entry and closes the gap, so that no probe stops early.
    pub fn remove(&mut self, position: Position) {
        let mut gap = position.0;
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask;
            let entry = self.entries[at];
            if entry.is_empty() {
                break;
            }
            // The entry may move into the gap if its home does not lie between the gap and itself.
            let home = entry.hash as usize & self.mask;
            let from_home = at.wrapping_sub(home) & self.mask;
            let from_gap = at.wrapping_sub(gap) & self.mask;
            if from_home >= from_gap + usize::from(is_planted(Bug::LeaveGap)) {
                self.entries[gap] = entry;
                gap = at;
            }
        }
        self.entries[gap] = Entry::default();
        self.used -= 1;
    }

    fn insert_entry(&mut self, entry: Entry) {
        if (self.used + 1) * 8 > self.entries.len() * 7 {
            self.grow();
        }
        let at = self.first_empty(entry.hash);
        self.entries[at] = entry;
        self.used += 1;
    }

    fn first_empty(&self, hash: u32) -> usize {
        let mut at = hash as usize & self.mask;
        while !self.entries[at].is_empty() {
            at = (at + 1) & self.mask;
        }
        at
    }

    fn grow(&mut self) {
        let doubled = vec![Entry::default(); self.entries.len() * 2];
        let old = std::mem::replace(&mut self.entries, doubled);
        self.mask = self.entries.len() - 1;
        let is_kept = |entry: &Entry| {
            !entry.is_empty() && (entry.cell != 0 || !is_planted(Bug::GrowWithoutCold))
        };
        for entry in old.into_iter().filter(is_kept) {
            let at = self.first_empty(entry.hash);
            self.entries[at] = entry;
        }
    }
}

impl Entry {
    #[inline]
    fn set_place(&mut self, place: Place, sequence: u64) {
        assert!(
            place.file.0 != 0 && place.offset.is_multiple_of(8) && place.bytes.is_multiple_of(8)
        );
        self.file = place.file.0;
        self.offset_eighths = u32::try_from(place.offset / 8).expect("a segment has at most 1 GiB");
        self.bytes_eighths = place.bytes / 8;
        self.sequence_low = low_bits(sequence);
    }

    fn place(&self) -> Option<Place> {
        (self.file != 0).then(|| Place {
            file: FileId(self.file),
            offset: u64::from(self.offset_eighths) * 8,
            bytes: self.bytes_eighths * 8,
        })
    }
}

#[inline]
fn low_bits(sequence: u64) -> u32 {
    let [a, b, c, d, ..] = sequence.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Iterates over the entries of one hash.
#[derive(Debug)]
pub struct Candidates<'a> {
    index: &'a Index,
    hash: u32,
    at: usize,
}

/// One entry whose hash agrees.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Where the entry stands.
    pub position: Position,
    /// The cell that holds the key and value, if they are in memory.
    pub cell: Option<CellId>,
}

impl Iterator for Candidates<'_> {
    type Item = Candidate;

    #[inline]
    fn next(&mut self) -> Option<Candidate> {
        loop {
            let entry = &self.index.entries[self.at];
            if entry.is_empty() {
                return None;
            }
            let position = Position(self.at);
            self.at = (self.at + 1) & self.index.mask;
            if entry.hash == self.hash {
                let cell = entry.cell.checked_sub(1).map(CellId);
                return Some(Candidate { position, cell });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// A table of cells by hash must answer as a map does, under random insertions and removals of
    /// keys with few distinct hashes (long probe runs) that wrap around the end of the table.
    #[test]
    fn agrees_with_a_map_under_random_insertions_and_removals() {
        for seed in 1..=20u64 {
            let mut state = seed;
            let mut next = move || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                state >> 33
            };
            let mut index = Index::new();
            let mut model: HashMap<u32, u32> = HashMap::new();
            for _ in 0..20_000 {
                let cell = u32::try_from(next() % 3_000).unwrap();
                let hash = (u32::MAX - 700).wrapping_add(cell.wrapping_mul(2_654_435_761) % 1_400);
                if model.remove(&cell).is_some() {
                    let position = index.position_of(hash, CellId(cell));
                    index.remove(position);
                } else {
                    index.insert(hash, CellId(cell));
                    model.insert(cell, hash);
                }
            }
            assert_eq!(index.len(), model.len(), "seed {seed}");
            for (&cell, &hash) in &model {
                assert!(
                    index.candidates(hash).any(|c| c.cell == Some(CellId(cell))),
                    "seed {seed}"
                );
            }
        }
    }

    #[test]
    fn a_cold_entry_keeps_its_place_when_the_table_grows() {
        let mut index = Index::new();
        for n in 0..5_000u32 {
            let place = Place {
                file: FileId(n + 1),
                offset: u64::from(n) * 64,
                bytes: 56,
            };
            index.insert_cold(
                n.wrapping_mul(2_654_435_761),
                place,
                u64::from(n) + (7 << 32),
            );
        }
        for n in 0..5_000u32 {
            let found = index
                .candidates(n.wrapping_mul(2_654_435_761))
                .find(|c| {
                    index
                        .place(c.position)
                        .is_some_and(|place| place.file == FileId(n + 1))
                })
                .expect("inserted");
            assert_eq!(
                index.place(found.position).unwrap().offset,
                u64::from(n) * 64
            );
            assert!(index.is_sequence(found.position, u64::from(n)));
        }
    }
}
