//! The state machine of one core.
//!
//! The life of a request: bytes of a connection are received; each whole frame runs at once, item
//! by item, and its reply is appended to the connection's output; what an item changed is in the
//! open frame of the log. At the end of the turn the log is pumped. When the disk reports, the log
//! says how far it is durable, and every output releases what depended on no more than that.
//!
//! An item for another shard leaves in that shard's mail; an item on a cold key parks. Both are
//! answered in later frames of the same request.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use penstock_net::batch::Batch;
use penstock_net::frame::{Header, Medium, Opcode};
use penstock_net::hello::{ClientHello, ServerHello};
use penstock_net::keyspace::{Action, KEPT_BYTES, begin_list, end_list, push_keyspace};
use penstock_net::level::AckLevel;
use penstock_net::limits::{
    FRAME_BYTES_BEFORE_HELLO_MAX, HISTORY_VERSIONS_MAX, KEY_BYTES_MAX, Limits,
};
use penstock_net::receive::Received;
use penstock_net::refusal::{KeyspaceName, Refusal};
use penstock_net::reply::{
    BatchReply, REPLY_HEAD_BYTES_MAX, REPLY_ITEM_BYTES, ReplyHead, write_error, write_info_reply,
    write_ping_reply,
};
use penstock_net::request::{Extra, Request, Verb, Version, likely_key};
use penstock_net::scan::{ScanEntry, ScanPageWriter, ScanRequest, ScanValue};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::budget::Budget;
use penstock_storage::cleaning::{CLEAN_TOKEN_BIT, CleaningConfig, Damaged};
use penstock_storage::histogram::Histogram;
use penstock_storage::index::{Cursor, Home, PackedPlace};
use penstock_storage::io::{Block, Blocks, Completion, FileId, Io, IoFailure, IoToken};
use penstock_storage::keyspace::{
    KEYSPACES_MAX, SETTINGS_BYTES, Settings, is_system, keyspace_key,
};
use penstock_storage::log::{LOG_TOKEN_BIT, Lsn, Place, Poisoned, Room};
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::record::PartView;
use penstock_storage::recovery::Corruption;
use penstock_storage::scrub::SCRUB_TOKEN_BIT;
use penstock_storage::snapshot::SnapshotName;
use penstock_storage::store::{
    AdmitError, Found, LOOK_AHEAD, PARTITIONS, SLOTS, Store, Usage, aligned_span, part_read,
    partition_of,
};

use crate::answers::{Answers, Asked, Statuses};
use crate::execute::past::in_block;
use crate::execute::{Cold, Context, KeyHash, Ran, Undo, look, run};
use crate::keyspaces::{Change, Done, Keyspaces, from_wire, purpose_of, to_wire};
use crate::linked::{
    ClusterConfig, Elsewhere, LinkOutbox, Linked, PartitionStatus, Plan, ReplicationStatus,
};
use crate::mail::{
    Mail, MailedReply, MailedRequest, ReplyAddress, ReplyMail, RequestMail, SessionId, TakenMail,
};
use crate::member_read::{Stale, look_at_member};
use crate::parking::{Origin, PARKED_MAX, Parked, Parking, Waiter};
use crate::replication::gate::Outcome;
use crate::replication::handshake::Peer as LinkPeer;
use crate::replication::links::{Links, LinksCounters, LinksMemory};
use crate::replication::reads::LINK_TOKEN_BIT;
use crate::replication::{LinkId, PartitionId, PeerStatus, ReplicaGates, Waiting};
use crate::scanning::{
    ColdKey, ENTRIES_A_STEP_MAX, Order, READ_BYTES_A_STEP_MAX, READS_A_STEP_MAX, ROUNDS_MAX,
    SCAN_TOKEN_BIT, STEPS_A_TURN_MAX, Scan, ScanRead, Scanning, Unread, slot_of_cursor,
};
use crate::session::{AWAITED_BYTES, Session};
use crate::snapshots::{SnapshotCounters, SnapshotPolicy, SnapshotStart, SnapshotWrite, Snapshots};
use crate::stages::Stages;
use crate::topology::Topology;

/// The time of one step. It has no default: the first step decides where the shard's own time begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Microseconds of a clock that all shards of the node share and that never steps back.
    pub us: u64,
    /// Wall clock; it may step, the time of the store does not follow.
    pub unix_ms: u64,
}

/// The fixed properties of a shard.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Its number.
    pub shard: u16,
    /// Who owns which slot.
    pub topology: Topology,
    /// What HELLO tells; `shard` and `limits` are used from here too.
    pub hello: ServerHello,
    /// The least ack level; requests for less are raised to it.
    pub level_min: AckLevel,
    /// Bytes of replies that a connection may have waiting before no more is read from it.
    pub output_bytes_max: usize,
    /// A frame must be whole after this long.
    pub partial_frame_us_max: u64,
    /// A peer must take some of its replies within this.
    pub write_stall_us_max: u64,
    /// A connection that says nothing for so long is closed; 0 is never.
    pub idle_us_max: u64,
    /// Bytes of replies that all connections may have waiting, those included for which a read is
    /// under way, before no more is read from any. What is on its way to and from other shards is
    /// bounded by a share of it.
    pub replies_bytes_max: usize,
    /// Bytes that all connections have sent and that are not run, because their frames are not whole or have to wait, at
    /// most, but for a little of each. Twice the largest frame at least.
    pub input_bytes_max: usize,
    /// Bytes of the operations that wait for cold keys, at most, but for one alone.
    pub parked_bytes_max: usize,
    /// Items on their way to one other shard, at most.
    pub mailed_items_max: usize,
    /// The bound on the memory of the process in bytes, which what is refused for lack of memory
    /// names; 0 for none. What it leaves to this shard: [`Shard::set_memory_bytes_max`].
    pub memory_max: u64,
    /// Secret of the key hash.
    pub hash_seed: u64,
    /// When and how fast to clean the log.
    pub cleaning: CleaningConfig,
    /// When to take snapshots of the index.
    pub snapshots: SnapshotPolicy,
    /// Its part in a cluster; none of a node alone.
    pub cluster: Option<ClusterConfig>,
}

/// What the key hash of a seed makes of constants: a snapshot of the index tells it.
#[must_use]
pub fn hash_check(seed: u64) -> u64 {
    KeyHash::new(seed).check()
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
    /// The connection is gone.
    Closed {
        /// The connection.
        session: SessionId,
    },
    /// A read, write or sync ended.
    Completed(Completion<B>),
    /// Another shard sent a batch.
    Mail(Mail),
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
    /// All shards have taken over what they inherited, and it is durable that the inherited logs are void.
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
    /// A piece of a snapshot's file was written, or it cannot be; then nothing of the snapshot is to
    /// be used.
    SnapshotWritten {
        /// Which snapshot.
        name: SnapshotName,
        /// Whether it was written.
        is_good: bool,
    },
    /// Who writes and who holds what has changed in the cluster.
    Plan(Arc<Plan>),
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
    TailKept {
        /// The partition.
        partition: PartitionId,
        /// The link for which it was asked, if for one.
        link: Option<LinkId>,
    },
    /// All that was ready has been handed over: emit what is to be done.
    TurnEnds,
    /// Make all that was executed durable without waiting for the interval.
    Sync,
    /// Take no more requests, make everything durable, seal the log.
    Stop,
}

/// What a shard wants done. Emptied by the owner after each turn.
#[derive(Debug)]
pub struct Outbox<B> {
    /// Disk requests, in order.
    pub io: Vec<Io<B>>,
    /// Connections with bytes to send: [`Shard::take_output`].
    pub sendable: Vec<SessionId>,
    /// Connections whose unconsumed bytes are to be handed over again.
    pub resume: Vec<SessionId>,
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
    /// This shard needs the inherited logs no more. Told once: the answer is [`Event::InheritedGone`].
    pub has_taken_over: bool,
    /// Files of inherited logs, of which the disk is to forget this shard's descriptors.
    pub forgotten: Vec<FileId>,
    /// Segments that cleaning found damaged, to be told to people.
    pub damaged: Vec<Damaged>,
    /// What looking through sealed segments found damaged, to be told to people.
    pub rotten: Vec<Corruption>,
    /// What is to be done about links.
    pub links: LinkOutbox,
    /// The next bytes of a snapshot's file. They come one at a time: [`Event::SnapshotWritten`].
    pub snapshots: Vec<SnapshotWrite>,
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
            close: Vec::new(),
            mail: Vec::new(),
            info: Vec::new(),
            spares: 0,
            removals: Vec::new(),
            has_taken_over: false,
            forgotten: Vec::new(),
            damaged: Vec::new(),
            rotten: Vec::new(),
            links: LinkOutbox::default(),
            snapshots: Vec::new(),
            is_stopped: false,
            fatal: None,
        }
    }
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
    /// Another node has seen a later start of this one, or has applied what this one had told durable and lacks. What the cluster
    /// acknowledged is there, and what this node would write would have the same versions.
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
                "shard {shard}: a write or sync of {:08}.seg at offset {offset} failed ({failure:?}); nothing after record {} was acknowledged as durable, \
                 and nothing will be: restart to recover from the disk",
                file.0, durable.0
            ),
            Fatal::GoneBack => f.write_str(
                "another node has seen more of this one than is here: this directory is an older copy, or its disk has lost some. \
                 Nothing more is written here. Let the other node write (penstock cluster promote --force), then start this one on an empty directory; \
                 to go back on purpose, empty all others and promote this one",
            ),
        }
    }
}

/// What a shard did since it started as one of several nodes, and what that takes now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicationCounters {
    /// What its links have done.
    pub links: LinksCounters,
    /// What they take of the memory.
    pub memory: LinksMemory,
    /// Replies at level `replica` that were kept until members have what they tell.
    pub waits: u64,
    /// The same of any lower level: none, or it is a bug.
    pub waits_below: u64,
    /// Replies that were answered NOREPLICAS instead.
    pub missed: u64,
    /// Reads of partitions that other nodes write that were answered here.
    pub member_reads: u64,
    /// The same that were refused, because what is here is too old or lacks the version.
    pub member_stale: u64,
    /// Replies that wait now.
    pub waiting: u64,
    /// How long one of them has waited, at most, in microseconds.
    pub waiting_us: u64,
}

/// What a shard did since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Items answered here, by kind and status.
    pub answers: Answers,
    /// Error frames, by status: what was no request, or none that this server takes.
    pub frames_refused: Statuses,
    /// Items of batches and mail that were answered at once: no read was needed.
    pub at_once: u64,
    /// Changes of keyspaces that this shard decided.
    pub keyspace_changes: u64,
    /// PING frames.
    pub pings: u64,
    /// Frames and items that were refused.
    pub refused: u64,
    /// Items sent to another shard.
    pub forwarded: u64,
    /// Items executed for another shard.
    pub executed_for_others: u64,
    /// Items that waited for a read.
    pub parked: u64,
    /// Reads emitted.
    pub reads: u64,
    /// Bytes of those reads.
    pub read_bytes: u64,
    /// Reads that failed, or brought what was not written, and were done again block by block.
    pub reads_retried: u64,
    /// Keys that were looked for in a read that another key had begun.
    pub reads_coalesced: u64,
    /// Connections opened.
    pub sessions_opened: u64,
    /// Connections open now.
    pub sessions: u64,
    /// Times that reading from a connection was paused.
    pub pauses: u64,
}

/// The mail to and from one other shard.
#[derive(Default)]
struct Peer {
    requests: Vec<MailedRequest>,
    request_bytes: Vec<u8>,
    /// Items sent and not answered yet.
    outstanding: usize,
    /// Their bytes.
    outstanding_bytes: usize,
    /// Answers that it sent, for which no room was kept, and that were handed on, in bytes that it was
    /// not told of yet.
    taken_bytes: usize,
    /// Bytes of answers to it for which it keeps no room and that it has not told to have taken, and of
    /// those that wait for reads.
    replying_bytes: usize,
    /// Items of it that wait until it has taken answers, in order.
    held: VecDeque<Parked>,
    /// How many of them are of which connection.
    held_of: HashMap<SessionId, usize>,
    replies: VecDeque<(Lsn, MailedReply)>,
    reply_bytes: Vec<u8>,
    /// `end` of the replies counts from here.
    reply_bytes_sent: u64,
}

/// A reply that waits for the members of a partition.
#[derive(Debug)]
struct ReplicaReply {
    origin: Origin,
    address: ReplyAddress,
    asked: Asked,
    item: Box<[u8]>,
}

/// Replies at level `replica` that wait, at most: beyond that the answer is BUSY.
const REPLICA_REPLIES_MAX: usize = 65_536;

