//! The part that follows another one of the same key, made from the other's bytes: it has the next
//! sequence and other fields of the value, and nothing else differs.
//!
//! A CRC is linear: what a changed byte adds to the CRC depends on its difference and its place
//! alone. So the CRC of the next part follows from the CRC of the last one and from what differs.

use crate::format::checksum::{SHORT_BYTES_MAX, crc32, crc32_difference};
use crate::format::record::{CRC_AT, SEQUENCE_AT};
use crate::planted::{self, Bug};
use std::ops::Range;

/// Encodes the second half of `parts`, the part that follows the one in the first half. It has this
/// sequence, and in the `fields` of its value, which begins at `value_at`, what `value` has there.
/// A field has at most 8 bytes.
///
/// # Panics
/// If a field lies outside the part.
#[inline]
pub(crate) fn encode_next(
    parts: &mut [u8],
    sequence: u64,
    value_at: usize,
    value: &[u8],
    fields: impl Iterator<Item = Range<usize>>,
) {
    let len = parts.len() / 2;
    let (last, next) = parts.split_at_mut(len);
    next.copy_from_slice(last);
    let mut crc = change(next, SEQUENCE_AT, sequence);
    for field in fields {
        assert!(field.start < field.end && field.end <= value.len());
        // A field stands in one word of the value, or in two.
        let (first, last) = (field.start & !7, (field.end - 1) & !7);
        crc ^= change(next, value_at + first, word_at(value, first));
        if last != first {
            crc ^= change(next, value_at + last, word_at(value, last));
        }
    }
    let checked = CRC_AT + size_of::<u32>();
    let crc = match len - checked < SHORT_BYTES_MAX {
        true => crc ^ u32::from_le_bytes(*next[CRC_AT..].first_chunk().expect("a header")),
        false => crc32(&next[checked..]),
    };
    next[CRC_AT..checked].copy_from_slice(&crc.to_le_bytes());
}

/// The word of a value at a multiple of 8. Behind the value are zeros.
#[inline]
fn word_at(value: &[u8], at: usize) -> u64 {
    match value[at..].first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => {
            let mut word = [0; 8];
            word[..value.len() - at].copy_from_slice(&value[at..]);
            u64::from_le_bytes(word)
        }
    }
}

/// Has a part hold this word at a multiple of 8, and tells by what its CRC changes. A word that it
/// holds already changes nothing.
#[inline]
fn change(part: &mut [u8], at: usize, word: u64) -> u32 {
    let behind = part.len() - at - 8;
    let held = part[at..].first_chunk_mut().expect("parts are whole words");
    let difference = u64::from_le_bytes(*held) ^ word;
    *held = word.to_le_bytes();
    let seen = planted::or(Bug::RunCrcOfFirstByte, 0xFF, u64::MAX);
    crc32_difference(difference & seen, behind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::{PartKind, PartSpec, RecordSpec, value_at};

    fn encoded(sequence: u64, key: &[u8], value: &[u8], expiry_ms: Option<u64>) -> Vec<u8> {
        let part = PartSpec {
            kind: PartKind::Put,
            key,
            value,
            expiry_ms,
            layout: 513,
            is_crowded: true,
        };
        let record = RecordSpec {
            slot: 77,
            epoch: 0x0102_0304,
            sequence,
            time_ms: 1_700_000_000_123,
            parts: &[part],
            extension: &[],
        };
        let mut bytes = vec![0xAA; record.bytes()];
        record.encode_part(0, &mut bytes);
        assert!(record.is_encoded_as(&bytes));
        bytes
    }

    #[test]
    fn the_next_part_is_what_the_encoder_makes_of_it() {
        for (key_len, value_len) in [(1, 8), (8, 8), (16, 24), (7, 41), (1_024, 9), (3, 900)] {
            for expiry_ms in [None, Some(5)] {
                let key = vec![b'k'; key_len];
                let mut value: Vec<u8> = (0..value_len).map(|n: u32| n.to_le_bytes()[0]).collect();
                // The sequence carries over one byte, then over three.
                for sequence in [254, 255, (1 << 24) - 2, (1 << 24) - 1] {
                    let mut parts = encoded(sequence, &key, &value, expiry_ms);
                    let len = parts.len();
                    parts.resize(2 * len, 0xEE);
                    value[0] = value[0].wrapping_add(0x81);
                    value[value_len as usize - 1] ^= 0xFF;
                    let all = value.len();
                    // A field may be named twice, as two instructions name it.
                    let fields = [0..8, all - 1..all, 0..1, all - 5..all].into_iter();
                    encode_next(&mut parts, sequence + 1, value_at(key_len), &value, fields);
                    let expected = encoded(sequence + 1, &key, &value, expiry_ms);
                    assert_eq!(parts[len..], expected, "{key_len} {value_len} {sequence}");
                }
            }
        }
    }
}
