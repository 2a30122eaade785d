//! The state machine of one core.
//!
//! The life of a request: a connection receives bytes. Each whole frame runs at once, item by item.
//! The reply goes to the output of the connection, and a change goes to the open frame of the log.
//! At the end of the turn the log is pumped. When the disk has finished a write, the log tells up
//! to which LSN it is durable. Each connection then sends the replies that wait for no later LSN.
//!
//! An item for another shard leaves in that shard's mail; an item on a cold key parks. Both are
//! answered in later frames of the same request.

mod answer_bytes;
mod audited;
mod batch;
mod completions;
mod detached;
mod fire;
mod frames;
mod leases;
mod login;
mod look_ahead;
mod mailed;
mod members;
mod memory;
mod operation;
mod plain_answers;
mod reads;
mod rights;
mod run_item;
mod runs;
mod scans;
mod settings;
mod tokens;
mod told;
mod turn;
mod window;

use std::collections::HashMap;
use std::sync::Arc;

use penstock_net::frame::Medium;
use penstock_net::level::AckLevel;
use penstock_net::limits::KEY_BYTES_MAX;
use penstock_net::pieces::Pieces;
use penstock_net::reply::write_info_reply;
use penstock_net::request::{Verb, Version};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::budget::Budget;
use penstock_storage::io::Blocks;
use penstock_storage::key_table::TableHome;
use penstock_storage::place::{FileId, Lsn, Place};
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::Store;
use penstock_storage::system_key::is_system;

use crate::admission::Admission;
use crate::answers::Asked;
use crate::audit::AuditTrail;
use crate::chores::Chores;
use crate::cluster::{ClusterMember, Plan};
use crate::event::{Event, Fatal, Outbox};
use crate::execute::{KeyHash, look};
use crate::firing::Firing;
use crate::key_tables::KeyTableCounters;
use crate::keyspaces::{Done, Keyspaces};
use crate::logins::Logins;
use crate::mail::{Mail, SessionId};
use crate::now::Now;
use crate::phase::Phase;
use crate::programs::ProgramRunner;
use crate::replica_waits::ReplicaWaits;
use crate::replication::link_set::LinkSet;
use crate::replication::{LinkId, PartitionId};
use crate::requests::Requests;
use crate::requests::mailboxes::Mailboxes;
use crate::scans::Scans;
use crate::segment_files::SegmentFiles;
use crate::sessions::Sessions;
use crate::setup::{Setup, ShardConfig, hash_check};
use crate::snapshots::{SnapshotStart, Snapshots};
use crate::spare_failure::SpareFailure;
use crate::stats::Stats;

use self::operation::least_level;

