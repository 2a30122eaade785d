//! The cursor and the options of HSCAN, SSCAN and ZSCAN. All members are one page, as Redis has it
//! of a key in a list.

use std::borrow::Cow;

use crate::limits::KEY_BYTES_MAX;
use crate::resp::fault::{Fault, NOT_AN_INTEGER, SYNTAX};
use crate::resp::number::{read_integer, read_unsigned};
use crate::resp::parser::Arguments;
use crate::resp::pattern::Pattern;
use crate::resp::reply::Replies;

use super::head::MemberType;

/// Checks a cursor. What Redis takes for one has blanks, a sign or zeros in front, and ends at a
/// byte of 0; a plain negative number is none.
pub(super) fn check_cursor(text: &[u8]) -> Result<(), Fault> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | 9..=13);
    let blanks = text.iter().take_while(|byte| is_blank(byte)).count();
    let digits = text[blanks..].split(|byte| *byte == 0).next();
    let digits = digits.unwrap_or_default();
    let digits = digits
        .strip_prefix(b"-")
        .or(digits.strip_prefix(b"+"))
        .unwrap_or(digits);
    let is_negative = read_integer(text).is_some_and(|number| number < 0);
    match !is_negative && read_unsigned(digits).is_some() {
        true => Ok(()),
        false => Err(Fault::Text("ERR invalid cursor")),
    }
}

/// Which members a page shows, and what of each.
pub(super) struct MemberPage {
    pattern: Option<Pattern>,
    /// The value of each field, or the score of each member, stands behind it.
    pub(super) is_paired: bool,
}

impl MemberPage {
    /// Reads the options behind the cursor. Redis reads none for a key that is not there.
    ///
    /// # Errors
    /// What is wrong, in the words of Redis, or a pattern of more than [`KEY_BYTES_MAX`].
    pub(super) fn read(
        args: Arguments<'_>,
        is_there: bool,
        of: MemberType,
    ) -> Result<Self, Cow<'static, [u8]>> {
        let fault = |fault: Fault| {
            let mut text = Vec::new();
            fault.write(args, &mut text);
            Cow::Owned(text)
        };
        let (mut pattern, mut is_paired) = (None, of != MemberType::Set);
        let mut number = if is_there { 3 } else { args.len() };
        while number < args.len() {
            let is = |name: &[u8]| args.get(number).eq_ignore_ascii_case(name);
            let has_argument = number + 1 < args.len();
            match () {
                () if is(b"MATCH") && has_argument => pattern = Some(args.get(number + 1)),
                () if is(b"COUNT") && has_argument => {
                    let count = read_integer(args.get(number + 1));
                    if count.ok_or_else(|| fault(NOT_AN_INTEGER))? < 1 {
                        return Err(fault(SYNTAX));
                    }
                }
                () if is(b"NOVALUES") && of == MemberType::Hash
                    || is(b"NOSCORES") && of == MemberType::Zset =>
                {
                    is_paired = false;
                    number += 1;
                    continue;
                }
                () if is(b"NOVALUES") => {
                    return Err(b"ERR NOVALUES option can only be used in HSCAN"[..].into());
                }
                () if is(b"NOSCORES") => {
                    return Err(b"ERR NOSCORES option can only be used in ZSCAN"[..].into());
                }
                () => return Err(fault(SYNTAX)),
            }
            number += 2;
        }
        let pattern = pattern.filter(|pattern| *pattern != b"*");
        let bytes = pattern.map_or(0, <[u8]>::len);
        if bytes > KEY_BYTES_MAX {
            let text = format!("ERR a pattern of {bytes} bytes; at most {KEY_BYTES_MAX} are taken");
            return Err(text.into_bytes().into());
        }
        Ok(MemberPage {
            pattern: pattern.map(Pattern::new),
            is_paired,
        })
    }

    /// Whether the page shows the member of this name.
    pub(super) fn shows(&self, name: &[u8]) -> bool {
        let matches = |pattern: &Pattern| pattern.matches(name);
        self.pattern.as_ref().is_none_or(matches)
    }

    /// Begins the reply: the cursor, which is at the end, and the line before so many members.
    pub(super) fn begin(&self, members: usize, replies: &mut Replies<'_>) {
        replies.array(2);
        replies.bulk(b"0");
        replies.array(members * if self.is_paired { 2 } else { 1 });
    }
}
