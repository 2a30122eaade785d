//! The links of one shard over its store: bytes of other nodes in, records into the log and the
//! index, records of the log out.
//!
//! A [`LinkSet`] has the partitions of the shard and the ring. For each link whose peer has proven
//! who it is, it has a sender or a receiver. Its parts do what touches the log: they write local
//! records, apply records, rewrite records, and read what the ring no longer holds. In each turn,
//! [`LinkSet::take_in`] comes before the log is pumped and [`LinkSet::give_out`] behind it, so that
//! a sealed frame is shipped while it goes to the disk.
//!
//! It does not know: sockets, secrets, where lostfound is, who is to be primary.

mod apply;
mod commits;
mod confirmations;
mod diverged;
mod effects;
mod first_record;
mod handover;
mod holders;
mod link_table;
mod prefetch;
mod receiver_link;
mod recovery;
mod replicas;
mod rewrite;
mod sealed_frames;
mod sender_link;
mod store_turn;
mod sweep;
mod taken_frames;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use penstock_net::link::{Membership, RefusalCode};
use penstock_storage::cleaning::Backlog;
use penstock_storage::histogram::Histogram;
use penstock_storage::io::{Block, Blocks, Completion, Io};
use penstock_storage::place::{FileId, Lsn};
use penstock_storage::store::Store;
use penstock_storage::version::Version;

use self::apply::Applier;
use self::commits::Commits;
use self::confirmations::Confirmations;
use self::diverged::{DivergedRecords, Incomplete};
use self::effects::Effects;
use self::first_record::FirstRecord;
use self::handover::Handovers;
use self::holders::{Holders, Lacking};
use self::link_table::LinkTable;
use self::prefetch::Prefetch;
use self::replicas::Replicas;
use self::rewrite::Rewrites;
use self::sender_link::Shipped;
use self::store_turn::StoreTurn;
use self::taken_frames::{LinkEnd, TakenFrames};
use super::epoch::Epoch;
use super::handshake::{Introduction, Peer};
use super::notes::{Notes, Tags};
use super::pace::Pace;
use super::partition::{CannotBegin, Partition, Role};
use super::planted::{Bug, is_planted};
use super::reads::Unread;
use super::receiver::{KeptLimits, LinkRefusal};
use super::record::position_of;
use super::ring::Ring;
use super::sender::{Confirmed, Sender};
use super::standing::{Lag, LinkState, Traffic};
use super::{LinkId, PartitionId, Work};
use penstock_storage::if_planted;

pub use effects::{LinkAction, LinkCounters};
pub use recovery::UnreadableNote;
pub use store_turn::LinkTime;

/// How a shard takes part.
#[derive(Clone, Debug)]
pub struct LinkSetConfig {
    /// What it tells of itself.
    pub me: Introduction,
    /// Bytes of records that are kept in memory for links, at most.
    pub ring_bytes_max: usize,
    /// Bytes of segments that cleaning leaves to members which lack them, at most.
    pub backlog_bytes_max: u64,
    /// What is read of the log in a second for members that catch up, at most; 0 is without a
    /// bound.
    pub catch_up_bytes_per_s: u64,
    /// Bytes of records beyond which a link is not read from while some of them can be applied, and
    /// twice of those that are under way by one: usually [`super::PENDING_BYTES_MAX`].
    pub pending_bytes_max: usize,
}

impl LinkSetConfig {
    fn kept_limits(&self) -> KeptLimits {
        let frame_bytes_max = usize::try_from(self.me.frame_bytes_max).unwrap_or(usize::MAX);
        KeptLimits {
            bytes_max: self.pending_bytes_max,
            frame_bytes_max,
        }
    }
}

/// Memory that links take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkMemory {
    /// Bytes of the records that were sealed last.
    pub ring_bytes: u64,
    /// Bytes of records that were received and are not applied.
    pub received_bytes: u64,
    /// Bytes that wait to be sent, or arrived and were not read yet.
    pub buffer_bytes: u64,
}

