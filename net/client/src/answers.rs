//! What a server tells about a key.

use std::time::Duration;

use bytes::Bytes;
use penstock_net::level::AckLevel;
use penstock_net::request::Version;

use crate::fields::Fields;

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The bytes.
    pub bytes: Bytes,
    /// Its version, for [`Condition::Version`](penstock_net::request::Condition::Version).
    pub version: Version,
}

/// What a member has of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberValue {
    /// None if the key is missing.
    pub value: Option<Value>,
    /// The age of the answer: at most so long ago it was true at the primary. `None` if the age is
    /// not known.
    pub age: Option<Duration>,
    /// The last record of the partition that the member has. A next read that asks for this version
    /// sees nothing older.
    pub through: Version,
}

/// A value as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// The bytes.
    pub bytes: Bytes,
    /// The version that the key had then.
    pub version: Version,
    /// When the value was written, in unix milliseconds. 0 if the time is not known, because the
    /// value is older than the keeping of versions.
    pub time_ms: u64,
    /// When the value expires or expired, in unix milliseconds; 0 is never.
    pub expiry_ms: u64,
}

/// What a change did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The version of the change. If nothing has changed: that of the key, or of the first one.
    pub version: Version,
    /// The new value of each effect's field, in order, sign-extended. Of an APPLY: what the number
    /// is after each effect on a number, each rate and each instruction that tells a number.
    pub fields: Fields,
    /// The level that the change has reached.
    pub level: AckLevel,
    /// It was executed by an earlier request with the same token, and this is that answer again.
    pub is_replayed: bool,
    /// It had a token and was executed now, and its node has begun to write behind the time of the
    /// token: an earlier try that another node acknowledged at level `disk` or below may be lost,
    /// or stand in the lostfound of that node.
    pub has_writer_begun_since: bool,
}
