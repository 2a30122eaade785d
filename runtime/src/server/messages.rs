//! What a core is made of, what reaches it from outside its thread, and what it reports.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use penstock_shard::Mail;
use penstock_shard::cluster::Plan;
use penstock_shard::replication::{LinkId, PartitionId};

use super::error::ServeError;
use crate::cluster::ProvenLink;
use crate::directory::spares::SpareOutcome;
use crate::startup::node::ShardStart;

/// What reaches a core from outside its thread.
pub(crate) enum Letter {
    /// From another core.
    Mail(Mail),
    /// From the thread that makes segment files.
    Spare(SpareOutcome),
    /// The cluster's file was read anew.
    Plan(Arc<Plan>),
    /// From a thread that makes links.
    Link(Box<ProvenLink>),
    /// From the thread that keeps what has diverged.
    TailKept(PartitionId, Option<LinkId>),
    /// Stop taking requests and seal the log.
    Stop,
    /// Every core has: end.
    Leave,
}

/// What a core tells the main thread.
pub(crate) enum Report {
    /// Its log is recovered; what it found, in words. It writes nothing before it may begin.
    Opened { shard: u16, text: String },
    /// It answers.
    Ready,
    /// It cannot serve.
    Refused(ServeError),
    /// Its log is sealed and durable.
    Stopped,
    /// It must not go on.
    Fatal(String),
    /// A file is damaged: the process is to end.
    Damaged(String),
    /// Its thread ends.
    Gone,
}

/// What a core is made of; moves to its thread.
pub(crate) struct CoreStart {
    pub(crate) shard: ShardStart,
    pub(crate) listeners: Vec<TcpListener>,
    /// Entries of the ring for sockets. `None`: epoll.
    pub(crate) socket_entries: Option<u32>,
    /// How many connections are open, of all cores together.
    pub(crate) connections: Arc<AtomicU32>,
    /// Hears when all shards are open; is gone if one is not.
    pub(crate) may_begin: flume::Receiver<()>,
    pub(crate) inbox: flume::Receiver<Letter>,
    pub(crate) outboxes: Vec<flume::Sender<Letter>>,
    pub(crate) reports: flume::Sender<Report>,
}
