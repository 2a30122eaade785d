//! What a shard is told, and what it wants done: the two closed sets between a shard and its
//! driver.
//!
//! A driver hands each [`Event`] to [`crate::Shard::step`] and carries out the [`Outbox`] behind
//! each [`Event::TurnEnds`].

use std::fmt;
use std::sync::Arc;

use penstock_net::program::ServedSchema;
use penstock_net::users::Users;
use penstock_storage::cleaning::{Damaged, RoomOnDisk};
use penstock_storage::io::{Completion, Io};
use penstock_storage::key_table::KeyTable;
use penstock_storage::log::Poisoned;
use penstock_storage::place::FileId;
use penstock_storage::place::Lsn;
use penstock_storage::recovery::Corruption;
use penstock_storage::snapshot::SnapshotName;

use crate::audit::Audited;
use crate::bad_places::BadPlace;
use crate::cluster::{LinkOutbox, Plan};
use crate::firing::FailedEffects;
use crate::key_tables::KeyTableOrder;
use crate::mail::{Mail, SessionId};
use crate::replication::handshake::Peer as LinkPeer;
use crate::replication::{LinkId, PartitionId};
use crate::snapshots::SnapshotWrite;
use crate::spare_failure::SpareFailure;

/// What the driver of a connection holds for it beside its frames in memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// What its peer has sent and has not run, frames that were not consumed included.
    pub input: usize,
    /// What its peer is to take and is no reply of the shard.
    pub replies: usize,
    /// What requests keep until they are answered. The peer is not waited for.
    pub kept: usize,
    /// What its peer has sent begins with a request that is not whole.
    pub is_partial: bool,
    /// Its peer waits for something that others are to do: silence is no fault of his.
    pub awaits_others: bool,
}

