//! New secrets, of random bytes of the system.

use std::io;

use penstock_net::auth::{KEY_BYTES, SALT_BYTES, Secret};
use penstock_net::users::DECOY_BYTES;

use crate::system::fill_random;

/// Letters and digits that nobody takes for one another, 32 of them.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// So many of them are 130 random bits.
const LETTERS_OF_PASSWORD: usize = 26;

/// A new password, which people can type.
///
/// # Errors
/// The system has no random bytes.
pub fn new_password() -> io::Result<Secret> {
    let mut bytes = [0; LETTERS_OF_PASSWORD];
    fill_random(&mut bytes)?;
    let letters = bytes.iter().map(|byte| LETTERS[usize::from(byte % 32)]);
    let secret = Secret::new(letters.collect());
    bytes.fill(0);
    Ok(secret.expect("26 letters"))
}

/// A new machine key.
///
/// # Errors
/// The system has no random bytes.
pub fn new_key() -> io::Result<Secret> {
    let mut bytes = [0; KEY_BYTES];
    fill_random(&mut bytes)?;
    let secret = Secret::of_key(&bytes);
    bytes.fill(0);
    Ok(secret)
}

/// A new salt.
///
/// # Errors
/// The system has no random bytes.
pub fn new_salt() -> io::Result<[u8; SALT_BYTES]> {
    let mut bytes = [0; SALT_BYTES];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

/// The bytes of a new file's line `decoy`.
///
/// # Errors
/// The system has no random bytes.
pub fn new_decoy() -> io::Result<[u8; DECOY_BYTES]> {
    let mut bytes = [0; DECOY_BYTES];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use penstock_net::auth::SecretKind;

    use super::*;

    #[test]
    fn two_secrets_differ_and_are_of_their_kinds() {
        let (one, two) = (
            new_password().expect("random"),
            new_password().expect("random"),
        );
        assert!(one.expose() != two.expose());
        assert_eq!(one.kind(), SecretKind::Password);
        assert!(one.expose().iter().all(|byte| LETTERS.contains(byte)));
        let (one, two) = (new_key().expect("random"), new_key().expect("random"));
        assert!(one.expose() != two.expose());
        assert_eq!(one.kind(), SecretKind::Key);
    }
}
