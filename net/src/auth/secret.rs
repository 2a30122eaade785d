//! A password or a key, in memory that is wiped.

use base64ct::{Base64UrlUnpadded, Encoding};
use thiserror::Error;
use zeroize::Zeroizing;

/// Bytes of a secret, at most; at least 1.
pub const SECRET_BYTES_MAX: usize = 512;
/// Random bytes of a key.
pub const KEY_BYTES: usize = 32;
/// What the text of a key begins with, so that people and scanners of sources know a key.
pub const KEY_PREFIX: &str = "penstock_key_";

/// Length of the text behind the prefix.
const KEY_TEXT_BYTES: usize = 43;

/// A secret. It has no `Debug` and no `Display`, and wipes its bytes at its end.
pub struct Secret(Zeroizing<Vec<u8>>);

/// How a secret was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretKind {
    /// By a person: a slow hash stands between the stored form and the secret.
    Password,
    /// Of 256 random bits: nobody can try them all, so no slow hash is needed.
    Key,
}

/// A text is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SecretFault {
    /// It is empty or too long.
    #[error("a secret has 1 to {max} bytes, not {0}", max = SECRET_BYTES_MAX)]
    Length(usize),
    /// It has lines or other bytes that nobody types.
    #[error("a secret has no byte below 0x20, and one of {0:#04x} stands at {1}")]
    Control(u8, usize),
}

impl Secret {
    /// The secret of these bytes, which are wiped if they are none.
    ///
    /// # Errors
    /// [`SecretFault`] that names the length or the byte, and no other byte.
    pub fn new(bytes: Vec<u8>) -> Result<Self, SecretFault> {
        let bytes = Zeroizing::new(bytes);
        if !(1..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Err(SecretFault::Length(bytes.len()));
        }
        match bytes.iter().position(|&byte| byte < 0x20) {
            Some(at) => Err(SecretFault::Control(bytes[at], at)),
            None => Ok(Secret(bytes)),
        }
    }

    /// The secret that is all of a file, but for one end of a line behind it.
    ///
    /// # Errors
    /// As [`Secret::new`].
    pub fn of_file(mut bytes: Vec<u8>) -> Result<Self, SecretFault> {
        for end in *b"\n\r" {
            if bytes.last() == Some(&end) {
                bytes.pop();
            }
        }
        Self::new(bytes)
    }

    /// The text of a key of random bytes.
    #[must_use]
    pub fn of_key(key: &[u8; KEY_BYTES]) -> Self {
        let mut text = Zeroizing::new(vec![0; KEY_PREFIX.len() + KEY_TEXT_BYTES]);
        let (prefix, rest) = text.split_at_mut(KEY_PREFIX.len());
        prefix.copy_from_slice(KEY_PREFIX.as_bytes());
        Base64UrlUnpadded::encode(key, rest).expect("43 characters are 32 bytes");
        Secret(text)
    }

    /// A key, if it has the form of one.
    #[must_use]
    pub fn kind(&self) -> SecretKind {
        let rest = self.0.strip_prefix(KEY_PREFIX.as_bytes());
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        let is_key = rest.is_some_and(|rest| {
            rest.len() == KEY_TEXT_BYTES && Base64UrlUnpadded::decode(rest, &mut key[..]).is_ok()
        });
        match is_key {
            true => SecretKind::Key,
            false => SecretKind::Password,
        }
    }

    /// The bytes. What copies them wipes the copy.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_by_its_form_and_everything_else_is_a_password() {
        let key = Secret::of_key(&[0xA5; KEY_BYTES]);
        assert_eq!(key.kind(), SecretKind::Key);
        let text = String::from_utf8(key.expose().to_vec()).expect("text");
        assert!(text.starts_with("penstock_key_"), "{text}");
        for other in [
            &text[..text.len() - 1],
            &format!("{text}A"),
            &text[1..],
            "pencil",
        ] {
            let secret = Secret::new(other.as_bytes().to_vec()).expect("a secret");
            assert_eq!(secret.kind(), SecretKind::Password, "{other}");
        }
    }

    #[test]
    fn a_secret_of_a_file_loses_one_end_of_line_and_others_are_refused_without_being_shown() {
        for text in ["pencil", "pencil\n", "pencil\r\n"] {
            let secret = Secret::of_file(text.as_bytes().to_vec()).expect("a secret");
            assert_eq!(secret.expose(), b"pencil");
        }
        let fault_of = |bytes: &[u8]| Secret::of_file(bytes.to_vec()).err().expect("refused");
        assert_eq!(fault_of(b"pencil\n\n"), SecretFault::Control(b'\n', 6));
        assert_eq!(fault_of(b"\n"), SecretFault::Length(0));
        assert_eq!(fault_of(&[b'x'; 513]), SecretFault::Length(513));
        assert!(!fault_of(b"pencil\n\n").to_string().contains("pencil"));
    }
}
