//! The part of a value without expiry and extension that is alone in its record. Its body comes as
//! the part has it, and is copied whole.

use crate::format::checksum::crc32;
use crate::format::record::{
    CRC_AT, KEY_BYTES_MAX, PART_HEADER_BYTES, RecordSpec, VALUE_BYTES_MAX, padded,
};

/// A key and a value as a part has them: each with zeros behind it up to a multiple of 8.
#[derive(Clone, Copy, Debug)]
pub struct DirectBody<'a> {
    bytes: &'a [u8],
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> DirectBody<'a> {
    /// A key and a value of these lengths. `None` if no part has these bytes.
    #[inline(always)]
    #[must_use]
    pub fn new(bytes: &'a [u8], key_len: usize, value_len: usize) -> Option<Self> {
        let (of_key, of_value) = bytes.split_at_checked(padded(key_len))?;
        let is_good = (1..=KEY_BYTES_MAX).contains(&key_len)
            && value_len <= VALUE_BYTES_MAX
            && of_value.len() == padded(value_len)
            && are_zeros_behind(of_key, key_len)
            && are_zeros_behind(of_value, value_len);
        if !is_good {
            return None;
        }
        Some(DirectBody {
            bytes,
            key: &of_key[..key_len],
            value: &of_value[..value_len],
        })
    }

    /// The key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The value.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        self.value
    }

    /// Bytes of the part.
    #[inline]
    pub(crate) fn part_bytes(&self) -> usize {
        PART_HEADER_BYTES + self.bytes.len()
    }
}

/// Whether what fills a field of so many bytes up is zero. The area has less than 8 bytes more.
#[inline(always)]
fn are_zeros_behind(area: &[u8], len: usize) -> bool {
    let used = len % 8;
    used == 0
        || area
            .last_chunk::<8>()
            .is_some_and(|last| u64::from_le_bytes(*last) >> (8 * used) == 0)
}

impl RecordSpec<'_> {
    /// As [`RecordSpec::encode_part`] of the one part of a record, which has this body.
    ///
    /// # Panics
    /// If `into` is not as long as the part.
    #[inline(always)]
    pub(crate) fn encode_direct(&self, body: DirectBody<'_>, into: &mut [u8]) {
        let (header, rest) = into
            .split_first_chunk_mut::<PART_HEADER_BYTES>()
            .expect("a part has a header");
        self.put_header(0, body.part_bytes(), header);
        rest.copy_from_slice(body.bytes);
        let checked = CRC_AT + size_of::<u32>();
        let crc = crc32(&into[checked..]);
        into[CRC_AT..checked].copy_from_slice(&crc.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::{PartKind, PartSpec, ValueKind};

    #[test]
    fn a_plain_part_is_what_the_encoder_of_all_parts_makes_of_it() {
        for (key_len, value_len) in [(1, 0), (8, 8), (16, 64), (7, 41), (1_024, 9), (3, 900)] {
            let mut bytes = vec![0; padded(key_len) + padded(value_len)];
            bytes[..key_len].fill(b'k');
            bytes[padded(key_len)..][..value_len].fill(0xA5);
            let body = DirectBody::new(&bytes, key_len, value_len).expect("it is good");
            for is_crowded in [false, true] {
                let parts = [PartSpec {
                    kind: PartKind::Put,
                    key: body.key(),
                    value: body.value(),
                    expiry_ms: None,
                    value_kind: ValueKind::Plain,
                    layout: 0,
                    is_crowded,
                }];
                let record = RecordSpec {
                    slot: 77,
                    epoch: 0x0102_0304,
                    sequence: 1 << 40,
                    time_ms: 1_700_000_000_123,
                    parts: &parts,
                    extension: &[],
                };
                let mut expected = vec![0xAA; record.bytes()];
                record.encode_part(0, &mut expected);
                let mut plain = vec![0xEE; body.part_bytes()];
                record.encode_direct(body, &mut plain);
                assert_eq!(plain, expected, "{key_len} {value_len}");
            }
        }
    }

    #[test]
    fn no_body_is_made_of_bytes_that_no_part_has() {
        let bytes = [b"key\0\0\0\0\0".as_slice(), b"a value of 20 bytes.\0\0\0\0"].concat();
        assert!(DirectBody::new(&bytes, 3, 20).is_some());
        for (key_len, value_len) in [
            (0, 20),
            (2, 20),
            (9, 20),
            (3, 19),
            (3, 25),
            (3, 16),
            (40, 0),
        ] {
            assert!(
                DirectBody::new(&bytes, key_len, value_len).is_none(),
                "{key_len} {value_len}"
            );
        }
        assert!(DirectBody::new(&bytes[..24], 3, 20).is_none());
        assert!(DirectBody::new(&[], 1, 0).is_none());
    }
}
