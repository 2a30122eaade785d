//! Why a transaction did not do what was asked.

use std::fmt;

use penstock_net::apply::Action;
use penstock_net::limits::{APPLY_KEYS_MAX, EXPIRY_MS_MAX, KEY_BYTES_MAX};
use penstock_net::request::Version;

use crate::operation::ClientError;

/// Why a transaction did not do what was asked: one variant for each thing that the caller can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionError {
    /// Nothing was written: another writer changed a key that the transaction has read. Run it
    /// again ([`transact`](crate::transact) does).
    Conflict(Conflict),
    /// Nothing was sent: the call is wrong or beyond a limit. The transaction is as it was.
    Refused(TransactionRefusal),
    /// The store says so. [`ClientError::No`] is about an instruction of the caller's own. Of a
    /// read nothing is [`ClientError::Unknown`].
    Store(ClientError),
}

/// A key that is not as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The key.
    pub key: Vec<u8>,
    /// How the transaction has read it.
    pub expected: KeyState,
    /// How it was found later.
    pub found: KeyState,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// It has no value.
    Missing,
    /// It has this version.
    Version(Version),
    /// It has a value of a version that was not told.
    Present,
}

/// What a transaction does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionRefusal {
    /// A key of another slot.
    TwoSlots {
        /// The key that decided the slot.
        first: Vec<u8>,
        /// Its slot.
        first_slot: u16,
        /// The other key.
        second: Vec<u8>,
        /// Its slot.
        second_slot: u16,
    },
    /// One key more than a transaction has.
    KeyCount {
        /// The key.
        key: Vec<u8>,
    },
    /// A key that is empty or too long.
    KeyLength {
        /// Its bytes.
        len: usize,
    },
    /// A value that the store does not take.
    ValueLength {
        /// The key.
        key: Vec<u8>,
        /// Bytes of the value.
        len: usize,
        /// Bytes of a value, at most.
        max: u32,
    },
    /// Values that are more than one record takes.
    DataLength {
        /// Bytes of all values that are put.
        len: usize,
        /// Bytes, at most.
        max: u64,
    },
    /// More instructions than an APPLY has.
    InstructionCount {
        /// Guards, effects and what writes values take together.
        count: usize,
        /// How many an APPLY of as many keys has, at most.
        max: usize,
    },
    /// PUT, START or ON_EXPIRE: an [`Apply`](crate::Apply) has them.
    Instruction {
        /// What it does.
        action: Action,
    },
    /// An [`ApplyKey`](crate::ApplyKey) that this transaction did not give out.
    UnknownKey {
        /// Its number.
        number: u8,
    },
    /// An expiry or lifetime of 0, or beyond the limit.
    Expiry {
        /// Milliseconds.
        ms: u64,
    },
    /// [`Expiry::Keep`](crate::Expiry::Keep) of a key that was not read.
    KeepsUnread {
        /// The key.
        key: Vec<u8>,
    },
    /// [`Expiry::Keep`](crate::Expiry::Keep) of a key that expires, with a value that cannot be
    /// written in the place of the old one.
    KeepsOtherLength {
        /// The key.
        key: Vec<u8>,
        /// Bytes of the old value.
        old: usize,
        /// Bytes of the new one.
        new: usize,
    },
    /// A read of a key whose value the commit decides.
    Undecided {
        /// The key.
        key: Vec<u8>,
    },
    /// There is no savepoint of this name.
    UnknownSavepoint {
        /// The name.
        name: String,
    },
    /// One savepoint more than a transaction has.
    SavepointCount {
        /// Savepoints, at most.
        max: usize,
    },
}

impl From<ClientError> for TransactionError {
    fn from(error: ClientError) -> Self {
        TransactionError::Store(error)
    }
}

impl From<TransactionRefusal> for TransactionError {
    fn from(refusal: TransactionRefusal) -> Self {
        TransactionError::Refused(refusal)
    }
}

impl fmt::Display for TransactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransactionError::Conflict(conflict) => conflict.fmt(f),
            TransactionError::Refused(refusal) => refusal.fmt(f),
            TransactionError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TransactionError {}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conflict {
            key,
            expected,
            found,
        } = self;
        let key = key.escape_ascii();
        write!(
            f,
            "\"{key}\" was {expected} when it was read, and is {found} now"
        )
    }
}

impl fmt::Display for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyState::Missing => f.write_str("missing"),
            KeyState::Version(Version { epoch, sequence }) => {
                write!(f, "at version {epoch}:{sequence}")
            }
            KeyState::Present => f.write_str("there"),
        }
    }
}

impl fmt::Display for TransactionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransactionRefusal::TwoSlots {
                first,
                first_slot,
                second,
                second_slot,
            } => write!(
                f,
                "\"{}\" is of slot {second_slot}, and \"{}\" of slot {first_slot}: the keys of a \
                 transaction are of one slot, as keys with the same {{tag}} are",
                second.escape_ascii(),
                first.escape_ascii()
            ),
            TransactionRefusal::KeyCount { key } => write!(
                f,
                "\"{}\" would be key {} of the transaction, and {APPLY_KEYS_MAX} is the limit",
                key.escape_ascii(),
                APPLY_KEYS_MAX + 1
            ),
            TransactionRefusal::KeyLength { len } => {
                write!(f, "a key of {len} bytes: it has 1 to {KEY_BYTES_MAX}")
            }
            TransactionRefusal::ValueLength { key, len, max } => write!(
                f,
                "a value of {len} bytes for \"{}\": the limit is {max}",
                key.escape_ascii()
            ),
            TransactionRefusal::DataLength { len, max } => write!(
                f,
                "the transaction writes values of {len} bytes together: the limit is {max}"
            ),
            TransactionRefusal::InstructionCount { count, max } => write!(
                f,
                "the commit would take {count} instructions with its guards: the limit is \
                 {max}"
            ),
            TransactionRefusal::Instruction { action } => write!(
                f,
                "{action:?} is an instruction of APPLY alone; a transaction puts by set"
            ),
            TransactionRefusal::UnknownKey { number } => {
                write!(f, "key {number} is not a key of this transaction")
            }
            TransactionRefusal::Expiry { ms } => {
                write!(f, "an expiry of {ms} ms: it is 1 to {EXPIRY_MS_MAX}")
            }
            TransactionRefusal::KeepsUnread { key } => write!(
                f,
                "\"{}\" is to keep its expiry and was not read: get it before",
                key.escape_ascii()
            ),
            TransactionRefusal::KeepsOtherLength { key, old, new } => write!(
                f,
                "\"{}\" expires, and a value of {new} bytes cannot take the place of {old} \
                 bytes and keep that: say when the new value expires",
                key.escape_ascii()
            ),
            TransactionRefusal::Undecided { key } => write!(
                f,
                "the value of \"{}\" is not known before the commit: what the transaction does to \
                 it needs the time of the store, or fails on what is there",
                key.escape_ascii()
            ),
            TransactionRefusal::UnknownSavepoint { name } => {
                write!(f, "there is no savepoint {name:?}")
            }
            TransactionRefusal::SavepointCount { max } => {
                write!(f, "one savepoint more than {max}, which is the limit")
            }
        }
    }
}
