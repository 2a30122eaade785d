//! What a transaction proves, and what it has read.

use bytes::Bytes;
use penstock_net::request::Version;

/// What a transaction proves when it commits.
///
#[doc = include_str!("../../TRANSACTIONS.md")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// All values that were read were there at one instant, and each key that was read and written
    /// has not changed since. Two transactions that read the same keys and write different ones may
    /// both commit: *write skew*.
    Snapshot,
    /// All values that were read are there at the instant of the commit. So the transaction is one
    /// step.
    Serializable,
}

/// A value that a transaction has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionValue {
    /// The bytes.
    pub bytes: Bytes,
    /// The version of the key; `None` if the transaction itself has written the key.
    pub version: Option<Version>,
    /// From when on the key is gone, in unix milliseconds; 0 is never. `None` if the commit
    /// decides.
    pub expiry_ms: Option<u64>,
}
