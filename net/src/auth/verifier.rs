//! What a server keeps of a secret: enough to check a proof, and nothing that makes one.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64, Encoding};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::Zeroizing;

use super::secret::{Secret, SecretKind};

/// Bytes of a salt.
pub const SALT_BYTES: usize = 16;
/// Rounds of the slow hash of new passwords.
pub const PASSWORD_ITERATIONS: u32 = 32_768;
/// Rounds of a password, at least: what RFC 7677 demands.
pub const PASSWORD_ITERATIONS_MIN: u32 = 4_096;
/// Rounds, at most.
pub const ITERATIONS_MAX: u32 = 1_000_000;
/// Rounds of a key: nobody can try 256 random bits, so a slow hash would protect nothing.
pub const KEY_ITERATIONS: u32 = 1;

/// Bytes of a digest.
pub(super) const DIGEST_BYTES: usize = 32;
pub(super) type Bytes32 = [u8; DIGEST_BYTES];

/// The salt of all keys: random bits need none, and a user may so have several keys.
pub(super) const KEY_SALT: [u8; SALT_BYTES] = *b"penstock machine";

const SCHEME: &str = "SCRAM-SHA-256";

/// The stored form of a secret. Its text is that of PostgreSQL:
/// `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`, all but the number in base64.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    /// Random bytes of its own, so that one table does not serve for many; of a key a constant.
    pub salt: [u8; SALT_BYTES],
    /// Rounds of the slow hash.
    pub iterations: u32,
    /// What a proof is checked with.
    pub stored_key: [u8; DIGEST_BYTES],
    /// What the server proves itself with.
    pub server_key: [u8; DIGEST_BYTES],
}

/// A text is no verifier. No variant has what stands in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum VerifierFault {
    /// It has another form.
    #[error("a stored secret is SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey")]
    Form,
    /// One of its three fields is not base64 of so many bytes.
    #[error("the {field} of a stored secret is {bytes} bytes in base64")]
    Field {
        /// Which.
        field: &'static str,
        /// How long it is.
        bytes: usize,
    },
    /// The rounds are too few for a password or too many.
    #[error(
        "a stored password has {min} to {max} iterations, not {0}",
        min = PASSWORD_ITERATIONS_MIN,
        max = ITERATIONS_MAX
    )]
    Iterations(u32),
}

/// HMAC-SHA-256.
pub(super) fn hmac(key: &[u8], parts: &[&[u8]]) -> Bytes32 {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// SHA-256.
pub(super) fn sha256(bytes: &[u8]) -> Bytes32 {
    Sha256::digest(bytes).into()
}

/// The slow part: so many rounds over a secret.
#[must_use]
pub fn salted(secret: &Secret, salt: &[u8], iterations: u32) -> Zeroizing<[u8; DIGEST_BYTES]> {
    let mut salted = Zeroizing::new([0; DIGEST_BYTES]);
    pbkdf2::pbkdf2_hmac::<Sha256>(secret.expose(), salt, iterations, &mut salted[..]);
    salted
}

impl Verifier {
    /// The verifier of a secret. `salt` is new and random; a key does not use it.
    #[must_use]
    pub fn new(secret: &Secret, salt: [u8; SALT_BYTES]) -> Self {
        match secret.kind() {
            SecretKind::Password => Self::with(secret, salt, PASSWORD_ITERATIONS),
            SecretKind::Key => Self::with(secret, KEY_SALT, KEY_ITERATIONS),
        }
    }

    /// The same with another number of rounds, for stored secrets of other servers.
    #[must_use]
    pub fn with(secret: &Secret, salt: [u8; SALT_BYTES], iterations: u32) -> Self {
        let salted = salted(secret, &salt, iterations);
        let client_key = Zeroizing::new(hmac(&salted[..], &[b"Client Key"]));
        Verifier {
            salt,
            iterations,
            stored_key: sha256(&client_key[..]),
            server_key: hmac(&salted[..], &[b"Server Key"]),
        }
    }

    /// Of a password or of a key.
    #[must_use]
    pub fn kind(&self) -> SecretKind {
        match self.iterations == KEY_ITERATIONS && self.salt == KEY_SALT {
            true => SecretKind::Key,
            false => SecretKind::Password,
        }
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base64 = |bytes: &[u8]| Base64::encode_string(bytes);
        write!(
            f,
            "{SCHEME}${}:{}${}:{}",
            self.iterations,
            base64(&self.salt),
            base64(&self.stored_key),
            base64(&self.server_key)
        )
    }
}

/// Shows no part of the keys.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verifier({} iterations)", self.iterations)
    }
}

