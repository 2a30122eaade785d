//! The options of a client, and those of a read that a member may answer.

use std::time::Duration;

use penstock_net::auth::Identity;
use penstock_net::level::AckLevel;
use penstock_net::request::Version;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// For the server's logs, at most 64 bytes.
    pub name: String,
    /// The ack level of every operation, but for those of
    /// [`Client::with_level`](crate::Client::with_level).
    pub level: AckLevel,
    /// The time from the call to the answer, with the time to connect.
    pub deadline: Duration,
    /// The longest time that one of several nodes may owe an answer and say nothing at all. At half
    /// of it the client asks whether the node is there. At its end the client turns to the other
    /// nodes, with reads and with writes that have a token too; other writes wait for the silent
    /// node until their deadline. A client that knows one node alone waits in any case.
    pub silence_max: Duration,
    /// Operations that may wait or be under way; beyond it the answer is
    /// [`ClientError::Busy`](crate::ClientError::Busy).
    pub pending_max: usize,
    /// Whether the client asks other nodes about keys that this node does not write. If not, such
    /// an operation is [`ClientError::Busy`](crate::ClientError::Busy).
    pub follows: bool,
    /// Whether the client itself sends an operation again that the server refused with BUSY: after
    /// a random pause, within the deadline, and at most one for every ten operations that were
    /// asked. If not, and where that budget is used up, such an operation is
    /// [`ClientError::Busy`](crate::ClientError::Busy). An operation that is sent again may run
    /// behind one that was asked later.
    pub retries_busy: bool,
    /// Whether the client gives each write a token that is not the same twice as once
    /// ([`Ask::needs_token`](crate::Ask::needs_token)). Then a write is sent again by itself when
    /// its connection ends before the answer, and a write whose outcome is unknown can be resolved
    /// ([`Client::resolve`](crate::Client::resolve)). The server keeps each such token for its
    /// horizon, an hour by default, in memory and on disk. A server that knows no tokens gets none.
    pub names_writes: bool,
    /// Who logs in on each connection, and with what. A server that needs no login is refused then,
    /// because it proves nothing; but see `identity_may_wait`. `None`: the certificate of the
    /// connection, if a server with users has seen one; otherwise nobody, at servers without users.
    pub identity: Option<Identity>,
    /// Whether `identity` goes on at a server without users, as nobody, if the connection is
    /// encrypted: the certificate of the server proves which one it is. For the time in which the
    /// nodes of a running system get their users one by one.
    pub identity_may_wait: bool,
    /// Connections go through TLS 1.3, to servers that this trusts. `None`: as they are, to servers
    /// without TLS.
    #[cfg(feature = "tls")]
    pub tls: Option<crate::tls::ClientTls>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            name: "penstock-client".into(),
            level: AckLevel::Disk,
            deadline: Duration::from_secs(5),
            silence_max: Duration::from_millis(400),
            pending_max: 16 * 1024,
            follows: true,
            retries_busy: true,
            names_writes: false,
            identity: None,
            identity_may_wait: false,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

/// The node that is asked for a read that a member may answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// The other nodes that are known, in turn.
    #[default]
    AnyMember,
    /// The node at this address, HOST:PORT.
    Node(String),
}

/// A read that any member of the partition may answer, if its data is new enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberGet {
    /// The greatest age of the data; `None` accepts any age.
    pub staleness_max: Option<Duration>,
    /// A version of the partition that the member must have, as [`Seen`](crate::Seen) tells it.
    pub version_min: Option<Version>,
    /// The node that is asked.
    pub from: ReadFrom,
    /// Whether the primary is asked when the member cannot answer. If not, the answer is
    /// [`ClientError::Stale`], or [`ClientError::Busy`] from a node that does not follow the
    /// primary. Where no other node is known, or none answers, the primary is asked in any case.
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
