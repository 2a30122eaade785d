//! Tokens: a name that a client gives a write, so that the same write sent again gets the first
//! answer.
//!
//! A token is a UUID of version 7 (RFC 9562): 48 bits of unix milliseconds, then random bits. Or it
//! is a text: a digest of the text alone, and beside it the time when the write was sent first.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::batch::{read_u16, read_u64};
use crate::refusal::Refusal;

/// The name of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(Form);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Form {
    Uuid([u8; Token::BYTES]),
    Text {
        sent_ms: u64,
        digest: [u8; Token::DIGEST_BYTES],
    },
}

/// What the digest of a text begins with: no other use of SHA-256 gives the same digests.
const TEXT_DOMAIN: &[u8] = b"penstock text token\0";

impl Token {
    /// Bytes of a token that is a UUID.
    pub const BYTES: usize = 16;
    /// Bytes of the digest of a text: its SHA-256.
    pub const DIGEST_BYTES: usize = 32;
    /// Bytes of a token that is a text, in an item: its time and its digest.
    pub const TEXT_BYTES: usize = 8 + Token::DIGEST_BYTES;
    /// The longest text, in bytes.
    pub const TEXT_LEN_MAX: usize = 64;

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
        Token(Form::Uuid(bytes))
    }

    /// The token that is this text, of a write that was sent first at this time in unix
    /// milliseconds. The same text of another time is the same token. `None` of a text that is
    /// empty or longer than [`Token::TEXT_LEN_MAX`], and of a time beyond 48 bits.
    #[must_use]
    pub fn of_text(text: &[u8], sent_ms: u64) -> Option<Self> {
        let is_good = (1..=Token::TEXT_LEN_MAX).contains(&text.len()) && sent_ms < 1 << 48;
        is_good.then(|| {
            let digest = Sha256::new().chain_update(TEXT_DOMAIN).chain_update(text);
            let digest = digest.finalize().into();
            Token(Form::Text { sent_ms, digest })
        })
    }

    /// The token of an item, [`Token::BYTES`] or [`Token::TEXT_BYTES`].
    ///
    /// # Errors
    /// [`Refusal::TokenForm`] or [`Refusal::TokenTime`].
    pub(crate) fn read_item(bytes: &[u8]) -> Result<Self, Refusal> {
        match bytes.first_chunk::<{ Token::TEXT_BYTES }>() {
            None => Token::read(*bytes.first_chunk().expect("the length was compared")),
            Some(bytes) => match read_u64(bytes, 0) {
                sent_ms if sent_ms < 1 << 48 => Ok(Token::checked(bytes)),
                sent_ms => Err(Refusal::TokenTime { sent_ms }),
            },
        }
    }

    /// The token with these bytes.
    ///
    /// # Errors
    /// [`Refusal::TokenForm`] if they are no UUID of version 7.
    pub fn read(bytes: [u8; Token::BYTES]) -> Result<Self, Refusal> {
        let (version, variant) = (bytes[6] >> 4, bytes[8] >> 6);
        match (version, variant) {
            (7, 0b10) => Ok(Token(Form::Uuid(bytes))),
            _ => Err(Refusal::TokenForm { version, variant }),
        }
    }

    /// The token of an item that was read before.
    ///
    /// # Panics
    /// If its length is that of no token.
    #[inline]
    pub(crate) fn checked(bytes: &[u8]) -> Self {
        match bytes.len() {
            Token::BYTES => Token(Form::Uuid(*bytes.first_chunk().expect("as long"))),
            _ => Token(Form::Text {
                sent_ms: read_u64(bytes, 0),
                digest: *bytes.last_chunk().expect("the token of an item"),
            }),
        }
    }

    /// What names it: the bytes of a UUID, the digest of a text.
    #[inline]
    #[must_use]
    pub fn name(&self) -> &[u8] {
        match &self.0 {
            Form::Uuid(bytes) => bytes,
            Form::Text { digest, .. } => digest,
        }
    }

    /// Whether it is a text.
    #[inline]
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!(self.0, Form::Text { .. })
    }

    /// Its bytes in an item: the first so many of them.
    #[inline]
    pub(super) fn item_bytes(self) -> ([u8; Token::TEXT_BYTES], usize) {
        let mut bytes = [0; Token::TEXT_BYTES];
        match self.0 {
            Form::Uuid(uuid) => {
                bytes[..Token::BYTES].copy_from_slice(&uuid);
                (bytes, Token::BYTES)
            }
            Form::Text { sent_ms, digest } => {
                bytes[..8].copy_from_slice(&sent_ms.to_le_bytes());
                bytes[8..].copy_from_slice(&digest);
                (bytes, Token::TEXT_BYTES)
            }
        }
    }

    /// Its time, in unix milliseconds: of a text when it was sent first.
    #[must_use]
    pub fn time_ms(self) -> u64 {
        match self.0 {
            Form::Uuid([a, b, c, d, e, f, ..]) => u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
            Form::Text { sent_ms, .. } => sent_ms,
        }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.name().iter().enumerate() {
            let dash = if !self.is_text() && matches!(at, 4 | 6 | 8 | 10) {
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
        assert_eq!(Token::read_item(token.name()), Ok(token));
        let random = token.name()[6..].try_into().expect("ten bytes");
        assert_eq!(Token::new(token.time_ms(), random), token);
    }

    #[test]
    fn a_token_that_is_made_has_its_form_and_time_whatever_is_random() {
        for random in [[0; 10], [0xFF; 10]] {
            for time_ms in [0, 1_764_000_000_000, (1 << 48) - 1] {
                let token = Token::new(time_ms, random);
                assert_eq!(Token::read_item(token.name()), Ok(token));
                assert_eq!(token.time_ms(), time_ms);
            }
        }
    }

    #[test]
    fn a_text_is_one_token_whatever_its_time_and_no_other_text_or_uuid_is_that_one() {
        let of = |text: &[u8], ms| Token::of_text(text, ms).expect("a token");
        let token = of(b"order-17", 1_795_902_919_309);
        assert_eq!(token.name(), of(b"order-17", 7).name());
        assert_eq!(token.time_ms(), 1_795_902_919_309);
        // Written to the log of every server.
        let shown = "93f571eea168240f8a59be2df3ddeddb646862672d89a3ecb68f85e91a31928b";
        assert_eq!(token.to_string(), shown);
        for other in [&b"order-18"[..], b"Order-17", b"order-17\0", b"o"] {
            assert_ne!(token.name(), of(other, 7).name());
        }
        let uuid = of(TOKEN.as_bytes(), 7);
        assert_ne!(uuid.name(), TOKEN.parse::<Token>().expect("a UUID").name());
        let (bytes, len) = token.item_bytes();
        assert_eq!(Token::read_item(&bytes[..len]), Ok(token));
        assert_eq!(Token::of_text(b"", 7), None);
        assert_eq!(Token::of_text(&[b'x'; 65], 7), None);
        assert!(Token::of_text(&[0; 64], (1 << 48) - 1).is_some());
        assert_eq!(Token::of_text(b"x", 1 << 48), None);
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
