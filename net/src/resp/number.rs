//! Numbers as Redis reads them.

use crate::apply::Decimal;

/// An integer in the one form that Redis takes: no sign `+`, no zero in front, no blank.
#[inline]
#[must_use]
pub fn read_integer(text: &[u8]) -> Option<i64> {
    // Nearly all are lengths of one or two digits.
    match text {
        [digit @ b'0'..=b'9'] => Some(i64::from(digit - b'0')),
        [tens @ b'1'..=b'9', ones @ b'0'..=b'9'] => {
            Some(i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
        }
        text => Decimal::read(text),
    }
}

/// The same as a `u64`, which a cursor is.
#[must_use]
pub fn read_unsigned(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_number)?;
    text.parse().ok()
}
