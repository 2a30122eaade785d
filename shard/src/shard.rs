//! The state machine of one core.
//!
//! The life of a request: bytes of a connection are received; each whole frame runs at once, item
//! by item, and its reply is appended to the connection's output; what an item changed is in the
//! open frame of the log. At the end of the turn the log is pumped. When the disk reports, the log
//! says how far it is durable, and every output releases what depended on no more than that.
//!
//! An item for another shard leaves in that shard's mail; an item on a cold key parks. Both are
//! answered in later frames of the same request.

mod completions;
mod detached;
mod members;
mod memory;
mod reads;
mod requests;
mod scans;
mod settings;
mod told;

use std::collections::HashMap;
use std::fmt;

use penstock_net::frame::Medium;
use penstock_net::hello::ServerHello;
use penstock_net::level::AckLevel;
use penstock_net::limits::{KEY_BYTES_MAX, Limits};
use penstock_net::pieces::Pieces;
use penstock_net::reply::{REPLY_HEAD_BYTES_MAX, write_info_reply};
use penstock_net::request::Version;
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::budget::Budget;
use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::io::Blocks;
use penstock_storage::key_table::TableHome;
use penstock_storage::place::{FileId, Lsn, Place};
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::Store;
use penstock_storage::system_key::is_system;
use penstock_storage::version::{PARTITIONS, SLOTS};

use crate::answers::Asked;
use crate::bad_places::BadPlaces;
use crate::counters::{Counters, ReplicationCounters};
use crate::event::{Event, Fatal, Outbox};
use crate::execute::{KeyHash, Undo, look};
use crate::key_tables::{KeyTableCounters, KeyTables};
use crate::keyspaces::{Done, Keyspaces};
use crate::linked::{ClusterConfig, Linked};
use crate::mail::{Mail, ReplyAddress, SessionId};
use crate::now::Now;
use crate::replication::links::Links;
use crate::replication::{LinkId, PartitionId, ReplicaGates};
use crate::requests::Requests;
use crate::requests::mailboxes::Mailboxes;
use crate::requests::parking::{Origin, Parked};
use crate::scanning::{Order, Scanning, Unread, Wanted};
use crate::sessions::{ClientBounds, Patience, Sessions};
use crate::snapshots::{SnapshotPolicy, SnapshotStart, Snapshots};
use crate::spare_failure::SpareFailure;
use crate::stages::Stages;
use crate::topology::Topology;

use self::requests::least_level;

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
    /// A GET of a value of so many bytes or more holds the block that the value stands in, if it
    /// has one, instead of copying it. `usize::MAX` for those who take replies as one run of bytes.
    pub shared_bytes_min: usize,
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
    /// Bytes that all connections have sent and that are not run, because their frames are not
    /// whole or have to wait, at most, but for a little of each. Twice the largest frame at least.
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

/// A reply that waits for the members of a partition.
#[derive(Debug)]
struct ReplicaReply {
    origin: Origin,
    address: ReplyAddress,
    /// The operation has changed something here.
    is_change: bool,
    item: Pieces,
}

/// Replies at level `replica` that wait, at most: beyond that the answer is BUSY.
const REPLICA_REPLIES_MAX: usize = 65_536;

/// One core's state machine.
pub struct Shard<P: Blocks> {
    config: ShardConfig,
    limits: Limits,
    hash: KeyHash,
    store: Store<P>,
    sessions: Sessions,
    /// Something ended since the last turn, so that a paused connection may go on.
    has_progress: bool,
    /// After the last turn values were not to grow.
    waits_for_memory: bool,
    requests: Requests,
    bad_places: BadPlaces,
    scanning: Scanning,
    key_tables: KeyTables,
    order: Order,
    keyspaces: Keyspaces,
    linked: Option<Box<Linked<P::Block>>>,
    /// Replies at level `replica`.
    replica_gates: ReplicaGates<ReplicaReply>,
    /// Of the replies that waited for members.
    replication: ReplicationCounters,
    /// The partitions of its slots.
    partitions: Vec<usize>,
    /// A frame of replies that has come to so many bytes is ended, so that no frame is too long.
    frame_full_bytes: usize,
    spares_requested: usize,
    /// The last one that was asked for was not refused for want of room: it failed.
    spare_failure: Option<SpareFailure>,
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
    undo: Vec<Undo>,
}

