//! The newest parts in a chunk of a snapshot, side by side in as few bits as the widest of each
//! column takes.
//!
//! Entries ascend, and those of a chunk are near each other: the step from one key to the next
//! takes half of the bits of a key, and file, offset and length of a part take what the segments of
//! the log differ by. Eight bytes an entry instead of fourteen make a start read less, and a
//! snapshot may be taken more often.

use crate::format::record::{read_u32, read_u64};
use crate::types::key_home::KeyHome;
use crate::types::packed_place::{FILES_MAX, PackedPlace};
use crate::types::version::SLOTS;

use crate::types::packed_place::NewestPart;

/// What stands before the rows.
pub(super) const HEAD_BYTES: usize = 24;
/// Bytes of rows that no chunk exceeds, by entry.
pub(super) const ROW_BYTES_MAX: usize = 14;

const KEY_BITS: u32 = 46;
/// From the lowest bit of a place on: sequence, length, offset, file.
const SEQUENCE_BITS: u32 = 8;
const LENGTH_BITS: u32 = 9;
const OFFSET_BITS: u32 = 27;
const FILE_BITS: u32 = 20;
const COLUMNS: usize = 4;
/// The widest that a column can be: the steps, files, offsets, lengths.
const BITS_MAX: [u32; COLUMNS] = [KEY_BITS, FILE_BITS, OFFSET_BITS, LENGTH_BITS];
const _: () = assert!(FILES_MAX == 1 << FILE_BITS && SLOTS as u64 == 1 << (KEY_BITS - u32::BITS));
// What one word of `word_at` has.
const _: () = assert!(KEY_BITS <= 57 && FILE_BITS + OFFSET_BITS <= 57);
const _: () = assert!(
    (KEY_BITS + FILE_BITS + OFFSET_BITS + LENGTH_BITS + SEQUENCE_BITS) as usize
        <= 8 * ROW_BYTES_MAX
);

const IMPOSSIBLE: &str = "an entry cannot be one of an index";

/// The key as a number that ascends with the entries.
fn number_of(key: KeyHome) -> u64 {
    u64::from(key.slot) << u32::BITS | u64::from(key.hash)
}

/// File, offset in units of 8 bytes, and length of a place.
fn columns_of(part: PackedPlace) -> [u64; COLUMNS - 1] {
    let bits = part.bits() >> SEQUENCE_BITS;
    let length = bits & ((1 << LENGTH_BITS) - 1);
    let offset = bits >> LENGTH_BITS & ((1 << OFFSET_BITS) - 1);
    [bits >> (LENGTH_BITS + OFFSET_BITS), offset, length]
}

/// Appends head and rows of these entries, which ascend and are at least one.
pub(super) fn encode(entries: &[NewestPart], into: &mut Vec<u8>) {
    let first = number_of(entries[0].key);
    let mut least = columns_of(entries[0].part);
    let mut most = least;
    let (mut before, mut step_max) = (first, 0);
    for entry in entries {
        let key = number_of(entry.key);
        step_max = step_max.max(key.checked_sub(before).expect("entries ascend"));
        before = key;
        for (at, column) in columns_of(entry.part).into_iter().enumerate() {
            least[at] = least[at].min(column);
            most[at] = most[at].max(column);
        }
    }
    let [file, offset, length] = least;
    let spans = [step_max, most[0] - file, most[1] - offset, most[2] - length];
    let widths = spans.map(|span| u64::BITS - span.leading_zeros());
    let short = |number: u64| u32::try_from(number).expect("narrower than 32 bits");
    into.extend_from_slice(&first.to_le_bytes());
    into.extend_from_slice(&short(file).to_le_bytes());
    into.extend_from_slice(&short(offset).to_le_bytes());
    let length_bytes = u16::try_from(length).expect("9 bits").to_le_bytes();
    into.extend_from_slice(&length_bytes);
    into.extend(widths.map(|bits| u8::try_from(bits).expect("at most 46")));
    into.extend_from_slice(&[0; 2]);

    let (mut row, mut filled) = (0u128, 0);
    let mut before = first;
    for entry in entries {
        let key = number_of(entry.key);
        let mut put = |column: u64, bits: u32| {
            row |= u128::from(column) << filled;
            filled += bits;
        };
        put(key - before, widths[0]);
        before = key;
        for (at, column) in columns_of(entry.part).into_iter().enumerate() {
            put(column - least[at], widths[at + 1]);
        }
        put(
            entry.part.bits() & ((1 << SEQUENCE_BITS) - 1),
            SEQUENCE_BITS,
        );
        while filled >= u8::BITS {
            into.push(row.to_le_bytes()[0]);
            row >>= u8::BITS;
            filled -= u8::BITS;
        }
    }
    if filled > 0 {
        into.push(row.to_le_bytes()[0]);
    }
}

