//! How a client behaves, and how a read that any member may answer does.

use std::time::Duration;

use penstock_net::level::AckLevel;
use penstock_net::request::Version;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// For the server's logs, at most 64 bytes.
    pub name: String,
    /// The ack level of every operation.
    pub level: AckLevel,
    /// From the call to the answer, connecting included.
    pub deadline: Duration,
    /// Operations that may wait or be under way; beyond it the answer is
    /// [`ClientError::Busy`](crate::ClientError::Busy).
    pub pending_max: usize,
    /// Whether other nodes are asked for what this one does not write. Otherwise that is
    /// [`ClientError::Busy`](crate::ClientError::Busy).
    pub follows: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            name: "penstock-client".into(),
            level: AckLevel::Disk,
            deadline: Duration::from_secs(5),
            pending_max: 16 * 1024,
            follows: true,
        }
    }
}

/// Who is asked for what a member of the partition may answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// The other nodes that are known, in turn.
    #[default]
    AnyMember,
    /// The node at this address, HOST:PORT.
    Node(String),
}

/// A read that any node which holds the key may answer, if what it has is new enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberGet {
    /// How old it may be, at most; `None` is however old.
    pub staleness_max: Option<Duration>,
    /// A version of the key's partition that must be there, as [`Seen`](crate::Seen) keeps them.
    pub version_min: Option<Version>,
    /// Who is asked.
    pub from: ReadFrom,
    /// Whether the node that writes is asked when the other one cannot answer. Otherwise that is
    /// [`ClientError::Stale`], or [`ClientError::Busy`] if it does not follow at all. Where no
    /// other node is known, or none answers, the one that writes is asked first, with this or
    /// without.
    ///
    /// [`ClientError::Stale`]: crate::ClientError::Stale
    /// [`ClientError::Busy`]: crate::ClientError::Busy
    pub or_writer: bool,
}

impl Default for MemberGet {
    /// At most 50 ms old, from any member, otherwise from the node that writes.
    fn default() -> Self {
        MemberGet {
            staleness_max: Some(Duration::from_millis(50)),
            version_min: None,
            from: ReadFrom::AnyMember,
            or_writer: true,
        }
    }
}