/// One core's state machine.
pub struct Shard<P: Blocks> {
    config: ShardConfig,
    limits: Limits,
    hash: KeyHash,
    store: Store<P>,
    sessions: Vec<Session>,
    free_sessions: Vec<u32>,
    /// Connections with replies that wait for the disk.
    gated: Vec<SessionId>,
    /// Connections whose bytes are not read until there is room again.
    paused: Vec<SessionId>,
    /// Something ended since the last turn, so that a paused connection may go on.
    has_progress: bool,
    /// After the last turn values were not to grow.
    waits_for_memory: bool,
    parking: Parking,
    /// The read of a second key, for which the first one is kept in memory.
    kept_for: Option<IoToken>,
    scanning: Scanning,
    order: Order,
    /// Operations out of their frame that found no room in the log, in order; while there are any,
    /// nothing else that writes may pass them.
    postponed: VecDeque<Parked>,
    peers: Vec<Peer>,
    keyspaces: Keyspaces,
    linked: Option<Box<Linked<P::Block>>>,
    /// Replies at level `replica`.
    replica_gates: ReplicaGates<ReplicaReply>,
    /// Of the replies that waited for members.
    replication: ReplicationCounters,
    /// The partitions of its slots.
    partitions: Vec<usize>,
    /// Bytes of replies that connections hold, those being sent, those that reads will bring and those
    /// that are kept for answers of other shards.
    replies_bytes: usize,
    /// Bytes that connections have sent and that are not run.
    input_bytes: usize,
    /// Answers of other shards for which connections keep room.
    awaited: usize,
    /// Bytes of answers to one other shard that it has not taken, at which no more are made, and of
    /// items on their way to it.
    mailed_bytes_max: usize,
    /// A frame of replies that has come to so many bytes is ended, so that no frame is too long.
    frame_full_bytes: usize,
    spares_requested: usize,
    /// Files of released segments that reads under way still refer to.
    leaving: Vec<FileId>,
    has_told_taken_over: bool,
    snapshots: Snapshots,
    /// Items run until the last turn.
    items_before: u64,
    next_sweep_us: u64,
    is_stopping: bool,
    fatal: Option<Fatal>,
    counters: Counters,
    stages: Stages,
    scratch: Vec<u8>,
    undo: Vec<Undo>,
}

/// What a connection may have sent that is not run without being counted: its buffer has as much in any case.
const INPUT_BYTES_FREE: usize = 4 << 10;
/// What is answered although replies have taken all the room that they may take.
const SMALL_ANSWER_BYTES: usize = 4 << 10;

/// Between two looks at the deadlines of connections, in microseconds.
const SWEEP_US: u64 = 100_000;

/// What a peer takes of its replies within the time that it has for that, at least, if there is so much.
const TAKEN_BYTES_MIN: usize = 64 << 10;

impl<P: Blocks> Shard<P> {
    /// A shard over a recovered store.
    ///
    /// # Panics
    /// If the store is one of a cluster and its notes cannot be read: [`crate::opening`] tells.
    pub fn new(config: ShardConfig, store: Store<P>) -> Self {
        let shard = Self::after(config, store, SnapshotStart::default());
        shard.expect("the notes of its partitions are read")
    }

    /// A shard over a recovered store, with what was found of its snapshots.
    ///
    /// # Errors
    /// The partition whose notes of its cluster are not of this version.
    pub(crate) fn after(
        mut config: ShardConfig,
        mut store: Store<P>,
        snapshots: SnapshotStart,
    ) -> Result<Self, PartitionId> {
        store.set_cleaning(config.cleaning);
        let linked = match config.cluster.clone() {
            Some(cluster) => {
                config.hello.placement = Some(cluster.plan.placement());
                Some(Box::new(Linked::new(cluster, &mut store)?))
            }
            None => None,
        };
        let shards = config.topology.shards();
        let peers = (0..shards).map(|_| Peer::default()).collect();
        let mailed_bytes_max = config.replies_bytes_max / 4 / usize::from(shards.max(2) - 1);
        // A record has room for two values, so half of it for the longest item.
        let item_bytes_max = store.log().config().record_bytes_max / 2;
        let frame_bytes_max = config.hello.limits.frame_bytes_max as usize;
        let frame_full_bytes = frame_bytes_max.saturating_sub(item_bytes_max);
        Ok(Shard {
            limits: config.hello.limits,
            hash: KeyHash::new(config.hash_seed),
            store,
            sessions: Vec::new(),
            free_sessions: Vec::new(),
            gated: Vec::new(),
            paused: Vec::new(),
            has_progress: false,
            waits_for_memory: false,
            parking: Parking::default(),
            kept_for: None,
            scanning: Scanning::default(),
            order: Order::new(config.hash_seed),
            postponed: VecDeque::new(),
            peers,
            keyspaces: Keyspaces::default(),
            linked,
            replica_gates: ReplicaGates::new(REPLICA_REPLIES_MAX),
            replication: ReplicationCounters::default(),
            partitions: (0..PARTITIONS)
                .zip((0..SLOTS).step_by(usize::from(SLOTS) / PARTITIONS))
                .filter(|&(_, slot)| config.topology.owner(slot) == config.shard)
                .map(|(partition, _)| partition)
                .collect(),
            replies_bytes: 0,
            input_bytes: 0,
            awaited: 0,
            mailed_bytes_max,
            frame_full_bytes,
            spares_requested: 0,
            leaving: Vec::new(),
            has_told_taken_over: false,
            snapshots: Snapshots::new(config.snapshots, hash_check(config.hash_seed), snapshots),
            items_before: 0,
            next_sweep_us: 0,
            is_stopping: false,
            fatal: None,
            counters: Counters::default(),
            stages: Stages::default(),
            scratch: Vec::new(),
            undo: Vec::new(),
            config,
        })
    }

    /// The slot and hash with which recovery must fill the index of a shard with this seed.
    pub fn home_of(seed: u64) -> impl Fn(&[u8]) -> (u16, u32) + Clone {
        let hash = KeyHash::new(seed);
        move |key| hash.home_of(key)
    }

    /// A connection was accepted.
    pub fn open_session(&mut self, now: Now) -> SessionId {
        let index = self.free_sessions.pop().unwrap_or_else(|| {
            self.sessions
                .push(Session::new(FRAME_BYTES_BEFORE_HELLO_MAX));
            u32::try_from(self.sessions.len() - 1).expect("connections are bounded")
        });
        let session = &mut self.sessions[index as usize];
        session.is_open = true;
        session.last_heard_us = now.us;
        self.counters.sessions_opened += 1;
        self.counters.sessions += 1;
        SessionId {
            index,
            generation: session.generation,
        }
    }

    /// A caller of this process has come, whose frames stay in its memory: nobody looks at their
    /// checksums, and its batches are answered without.
    pub fn open_session_in_memory(&mut self, now: Now) -> SessionId {
        let id = self.open_session(now);
        let session = &mut self.sessions[id.index()];
        session.medium = Medium::Memory;
        session.receiver.set_medium(Medium::Memory);
        id
    }

    /// Takes one event in. For [`Event::Received`] the result is how many bytes were consumed.
    pub fn step(
        &mut self,
        now: Now,
        event: Event<'_, P::Block>,
        outbox: &mut Outbox<P::Block>,
    ) -> usize {
        if self.fatal.is_some() {
            outbox.fatal = self.fatal;
            return 0;
        }
        self.store.observe(now.us, now.unix_ms);
        self.stages.event(now.us);
        match event {
            Event::Received { session, bytes } => {
                let consumed = self.received(now, session, bytes, outbox);
                self.note_input(session, bytes.len() - consumed);
                return consumed;
            }
            Event::Closed { session } => self.closed(session),
            Event::Completed(completion) => self.completed(now, completion, outbox),
            Event::Mail(Mail::Requests(mail)) => self.execute_mail(now, &mail),
            Event::Mail(Mail::Replies(mail)) => self.deliver_mail(&mail, outbox),
            Event::Mail(Mail::Keyspaces(mail)) => {
                self.keyspaces.hear(&mut self.store, &mail);
            }
            Event::Mail(Mail::KeyspaceDone { revision, is_full }) => {
                self.keyspace_done(Done { revision, is_full }, outbox);
            }
            Event::Mail(Mail::Taken(mail)) => {
                self.peers[usize::from(mail.from)].replying_bytes -= mail.bytes;
                self.has_progress = true;
            }
            Event::Spare {
                file,
                salt,
                bytes,
                is_reused,
            } => {
                self.spares_requested = self.spares_requested.saturating_sub(1);
                let log = self.store.log_mut();
                match is_reused {
                    true => log.add_reused_spare(file, salt, bytes),
                    false => log.add_spare(file, salt, bytes),
                }
                self.has_progress |= !is_planted(Bug::SpareWakesNobody);
            }
            Event::SpareRefused => {
                self.store.log_mut().spare_refused();
                self.has_progress = true;
            }
            Event::InheritedGone => outbox.forgotten.extend(self.store.forget_inherited()),
            Event::Info {
                session,
                request_id,
                text,
            } => {
                let shard = self.config.shard;
                if let Some(open) = self.open(session) {
                    write_info_reply(&mut open.output.bytes, request_id, shard, text);
                    self.note(session, Lsn(0), 0, outbox);
                }
            }
            Event::SnapshotWritten { name, is_good } => {
                let record_bytes = self.store.log().counters().record_bytes;
                self.snapshots.written(name, is_good, record_bytes);
            }
            Event::Plan(plan) => {
                if let Some(linked) = &mut self.linked {
                    self.config.hello.placement = Some(plan.placement());
                    linked.replan(plan);
                }
            }
            Event::LinkUp {
                link,
                peer,
                is_outgoing,
            } => {
                if let Some(links) = self.links() {
                    match is_outgoing {
                        true => links.connected(link, peer),
                        false => links.accepted(link, peer),
                    }
                }
            }
            Event::LinkReceived { link, bytes } => {
                if let Some(links) = self.links() {
                    links.came(link, bytes);
                }
            }
            Event::LinkDown { link } => {
                if let Some(links) = self.links() {
                    links.closed(link);
                }
            }
            Event::TailKept { partition, link } => {
                if let Some(links) = self.links() {
                    links.tail_kept(partition, link);
                }
            }
            Event::TurnEnds => self.turn_ends(now, outbox),
            Event::Sync => {
                let log = self.store.log_mut();
                log.want_durable(log.appended());
            }
            Event::Stop => {
                self.is_stopping = true;
                // What waits for room is told that there will be none.
                self.has_progress = true;
            }
        }
        0
    }

    /// What a GET of `key` at `level` shows at once, without a frame: the value and its version, or that there
    /// is none. `None` if it must be asked for like anything else: the key is not in memory or not of this
    /// shard, what it shows is not as durable as `level` demands, something that came before waits, or the
    /// answer is a refusal.
    #[inline]
    pub fn look(
        &mut self,
        now: Now,
        level: AckLevel,
        key: &[u8],
    ) -> Option<Option<(&[u8], Version)>> {
        let is_idle = self.parking.is_empty() && self.postponed.is_empty();
        if !is_idle || self.is_stopping || self.fatal.is_some() {
            return None;
        }
        self.store.observe(now.us, now.unix_ms);
        self.stages.event(now.us);
        let level = level.max(self.config.level_min);
        let is_key = (1..=KEY_BYTES_MAX).contains(&key.len()) && !is_system(key);
        let slot = slot_of(key);
        let level = level.max(least_level(&self.store, slot, key));
        if !is_key
            || level == AckLevel::Replica
            || self.config.topology.owner(slot) != self.config.shard
        {
            return None;
        }
        let (cell, version, lsn) = look(&self.store, self.hash.of(key), slot, key)?;
        if level >= AckLevel::Disk && lsn > self.store.log().durable() {
            return None;
        }
        self.counters.at_once += 1;
        let Some(id) = cell else {
            self.counters.answers.add(Asked::Get, Status::NotFound);
            return Some(None);
        };
        self.counters.answers.add(Asked::Get, Status::Ok);
        self.store.touch(id);
        Some(Some((self.store.cell(id).value(), version)))
    }

    /// Moves what may be sent to `into`, which is empty. More may be announced only after that.
    pub fn take_output(&mut self, now: Now, id: SessionId, into: &mut Vec<u8>) {
        if let Some(session) = self.open(id) {
            session.is_announced = false;
            session.stalled_since_us = None;
            let operations = session.output.take(into);
            session.leaving_bytes += into.len();
            let ready_us = session.ready_us.take();
            if !into.is_empty() {
                session.stalled_since_us = Some(now.us);
                session.took_us = now.us;
                session.took_bytes = 0;
                session.leaving = ready_us.map(|ready_us| (ready_us, operations));
            }
        }
    }

    /// The network took so many bytes more of what was taken.
    pub fn progressed(&mut self, now: Now, id: SessionId, bytes: usize) {
        if let Some(session) = self.open(id) {
            session.took_us = now.us;
            session.took_bytes += bytes;
            // Whoever takes a byte at a time would keep others from their replies for as long as he likes.
            if session.took_bytes >= TAKEN_BYTES_MIN {
                session.took_bytes = 0;
                session.stalled_since_us = Some(now.us);
            }
        }
    }

    /// Everything that was taken has been handed to the network.
    pub fn sent(&mut self, id: SessionId) {
        let Some(session) = self.open(id) else {
            return;
        };
        let (sent_bytes, took_us) = (session.leaving_bytes, session.took_us);
        session.leaving_bytes = 0;
        session.stalled_since_us = None;
        // The network took the last of it when it last took some.
        if let Some((ready_us, operations)) = session.leaving.take() {
            self.stages.left(took_us, ready_us, operations);
        }
        self.replies_bytes -= sent_bytes;
        self.has_progress |= !self.paused.is_empty() || self.owes_credit();
    }

    /// Whether a connection has said its last word and may be closed.
    #[must_use]
    pub fn is_finished(&self, id: SessionId) -> bool {
        let session = &self.sessions[id.index()];
        session.generation != id.generation
            || !session.is_open
            || (session.is_ending && session.is_settled())
    }

    /// Whether the bytes of a connection that were not consumed are to be kept until it is named in
    /// [`Outbox::resume`].
    #[must_use]
    pub fn is_paused(&self, id: SessionId) -> bool {
        let session = &self.sessions[id.index()];
        session.generation == id.generation && session.is_paused
    }

