//! How long a version of a key lives, as far as a client can know: the server adds a lifetime to
//! the shard's time at some moment between sending and answer, rounded up to a millisecond.

use penstock_net::request::Expiry;

/// When a version of a key is gone by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Never.
    Endless,
    /// At a time that is not earlier than the first and not later than the second, in milliseconds.
    Until(u64, u64),
    /// Nobody can know.
    Unknown,
}

impl Life {
    /// The life that an operation, sent and answered at these times, gives its key; `None` if it
    /// keeps the old one.
    #[must_use]
    pub fn given(expiry: Expiry, issued_ms: u64, answered_ms: u64) -> Option<Life> {
        match expiry {
            Expiry::Keep => None,
            Expiry::Never => Some(Life::Endless),
            Expiry::At(ms) => Some(Life::Until(ms, ms)),
            Expiry::In(ms) => Some(Life::Until(
                issued_ms.saturating_add(ms),
                answered_ms.saturating_add(ms + 1),
            )),
        }
    }

    /// Whether it may be over at this time.
    #[must_use]
    pub fn may_be_over(self, at_ms: u64) -> bool {
        match self {
            Life::Endless => false,
            Life::Until(earliest, _) => earliest <= at_ms,
            Life::Unknown => true,
        }
    }

    /// Whether it must be over at this time.
    #[must_use]
    pub fn is_over(self, at_ms: u64) -> bool {
        matches!(self, Life::Until(_, latest) if latest <= at_ms)
    }

    /// Whether a server may tell this expiry, 0 for none.
    #[must_use]
    pub fn allows(self, expiry_ms: u64) -> bool {
        match self {
            Life::Endless => expiry_ms == 0,
            Life::Until(earliest, latest) => (earliest..=latest).contains(&expiry_ms),
            Life::Unknown => true,
        }
    }
}