/// Everything that can happen to a shard.
#[derive(Debug)]
pub enum Event<'a, B> {
    /// The peer of a connection sent bytes. `bytes` are all that were not consumed yet.
    Received {
        /// The connection.
        session: SessionId,
        /// From the first byte that was not consumed.
        bytes: &'a [u8],
    },
    /// So many bytes stand in the socket of a connection behind those that the next
    /// [`Event::Received`] brings. Needed only if there was no room for them.
    Unread {
        /// The connection.
        session: SessionId,
        /// Bytes that are not read.
        bytes: u64,
    },
    /// What the driver of a connection holds for it beside its frames in memory. The result is 0
    /// if there is no room for what its peer has sent: if that is a request that is not whole, or
    /// one that is kept, the connection is to be ended.
    Outside {
        /// The connection.
        session: SessionId,
        /// What is held.
        held: Outside,
    },
    /// The connection is gone.
    Closed {
        /// The connection.
        session: SessionId,
    },
    /// What [`Outbox::probes`] asked for: so many bytes of replies that the network has taken are
    /// not acknowledged by the peer of a connection; 0 from an owner that cannot tell.
    Unacknowledged {
        /// The connection.
        session: SessionId,
        /// Bytes that the network holds.
        bytes: u64,
    },
    /// The network took so many bytes more of what [`crate::Shard::take_pieces`] gave.
    Took {
        /// The connection.
        session: SessionId,
        /// Bytes since it last took some.
        bytes: usize,
    },
    /// The network took so many bytes for a connection that are no replies of the shard.
    Gave {
        /// The connection.
        session: SessionId,
        /// Bytes since it last took some.
        bytes: usize,
    },
    /// The network has all of what [`crate::Shard::take_pieces`] gave.
    Sent {
        /// The connection.
        session: SessionId,
    },
    /// A read, write or sync ended.
    Completed(Completion<B>),
    /// Another shard sent a batch.
    Mail(Mail),
    /// What the log may have of the disk as it is now.
    Room(RoomOnDisk),
    /// A segment file is ready: full of zeros, or one that served before.
    Spare {
        /// The file.
        file: FileId,
        /// Never used before; a file that served before has it in its spare headers.
        salt: u64,
        /// Its length.
        bytes: u64,
        /// It served before.
        is_reused: bool,
    },
    /// The disk is full.
    SpareRefused,
    /// No segment file can be made ready though the disk may have room.
    SpareFailed(SpareFailure),
    /// All shards have taken over what they inherited, and it is durable that the inherited logs
    /// are void.
    InheritedGone,
    /// The text that an [`Outbox::info`] asked for.
    Info {
        /// The connection.
        session: SessionId,
        /// The client's request.
        request_id: u64,
        /// UTF-8 JSON.
        text: &'a str,
    },
    /// A piece of a snapshot's file was written, or it cannot be; then nothing of the snapshot is
    /// to be used.
    SnapshotWritten {
        /// The name of the snapshot.
        name: SnapshotName,
        /// Whether it was written.
        is_good: bool,
    },
    /// The key table of a segment was loaded or made, or it cannot be.
    KeyTable {
        /// The segment that [`KeyTableOrder::Load`] or [`KeyTableOrder::Make`] named.
        file: FileId,
        /// Its table, whose file can be read from now on.
        table: Option<KeyTable>,
    },
    /// There is no room for key tables.
    GiveUpKeyTables,
    /// Who writes and who holds what has changed in the cluster.
    Plan(Arc<Plan>),
    /// Other programs are to be run from now on.
    Schema(Arc<ServedSchema>),
    /// These users are let in from now on, and nobody else.
    Users(Arc<Users>),
    /// A link to another node has proven itself.
    LinkUp {
        /// Never one that was used before.
        link: LinkId,
        /// Who is at the other end.
        peer: LinkPeer,
        /// This node ships by it; otherwise it is shipped to.
        is_outgoing: bool,
    },
    /// Bytes have come by a link.
    LinkReceived {
        /// The link.
        link: LinkId,
        /// The next ones.
        bytes: &'a [u8],
    },
    /// A link is gone.
    LinkDown {
        /// The link.
        link: LinkId,
    },
    /// What [`LinkOutbox::kept`] told of a partition is durable.
    DivergedKept {
        /// The partition.
        partition: PartitionId,
        /// The link for which it was asked, if for one.
        link: Option<LinkId>,
    },
    /// All that was ready has been handed over: emit what is to be done.
    TurnEnds,
    /// Index and values are to be kept within so many bytes from now on.
    MemoryBound {
        /// Bytes of this shard.
        bytes: usize,
    },
    /// Make all that was executed durable without waiting for the interval.
    Sync,
    /// Take no more requests, make everything durable, seal the log.
    Stop,
}

impl<B> Event<'_, B> {
    /// Whether it brings nothing to run: it neither moves the time of the store nor begins a turn.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(
            self,
            Event::MemoryBound { .. }
                | Event::Took { .. }
                | Event::Gave { .. }
                | Event::Sent { .. }
                | Event::Unread { .. }
        )
    }

    /// Whether operations may be executed in its step.
    #[inline]
    pub(crate) fn may_execute(&self) -> bool {
        matches!(
            self,
            Event::Received { .. } | Event::Completed(_) | Event::Mail(_) | Event::TurnEnds
        )
    }
}