    /// When [`Event::TurnEnds`] is to be given at the latest, if nothing else happens.
    #[must_use]
    pub fn deadline_us(&self, now: Now) -> Option<u64> {
        let log = self.store.log().deadline_us();
        let sweep = (self.counters.sessions > 0).then_some(self.next_sweep_us.max(now.us + 1));
        let cleaning = self
            .store
            .cleaning_deadline_us()
            .filter(|_| !self.is_stopping);
        let scrub = self.store.scrub_deadline_us().filter(|_| !self.is_stopping);
        let waits = !self.postponed.is_empty()
            || !self.paused.is_empty()
            || self.peers.iter().any(|peer| !peer.held.is_empty())
            || self.owes_credit()
            || self.parking.has_unissued()
            || self.scanning.has_unissued()
            || self.keyspaces.has_work();
        let retry = ((self.has_progress && waits) || self.scanning.has_ready()).then_some(now.us);
        let snapshot = self.snapshots.deadline_us(now, &self.store);
        let linked = self.linked.as_ref().filter(|_| !self.is_stopping);
        let links = linked.and_then(|it| it.deadline_us(now.us));
        let replicas = self.replica_gates.deadline_us();
        [
            log, sweep, cleaning, scrub, retry, snapshot, links, replicas,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Keeps index and values within so many bytes from now on.
    pub fn set_memory_bytes_max(&mut self, memory_bytes_max: usize) {
        let budget = Budget {
            memory_bytes_max,
            ..self.store.budget()
        };
        self.store.set_budget(budget);
    }

    /// Looks through all sealed segments once within each `period_us`; 0, as at first, is never.
    pub fn scrub_within(&mut self, period_us: u64) {
        self.store.set_scrub(period_us, self.config.hash_seed);
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            reads_coalesced: self.parking.coalesced(),
            ..self.counters
        }
    }

    /// Where the time of its operations went.
    #[must_use]
    pub fn stages(&self) -> &Stages {
        &self.stages
    }

    /// What is held.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.store.usage()
    }

    /// What its snapshots did.
    #[must_use]
    pub fn snapshot_counters(&self) -> SnapshotCounters {
        self.snapshots.counters()
    }

    /// Whether a piece of a snapshot was given out and not answered.
    #[must_use]
    pub fn is_writing_snapshot(&self) -> bool {
        self.snapshots.is_writing()
    }

    /// The store, for what the owner reports of it.
    #[must_use]
    pub fn store(&self) -> &Store<P> {
        &self.store
    }

