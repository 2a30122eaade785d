//! The state machine of one core.
//!
//! The life of a request: a connection receives bytes. Each whole frame runs at once, item by item.
//! The reply goes to the output of the connection, and a change goes to the open frame of the log.
//! At the end of the turn the log is pumped. When the disk has finished a write, the log tells up
//! to which LSN it is durable. Each connection then sends the replies that wait for no later LSN.
//!
//! An item for another shard leaves in that shard's mail; an item on a cold key parks. Both are
//! answered in later frames of the same request.

mod audited;
mod batch;
mod completions;
mod detached;
mod frames;
mod joint;
mod leases;
mod login;
mod mailed;
mod members;
mod memory;
mod operation;
mod reads;
mod repeats;
mod reported;
mod rights;
mod run_item;
mod scans;
mod script_item;
mod settings;
mod tracked;
mod turn;

use penstock_net::pieces::Pieces;
use penstock_net::reply::write_info_reply;
use penstock_storage::budget::Budget;
use penstock_storage::io::Blocks;
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::Lsn;
use penstock_storage::store::Store;

use crate::accounts::stats::Stats;
use crate::chores::Chores;
use crate::cluster::ClusterMember;
use crate::event::{Event, Fatal, Outbox};
use crate::execution::Execution;
use crate::execution::slice::Slice;
use crate::execution::verbs::KeyHash;
use crate::execution::verbs::script::ReplyBuffer;
use crate::firing::Firing;
use crate::front::Front;
use crate::joint::{Joint, JointPlace};
use crate::keyspaces::{Done, Keyspaces};
use crate::mail::{Mail, SessionId};
use crate::now::Now;
use crate::phase::Phase;
use crate::programs::ProgramRunner;
use crate::publisher::Publications;
use crate::replica_waits::ReplicaWaits;
use crate::replication::PartitionId;
use crate::requests::Requests;
use crate::requests::mailboxes::Mailboxes;
use crate::scans::Scans;
use crate::segment_files::SegmentFiles;
use crate::setup::{Setup, ShardConfig, hash_check};
use crate::snapshots::{SnapshotStart, Snapshots};
use crate::step::Step;
use crate::tracking::Tracking;

