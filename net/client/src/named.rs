//! Writes with a token: how a write gets one, and what is kept of the write to ask it again.

use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use penstock_net::request::{Ask, Token};

/// A new token, by the clock and the random numbers of this machine. [`Client::new_token`] goes by
/// the time of the server.
///
/// [`Client::new_token`]: crate::Client::new_token
///
/// An application that must know over its own crash what became of a write stores the token before
/// it asks ([`Verbs::named`]).
///
/// # Errors
/// The error of the system if it gives no random numbers.
pub fn new_token() -> io::Result<Token> {
    new_token_at(unix_ms())
}

/// A new token of this time, in unix milliseconds: a server whose time is far from the clock of
/// this machine takes it as new if it is by the time of the server, which HELLO tells.
///
/// # Errors
/// As for [`new_token`].
pub fn new_token_at(time_ms: u64) -> io::Result<Token> {
    let mut random = [0; 10];
    getrandom::fill(&mut random)?;
    Ok(Token::new(time_ms.min((1 << 48) - 1), random))
}

/// The clock of this machine. Before 1970 it makes tokens that the server refuses as too old.
pub(crate) fn unix_ms() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let time_ms = time.unwrap_or_default().as_millis();
    u64::try_from(time_ms).unwrap_or(u64::MAX)
}

/// A write with its token, as it was asked: enough to ask it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedWrite(Arc<Inner>);

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    token: Token,
    partition: Option<u16>,
    /// Without the token.
    item: Vec<u8>,
}

impl NamedWrite {
    pub(crate) fn new(ask: &Ask<'_>, token: Token) -> NamedWrite {
        NamedWrite(Arc::new(Inner {
            token,
            partition: ask.partition(),
            item: ask.encode(),
        }))
    }

    /// Its token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.token
    }

    pub(crate) fn partition(&self) -> Option<u16> {
        self.0.partition
    }

    /// The request item, without the token.
    pub(crate) fn item(&self) -> &[u8] {
        &self.0.item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_tokens_of_one_moment_differ_and_have_its_time() {
        let made: Vec<Token> = (0..100).map(|_| new_token().expect("random")).collect();
        let mut apart = made.clone();
        apart.sort_unstable();
        apart.dedup();
        assert_eq!(apart.len(), made.len());
        assert!(made.iter().all(|it| it.time_ms() > 1_700_000_000_000));
    }
}