    /// Whether it is one of a cluster's.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.linked.is_some()
    }

    /// What it is to the partitions of its cluster, if it has one.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionStatus> + '_ {
        self.linked.iter().flat_map(|linked| linked.partitions())
    }

    /// What it knows of the other nodes of its cluster, if it has one.
    pub fn peers(&self, now: Now) -> impl Iterator<Item = PeerStatus> + '_ {
        self.linked
            .iter()
            .flat_map(move |linked| linked.peers(now.us))
    }

    /// Replaces what was known of its partitions and of the other nodes of its cluster, if it has one.
    pub fn look_around(&mut self, now: Now, status: &mut ReplicationStatus) {
        if let Some(linked) = &mut self.linked {
            linked.look_around(now.us, &self.store, status);
        }
    }

    /// The number of its node in its cluster, and where clients find each.
    #[must_use]
    pub fn nodes(&self) -> Option<(u8, &[(u8, String)])> {
        self.linked.as_ref().map(|linked| linked.nodes())
    }

    /// What it has done as one of a cluster, and what that takes now.
    #[must_use]
    pub fn replication_counters(&self, now: Now) -> ReplicationCounters {
        let Some(linked) = &self.linked else {
            return ReplicationCounters::default();
        };
        let links = linked.look_at_links();
        let deadline_us = self.replica_gates.deadline_us();
        let waits_us = deadline_us.map(|deadline_us| {
            let began_us = deadline_us.saturating_sub(linked.replica_timeout_us());
            now.us.saturating_sub(began_us)
        });
        ReplicationCounters {
            links: links.counters(),
            memory: links.memory(),
            waiting: self.replica_gates.len() as u64,
            waiting_us: waits_us.unwrap_or(0),
            ..self.replication
        }
    }

    /// How long it took, in microseconds, until members told to have received, and to have on their disks, what was
    /// shipped to them live; nothing of a node alone.
    #[must_use]
    pub fn replication_delays(&self) -> Option<(&Histogram, &Histogram)> {
        let linked = self.linked.as_ref()?;
        Some(linked.look_at_links().delays())
    }

    /// Moves what is to be sent by a link to `into`, which is empty; nothing of a link that is gone.
    pub fn take_link_output(&mut self, link: LinkId, into: &mut Vec<u8>) {
        if let Some(output) = self.links().and_then(|links| links.output(link)) {
            std::mem::swap(output, into);
        }
        if let Some(links) = self.links() {
            links.went(link, into.len());
        }
    }

    /// Whether more bytes of a link are to be handed over now.
    pub fn may_read_link(&mut self, link: LinkId) -> bool {
        self.links().is_none_or(|links| links.may_read(link))
    }

    fn links(&mut self) -> Option<&mut Links<P::Block>> {
        self.linked.as_mut().map(|linked| linked.links())
    }

    fn open(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions
            .get_mut(id.index())
            .filter(|session| session.is_open && session.generation == id.generation)
    }

    // ---- bytes of a connection ----

    fn received(
        &mut self,
        now: Now,
        id: SessionId,
        bytes: &[u8],
        outbox: &mut Outbox<P::Block>,
    ) -> usize {
        let Some(session) = self.open(id) else {
            return bytes.len();
        };
        if session.is_ending {
            return bytes.len();
        }
        if session.is_paused {
            return 0;
        }
        session.last_heard_us = now.us;
        let came_us = session.waits_since_us.take().unwrap_or(now.us);
        let mut consumed = 0;
        loop {
            let rest = &bytes[consumed..];
            if !self.has_room_for_replies(id) || !self.postponed.is_empty() {
                self.pause(id, if consumed == 0 { came_us } else { now.us });
                break;
            }
            let session = &mut self.sessions[id.index()];
            match session.receiver.next(rest) {
                Received::Incomplete { .. } => {
                    if let Some(refusal) = self.refusal_of_input(id, rest.len()) {
                        let session = &mut self.sessions[id.index()];
                        if let Some((header, given_up)) = session.receiver.give_up(rest) {
                            session.frame_began_us = session.frame_began_us.or(Some(now.us));
                            consumed += given_up;
                            let is_last = !session.has_said_hello;
                            self.refuse(id, Some(&header), refusal, is_last, outbox);
                            continue;
                        }
                    }
                    let session = &mut self.sessions[id.index()];
                    let is_begun = !rest.is_empty() || session.receiver.is_skipping();
                    session.frame_began_us = match is_begun {
                        true => session.frame_began_us.or(Some(now.us)),
                        false => None,
                    };
                    break;
                }
                Received::Skipped { consumed: skipped } => {
                    consumed += skipped;
                    if !session.receiver.is_skipping() {
                        session.frame_began_us = None;
                    }
                }
                Received::Refused {
                    header,
                    refusal,
                    consumed: refused,
                    is_fatal,
                } => {
                    session.frame_began_us = None;
                    consumed += refused;
                    let is_last = is_fatal || !session.has_said_hello;
                    self.refuse(id, header.as_ref(), refusal, is_last, outbox);
                    if is_last {
                        return bytes.len();
                    }
                }
                Received::Frame {
                    header,
                    body,
                    consumed: frame,
                } => {
                    session.frame_began_us = None;
                    if !self.frame(now, came_us, id, &header, body, outbox) {
                        self.pause(id, if consumed == 0 { came_us } else { now.us });
                        break;
                    }
                    consumed += frame;
                    if self.sessions[id.index()].is_ending {
                        return bytes.len();
                    }
                }
            }
        }
        consumed
    }

    /// Notes how many bytes of a connection are left that are not run.
    #[inline]
    fn note_input(&mut self, id: SessionId, bytes: usize) {
        if let Some(session) = self.open(id) {
            let now = if bytes > INPUT_BYTES_FREE { bytes } else { 0 };
            let before = std::mem::replace(&mut session.input_bytes, now);
            self.input_bytes = self.input_bytes - before + now;
        }
    }

    /// Why no more of a frame is taken in, if so. As of replies one may hold no more than is left for all, so that a few that
    /// never end their frames leave room for others.
    #[inline]
    fn refusal_of_input(&self, id: SessionId, bytes: usize) -> Option<Refusal> {
        if bytes <= INPUT_BYTES_FREE {
            return None;
        }
        let held = self.input_bytes - self.sessions[id.index()].input_bytes + bytes;
        let max = self.config.input_bytes_max;
        (bytes > max.saturating_sub(held)).then_some(Refusal::InputBytes { held, max })
    }

    /// Whether a connection may ask for more. What one may hold shrinks with what is left for all, so
    /// that a few that do not read leave room for others; who holds nothing may always ask for little.
    #[inline]
    fn has_room_for_replies(&self, id: SessionId) -> bool {
        let room = self.room_for_replies().min(self.config.output_bytes_max);
        self.sessions[id.index()].held_bytes() <= room
    }

    /// Bytes that are left for replies. Without any, only answers of [`SMALL_ANSWER_BYTES`] are given.
    #[inline]
    fn room_for_replies(&self) -> usize {
        let max = self.config.replies_bytes_max;
        max.saturating_sub(self.replies_bytes)
    }

    /// Whether the answer to an item may be longer than `bytes_max`, as far as this shard can tell.
    #[cold]
    fn asks_for_much(&self, item: &[u8], bytes_max: usize) -> bool {
        if ScanRequest::is_scan(item) {
            return true;
        }
        let Ok(request) = Request::read(item, self.limits.value_bytes_max) else {
            return false;
        };
        let slot = slot_of_request(&request);
        if self.config.topology.owner(slot) != self.config.shard {
            return false;
        }
        match Asked::of(request.verb) {
            Asked::Get => {}
            // What they tell was written before what the index says.
            Asked::GetAt | Asked::History | Asked::Keyspace => return true,
            _ => return false,
        }
        let hash = self.hash.of(request.key);
        let bytes = self.value_bytes(self.store.find(slot, hash, request.key));
        bytes + REPLY_HEAD_BYTES_MAX > bytes_max
    }

    /// How long a value is; of a cold one what its part takes.
    fn value_bytes(&self, found: Found) -> usize {
        match found {
            Found::Cold(place) => place.bytes as usize,
            Found::Cached(id) => self.store.cell(id).value().len(),
            Found::Absent => 0,
        }
    }

    /// Keeps room for an answer that will come.
    fn reserve(&mut self, origin: Origin, session: SessionId, bytes: usize) {
        match origin {
            Origin::Here => {
                // Closed ones are still executed.
                if let Some(session) = self.open(session) {
                    session.reserved_bytes += bytes;
                    self.replies_bytes += bytes;
                }
            }
            Origin::Shard(from) => self.peers[usize::from(from)].replying_bytes += bytes,
        }
    }

    /// Ends that, before it is answered; nothing is kept for a connection that is closed.
    fn unreserve(&mut self, parked: &mut Parked) {
        let bytes = std::mem::take(&mut parked.reserved);
        self.unreserve_bytes(parked.origin, parked.address.session, bytes);
    }

    fn unreserve_bytes(&mut self, origin: Origin, session: SessionId, bytes: usize) {
        match origin {
            Origin::Here => {
                if let Some(session) = self.open(session) {
                    session.reserved_bytes -= bytes;
                    self.replies_bytes -= bytes;
                }
            }
            Origin::Shard(_) if is_planted(Bug::KeepReserved) => {}
            Origin::Shard(from) => self.peers[usize::from(from)].replying_bytes -= bytes,
        }
    }

    /// Reads no more from a connection for now; its bytes wait since `since_us`.
    fn pause(&mut self, id: SessionId, since_us: u64) {
        let session = &mut self.sessions[id.index()];
        if !session.is_paused {
            session.is_paused = true;
            session.waits_since_us = Some(since_us);
            self.counters.pauses += 1;
            self.paused.push(id);
        }
    }

    #[cold]
    fn refuse(
        &mut self,
        id: SessionId,
        header: Option<&Header>,
        refusal: Refusal,
        is_last: bool,
        outbox: &mut Outbox<P::Block>,
    ) {
        self.counters.refused += 1;
        self.counters.frames_refused.add(refusal.status());
        let shard = self.config.shard;
        let session = &mut self.sessions[id.index()];
        write_error(
            &mut session.output.bytes,
            header,
            refusal.status(),
            0,
            shard,
            &refusal,
        );
        session.is_ending |= is_last;
        self.note(id, Lsn(0), 0, outbox);
    }

    /// Runs one frame. `false` if it must be given again because there is no room for it now.
    fn frame(
        &mut self,
        now: Now,
        came_us: u64,
        id: SessionId,
        header: &Header,
        body: &[u8],
        outbox: &mut Outbox<P::Block>,
    ) -> bool {
        let refusal = match self.judge(id, header) {
            Ok((Opcode::Batch, level)) => match Batch::read(body) {
                Ok(_) if self.sessions[id.index()].is_under_way(header.request_id) => {
                    Refusal::RequestUnderWay(header.request_id)
                }
                Ok(batch) if level != AckLevel::Replica || self.linked.is_some() => loop {
                    match self.batch(now, came_us, id, header, batch, level, outbox) {
                        Progress::Whole => return true,
                        Progress::FrameFull if self.has_room_for_replies(id) => {}
                        Progress::FrameFull | Progress::NoRoom => return false,
                    }
                },
                Ok(_) => Refusal::Replica,
                Err(refusal) => refusal,
            },
            Ok((Opcode::Ping, _))
                if body.len() > SMALL_ANSWER_BYTES && self.room_for_replies() == 0 =>
            {
                self.sessions[id.index()].asks_for_much = true;
                return false;
            }
            Ok((Opcode::Ping, _)) => {
                self.counters.pings += 1;
                let shard = self.config.shard;
                write_ping_reply(
                    &mut self.sessions[id.index()].output.bytes,
                    header,
                    body,
                    shard,
                );
                self.note(id, Lsn(0), 0, outbox);
                return true;
            }
            Ok((Opcode::Info, _)) if !body.is_empty() => Refusal::InfoBody { len: body.len() },
            Ok((Opcode::Info, _)) => {
                outbox.info.push((id, header.request_id));
                return true;
            }
            Ok((Opcode::Hello, _)) => match ClientHello::read(body) {
                Ok(_) => {
                    let session = &mut self.sessions[id.index()];
                    session.has_said_hello = true;
                    session
                        .receiver
                        .set_frame_bytes_max(self.limits.frame_bytes_max);
                    self.config
                        .hello
                        .write(&mut session.output.bytes, header.request_id);
                    self.note(id, Lsn(0), 0, outbox);
                    return true;
                }
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        let is_last = !self.sessions[id.index()].has_said_hello;
        self.refuse(id, Some(header), refusal, is_last, outbox);
        true
    }

    /// Checks the header's fields, and that HELLO is said first and once.
    #[inline]
    fn judge(&self, id: SessionId, header: &Header) -> Result<(Opcode, AckLevel), Refusal> {
        let is_hello = header.opcode == Opcode::Hello as u8;
        match (self.sessions[id.index()].has_said_hello, is_hello) {
            (false, false) => Err(Refusal::HelloExpected {
                opcode: header.opcode,
            }),
            (true, true) => Err(Refusal::HelloRepeated),
            _ => header.read_request(),
        }
    }

    /// Runs the items of a batch from where it was left.
    #[expect(
        clippy::too_many_arguments,
        reason = "a frame, its time and its connection"
    )]
    fn batch(
        &mut self,
        now: Now,
        came_us: u64,
        id: SessionId,
        header: &Header,
        batch: Batch<'_>,
        level: AckLevel,
        outbox: &mut Outbox<P::Block>,
    ) -> Progress {
        let level = level.max(self.config.level_min);
        let deadline_us = match header.deadline_or_retry_ms {
            0 => 0,
            deadline_ms => came_us + u64::from(deadline_ms) * 1000,
        };
        let session = &mut self.sessions[id.index()];
        let first = session.interrupted.take().map_or(0, |(_, items)| items);
        let mut out = std::mem::take(&mut session.output.bytes);
        let start = out.len();
        let mut reply = BatchReply::begin(&mut out, header.request_id, batch.len() - first)
            .over(session.medium);
        let mut gate = Lsn(0);
        let mut owed = 0;
        let mut next = first;
        let mut progress = Progress::Whole;
        let room = self.room_for_replies();
        let frame_full_bytes = self.frame_full_bytes.min(room.max(SMALL_ANSWER_BYTES));
        while next < batch.len() {
            if (next - first).is_multiple_of(LOOK_AHEAD) {
                self.look_ahead(batch, next);
            }
            let item = batch.item(next);
            if room == 0 && self.asks_for_much(item, SMALL_ANSWER_BYTES) {
                let session = &mut self.sessions[id.index()];
                session.interrupted = Some((header.request_id, next));
                session.asks_for_much = true;
                progress = Progress::NoRoom;
                break;
            }
            let number = match is_planted(Bug::CountFromInterruption) {
                true => next - first,
                false => next,
            };
            let number = u16::try_from(number).expect("at most 1024 items");
            let from = out.len();
            let operation = Operation {
                address: ReplyAddress {
                    session: id,
                    request_id: header.request_id,
                    item: number,
                    item_bytes: u32::try_from(item.len()).expect("a frame bounds it"),
                },
                level,
                deadline_us,
                came_us,
                brought: None,
            };
            match self.operation(now, Origin::Here, operation, item, &mut out) {
                Step::Answered(lsn) => {
                    gate = match is_planted(Bug::GateOfLastItem) {
                        true => lsn,
                        false => gate.max(lsn),
                    };
                    reply.end_item(&mut out, from);
                    if out.len() - start > frame_full_bytes {
                        progress = Progress::FrameFull;
                    }
                }
                Step::Later => {
                    owed += 1;
                    if !self.has_room_for_replies(id) {
                        progress = Progress::NoRoom;
                    }
                }
                Step::Postponed => {
                    if !is_planted(Bug::RepeatInterruptedBatch) {
                        self.sessions[id.index()].interrupted = Some((header.request_id, next));
                    }
                    progress = Progress::NoRoom;
                    break;
                }
            }
            next += 1;
            if progress != Progress::Whole {
                if next == batch.len() {
                    progress = Progress::Whole;
                } else {
                    self.sessions[id.index()].interrupted = Some((header.request_id, next));
                }
                break;
            }
        }
        let is_whole = progress == Progress::Whole;
        let answered = reply.len();
        self.counters.at_once += answered as u64;
        self.stages.queued(now.us, came_us, answered as u64);
        let session = &mut self.sessions[id.index()];
        if owed > 0 {
            session.owe(header.request_id, owed);
        }
        let more = !is_whole || owed > 0 || session.owes(header.request_id);
        let has_reply = reply.finish(&mut out, self.config.shard, more && answered > 0, false);
        self.sessions[id.index()].output.bytes = out;
        if has_reply {
            self.note(id, gate, answered, outbox);
        }
        progress
    }

    /// Starts loading what the next items of a batch will look up.
    #[inline]
    fn look_ahead(&self, batch: Batch<'_>, next: usize) {
        let count = LOOK_AHEAD.min(batch.len() - next);
        if count < 4 {
            return;
        }
        let mut keys = [(0, 0); LOOK_AHEAD];
        for (number, place) in keys[..count].iter_mut().enumerate() {
            *place = likely_key(batch.item(next + number))
                .map_or((0, 0), |key| (slot_of(key), self.hash.of(key)));
        }
        // One hot key is in the processor's cache already.
        if keys[..count].iter().any(|&place| place != keys[0]) {
            self.store.look_ahead(&keys[..count]);
        }
    }

    // ---- one operation ----

    /// Runs, parks or mails one item; a reply item is written at the end of `out`.
    #[inline]
    fn operation(
        &mut self,
        now: Now,
        origin: Origin,
        operation: Operation<'_>,
        item: &[u8],
        out: &mut Vec<u8>,
    ) -> Step {
        let Operation {
            address,
            level,
            deadline_us,
            ..
        } = operation;
        if ScanRequest::is_scan(item) {
            return self.begin_scan(now, origin, operation, item, out);
        }
        let request = match Request::read(item, self.limits.value_bytes_max) {
            Ok(request) => request,
            Err(refusal) => {
                return self.refuse_item(
                    Asked::Unreadable,
                    &operation,
                    refusal.status(),
                    &refusal,
                    out,
                );
            }
        };
        let asked = Asked::of(request.verb);
        let slot = slot_of_request(&request);
        if let Some((status, message)) = self.comes_too_late(now, deadline_us) {
            return self.refuse_item(asked, &operation, status, &message, out);
        }
        let owner = self.config.topology.owner(slot);
        if owner != self.config.shard {
            return self.mail_request(origin, owner, operation, slot, item, out);
        }
        if !self.parking.is_empty()
            && let Some(cold) = self.parking.behind(origin, &address, slot)
        {
            // It runs later, and its key is read meanwhile.
            let hash = self.hash.of(request.key);
            let found = self.store.find(slot, hash, request.key);
            if let Found::Cold(place) = found
                && !self.parking.is_full()
            {
                self.parking.fetch(Cold {
                    slot,
                    hash,
                    place,
                    sequence: None,
                });
            }
            let reserved = answer_bytes(asked, self.value_bytes(found));
            return self.park(cold, origin, operation, slot, item, reserved, out);
        }
        let mut is_of_member = false;
        if let Extra::Keyspace(action) = request.extra {
            if let Some(linked) = &self.linked
                && let Some((status, message)) = linked.refuses_settings(&action, level)
            {
                return self.refuse_item(asked, &operation, status, &message, out);
            }
            return self.keyspace(origin, operation, request.key, action, out);
        }
        let mut context = Context {
            now_us: now.us,
            hash: &self.hash,
            slot,
            item: address.item,
            level,
            memory_max: self.config.memory_max,
            ttl_ms: 0,
            brought: operation.brought,
            standing: None,
        };
        if !self.store.keyspaces().is_empty()
            && let Err(refusal) = obey(&self.store, &request, &mut context)
        {
            return self.refuse_item(asked, &operation, refusal.status(), &refusal, out);
        }
        let mut level = context.level;
        if let Extra::Member(read) = request.extra {
            let linked = self.linked.as_deref_mut();
            let partition = partition_of(slot);
            match look_at_member(linked, &self.store, now.us, partition, level, read) {
                None => {}
                Some(Ok((standing, is_member))) => {
                    context.standing = Some(standing);
                    is_of_member = is_member;
                }
                Some(Err(stale)) => return self.refuse_stale(asked, &operation, &stale, out),
            }
        }
        if is_of_member {
            // Before it is applied it is durable at the primary.
            level = AckLevel::Disk;
            context.level = level;
        }
        if let Some(linked) = self.linked.as_ref().filter(|_| !is_of_member) {
            let partition = partition_of(slot);
            let is_waited_for = level == AckLevel::Replica;
            if let Some(elsewhere) = linked.elsewhere(partition) {
                return self.refuse_elsewhere(asked, &operation, &elsewhere, out);
            }
            if is_waited_for && !linked.has_sync(partition) {
                let message = format!(
                    "nothing was executed: no other node is in the sync set of partition {partition}, so nobody but this one would have it"
                );
                return self.refuse_item(asked, &operation, Status::NoReplicas, &message, out);
            }
            if is_waited_for && !self.replica_gates.has_room() {
                let message = format!(
                    "{REPLICA_REPLIES_MAX} replies wait for other nodes, which is the limit"
                );
                return self.refuse_item(asked, &operation, Status::Busy, &message, out);
            }
        }
        let from = out.len();
        let ran = run(&mut self.store, context, &request, &mut self.undo, out);
        match ran {
            Ran::Answered { gate: _, status } if level == AckLevel::Replica => {
                self.counters.answers.add(asked, status);
                let whom = ReplicaReply {
                    origin,
                    address,
                    asked,
                    item: out[from..].into(),
                };
                out.truncate(from);
                self.wait_for_members(now, slot, level, whom);
                Step::Later
            }
            Ran::Answered { gate: _, status } if is_of_member => {
                self.replication.member_reads += 1;
                self.counters.answers.add(asked, status);
                Step::Answered(Lsn(0))
            }
            Ran::Answered { gate, status } => {
                self.counters.answers.add(asked, status);
                Step::Answered(self.gate(level, gate))
            }
            Ran::Cold(cold) | Ran::SecondCold(cold)
                if operation.brought.is_some()
                    && cold.sequence.is_some()
                    && !self.has_room_for_more(origin, address.session) =>
            {
                // It was parked for its key, and only now shows how long the version is.
                let bytes = cold.place.bytes as usize;
                self.refuse_item(asked, &operation, Status::Busy, &Outgrown(bytes), out)
            }
            Ran::Cold(cold) => {
                let reserved = answer_bytes(asked, cold.place.bytes as usize);
                self.park(cold, origin, operation, slot, item, reserved, out)
            }
            Ran::SecondCold(cold) => {
                let reserved = answer_bytes(asked, cold.place.bytes as usize);
                let step = self.park(cold, origin, operation, slot, item, reserved, out);
                if self.kept_for.is_none() && matches!(step, Step::Later) {
                    self.kept_for = self.parking.read_of(origin, &address, slot);
                    self.store.keep(Some((slot, self.hash.of(request.key))));
                }
                step
            }
            Ran::Postponed => Step::Postponed,
        }
    }

    /// Answers an item that is not executed, with the reason.
    #[cold]
    fn refuse_item(
        &mut self,
        asked: Asked,
        operation: &Operation,
        status: Status,
        reason: &dyn fmt::Display,
        out: &mut Vec<u8>,
    ) -> Step {
        self.counters.refused += 1;
        self.counters.answers.add(asked, status);
        let item = operation.address.item;
        ReplyHead::new(status, item, operation.level, Version::default())
            .write_message(out, reason);
        Step::Answered(Lsn(0))
    }

    /// Tells who answers it.
    #[cold]
    fn refuse_elsewhere(
        &mut self,
        asked: Asked,
        operation: &Operation,
        elsewhere: &Elsewhere,
        out: &mut Vec<u8>,
    ) -> Step {
        self.counters.refused += 1;
        let status = elsewhere.status();
        self.counters.answers.add(asked, status);
        let item = operation.address.item;
        ReplyHead::new(status, item, operation.level, elsewhere.version())
            .write_message(out, elsewhere);
        Step::Answered(Lsn(0))
    }

    /// Tells how far this node is.
    #[cold]
    fn refuse_stale(
        &mut self,
        asked: Asked,
        operation: &Operation,
        stale: &Stale,
        out: &mut Vec<u8>,
    ) -> Step {
        self.counters.refused += 1;
        self.replication.member_stale += 1;
        self.counters.answers.add(asked, Status::Stale);
        let item = operation.address.item;
        ReplyHead::new(Status::Stale, item, operation.level, Version::default())
            .write_with_standing(out, None, stale.standing, stale.to_string().as_bytes());
        Step::Answered(Lsn(0))
    }

    /// Why nothing is executed any more.
    #[inline]
    fn comes_too_late(&self, now: Now, deadline_us: u64) -> Option<(Status, &'static str)> {
        if self.is_stopping {
            Some((Status::Draining, "the server is stopping"))
        } else if deadline_us != 0 && now.us > deadline_us {
            Some((Status::Deadline, "the deadline passed before execution"))
        } else {
            None
        }
    }

    /// Takes a change of a keyspace in, or tells all of them. This shard decides.
    #[cold]
    fn keyspace(
        &mut self,
        origin: Origin,
        operation: Operation<'_>,
        prefix: &[u8],
        action: Action,
        out: &mut Vec<u8>,
    ) -> Step {
        let Operation { address, level, .. } = operation;
        let head = |status| ReplyHead::new(status, address.item, level, Version::default());
        let no =
            |counters: &mut Counters, out: &mut Vec<u8>, status, message: &dyn fmt::Display| {
                counters.answers.add(Asked::Keyspace, status);
                head(status).write_message(out, message);
            };
        // All that is told here stands in records that were appended.
        let logged = self.store.log().appended();
        if action == Action::List {
            let from = out.len();
            out.resize(from + REPLY_ITEM_BYTES, 0);
            let list = begin_list(out);
            let mut count = 0;
            let there = self.store.keyspaces().logged(&self.partitions);
            for (prefix, settings) in there.filter(|(_, settings)| !settings.is_dropped) {
                push_keyspace(out, prefix, settings.revision, &to_wire(settings));
                count += 1;
            }
            end_list(out, list, count, false);
            head(Status::Ok).patch(out, from);
            self.counters.answers.add(Asked::Keyspace, Status::Ok);
            return Step::Answered(self.gate(level, logged));
        }
        if self.keyspaces.is_changing() {
            self.counters.refused += 1;
            let message = "another keyspace is being changed";
            no(&mut self.counters, out, Status::Busy, &message);
            return Step::Answered(Lsn(0));
        }
        let keyspaces = self.store.keyspaces();
        let known = keyspaces.newest(prefix).copied();
        let exists = known.filter(|settings| !settings.is_dropped);
        // A change that found a disk full may be nowhere in the log yet.
        let is_logged = keyspaces.first_behind(prefix, &self.partitions).is_none();
        let name = KeyspaceName::new(prefix);
        let revision = Keyspaces::next_revision(&self.store);
        let settings = match (action, exists) {
            (Action::Create(_), Some(_)) if is_logged => {
                let message = format_args!("keyspace {name:?} exists");
                no(&mut self.counters, out, Status::Exists, &message);
                return Step::Answered(self.gate(level, logged));
            }
            (Action::Drop, None) if is_logged => {
                let message = format_args!("keyspace {name:?} does not exist");
                no(&mut self.counters, out, Status::NotFound, &message);
                return Step::Answered(self.gate(level, logged));
            }
            (Action::Create(settings) | Action::Set(settings), _) => from_wire(&settings, revision),
            (Action::Drop | Action::List, _) => Settings {
                is_dropped: true,
                revision,
                ..known.unwrap_or_default()
            },
        };
        let key_bytes = keyspace_key(u32::MAX, prefix).len();
        let gives_back = known.is_some_and(|known| settings.gives_back(&known));
        let purpose = purpose_of(gives_back);
        let room = self.store.room(purpose, key_bytes, SETTINGS_BYTES, false);
        if room == Room::Full {
            self.counters.refused += 1;
            let message = "the disk is full: no segment can be made ready for new records";
            no(&mut self.counters, out, Status::Full, &message);
            return Step::Answered(Lsn(0));
        }
        if self.store.hear(prefix, settings).is_err() {
            self.counters.refused += 1;
            let message = format_args!(
                "{KEYSPACES_MAX} prefixes have settings or had some, which is the limit: keyspace {name:?} cannot be made"
            );
            no(&mut self.counters, out, Status::Full, &message);
            return Step::Answered(Lsn(0));
        }
        self.counters.keyspace_changes += 1;
        let change = Change {
            origin,
            address,
            level: level.max(AckLevel::Disk),
            prefix: prefix.into(),
            settings,
            left: self.config.topology.shards(),
        };
        self.keyspaces.begin(self.config.shard, change);
        Step::Later
    }

    /// A shard has logged a change; the last one, or one that cannot, lets it be answered.
    fn keyspace_done(&mut self, done: Done, outbox: &mut Outbox<P::Block>) {
        let Some(change) = self.keyspaces.done(done) else {
            return;
        };
        let Done { revision, is_full } = done;
        if is_full {
            let status = Status::Indeterminate;
            self.counters.answers.add(Asked::Keyspace, status);
            let name = KeyspaceName::new(&change.prefix);
            let message = format_args!(
                "the disk is full: keyspace {name:?} is changed in a part of its partitions, and in the others as soon as there is room"
            );
            let mut out = Vec::new();
            let item = change.address.item;
            ReplyHead::new(status, item, change.level, Version::default())
                .write_message(&mut out, &message);
            self.answer_detached(change.origin, change.address, Lsn(0), &out, outbox);
            return;
        }
        self.counters.answers.add(Asked::Keyspace, Status::Ok);
        let head = ReplyHead::new(
            Status::Ok,
            change.address.item,
            change.level,
            Version::default(),
        );
        let mut out = vec![0; REPLY_ITEM_BYTES];
        let list = begin_list(&mut out);
        let is_there = !change.settings.is_dropped;
        if is_there {
            push_keyspace(
                &mut out,
                &change.prefix,
                revision,
                &to_wire(&change.settings),
            );
        }
        end_list(&mut out, list, u32::from(is_there), false);
        head.patch(&mut out, 0);
        self.answer_detached(change.origin, change.address, Lsn(0), &out, outbox);
    }

    /// What the reply must wait for at this level, after asking the log for it.
    #[inline]
    fn gate(&mut self, level: AckLevel, lsn: Lsn) -> Lsn {
        let log = self.store.log_mut();
        if level >= AckLevel::Disk && !is_planted(Bug::AckEarly) {
            if lsn <= log.durable() {
                return Lsn(0);
            }
            log.want_durable(lsn);
            self.stages.waits(lsn);
            return lsn;
        }
        // The log makes what nobody waits for durable within its interval by itself.
        Lsn(0)
    }

    /// Keeps a reply until each member of the sync set has all that was appended by now.
    #[cold]
    fn wait_for_members(&mut self, now: Now, slot: u16, level: AckLevel, whom: ReplicaReply) {
        match level {
            AckLevel::Replica => self.replication.waits += 1,
            AckLevel::None | AckLevel::Interval | AckLevel::Disk => {
                self.replication.waits_below += 1;
            }
        }
        self.reserve(whom.origin, whom.address.session, whom.item.len());
        let log = self.store.log_mut();
        let lsn = log.appended();
        log.want_durable(lsn);
        let linked = self.linked.as_ref().expect("the level was refused without");
        self.replica_gates.wait(Waiting {
            partition: PartitionId::try_from(partition_of(slot)).expect("256"),
            lsn,
            deadline_us: now.us + linked.replica_timeout_us(),
            whom,
        });
    }

    /// Answers what need not wait for members any longer.
    fn release_replicas(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        let Some(linked) = &self.linked else { return };
        if self.replica_gates.is_empty() {
            return;
        }
        // Behind the stop nobody may come to have it.
        let now_us = match self.is_stopping {
            true => u64::MAX,
            false => now.us,
        };
        let mut answers = Vec::new();
        let deposed = linked.deposed();
        let durable = self.store.log().durable();
        for &partition in deposed {
            self.replica_gates
                .depose(partition, |whom| answers.push((whom, Outcome::Unknown)));
        }
        self.replica_gates.release(
            now_us,
            durable,
            |partition| linked.received(partition),
            |whom, outcome| answers.push((whom, outcome)),
        );
        for (whom, outcome) in answers {
            let ReplicaReply {
                origin,
                address,
                asked,
                item,
            } = whom;
            self.unreserve_bytes(origin, address.session, item.len());
            match outcome {
                Outcome::Reached => {
                    self.answer_detached(origin, address, Lsn(0), &item, outbox);
                }
                Outcome::Unknown => {
                    self.replication.missed += 1;
                    let mut out = Vec::new();
                    let version = Version::default();
                    let text = match asked.is_read() {
                        true => {
                            "nothing was changed; not every node of the sync set has told in time that it has what was read here"
                        }
                        false => {
                            "it was executed here and is in the log, and not every node of the sync set has told in time that it has it"
                        }
                    };
                    ReplyHead::new(Status::NoReplicas, address.item, AckLevel::None, version)
                        .write_message(&mut out, &text);
                    self.answer_detached(origin, address, Lsn(0), &out, outbox);
                }
            }
        }
    }

    /// Has an operation wait for a read, and keeps so many bytes free for its answer.
    #[expect(clippy::too_many_arguments, reason = "an operation and its read")]
    fn park(
        &mut self,
        cold: Cold,
        origin: Origin,
        operation: Operation<'_>,
        slot: u16,
        item: &[u8],
        reserved: usize,
        out: &mut Vec<u8>,
    ) -> Step {
        let Operation {
            address,
            level,
            deadline_us,
            ..
        } = operation;
        let bytes_max = self.config.parked_bytes_max;
        if !self.parking.has_room(item.len(), bytes_max) {
            let message = format!(
                "{} operations of {} bytes wait for reads: the limits are {PARKED_MAX} and {bytes_max} bytes",
                self.parking.len(),
                self.parking.parked_bytes(),
            );
            let asked = self.asked_by(item);
            return self.refuse_item(asked, &operation, Status::Busy, &message, out);
        }
        self.counters.parked += 1;
        self.reserve(origin, address.session, reserved);
        self.parking.park(
            cold,
            Parked {
                origin,
                address,
                level,
                deadline_us,
                came_us: operation.came_us,
                slot,
                reserved,
                item: item.into(),
            },
        );
        Step::Later
    }

    /// What an item asks for.
    #[cold]
    fn asked_by(&self, item: &[u8]) -> Asked {
        match Request::read(item, self.limits.value_bytes_max) {
            _ if ScanRequest::is_scan(item) => Asked::Scan,
            Ok(request) => Asked::of(request.verb),
            Err(_) => Asked::Unreadable,
        }
    }

    /// Hands an item over to the shard that owns its slot.
    fn mail_request(
        &mut self,
        origin: Origin,
        owner: u16,
        operation: Operation<'_>,
        slot: u16,
        item: &[u8],
        out: &mut Vec<u8>,
    ) -> Step {
        let Operation {
            address,
            level,
            deadline_us,
            ..
        } = operation;
        assert!(
            origin == Origin::Here,
            "the shards of a node agree on who owns a slot"
        );
        if self.peers[usize::from(owner)].outstanding >= self.config.mailed_items_max {
            let message = format!(
                "{} items are on their way to shard {owner}, which is the limit",
                self.peers[usize::from(owner)].outstanding
            );
            let asked = self.asked_by(item);
            return self.refuse_item(asked, &operation, Status::Busy, &message, out);
        }
        let bytes_max = self.mailed_bytes_max;
        let peer = &mut self.peers[usize::from(owner)];
        // One item may go beyond: it would wait for ever while smaller ones of others fill what is left.
        if peer.outstanding > 0 && peer.outstanding_bytes >= bytes_max {
            return Step::Postponed;
        }
        self.counters.forwarded += 1;
        peer.outstanding += 1;
        peer.outstanding_bytes += item.len();
        self.sessions[address.session.index()].awaited += 1;
        self.awaited += 1;
        self.replies_bytes += AWAITED_BYTES;
        peer.request_bytes.extend_from_slice(item);
        let end =
            u32::try_from(peer.request_bytes.len()).expect("credits and frame limits bound a mail");
        peer.requests.push(MailedRequest {
            address,
            level,
            deadline_us,
            came_us: operation.came_us,
            slot,
            end,
        });
        Step::Later
    }

    /// Runs an operation that was taken out of its frame and answers it by itself.
    fn run_detached(
        &mut self,
        now: Now,
        mut parked: Parked,
        brought: Option<(Place, &[u8])>,
        outbox: &mut Outbox<P::Block>,
    ) {
        let reserved = parked.reserved;
        self.unreserve(&mut parked);
        let operation = Operation {
            address: parked.address,
            level: parked.level,
            deadline_us: match is_planted(Bug::ForgetParkedDeadline) {
                true => 0,
                false => parked.deadline_us,
            },
            came_us: parked.came_us,
            brought,
        };
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let step = match self.outgrown(&parked, reserved) {
            None => self.operation(now, parked.origin, operation, &parked.item, &mut out),
            Some(outgrown) => {
                self.refuse_item(Asked::Get, &operation, Status::Busy, &outgrown, &mut out)
            }
        };
        match step {
            Step::Answered(gate) => {
                self.stages.queued(now.us, parked.came_us, 1);
                self.answer_detached(parked.origin, parked.address, gate, &out, outbox)
            }
            Step::Later => {}
            Step::Postponed => {
                parked.reserved = reserved;
                self.reserve(parked.origin, parked.address.session, reserved);
                self.postponed.push_back(parked);
            }
        }
        self.scratch = out;
    }

    /// How long a value is that a GET finds now, if its key has grown since it was parked and there is no
    /// room for that: thousands may wait for one read, and what they were taken to answer says nothing
    /// about what somebody wrote since.
    fn outgrown(&self, parked: &Parked, reserved: usize) -> Option<Outgrown> {
        if self.has_room_for_more(parked.origin, parked.address.session) {
            return None;
        }
        let request = Request::read(&parked.item, self.limits.value_bytes_max).ok()?;
        if Asked::of(request.verb) != Asked::Get {
            return None;
        }
        let hash = self.hash.of(request.key);
        let bytes = self.value_bytes(self.store.find(parked.slot, hash, request.key));
        // In the log the same value takes a little more than in memory: key, header, and what is told of a
        // place is rounded up by a sixteenth.
        let in_log = reserved + reserved / 8 + request.key.len() + AWAITED_BYTES;
        (bytes > in_log).then_some(Outgrown(bytes))
    }

    /// Whether an answer may be longer than what was kept free for it.
    #[inline]
    fn has_room_for_more(&self, origin: Origin, session: SessionId) -> bool {
        match origin {
            Origin::Here => self.has_room_for_replies(session),
            Origin::Shard(from) => {
                self.peers[usize::from(from)].replying_bytes <= self.mailed_bytes_max
            }
        }
    }

    fn answer_detached(
        &mut self,
        origin: Origin,
        address: ReplyAddress,
        gate: Lsn,
        item: &[u8],
        outbox: &mut Outbox<P::Block>,
    ) {
        let from = match origin {
            Origin::Here => {
                self.answer_here(address, gate, item, self.config.shard, outbox);
                return;
            }
            Origin::Shard(from) => from,
        };
        self.counters.executed_for_others += 1;
        let peer = &mut self.peers[usize::from(from)];
        // Answers leave in order of execution, so one gate covers those before it.
        let gate = peer
            .replies
            .back()
            .map_or(gate, |(last, _)| gate.max(*last));
        peer.replying_bytes += bytes_beyond_awaited(item.len());
        peer.reply_bytes.extend_from_slice(item);
        let end = peer.reply_bytes_sent + peer.reply_bytes.len() as u64;
        // The end is made relative when the mail leaves; until then its low bits are enough.
        let [a, b, c, d, ..] = end.to_le_bytes();
        peer.replies.push_back((
            gate,
            MailedReply {
                address,
                end: u32::from_le_bytes([a, b, c, d]),
            },
        ));
    }

    fn answer_here(
        &mut self,
        address: ReplyAddress,
        gate: Lsn,
        item: &[u8],
        shard: u16,
        outbox: &mut Outbox<P::Block>,
    ) {
        let is_forwarded = shard != self.config.shard;
        let Some(session) = self.open(address.session) else {
            return;
        };
        let more = session.settle(address.request_id, 1);
        let out = &mut session.output.bytes;
        let mut reply = BatchReply::begin(out, address.request_id, 1).over(session.medium);
        reply.raw(out, item);
        reply.finish(out, shard, more, is_forwarded);
        self.note(address.session, gate, 1, outbox);
    }

    /// The answers of so many operations, or something else, were appended to a connection's output;
    /// they depend on `gate`.
    #[inline]
    fn note(&mut self, id: SessionId, gate: Lsn, operations: usize, outbox: &mut Outbox<P::Block>) {
        let durable = self.store.log().durable();
        let session = &mut self.sessions[id.index()];
        self.replies_bytes += session.output.note(gate, durable, operations as u64);
        if session.output.is_gated() && !session.is_in_gated {
            session.is_in_gated = true;
            self.gated.push(id);
        }
        if session.output.has_sendable() && !session.is_announced {
            session.is_announced = true;
            outbox.sendable.push(id);
        }
    }

    // ---- scans ----

    /// Takes a step of a scan in, or sends it to the shard whose slots it has come to.
    #[cold]
    fn begin_scan(
        &mut self,
        now: Now,
        origin: Origin,
        operation: Operation<'_>,
        item: &[u8],
        out: &mut Vec<u8>,
    ) -> Step {
        let Operation {
            address,
            level,
            deadline_us,
            ..
        } = operation;
        let request = match ScanRequest::read(item) {
            Ok(request) => request,
            Err(refusal) => {
                let status = refusal.status();
                return self.refuse_item(Asked::Scan, &operation, status, &refusal, out);
            }
        };
        if let Some((status, message)) = self.comes_too_late(now, deadline_us) {
            return self.refuse_item(Asked::Scan, &operation, status, &message, out);
        }
        let slot = slot_of_cursor(request.cursor);
        let owner = self.config.topology.owner(slot);
        if owner != self.config.shard {
            return self.mail_request(origin, owner, operation, slot, item, out);
        }
        if let Some(elsewhere) = self.linked.as_ref().and_then(|it| it.elsewhere_of_any()) {
            return self.refuse_elsewhere(Asked::Scan, &operation, &elsewhere, out);
        }
        if level == AckLevel::Replica {
            let message = "a SCAN has no ack level replica: read the keys by GET at that level";
            let status = Status::Unsupported;
            return self.refuse_item(Asked::Scan, &operation, status, &message, out);
        }
        if self.scanning.is_full() {
            let message = format!(
                "{} scans are under way, which is the limit",
                self.scanning.len()
            );
            return self.refuse_item(Asked::Scan, &operation, Status::Busy, &message, out);
        }
        self.scanning.begin(Parked {
            origin,
            address,
            level,
            deadline_us,
            came_us: operation.came_us,
            slot,
            // The number of scans bounds what they hold.
            reserved: 0,
            item: item.into(),
        });
        Step::Later
    }

    /// Runs the steps whose turn it is.
    fn scan(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        for _ in 0..STEPS_A_TURN_MAX {
            let Some(scan) = self.scanning.next_ready() else {
                break;
            };
            let Parked {
                origin,
                address,
                level,
                deadline_us,
                came_us,
                ..
            } = scan.parked;
            if origin == Origin::Here && self.open(address.session).is_none() {
                continue;
            }
            let mut out = std::mem::take(&mut self.scratch);
            out.clear();
            let head = |status| ReplyHead::new(status, address.item, level, Version::default());
            let gate = if let Some((status, message)) = self.comes_too_late(now, deadline_us) {
                self.counters.refused += 1;
                self.counters.answers.add(Asked::Scan, status);
                head(status).write_message(&mut out, &message);
                Some(Lsn(0))
            } else {
                match self.scan_step(&scan, &mut out) {
                    Ok(gate) => {
                        self.counters.answers.add(Asked::Scan, Status::Ok);
                        head(Status::Ok).patch(&mut out, 0);
                        Some(self.gate(level, gate))
                    }
                    Err(Halt::Unread(Unread { status, message })) => {
                        self.counters.answers.add(Asked::Scan, status);
                        out.clear();
                        head(status).write_message(&mut out, &message);
                        Some(Lsn(0))
                    }
                    Err(Halt::Reads(wanted)) => {
                        self.scanning.wait(scan, &wanted);
                        None
                    }
                }
            };
            if let Some(gate) = gate {
                self.stages.queued(now.us, came_us, 1);
                self.answer_detached(origin, address, gate, &out, outbox);
            }
            self.scratch = out;
        }
    }

    /// Writes a page behind the place of its head; what it shows depends on the record that is returned.
    fn scan_step(&self, scan: &Scan, out: &mut Vec<u8>) -> Result<Lsn, Halt> {
        let request = ScanRequest::read(&scan.parked.item).expect("checked when it came");
        // A page is a part of a frame.
        let bytes_max = request.bytes_max.min(self.limits.frame_bytes_max / 2) as usize;
        let last_slot = self.config.topology.last_slot(scan.parked.slot);
        out.resize(REPLY_ITEM_BYTES, 0);
        let mut page = ScanPageWriter::begin(out);
        let mut gate = Lsn(0);
        let mut seen = 0;
        let (mut wanted, mut wanted_bytes) = (Vec::new(), 0);
        // Where the first key stands that a read is needed for.
        let mut stands: Option<Cursor> = None;
        let mut group: Vec<(Cursor, Home)> = Vec::new();
        let mut from = Some(self.order.decode(request.cursor));
        let next = loop {
            group.clear();
            let behind = from.and_then(|from| {
                self.store
                    .keys_from(from, &mut |at, home| group.push((at, home)))
            });
            let Some(&(at, _)) = group.first().filter(|(at, _)| at.slot <= last_slot) else {
                break None;
            };
            let is_enough = page.entries() >= request.entries_max || seen >= ENTRIES_A_STEP_MAX;
            if is_enough {
                break Some(at);
            }
            seen += group.len();
            let unread = |&(at, home): &(Cursor, Home)| match home {
                Home::Disk(packed) if scan.known(at, packed).is_none() => Some((at, packed)),
                _ => None,
            };
            if group.iter().any(|key| unread(key).is_some()) && !is_planted(Bug::ScanForgetsCold) {
                stands.get_or_insert(at);
                for (at, packed) in group.iter().filter_map(unread) {
                    wanted_bytes += packed.place().unwrap_or_default().bytes as usize;
                    wanted.push((at, packed));
                }
            }
            if stands.is_some() {
                let room = match request.wants_values {
                    true => bytes_max.saturating_sub(page.bytes(out)),
                    false => READ_BYTES_A_STEP_MAX,
                };
                let is_more = wanted.len() < READS_A_STEP_MAX && wanted_bytes < room;
                if scan.rounds >= ROUNDS_MAX || !is_more {
                    break stands;
                }
            } else {
                let mut entries = Vec::with_capacity(group.len());
                for &(at, home) in &group {
                    match self.scan_entry(scan, &request, at, home, &mut gate) {
                        Ok(entry) => entries.extend(entry),
                        // What stands before it is told first.
                        Err(_) if page.entries() > 0 => {
                            page.finish(out, self.order.encode(at));
                            return Ok(gate);
                        }
                        Err(unread) => return Err(Halt::Unread(unread)),
                    }
                }
                let bytes: usize = entries.iter().map(ScanEntry::encoded_bytes).sum();
                if page.bytes(out) + bytes > bytes_max {
                    if page.entries() > 0 {
                        break match is_planted(Bug::ScanPassesOne) {
                            true => behind,
                            false => Some(at),
                        };
                    }
                    for entry in &mut entries {
                        entry.value = match entry.value {
                            ScanValue::Bytes(_) => ScanValue::LeftOut,
                            other => other,
                        };
                    }
                }
                for entry in &entries {
                    page.push(out, entry);
                }
            }
            from = behind;
            if from.is_none() {
                break None;
            }
        };
        if !wanted.is_empty() && scan.rounds < ROUNDS_MAX {
            return Err(Halt::Reads(wanted));
        }
        let next = stands.or(next).or_else(|| {
            let slot = last_slot + 1;
            let is_end = slot == SLOTS || is_planted(Bug::ScanEndsWithShard);
            (!is_end).then_some(Cursor { slot, hash: 0 })
        });
        page.finish(out, next.map_or(0, |next| self.order.encode(next)));
        Ok(match is_planted(Bug::ScanUngated) {
            true => Lsn(0),
            false => gate,
        })
    }

    /// What a page tells of one key, if anything.
    fn scan_entry<'a>(
        &'a self,
        scan: &'a Scan,
        request: &ScanRequest<'_>,
        at: Cursor,
        home: Home,
        gate: &mut Lsn,
    ) -> Result<Option<ScanEntry<'a>>, Unread> {
        let of_cold = |cold: &'a ColdKey| {
            let value = match &cold.value {
                Some(value) => ScanValue::Bytes(value),
                None if request.wants_values => ScanValue::LeftOut,
                None => ScanValue::NotAsked,
            };
            ScanEntry {
                key: &cold.key,
                version: cold.version,
                value,
            }
        };
        let entry = match home {
            _ if is_planted(Bug::ScanTellsOldRead) && scan.once_known(at).is_some() => {
                scan.once_known(at).map(of_cold)
            }
            Home::Memory(id) => {
                let cell = self.store.cell(id);
                // That a key is not told is shown as well.
                *gate = self.store.lsn(id).max(*gate);
                let version = self.store.version(id);
                self.store.exists(id).then(|| ScanEntry {
                    key: cell.key(),
                    version: Version {
                        epoch: version.epoch,
                        sequence: version.sequence,
                    },
                    value: match request.wants_values {
                        true => ScanValue::Bytes(cell.value()),
                        false => ScanValue::NotAsked,
                    },
                })
            }
            Home::Disk(packed) => match scan.known(at, packed) {
                Some(Ok(cold)) => (!self.store.is_expired(cold.expiry_ms)).then(|| of_cold(cold)),
                Some(Err(unread)) => return Err(unread.clone()),
                None => None,
            },
        };
        // The server's own keys, of which a node of a cluster has some, are none that a client may name.
        let is_told =
            |entry: &ScanEntry| entry.key.starts_with(request.prefix) && !is_system(entry.key);
        Ok(entry.filter(is_told))
    }

    /// A read for a scan ended.
    fn scan_read(&mut self, completion: &Completion<P::Block>) {
        let (mut read, scan) = self.scanning.finished(completion.token);
        let request = ScanRequest::read(&scan.parked.item).expect("checked when it came");
        let place = read.place();
        let judge = |read: &ScanRead, bytes: &[u8]| {
            let of = (read.at.slot, read.at.hash);
            part_read(of, read.packed, bytes, |key| self.hash.home_of(key))
                .map(|part| ColdKey::of(&part, &request))
                .map_err(|AdmitError::Corrupt| Unread {
                    status: Status::Corrupt,
                    message: not_written(place),
                })
        };
        let brought = read.brought();
        let key = match bytes_read(completion, brought) {
            Ok(bytes) => match read.take_in(bytes) {
                Some(all) => judge(&read, &all),
                None => {
                    self.scanning.read_on(completion.token, read);
                    return;
                }
            },
            Err(failure) => Err(Unread {
                status: Status::Io,
                message: not_read(place, failure),
            }),
        };
        if key.is_err() && brought.is_none() && !is_planted(Bug::ReadOnce) {
            self.counters.reads_retried += 1;
            self.scanning.read_again(completion.token, read);
            return;
        }
        self.scanning.learn(&read, key);
    }

    // ---- mail ----

    fn execute_mail(&mut self, now: Now, mail: &RequestMail) {
        let origin = Origin::Shard(mail.from);
        let mut start = 0;
        // Answers to other shards never touch a connection of this one.
        let mut outbox = Outbox::default();
        for request in &mail.items {
            let item = &mail.bytes[start..request.end as usize];
            start = request.end as usize;
            let peer = &self.peers[usize::from(mail.from)];
            let is_below = peer.replying_bytes <= self.mailed_bytes_max || self.is_stopping;
            let has_room = peer.held.is_empty() && is_below;
            // Who asked keeps room for a short answer.
            let may_pass = || {
                let has_held = peer.held_of.contains_key(&request.address.session);
                (!has_held || is_planted(Bug::PassHeld)) && !self.asks_for_much(item, AWAITED_BYTES)
            };
            if self.postponed.is_empty() && (has_room || may_pass()) {
                let operation = Operation {
                    address: request.address,
                    level: request.level,
                    deadline_us: request.deadline_us,
                    came_us: request.came_us,
                    brought: None,
                };
                let mut out = std::mem::take(&mut self.scratch);
                out.clear();
                match self.operation(now, origin, operation, item, &mut out) {
                    Step::Answered(gate) => {
                        self.counters.at_once += 1;
                        self.stages.queued(now.us, request.came_us, 1);
                        self.answer_detached(origin, request.address, gate, &out, &mut outbox)
                    }
                    Step::Later => {}
                    Step::Postponed => self.postponed.push_back(detached(origin, request, item)),
                }
                self.scratch = out;
            } else {
                let peer = &mut self.peers[usize::from(mail.from)];
                peer.held.push_back(detached(origin, request, item));
                *peer.held_of.entry(request.address.session).or_default() += 1;
            }
        }
    }

    fn deliver_mail(&mut self, mail: &ReplyMail, outbox: &mut Outbox<P::Block>) {
        self.peers[usize::from(mail.from)].outstanding -= match is_planted(Bug::CreditForMail) {
            true => 1,
            false => mail.items.len(),
        };
        let peer = &mut self.peers[usize::from(mail.from)];
        let mut start = 0;
        for reply in &mail.items {
            peer.outstanding_bytes -= reply.address.item_bytes as usize;
            let end = reply.end as usize;
            peer.taken_bytes += bytes_beyond_awaited(end - start);
            start = end;
        }
        let mut start = 0;
        let mut next = 0;
        // Neighbouring answers to one request share a frame.
        while next < mail.items.len() {
            let address = mail.items[next].address;
            let same = |reply: &MailedReply| {
                reply.address.session == address.session
                    && reply.address.request_id == address.request_id
            };
            // As many as one frame has room for.
            let full = start + self.frame_full_bytes;
            let of_request = mail.items[next..].iter().take_while(|reply| same(reply));
            let before = of_request.take_while(|reply| reply.end as usize <= full);
            let count = before.count().max(1);
            let group = &mail.items[next..next + count];
            next += count;
            let shard = mail.from;
            let Some(session) = self.open(address.session) else {
                if !is_planted(Bug::ShiftAfterClosed) {
                    start = group[count - 1].end as usize;
                }
                continue;
            };
            session.awaited -= count;
            let more = session.settle(address.request_id, count);
            let out = &mut session.output.bytes;
            let mut reply = BatchReply::begin(out, address.request_id, count).over(session.medium);
            for item in group {
                reply.raw(out, &mail.bytes[start..item.end as usize]);
                start = item.end as usize;
            }
            reply.finish(out, shard, more, true);
            self.awaited -= count;
            self.replies_bytes -= count * AWAITED_BYTES;
            self.note(address.session, Lsn(0), count, outbox);
        }
        self.has_progress = true;
    }

    // ---- the disk ----

    fn completed(
        &mut self,
        now: Now,
        completion: Completion<P::Block>,
        outbox: &mut Outbox<P::Block>,
    ) {
        self.has_progress = true;
        if completion.token.0 & LOG_TOKEN_BIT != 0 {
            let before = self.store.log().durable();
            if let Err(poisoned) = self.store.log_mut().completed(now.us, completion) {
                let fatal = Fatal::Log {
                    shard: self.config.shard,
                    poisoned,
                    durable: before,
                };
                self.fatal = Some(fatal);
                outbox.fatal = Some(fatal);
                return;
            }
            if self.store.log().durable() > before {
                // Who waits for a version to be in a file runs before the turn ends.
                self.store.settle_young();
                self.release(outbox);
            }
            return;
        }
        if completion.token.0 & CLEAN_TOKEN_BIT != 0 {
            self.store.clean_read(completion);
            return;
        }
        if completion.token.0 & SCRUB_TOKEN_BIT != 0 {
            self.store.scrub_read(now.us, completion);
            return;
        }
        if completion.token.0 & SCAN_TOKEN_BIT != 0 {
            self.scan_read(&completion);
            return;
        }
        if completion.token.0 & LINK_TOKEN_BIT != 0 {
            if let Some(links) = self.links() {
                links.read(completion);
            }
            return;
        }
        let token = completion.token;
        let brought = self.parking.again(token);
        let read = bytes_read(&completion, brought);
        let (again, bad);
        let (bytes, bad) = if brought.is_none() {
            let bad = read.err().map(|failure| (0, failure));
            (read.unwrap_or_default(), Vec::from_iter(bad))
        } else if self.parking.add_block(token, read) {
            (again, bad) = self.parking.take_again(token);
            (&again[..], bad)
        } else {
            return;
        };
        let mut admitted = self.admit_read(token, bytes, &bad);
        let has_failed = admitted.iter().any(Result::is_err);
        if has_failed && brought.is_none() && !is_planted(Bug::ReadOnce) {
            self.counters.reads_retried += 1;
            self.parking.read_again(token);
            return;
        }
        let (colds, waiters) = self.parking.finished(token);
        if self.kept_for == Some(token) {
            // Whoever it was kept for runs before anything leaves.
            self.kept_for = None;
            self.store.keep(None);
        }
        // They are older than what was postponed: parked before it, or taken from its front. So
        // those that find no room go to its front, in their order.
        let mut kept = 0;
        for waiter in waiters {
            let Waiter {
                number,
                is_behind,
                mut parked,
            } = waiter;
            match &mut admitted[number] {
                Err((status, message)) if !is_behind => {
                    let asked = self.asked_by(&parked.item);
                    self.counters.answers.add(asked, *status);
                    self.stages.queued(now.us, parked.came_us, 1);
                    let mut out = Vec::new();
                    ReplyHead::new(
                        *status,
                        parked.address.item,
                        parked.level,
                        Version::default(),
                    )
                    .write_message(&mut out, message);
                    self.unreserve(&mut parked);
                    self.answer_detached(parked.origin, parked.address, Lsn(0), &out, outbox);
                }
                admitted if kept == 0 => {
                    let brought = admitted.as_ref().ok().map(|it| (it.place, bytes));
                    let before = self.postponed.len();
                    self.run_detached(now, parked, brought, outbox);
                    if self.postponed.len() > before {
                        self.postponed.rotate_right(1);
                        kept = 1;
                    }
                    if let Ok(admitted) = admitted
                        && std::mem::take(&mut admitted.is_new)
                    {
                        let Cold { slot, hash, .. } = colds[number];
                        self.store.forget_use((slot, hash));
                    }
                }
                _ => {
                    self.postponed.insert(kept, parked);
                    kept += 1;
                }
            }
        }
    }

    /// Takes the keys of a read into the cache, where nobody has used them yet, or tells, of each, why it
    /// cannot be answered. `bad` are the blocks that could not be read, by where they begin.
    fn admit_read(
        &mut self,
        token: IoToken,
        bytes: &[u8],
        bad: &[(usize, IoFailure)],
    ) -> Vec<Result<Admitted, (Status, String)>> {
        let (store, key_hash) = (&mut self.store, &self.hash);
        let admit = |&Cold {
                         slot,
                         hash,
                         place,
                         sequence,
                     }: &Cold| {
            let (_, len) = aligned_span(place);
            if let Some((_, failure)) = bad.iter().find(|(start, _)| *start < len as usize) {
                return Err((Status::Io, not_read(place, *failure)));
            }
            let admitted = match sequence {
                None => store.admit((slot, hash), place, bytes, |key| key_hash.home_of(key)),
                // A version of the past stays out of the cache.
                Some(sequence) => bytes
                    .get(in_block(place)..)
                    .and_then(|bytes| PartView::read(bytes).ok())
                    .filter(|part| {
                        part.sequence() == sequence && key_hash.home_of(part.key()) == (slot, hash)
                    })
                    .map(|_| ())
                    .ok_or(AdmitError::Corrupt),
            };
            let is_new = sequence.is_none();
            admitted
                .map(|()| Admitted { place, is_new })
                .map_err(|AdmitError::Corrupt| (Status::Corrupt, not_written(place)))
        };
        self.parking.colds(token).iter().map(admit).collect()
    }

    /// Lets every reply leave that waited for no more than what is durable now.
    fn release(&mut self, outbox: &mut Outbox<P::Block>) {
        let durable = self.store.log().durable();
        let sessions = &mut self.sessions;
        self.gated.retain(|&id| {
            let session = &mut sessions[id.index()];
            if session.generation != id.generation {
                return false;
            }
            session.output.release(durable);
            if session.output.has_sendable() && !session.is_announced {
                session.is_announced = true;
                outbox.sendable.push(id);
            }
            session.is_in_gated = session.output.is_gated();
            session.is_in_gated
        });
    }

    // ---- the turn ----

    fn turn_ends(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        if self.has_progress {
            self.has_progress = false;
            for _ in 0..self.postponed.len() {
                let Some(parked) = self.postponed.pop_front() else {
                    break;
                };
                let before = self.postponed.len();
                self.run_detached(now, parked, None, outbox);
                if self.postponed.len() > before {
                    // Still no room: what was postponed first goes first the next time.
                    self.postponed.rotate_right(1);
                    break;
                }
            }
            self.run_held(now, outbox);
            self.resume(outbox);
        }
        let hash = &self.hash;
        self.store.settle(&|key| hash.home_of(key));
        self.scan(now, outbox);
        let mut waits_for_memory = self.store.is_memory_short();
        while let Some((token, place, start)) = self.parking.next_read() {
            // A second attempt is counted since the first.
            let has_room =
                start.is_some() || self.store.has_room_to_read(self.parking.bytes_under_way());
            if !has_room || !self.read(token, place, start, outbox) {
                self.parking.not_issued(token);
                waits_for_memory |= !has_room;
                break;
            }
        }
        // Who knows the key that he wants goes first.
        while !self.parking.has_unissued()
            && !waits_for_memory
            && let Some((token, place, brought)) = self.scanning.next_read()
            && self.read(token, place, brought, outbox)
        {
            self.scanning.issued();
        }
        self.mind_memory(waits_for_memory);
        if let Some(linked) = &mut self.linked
            && !self.is_stopping
        {
            let (io, links) = (&mut outbox.io, &mut outbox.links);
            linked.take_in(now.us, &mut self.store, &self.hash, io, links);
        }
        if !self.is_stopping {
            let shards = (self.config.shard, self.config.topology.shards());
            let linked = self.linked.as_ref();
            if linked.is_none_or(|linked| linked.are_all_served()) {
                self.keyspaces
                    .begin_once(&self.store, shards, &self.partitions);
            }
            let may_write = |partition| linked.is_none_or(|it| it.elsewhere(partition).is_none());
            let partitions = &self.partitions;
            let own = self.keyspaces.turn(
                now.us,
                self.config.shard,
                partitions,
                &mut self.store,
                &may_write,
            );
            self.has_progress |= self.keyspaces.may_go_on();
            if let Some(done) = own {
                self.keyspace_done(done, outbox);
            }
        }
        self.clean(now, outbox);
        if self.store.is_inheriting() {
            self.take_over(outbox);
        }
        if !self.is_stopping {
            self.store.scrub(now.us, &mut outbox.io);
        }
        while let Some(rotten) = self.store.take_rotten() {
            outbox.rotten.push(rotten);
        }
        let linked = self.linked.as_ref();
        let applied = linked.map_or(0, |it| it.look_at_links().counters().applied);
        // A member has work without a client.
        let items = self.counters.answers.total() + applied;
        let ran = items - std::mem::replace(&mut self.items_before, items);
        let is_idle = ran == 0;
        self.snapshots
            .step(now, &mut self.store, is_idle, &mut outbox.snapshots);
        if self.is_stopping
            && self.parking.is_empty()
            && self.postponed.is_empty()
            && self.peers.iter().all(|peer| peer.held.is_empty())
            && self.scanning.is_empty()
            && self.snapshots.may_stop(now, &mut self.store)
        {
            self.store.log_mut().close();
        }
        self.store.log_mut().pump(now.us, &mut outbox.io);
        if let Some(linked) = &mut self.linked {
            if !self.is_stopping {
                let (io, links) = (&mut outbox.io, &mut outbox.links);
                let gates = &self.replica_gates;
                let is_waited_for = |partition| gates.is_waited_for(partition);
                linked.give_out(
                    now.us,
                    &mut self.store,
                    &self.hash,
                    is_waited_for,
                    io,
                    links,
                );
                if linked.has_gone_back() {
                    self.fatal = Some(Fatal::GoneBack);
                    outbox.fatal = self.fatal;
                    return;
                }
            }
            self.release_replicas(now, outbox);
        }
        self.send_mail(now, outbox);
        let wanted = self.store.log().spares_wanted();
        if wanted > self.spares_requested && !self.is_stopping {
            outbox.spares += wanted - self.spares_requested;
            self.spares_requested = wanted;
        }
        if now.us >= self.next_sweep_us {
            self.next_sweep_us = now.us + SWEEP_US;
            self.sweep(now, outbox);
        }
        outbox.is_stopped = self.is_stopping && self.store.log().is_closed();
        self.stages.turn_ends(now.us, ran);
        self.stages.durable(now.us, self.store.log().durable());
        for id in &outbox.sendable {
            let session = &mut self.sessions[id.index()];
            session.ready_us = session.ready_us.or(Some(now.us));
        }
    }

    /// Runs what other shards sent when there was no room for the answers.
    fn run_held(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        for from in 0..self.peers.len() {
            while self.postponed.is_empty() {
                let peer = &mut self.peers[from];
                if peer.replying_bytes > self.mailed_bytes_max && !self.is_stopping {
                    break;
                }
                let Some(held) = peer.held.pop_front() else {
                    break;
                };
                let session = held.address.session;
                let count = peer.held_of.get_mut(&session).expect("counted when held");
                *count -= 1;
                if *count == 0 {
                    peer.held_of.remove(&session);
                }
                self.run_detached(now, held, None, outbox);
            }
        }
    }

    /// Lets connections go on for whose replies there is room, so that the others' frames are not looked
    /// at again and again.
    fn resume(&mut self, outbox: &mut Outbox<P::Block>) {
        let mut paused = std::mem::take(&mut self.paused);
        let has_room = self.room_for_replies() > 0;
        paused.retain(|&id| {
            let session = &self.sessions[id.index()];
            if session.generation != id.generation {
                return false;
            }
            let stays = !self.has_room_for_replies(id) || (session.asks_for_much && !has_room);
            if !stays {
                let session = &mut self.sessions[id.index()];
                session.is_paused = false;
                session.asks_for_much = false;
                outbox.resume.push(id);
            }
            stays
        });
        self.paused = paused;
    }

    /// Whether connections have room for what other shards are told that they may answer. What is kept
    /// for answers does not count: it waits for just that.
    fn may_tell_taken(&self) -> bool {
        self.replies_bytes - self.awaited * AWAITED_BYTES < self.config.replies_bytes_max
    }

    /// Whether another shard waits to be told that its answers were taken, and connections have room again.
    fn owes_credit(&self) -> bool {
        self.may_tell_taken()
            && self
                .peers
                .iter()
                .any(|peer| peer.taken_bytes > self.mailed_bytes_max / 4)
    }

    /// Who waits for memory goes on when cells have left. Nothing else can be done for it than to let the
    /// hand go on and, when it finds nothing more that may leave, to have the log make that durable:
    /// then the loop rests until the disk has done it.
    fn mind_memory(&mut self, waits: bool) {
        let is_short = self.store.is_memory_short();
        if (waits || is_short) && self.store.is_over_budget() {
            if self.store.may_shrink() {
                self.has_progress = true;
            } else {
                let log = self.store.log_mut();
                log.want_durable(log.appended());
            }
        }
        self.has_progress |= self.waits_for_memory && !is_short;
        self.waits_for_memory = is_short;
    }

    /// Emits a read, or the next piece of a second attempt that has brought so many bytes; `false` if
    /// there is no block for it now.
    fn read(
        &mut self,
        token: IoToken,
        place: Place,
        brought: Option<usize>,
        outbox: &mut Outbox<P::Block>,
    ) -> bool {
        let io = match brought {
            None => self.store.read(token, place),
            Some(start) => self.store.read_piece(token, place, start),
        };
        let Some(io) = io else {
            return false;
        };
        self.counters.reads += 1;
        if let Io::Read { len, .. } = &io {
            self.counters.read_bytes += u64::from(*len);
        }
        outbox.io.push(io);
        true
    }

    /// A step of cleaning, and what it is done with.
    fn clean(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        let hash = &self.hash;
        self.has_progress |= match self.is_stopping {
            true => self.store.stop_cleaning(),
            false => self
                .store
                .clean(now.us, &|key| hash.of(key), &mut outbox.io),
        };
        while let Some(damaged) = self.store.take_damaged() {
            outbox.damaged.push(damaged);
        }
        while let Some(file) = self.store.take_removable() {
            self.leaving.push(file);
        }
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|&file| {
            let stays = self.reads_file(file) && !is_planted(Bug::RemoveUnderRead);
            if !stays {
                outbox.removals.push(file);
            }
            stays
        });
        self.leaving = leaving;
    }

    /// Whether a read of this file is under way or waits.
    fn reads_file(&self, file: FileId) -> bool {
        self.parking.reads_file(file)
            || self.scanning.reads_file(file)
            || self.store.scrub_reads(file)
            || self.linked.as_ref().is_some_and(|it| it.is_reading(file))
    }

    /// Tells, once, that nothing refers to the inherited logs any more.
    fn take_over(&mut self, outbox: &mut Outbox<P::Block>) {
        if self.has_told_taken_over || self.is_stopping || !self.store.has_taken_over() {
            return;
        }
        let mut files = self.store.inherited_files();
        if !files.any(|file| self.reads_file(file)) || is_planted(Bug::TakenOverUnderRead) {
            self.has_told_taken_over = true;
            outbox.has_taken_over = true;
        }
    }

    fn send_mail(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        outbox.mail.append(&mut self.keyspaces.take_mail());
        let durable = self.store.log().durable();
        let from = self.config.shard;
        let may_tell_taken = self.may_tell_taken();
        for (to, peer) in (0u16..).zip(&mut self.peers) {
            if !peer.requests.is_empty() {
                let items = std::mem::take(&mut peer.requests);
                let bytes = Bytes::from(std::mem::take(&mut peer.request_bytes));
                if is_planted(Bug::LoseMail) && now.us.is_multiple_of(9) {
                    continue;
                }
                outbox
                    .mail
                    .push((to, Mail::Requests(RequestMail { from, items, bytes })));
            }
            let ready = peer
                .replies
                .iter()
                .take_while(|(gate, _)| *gate <= durable || is_planted(Bug::MailUndurable))
                .count();
            if ready > 0 {
                let [a, b, c, d, ..] = peer.reply_bytes_sent.to_le_bytes();
                let sent = u32::from_le_bytes([a, b, c, d]);
                let relative = |(_, reply): (Lsn, MailedReply)| MailedReply {
                    end: reply.end.wrapping_sub(sent),
                    ..reply
                };
                let items: Vec<MailedReply> = peer.replies.drain(..ready).map(relative).collect();
                let end = items[ready - 1].end as usize;
                let rest = peer.reply_bytes.split_off(end);
                let bytes = Bytes::from(std::mem::replace(&mut peer.reply_bytes, rest));
                peer.reply_bytes_sent += end as u64;
                outbox
                    .mail
                    .push((to, Mail::Replies(ReplyMail { from, items, bytes })));
            }
            let is_told = may_tell_taken && !is_planted(Bug::ForgetTaken);
            if is_told && peer.taken_bytes > self.mailed_bytes_max / 4 {
                let bytes = std::mem::take(&mut peer.taken_bytes);
                outbox
                    .mail
                    .push((to, Mail::Taken(TakenMail { from, bytes })));
            }
        }
    }

    /// Closes connections that broke a deadline.
    fn sweep(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        for (index, session) in (0u32..).zip(&mut self.sessions) {
            if !session.is_open {
                continue;
            }
            let is_over =
                |since: Option<u64>, limit: u64| since.is_some_and(|since| now.us > since + limit);
            let waits_for_us = session.is_paused || session.output.is_gated();
            let reason = if is_over(
                session.frame_began_us.filter(|_| !session.is_paused),
                self.config.partial_frame_us_max,
            ) {
                "a frame was not whole within partial_frame_timeout_ms"
            } else if is_over(session.stalled_since_us, self.config.write_stall_us_max) {
                "the peer took too little of its replies within write_stall_timeout_ms"
            } else if self.config.idle_us_max > 0
                && !waits_for_us
                && now.us > session.last_heard_us + self.config.idle_us_max
            {
                "nothing was heard within idle_timeout_s"
            } else {
                continue;
            };
            outbox.close.push((
                SessionId {
                    index,
                    generation: session.generation,
                },
                reason,
            ));
        }
    }

    fn closed(&mut self, id: SessionId) {
        if let Some(session) = self.open(id) {
            let generation = match is_planted(Bug::SameGeneration) {
                true => session.generation,
                false => session.generation.wrapping_add(1),
            };
            let (held, awaited) = (session.held_bytes(), session.awaited);
            let input_bytes = session.input_bytes;
            *session = Session::new(FRAME_BYTES_BEFORE_HELLO_MAX);
            session.generation = generation;
            self.replies_bytes -= held;
            self.input_bytes -= input_bytes;
            self.awaited -= awaited;
            self.has_progress = true;
            self.free_sessions.push(id.index);
            self.counters.sessions -= 1;
            assert!(
                self.counters.sessions > 0 || (self.replies_bytes, self.awaited) == (0, 0),
                "nobody is left who holds replies"
            );
        }
    }
}

