//! The terms of a request: conditions, expiry, and what the answer shows.

#[cfg(doc)]
use crate::limits::EXPIRY_MS_MAX;
use crate::version::Version;

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

/// When the first key of SET or UPDATE_IF expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Never: the default of SET.
    Never,
    /// The expiry stays: the default of UPDATE_IF. A key that did not exist never expires.
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
    /// The same, and whether effects run then.
    ValueExpiryAndEffects,
    /// The expiry and an empty value.
    Expiry,
}