/// One core's state machine. Each member owns its state; the methods here and in the modules below
/// take an event or a step of the turn through several of them.
pub struct Shard<P: Blocks> {
    setup: Setup,
    phase: Phase,
    store: Store<P>,
    sessions: Sessions,
    logins: Logins,
    audit: AuditTrail,
    admission: Admission,
    requests: Requests,
    scans: Scans,
    keyspaces: Keyspaces,
    firing: Firing,
    programs: ProgramRunner,
    linked: Option<Box<ClusterMember<P::Block>>>,
    replica_waits: ReplicaWaits,
    files: SegmentFiles,
    chores: Chores,
    stats: Stats,
}

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
        store.keep_tokens_for(config.token_horizon_ms);
        let linked = match config.cluster.clone() {
            Some(cluster) => {
                config.hello.placement = Some(cluster.plan.placement());
                Some(Box::new(ClusterMember::new(cluster, &mut store)?))
            }
            None => None,
        };
        let shards = config.topology.shards();
        let mailed_bytes_max = config.mailed_bytes_max();
        let mail = Mailboxes::new(shards, config.mailed_items_max, mailed_bytes_max);
        let check = hash_check(config.hash_seed);
        Ok(Shard {
            sessions: Sessions::new(config.client_bounds(), config.patience()),
            logins: Logins::default(),
            audit: AuditTrail::default(),
            admission: Admission::new(),
            requests: Requests::new(mail),
            scans: Scans::new(config.hash_seed, check),
            keyspaces: Keyspaces::default(),
            firing: Firing::default(),
            programs: ProgramRunner::default(),
            linked,
            replica_waits: ReplicaWaits::default(),
            files: SegmentFiles::default(),
            chores: Chores::new(Snapshots::new(config.snapshots, check, snapshots)),
            stats: Stats::default(),
            phase: Phase::default(),
            setup: Setup::new(config, store.log().config().record_bytes_max),
            store,
        })
    }

    /// The slot and hash with which recovery must fill the index of a shard with this seed.
    pub fn home_of(seed: u64) -> impl Fn(&[u8]) -> (u16, u32) + Clone {
        let hash = KeyHash::new(seed);
        move |key| hash.home_of(key)
    }

    /// A connection was accepted of which nothing is known: at a shard with users it cannot log in.
    pub fn open_session(&mut self, now: Now) -> SessionId {
        self.sessions.open(now.us, Medium::Wire, true)
    }

    /// A caller of this process has come, whose frames stay in its memory: nobody looks at their
    /// checksums, and its batches are answered without.
    pub fn open_session_in_memory(&mut self, now: Now) -> SessionId {
        self.sessions.open(now.us, Medium::Memory, false)
    }

    /// A connection was accepted whose bytes its driver translates to frames in memory. Its peer
    /// is judged as that of every connection, but for silence: it may say nothing for `idle_us_max`
    /// microseconds, or for ever if that is 0. What the driver holds comes as [`Event::Outside`].
    /// [`Shard::greet`] follows if there are users.
    pub fn open_session_translated(&mut self, now: Now, idle_us_max: u64) -> SessionId {
        self.sessions
            .open_idle(now.us, Medium::Memory, true, idle_us_max)
    }

    /// Gives back what is kept empty for a connection.
    pub fn give_back(&mut self, session: SessionId) {
        self.sessions.give_back(session);
    }

    /// Takes one event in. For [`Event::Received`] the result is how many bytes were consumed.
    pub fn step(
        &mut self,
        now: Now,
        event: Event<'_, P::Block>,
        outbox: &mut Outbox<P::Block>,
    ) -> usize {
        if let Some(fatal) = self.phase.fatal() {
            outbox.fatal = Some(fatal);
            return 0;
        }
        if !event.is_quiet() {
            self.step_begins(now, event.may_execute());
        }
        match event {
            Event::Received { session, bytes } => {
                let consumed = self.received(now, session, bytes, outbox);
                self.sessions.note_input(session, bytes.len() - consumed);
                return consumed;
            }
            Event::Unread { session, bytes } => {
                if let Some(session) = self.sessions.get_open(session) {
                    session.claim.unread_bytes = bytes;
                }
            }
            Event::Outside { session, held } => {
                let refusal = self.sessions.refusal_of_input(session, held.input);
                self.sessions.note_outside(now.us, session, held);
                self.phase.note_progress(self.sessions.has_paused());
                return usize::from(refusal.is_none());
            }
            Event::Closed { session } => {
                if let Some(session) = self.sessions.get_open(session) {
                    self.admission.leaves(&session.claim);
                }
                let has_closed = self.sessions.close(session);
                self.phase.note_progress(has_closed);
            }
            Event::Unacknowledged { session, bytes } => {
                self.look_at_peer(now, session, bytes, outbox);
            }
            Event::Took { session, bytes } => self.sessions.took(now.us, session, bytes),
            Event::Sent { session } => self.sent(session),
            Event::Completed(completion) => self.completed(now, completion, outbox),
            Event::Mail(mail) => self.mail_came(now, mail, outbox),
            Event::Spare {
                file,
                salt,
                bytes,
                is_reused,
            } => self.spare_came(file, salt, bytes, is_reused),
            Event::Room(room) => self.store.set_room(room),
            Event::SpareRefused => self.spare_refused(None),
            Event::SpareFailed(failure) => self.spare_refused(Some(failure)),
            Event::InheritedGone => self.forget_inherited(outbox),
            Event::KeyTable { file, table } => {
                let orders = &mut outbox.key_tables;
                let tables = &mut self.scans.tables;
                tables.arrived(file, table, &self.store, orders);
            }
            Event::GiveUpKeyTables => self.scans.forget_all_tables(&mut outbox.key_tables),
            Event::Info {
                session,
                request_id,
                text,
            } => self.tell_info(session, request_id, text, outbox),
            Event::SnapshotWritten { name, is_good } => {
                let log = self.store.log().counters();
                self.chores.snapshots.written(name, is_good, log);
            }
            Event::Plan(plan) => self.replan(now, plan),
            Event::Schema(schema) => self.serve_schema(schema),
            Event::Users(users) => self.let_in(users, outbox),
            Event::LinkUp { .. }
            | Event::LinkReceived { .. }
            | Event::LinkDown { .. }
            | Event::DivergedKept { .. } => self.link_changed(event),
            Event::TurnEnds => self.turn_ends(now, outbox),
            Event::MemoryBound { bytes } => {
                let budget = Budget {
                    memory_bytes_max: bytes,
                    ..self.store.budget()
                };
                self.store.set_budget(budget);
            }
            Event::Sync => {
                let log = self.store.log_mut();
                log.want_durable(log.appended());
            }
            Event::Stop => self.stop(),
        }
        0
    }

    /// A step begins in which something comes to be that depends on the time.
    #[inline]
    fn step_begins(&mut self, now: Now, may_execute: bool) {
        self.store.observe(now.us, now.unix_ms);
        self.stats.event(now.us);
        if let Some(linked) = &mut self.linked {
            linked.steps(now.us, &self.store, may_execute);
        }
    }

    /// Another shard sent a batch.
    fn mail_came(&mut self, now: Now, mail: Mail, outbox: &mut Outbox<P::Block>) {
        match mail {
            Mail::Requests(mail) => {
                self.execute_mail(now, &mail);
                self.requests.mail.keep_buffers(mail);
            }
            Mail::Replies(mail) => {
                self.deliver_mail(&mail, outbox);
                self.requests.mail.keep_reply_buffers(mail);
            }
            Mail::Keyspaces(mail) => self.keyspaces.hear(&mut self.store, &mail),
            Mail::KeyspaceDone { revision, is_full } => {
                self.keyspace_done(Done { revision, is_full }, outbox);
            }
            Mail::FailedLogins(addresses) => self.logins.failed_elsewhere(now.us, &addresses),
            Mail::Taken(mail) => {
                self.requests.mail.taken(&mail);
                self.phase.note_progress(true);
            }
        }
    }

    /// A segment file is ready.
    fn spare_came(&mut self, file: FileId, salt: u64, bytes: u64, is_reused: bool) {
        let log = self.store.log_mut();
        match is_reused {
            true => log.add_reused_spare(file, salt, bytes),
            false => log.add_spare(file, salt, bytes),
        }
        self.files.came(log.is_low());
        self.firing.room_came();
        self.phase.note_progress(!is_planted(Bug::SpareWakesNobody));
    }

    /// No segment file can be made ready now.
    fn spare_refused(&mut self, failure: Option<SpareFailure>) {
        self.files.refused(failure);
        self.store.log_mut().spare_refused();
        if self.files.has_leaving() {
            self.store.log_mut().removal_goes_on();
        }
        self.phase.note_progress(true);
    }

    /// The inherited logs are void.
    fn forget_inherited(&mut self, outbox: &mut Outbox<P::Block>) {
        for file in self.store.forget_inherited() {
            self.scans.forget_table(file, &mut outbox.key_tables);
            outbox.forgotten.push(file);
        }
    }

    /// The text of an INFO is here.
    fn tell_info(
        &mut self,
        session: SessionId,
        request_id: u64,
        text: &str,
        outbox: &mut Outbox<P::Block>,
    ) {
        let shard = self.setup.shard();
        if let Some(open) = self.sessions.get_open(session) {
            write_info_reply(open.output.pieces.written(), request_id, shard, text);
            self.note(session, Lsn(0), 0, outbox);
        }
    }

    /// Who writes and who holds what has changed in the cluster.
    fn replan(&mut self, now: Now, plan: Arc<Plan>) {
        if let Some(linked) = &mut self.linked
            && !linked.defer(now.us, &plan)
        {
            self.setup.place(plan.placement());
            linked.replan(now.us, plan, &self.store);
        }
    }

    /// A link has come or gone, or has brought something.
    fn link_changed(&mut self, event: Event<'_, P::Block>) {
        if let (Event::LinkUp { peer, .. }, Some(linked)) = (&event, &self.linked) {
            linked.meet(peer);
        }
        let Some(links) = self.links() else {
            return;
        };
        match event {
            Event::LinkUp {
                link,
                peer,
                is_outgoing: true,
            } => links.connected(link, peer),
            Event::LinkUp { link, peer, .. } => links.accepted(link, peer),
            Event::LinkReceived { link, bytes } => links.came(link, bytes),
            Event::LinkDown { link } => links.closed(link),
            Event::DivergedKept { partition, link } => links.diverged_kept(partition, link),
            _ => unreachable!("the caller hands over events of links"),
        }
    }

    /// A clean stop is asked for.
    fn stop(&mut self) {
        self.phase.stop();
        if let Some(links) = self.links() {
            links.release();
        }
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
        if !self.requests.is_idle() || self.phase.is_stopping() || self.phase.fatal().is_some() {
            return None;
        }
        self.store.observe(now.us, now.unix_ms);
        self.stats.event(now.us);
        let is_unleveled = level == AckLevel::None;
        let level = level.max(self.setup.config().level_min);
        let is_key = (1..=KEY_BYTES_MAX).contains(&key.len()) && !is_system(key);
        let slot = slot_of(key);
        let level = level.max(least_level(&self.store, slot, key, is_unleveled));
        let level = self.reachable(level);
        if !is_key || level.waits_for_members() || !self.setup.owns(slot) {
            return None;
        }
        let (cell, version, lsn) = look(&self.store, self.setup.hash().of(key), slot, key)?;
        if level >= AckLevel::Disk && lsn > self.store.log().durable() {
            return None;
        }
        self.stats.answer_at_once(now.us, now.us, 1);
        let Some(id) = cell else {
            self.stats.answer(Asked::Verb(Verb::Get), Status::NotFound);
            return Some(None);
        };
        self.stats.answer(Asked::Verb(Verb::Get), Status::Ok);
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

    /// Moves what may be sent to `into`, which is empty. More may be announced only after that. If
    /// [`Shard::is_unchecked`], the clock is read for it.
    pub fn take_pieces(&mut self, now: Now, id: SessionId, into: &mut Pieces) {
        if self.is_unchecked() {
            self.check_leases(now);
        }
        self.sessions.take_pieces(now.us, id, into);
    }

    /// Everything that was taken has been handed to the network.
    #[inline]
    fn sent(&mut self, id: SessionId) {
        let Some(sent) = self.sessions.sent(id) else {
            return;
        };
        if let Some((took_us, ready_us, operations)) = sent.left {
            self.stats.leave(took_us, ready_us, operations);
        }
        self.phase
            .note_progress(self.sessions.has_paused() || self.owes_credit());
    }

    /// Whether a connection has said its last word and may be closed.
    #[must_use]
    pub fn is_finished(&self, id: SessionId) -> bool {
        self.sessions.is_finished(id)
    }

    /// Bytes that are left for replies of all connections.
    #[must_use]
    pub fn room_for_replies(&self) -> usize {
        self.sessions.room_for_replies()
    }

    /// Whether the bytes of a connection that were not consumed are to be kept until it is named in
    /// [`Outbox::resume`].
    #[must_use]
    pub fn is_paused(&self, id: SessionId) -> bool {
        self.sessions.is_paused(id)
    }

    /// Has each item run by itself from now on, also one that repeats the item before it, and one
    /// that needs its cell and the open frame alone. For tests that compare both ways.
    #[doc(hidden)]
    pub fn leave_runs(&mut self) {
        self.setup.leave_runs();
    }

    /// Begins with short segments that grow with the log up to `most_bytes`; before the first turn.
    pub fn grow_segments(&mut self, most_bytes: u64) {
        self.store.log_mut().grow_segments(most_bytes);
    }

    /// Looks through all sealed segments once within each `period_us`; 0, as at first, is never.
    pub fn scrub_within(&mut self, period_us: u64) {
        self.store
            .set_scrub(period_us, self.setup.config().hash_seed);
    }

    /// The segments that may have key tables.
    pub fn key_table_homes(&self) -> impl Iterator<Item = TableHome> {
        self.scans.tables.homes(&self.store)
    }

    /// An earlier run left key tables of these segments, of this shard and of others, with the
    /// bytes of their files. Told once, before the first event.
    pub fn expect_key_tables(&mut self, found: &HashMap<FileId, u64>) {
        self.scans.tables.expect(found, &self.store);
    }

    /// Whether a key table was asked for and has not come.
    #[must_use]
    pub fn awaits_key_table(&self) -> bool {
        self.scans.tables.awaits()
    }

    /// What its key tables did.
    #[must_use]
    pub fn key_table_counters(&self) -> KeyTableCounters {
        self.scans.tables.counters()
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

    /// How many bytes are to be sent by a link; 0 by one that is gone.
    #[must_use]
    pub fn link_output_bytes(&self, link: LinkId) -> usize {
        let linked = self.linked.as_ref();
        linked.map_or(0, |linked| linked.link_set().output_bytes(link))
    }

    /// Whether more bytes of a link are to be handed over now.
    #[must_use]
    pub fn may_read_link(&self, link: LinkId) -> bool {
        let linked = self.linked.as_ref();
        linked.is_none_or(|linked| linked.link_set().may_read(link))
    }

    fn links(&mut self) -> Option<&mut LinkSet<P::Block>> {
        self.linked.as_mut().map(|linked| linked.links())
    }

    /// Why no segment file could be made ready when one was last wanted, if that was not for want
    /// of space.
    #[must_use]
    pub fn spare_failure(&self) -> Option<SpareFailure> {
        self.files.failure()
    }
}

/// A key that a read brought.
struct Admitted {
    place: Place,
    /// It came into the cache, where nobody has used it yet.
    is_new: bool,
}