/// Whom an item answers, how durable, and until when.
#[derive(Clone, Copy)]
struct Operation<'a> {
    address: ReplyAddress,
    level: AckLevel,
    deadline_us: u64,
    /// When its request arrived, in microseconds of the node's clock.
    came_us: u64,
    /// The read that it waited for.
    brought: Option<(Place, &'a [u8])>,
}

/// How far a batch has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Whole,
    /// Its reply goes on in another frame.
    FrameFull,
    /// There is no room in the log, for replies or for mail: try again after something completed.
    NoRoom,
}

enum Step {
    /// A reply item was written; it depends on this.
    Answered(Lsn),
    /// It will be answered by itself.
    Later,
    /// There is no room in the log or for mail: try again after something completed.
    Postponed,
}

/// The answer to a read would have so many bytes, for which there is no room.
struct Outgrown(usize);

impl fmt::Display for Outgrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outgrown(bytes) = self;
        write!(
            f,
            "the value has {bytes} bytes, for which there is no room: answers wait to be read"
        )
    }
}

/// Why a step of a scan is not answered now, or not with a page.
enum Halt {
    /// These keys must be read first.
    Reads(Vec<(Cursor, PackedPlace)>),
    /// The first key cannot be read.
    Unread(Unread),
}

/// The slot whose shard answers.
#[inline]
fn slot_of_request(request: &Request<'_>) -> u16 {
    match request.verb {
        // One shard decides about keyspaces.
        Verb::Keyspace => 0,
        _ => slot_of(request.key),
    }
}

