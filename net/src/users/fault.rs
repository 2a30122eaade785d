//! What is wrong with a users' file, and in which line.

use std::fmt;

use thiserror::Error;

use crate::auth::VerifierFault;
use crate::limits::{
    CERTIFICATE_NAME_BYTES_MAX, KEY_NAME_BYTES_MAX, USER_KEYS_MAX, USER_NAME_BYTES_MAX,
    USERS_FILE_BYTES_MAX, USERS_MAX, USERS_PREFIXES_MAX,
};
use crate::rights::GrantError;

/// Bytes of a word that a message shows: a stored secret that lost its place is longer.
const SHOWN_BYTES_MAX: usize = 24;

/// The first thing that is wrong with a users' file. The text of `Display` is without the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsersError {
    /// From 1.
    pub line: usize,
    /// What it is.
    pub fault: UsersFault,
}

/// What is wrong in a line. No variant has a stored secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each variant has the text that people read")]
pub enum UsersFault {
    #[error(
        "the file has {0} bytes; at most {max} bytes are accepted",
        max = USERS_FILE_BYTES_MAX
    )]
    FileLength(usize),
    #[error("the file ends within a line: its end is missing")]
    Cut,
    #[error("the file has no line decoy: {}", DECOY_HINT)]
    NoDecoy,
    #[error("decoy stands before the first user, and once")]
    Decoy,
    #[error("decoy takes 32 bytes in base64: {}", DECOY_HINT)]
    DecoyForm,
    #[error("the line is no UTF-8")]
    Utf8,
    #[error("the byte {byte:#04x} stands at byte {at} of the line: the file is damaged")]
    Control { byte: u8, at: usize },
    #[error("the quote at byte {0} of the line has no end")]
    Unquoted(usize),
    #[error("{}: a word with one of \" \\ # or beyond ASCII stands in quotes", Shown(.0))]
    Unquotable(String),
    #[error("{}: within quotes stand \\\" \\\\ and \\x with two digits", Shown(.0))]
    Escape(String),
    #[error("{}: a blank stands between two words", Shown(.0))]
    Glued(String),
    #[error(
        "{}: a line begins with user, password, key, certificate, read, write, run, admin, \
         decoy or #",
        Shown(.0)
    )]
    Unknown(String),
    #[error("{0} stands before the first user")]
    BeforeUser(&'static str),
    #[error("{what} takes {takes}, not {found} words")]
    Words {
        what: &'static str,
        takes: &'static str,
        found: usize,
    },
    #[error(
        "{}: the name of a user has 1 to {max} of A-Z a-z 0-9 _ . - and begins with a letter or \
         a digit",
        Shown(.0),
        max = USER_NAME_BYTES_MAX
    )]
    UserName(String),
    #[error(
        "{}: the name of a key has 1 to {max} of A-Z a-z 0-9 _ . - and begins with a letter or \
         a digit",
        Shown(.0),
        max = KEY_NAME_BYTES_MAX
    )]
    KeyName(String),
    #[error("user {name} stands in line {first} already")]
    UserTwice { name: String, first: usize },
    #[error("{max} users stand in the file already, which is the limit", max = USERS_MAX)]
    Users,
    #[error("user {0} has a password already")]
    PasswordTwice(String),
    #[error("user {user} has a key {key} already")]
    KeyTwice { user: String, key: String },
    #[error("user {0} has {max} keys already, which is the limit", max = USER_KEYS_MAX)]
    Keys(String),
    #[error("user {0} has a certificate already")]
    CertificateTwice(String),
    #[error("the certificate {} is that of user {user}", Shown(.certificate))]
    CertificateOfTwo { certificate: String, user: String },
    #[error(
        "the name in a certificate has 1 to {max} bytes of text, not {0}",
        max = CERTIFICATE_NAME_BYTES_MAX
    )]
    CertificateLength(usize),
    #[error("user {0} has no password, no key and no certificate: nobody can log in")]
    NoCredential(String),
    #[error(transparent)]
    Verifier(#[from] VerifierFault),
    #[error("this stored secret is that of a key: it stands behind key and a name")]
    KeyAsPassword,
    #[error("this stored secret is that of a password: it stands behind password")]
    PasswordAsKey,
    #[error("{0} names no prefix of keys; \"\" is all keys")]
    NoPrefix(&'static str),
    #[error("run takes programs, the word on, and prefixes: run buy on stock:")]
    RunForm,
    #[error(
        "{}: the name of a program has letters, digits, _ and -; * is every program",
        Shown(.0)
    )]
    ProgramName(String),
    #[error(
        "{}: a prefix stands for all keys that begin so, without a *; quoted it is a byte of keys",
        Shown(.0)
    )]
    Star(String),
    #[error(transparent)]
    Grant(#[from] GrantError),
    #[error(
        "all users together have more than {max} prefixes, which is the limit",
        max = USERS_PREFIXES_MAX
    )]
    Prefixes,
}

const DECOY_HINT: &str = "penstock user add writes the line into a new file";

impl UsersFault {
    pub(super) fn at(self, line: usize) -> UsersError {
        UsersError { line, fault: self }
    }
}

impl fmt::Display for UsersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.fault)
    }
}

impl std::error::Error for UsersError {}

/// A word of the file, on one line and not too long.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.as_bytes();
        let secret = bytes.iter().position(|byte| *byte == b'$');
        let end = secret.unwrap_or(bytes.len()).min(SHOWN_BYTES_MAX);
        let more = if end < bytes.len() { "..." } else { "" };
        write!(f, "\"{}{more}\"", bytes[..end].escape_ascii())
    }
}
