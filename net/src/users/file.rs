//! Reads the text of a users' file, line by line.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64ct::{Base64, Encoding};

use crate::auth::{SecretKind, Verifier};
use crate::limits::{
    CERTIFICATE_NAME_BYTES_MAX, KEY_NAME_BYTES_MAX, USER_KEYS_MAX, USER_NAME_BYTES_MAX,
    USERS_FILE_BYTES_MAX, USERS_MAX, USERS_PREFIXES_MAX,
};
use crate::rights::{Grants, Right, Rights};

use super::fault::{UsersError, UsersFault};
use super::line::{Word, split};
use super::right_line::RightLine;
use super::{DECOY_BYTES, User, Users};

/// The users of a file, up to the line that is read.
#[derive(Default)]
struct Draft {
    decoy: Option<[u8; DECOY_BYTES]>,
    users: Vec<User>,
    /// In which line each of them begins.
    lines: HashMap<String, usize>,
    /// Whose each certificate is.
    certificates: HashMap<String, String>,
    prefixes: usize,
}

/// Reads a file.
pub(super) fn read(text: &[u8]) -> Result<Users, UsersError> {
    if text.len() > USERS_FILE_BYTES_MAX {
        return Err(UsersFault::FileLength(text.len()).at(1));
    }
    let mut draft = Draft::default();
    let mut lines = text.split(|byte| *byte == b'\n');
    // What stands behind the last newline.
    let rest = lines.next_back().unwrap_or_default();
    let mut count = 0;
    for line in lines {
        count += 1;
        let line = str::from_utf8(line).map_err(|_| UsersFault::Utf8.at(count))?;
        draft.line(line, count)?;
    }
    if !rest.is_empty() {
        return Err(UsersFault::Cut.at(count + 1));
    }
    draft.end_user()?;
    match draft.decoy {
        Some(decoy) => Ok(Users::new(decoy, draft.users)),
        None => Err(UsersFault::NoDecoy.at(count.max(1))),
    }
}

impl Draft {
    fn line(&mut self, line: &str, number: usize) -> Result<(), UsersError> {
        let (words, _) = split(line).map_err(|fault| fault.at(number))?;
        let Some((first, words)) = words.split_first() else {
            return Ok(());
        };
        let read = match first.raw {
            "decoy" => self.decoy(words),
            "user" => {
                self.end_user()?;
                self.user(words, number)
            }
            "password" => self.password(words),
            "key" => self.key(words),
            "certificate" => self.certificate(words),
            other => match Right::named(other) {
                Some(right) => self.right(right, words),
                None => Err(UsersFault::Unknown(other.to_string())),
            },
        };
        read.map_err(|fault| fault.at(number))
    }