/// What the answer of an operation on a value of so many bytes is taken to hold.
fn answer_bytes(asked: Asked, value_bytes: usize) -> usize {
    match asked {
        Asked::Get | Asked::GetAt => value_bytes,
        Asked::History => HISTORY_VERSIONS_MAX as usize * KEPT_BYTES,
        _ => 0,
    }
}

/// What an answer of so many bytes takes beyond the room that the asking shard keeps for it.
#[inline]
fn bytes_beyond_awaited(bytes: usize) -> usize {
    match bytes <= AWAITED_BYTES {
        true => 0,
        false => bytes,
    }
}

/// What a read gave: all, or less where the file ends, for more was asked for than the part needs. A
/// second attempt has `brought` so many bytes before it.
fn bytes_read<B: Block>(
    completion: &Completion<B>,
    brought: Option<usize>,
) -> Result<&[u8], IoFailure> {
    let bytes = completion.block.as_ref().map_or(&[][..], Block::bytes);
    match completion.result {
        Ok(()) => Ok(bytes),
        Err(IoFailure::Short { moved }) if moved > 0 || brought > Some(0) => {
            Ok(&bytes[..moved as usize])
        }
        Err(failure) => Err(failure),
    }
}

fn not_read(place: Place, failure: IoFailure) -> String {
    let Place { file, offset, .. } = place;
    format!(
        "{:08}.seg at offset {offset} could not be read: {failure:?}",
        file.0
    )
}