/// One core's state machine. Its two members own all state; the methods here and in the modules
/// below take an event or a step of the turn through both.
pub struct Shard<P: Blocks> {
    pub(crate) front: Front,
    pub(crate) execution: Execution<P>,
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
        store.cleaning_mut().configure(config.cleaning);
        store.data_mut().keep_tokens_for(config.token_horizon_ms);
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
        let front = Front::new(&config);
        let execution = Execution {
            requests: Requests::new(mail),
            joint: Joint::new(JointPlace {
                shard: config.shard,
                shards,
                takes_several: config.takes_several_shards,
            }),
            scans: Scans::new(config.hash_seed, check),
            keyspaces: Keyspaces::default(),
            firing: Firing::default(),
            programs: ProgramRunner::default(),
            linked,
            replica_waits: ReplicaWaits::default(),
            files: SegmentFiles::default(),
            chores: Chores::new(Snapshots::new(config.snapshots, check, snapshots)),
            stats: Stats::default(),
            scripts: None,
            publications: Publications::default(),
            tracking: Tracking::default(),
            script_reply: ReplyBuffer::default(),
            script_item: Vec::new(),
            slice: Slice::default(),
            phase: Phase::default(),
            setup: Setup::new(config, store.log().config().record_bytes_max),
            store,
        };
        Ok(Shard { front, execution })
    }

    /// The slot and hash with which recovery must fill the index of a shard with this seed.
    pub fn home_of(seed: u64) -> impl Fn(&[u8]) -> KeyHome + Clone {
        let hash = KeyHash::new(seed);
        move |key| hash.home_of(key)
    }

    /// What faces its connections.
    #[inline]
    #[must_use]
    pub fn front(&self) -> &Front {
        &self.front
    }

    /// The same, to open a connection or to change what one may do.
    #[inline]
    pub fn front_mut(&mut self) -> &mut Front {
        &mut self.front
    }

    /// What faces its store.
    #[inline]
    #[must_use]
    pub fn execution(&self) -> &Execution<P> {
        &self.execution
    }

    /// The same, for what its owner sets and takes between two steps.
    #[inline]
    pub fn execution_mut(&mut self) -> &mut Execution<P> {
        &mut self.execution
    }

    /// The store, for what the owner reports of it.
    #[must_use]
    pub fn store(&self) -> &Store<P> {
        &self.execution.store
    }

    /// Takes one event in. For [`Event::Received`] the result is how many bytes were consumed.
    pub fn step(
        &mut self,
        now: Now,
        event: Event<'_, P::Block>,
        outbox: &mut Outbox<P::Block>,
    ) -> usize {
        let step = &mut Step { now, outbox };
        if let Some(fatal) = self.execution.phase.fatal() {
            step.outbox.fatal = Some(fatal);
            return 0;
        }
        let execution = &mut self.execution;
        execution.tracking.step_begins(execution.store.data_mut());
        if !event.is_quiet() {
            execution.step_begins(step.now, event.may_execute());
        }
        let ends_turn = matches!(event, Event::TurnEnds);
        let result = self.take_in(step, event);
        let execution = &mut self.execution;
        let linked = execution.linked.as_deref();
        execution
            .tracking
            .step_ends(&mut execution.store, linked, ends_turn);
        result
    }

    /// Takes one event in.
    fn take_in(&mut self, step: &mut Step<'_, P::Block>, event: Event<'_, P::Block>) -> usize {
        match event {
            Event::Received { session, bytes } => {
                let consumed = self.received(step, session, bytes);
                self.front
                    .sessions
                    .note_input(session, bytes.len() - consumed);
                return consumed;
            }
            Event::Unread { session, bytes } => self.front.sessions.note_unread(session, bytes),
            Event::Outside { session, held } => {
                let refusal = self.front.sessions.refusal_of_input(session, held.input);
                self.front.sessions.note_outside(step.now.us, session, held);
                self.execution
                    .phase
                    .note_progress(self.front.sessions.has_paused());
                return usize::from(refusal.is_none());
            }
            Event::Closed { session } => {
                if let Some(session) = self.front.sessions.get_open(session) {
                    self.front.admission.leaves(&session.claim);
                }
                let has_closed = self.front.sessions.close(session);
                self.execution.phase.note_progress(has_closed);
            }
            Event::Unacknowledged { session, bytes } => {
                self.check_peer(step, session, bytes);
            }
            Event::Took { session, bytes } => self.front.sessions.took(step.now.us, session, bytes),
            Event::Gave { session, bytes } => self.front.sessions.gave(session, bytes),
            Event::Sent { session } => self.sent(session),
            Event::Completed(completion) => self.completed(step, completion),
            Event::Mail(mail) => self.mail_came(step, mail),
            Event::Spare {
                file,
                salt,
                bytes,
                is_reused,
            } => self.execution.spare_came(file, salt, bytes, is_reused),
            Event::Room(room) => self.execution.store.set_room(room),
            Event::SpareRefused => self.execution.spare_refused(None),
            Event::SpareFailed(failure) => self.execution.spare_refused(Some(failure)),
            Event::InheritedGone => self.execution.forget_inherited(step.outbox),
            Event::KeyTable { file, table } => {
                let orders = &mut step.outbox.key_tables;
                let tables = &mut self.execution.scans.tables;
                tables.arrived(file, table, &self.execution.store, orders);
            }
            Event::GiveUpKeyTables => self
                .execution
                .scans
                .forget_all_tables(&mut step.outbox.key_tables),
            Event::Info {
                session,
                request_id,
                text,
            } => self.answer_info(session, request_id, text, step.outbox),
            Event::SnapshotWritten { name, is_good } => {
                let log = self.execution.store.log().counters();
                self.execution.chores.snapshots.written(name, is_good, log);
            }
            Event::Plan(plan) => self.execution.replan(step.now, plan),
            Event::Schema(schema) => self.execution.serve_schema(schema),
            Event::Users(users) => self.front.let_in(users, step.outbox),
            Event::LinkUp { .. }
            | Event::LinkReceived { .. }
            | Event::LinkDown { .. }
            | Event::DivergedKept { .. } => self.execution.link_changed(event),
            Event::TurnEnds => self.turn_ends(step),
            Event::MemoryBound { bytes } => {
                let budget = Budget {
                    memory_bytes_max: bytes,
                    ..self.execution.store.data().budget()
                };
                self.execution.store.data_mut().set_budget(budget);
            }
            Event::Sync => {
                let log = self.execution.store.log_mut();
                log.want_durable(log.appended());
            }
            Event::Stop => self.stop(),
        }
        0
    }

    /// Another shard sent a batch.
    fn mail_came(&mut self, step: &mut Step<'_, P::Block>, mail: Mail) {
        match mail {
            Mail::Requests(mail) => {
                self.execute_mail(step.now, &mail);
                self.execution.requests.mail.keep_buffers(mail);
            }
            Mail::Replies(mail) => {
                self.deliver_mail(&mail, step.outbox);
                self.execution.requests.mail.keep_reply_buffers(mail);
            }
            Mail::Keyspaces(mail) => self
                .execution
                .keyspaces
                .learn_mail(&mut self.execution.store, &mail),
            Mail::KeyspaceDone { revision, is_full } => {
                self.keyspace_done(Done { revision, is_full }, step.outbox);
            }
            Mail::FailedLogins(addresses) => {
                self.front.logins.failed_elsewhere(step.now.us, &addresses)
            }
            Mail::Joint(mail) => {
                let messages = mail.messages.into_iter().map(|it| (mail.from, it));
                self.execution.joint.inbox.extend(messages);
            }
            Mail::Taken(mail) => {
                self.execution.requests.mail.taken(&mail);
                self.execution.phase.note_progress(true);
            }
        }
    }

    /// The text of an INFO is here.
    fn answer_info(
        &mut self,
        session: SessionId,
        request_id: u64,
        text: &str,
        outbox: &mut Outbox<P::Block>,
    ) {
        let shard = self.execution.setup.shard();
        if let Some(open) = self.front.sessions.get_open(session) {
            self.execution.joint.answered((session, request_id));
            write_info_reply(open.output.pieces.written(), request_id, shard, text);
            self.note(session, Lsn(0), 0, outbox);
        }
    }

    /// A clean stop is asked for.
    fn stop(&mut self) {
        self.execution.phase.stop();
        if let Some(links) = self.execution.links() {
            links.release();
        }
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
        if self.execution.is_unchecked() {
            self.check_leases(now);
        }
        self.front.sessions.take_pieces(now.us, id, into);
    }

    /// Everything that was taken has been handed to the network.
    #[inline]
    fn sent(&mut self, id: SessionId) {
        let Some(sent) = self.front.sessions.sent(id) else {
            return;
        };
        if let Some((took_us, ready_us, operations)) = sent.left {
            self.execution.stats.leave(took_us, ready_us, operations);
        }
        self.execution
            .phase
            .note_progress(self.front.sessions.has_paused() || self.owes_credit());
    }

    /// Has each item run by itself from now on, also one that repeats the item before it, and one
    /// that needs its cell and the open frame alone. For tests that compare both ways.
    #[doc(hidden)]
    pub fn leave_repeats(&mut self) {
        self.execution.setup.leave_repeats();
    }
}