    fn decoy(&mut self, words: &[Word<'_>]) -> Result<(), UsersFault> {
        if self.decoy.is_some() || !self.users.is_empty() {
            return Err(UsersFault::Decoy);
        }
        let [word] = words else {
            return Err(UsersFault::DecoyForm);
        };
        let mut decoy = [0; DECOY_BYTES];
        let len = Base64::decode(word.raw, &mut decoy).map(<[u8]>::len);
        match len == Ok(DECOY_BYTES) {
            true => self.decoy = Some(decoy),
            false => return Err(UsersFault::DecoyForm),
        }
        Ok(())
    }

    fn user(&mut self, words: &[Word<'_>], number: usize) -> Result<(), UsersFault> {
        let [name] = words else {
            return Err(UsersFault::Words {
                what: "user",
                takes: "one name",
                found: words.len(),
            });
        };
        if !is_login_name(name.raw, USER_NAME_BYTES_MAX) {
            return Err(UsersFault::UserName(name.raw.to_string()));
        }
        let name = name.raw.to_string();
        if let Some(&first) = self.lines.get(&name) {
            return Err(UsersFault::UserTwice { name, first });
        }
        if self.users.len() == USERS_MAX {
            return Err(UsersFault::Users);
        }
        self.lines.insert(name.clone(), number);
        self.users.push(User {
            rights: Arc::new(Rights::new(&name, &Grants::new())),
            name,
            password: None,
            keys: BTreeMap::new(),
            certificate: None,
            grants: Grants::new(),
        });
        Ok(())
    }

    /// The user whose lines are read.
    fn current(&mut self, what: &'static str) -> Result<&mut User, UsersFault> {
        self.users.last_mut().ok_or(UsersFault::BeforeUser(what))
    }

    fn password(&mut self, words: &[Word<'_>]) -> Result<(), UsersFault> {
        let user = self.current("password")?;
        let [verifier] = words else {
            return Err(UsersFault::Words {
                what: "password",
                takes: "one stored secret",
                found: words.len(),
            });
        };
        let verifier: Verifier = verifier.raw.parse()?;
        if user.password.is_some() {
            return Err(UsersFault::PasswordTwice(user.name.clone()));
        }
        if verifier.kind() != SecretKind::Password {
            return Err(UsersFault::KeyAsPassword);
        }
        user.password = Some(verifier);
        Ok(())
    }

    fn key(&mut self, words: &[Word<'_>]) -> Result<(), UsersFault> {
        let user = self.current("key")?;
        let [name, verifier] = words else {
            return Err(UsersFault::Words {
                what: "key",
                takes: "a name and a stored secret",
                found: words.len(),
            });
        };
        if !is_login_name(name.raw, KEY_NAME_BYTES_MAX) {
            return Err(UsersFault::KeyName(name.raw.to_string()));
        }
        let verifier: Verifier = verifier.raw.parse()?;
        let key = name.raw.to_string();
        if user.keys.contains_key(&key) {
            let user = user.name.clone();
            return Err(UsersFault::KeyTwice { user, key });
        }
        if user.keys.len() == USER_KEYS_MAX {
            return Err(UsersFault::Keys(user.name.clone()));
        }
        if verifier.kind() != SecretKind::Key {
            return Err(UsersFault::PasswordAsKey);
        }
        user.keys.insert(key, verifier);
        Ok(())
    }

    fn certificate(&mut self, words: &[Word<'_>]) -> Result<(), UsersFault> {
        let user = self.current("certificate")?;
        let [word] = words else {
            return Err(UsersFault::Words {
                what: "certificate",
                takes: "one name",
                found: words.len(),
            });
        };
        let len = word.bytes.len();
        let name = match String::from_utf8(word.bytes.clone()) {
            Ok(name) if (1..=CERTIFICATE_NAME_BYTES_MAX).contains(&len) => name,
            _ => return Err(UsersFault::CertificateLength(len)),
        };
        if user.certificate.is_some() {
            return Err(UsersFault::CertificateTwice(user.name.clone()));
        }
        user.certificate = Some(name.clone());
        let owner = user.name.clone();
        match self.certificates.insert(name.clone(), owner) {
            None => Ok(()),
            Some(user) => Err(UsersFault::CertificateOfTwo {
                certificate: name,
                user,
            }),
        }
    }

    fn right(&mut self, right: Right, words: &[Word<'_>]) -> Result<(), UsersFault> {
        let before = self.current(right.name())?.grants.len();
        let line = RightLine::read(right, words)?;
        let user = self.current(right.name())?;
        line.grant(&mut user.grants)?;
        self.prefixes += user.grants.len() - before;
        match self.prefixes > USERS_PREFIXES_MAX {
            true => Err(UsersFault::Prefixes),
            false => Ok(()),
        }
    }

    /// All lines of the last user were read.
    fn end_user(&mut self) -> Result<(), UsersError> {
        let Some(user) = self.users.last_mut() else {
            return Ok(());
        };
        let has_none =
            user.password.is_none() && user.keys.is_empty() && user.certificate.is_none();
        if has_none {
            let line = self.lines.get(&user.name).copied().unwrap_or(1);
            return Err(UsersFault::NoCredential(user.name.clone()).at(line));
        }
        user.rights = Arc::new(Rights::new(&user.name, &user.grants));
        Ok(())
    }
}

/// Whether a text may be the name of a user or of a key.
fn is_login_name(text: &str, bytes_max: usize) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let first = text.bytes().next();
    first.is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.len() <= bytes_max
        && text.bytes().all(is_inner)
}