impl FromStr for Verifier {
    type Err = VerifierFault;

    fn from_str(text: &str) -> Result<Self, VerifierFault> {
        let parts = || {
            let (scheme, rest) = text.split_once('$')?;
            let (rounds, keys) = rest.split_once('$')?;
            let (iterations, salt) = rounds.split_once(':')?;
            let (stored_key, server_key) = keys.split_once(':')?;
            let is_number = iterations.bytes().all(|byte| byte.is_ascii_digit());
            let iterations = iterations.parse::<u32>().ok()?;
            (scheme == SCHEME && is_number).then_some((iterations, salt, stored_key, server_key))
        };
        let (iterations, salt, stored_key, server_key) = parts().ok_or(VerifierFault::Form)?;
        let verifier = Verifier {
            salt: field("salt", salt)?,
            iterations,
            stored_key: field("StoredKey", stored_key)?,
            server_key: field("ServerKey", server_key)?,
        };
        let is_password = (PASSWORD_ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations);
        match verifier.kind() == SecretKind::Key || is_password {
            true => Ok(verifier),
            false => Err(VerifierFault::Iterations(iterations)),
        }
    }
}

fn field<const N: usize>(field: &'static str, text: &str) -> Result<[u8; N], VerifierFault> {
    let mut bytes = [0; N];
    let decoded = Base64::decode(text, &mut bytes).map(<[u8]>::len);
    match decoded == Ok(N) {
        true => Ok(bytes),
        false => Err(VerifierFault::Field { field, bytes: N }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::KEY_BYTES;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec()).expect("a secret")
    }

    /// The secret of RFC 7677, section 3, as PostgreSQL stores it.
    const PENCIL: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==\
        $WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    #[test]
    fn the_text_of_a_verifier_is_that_of_postgresql_and_reads_back() {
        let read: Verifier = PENCIL.parse().expect("a verifier");
        let made = Verifier::with(&secret("pencil"), read.salt, 4096);
        assert!(made == read, "{made}");
        assert_eq!(made.to_string(), PENCIL);
        let key = Verifier::new(&Secret::of_key(&[7; KEY_BYTES]), [1; SALT_BYTES]);
        assert_eq!(
            (key.kind(), key.iterations),
            (SecretKind::Key, KEY_ITERATIONS)
        );
        assert!(key == key.to_string().parse().expect("it reads back"));
        let password = Verifier::new(&secret("pencil"), [1; SALT_BYTES]);
        assert_eq!(password.kind(), SecretKind::Password);
        assert!(password == password.to_string().parse().expect("it reads back"));
    }

    #[test]
    fn a_text_that_is_no_verifier_is_refused_by_what_is_wrong_and_never_shown() {
        let read = |text: &str| text.parse::<Verifier>().expect_err("refused");
        for cut in 0..PENCIL.len() {
            let message = read(&PENCIL[..cut]).to_string();
            assert!(
                !message.contains("W22Z") && !message.contains("WG5d"),
                "{message}"
            );
        }
        assert_eq!(
            read(&PENCIL.replace("4096", "4095")),
            VerifierFault::Iterations(4095)
        );
        assert_eq!(
            read(&PENCIL.replace("4096", "1")),
            VerifierFault::Iterations(1)
        );
        let many = PENCIL.replace("4096", "1000001");
        assert_eq!(read(&many), VerifierFault::Iterations(1_000_001));
        assert_eq!(read(&PENCIL.replace("4096", "+4096")), VerifierFault::Form);
        assert_eq!(read(&PENCIL.replace("256", "1")), VerifierFault::Form);
        let bytes = 32;
        let field = "ServerKey";
        assert_eq!(
            read(&format!("{PENCIL} ")),
            VerifierFault::Field { field, bytes }
        );
        assert_eq!(
            format!("{:?}", PENCIL.parse::<Verifier>()),
            "Ok(Verifier(4096 iterations))"
        );
    }
}