/// What the head of a chunk tells of its rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    count: usize,
    first: u64,
    least: [u64; COLUMNS - 1],
    widths: [u32; COLUMNS],
}

impl Rows {
    /// Reads the head of a chunk of so many entries; `None` if nothing can be meant by it.
    pub(super) fn read(count: usize, head: &[u8; HEAD_BYTES]) -> Option<Self> {
        let widths: [u32; COLUMNS] = [head[18], head[19], head[20], head[21]].map(u32::from);
        let is_possible = widths
            .iter()
            .zip(BITS_MAX)
            .all(|(&bits, most)| bits <= most);
        let first = read_u64(&head[0..8]);
        (is_possible && first >> KEY_BITS == 0 && head[22..24] == [0; 2]).then(|| Rows {
            count,
            first,
            least: [
                u64::from(read_u32(&head[8..12])),
                u64::from(read_u32(&head[12..16])),
                u64::from(u16::from_le_bytes([head[16], head[17]])),
            ],
            widths,
        })
    }

    fn width(&self) -> usize {
        let bits = self.widths.iter().sum::<u32>() + SEQUENCE_BITS;
        bits as usize
    }

    /// Bytes of the rows.
    pub(super) fn bytes(&self) -> usize {
        (self.count * self.width()).div_ceil(8)
    }

    /// Hands each entry to `visit`, in order. `rows` is as long as [`Rows::bytes`] says.
    pub(super) fn decode(
        &self,
        rows: &[u8],
        mut visit: impl FnMut(&NewestPart) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        let width = self.width();
        let used_bits = self.count * width;
        if !used_bits.is_multiple_of(8) && rows[used_bits / 8] >> (used_bits % 8) != 0 {
            return Err(IMPOSSIBLE);
        }
        let [step_bits, file_bits, offset_bits, length_bits] = self.widths;
        let mask = |bits: u32| (1u64 << bits) - 1;
        let [step_mask, file_mask, offset_mask, length_mask] = self.widths.map(mask);
        let [file_least, offset_least, length_least] = self.least;
        let place_at = step_bits as usize;
        let length_at = place_at + (file_bits + offset_bits) as usize;
        let mut key = self.first;
        for row in (0..used_bits).step_by(width) {
            // A file and an offset fit in a word, and a length with the sequence; all three might
            // not.
            let place = word_at(rows, row + place_at);
            let rest = word_at(rows, row + length_at);
            // No column is wide enough, nor a chunk long enough, to make a sum overflow.
            key += word_at(rows, row) & step_mask;
            let file = file_least + (place & file_mask);
            let offset = offset_least + (place >> file_bits & offset_mask);
            let length = length_least + (rest & length_mask);
            let sequence = rest >> length_bits & mask(SEQUENCE_BITS);
            let is_possible = key >> KEY_BITS == 0
                && file >> FILE_BITS == 0
                && offset >> OFFSET_BITS == 0
                && length >> LENGTH_BITS == 0;
            let bits = (file << OFFSET_BITS | offset) << LENGTH_BITS | length;
            let part = PackedPlace::read(bits << SEQUENCE_BITS | sequence);
            let Some(part) = part.filter(|_| is_possible) else {
                return Err(IMPOSSIBLE);
            };
            let [a, b, c, d, e, f, ..] = key.to_le_bytes();
            let key = KeyHome::new(u16::from_le_bytes([e, f]), u32::from_le_bytes([a, b, c, d]));
            visit(&NewestPart { key, part })?;
        }
        Ok(())
    }
}

