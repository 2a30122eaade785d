//! The terms of a request: what it does, when it applies, and what its answer shows.

use crate::keyspace::{Action, At};
#[cfg(doc)]
use crate::limits::EXPIRY_MS_MAX;
use crate::version::Version;

/// What an item does with its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verb {
    /// Read a value.
    Get = 1,
    /// Write a value.
    Set = 2,
    /// Delete a key.
    Del = 3,
    /// Run instructions on fields.
    UpdateIf = 4,
    /// Read a value as it was.
    GetAt = 6,
    /// Tell the versions that are kept.
    History = 7,
    /// Set, drop or tell keyspaces.
    Keyspace = 8,
}

impl Verb {
    /// The verb of an operation's number.
    pub(super) fn of(operation: u8) -> Option<Self> {
        match operation {
            6 => Some(Verb::GetAt),
            7 => Some(Verb::History),
            8 => Some(Verb::Keyspace),
            _ => Verb::plain(operation),
        }
    }

    /// The verb of an operation's number, if an item of the verb may be a head and data alone.
    #[inline]
    pub(super) fn plain(operation: u8) -> Option<Self> {
        match operation {
            1 => Some(Verb::Get),
            2 => Some(Verb::Set),
            3 => Some(Verb::Del),
            4 => Some(Verb::UpdateIf),
            _ => None,
        }
    }
}

/// What lets a member of a partition answer a GET too: the greatest age of its data, and a version
/// of the partition that it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRead {
    /// The answer was true at the primary at most so many microseconds ago. `u64::MAX` is any time,
    /// and 0 lets only the primary answer.
    pub staleness_us_max: u64,
    /// A version of the key's partition that must be there; sequence 0 is none.
    pub version_min: Version,
}

/// What a verb asks besides keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Nothing.
    None,
    /// GET: members may answer.
    Member(MemberRead),
    /// SET and DEL: the answer shows the value that keeps the condition from holding.
    Show,
    /// GET_AT: as it was then.
    At(At),
    /// HISTORY: the versions whose sequence is below `before`, 0 for all, at most so many.
    History {
        /// The sequence.
        before: u64,
        /// Versions.
        limit: u32,
    },
    /// KEYSPACE: what is done. The key is the prefix.
    Keyspace(Action),
}

/// When SET and DEL apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    #[default]
    Always,
    /// Only if the key does not exist.
    Absent,
    /// Only if the key exists.
    Present,
    /// Only if the key has this version.
    Version(Version),
}

impl Condition {
    /// This condition, with the value that is there in the answer if it does not hold.
    #[must_use]
    pub fn showing(self) -> When {
        When {
            condition: self,
            shows: true,
        }
    }
}

/// When SET and DEL apply, and what their answer shows if they do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// The condition.
    pub condition: Condition,
    /// If the condition does not hold, the answer shows the value that is there.
    pub shows: bool,
}

impl From<Condition> for When {
    fn from(condition: Condition) -> Self {
        When {
            condition,
            shows: false,
        }
    }
}

/// When the first key of SET or UPDATE_IF is gone by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Never: the default of SET.
    Never,
    /// When it was before: the default of UPDATE_IF. What is made anew never is.
    Keep,
    /// At this time, in unix milliseconds, 1 to [`EXPIRY_MS_MAX`]. A time that is past is allowed.
    At(u64),
    /// So many milliseconds after the shard's time, 1 to [`EXPIRY_MS_MAX`].
    In(u64),
}

/// What GET answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The value.
    Value,
    /// The value and the expiry.
    ValueAndExpiry,
    /// The expiry and an empty value.
    Expiry,
}
