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
    /// For only-if-version.
    pub version: Version,
}

/// What a member has of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberValue {
    /// None if the key is missing.
    pub value: Option<Value>,
    /// It was so at the node that writes it at most so long ago; `None` if that is not known.
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
    /// The version that it was then.
    pub version: Version,
    /// When it was written, in unix milliseconds; 0 if that is not known, for it was before
    /// versions were kept.
    pub time_ms: u64,
    /// From when on it was gone by itself; 0 is never.
    pub expiry_ms: u64,
}

/// What a change did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The key's version now.
    pub version: Version,
    /// The new value of each effect's field, in order, sign-extended.
    pub fields: Fields,
    /// How durable it is.
    pub level: AckLevel,
}
