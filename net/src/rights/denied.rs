//! Why a request may not run.

use std::fmt;

use super::Right;

/// Bytes of a key or of a prefix that a message shows.
const SHOWN_BYTES_MAX: usize = 64;

/// The right that a user lacks, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied<'a> {
    /// Who asked.
    pub user: &'a str,
    /// What is missing.
    pub right: Right,
    /// The key, or the prefix, as it stands in the request.
    pub at: &'a [u8],
    /// `at` is a prefix: the right is missing for some keys that begin so, at least.
    pub is_prefix: bool,
    /// The program that was to run, if the node knows it.
    pub program: Option<&'a str>,
}

impl fmt::Display for Denied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Denied {
            user,
            right,
            at,
            is_prefix,
            program,
        } = self;
        write!(f, "user {user} has no right to {}", right.name())?;
        if let Some(program) = program {
            write!(f, " {program}")?;
        }
        let (shown, more) = match at.get(..SHOWN_BYTES_MAX) {
            Some(begin) if at.len() > SHOWN_BYTES_MAX => (begin, "..."),
            _ => (*at, ""),
        };
        let shown = shown.escape_ascii();
        match is_prefix {
            true => write!(f, " all keys that begin with \"{shown}{more}\""),
            false => write!(f, " at \"{shown}{more}\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_user_right_and_place_and_at_most_64_bytes_of_a_key() {
        let denied = Denied {
            user: "till",
            right: Right::Run,
            at: b"stock:{42}\n",
            is_prefix: false,
            program: Some("buy"),
        };
        assert_eq!(
            denied.to_string(),
            "user till has no right to run buy at \"stock:{42}\\n\""
        );
        let (right, program) = (Right::Read, None);
        let denied = Denied {
            at: &[b'a'; 65],
            right,
            program,
            is_prefix: true,
            ..denied
        };
        let begin = "a".repeat(64);
        let text =
            format!("user till has no right to read all keys that begin with \"{begin}...\"");
        assert_eq!(denied.to_string(), text);
    }
}