fn not_written(place: Place) -> String {
    let Place { file, offset, .. } = place;
    format!(
        "{:08}.seg at offset {offset} does not hold what was written",
        file.0
    )
}

/// A key that a read brought.
struct Admitted {
    place: Place,
    /// It came into the cache, where nobody has used it yet.
    is_new: bool,
}

/// Holds an operation to the settings of its keyspaces.
#[cold]
fn obey<P: Blocks>(
    store: &Store<P>,
    request: &Request<'_>,
    context: &mut Context<'_>,
) -> Result<(), Refusal> {
    if let Some(key) = request.second_key {
        context.level = context.level.max(least_level(store, context.slot, key));
    }
    let Some((prefix, settings)) = store.keyspaces().of(context.slot, request.key) else {
        return Ok(());
    };
    context.level = context.level.max(level_min(settings));
    context.ttl_ms = settings.ttl_ms;
    let max = settings.value_bytes_max;
    if max > 0 && request.value.len() > max as usize {
        return Err(Refusal::KeyspaceValueLength {
            len: request.value.len(),
            max,
            keyspace: KeyspaceName::new(prefix),
        });
    }
    Ok(())
}

/// The least level that the keyspace of a key has.
#[inline]
fn least_level<P: Blocks>(store: &Store<P>, slot: u16, key: &[u8]) -> AckLevel {
    match store.keyspaces().of(slot, key) {
        Some((_, settings)) => level_min(settings),
        None => AckLevel::None,
    }
}

fn level_min(settings: &Settings) -> AckLevel {
    AckLevel::from_code(settings.level_min).unwrap_or_default()
}

fn detached(origin: Origin, request: &MailedRequest, item: &[u8]) -> Parked {
    Parked {
        origin,
        address: request.address,
        level: request.level,
        deadline_us: request.deadline_us,
        came_us: request.came_us,
        slot: request.slot,
        reserved: 0,
        item: item.into(),
    }
}
