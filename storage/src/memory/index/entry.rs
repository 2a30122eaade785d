//! One entry of the index.

use crate::types::packed_place::PackedPlace;

/// The number of a cell in the value cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellId(pub u32);

/// Whether the key of an entry with this hash is a token. Whoever hashes keys sees to that: the
/// lowest bit of the hash is 1 for tokens and 0 for all other keys.
#[inline]
#[must_use]
pub fn is_token_hash(hash: u32) -> bool {
    hash & 1 == 1
}

/// A position in the index; valid until the next insertion or removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub(super) slot: u16,
    /// It stands in a table that a flush has taken away.
    pub(super) has_fallen: bool,
    pub(super) group: u32,
    pub(super) at: u32,
}

/// One key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    pub(super) hash: u32,
    /// Low and high half of a [`PackedPlace`] or, if the file in it is 0, the number of a cell + 1.
    /// Zero if there is no key here.
    pub(super) word: [u32; 2],
}

const _: () = assert!(size_of::<Entry>() == 12);

impl Entry {
    #[inline]
    pub(super) fn cached(hash: u32, cell: CellId) -> Self {
        Entry::new(hash, u64::from(cell.0) + 1)
    }

    #[inline]
    pub(super) fn new(hash: u32, word: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
        let word = [
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
        ];
        Entry { hash, word }
    }

    #[inline]
    pub(super) fn word(&self) -> u64 {
        u64::from(self.word[0]) | u64::from(self.word[1]) << 32
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.word == [0, 0]
    }

    #[inline]
    pub(super) fn home(&self) -> Home {
        let word = self.word();
        let packed = PackedPlace::from_bits(word);
        if packed.has_file() {
            Home::Disk(packed)
        } else {
            let cell = word
                .checked_sub(1)
                .expect("only entries of keys are looked at");
            Home::Memory(CellId(
                u32::try_from(cell).expect("cell numbers are 32 bits"),
            ))
        }
    }
}

/// Where a key lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In the value cache; the cell knows the place of the newest part.
    Memory(CellId),
    /// On disk only.
    Disk(PackedPlace),
}

/// One entry whose slot and hash agree.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Where the entry stands.
    pub position: Position,
    /// Where its key lives.
    pub home: Home,
}
