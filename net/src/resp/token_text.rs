//! Tokens as clients of Redis write them: a UUID, or a text and the time when it was sent first.

use crate::request::{Token, TokenTextError};

use super::number::read_unsigned;
use super::words::{SHOWN_BYTES_MAX, shown};

/// Why an argument is no token.
#[derive(Clone, Copy, Debug)]
pub(super) enum TokenFault<'a> {
    /// It has no time, and is no UUID.
    Uuid(&'a [u8], TokenTextError),
    /// It is empty or too long.
    Text(&'a [u8]),
    /// The time is none.
    Sent(&'a [u8]),
}

impl TokenFault<'_> {
    /// The error of RESP, by the names of the two arguments.
    #[cold]
    pub(super) fn text(self, token: &str, sent: &str) -> Vec<u8> {
        let (name, value, why) = match self {
            TokenFault::Uuid(text, error) => (token, text, error.to_string()),
            TokenFault::Text(text) => {
                let most = Token::TEXT_LEN_MAX;
                let why = format!("{} bytes; 1 to {most} are allowed", text.len());
                (token, text, why)
            }
            TokenFault::Sent(ms) => {
                let why = "allowed are unix milliseconds below 2^48".to_string();
                (sent, ms, why)
            }
        };
        let head = format!("ERR {name} '");
        let value = shown(value, SHOWN_BYTES_MAX);
        [head.as_bytes(), value, b"': ", why.as_bytes()].concat()
    }
}

/// The token of these arguments: a UUID, or with a time any text.
///
/// # Errors
/// [`TokenFault`].
pub(super) fn read_token<'a>(
    text: &'a [u8],
    sent: Option<&'a [u8]>,
) -> Result<Token, TokenFault<'a>> {
    let Some(sent) = sent else {
        let uuid = std::str::from_utf8(text).unwrap_or_default();
        return uuid.parse().map_err(|error| TokenFault::Uuid(text, error));
    };
    let ms = read_unsigned(sent).filter(|ms| *ms < 1 << 48);
    let ms = ms.ok_or(TokenFault::Sent(sent))?;
    Token::of_text(text, ms).ok_or(TokenFault::Text(text))
}
