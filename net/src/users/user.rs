//! One user: how they log in, and what they may do.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::auth::Verifier;
use crate::rights::{Grants, Right, Rights};

use super::line::push_word;

/// One user. At least one of password, keys and certificate is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub(super) name: String,
    pub(super) password: Option<Verifier>,
    /// By their names.
    pub(super) keys: BTreeMap<String, Verifier>,
    pub(super) certificate: Option<String>,
    pub(super) grants: Grants,
    pub(super) rights: Arc<Rights>,
}

impl User {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is kept of the password.
    #[must_use]
    pub fn password(&self) -> Option<&Verifier> {
        self.password.as_ref()
    }

    /// The names of the machine keys, and what is kept of them.
    pub fn keys(&self) -> impl Iterator<Item = (&str, &Verifier)> {
        self.keys
            .iter()
            .map(|(name, verifier)| (&name[..], verifier))
    }

    /// The name in the certificate that logs this user in.
    #[must_use]
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// What was granted.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// What the user may do.
    #[must_use]
    pub fn rights(&self) -> &Arc<Rights> {
        &self.rights
    }

    /// The lines of the file that grant something, one for each right and each program.
    #[must_use]
    pub fn rights_text(&self) -> String {
        let mut text = String::new();
        for right in [Right::Read, Right::Write, Right::Admin] {
            let prefixes = self.grants.prefixes(right);
            if !prefixes.is_empty() {
                text += &format!("    {}{}\n", right.name(), words_of(prefixes));
            }
        }
        for (program, prefixes) in self.grants.runs() {
            let (name, on) = (Right::Run.name(), words_of(prefixes));
            text += &format!("    {name} {program} on{on}\n");
        }
        text
    }
}

/// The lines of the file.
impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "user {}", self.name)?;
        if let Some(verifier) = &self.password {
            writeln!(f, "    password {verifier}")?;
        }
        for (name, verifier) in &self.keys {
            writeln!(f, "    key {name} {verifier}")?;
        }
        if let Some(certificate) = &self.certificate {
            let mut word = String::new();
            push_word(&mut word, certificate.as_bytes());
            writeln!(f, "    certificate {word}")?;
        }
        f.write_str(&self.rights_text())
    }
}

fn words_of<'a>(prefixes: impl IntoIterator<Item = &'a Vec<u8>>) -> String {
    let mut words = String::new();
    for prefix in prefixes {
        words.push(' ');
        push_word(&mut words, prefix);
    }
    words
}
