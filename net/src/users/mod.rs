//! The users of a server, as their file says it: `RIGHTS.md` describes each line.
//!
//! ```text
//! text --> lines --> words --> Users: name --> what is kept of the secrets, rights
//!   ^                            |
//!   +------ Display -------------+     UsersText edits the text and keeps comments
//! ```
//!
//! What must hold: what is printed reads back as the same users; a text is taken whole or not at
//! all; an error names the line and never a stored secret.

mod edit;
mod fault;
mod file;
mod line;
mod logins;
mod right_line;
mod user;

use std::fmt;

use base64ct::{Base64, Encoding};

use crate::auth::Verifier;

pub use edit::{EditError, UsersText};
pub use fault::{UsersError, UsersFault};
pub use user::User;

/// Random bytes from which made-up salts come.
pub const DECOY_BYTES: usize = 32;

/// All users of a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Users {
    decoy: [u8; DECOY_BYTES],
    /// Ascending by name.
    all: Vec<User>,
    /// Names in certificates, ascending, and whose they are.
    certificates: Vec<(String, usize)>,
}

impl Users {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The first [`UsersError`].
    pub fn read(text: &[u8]) -> Result<Users, UsersError> {
        file::read(text)
    }

    /// No two of these have one name, or one certificate.
    fn new(decoy: [u8; DECOY_BYTES], mut all: Vec<User>) -> Self {
        all.sort_by(|one, other| one.name.cmp(&other.name));
        let numbered = all.iter().enumerate();
        let certificates = numbered.filter_map(|(at, it)| Some((it.certificate.clone()?, at)));
        let mut certificates: Vec<(String, usize)> = certificates.collect();
        certificates.sort();
        Users {
            decoy,
            all,
            certificates,
        }
    }

    /// From these bytes come made-up salts of users that there are not. Whoever asks twice gets the
    /// same answer, at every node and after every start.
    #[must_use]
    pub fn decoy(&self) -> &[u8; DECOY_BYTES] {
        &self.decoy
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All of them, ascending by name.
    pub fn iter(&self) -> impl Iterator<Item = &User> {
        self.all.iter()
    }

    /// The user with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&User> {
        let at = self.all.binary_search_by(|user| user.name[..].cmp(name));
        self.all.get(at.ok()?)
    }

    /// Who logs in by this name, and what is kept of the secret: `ann` by the password, `ann/till`
    /// by the key `till`.
    #[must_use]
    pub fn login(&self, login: &str) -> Option<(&User, &Verifier)> {
        match login.split_once('/') {
            None => {
                let user = self.find(login)?;
                Some((user, user.password()?))
            }
            Some((name, key)) => {
                let user = self.find(name)?;
                Some((user, user.keys.get(key)?))
            }
        }
    }

    /// Who logs in with a certificate that has this name.
    #[must_use]
    pub fn of_certificate(&self, name: &str) -> Option<&User> {
        let known = &self.certificates;
        let at = known.binary_search_by(|(certificate, _)| certificate[..].cmp(name));
        self.all.get(known[at.ok()?].1)
    }
}

/// Shows nothing that is kept.
impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.all).finish()
    }
}

/// The text of a file with these users.
impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "decoy {}", Base64::encode_string(&self.decoy))?;
        self.all.iter().try_for_each(|user| write!(f, "\n{user}"))
    }
}