/// Between two looks at the deadlines of connections, in microseconds.
const SWEEP_US: u64 = 100_000;

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
        let mailed_bytes_max = config.replies_bytes_max / 4 / usize::from(shards.max(2) - 1);
        let mail = Mailboxes::new(shards, config.mailed_items_max, mailed_bytes_max);
        // A record has room for two values, so half of it for the longest item.
        let item_bytes_max = store.log().config().record_bytes_max / 2;
        let frame_bytes_max = config.hello.limits.frame_bytes_max as usize;
        let frame_full_bytes = frame_bytes_max.saturating_sub(item_bytes_max);
        let bounds = ClientBounds {
            replies: config.replies_bytes_max,
            replies_of_one: config.output_bytes_max,
            input: config.input_bytes_max,
            longest_answer: config.hello.limits.value_bytes_max as usize + REPLY_HEAD_BYTES_MAX,
        };
        let patience = Patience {
            partial_frame_us_max: config.partial_frame_us_max,
            idle_us_max: config.idle_us_max,
            write_stall_us_max: config.write_stall_us_max,
        };
        Ok(Shard {
            limits: config.hello.limits,
            hash: KeyHash::new(config.hash_seed),
            store,
            sessions: Sessions::new(bounds, patience),
            has_progress: false,
            waits_for_memory: false,
            requests: Requests::new(mail),
            bad_places: BadPlaces::default(),
            scanning: Scanning::default(),
            key_tables: KeyTables::new(hash_check(config.hash_seed)),
            order: Order::new(config.hash_seed),
            keyspaces: Keyspaces::default(),
            linked,
            replica_gates: ReplicaGates::new(REPLICA_REPLIES_MAX),
            replication: ReplicationCounters::default(),
            partitions: (0..PARTITIONS)
                .zip((0..SLOTS).step_by(usize::from(SLOTS) / PARTITIONS))
                .filter(|&(_, slot)| config.topology.owner(slot) == config.shard)
                .map(|(partition, _)| partition)
                .collect(),
            frame_full_bytes,
            spares_requested: 0,
            spare_failure: None,
            leaving: Vec::new(),
            has_told_taken_over: false,
            snapshots: Snapshots::new(config.snapshots, hash_check(config.hash_seed), snapshots),
            items_before: 0,
            next_sweep_us: 0,
            is_stopping: false,
            fatal: None,
            counters: Counters::default(),
            stages: Stages::default(),
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
        self.sessions.open(now.us, Medium::Wire)
    }

    /// A caller of this process has come, whose frames stay in its memory: nobody looks at their
    /// checksums, and its batches are answered without.
    pub fn open_session_in_memory(&mut self, now: Now) -> SessionId {
        self.sessions.open(now.us, Medium::Memory)
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
                self.sessions.note_input(session, bytes.len() - consumed);
                return consumed;
            }
            Event::Closed { session } => self.closed(session),
            Event::Unacknowledged { session, bytes } => {
                self.look_at_peer(now, session, bytes, outbox);
            }
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
                self.requests.mail.taken(&mail);
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
                // Until then what grows may still be refused for the same cause.
                if !log.is_low() {
                    self.spare_failure = None;
                }
                self.has_progress |= !is_planted(Bug::SpareWakesNobody);
            }
            Event::SpareRefused => self.spare_refused(None),
            Event::SpareFailed(failure) => self.spare_refused(Some(failure)),
            Event::InheritedGone => {
                for file in self.store.forget_inherited() {
                    self.forget_table(file, outbox);
                    outbox.forgotten.push(file);
                }
            }
            Event::KeyTable { file, table } => {
                let orders = &mut outbox.key_tables;
                self.key_tables.arrived(file, table, &self.store, orders);
            }
            Event::GiveUpKeyTables => {
                self.key_tables.refuse_coming();
                for file in self.key_tables.files() {
                    self.forget_table(file, outbox);
                }
            }
            Event::Info {
                session,
                request_id,
                text,
            } => {
                let shard = self.config.shard;
                if let Some(open) = self.sessions.get_open(session) {
                    write_info_reply(open.output.pieces.written(), request_id, shard, text);
                    self.note(session, Lsn(0), 0, outbox);
                }
            }
            Event::SnapshotWritten { name, is_good } => {
                let log = self.store.log().counters();
                self.snapshots.written(name, is_good, log);
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
                if let Some(links) = self.links() {
                    links.rest();
                }
                // What waits for room is told that there will be none.
                self.has_progress = true;
            }
        }
        0
    }

    /// What a GET of `key` at `level` shows at once, without a frame: the value and its version, or
    /// that there is none. `None` if it must be asked for like anything else: the key is not in
    /// memory or not of this shard, what it shows is not as durable as `level` demands, something
    /// that came before waits, or the answer is a refusal.
    #[inline]
    pub fn look(
        &mut self,
        now: Now,
        level: AckLevel,
        key: &[u8],
    ) -> Option<Option<(&[u8], Version)>> {
        if !self.requests.is_idle() || self.is_stopping || self.fatal.is_some() {
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

    /// Moves what may be sent to `into`, which is empty, as one run of bytes, as
    /// [`Shard::take_pieces`] would in pieces.
    pub fn take_output(&mut self, now: Now, id: SessionId, into: &mut Vec<u8>) {
        let mut pieces = Pieces::from(std::mem::take(into));
        self.take_pieces(now, id, &mut pieces);
        *into = pieces.into_bytes();
    }

    /// Moves what may be sent to `into`, which is empty. More may be announced only after that.
    pub fn take_pieces(&mut self, now: Now, id: SessionId, into: &mut Pieces) {
        self.sessions.take_pieces(now.us, id, into);
    }

    /// The network took so many bytes more of what was taken.
    pub fn progressed(&mut self, now: Now, id: SessionId, bytes: usize) {
        self.sessions.progressed(now.us, id, bytes);
    }

    /// Everything that was taken has been handed to the network.
    pub fn sent(&mut self, id: SessionId) {
        let Some(sent) = self.sessions.sent(id) else {
            return;
        };
        if let Some((took_us, ready_us, operations)) = sent.left {
            self.stages.left(took_us, ready_us, operations);
        }
        self.has_progress |= self.sessions.has_paused() || self.owes_credit();
    }

    /// Whether a connection has said its last word and may be closed.
    #[must_use]
    pub fn is_finished(&self, id: SessionId) -> bool {
        self.sessions.is_finished(id)
    }

    /// Whether the bytes of a connection that were not consumed are to be kept until it is named in
    /// [`Outbox::resume`].
    #[must_use]
    pub fn is_paused(&self, id: SessionId) -> bool {
        self.sessions.is_paused(id)
    }

    /// When [`Event::TurnEnds`] is to be given at the latest, if nothing else happens.
    #[must_use]
    pub fn deadline_us(&self, now: Now) -> Option<u64> {
        let log = self.store.log().deadline_us();
        let has_deadlines = self.sessions.is_any_open() || !self.requests.is_empty();
        let sweep = has_deadlines.then_some(self.next_sweep_us.max(now.us + 1));
        let cleaning = self
            .store
            .cleaning_deadline_us()
            .filter(|_| !self.is_stopping);
        let scrub = self.store.scrub_deadline_us().filter(|_| !self.is_stopping);
        let waits = self.requests.waits_for_room()
            || self.sessions.has_paused()
            || self.owes_credit()
            || self.scanning.has_unissued()
            || self.keyspaces.has_work();
        let retry = ((self.has_progress && waits) || self.scanning.has_ready()).then_some(now.us);
        let snapshot = self.snapshots.deadline_us(now, &self.store);
        let tables = self.key_tables.deadline_us(now);
        let linked = self.linked.as_ref().filter(|_| !self.is_stopping);
        let links = linked.and_then(|it| it.deadline_us(now.us));
        let replicas = self.replica_gates.deadline_us();
        [
            log, sweep, cleaning, scrub, retry, snapshot, tables, links, replicas,
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

    /// Begins with short segments that grow with the log up to `most_bytes`; before the first turn.
    pub fn grow_segments(&mut self, most_bytes: u64) {
        self.store.log_mut().grow_segments(most_bytes);
    }

    /// Looks through all sealed segments once within each `period_us`; 0, as at first, is never.
    pub fn scrub_within(&mut self, period_us: u64) {
        self.store.set_scrub(period_us, self.config.hash_seed);
    }

    /// The segments of which there may be key tables.
    pub fn key_table_homes(&self) -> impl Iterator<Item = TableHome> {
        self.key_tables.homes(&self.store)
    }

    /// An earlier run left key tables of these segments, of this shard and of others, with the
    /// bytes of their files. Told once, before the first event.
    pub fn expect_key_tables(&mut self, found: &HashMap<FileId, u64>) {
        self.key_tables.expect(found, &self.store);
    }

    /// Whether a key table was asked for and has not come.
    #[must_use]
    pub fn awaits_key_table(&self) -> bool {
        self.key_tables.awaits()
    }

    /// What its key tables did.
    #[must_use]
    pub fn key_table_counters(&self) -> KeyTableCounters {
        self.key_tables.counters()
    }

    /// Moves what is to be sent by a link to `into`, which is empty; nothing of a link that is
    /// gone.
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

    /// Why no segment file could be made ready when one was last wanted, if that was not for want
    /// of space.
    #[must_use]
    pub fn spare_failure(&self) -> Option<SpareFailure> {
        self.spare_failure
    }

    fn spare_refused(&mut self, failure: Option<SpareFailure>) {
        self.spare_failure = failure;
        self.store.log_mut().spare_refused();
        self.has_progress = true;
    }

    // ---- the turn ----

    fn turn_ends(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        if self.has_progress {
            self.has_progress = false;
            self.run_postponed(now, outbox);
            self.run_held(now, outbox);
            self.sessions.resume(&mut outbox.resume);
        }
        let hash = &self.hash;
        self.store.settle(&|key| hash.home_of(key));
        self.scan(now, outbox);
        let mut waits_for_memory = self.store.is_memory_short();
        while let Some((token, place, start)) = self.requests.parking.next_read() {
            // A second attempt is counted since the first.
            let has_room = start.is_some()
                || self
                    .store
                    .has_room_to_read(self.requests.parking.bytes_under_way());
            if !has_room || !self.read(token, place, start, outbox) {
                self.requests.parking.not_issued(token);
                waits_for_memory |= !has_room;
                break;
            }
        }
        // Who knows the key that he wants goes first.
        while !self.requests.parking.has_unissued()
            && !waits_for_memory
            && let Some((token, place, brought)) = self.scanning.next_read()
            && self.read(token, place, brought, outbox)
        {
            self.scanning.issued();
            match place.file.segment_of_table() {
                None if brought.is_none() => self.key_tables.reads_part(place.file),
                None => {}
                Some(_) => self.key_tables.reads_block(),
            }
        }
        if !self.is_stopping {
            let orders = &mut outbox.key_tables;
            self.key_tables.step(&self.store, orders);
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
        outbox.bad_places.extend(self.bad_places.take());
        self.counters.bad_places = self.bad_places.count();
        let linked = self.linked.as_ref();
        let applied = linked.map_or(0, |it| it.look_at_links().counters().applied);
        // A member has work without a client.
        let items = self.counters.answers.total() + applied;
        let ran = items - std::mem::replace(&mut self.items_before, items);
        let is_idle = ran == 0;
        self.snapshots
            .step(now, &mut self.store, is_idle, &mut outbox.snapshots);
        if self.is_stopping
            && self.requests.is_empty()
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
        self.sessions.mark_ready(now.us, &outbox.sendable);
    }

    fn closed(&mut self, id: SessionId) {
        self.has_progress |= self.sessions.close(id);
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
    /// What is known of its first key, if that is this one.
    known: Option<Known<'a>>,
}

impl Operation<'_> {
    /// An operation that waited.
    fn of(parked: &Parked) -> Self {
        Operation {
            address: parked.address,
            level: parked.level,
            deadline_us: parked.deadline_us,
            came_us: parked.came_us,
            brought: None,
            known: None,
        }
    }
}

/// Where a key is looked up.
#[derive(Clone, Copy)]
struct Known<'a> {
    key: &'a [u8],
    slot: u16,
    hash: u32,
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
    /// This must be read first.
    Reads(Vec<Wanted>),
    /// The first key cannot be read.
    Unread(Unread),
}

/// A key that a read brought.
struct Admitted {
    place: Place,
    /// It came into the cache, where nobody has used it yet.
    is_new: bool,
}
