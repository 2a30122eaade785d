//! What a user was given, as the users' file says it.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::limits::{
    PROGRAM_NAME_BYTES_MAX, RIGHTS_PREFIX_BYTES_MAX, RIGHTS_PREFIXES_MAX, RIGHTS_PROGRAMS_MAX,
};

use super::Right;

/// Prefixes of keys.
pub type Prefixes = BTreeSet<Vec<u8>>;

/// What stands for any program.
pub(crate) const ANY_PROGRAM: &str = "*";

/// A right that cannot be given.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each variant has the text that people read")]
pub enum GrantError {
    #[error(
        "a prefix of {0} bytes; at most {max} bytes are accepted",
        max = RIGHTS_PREFIX_BYTES_MAX
    )]
    PrefixLength(usize),
    #[error("a user has at most {max} prefixes of keys", max = RIGHTS_PREFIXES_MAX)]
    Prefixes,
    #[error(
        "the name of a program of {0} bytes; at most {max} bytes are accepted",
        max = PROGRAM_NAME_BYTES_MAX
    )]
    ProgramLength(usize),
    #[error("a user has rights to at most {max} programs", max = RIGHTS_PROGRAMS_MAX)]
    Programs,
}

/// Which rights a user has, each with its prefixes; *run* for each program.
///
/// What must hold: no two prefixes of a right are the same, and their number, that of programs and
/// all lengths are within the limits. So [`super::Rights`] can be made of every value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    read: Prefixes,
    write: Prefixes,
    admin: Prefixes,
    /// By the name of the program; `*` is any.
    run: BTreeMap<String, Prefixes>,
}

impl Grants {
    /// Nothing is granted.
    #[must_use]
    pub fn new() -> Self {
        Grants::default()
    }

    /// All rights on all keys, to run every program included.
    #[must_use]
    pub fn all() -> Self {
        let every = || Prefixes::from([Vec::new()]);
        Grants {
            read: every(),
            write: every(),
            admin: every(),
            run: BTreeMap::from([(ANY_PROGRAM.to_string(), every())]),
        }
    }

    /// Grants a right other than *run* on all keys that begin with a prefix.
    ///
    /// # Errors
    /// [`GrantError`]; then nothing has changed.
    ///
    /// # Panics
    /// If the right is *run*.
    pub fn grant(&mut self, right: Right, prefix: &[u8]) -> Result<(), GrantError> {
        self.check_prefix(prefix)?;
        self.prefixes_mut(right).insert(prefix.to_vec());
        Ok(())
    }

    /// Grants to run a program on all keys that begin with a prefix; `*` is every program.
    ///
    /// # Errors
    /// [`GrantError`]; then nothing has changed.
    pub fn grant_run(&mut self, program: &str, prefix: &[u8]) -> Result<(), GrantError> {
        if program.len() > PROGRAM_NAME_BYTES_MAX {
            return Err(GrantError::ProgramLength(program.len()));
        }
        let is_new = program != ANY_PROGRAM && !self.run.contains_key(program);
        if is_new && self.programs().count() >= RIGHTS_PROGRAMS_MAX {
            return Err(GrantError::Programs);
        }
        self.check_prefix(prefix)?;
        let prefixes = self.run.entry(program.to_string()).or_default();
        prefixes.insert(prefix.to_vec());
        Ok(())
    }

    /// The prefixes of a right other than *run*, ascending.
    ///
    /// # Panics
    /// If the right is *run*.
    #[must_use]
    pub fn prefixes(&self, right: Right) -> &Prefixes {
        match right {
            Right::Read => &self.read,
            Right::Write => &self.write,
            Right::Admin => &self.admin,
            Right::Run => panic!("run has prefixes for each program"),
        }
    }

    /// The programs that may run, ascending by name, with their prefixes; `*` is every program.
    pub fn runs(&self) -> impl Iterator<Item = (&str, &Prefixes)> {
        self.run
            .iter()
            .map(|(name, prefixes)| (&name[..], prefixes))
    }

    /// Whether nothing is granted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many prefixes all rights have together.
    #[must_use]
    pub fn len(&self) -> usize {
        let run: usize = self.run.values().map(Prefixes::len).sum();
        self.read.len() + self.write.len() + self.admin.len() + run
    }

    /// The programs that have names here.
    pub(super) fn programs(&self) -> impl Iterator<Item = &str> {
        self.runs()
            .map(|(name, _)| name)
            .filter(|name| *name != ANY_PROGRAM)
    }

    fn prefixes_mut(&mut self, right: Right) -> &mut Prefixes {
        match right {
            Right::Read => &mut self.read,
            Right::Write => &mut self.write,
            Right::Admin => &mut self.admin,
            Right::Run => panic!("run is granted for each program"),
        }
    }

    fn check_prefix(&self, prefix: &[u8]) -> Result<(), GrantError> {
        if prefix.len() > RIGHTS_PREFIX_BYTES_MAX {
            return Err(GrantError::PrefixLength(prefix.len()));
        }
        match self.len() >= RIGHTS_PREFIXES_MAX {
            true => Err(GrantError::Prefixes),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_a_limit_is_refused_with_value_and_limit_and_changes_nothing() {
        let mut grants = Grants::new();
        let long = [b'a'; RIGHTS_PREFIX_BYTES_MAX + 1];
        let refused = grants.grant(Right::Read, &long);
        assert_eq!(refused, Err(GrantError::PrefixLength(65)));
        let name = "p".repeat(PROGRAM_NAME_BYTES_MAX + 1);
        let refused = grants.grant_run(&name, b"");
        assert_eq!(refused, Err(GrantError::ProgramLength(33)));
        for number in 0..RIGHTS_PROGRAMS_MAX {
            grants.grant_run(&format!("p{number}"), b"").expect("room");
        }
        assert_eq!(grants.grant_run("one_more", b""), Err(GrantError::Programs));
        grants.grant_run(ANY_PROGRAM, b"").expect("it is no name");
        for number in grants.len()..RIGHTS_PREFIXES_MAX {
            let prefix = number.to_string();
            grants.grant(Right::Write, prefix.as_bytes()).expect("room");
        }
        assert_eq!(grants.len(), RIGHTS_PREFIXES_MAX);
        assert_eq!(grants.grant(Right::Admin, b""), Err(GrantError::Prefixes));
        assert!(grants.prefixes(Right::Admin).is_empty());
    }
}
