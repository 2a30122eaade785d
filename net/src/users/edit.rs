//! Edits the text of a users' file, line by line: comments and the order of lines stay.

use std::fmt::Write as _;
use std::ops::Range;

use base64ct::{Base64, Encoding};
use thiserror::Error;

use crate::auth::Verifier;
use crate::rights::Right;

use super::fault::UsersFault;
use super::line::{Word, push_word, split};
use super::right_line::RightLine;
use super::{DECOY_BYTES, User, Users, UsersError};

const INDENT: &str = "    ";
/// A line that has grown to this gets no more words.
const LINE_BYTES_MAX: usize = 100;

const HEAD: &str = "\
# Users of the server: who may log in, and what they may do. No secret stands here, but whoever
# reads this file can try passwords, so nobody else may read it. `penstock user` edits it.

# Answers about names that there are not are made from these bytes: keep them.
";

/// Why an edit was not made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each variant has the text that people read")]
pub enum EditError {
    #[error("there is no user {0}")]
    NoUser(String),
    #[error("user {user} has no key {key}")]
    NoKey { user: String, key: String },
    #[error("user {0} has no such right")]
    NotGranted(String),
    #[error("{0}: the rights are read, write, run and admin")]
    Right(String),
    /// What would stand in the file then.
    #[error("{}", .0.fault)]
    Refused(#[from] UsersError),
    #[error(transparent)]
    Words(#[from] UsersFault),
}

/// The text of a users' file, which is sound.
#[derive(Clone, Debug)]
pub struct UsersText {
    text: String,
    users: Users,
}

/// A line of a user.
struct Line {
    /// With its end.
    span: Range<usize>,
    /// Words, owned.
    words: Vec<String>,
}

impl Line {
    fn begins(&self, word: &str) -> bool {
        self.words.first().is_some_and(|first| first == word)
    }
}

impl UsersText {
    /// A new file without users.
    #[must_use]
    pub fn begin(decoy: &[u8; DECOY_BYTES]) -> Self {
        let text = format!("{HEAD}decoy {}\n", Base64::encode_string(decoy));
        Self::of(text).expect("it is sound")
    }

    /// The text of a file.
    ///
    /// # Errors
    /// [`UsersError`].
    pub fn of(text: String) -> Result<Self, UsersError> {
        let users = Users::read(text.as_bytes())?;
        Ok(UsersText { text, users })
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its users.
    #[must_use]
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// Adds a user who logs in by a password.
    ///
    /// # Errors
    /// [`EditError`]; then nothing has changed, as of all edits.
    pub fn add_with_password(&mut self, name: &str, verifier: &Verifier) -> Result<(), EditError> {
        self.add(name, &format!("password {verifier}"))
    }

    /// Adds a user who logs in by a machine key.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn add_with_key(
        &mut self,
        name: &str,
        key: &str,
        verifier: &Verifier,
    ) -> Result<(), EditError> {
        self.add(name, &format!("key {key} {verifier}"))
    }

    /// Adds a user who logs in by a certificate with this name.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn add_with_certificate(&mut self, name: &str, certificate: &str) -> Result<(), EditError> {
        self.add(name, &certificate_line(certificate))
    }

    /// Gives a user another password.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn set_password(&mut self, name: &str, verifier: &Verifier) -> Result<(), EditError> {
        self.set(name, "password", &format!("password {verifier}"))
    }

