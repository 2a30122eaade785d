//! Tokens: a name that a client gives a write, so that the same write sent again gets the first
//! answer.
//!
//! A token is a UUID of version 7 (RFC 9562): 48 bits of unix milliseconds, then random bits.

use std::fmt;
use std::str::FromStr;

use crate::batch::{read_u16, read_u64};
use crate::refusal::Refusal;

/// The name of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token([u8; Token::BYTES]);

impl Token {
    /// Bytes of a token.
    pub const BYTES: usize = 16;

    /// A token of this time in unix milliseconds; of `random` 74 bits are used.
    ///
    /// Two writes must never have the same token, so `random` must come from a good source.
    #[must_use]
    pub fn new(time_ms: u64, random: [u8; 10]) -> Self {
        let mut bytes = [0; Token::BYTES];
        bytes[..6].copy_from_slice(&time_ms.to_be_bytes()[2..]);
        bytes[6..].copy_from_slice(&random);
        bytes[6] = 0x70 | bytes[6] & 0x0F;
        bytes[8] = 0x80 | bytes[8] & 0x3F;
        Token(bytes)
    }

    /// The token with these bytes.
    ///
    /// # Errors
    /// [`Refusal::TokenForm`] if they are no UUID of version 7.
    pub fn read(bytes: [u8; Token::BYTES]) -> Result<Self, Refusal> {
        let (version, variant) = (bytes[6] >> 4, bytes[8] >> 6);
        match (version, variant) {
            (7, 0b10) => Ok(Token(bytes)),
            _ => Err(Refusal::TokenForm { version, variant }),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(self) -> [u8; Token::BYTES] {
        self.0
    }

    /// Its time, in unix milliseconds.
    #[must_use]
    pub fn time_ms(self) -> u64 {
        let [a, b, c, d, e, f, ..] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) {
                "-"
            } else {
                ""
            };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// A text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenTextError {
    /// It is not of the form of a UUID.
    #[error("a token is a UUID: 32 hexadecimal digits, in groups of 8, 4, 4, 4 and 12")]
    Form,
    /// It is another kind of UUID.
    #[error("{0}")]
    Version(Refusal),
}

impl FromStr for Token {
    type Err = TokenTextError;

    fn from_str(text: &str) -> Result<Self, TokenTextError> {
        let groups: Vec<&str> = text.split('-').collect();
        let lens = groups.iter().map(|group| group.len());
        if !lens.eq([8, 4, 4, 4, 12]) {
            return Err(TokenTextError::Form);
        }
        let digits = groups.concat().into_bytes();
        let mut bytes = [0; Token::BYTES];
        for (byte, two) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            let value = |digit: u8| char::from(digit).to_digit(16);
            let [high, low] = two.map(value);
            let both = high.zip(low).ok_or(TokenTextError::Form)?;
            *byte = u8::try_from(both.0 * 16 + both.1).expect("two digits");
        }
        Token::read(bytes).map_err(TokenTextError::Version)
    }
}

/// What a retry of an item must have in common with it: a hash of all of the item but its
/// extension. It is written to the log, so it never changes.
///
/// Each word of eight bytes, little-endian, is mixed in by `h = (rotate_left(h, 5) ^ word) * K`,
/// beginning with [`HASH_START`]. It tells mistakes apart and withstands no attack.
///
/// # Panics
/// If the item was not read before: its lengths are believed.
#[must_use]
pub fn request_hash(item: &[u8]) -> u64 {
    /// All but the length of the block and that of the extension.
    const FIELDS: u64 = 0x0000_FFFF_FFFF_0000;
    let block = usize::from(read_u16(item, 0));
    let extension = block - usize::from(read_u16(item, 6));
    let head = mix(HASH_START, read_u64(item, 0) & FIELDS);
    let words = item[8..extension].as_chunks::<8>().0.iter();
    let words = words.chain(item[block..].as_chunks::<8>().0);
    words.fold(head, |hash, word| mix(hash, u64::from_le_bytes(*word)))
}

/// What [`request_hash`] begins with.
const HASH_START: u64 = 0xCBF2_9CE4_8422_2325;

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    const K: u64 = 0x517C_C1B7_2722_0A95;
    (hash.rotate_left(5) ^ word).wrapping_mul(K)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::AckLevel;
    use crate::request::{BatchRequest, Condition};

    const TOKEN: &str = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";

    #[test]
    fn a_token_is_written_and_read_as_rfc_9562_shows_it() {
        let token: Token = TOKEN.parse().expect("the example of RFC 9562, A.6");
        assert_eq!(token.time_ms(), 0x017F_22E2_79B0);
        assert_eq!(token.to_string(), TOKEN);
        assert_eq!(Token::read(token.bytes()), Ok(token));
        let random = token.bytes()[6..].try_into().expect("ten bytes");
        assert_eq!(Token::new(token.time_ms(), random), token);
    }

    #[test]
    fn a_token_that_is_made_has_its_form_and_time_whatever_is_random() {
        for random in [[0; 10], [0xFF; 10]] {
            for time_ms in [0, 1_764_000_000_000, (1 << 48) - 1] {
                let token = Token::new(time_ms, random);
                assert_eq!(Token::read(token.bytes()), Ok(token));
                assert_eq!(token.time_ms(), time_ms);
            }
        }
    }

    #[test]
    fn other_uuids_and_other_texts_are_refused_by_name() {
        let refused = |text: &str| text.parse::<Token>().expect_err("refused").to_string();
        assert_eq!(
            refused("919108f7-52d1-4320-9bac-f847db4148a8"),
            "a token is a UUID of version 7 and variant 2, not of version 4 and variant 2"
        );
        assert_eq!(
            refused("017f22e2-79b0-7cc3-d8c4-dc0c0c07398f"),
            "a token is a UUID of version 7 and variant 2, not of version 7 and variant 3"
        );
        for text in ["", "017f22e279b07cc398c4dc0c0c07398f", &TOKEN[1..], "é"] {
            assert!(refused(text).starts_with("a token is a UUID: "), "{text}");
        }
        assert!(refused(&TOKEN.replace('f', "g")).starts_with("a token is a UUID: "));
    }

    fn item(token: Option<Token>, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        let mut batch = BatchRequest::begin(&mut frame, 0, AckLevel::Disk, 0, 1);
        if let Some(token) = token {
            batch.token(token);
        }
        batch.set(&mut frame, key, value, Condition::Present);
        batch.finish(&mut frame);
        frame.split_off(crate::frame::HEADER_BYTES + 16)
    }

    #[test]
    fn the_hash_is_that_of_the_item_without_its_token() {
        let plain = item(None, b"a key", b"a value");
        let hash = request_hash(&plain);
        // Written to the log of every server.
        assert_eq!(hash, 0x5404_0E0C_BFFA_7ADF);
        for random in [[0; 10], [7; 10]] {
            let token = Token::new(1_764_000_000_000, random);
            assert_eq!(request_hash(&item(Some(token), b"a key", b"a value")), hash);
        }
    }

    #[test]
    fn another_bit_of_the_item_gives_another_hash() {
        let plain = item(None, b"a key", b"a value of some length");
        let hash = request_hash(&plain);
        for bit in (0..plain.len() * 8).filter(|bit| !matches!(bit / 8, 0 | 1 | 6 | 7)) {
            let mut other = plain.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(request_hash(&other), hash, "bit {bit}");
        }
    }
}
