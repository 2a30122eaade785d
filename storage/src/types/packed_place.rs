//! Places in 64 bits, as the index and snapshots keep one for each key.

use crate::types::key_home::KeyHome;
use crate::types::place::{BYTES_BITS, CODE_MAX, FileId, Place, bytes_of, code_of};

/// File numbers are below this: an entry has no more bits for them.
pub const FILES_MAX: u32 = 1 << FILE_BITS;

const FILE_BITS: u32 = 20;
const OFFSET_BITS: u32 = 27;
const SEQUENCE_BITS: u32 = 8;
const OFFSET_SHIFT: u32 = BYTES_BITS + SEQUENCE_BITS;
const FILE_SHIFT: u32 = OFFSET_SHIFT + OFFSET_BITS;
const _: () = assert!(FILE_SHIFT + FILE_BITS == u64::BITS);

/// Where the newest part of a key stands, and the low bits of its sequence, by which a block that
/// holds an older part is told. Zero if nothing was logged for the key yet: file numbers start at
/// 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackedPlace(u64);

impl PackedPlace {
    /// The part at `place` with this sequence.
    #[inline]
    #[must_use]
    pub fn new(place: Place, sequence: u64) -> Self {
        let file = u64::from(place.file.0);
        let offset = place.offset / 8;
        assert!(
            (1..u64::from(FILES_MAX)).contains(&file)
                && offset < 1 << OFFSET_BITS
                && place.offset.is_multiple_of(8)
        );
        PackedPlace(
            file << FILE_SHIFT
                | offset << OFFSET_SHIFT
                | u64::from(code_of(place.bytes)) << SEQUENCE_BITS
                | low_bits(sequence),
        )
    }

    /// The place, if something was logged.
    #[inline]
    #[must_use]
    pub fn place(self) -> Option<Place> {
        let (file, bytes) = self.file_and_bytes()?;
        let offset = (self.0 >> OFFSET_SHIFT & ((1 << OFFSET_BITS) - 1)) * 8;
        Some(Place {
            file,
            offset,
            bytes,
        })
    }

    /// File and length of the place, if something was logged.
    #[inline(always)]
    pub(crate) fn file_and_bytes(self) -> Option<(FileId, u32)> {
        let file = u32::try_from(self.0 >> FILE_SHIFT).expect("20 bits");
        let code =
            u32::try_from(self.0 >> SEQUENCE_BITS & ((1 << BYTES_BITS) - 1)).expect("9 bits");
        (file != 0).then(|| (FileId(file), bytes_of(code)))
    }

    /// All of it; the lowest byte is that of the sequence.
    #[inline]
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Whether something was logged.
    #[inline]
    pub(crate) fn has_file(self) -> bool {
        self.0 >> FILE_SHIFT != 0
    }

    /// What [`PackedPlace::bits`] gave.
    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Self {
        PackedPlace(bits)
    }

    /// The place in these bits of a snapshot (`SNAPSHOTS.md`); `None` if no part can stand there.
    #[must_use]
    pub fn read(bits: u64) -> Option<Self> {
        let code = u32::try_from(bits >> SEQUENCE_BITS & ((1 << BYTES_BITS) - 1)).expect("9 bits");
        let packed = PackedPlace(bits);
        (packed.has_file() && (1..=CODE_MAX).contains(&code)).then_some(packed)
    }

    /// Whether the low bits of `sequence` are those of the part.
    #[must_use]
    pub fn is_sequence(self, sequence: u64) -> bool {
        self.0 & ((1 << SEQUENCE_BITS) - 1) == low_bits(sequence)
    }
}

#[inline]
fn low_bits(sequence: u64) -> u64 {
    sequence & ((1 << SEQUENCE_BITS) - 1)
}

/// Where the newest part of one key stands, as the index keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewestPart {
    /// Slot and hash of the key. The entries of a snapshot ascend by them.
    pub key: KeyHome,
    /// Where the part stands, and low bits of its sequence.
    pub part: PackedPlace,
}

impl NewestPart {
    /// Where the part stands.
    #[must_use]
    pub fn place(&self) -> Place {
        self.part.place().expect("every entry has a place")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::place::rounded_bytes;

    #[test]
    fn a_place_keeps_its_last_file_and_offset_and_rounds_its_length_up_a_little() {
        let longest = (16 << 20) + (2 << 10);
        let lengths = (1..2_000u32).chain((0..).map_while(|n: u32| {
            let bytes = 2_000 + n * 4_099;
            (bytes <= longest).then_some(bytes)
        }));
        for bytes in lengths.chain([longest]) {
            let place = Place::new(FileId(FILES_MAX - 1), (1 << 30) - 8, bytes as usize);
            let rounded = place.bytes;
            assert!(rounded >= bytes && rounded.is_multiple_of(8));
            assert!(rounded <= bytes.next_multiple_of(8) + bytes / 16, "{bytes}");
            assert_eq!(rounded_bytes(rounded), rounded, "{bytes}");
            assert_eq!(PackedPlace::new(place, u64::MAX).place(), Some(place));
        }
        assert_eq!(PackedPlace::default().place(), None);
    }
}