    /// Gives a user a certificate with this name, in the place of the one before.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn set_certificate(&mut self, name: &str, certificate: &str) -> Result<(), EditError> {
        self.set(name, "certificate", &certificate_line(certificate))
    }

    /// Gives a user one more machine key.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn add_key(&mut self, name: &str, key: &str, verifier: &Verifier) -> Result<(), EditError> {
        let lines = self.lines_of(name)?;
        let is_other = |line: &&Line| ["user", "password", "key"].iter().any(|it| line.begins(it));
        let behind = lines.iter().rfind(is_other).map_or(0, |line| line.span.end);
        self.replace(behind..behind, &format!("{INDENT}key {key} {verifier}\n"))
    }

    /// Takes a machine key from a user.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn remove_key(&mut self, name: &str, key: &str) -> Result<(), EditError> {
        let lines = self.lines_of(name)?;
        let is_it = |line: &&Line| line.begins("key") && line.words[1] == key;
        match lines.iter().find(is_it) {
            Some(line) => self.replace(line.span.clone(), ""),
            None => Err(EditError::NoKey {
                user: name.to_string(),
                key: key.to_string(),
            }),
        }
    }

    /// Grants what these words say, as they stand in a line of the file: a right, and prefixes; of
    /// *run* programs before the word `on`.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn grant(&mut self, name: &str, words: &[String]) -> Result<(), EditError> {
        let (right, words) = right_of(words)?;
        let mut new = RightLine::read(right, &words)?;
        let user = self.user(name)?;
        let asked = std::mem::take(&mut new.prefixes).into_iter();
        new.prefixes = asked.filter(|prefix| !has(user, &new, prefix)).collect();
        if new.prefixes.is_empty() {
            return Ok(());
        }
        let lines = self.lines_of(name)?;
        for line in lines.iter().rev().filter(|line| line.begins(right.name())) {
            let mut known = self.right_line(line);
            if known.programs == new.programs && line.span.len() < LINE_BYTES_MAX {
                known.prefixes.append(&mut new.prefixes);
                let text = self.with_comment(line, &known.text());
                return self.replace(line.span.clone(), &text);
            }
        }
        let behind = lines.last().expect("the line of the user").span.end;
        self.replace(behind..behind, &format!("{INDENT}{}\n", new.text()))
    }

    /// Takes back what these words say; without prefixes the whole right, of *run* that to these
    /// programs.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn revoke(&mut self, name: &str, words: &[String]) -> Result<(), EditError> {
        let (right, words) = right_of(words)?;
        let gone = RightLine::read_open(right, &words)?;
        let is_gone = |prefix: &Vec<u8>| gone.prefixes.is_empty() || gone.prefixes.contains(prefix);
        let lines = self.lines_of(name)?;
        let mut text = self.text.clone();
        let mut has_any = false;
        for line in lines.iter().rev().filter(|line| line.begins(right.name())) {
            let known = self.right_line(line);
            // Each program has prefixes of its own then.
            let parts = split_programs(&known);
            let kept = parts.iter().filter_map(|part| {
                let is_meant = right != Right::Run
                    || part
                        .programs
                        .iter()
                        .any(|program| gone.programs.contains(program));
                let mut part = part.clone();
                part.prefixes
                    .retain(|prefix| !(is_meant && is_gone(prefix)));
                (!part.prefixes.is_empty()).then_some(part)
            });
            let kept: Vec<RightLine> = kept.collect();
            if kept == parts {
                continue;
            }
            has_any = true;
            let mut lines = String::new();
            for part in &kept {
                match lines.is_empty() {
                    true => lines = self.with_comment(line, &part.text()),
                    false => writeln!(lines, "{INDENT}{}", part.text()).expect("in memory"),
                }
            }
            text.replace_range(line.span.clone(), &lines);
        }
        match has_any {
            true => self.take(text),
            false => Err(EditError::NotGranted(name.to_string())),
        }
    }

    /// Removes a user. Comments between the lines of the user go, too.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn remove(&mut self, name: &str) -> Result<(), EditError> {
        let lines = self.lines_of(name)?;
        let first = lines.first().expect("the line of the user").span.start;
        let end = lines.last().expect("the line of the user").span.end;
        // One of the two empty lines around the user.
        let is_behind_empty = self.text[..first].ends_with("\n\n");
        let first = if is_behind_empty { first - 1 } else { first };
        self.replace(first..end, "")
    }

    fn user(&self, name: &str) -> Result<&User, EditError> {
        let user = self.users.find(name);
        user.ok_or_else(|| EditError::NoUser(name.to_string()))
    }

    fn add(&mut self, name: &str, line: &str) -> Result<(), EditError> {
        let mut text = self.text.clone();
        write!(text, "\nuser {name}\n{INDENT}{line}\n").expect("in memory");
        self.take(text)
    }

    /// Puts a line in the place of the one that begins with this word, or behind the first.
    fn set(&mut self, name: &str, word: &str, line: &str) -> Result<(), EditError> {
        let lines = self.lines_of(name)?;
        match lines.iter().find(|line| line.begins(word)) {
            Some(known) => {
                let text = self.with_comment(known, line);
                self.replace(known.span.clone(), &text)
            }
            None => {
                let behind = lines.first().expect("the line of the user").span.end;
                self.replace(behind..behind, &format!("{INDENT}{line}\n"))
            }
        }
    }

    /// The lines of a user that have words, the line `user` first.
    fn lines_of(&self, name: &str) -> Result<Vec<Line>, EditError> {
        self.user(name)?;
        let mut lines = Vec::new();
        let mut at = 0;
        for text in self.text.split_inclusive('\n') {
            let span = at..at + text.len();
            at = span.end;
            let (words, _) = split(text.trim_end_matches('\n')).expect("the text is sound");
            let words: Vec<String> = words.iter().map(|word| word.raw.to_string()).collect();
            let Some(first) = words.first() else {
                continue;
            };
            let is_begin = first == "user";
            let is_his = match lines.is_empty() {
                true => is_begin && words[1] == name,
                false => !is_begin,
            };
            match (is_his, lines.is_empty()) {
                (true, _) => lines.push(Line { span, words }),
                (false, true) => {}
                (false, false) => break,
            }
        }
        Ok(lines)
    }

    /// What a line grants.
    fn right_line(&self, line: &Line) -> RightLine {
        let text = self.text[line.span.clone()].trim_end_matches('\n');
        let (words, _) = split(text).expect("the text is sound");
        let right = Right::named(words[0].raw).expect("the caller has looked");
        RightLine::read(right, &words[1..]).expect("the text is sound")
    }

    /// A line with another text and the same comment.
    fn with_comment(&self, line: &Line, text: &str) -> String {
        let old = self.text[line.span.clone()].trim_end_matches('\n');
        let indent = &old[..old.len() - old.trim_start_matches([' ', '\t']).len()];
        let (_, comment) = split(old).expect("the text is sound");
        let blank = if comment.is_empty() { "" } else { "  " };
        format!("{indent}{text}{blank}{comment}\n")
    }

    fn replace(&mut self, span: Range<usize>, with: &str) -> Result<(), EditError> {
        let mut text = self.text.clone();
        text.replace_range(span, with);
        self.take(text)
    }

    /// Has this text from now on, if it is sound.
    fn take(&mut self, text: String) -> Result<(), EditError> {
        *self = UsersText::of(text)?;
        Ok(())
    }
}

