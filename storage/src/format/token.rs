//! The value of a token's part: which request had the token, and what it was answered.
//!
//! ```text
//! 0 u64 hash of the request | 8 u8 form, 1 | 9 u8 flags | 10 u16, 12 u32 zeros |
//! with flag 1: u32 epoch, u32 0, u64 sequence | then what the answer told, 8 bytes a number
//! ```
//!
//! Without flag 1 the version of the answer is that of the part. A part that is written anew under
//! another version has the flag.

use crate::format::record::{read_u32, read_u64};
use crate::types::version::Version;

/// Bytes of the numbers, at most: those of 255 instructions.
pub const TOKEN_NUMBERS_BYTES_MAX: usize = 255 * 8;

const HEAD_BYTES: usize = 16;
const VERSION_BYTES: usize = 16;
const FORM: u8 = 1;
const FLAG_VERSION: u8 = 1;

/// What is kept of a request and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenAnswer<'a> {
    /// The hash of the request.
    pub request_hash: u64,
    /// The version that was told, if it is not that of the part.
    pub version: Option<Version>,
    /// What else was told.
    pub numbers: &'a [u8],
}

impl<'a> TokenAnswer<'a> {
    /// Bytes that a version takes in the value.
    pub const VERSION_BYTES: usize = VERSION_BYTES;

    /// Bytes of the value.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        HEAD_BYTES + self.version.map_or(0, |_| VERSION_BYTES) + self.numbers.len()
    }

    /// Makes `into` the value.
    ///
    /// # Panics
    /// If the numbers are not whole numbers, or more than [`TOKEN_NUMBERS_BYTES_MAX`].
    pub fn encode(&self, into: &mut Vec<u8>) {
        let len = self.numbers.len();
        assert!(
            len <= TOKEN_NUMBERS_BYTES_MAX && len.is_multiple_of(8),
            "{len} bytes of numbers"
        );
        let flags = self.version.map_or(0, |_| FLAG_VERSION);
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&self.request_hash.to_le_bytes());
        (head[8], head[9]) = (FORM, flags);
        into.clear();
        into.extend_from_slice(&head);
        if let Some(version) = self.version {
            into.extend_from_slice(&u64::from(version.epoch).to_le_bytes());
            into.extend_from_slice(&version.sequence.to_le_bytes());
        }
        into.extend_from_slice(self.numbers);
    }

    /// Reads a value; `None` if it is none.
    #[must_use]
    pub fn decode(value: &'a [u8]) -> Option<Self> {
        let (head, rest) = value.split_first_chunk::<HEAD_BYTES>()?;
        if head[8] != FORM || head[9] & !FLAG_VERSION != 0 || head[10..] != [0; 6] {
            return None;
        }
        let (version, numbers) = match head[9] & FLAG_VERSION {
            0 => (None, rest),
            _ => {
                let (stored, numbers) = rest.split_first_chunk::<VERSION_BYTES>()?;
                let version = Version {
                    epoch: read_u32(&stored[..4]),
                    sequence: read_u64(&stored[8..]),
                };
                (Some(version).filter(|_| stored[4..8] == [0; 4]), numbers)
            }
        };
        let is_whole = numbers.len() <= TOKEN_NUMBERS_BYTES_MAX && numbers.len().is_multiple_of(8);
        let is_sound = version.is_some() == (head[9] == FLAG_VERSION);
        (is_whole && is_sound).then_some(TokenAnswer {
            request_hash: read_u64(&head[..8]),
            version,
            numbers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(answer: &TokenAnswer<'_>) -> Vec<u8> {
        let mut value = vec![9; 3];
        answer.encode(&mut value);
        assert_eq!(value.len(), answer.bytes());
        value
    }

    #[test]
    fn an_answer_comes_back_and_no_bit_of_it_goes_unnoticed() {
        let version = Version {
            epoch: 7,
            sequence: 1 << 40,
        };
        let most = [5; TOKEN_NUMBERS_BYTES_MAX];
        for version in [None, Some(version)] {
            for numbers in [&most[..0], &most[..8], &most] {
                let answer = TokenAnswer {
                    request_hash: 0x0102_0304_0506_0708,
                    version,
                    numbers,
                };
                let value = encoded(&answer);
                assert_eq!(TokenAnswer::decode(&value), Some(answer));
                for bit in 0..8 * value.len().min(48) {
                    let mut other = value.clone();
                    other[bit / 8] ^= 1 << (bit % 8);
                    assert_ne!(TokenAnswer::decode(&other), Some(answer), "bit {bit}");
                }
            }
        }
    }

    #[test]
    fn what_is_cut_or_too_long_is_no_answer() {
        let answer = TokenAnswer {
            request_hash: 1,
            version: Some(Version::default()),
            numbers: &[],
        };
        let value = encoded(&answer);
        for len in 0..value.len() {
            assert_eq!(TokenAnswer::decode(&value[..len]), None, "{len} bytes");
        }
        let long = [value, vec![0; TOKEN_NUMBERS_BYTES_MAX + 8]].concat();
        assert_eq!(TokenAnswer::decode(&long), None);
    }
}