/// What a shard wants done. Emptied by the owner after each turn.
#[derive(Debug)]
pub struct Outbox<B> {
    /// Disk requests, in order.
    pub io: Vec<Io<B>>,
    /// Connections with bytes to send: [`crate::Shard::take_output`].
    pub sendable: Vec<SessionId>,
    /// Connections whose unconsumed bytes are to be handed over again.
    pub resume: Vec<SessionId>,
    /// Connections for which the owner is to tell what their peers have not acknowledged:
    /// [`Event::Unacknowledged`], before [`Outbox::close`] is looked at.
    pub probes: Vec<SessionId>,
    /// Connections to be closed, and why. Their replies have been taken or are void.
    pub close: Vec<(SessionId, &'static str)>,
    /// Batches for other shards.
    pub mail: Vec<(u16, Mail)>,
    /// Connections and requests that want the server's state as text.
    pub info: Vec<(SessionId, u64)>,
    /// Spare segments to be made.
    pub spares: usize,
    /// Files of released segments, to be removed: nothing refers to them any more.
    pub removals: Vec<FileId>,
    /// This shard needs the inherited logs no more. Told once: the answer is
    /// [`Event::InheritedGone`].
    pub has_taken_over: bool,
    /// Files of inherited logs: the disk is to forget the descriptors that this shard has of them.
    pub forgotten: Vec<FileId>,
    /// Segments that cleaning found damaged, to be told to people.
    pub damaged: Vec<Damaged>,
    /// What looking through sealed segments found damaged, to be told to people.
    pub rotten: Vec<Corruption>,
    /// Places that requests were answered CORRUPT or IO for, each once, to be told to people.
    pub bad_places: Vec<BadPlace>,
    /// How long tokens are kept has changed, to be told to people.
    pub token_horizon: Option<TokenHorizon>,
    /// Armed keys whose effects could not run, to be told to people.
    pub failed_effects: Vec<FailedEffects>,
    /// What an audit log is told of, and how many events more there were.
    pub audited: Vec<Audited>,
    /// Events beside those, for which there was no room.
    pub audited_beyond: u64,
    /// What is to be done about links.
    pub links: LinkOutbox,
    /// The next bytes of a snapshot's file. They come one at a time: [`Event::SnapshotWritten`].
    pub snapshots: Vec<SnapshotWrite>,
    /// What is to be done with files of key tables, in order: [`Event::KeyTable`].
    pub key_tables: Vec<KeyTableOrder>,
    /// The clean stop is complete.
    pub is_stopped: bool,
    /// Nothing may be acknowledged any more: the process is to end, loudly.
    pub fatal: Option<Fatal>,
}

impl<B> Default for Outbox<B> {
    fn default() -> Self {
        Outbox {
            io: Vec::new(),
            sendable: Vec::new(),
            resume: Vec::new(),
            probes: Vec::new(),
            close: Vec::new(),
            mail: Vec::new(),
            info: Vec::new(),
            spares: 0,
            removals: Vec::new(),
            has_taken_over: false,
            forgotten: Vec::new(),
            damaged: Vec::new(),
            rotten: Vec::new(),
            bad_places: Vec::new(),
            token_horizon: None,
            failed_effects: Vec::new(),
            audited: Vec::new(),
            audited_beyond: 0,
            links: LinkOutbox::default(),
            snapshots: Vec::new(),
            key_tables: Vec::new(),
            is_stopped: false,
            fatal: None,
        }
    }
}

/// How long a shard keeps new tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenHorizon {
    /// In milliseconds.
    pub horizon_ms: u64,
    /// As it was configured, in milliseconds.
    pub configured_ms: u64,
    /// Bytes of memory that tokens take.
    pub bytes: usize,
    /// Bytes of memory that are theirs.
    pub bytes_max: usize,
}

/// Why a shard executes nothing any more, and its process is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fatal {
    /// A write or sync of its log failed.
    Log {
        /// The shard.
        shard: u16,
        /// What failed.
        poisoned: Poisoned,
        /// The last record that is durable.
        durable: Lsn,
    },
    /// Another node has seen a later start of this one, or has applied what this one had told
    /// durable and lacks. What the cluster acknowledged is there, and what this node would write
    /// would have the same versions.
    GoneBack,
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fatal::Log {
                shard,
                poisoned:
                    Poisoned {
                        failure,
                        file,
                        offset,
                    },
                durable,
            } => write!(
                f,
                "shard {shard}: a write or sync of {:08}.seg at offset {offset} failed \
                 ({failure:?}); nothing after record {} was acknowledged as durable, and \
                 nothing will be: restart to recover from the disk",
                file.0, durable.0
            ),
            Fatal::GoneBack => f.write_str(
                "another node has seen more of this one than is here: this directory is an older \
                 copy, or its disk has lost some. Nothing more is written here. Let the other \
                 node write (penstock cluster promote --force), then start this one on an empty \
                 directory; to go back on purpose, empty all others and promote this one",
            ),
        }
    }
}