/// The right that words of a command begin with, and those behind it.
fn right_of(words: &[String]) -> Result<(Right, Vec<Word<'_>>), EditError> {
    let name = words.first().map_or("", String::as_str);
    let right = Right::named(name).ok_or_else(|| EditError::Right(name.to_string()))?;
    let words = words
        .iter()
        .skip(1)
        .map(|word| match word.strip_prefix('"') {
            // As in the file, for bytes that no command line has.
            Some(_) => Ok(split(word)?.0.swap_remove(0)),
            None => Ok(Word {
                raw: word,
                bytes: word.as_bytes().to_vec(),
            }),
        });
    Ok((right, words.collect::<Result<_, UsersFault>>()?))
}

fn certificate_line(name: &str) -> String {
    let mut line = "certificate ".to_string();
    push_word(&mut line, name.as_bytes());
    line
}

/// Whether a user has all that a line grants at a prefix.
fn has(user: &User, line: &RightLine, prefix: &[u8]) -> bool {
    let grants = user.grants();
    match line.right {
        Right::Run => line.programs.iter().all(|program| {
            let mut runs = grants.runs();
            runs.any(|(name, prefixes)| name == program && prefixes.contains(prefix))
        }),
        right => grants.prefixes(right).contains(prefix),
    }
}

/// The same as one line for each program.
fn split_programs(line: &RightLine) -> Vec<RightLine> {
    match line.right {
        Right::Run => line
            .programs
            .iter()
            .map(|program| RightLine {
                programs: vec![program.clone()],
                ..line.clone()
            })
            .collect(),
        _ => vec![line.clone()],
    }
}
