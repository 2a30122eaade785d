//! The parts of a core, the messages to it from other threads, and its reports.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use penstock_net::program::ServedSchema;
use penstock_net::users::Users;
use penstock_shard::Mail;
use penstock_shard::cluster::Plan;
use penstock_shard::replication::{LinkId, PartitionId};

use super::audit::Audit;
use super::channels::Mailed;
use super::error::ServeError;
use super::resp_host::RespHost;
use crate::cluster::ProvenLink;
use crate::directory::spares::SpareOutcome;
use crate::event_loop::shard_thread::Home;
use crate::startup::node::ShardStart;
use crate::startup::room::ConnectionBound;
use crate::tls::ServedTls;

/// What reaches a core from outside its thread.
pub(crate) enum Letter {
    /// From another core.
    Mail(Mail),
    /// From the thread that makes segment files.
    Spare(SpareOutcome),
    /// The cluster's file was read anew.
    Plan(Arc<Plan>),
    /// The files of the schema were read anew.
    Schema(Arc<ServedSchema>),
    /// The users' file was read anew.
    Users(Arc<Users>),
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
    /// The core has recovered its log. `text` says what it found. It writes nothing before it is
    /// told to begin. `log_ms` is the newest time in the log, in unix milliseconds.
    Opened {
        shard: u16,
        text: String,
        log_ms: u64,
    },
    /// The core answers requests.
    Ready,
    /// The core cannot serve.
    Refused(ServeError),
    /// The core's log is sealed and durable.
    Stopped,
    /// The core must not go on.
    Fatal(String),
    /// A file is damaged: the process is to end.
    Damaged(String),
    /// Its thread ends.
    Gone,
}

/// What a core serves clients of Redis with.
pub(crate) struct RespStart {
    /// On the address that all cores share.
    pub(crate) entry: TcpListener,
    /// On the port of the core, if it has one.
    pub(crate) own: Option<TcpListener>,
    pub(crate) host: RespHost,
    /// Messages for subscribers of the core, and changes of tracked keys.
    pub(crate) messages: flume::Receiver<Mailed>,
}

/// What a core is made of; moves to its thread.
pub(crate) struct CoreStart {
    pub(crate) shard: ShardStart,
    pub(crate) listeners: Vec<TcpListener>,
    /// The port for clients of Redis, if there is one.
    pub(crate) resp: Option<RespStart>,
    /// Those who are let in; `None` is everybody.
    pub(crate) users: Option<Arc<Users>>,
    /// What is told of connections.
    pub(crate) audit: Audit,
    /// The ports speak TLS with this.
    pub(crate) tls: Option<Arc<ServedTls>>,
    /// Entries of the ring for sockets. `None`: epoll.
    pub(crate) socket_entries: Option<u32>,
    /// How many connections are open, of all cores together.
    pub(crate) connections: Arc<AtomicU32>,
    /// How many may be, of all cores together.
    pub(crate) connection_bound: ConnectionBound,
    /// Handshakes of TLS that may be under way on the core.
    pub(crate) handshakes_max: u32,
    /// Empty room that the connections of the core may keep, in bytes.
    pub(crate) kept_bytes_max: usize,
    /// Hears when all shards are open; is gone if one is not.
    pub(crate) may_begin: flume::Receiver<()>,
    pub(crate) inbox: flume::Receiver<Letter>,
    pub(crate) outboxes: Vec<flume::Sender<Letter>>,
    /// To the thread that frees those that wait for their core.
    pub(crate) homes: flume::Sender<(u16, Home)>,
    pub(crate) reports: flume::Sender<Report>,
}
