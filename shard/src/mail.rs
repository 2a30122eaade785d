//! What crosses between cores: batches of requests to the owner of their slots, and batches of the
//! answers back. Both carry the bytes of the wire's items, so that nothing is encoded twice.

use std::net::IpAddr;
use std::sync::Arc;

use penstock_net::level::AckLevel;
use penstock_net::pieces::Pieces;
use penstock_storage::keyspace::Settings;

use crate::joint::message::JointMail;

/// A connection of one shard; never means another connection later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl SessionId {
    /// The place that the connection has while it is open; used again later.
    #[must_use]
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// A batch from one shard to another.
#[derive(Clone, Debug)]
pub enum Mail {
    /// Items to execute.
    Requests(RequestMail),
    /// Answers to such items.
    Replies(ReplyMail),
    /// Answers were handed on to their connections.
    Taken(TakenMail),
    /// Keyspaces, which every shard logs for its own partitions.
    Keyspaces(KeyspaceMail),
    /// The settings of a keyspace with this revision, and those before them, are durable in all
    /// partitions of the shard that says so; or not yet, and its disk is full.
    KeyspaceDone {
        /// The revision.
        revision: u64,
        /// The disk is full: the rest is logged when there is room.
        is_full: bool,
    },
    /// Addresses whose logins have failed at another shard: each failure once.
    FailedLogins(Arc<[IpAddr]>),
    /// Steps of changes over several shards.
    Joint(JointMail),
}

/// Keyspaces from another shard.
#[derive(Clone, Debug)]
pub struct KeyspaceMail {
    /// The shard that tells them.
    pub from: u16,
    /// It waits for [`Mail::KeyspaceDone`] with the revision of the first of these settings.
    pub is_awaited: bool,
    /// Prefixes and their settings.
    pub keyspaces: Vec<(Box<[u8]>, Settings)>,
}

/// Items to execute, in the order of their connections.
#[derive(Clone, Debug)]
pub struct RequestMail {
    /// The shard that wants the answers.
    pub from: u16,
    /// The items.
    pub items: Vec<MailedRequest>,
    /// Their encoded bytes.
    pub bytes: Vec<u8>,
}

/// One item of a [`RequestMail`].
#[derive(Clone, Copy, Debug)]
pub struct MailedRequest {
    /// Whom the answer is for.
    pub address: ReplyAddress,
    /// The ack level asked for.
    pub level: AckLevel,
    /// Microseconds of the node's clock after which it is not to be executed; 0 is none.
    pub deadline_us: u64,
    /// When its request arrived, in microseconds of the node's clock.
    pub came_us: u64,
    /// The slot of its keys.
    pub slot: u16,
    /// End of its bytes; the start is the end of the item before.
    pub end: u32,
}

/// Answers.
#[derive(Clone, Debug)]
pub struct ReplyMail {
    /// The shard that executed.
    pub from: u16,
    /// The answers, in order of execution.
    pub items: Vec<MailedReply>,
    /// Their encoded reply items.
    pub bytes: Pieces,
}

/// Room for further answers.
#[derive(Clone, Copy, Debug)]
pub struct TakenMail {
    /// The shard that took the answers.
    pub from: u16,
    /// Their bytes.
    pub bytes: usize,
}

/// One answer of a [`ReplyMail`].
#[derive(Clone, Copy, Debug)]
pub struct MailedReply {
    /// Whom it is for.
    pub address: ReplyAddress,
    /// End of its bytes; the start is the end of the answer before.
    pub end: u32,
    /// If it is BUSY, the milliseconds after which a new try is likely to find room, otherwise 0.
    pub retry_after_ms: u16,
    /// It may have run behind a lease: its connection ends without it.
    pub is_void: bool,
}

/// The connection, the request and the item that an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyAddress {
    /// The connection, on the shard that asked.
    pub session: SessionId,
    /// The client's request.
    pub request_id: u64,
    /// The item within it.
    pub item: u16,
    /// Bytes of that item.
    pub item_bytes: u32,
    /// The client wants to know whether the node has begun behind the token of its write.
    pub wants_began: bool,
    /// The client knows level `all`.
    pub knows_all: bool,
    /// The client knows that a key may have members.
    pub knows_wrong_type: bool,
    /// The request named no level.
    pub is_unleveled: bool,
    /// Bytes that the shard that asked keeps free for the answer; 0 on that shard itself.
    pub answer_bytes: u32,
}
