//! A line that grants a right: `read stock: order:`, `run buy hold on stock:`.

use crate::rights::{Grants, Right};

use super::fault::UsersFault;
use super::line::{Word, push_word};

/// The word between programs and prefixes.
const ON: &str = "on";

/// What a line grants: each program, if the right is *run*, at each prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RightLine {
    pub(super) right: Right,
    /// Of *run* alone.
    pub(super) programs: Vec<String>,
    pub(super) prefixes: Vec<Vec<u8>>,
}

impl RightLine {
    /// Reads the words behind the name of the right.
    pub(super) fn read(right: Right, words: &[Word<'_>]) -> Result<Self, UsersFault> {
        let line = Self::read_open(right, words)?;
        match line.prefixes.is_empty() {
            true => Err(UsersFault::NoPrefix(right.name())),
            false => Ok(line),
        }
    }

    /// The same, with no prefixes where all of them are meant.
    pub(super) fn read_open(right: Right, words: &[Word<'_>]) -> Result<Self, UsersFault> {
        let (programs, prefixes) = match right {
            Right::Run => split_run(words)?,
            _ => (&[][..], words),
        };
        Ok(RightLine {
            right,
            programs: programs.iter().map(program_of).collect::<Result<_, _>>()?,
            prefixes: prefixes.iter().map(prefix_of).collect::<Result<_, _>>()?,
        })
    }

    /// Adds what it grants.
    pub(super) fn grant(&self, grants: &mut Grants) -> Result<(), UsersFault> {
        for prefix in &self.prefixes {
            if self.right != Right::Run {
                grants.grant(self.right, prefix)?;
            }
            for program in &self.programs {
                grants.grant_run(program, prefix)?;
            }
        }
        Ok(())
    }

    /// The line, without what stands before and behind it.
    pub(super) fn text(&self) -> String {
        let mut text = self.right.name().to_string();
        for program in &self.programs {
            text.push(' ');
            text.push_str(program);
        }
        if self.right == Right::Run {
            text.push_str(" on");
        }
        for prefix in &self.prefixes {
            text.push(' ');
            push_word(&mut text, prefix);
        }
        text
    }
}

/// Programs, and prefixes behind the word `on`; a program may have that name where it stands first.
fn split_run<'w, 'a>(
    words: &'w [Word<'a>],
) -> Result<(&'w [Word<'a>], &'w [Word<'a>]), UsersFault> {
    let behind = words.iter().skip(1).position(|word| word.is(ON));
    match behind {
        Some(at) => Ok((&words[..=at], &words[at + 2..])),
        None if words.is_empty() => Err(UsersFault::RunForm),
        None => Ok((words, &[])),
    }
}

fn program_of(word: &Word<'_>) -> Result<String, UsersFault> {
    match word.is("*") || is_program_name(word.raw) {
        true => Ok(word.raw.to_string()),
        false => Err(UsersFault::ProgramName(word.raw.to_string())),
    }
}

/// Whether the files of a schema may name a program so, but for the length.
fn is_program_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(is_inner)
}

fn prefix_of(word: &Word<'_>) -> Result<Vec<u8>, UsersFault> {
    match !word.is_quoted() && word.raw.ends_with('*') {
        true => Err(UsersFault::Star(word.raw.to_string())),
        false => Ok(word.bytes.clone()),
    }
}