/// The links of one shard.
#[derive(Debug)]
pub struct LinkSet<B> {
    config: LinkSetConfig,
    tags: Arc<Tags>,
    replicas: Replicas<B>,
    table: LinkTable<B>,
    holders: Holders,
    commits: Commits,
    ring: Ring,
    applier: Applier,
    diverged: DivergedRecords<B>,
    rewrites: Rewrites,
    handovers: Handovers,
    confirmations: Confirmations,
    /// How fast the log is read for members that catch up.
    pace: Pace,
}

impl<B: Block> LinkSet<B> {
    /// The links of a shard whose store was just opened; the log tells what the partitions are.
    ///
    /// # Errors
    /// [`UnreadableNote`]: it was written by another version.
    pub fn new<P: Blocks<Block = B>>(
        config: LinkSetConfig,
        store: &mut Store<P>,
    ) -> Result<Self, UnreadableNote> {
        let tags = Arc::new(Tags::default());
        let partitions = recovery::partitions(&config.me, &tags, store)?;
        let ring = Ring::new(config.ring_bytes_max, store.log().appended());
        // Before anything is cleaned: diverged records may stand anywhere.
        store.cleaning_mut().hold_back(Some(Backlog {
            behind: Lsn(0),
            bytes_max: config.backlog_bytes_max,
        }));
        Ok(LinkSet {
            tags,
            replicas: Replicas {
                partitions,
                prefetch: Prefetch::default(),
                effects: Effects::default(),
            },
            table: LinkTable::default(),
            holders: Holders::default(),
            commits: Commits::default(),
            ring,
            applier: Applier::new(config.pending_bytes_max / 8),
            diverged: DivergedRecords::default(),
            rewrites: Rewrites::default(),
            handovers: Handovers::default(),
            confirmations: Confirmations::new(store.log().appended()),
            pace: Pace::new(config.catch_up_bytes_per_s),
            config,
        })
    }

    // ---- partitions ----

    /// A partition of the shard.
    #[must_use]
    pub fn partition(&self, number: PartitionId) -> Option<&Partition> {
        self.replicas.partitions.get(&number)
    }