/// 57 bits at least from a bit on, with zeros behind the end.
#[inline]
fn word_at(bytes: &[u8], bit: usize) -> u64 {
    let at = bit / 8;
    let word = match bytes.get(at..at + size_of::<u64>()) {
        Some(word) => read_u64(word),
        None => {
            let mut word = [0; size_of::<u64>()];
            let rest = bytes.get(at..).unwrap_or_default();
            word[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(word)
        }
    };
    word >> (bit % 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::place::FileId;
    use crate::types::place::Place;

    fn read(count: usize, bytes: &[u8]) -> Result<Vec<NewestPart>, &'static str> {
        let (head, rows) = bytes.split_first_chunk().expect("a head");
        let packed = Rows::read(count, head).ok_or(IMPOSSIBLE)?;
        assert_eq!(packed.bytes(), rows.len());
        let mut found = Vec::new();
        packed.decode(rows, |entry| {
            found.push(*entry);
            Ok(())
        })?;
        Ok(found)
    }

    fn entry(slot: u16, hash: u32, file: u32, offset: u64, bytes: usize) -> NewestPart {
        let place = Place::new(FileId(file), offset, bytes);
        NewestPart {
            key: KeyHome { slot, hash },
            part: PackedPlace::new(place, offset ^ u64::from(hash)),
        }
    }

    #[test]
    fn entries_of_any_width_are_read_back() {
        let longest = (1 << 30) - 8;
        let ends = [
            entry(0, 0, 1, 4_096, 48),
            entry(SLOTS - 1, u32::MAX, FILES_MAX - 1, longest, 1 << 24),
        ];
        let alike = [entry(7, 7, 7, 4_096, 56); 5];
        let rising: Vec<_> = (0..1_000u32)
            .map(|n| {
                entry(
                    3,
                    n * 4_000_000,
                    1 + n % 200,
                    4_096 + 8 * u64::from(n),
                    1_080,
                )
            })
            .collect();
        for entries in [&ends[..], &ends[..1], &ends[1..], &alike, &rising] {
            let mut bytes = Vec::new();
            encode(entries, &mut bytes);
            assert!(bytes.len() <= HEAD_BYTES + ROW_BYTES_MAX * entries.len());
            assert_eq!(read(entries.len(), &bytes).as_deref(), Ok(entries));
        }
        let mut bytes = Vec::new();
        encode(&rising, &mut bytes);
        assert!(bytes.len() < 8 * rising.len(), "{} bytes", bytes.len());
    }

    /// The CRC is checked before. So the decoder only has to refuse entries that cannot be.
    #[test]
    fn flipped_bits_give_entries_that_can_be_or_none() {
        let entries: Vec<_> = (0..9u32)
            .map(|n| entry(3, n << 28, 1 + n % 3, 4_096 + 8 * u64::from(n), 56))
            .collect();
        let mut whole = Vec::new();
        encode(&entries, &mut whole);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (head, rows) = bytes.split_first_chunk().expect("a head");
            let Some(packed) = Rows::read(entries.len(), head) else {
                continue;
            };
            if packed.bytes() != rows.len() {
                continue;
            }
            let mut last = KeyHome::default();
            let _ = packed.decode(rows, |entry| {
                assert!(entry.key >= last && entry.key.slot < SLOTS, "bit {bit}");
                assert!(entry.part.place().is_some(), "bit {bit}");
                last = entry.key;
                Ok(())
            });
        }
    }
}
