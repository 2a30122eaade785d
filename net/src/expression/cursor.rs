//! How far an expression has been read, and what is wrong where it cannot be read on.

use std::fmt;

/// Why a text is no instruction or value, in one line: the text, the column, and what is allowed
/// there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    text: String,
    column: usize,
    allowed: String,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.brief(usize::MAX))
    }
}

impl std::error::Error for ExpressionError {}

impl ExpressionError {
    /// The same for who has sent the text: it shows so many bytes of it at most.
    #[must_use]
    pub fn brief(&self, bytes_max: usize) -> String {
        let begin = |text: &str| {
            let end = text.floor_char_boundary(bytes_max / 2);
            match end < text.len() {
                true => format!("{:?}...", &text[..end]),
                false => format!("{text:?}"),
            }
        };
        let (text, rest) = (begin(&self.text), &self.text[self.column..]);
        let (column, allowed) = (self.column(), &self.allowed);
        match rest.is_empty() {
            true => format!("{text}, column {column}: it ends where {allowed} is expected"),
            false => {
                let rest = begin(rest);
                format!("{text}, column {column}: found {rest}, allowed is {allowed}")
            }
        }
    }

    /// The first character that cannot be read, from 1.
    pub fn column(&self) -> usize {
        self.text[..self.column].chars().count() + 1
    }

    /// What is allowed there.
    pub fn allowed(&self) -> &str {
        &self.allowed
    }

    /// The same error about a longer text that ends with the one that was read.
    pub(super) fn at_the_end_of(self, text: &str) -> Self {
        let column = text.len() - self.text.len() + self.column;
        error(text, column, &self.allowed)
    }
}

/// How far a text has been read. `at` is always a boundary of a character.
pub(super) struct Cursor<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn begin(text: &'a str) -> Self {
        Cursor { text, at: 0 }
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn skip_spaces(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    pub(super) fn take(&mut self, prefix: &str) -> bool {
        let found = self.rest().starts_with(prefix);
        if found {
            self.at += prefix.len();
        }
        found
    }

    /// Letters and digits from here on.
    pub(super) fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    pub(super) fn offset(&mut self) -> Result<u32, ExpressionError> {
        if !self.take("@") {
            return Err(self.error_at(self.at, "@OFFSET, the field's first byte".into()));
        }
        let start = self.at;
        self.number()
            .parse()
            .map_err(|_| self.error_at(start, "an offset in bytes, a whole number from 0".into()))
    }

    /// `[ "else" REASON ]`, then the end. Without a reason it is 0.
    pub(super) fn reason_and_end(&mut self) -> Result<u8, ExpressionError> {
        self.skip_spaces();
        let reason = match self.take("else") {
            true => self.reason()?,
            false => 0,
        };
        self.skip_spaces();
        if self.at != self.text.len() {
            return Err(self.error_at(
                self.at,
                "the end, or else REASON; give each guard or effect as an argument of its own"
                    .into(),
            ));
        }
        Ok(reason)
    }

    fn reason(&mut self) -> Result<u8, ExpressionError> {
        self.skip_spaces();
        let start = self.at;
        match self.number().parse() {
            Ok(reason) if reason > 0 => Ok(reason),
            _ => Err(self.error_at(start, "a reason, 1..255".into())),
        }
    }

    /// The characters from here on that look like a number, right or wrong.
    pub(super) fn number(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest
            .char_indices()
            .find(|(at, c)| !(c.is_ascii_alphanumeric() || *c == '_' || *at == 0 && *c == '-'))
            .map_or(rest.len(), |(at, _)| at);
        self.at += end;
        &rest[..end]
    }

    pub(super) fn error_at(&self, column: usize, allowed: String) -> ExpressionError {
        error(self.text, column, &allowed)
    }
}

/// Reads a number within these borders; the error is what is allowed.
pub fn parse_number((min, max): (i128, i128), text: &str) -> Result<i128, String> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (radix, digits) = match digits.strip_prefix("0x") {
        Some(hex) => (16, hex),
        None => (10, digits),
    };
    let plain = digits.starts_with(|c: char| c.is_digit(radix)) && !digits.ends_with('_');
    let number = plain
        .then(|| i128::from_str_radix(&digits.replace('_', ""), radix).ok())
        .flatten()
        .map(|number| if negative { -number } else { number });
    match number {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("a number, {min}..{max}")),
    }
}

/// A number of a field, zero- or sign-extended.
pub(super) fn to_bits(number: i128) -> u64 {
    u64::try_from(number).unwrap_or_else(|_| {
        i64::try_from(number)
            .expect("negative numbers are checked against a signed type")
            .cast_unsigned()
    })
}

pub(super) fn error(text: &str, column: usize, allowed: &str) -> ExpressionError {
    ExpressionError {
        text: text.into(),
        column,
        allowed: allowed.into(),
    }
}