    /// The partitions of the shard, ascending.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.replicas.partitions.keys().copied()
    }

    /// How old what is here of a partition is, at most, in microseconds, if that is known; `None`
    /// if nobody may read it here, because it does not follow.
    #[must_use]
    pub fn age_us(&self, now_us: u64, number: PartitionId) -> Option<Option<u64>> {
        let state = self.partition(number)?;
        let Role::Member(member) = state.role() else {
            return None;
        };
        let link = self.table.receivers.get(&member.link)?;
        if !state.is_readable() {
            return None;
        }
        let unapplied = state
            .unapplied()
            .filter(|_| !is_planted(Bug::EchoBeforeApplied));
        let known_us = link.receiver.freshness().known_us(unapplied);
        Some(known_us.map(|known_us| now_us.saturating_sub(known_us)))
    }

    /// Somebody reads a partition that is followed, and wants nothing that is older than this: the
    /// primary is asked more often.
    pub fn want(&mut self, now_us: u64, number: PartitionId, staleness_us_max: u64) {
        let role = self.replicas.partitions.get(&number).map(Partition::role);
        if let Some(Role::Member(member)) = role
            && let Some(link) = self.table.receivers.get_mut(&member.link)
        {
            link.receiver.want(now_us, staleness_us_max);
        }
    }

    /// Sets the other nodes that hold a partition from now on, by their numbers.
    pub fn place(&mut self, partition: PartitionId, members: Vec<(u8, Membership)>) {
        self.holders.place(partition, members);
    }

    /// This node begins to write a partition; its first record follows in a turn.
    ///
    /// # Errors
    /// [`CannotBegin`]; nothing changed. `None` if the log has no room for it now, or the partition
    /// is not the shard's.
    pub fn begin<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        partition: PartitionId,
        generation: u32,
        is_forced: bool,
        store: &mut Store<P>,
    ) -> Option<Result<Epoch, CannotBegin>> {
        let mut notes = Notes {
            store,
            tags: &self.tags,
            now_us: time.now_us,
        };
        if !notes.has_room() {
            return None;
        }
        let node = self.config.me.node;
        let state = self.replicas.partitions.get_mut(&partition)?;
        let begun = state.begin(generation, node, is_forced, &mut notes);
        if begun.is_ok() {
            // By force: there is nobody to ask for the keys any more. They are looked for once
            // more.
            self.diverged.forget(partition);
        }
        Some(begun)
    }

    /// Hands a partition over to a member that is to write it in this epoch: as soon as the member
    /// has all that was written here. Nothing more is written here from now on: the owner sees to
    /// that.
    pub fn hand_over(&mut self, partition: PartitionId, node: u8, epoch: Epoch) {
        let state = &self.replicas.partitions[&partition];
        let me = self.config.me.node;
        self.handovers.begin(partition, state, me, (node, epoch));
    }

    /// Whether another node is to write this partition that this one may be writing still. What the
    /// other node writes reaches this one only through a node that both ship to, so this node tells
    /// nobody that its copy is new.
    pub fn supersede(&mut self, partition: PartitionId, is_superseded: bool) {
        self.handovers.supersede(partition, is_superseded);
    }

    /// In which partitions replies at level `replica` wait: these are not handed over before they
    /// are answered.
    pub fn answer_first(&mut self, is_waited_for: impl Fn(PartitionId) -> bool) {
        self.handovers.answer_first(is_waited_for);
    }

    /// The partition is not handed over any more: not if that has not been promised, and if
    /// `is_forced` by people who have chosen another node not even then.
    pub fn cancel_handover(&mut self, partition: PartitionId, is_forced: bool) {
        self.handovers.cancel(partition, is_forced);
    }

    /// Whether a client's write of a partition may be executed now.
    #[must_use]
    pub fn may_write<P: Blocks<Block = B>>(
        &self,
        partition: PartitionId,
        store: &Store<P>,
    ) -> bool {
        let durable = store.log().durable();
        self.partition(partition)
            .is_some_and(|state| state.may_write(durable))
    }

    /// The partitions of the shard, ascending, and whether a client's write of them may be executed
    /// now.
    pub fn writable<P: Blocks<Block = B>>(
        &self,
        store: &Store<P>,
    ) -> impl Iterator<Item = (PartitionId, bool)> + '_ {
        let durable = store.log().durable();
        let partitions = self.replicas.partitions.iter();
        partitions.map(move |(&number, state)| (number, state.may_write(durable)))
    }

    /// A stamp that changes with what [`LinkSet::writable`] tells. `None` while each turn may
    /// change what it tells.
    pub fn writable_stamp<P: Blocks<Block = B>>(&mut self, store: &Store<P>) -> Option<u64> {
        let overview = self.replicas.partitions.summary();
        overview.openings_stamp(store.log().durable())
    }

    /// Takes note of all that clients have written since the last turn: an owner that does so at
    /// the begin of each need not tell each write.
    pub fn follow_commits<P: Blocks<Block = B>>(&mut self, store: &Store<P>) {
        let partitions = &mut self.replicas.partitions;
        self.commits
            .follow(store.data().numbering().sequences(), partitions);
    }

    /// A client's write was committed with this version.
    ///
    /// # Panics
    /// If it is not the next one of the partition.
    pub fn committed(&mut self, partition: PartitionId, version: Version) {
        let partitions = &mut self.replicas.partitions;
        let state = partitions.get_mut(&partition).expect("it may write");
        let next = state.next_position();
        assert_eq!(next, position_of(version), "versions follow each other");
    }

    /// How far each member of the sync set of a partition has it; `None` for one that does not
    /// count.
    pub fn received(&self, partition: PartitionId) -> impl Iterator<Item = Option<Lsn>> + '_ {
        let sync_set = self.holders.sync_set(partition);
        sync_set.map(move |node| self.table.received_by(node, partition, |_| true))
    }

    /// How far a node has a partition that was opened there in this epoch; `None` if it has not
    /// joined.
    #[must_use]
    pub fn received_by(&self, node: u8, partition: PartitionId, epoch: Epoch) -> Option<Lsn> {
        let table = &self.table;
        table.received_by(node, partition, |opened| opened == epoch)
    }

    // ---- links ----

    /// A link to a peer that has proven itself.
    pub fn connected(&mut self, link: LinkId, peer: Peer) {
        self.holders.connected(peer.node);
        let window_bytes = self.config.pending_bytes_max / 2;
        self.table.connected(link, peer, window_bytes);
    }

    /// A link from a peer that has proven itself.
    pub fn accepted(&mut self, link: LinkId, peer: Peer) {
        self.table.accepted(link, peer, self.config.kept_limits());
    }

    /// Ends the links with nodes that are no part of the cluster any more.
    pub fn keep_nodes(&mut self, is_named: impl Fn(u8) -> bool) {
        for (link, node) in self.table.strangers(is_named) {
            self.refuse(link, not_named(node));
        }
    }

    /// The link is gone. What was received by it stays.
    pub fn closed(&mut self, link: LinkId) {
        if let Some(ended) = self.table.remove_sender(link) {
            self.holders.remember(ended.peer.node, &ended.sender);
        }
        if let Some(ended) = self.table.remove_receiver(link) {
            ended.receiver.close(&mut self.replicas.partitions);
        }
        self.diverged.link_ended(link);
        self.rewrites.link_ended(link);
    }

    /// Whether more bytes of a link are to be read from its socket now.
    #[must_use]
    pub fn may_read(&self, link: LinkId) -> bool {
        let frame_bytes_max = self.config.me.frame_bytes_max as usize;
        let input = self.table.input_bytes(link);
        input.is_some_and(|bytes| bytes < frame_bytes_max)
    }

    /// Bytes have come by a link. The next turn takes them in.
    pub fn came(&mut self, link: LinkId, bytes: &[u8]) {
        self.table.came(link, bytes);
    }

    /// So many bytes of a link are on their way.
    pub fn went(&mut self, link: LinkId, bytes: usize) {
        self.table.went(link, bytes);
    }

    /// What is to be sent by a link; whatever is taken from its front has gone out.
    pub fn output(&mut self, link: LinkId) -> Option<&mut Vec<u8>> {
        self.table.output(link)
    }

    /// How many bytes are to be sent by a link; 0 by one that is gone.
    #[must_use]
    pub fn output_bytes(&self, link: LinkId) -> usize {
        self.table.output_bytes(link)
    }

    /// Links with something to be sent.
    pub fn sendable(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.table.sendable()
    }

    // ---- the owner's turn ----

    /// Whether something was done since this was last asked, so that another turn may do more.
    pub fn take_due(&mut self) -> bool {
        self.replicas.effects.take_due()
    }

    /// When another turn is due, if nothing happens before: to ship what waits for its pace, to ask
    /// a primary how old what is here is, or to read again what could not be read.
    #[must_use]
    pub fn deadline_us(&self, now_us: u64) -> Option<u64> {
        let links = self.table.receivers.values();
        let asks = links.filter_map(|it| it.receiver.due_us(now_us));
        let again_us = self.replicas.prefetch.reads.again_us();
        asks.chain(self.pace.due_us()).chain(again_us).min()
    }

    /// What the owner is to do next.
    pub fn take_action(&mut self) -> Option<LinkAction> {
        self.replicas.effects.take_action()
    }

    /// Whether a file is read for a link, so that it must stay.
    #[must_use]
    pub fn is_reading(&self, file: FileId) -> bool {
        self.replicas.prefetch.reads.is_reading(file)
    }

    /// The end of a read of this part of the shard.
    pub fn read(&mut self, completion: Completion<B>) {
        self.replicas.prefetch.reads.ended(completion.token.number);
        let Some(completion) = self.table.read(completion) else {
            return;
        };
        let cursor = self.diverged.cursor_mut();
        match cursor.awaits(completion.token.number) {
            true => cursor.read(completion),
            false => {
                let Replicas {
                    prefetch, effects, ..
                } = &mut self.replicas;
                prefetch.read(completion, effects);
            }
        }
    }

    /// The shard stops, and nothing is shipped or applied any more: releases the memory that was
    /// taken to read the log, for requests that still wait for some.
    pub fn release(&mut self) {
        self.table.release_cursors();
        self.diverged.release();
        self.replicas.prefetch.release();
    }

    /// The diverged records of a partition are kept durably, and their keys may be told.
    pub fn diverged_kept(&mut self, partition: PartitionId, link: Option<LinkId>) {
        let Some(keys) = self.diverged.take_keys(partition, link) else {
            return;
        };
        let Some(link) = link else {
            let keys = keys.into_iter().collect();
            self.begin_rewrite(partition, None, keys);
            return;
        };
        if let Some(it) = self.table.receivers.get_mut(&link) {
            it.receiver.diverged_saved(partition, keys);
        }
    }

    // ---- in ----

    /// What has come is taken in: frames, records that may be applied, keys to be written anew.
    /// Before the log is pumped.
    pub fn take_in<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        store: &mut Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<B>>,
    ) {
        let tags = Arc::clone(&self.tags);
        let mut turn = StoreTurn {
            time,
            store,
            tags: &tags,
            hash_of,
            io,
        };
        self.replicas.prefetch.reads.begin_turn(time.now_us);
        self.take_frames(&mut turn);
        let diverged = &self.diverged;
        let is_searched = |number| diverged.is_searched(number) && !is_planted(Bug::TailSuperseded);
        let receivers = &mut self.table.receivers;
        self.applier
            .apply(&mut turn, &mut self.replicas, receivers, is_searched);
        self.append_first_records(&mut turn);
        let senders = &mut self.table.senders;
        self.rewrites.write(&mut turn, &mut self.replicas, senders);
        self.ask_for_scans(&mut turn);
        self.diverged.read(&mut turn, &mut self.replicas);
    }

    /// Takes in the frames of all links: those that ship to this node first.
    fn take_frames<P: Blocks<Block = B>, H: Fn(&[u8]) -> u32>(
        &mut self,
        turn: &mut StoreTurn<'_, P, H>,
    ) {
        let links: Vec<LinkId> = self.table.receivers.keys().copied().collect();
        for link in links {
            let Replicas {
                partitions,
                effects,
                ..
            } = &mut self.replicas;
            let receiver = self.table.receivers.get_mut(&link);
            let sweeps = &mut self.applier.sweeps;
            let me = (link, &self.config.me);
            let taken = receiver
                .expect("no link ends another one")
                .take_frames(turn, me, partitions, sweeps, effects);
            self.taken(link, taken, turn);
        }
        let links: Vec<LinkId> = self.table.senders.keys().copied().collect();
        for link in links {
            let Replicas {
                partitions,
                effects,
                ..
            } = &mut self.replicas;
            let sender = self.table.senders.get_mut(&link);
            let sender = sender.expect("no link ends another one");
            let frame_bytes_max = self.config.me.frame_bytes_max;
            let confirmations = &mut self.confirmations;
            let taken =
                sender.take_frames(turn, frame_bytes_max, partitions, confirmations, effects);
            let node = sender.peer.node;
            self.holders.note_durable(node, &mut sender.sender);
            self.taken(link, taken, turn);
        }
    }

    /// Does what the frames of a link ask for, and ends the link if they end it.
    fn taken<P: Blocks<Block = B>, H: Fn(&[u8]) -> u32>(
        &mut self,
        link: LinkId,
        taken: TakenFrames,
        turn: &mut StoreTurn<'_, P, H>,
    ) {
        let TakenFrames { work, end } = taken;
        match end {
            None => self.work(link, work, turn),
            Some(LinkEnd::There(refusal)) => {
                self.replicas.effects.ended_there(link, refusal);
                self.work(link, work, turn);
                self.closed(link);
            }
            Some(LinkEnd::Here(refusal)) => {
                self.work(link, work, turn);
                self.refuse(link, refusal);
            }
        }
    }

    fn work<P: Blocks<Block = B>, H: Fn(&[u8]) -> u32>(
        &mut self,
        link: LinkId,
        work: VecDeque<Work>,
        turn: &mut StoreTurn<'_, P, H>,
    ) {
        for work in work {
            let effects = &mut self.replicas.effects;
            match work {
                Work::Deposed { partition, epoch } => self.depose(partition, epoch, turn),
                Work::Save { partition, records } => {
                    for record in records {
                        effects.keep(partition, record);
                    }
                }
                Work::SaveDiverged {
                    partition,
                    link,
                    from,
                    history,
                } => {
                    let (link, bounds) = (Some(link), (from, history));
                    self.diverged.search(partition, link, bounds, turn.store);
                }
                Work::Rewind { partition, keys } => {
                    self.begin_rewrite(partition, Some(link), keys.into());
                }
                Work::Begin { partition, epoch } => {
                    effects.ask(LinkAction::Begin { partition, epoch });
                }
                Work::Lacks { partition, node } => {
                    effects.ask(LinkAction::Lacks { partition, node });
                }
            }
        }
    }

    fn begin_rewrite(
        &mut self,
        partition: PartitionId,
        link: Option<LinkId>,
        keys: VecDeque<Vec<u8>>,
    ) {
        let applied = self.replicas.partitions[&partition].applied();
        self.rewrites.begin(partition, link, keys, applied);
        self.replicas.effects.progressed();
    }

    fn depose<P: Blocks<Block = B>, H: Fn(&[u8]) -> u32>(
        &mut self,
        partition: PartitionId,
        epoch: Epoch,
        turn: &mut StoreTurn<'_, P, H>,
    ) {
        let state = self.replicas.partitions.get_mut(&partition);
        state
            .expect("it was offered")
            .depose(epoch, &mut turn.notes());
        self.rewrites.forget(partition);
        self.diverged.forget_own(partition);
        for link in self.table.senders.values_mut() {
            let out = &mut link.output;
            link.sender.close(turn.time.time_ms, partition, out);
        }
        let deposed = LinkAction::Deposed { partition, epoch };
        self.replicas.effects.ask(deposed);
    }

    /// Tells the peer why, and ends the link.
    fn refuse(&mut self, link: LinkId, refusal: LinkRefusal) {
        let Some(output) = self.table.last_output(link, &refusal) else {
            return;
        };
        self.closed(link);
        self.replicas.effects.ended_here(link, refusal, output);
    }

    /// Writes the first record of each epoch that has begun.
    fn append_first_records<P: Blocks<Block = B>, H: Fn(&[u8]) -> u32>(
        &mut self,
        turn: &mut StoreTurn<'_, P, H>,
    ) {
        let start_id = self.config.me.start.start_id;
        let beginning = self.replicas.partitions.summary().beginning();
        for number in beginning.iter() {
            let state = &self.replicas.partitions[&number];
            let Some(first) = FirstRecord::due(number, state, start_id) else {
                continue;
            };
            let before = state.history().clone();
            if !first.append(turn, &mut self.replicas) {
                continue;
            }
            if let Some(from) = self.replicas.partitions[&number].own_diverged() {
                let bounds = (from, before);
                self.diverged.search(number, None, bounds, turn.store);
            }
            self.applier.sweeps.end(number);
            self.replicas.effects.progressed();
        }
    }

    /// Asks for scans of the partitions whose diverged records are not all in the log any more.
    fn ask_for_scans<P: Blocks<Block = B>, H: Fn(&[u8]) -> u32>(
        &mut self,
        turn: &mut StoreTurn<'_, P, H>,
    ) {
        let mut next = 0;
        let mut first_of: BTreeMap<LinkId, (Incomplete, usize)> = BTreeMap::new();
        loop {
            let partitions = &self.replicas.partitions;
            let found = self.diverged.incomplete_from(next, partitions, turn.store);
            let Some(lost) = found else { break };
            let mut notes = turn.notes();
            if !notes.has_room() {
                break;
            }
            let state = self.replicas.partitions.get_mut(&lost.partition);
            state.expect("it is the shard's").must_scan(&mut notes);
            self.replicas.effects.counters_mut().diverged_lost += 1;
            next = lost.partition + 1;
            first_of.entry(lost.link).or_insert((lost, 0)).1 += 1;
        }
        // A refusal ends all searches for its link. A link that ended once for each partition would
        // begin anew up to 256 times.
        for (link, (lost, partitions)) in first_of {
            self.refuse(link, lost.refusal(partitions));
        }
    }

    // ---- out ----

    /// Ships what was sealed, offers partitions, answers. Behind the pump of the log.
    pub fn give_out<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        store: &mut Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<B>>,
    ) {
        let tags = Arc::clone(&self.tags);
        self.replicas.prefetch.reads.begin_turn(time.now_us);
        self.confirmations.note_appended(time.now_us, store);
        let is_read = !self.table.senders.is_empty();
        sealed_frames::hand_over(&mut self.ring, is_read, store);
        let mut turn = StoreTurn {
            time,
            store,
            tags: &tags,
            hash_of,
            io,
        };
        self.ship(&mut turn);
        let Replicas {
            partitions,
            effects,
            ..
        } = &mut self.replicas;
        let senders = &mut self.table.senders;
        self.handovers
            .advance(&mut turn, partitions, senders, effects);
        let durable = turn.store.log().durable();
        for link in self.table.receivers.values_mut() {
            let out = &mut link.output;
            link.receiver.pump(time.now_us, durable, partitions, out);
        }
        let backlog = self.backlog();
        turn.store.cleaning_mut().hold_back(backlog);
        let mut senders = self.table.senders.values_mut();
        let wants_deletions = senders.any(|it| it.sender.wants_deletions());
        turn.store.cleaning_mut().keep_deletions(wants_deletions);
    }

    /// Lets each sender ship.
    fn ship<P: Blocks<Block = B>, H: Fn(&[u8]) -> u32>(&mut self, turn: &mut StoreTurn<'_, P, H>) {
        self.pace.begin_turn();
        let overview = self.replicas.partitions.summary();
        let openings = overview.openings_stamp(turn.store.log().durable());
        let offers_stamp = openings.map(|openings| (openings, self.holders.changes()));
        let links: Vec<LinkId> = self.table.senders.keys().copied().collect();
        for link in links {
            let Replicas {
                partitions,
                prefetch,
                effects,
            } = &mut self.replicas;
            let shipped = Shipped {
                partitions,
                holders: &self.holders,
                ring: &self.ring,
                offers_stamp,
            };
            let handovers = &self.handovers;
            let sends_clock = |sender: &Sender| !handovers.supersede_any_of(sender);
            let (reads, pace) = (&mut prefetch.reads, &mut self.pace);
            let sender = self.table.senders.get_mut(&link).expect("just seen");
            let result = sender.ship(turn, shipped, reads, pace, sends_clock, effects);
            if let Err(refusal) = result {
                self.refuse(link, refusal);
            }
        }
    }

    /// What cleaning is to leave to members.
    fn backlog(&mut self) -> Option<Backlog> {
        if_planted!(Bug::BacklogForgotten, return None);
        let overview = self.replicas.partitions.summary();
        Some(Backlog {
            behind: self.holders.backlog_behind(overview)?,
            // What is read is not released meanwhile.
            bytes_max: match self.diverged.is_idle() {
                true => self.config.backlog_bytes_max,
                false => u64::MAX,
            },
        })
    }

    // ---- what links tell of themselves ----

    /// What was done.
    #[must_use]
    pub fn counters(&self) -> LinkCounters {
        self.replicas.effects.counters()
    }

    /// How long it took until members confirmed to have received, and to have on their disks, what
    /// was shipped to them live, in microseconds from the turn in which it was appended.
    #[must_use]
    pub fn delays(&self) -> (&Histogram, &Histogram) {
        self.confirmations.delays()
    }

    /// What links take of the memory.
    #[must_use]
    pub fn memory(&self) -> LinkMemory {
        let partitions = self.replicas.partitions.values();
        let received = partitions.map(Partition::kept_bytes).sum::<usize>();
        LinkMemory {
            ring_bytes: self.ring.bytes() as u64,
            received_bytes: received as u64,
            buffer_bytes: self.table.buffer_bytes() as u64,
        }
    }

    /// By how many milliseconds the time of the store of a node that ships to this one is ahead of
    /// the clock here.
    #[must_use]
    pub fn clock_ahead_ms(&self, node: u8) -> Option<i64> {
        self.table.clock_ahead_ms(node)
    }

    /// What went over the links by which a node is shipped to, or by which it ships.
    #[must_use]
    pub fn traffic(&self, node: u8, is_outgoing: bool) -> Traffic {
        self.table.traffic(node, is_outgoing)
    }

    /// How far the link is by which a node ships a partition to this one.
    #[must_use]
    pub fn state_from(&self, node: u8, partition: PartitionId) -> LinkState {
        self.partition(partition)
            .map_or(LinkState::Absent, |state| {
                self.table.state_from(node, state)
            })
    }

    /// How far the link is by which a partition is shipped to a node.
    #[must_use]
    pub fn state_to(&self, node: u8, partition: PartitionId) -> LinkState {
        let slot = self.tags.slot(partition);
        self.table.state_to(node, partition, slot)
    }

    /// What a partition cannot go on without, although it was read again and again.
    #[must_use]
    pub fn hangs_on(&self, partition: PartitionId) -> Option<Unread> {
        let prefetch = &self.replicas.prefetch;
        prefetch.hangs_on(partition).or_else(|| {
            let (file, offset) = self.diverged.hangs_on(partition)?;
            prefetch.reads.unread(file, offset)
        })
    }

    /// The records of this node that a member has not confirmed. `None` if the member has not sent
    /// its state since this start.
    #[must_use]
    pub fn lag(&self, now_us: u64, node: u8, confirmed: Confirmed) -> Option<Lag> {
        let Lacking { records, behind } = self.lacking(node, confirmed)?;
        Some(self.confirmations.lag(now_us, records, behind))
    }

    fn lacking(&self, node: u8, confirmed: Confirmed) -> Option<Lacking> {
        let senders = self.table.senders_to(node).map(|link| &link.sender);
        let partitions = &self.replicas.partitions;
        self.holders.lacking(node, confirmed, partitions, senders)
    }

    /// Forgets when records were appended that every member has.
    pub fn forget_times(&mut self) {
        let mut until = self.ring.last();
        for node in self.holders.nodes() {
            match self.lacking(node, Confirmed::Durable) {
                Some(Lacking { records: 0, .. }) => {}
                Some(Lacking { behind, .. }) => until = until.min(behind.unwrap_or_default()),
                None => return,
            }
        }
        self.confirmations.forget(until);
    }
}

/// Why a node that the cluster's file does not name has no link.
#[must_use]
pub fn not_named(node: u8) -> LinkRefusal {
    LinkRefusal {
        code: RefusalCode::NotNamed,
        text: format!("the cluster's file does not name node {node}"),
    }
}
