//! The links of one shard over its store: bytes of other nodes in, records into the log and the index,
//! records of the log out.
//!
//! It has the partitions of the shard, the ring, and for each link that has proven itself a [`Sender`] or a
//! [`Receiver`]; it does for them what touches the log: notes, records that are applied or written anew,
//! reading what the ring does not hold any more. In each turn [`LinkSet::take_in`] comes before the log is
//! pumped and [`LinkSet::give_out`] behind it, so that what was sealed is shipped while it goes to the
//! disk.
//!
//! It does not know: sockets, secrets, where lostfound is, who is to be primary.

mod apply;
mod diverged;
mod prefetch;
mod standing;
mod sweep;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use penstock_net::link::frame::{read_link_frame, write_link_frame};
use penstock_net::link::{
    LinkHeader, LinkMessage, LinkReceived, Membership, Position, RefusalCode, Refused,
};
use penstock_storage::cleaning::Backlog;
use penstock_storage::histogram::Histogram;
use penstock_storage::io::{Block, Blocks, Io};
use penstock_storage::log::{Purpose, Room};
use penstock_storage::place::FileId;
use penstock_storage::place::{Lsn, Place};
use penstock_storage::record::{PartKind, PartSpec, PartView, RecordSpec};
use penstock_storage::store::Store;
use penstock_storage::version::Version;

use crate::topology::Topology;

use self::diverged::{Rewrite, Tail};
use self::prefetch::{Prefetch, Prefetcher, Waiter};
use self::sweep::{Sweep, note_scan};
use super::clock_offset::ClockOffset;
use super::cursor::{CursorStep, LogCursor};
use super::epoch::{Epoch, EpochHistory};
use super::handshake::{Introduction, Peer};
use super::notes::{Notes, Tags};
use super::pace::Pace;
use super::partition::{CannotBegin, Facts, Partition, Role};
use super::partition_map::PartitionMap;
use super::planted::{Bug, is_planted};
use super::reads::LinkReads;
use super::receiver::{KeptLimits, LinkRefusal, Partitions, Receiver};
use super::record::records;
use super::ring::Ring;
use super::sender::{Confirmed, Counting, LogReach, Sender};
use super::standing::Traffic;
use super::timeline::Timeline;
use super::{LinkId, PartitionId, Work};

/// Frames of the log that one cursor goes through in one turn.
const CURSOR_FRAMES: usize = 16;

/// The times of one turn.
#[derive(Clone, Copy, Debug)]
pub struct LinkTime {
    /// On the monotonic clock, in microseconds.
    pub now_us: u64,
    /// Of the store, in unix milliseconds.
    pub time_ms: u64,
}

/// How a shard takes part.
#[derive(Clone, Debug)]
pub struct LinkSetConfig {
    /// What it tells of itself.
    pub me: Introduction,
    /// Bytes of records that are kept in memory for links, at most.
    pub ring_bytes_max: usize,
    /// Bytes of segments that cleaning leaves to members which lack them, at most.
    pub backlog_bytes_max: u64,
    /// What is read of the log in a second for members that catch up, at most; 0 is without a bound.
    pub catch_up_bytes_per_s: u64,
    /// Bytes of records beyond which a link is not read from while some of them can be applied, and
    /// twice of those that are under way by one: usually [`super::PENDING_BYTES_MAX`].
    pub pending_bytes_max: usize,
}

/// What links have done since they were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Records of others that were applied.
    pub applied: u64,
    /// Turns in which a record that was received found the log full.
    pub found_full: u64,
    /// Keys that were written anew for members which had diverged.
    pub rewritten: u64,
    /// Keys that were here and did not come by a scan.
    pub swept: u64,
    /// Diverged tails of which cleaning had released records, so that all of the partition was asked for.
    pub tails_lost: u64,
    /// Records that have diverged and were handed out to be kept.
    pub kept: u64,
    /// Bytes of those.
    pub kept_bytes: u64,
    /// Links that this side has ended, by [`RefusalCode::ALL`].
    pub refused: [u64; RefusalCode::ALL.len()],
    /// Links that the other side has ended.
    pub refused_there: [u64; RefusalCode::ALL.len()],
}

/// Memory that links take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkMemory {
    /// Of records that were sealed last.
    pub ring_bytes: u64,
    /// Of records that were received and are not applied.
    pub received_bytes: u64,
    /// Of bytes that are to be sent, or were received and not looked at.
    pub buffer_bytes: u64,
}

/// What the owner is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum LinkAction {
    /// Send this, then end the link; it is closed here.
    End {
        /// The link.
        link: LinkId,
        /// Why, for people; the output tells it to the peer.
        refusal: LinkRefusal,
        /// What is left to be sent.
        output: Vec<u8>,
    },
    /// The peer has ended the link; it is closed here.
    Ended {
        /// The link.
        link: LinkId,
        /// Why.
        refusal: LinkRefusal,
    },
    /// This node is not primary of the partition any more.
    Deposed {
        /// The partition.
        partition: PartitionId,
        /// By which epoch.
        epoch: Epoch,
    },
    /// Keep a record that has diverged in lostfound.
    Keep {
        /// The partition.
        partition: PartitionId,
        /// All of its parts that there are.
        record: Vec<u8>,
    },
    /// Make durable what was to be kept of a partition, then call [`LinkSet::tail_kept`].
    Sync {
        /// The partition.
        partition: PartitionId,
        /// The link by which its keys are told; none if this node writes them anew itself.
        link: Option<LinkId>,
    },
    /// The primary hands the partition over: [`LinkSet::begin`] in the generation of the epoch.
    Begin {
        /// The partition.
        partition: PartitionId,
        /// The epoch.
        epoch: Epoch,
    },
    /// A partition is handed over here, and not all of it is here any more: nobody writes it until people choose.
    Lacks {
        /// The partition.
        partition: PartitionId,
        /// The node that hands it over, and has all of it.
        node: u8,
    },
    /// What was received finds no room in the log, or does again after that was told.
    Room {
        /// Something of it was applied.
        is_there: bool,
    },
    /// Something of the log cannot be read.
    Damaged {
        /// The file.
        file: FileId,
        /// Where.
        offset: u64,
    },
}

/// Why links cannot be made over a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableNote {
    /// The partition whose local record or record of epochs is none of this version.
    pub partition: PartitionId,
}

/// A link on which this node ships.
#[derive(Debug)]
struct Outgoing<B> {
    peer: Peer,
    sender: Sender,
    cursor: LogCursor<B>,
    input: Vec<u8>,
    output: Vec<u8>,
}

/// A link by which this node is shipped to.
#[derive(Debug)]
struct Incoming {
    node: u8,
    receiver: Receiver,
    clock_offset: ClockOffset,
    input: Vec<u8>,
    output: Vec<u8>,
}

/// What a member had when the last link to it ended.
#[derive(Debug, Default)]
struct Left {
    /// The last record of each partition that was shipped.
    shipped: BTreeMap<PartitionId, u64>,
    received: LeftOpen,
    durable: LeftOpen,
}

/// What of it the member had not confirmed.
#[derive(Clone, Copy, Debug, Default)]
struct LeftOpen {
    records: u64,
    /// It and all that came later stand behind this record of the log.
    behind: Option<Lsn>,
}

impl Left {
    fn open(&self, confirmed: Confirmed) -> LeftOpen {
        match confirmed {
            Confirmed::Received => self.received,
            Confirmed::Durable => self.durable,
        }
    }
}

/// A partition that is handed over.
#[derive(Debug)]
struct Handover {
    node: u8,
    epoch: Epoch,
    /// Replies at level `replica` wait that are answered before.
    is_waited_for: bool,
    step: HandoverStep,
}

#[derive(Debug)]
enum HandoverStep {
    /// The node lacks some of it.
    Drains,
    /// Since the last turn it has all of it, and who waited for that has been answered.
    HasAll,
    /// Its epoch is promised here, with this record. Behind that the node is told, by each link to it, until it
    /// writes or somebody else is to: a link may end before it has brought the message, and nobody else can begin.
    Promised(Lsn),
}

/// The links of one shard.
#[derive(Debug)]
pub struct LinkSet<B> {
    config: LinkSetConfig,
    tags: Tags,
    partitions: Partitions,
    /// Who gets each partition while this node writes it.
    members: PartitionMap<Vec<(u8, Membership)>>,
    ring: Ring,
    outgoing: BTreeMap<LinkId, Outgoing<B>>,
    incoming: BTreeMap<LinkId, Incoming>,
    warming: BTreeMap<Waiter, Prefetch<B>>,
    tails: BTreeMap<PartitionId, Tail>,
    /// Reads the log for all of them: one block of memory, and each frame once.
    tail_cursor: LogCursor<B>,
    rewrites: BTreeMap<(PartitionId, Option<LinkId>), Rewrite>,
    /// Partitions that another node is to write.
    handovers: BTreeMap<PartitionId, Handover>,
    /// Partitions that another node is to write, and perhaps does.
    superseded: BTreeSet<PartitionId>,
    /// With which partition applying goes on, so that none waits while others are filled again and again.
    apply_from: PartitionId,
    /// A record found the log full, and none was applied since.
    is_full: bool,
    /// Of partitions that are scanned although something of them is here.
    sweeps: BTreeMap<PartitionId, Sweep>,
    /// Up to which record of this log each node is known to have all of a partition on its disk.
    durable_at: BTreeMap<u8, PartitionMap<Lsn>>,
    reads: LinkReads,
    actions: VecDeque<LinkAction>,
    counters: LinkCounters,
    timeline: Timeline,
    /// How long it took, in microseconds, until members told to have received, and to have on their disks, each record that was
    /// shipped live.
    received_us: Histogram,
    durable_us: Histogram,
    /// Of nodes whose link has ended.
    left: BTreeMap<u8, Left>,
    /// By node, of links on which this node ships and of others, without what those that are there count.
    traffic: BTreeMap<(u8, bool), Traffic>,
    /// How fast the log is read for members that catch up, and when more of it may be, if one waits for that.
    pace: Pace,
    paced_until_us: Option<u64>,
    /// Another turn may do more.
    is_due: bool,
}

struct Reach<'a, P: Blocks>(&'a Store<P>);

impl<P: Blocks> LogReach for Reach<'_, P> {
    fn reach(&self, partition: PartitionId, from: Position) -> Option<Lsn> {
        let forgotten = self.0.forgotten(usize::from(partition));
        let is_there = forgotten <= from.sequence || is_planted(Bug::ForgottenIgnored);
        let further = if is_planted(Bug::ReachTooFar) { 40 } else { 0 };
        let log = self.0.log();
        let reached = &log.history().reached;
        is_there.then(|| {
            let behind = reached.none_above(usize::from(partition), from.sequence + further);
            behind.min(log.durable())
        })
    }

    fn oldest(&self) -> Lsn {
        Lsn(0)
    }

    fn may_scan(&self) -> bool {
        !self.0.is_dropping_deletions()
    }
}

fn position(version: Version) -> Position {
    Position {
        epoch: version.epoch,
        sequence: version.sequence,
    }
}

fn parts_of(mut bytes: &[u8]) -> Vec<PartView<'_>> {
    let mut parts = Vec::new();
    while let Ok(part) = PartView::read(bytes) {
        bytes = &bytes[part.bytes().len()..];
        parts.push(part);
    }
    parts
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
        let topology = Topology::new(config.me.shards);
        let tags = Tags::default();
        let mut partitions = Partitions::new();
        for number in 0..256 {
            let slot = tags.slot(number);
            if topology.owner(slot) != config.me.shard {
                continue;
            }
            let unreadable = UnreadableNote { partition: number };
            let facts = match store.local(slot) {
                Some(value) => Facts::read(value).ok_or(unreadable)?,
                None => Facts::default(),
            };
            let history = match store.epochs_found(slot) {
                Some(value) => EpochHistory::read(value).ok_or(unreadable)?,
                None => EpochHistory::default(),
            };
            let highest = position(store.highest(usize::from(number)));
            let partition = Partition::recovered(number, facts, history, highest);
            partitions.insert(number, partition);
        }
        let positions = partitions
            .iter()
            .map(|(&number, partition)| (number, partition.applied()));
        let ring = Ring::new(config.ring_bytes_max, store.log().appended(), positions);
        store.log_mut().tap();
        // Before anything is cleaned: what has diverged may be anywhere.
        store.hold_back(Some(Backlog {
            behind: Lsn(0),
            bytes_max: config.backlog_bytes_max,
        }));
        let pace = Pace::new(config.catch_up_bytes_per_s);
        Ok(LinkSet {
            config,
            tags,
            partitions,
            members: PartitionMap::new(),
            ring,
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            warming: BTreeMap::new(),
            tails: BTreeMap::new(),
            tail_cursor: LogCursor::default(),
            rewrites: BTreeMap::new(),
            handovers: BTreeMap::new(),
            superseded: BTreeSet::new(),
            apply_from: 0,
            is_full: false,
            sweeps: BTreeMap::new(),
            durable_at: BTreeMap::new(),
            reads: LinkReads::default(),
            actions: VecDeque::new(),
            counters: LinkCounters::default(),
            timeline: Timeline::new(store.log().appended()),
            received_us: Histogram::default(),
            durable_us: Histogram::default(),
            left: BTreeMap::new(),
            traffic: BTreeMap::new(),
            pace,
            paced_until_us: None,
            is_due: false,
        })
    }

    /// A partition of the shard.
    #[must_use]
    pub fn partition(&self, number: PartitionId) -> Option<&Partition> {
        self.partitions.get(&number)
    }

    /// How old what is here of a partition is, at most, in microseconds, if that is known; `None` if nobody may read it
    /// here, because it does not follow.
    #[must_use]
    pub fn age_us(&self, now_us: u64, number: PartitionId) -> Option<Option<u64>> {
        let state = self.partitions.get(&number)?;
        let Role::Member(member) = state.role() else {
            return None;
        };
        let incoming = self.incoming.get(&member.link)?;
        if !state.is_readable() {
            return None;
        }
        let unapplied = state
            .unapplied()
            .filter(|_| !is_planted(Bug::EchoBeforeApplied));
        let known_us = incoming.receiver.freshness().known_us(unapplied);
        Some(known_us.map(|known_us| now_us.saturating_sub(known_us)))
    }

    /// Somebody reads a partition that is followed, and wants nothing that is older than this: the primary is asked
    /// more often.
    pub fn want(&mut self, now_us: u64, number: PartitionId, staleness_us_max: u64) {
        let role = self.partitions.get(&number).map(Partition::role);
        if let Some(Role::Member(member)) = role
            && let Some(incoming) = self.incoming.get_mut(&member.link)
        {
            incoming.receiver.want(now_us, staleness_us_max);
        }
    }

    /// Which other nodes hold a partition from now on, by their numbers.
    pub fn place(&mut self, partition: PartitionId, members: Vec<(u8, Membership)>) {
        self.members.insert(partition, members);
    }

    /// This node begins to write a partition; its first record follows in a turn.
    ///
    /// # Errors
    /// [`CannotBegin`]; nothing changed. `None` if the log has no room for it now, or the partition is
    /// not the shard's.
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
        let state = self.partitions.get_mut(&partition)?;
        let begun = state.begin(generation, node, is_forced, &mut notes);
        if begun.is_ok() {
            // By force: there is nobody to ask for the keys of a tail any more. They are looked for once more.
            self.tails.remove(&partition);
        }
        Some(begun)
    }

    /// Hands a partition over to a member that is to write it in this epoch: as soon as the member has all that was
    /// written here. Nothing more is written here from now on: the owner sees to that.
    pub fn hand_over(&mut self, partition: PartitionId, node: u8, epoch: Epoch) {
        let state = self.partitions.get(&partition).expect("the shard's");
        // Before this start, or before a plan that was read again.
        let is_promised = state.facts().promised == epoch
            && matches!(state.role(), Role::Idle)
            && state.was_last(self.config.me.node)
            && state.is_whole()
            && !is_planted(Bug::HandoverForgotten);
        let handover = Handover {
            node,
            epoch,
            is_waited_for: false,
            step: match is_promised {
                true => HandoverStep::Promised(Lsn(0)),
                false => HandoverStep::Drains,
            },
        };
        // One that was promised is told, whatever is planned by now: nobody else may begin that epoch.
        self.handovers.entry(partition).or_insert(handover);
    }

    /// Whether another node is to write this partition that this one may be writing still. What it does so nobody hears
    /// here before it reaches a node that both ship to, so nobody is told that what it has is new.
    pub fn supersede(&mut self, partition: PartitionId, is_superseded: bool) {
        match is_superseded {
            true => self.superseded.insert(partition),
            false => self.superseded.remove(&partition),
        };
    }

    /// In which partitions replies at level `replica` wait: these are not handed over before they are answered.
    pub fn answer_first(&mut self, is_waited_for: impl Fn(PartitionId) -> bool) {
        for (&number, handover) in &mut self.handovers {
            handover.is_waited_for = is_waited_for(number);
        }
    }

    /// The partition is not handed over any more: not if that has not been promised, and if `is_forced` by people who
    /// have chosen another node not even then.
    pub fn keep(&mut self, partition: PartitionId, is_forced: bool) {
        let is_promised = |it: &Handover| matches!(it.step, HandoverStep::Promised(_));
        self.handovers
            .retain(|&of, it| of != partition || is_promised(it) && !is_forced);
    }

    /// Whether a client's write of a partition may be executed now.
    #[must_use]
    pub fn may_write<P: Blocks<Block = B>>(
        &self,
        partition: PartitionId,
        store: &Store<P>,
    ) -> bool {
        let durable = store.log().durable();
        self.partitions
            .get(&partition)
            .is_some_and(|state| state.may_write(durable))
    }

    /// The partitions of the shard, ascending, and whether a client's write of them may be executed now.
    pub fn writable<P: Blocks<Block = B>>(
        &self,
        store: &Store<P>,
    ) -> impl Iterator<Item = (PartitionId, bool)> + '_ {
        let durable = store.log().durable();
        let partitions = self.partitions.iter();
        partitions.map(move |(&number, state)| (number, state.may_write(durable)))
    }

    /// The partitions of the shard, ascending.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.partitions.keys().copied()
    }

    /// Takes note of all that clients have written since the last turn: an owner that does so at the begin of
    /// each need not tell each write.
    pub fn follow_commits<P: Blocks<Block = B>>(&mut self, store: &Store<P>) {
        let sequences = store.sequences();
        for (&number, state) in &mut self.partitions {
            state.written_up_to(sequences[usize::from(number)]);
        }
    }

    /// A client's write was committed with this version.
    ///
    /// # Panics
    /// If it is not the next one of the partition.
    pub fn committed(&mut self, partition: PartitionId, version: Version) {
        let state = self.partitions.get_mut(&partition).expect("it may write");
        let next = state.next_position();
        assert_eq!(next, position(version), "versions follow each other");
    }

    /// How far each member of the sync set of a partition has it; `None` for one that does not count.
    pub fn received(&self, partition: PartitionId) -> impl Iterator<Item = Option<Lsn>> + '_ {
        let members = self.members.get(&partition).map_or(&[][..], Vec::as_slice);
        let sync = members
            .iter()
            .filter(|(_, membership)| *membership == Membership::Sync);
        sync.map(move |&(node, _)| {
            let of_node = |link: &&Outgoing<B>| link.peer.node == node;
            let links = self.outgoing.values().filter(of_node);
            links
                .filter_map(|link| match link.sender.counting(partition) {
                    Counting::UpTo(lsn) => Some(lsn),
                    Counting::Not => None,
                })
                .max()
        })
    }

    /// A link to a peer that has proven itself.
    pub fn connected(&mut self, link: LinkId, peer: Peer) {
        self.traffic.entry((peer.node, true)).or_default().links += 1;
        // It tells anew what it has.
        if let Some(left) = self.left.get_mut(&peer.node) {
            (left.received, left.durable) = Default::default();
        }
        let outgoing = Outgoing {
            peer,
            sender: Sender::new(peer.node, (2, 1), self.config.pending_bytes_max / 2),
            cursor: LogCursor::default(),
            input: Vec::new(),
            output: Vec::new(),
        };
        self.outgoing.insert(link, outgoing);
    }

    fn kept_limits(&self) -> KeptLimits {
        let config = &self.config;
        let frame_bytes_max = usize::try_from(config.me.frame_bytes_max).unwrap_or(usize::MAX);
        KeptLimits {
            bytes_max: config.pending_bytes_max,
            frame_bytes_max,
        }
    }

    /// A link from a peer that has proven itself.
    pub fn accepted(&mut self, link: LinkId, peer: Peer) {
        self.traffic.entry((peer.node, false)).or_default().links += 1;
        let incoming = Incoming {
            node: peer.node,
            receiver: Receiver::new(link, peer.node, (1, 2), self.kept_limits()),
            clock_offset: ClockOffset::default(),
            input: Vec::new(),
            output: Vec::new(),
        };
        self.incoming.insert(link, incoming);
    }

    /// Ends the links with nodes that are no part of the cluster any more.
    pub fn keep_nodes(&mut self, is_named: impl Fn(u8) -> bool) {
        let outgoing = self.outgoing.iter().map(|(&link, it)| (link, it.peer.node));
        let incoming = self.incoming.iter().map(|(&link, it)| (link, it.node));
        let strange = outgoing
            .chain(incoming)
            .filter(|&(_, node)| !is_named(node));
        for (link, node) in strange.collect::<Vec<_>>() {
            self.refuse(link, not_named(node));
        }
    }

    /// The link is gone. What was received by it stays.
    pub fn closed(&mut self, link: LinkId) {
        if let Some(outgoing) = self.outgoing.remove(&link) {
            self.leave(&outgoing);
        }
        if let Some(incoming) = self.incoming.remove(&link) {
            let traffic = self.traffic.entry((incoming.node, false)).or_default();
            traffic.sent_frames += incoming.receiver.sent();
            traffic.received_frames += incoming.receiver.next_number() - 1;
            incoming.receiver.close(&mut self.partitions);
        }
        self.tails.retain(|_, tail| tail.link != Some(link));
        self.rewrites.retain(|&(_, of), _| of != Some(link));
    }

    /// Remembers what the member at the other end had.
    fn leave(&mut self, outgoing: &Outgoing<B>) {
        let (node, sender) = (outgoing.peer.node, &outgoing.sender);
        let traffic = self.traffic.entry((node, true)).or_default();
        traffic.sent_frames += sender.sent();
        traffic.received_frames += sender.next_number() - 1;
        let left = self.left.entry(node).or_default();
        let mut next = None;
        for partition in sender.partitions() {
            if let Some((shipped, at)) = sender.shipped(partition) {
                left.shipped.insert(partition, shipped);
                next = Some(next.map_or(at, |before: Lsn| before.min(at)));
            }
        }
        // Without a position it has nothing to tell but what was known before.
        let Some(next) = next else { return };
        for (open, confirmed) in [
            (&mut left.received, Confirmed::Received),
            (&mut left.durable, Confirmed::Durable),
        ] {
            let (records, behind) = sender.unconfirmed(confirmed);
            let behind = behind.map_or(next, |behind| behind.min(next));
            open.records += records;
            open.behind = Some(open.behind.map_or(behind, |before| before.min(behind)));
        }
    }

    /// Whether more bytes of a link are to be read from its socket now.
    #[must_use]
    pub fn may_read(&self, link: LinkId) -> bool {
        let frame_bytes_max = self.config.me.frame_bytes_max as usize;
        let input = match (self.outgoing.get(&link), self.incoming.get(&link)) {
            (Some(outgoing), _) => outgoing.input.len(),
            (None, Some(incoming)) => incoming.input.len(),
            (None, None) => return false,
        };
        input < frame_bytes_max
    }

    /// Bytes have come by a link. They are looked at in the next turn.
    pub fn came(&mut self, link: LinkId, bytes: &[u8]) {
        let key = if let Some(outgoing) = self.outgoing.get_mut(&link) {
            outgoing.input.extend_from_slice(bytes);
            (outgoing.peer.node, true)
        } else if let Some(incoming) = self.incoming.get_mut(&link) {
            incoming.input.extend_from_slice(bytes);
            (incoming.node, false)
        } else {
            return;
        };
        self.traffic.entry(key).or_default().received_bytes += bytes.len() as u64;
    }

    /// So many bytes of a link are on their way.
    pub fn went(&mut self, link: LinkId, bytes: usize) {
        let key = match (self.outgoing.get(&link), self.incoming.get(&link)) {
            (Some(outgoing), _) => (outgoing.peer.node, true),
            (None, Some(incoming)) => (incoming.node, false),
            (None, None) => return,
        };
        self.traffic.entry(key).or_default().sent_bytes += bytes as u64;
    }

    /// What is to be sent by a link; whatever is taken from its front has gone out.
    pub fn output(&mut self, link: LinkId) -> Option<&mut Vec<u8>> {
        match self.outgoing.get_mut(&link) {
            Some(outgoing) => Some(&mut outgoing.output),
            None => Some(&mut self.incoming.get_mut(&link)?.output),
        }
    }

    /// Links with something to be sent.
    pub fn sendable(&self) -> impl Iterator<Item = LinkId> + '_ {
        let outgoing = self.outgoing.iter().map(|(&link, it)| (link, &it.output));
        let incoming = self.incoming.iter().map(|(&link, it)| (link, &it.output));
        let all = outgoing.chain(incoming);
        all.filter(|(_, output)| !output.is_empty())
            .map(|(link, _)| link)
    }

    /// Whether something was done since this was last asked, so that another turn may do more.
    pub fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.is_due)
    }

    /// When another turn is due, if nothing happens before: to ship what waits for its pace, or to ask a primary how
    /// old what is here is.
    #[must_use]
    pub fn deadline_us(&self, now_us: u64) -> Option<u64> {
        let links = self.incoming.values();
        let asks = links.filter_map(|it| it.receiver.due_us(now_us));
        asks.chain(self.paced_until_us).min()
    }

    /// What the owner is to do next.
    pub fn take_action(&mut self) -> Option<LinkAction> {
        self.actions.pop_front()
    }

    /// Whether a file is read for a link, so that it must stay.
    #[must_use]
    pub fn is_reading(&self, file: FileId) -> bool {
        self.reads.is_reading(file)
    }

    /// The shard stops, and nothing is shipped or applied any more: gives back the memory that was taken to read the log,
    /// for requests that still wait for some.
    pub fn rest(&mut self) {
        for outgoing in self.outgoing.values_mut() {
            outgoing.cursor = LogCursor::default();
        }
        self.tail_cursor = LogCursor::default();
        self.warming.clear();
    }

    // ---- in ----

    /// What has come is taken in: frames, records that may be applied, keys to be written anew. Before
    /// the log is pumped.
    pub fn take_in<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        store: &mut Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<B>>,
    ) {
        let links: Vec<LinkId> = self.incoming.keys().copied().collect();
        for link in links {
            self.take_frames_in(time, link, store);
        }
        let links: Vec<LinkId> = self.outgoing.keys().copied().collect();
        for link in links {
            self.take_frames_back(time, link, store);
        }
        self.apply(time, store, hash_of, io);
        self.begin_first(time, store, hash_of, io);
        self.rewrite(time, store, hash_of, io);
        self.judge_tails(time, store);
        self.read_tails(store, io);
    }

    fn take_frames_in<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        link: LinkId,
        store: &mut Store<P>,
    ) {
        let mut incoming = self.incoming.remove(&link).expect("the caller saw it");
        let mut start = 0;
        let mut work = VecDeque::new();
        let mut is_over = false;
        let mut notes = Notes {
            store,
            tags: &self.tags,
            now_us: time.now_us,
        };
        let ended = loop {
            let is_full = incoming.receiver.is_full(&self.partitions);
            if is_full || !notes.has_room() {
                break None;
            }
            let frame = match read_link_frame(
                &incoming.input[start..],
                incoming.receiver.next_number(),
                self.config.me.frame_bytes_max,
            ) {
                Ok(LinkReceived::Frame(frame)) => frame,
                Ok(LinkReceived::Incomplete { .. }) => break None,
                Err(fault) => break Some(fault_refusal(&fault)),
            };
            if let LinkMessage::Refused(refused) = &frame.message {
                self.counters.refused_there[refused.code as usize - 1] += 1;
                self.actions.push_back(ended(link, refused));
                is_over = true;
                break None;
            }
            if let LinkMessage::Handover(handover) = &frame.message
                && Epoch(handover.epoch).node() != self.config.me.node
            {
                let number = handover.partition;
                let epoch = Epoch(handover.epoch);
                let text = format!("partition {number}: epoch {epoch} is not of this node");
                let code = RefusalCode::Order;
                break Some(LinkRefusal { code, text });
            }
            let taken =
                incoming
                    .receiver
                    .frame(&frame, &mut self.partitions, &mut notes, &mut work);
            if let Err(refusal) = taken {
                break Some(refusal);
            }
            self.is_due = true;
            let (here_ms, there_ms) = (notes.store.wall_ms(), frame.header.time);
            let offset = &mut incoming.clock_offset;
            offset.note(time.now_us, here_ms, there_ms);
            let partitions = &self.partitions;
            note_scan(
                &mut self.sweeps,
                &frame.message,
                |number| {
                    let partition = partitions.get(&number);
                    partition.is_some_and(|it| it.is_opened_by(link))
                        || is_planted(Bug::SweepOfOthers)
                },
                |number| notes.store.highest(usize::from(number)).sequence > 0,
            );
            start += frame.bytes;
        };
        incoming.input.drain(..start);
        self.incoming.insert(link, incoming);
        self.work(time, link, work, store);
        if is_over {
            self.closed(link);
        }
        if let Some(refusal) = ended {
            self.refuse(link, refusal);
        }
    }

    fn take_frames_back<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        link: LinkId,
        store: &mut Store<P>,
    ) {
        let mut outgoing = self.outgoing.remove(&link).expect("the caller saw it");
        let mut start = 0;
        let mut work = VecDeque::new();
        let mut is_over = false;
        let ended = loop {
            // Being deposed is noted.
            let mut notes = Notes {
                store,
                tags: &self.tags,
                now_us: time.now_us,
            };
            if !notes.has_room() || !work.is_empty() {
                break None;
            }
            let frame = match read_link_frame(
                &outgoing.input[start..],
                outgoing.sender.next_number(),
                self.config.me.frame_bytes_max,
            ) {
                Ok(LinkReceived::Frame(frame)) => frame,
                Ok(LinkReceived::Incomplete { .. }) => break None,
                Err(fault) => break Some(fault_refusal(&fault)),
            };
            if let LinkMessage::Refused(refused) = &frame.message {
                self.counters.refused_there[refused.code as usize - 1] += 1;
                self.actions.push_back(ended(link, refused));
                is_over = true;
                break None;
            }
            let appended = store.log().appended();
            let taken =
                outgoing
                    .sender
                    .frame(&frame, &self.partitions, &Reach(store), appended, &mut work);
            if let Err(refusal) = taken {
                break Some(refusal);
            }
            for it in outgoing.sender.confirmations() {
                let before = Lsn(it.first.0.saturating_sub(1));
                let Some(behind) = self.timeline.behind(before) else {
                    continue;
                };
                let delays = match it.confirmed {
                    Confirmed::Received => &mut self.received_us,
                    Confirmed::Durable => &mut self.durable_us,
                };
                let us = time.now_us.saturating_sub(behind.since_us);
                delays.add(us, it.records.into());
            }
            self.is_due = true;
            // BEGIN goes when all of that is durable.
            store.log_mut().want_durable(appended);
            start += frame.bytes;
        };
        outgoing.input.drain(..start);
        let known = self.durable_at.entry(outgoing.peer.node).or_default();
        for (number, durable) in outgoing.sender.member_durable() {
            if known.get(&number).is_none_or(|&before| before < durable) {
                known.insert(number, durable);
            }
        }
        self.outgoing.insert(link, outgoing);
        self.work(time, link, work, store);
        if is_over {
            self.closed(link);
        }
        if let Some(refusal) = ended {
            self.refuse(link, refusal);
        }
    }

    /// Tells the peer why, and ends the link.
    fn refuse(&mut self, link: LinkId, refusal: LinkRefusal) {
        if let Some(outgoing) = self.outgoing.get_mut(&link) {
            outgoing.sender.abandon(&mut outgoing.output);
        }
        let mut output = Vec::new();
        if let Some(of_link) = self.output(link) {
            output = std::mem::take(of_link);
        }
        let number = self
            .outgoing
            .get(&link)
            .map(|it| it.sender.sent())
            .or_else(|| self.incoming.get(&link).map(|it| it.receiver.sent()));
        let Some(number) = number else { return };
        self.counters.refused[refusal.code as usize - 1] += 1;
        let header = LinkHeader {
            number: number + 1,
            ..LinkHeader::default()
        };
        let refused = LinkMessage::Refused(Refused {
            code: refusal.code,
            text: short(&refusal.text),
        });
        write_link_frame(&mut output, header, &refused);
        self.closed(link);
        self.actions.push_back(LinkAction::End {
            link,
            refusal,
            output,
        });
    }

    fn work<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        link: LinkId,
        mut work: VecDeque<Work>,
        store: &mut Store<P>,
    ) {
        while let Some(work) = work.pop_front() {
            match work {
                Work::Deposed { partition, epoch } => {
                    self.depose(time, partition, epoch, store);
                }
                Work::Save { partition, records } => {
                    records.iter().for_each(|record| self.count_kept(record));
                    let keep = |record| LinkAction::Keep { partition, record };
                    self.actions.extend(records.into_iter().map(keep));
                }
                Work::SaveTail {
                    partition,
                    link,
                    from,
                    history,
                } => {
                    let tail = Tail::new(Some(link), from, history, store);
                    self.tails.insert(partition, tail);
                }
                Work::Rewind { partition, keys } => {
                    self.begin_rewrite(partition, Some(link), keys.into());
                }
                Work::Begin { partition, epoch } => {
                    self.actions
                        .push_back(LinkAction::Begin { partition, epoch });
                }
                Work::Lacks { partition, node } => {
                    self.actions
                        .push_back(LinkAction::Lacks { partition, node });
                }
            }
        }
    }

    fn count_kept(&mut self, record: &[u8]) {
        self.counters.kept += 1;
        self.counters.kept_bytes += record.len() as u64;
    }

    fn depose<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        partition: PartitionId,
        epoch: Epoch,
        store: &mut Store<P>,
    ) {
        let mut notes = Notes {
            store,
            tags: &self.tags,
            now_us: time.now_us,
        };
        let state = self.partitions.get_mut(&partition).expect("it was offered");
        state.depose(epoch, &mut notes);
        self.rewrites.retain(|&(of, _), _| of != partition);
        self.tails
            .retain(|&of, tail| of != partition || tail.link.is_some());
        for outgoing in self.outgoing.values_mut() {
            let out = &mut outgoing.output;
            outgoing.sender.close(time.time_ms, partition, out);
        }
        self.actions
            .push_back(LinkAction::Deposed { partition, epoch });
    }

    /// Writes the first record of each epoch that has begun.
    fn begin_first<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        store: &mut Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<B>>,
    ) {
        let start_id = self.config.me.start.start_id;
        let begins = |state: &Partition| matches!(state.role(), Role::Primary { begun: None, .. });
        let begun = self.partitions.iter().filter(|(_, state)| begins(state));
        let numbers: Vec<PartitionId> = begun.map(|(&number, _)| number).collect();
        for number in numbers {
            let Some((at, history)) = self.partitions[&number].first_record(start_id) else {
                continue;
            };
            let (key, value) = (self.tags.epochs(number), history.encode());
            let slot = self.tags.slot(number);
            let warmer = Prefetcher {
                warming: &mut self.warming,
                reads: &mut self.reads,
                actions: &mut self.actions,
            };
            let keys = (slot, &[key.as_slice()][..]);
            if !warmer.warm(Waiter::Apply(number), keys, store, hash_of, io) {
                continue;
            }
            let part = PartSpec {
                kind: PartKind::Put,
                key: &key,
                value: &value,
                expiry_ms: None,
                layout: 0,
                is_crowded: false,
            };
            let record = RecordSpec {
                slot,
                epoch: at.epoch,
                sequence: at.sequence,
                time_ms: store.time_ms(),
                parts: &[part],
                extension: &[],
            };
            let mut bytes = vec![0; record.bytes()];
            record.encode_part(0, &mut bytes);
            let parts = parts_of(&bytes);
            let mut notes = Notes {
                store,
                tags: &self.tags,
                now_us: time.now_us,
            };
            if !notes.has_room() || store.room_for(Purpose::Keep, bytes.len()) != Room::Yes {
                continue;
            }
            let lsn = store.apply(time.now_us, &parts, true, hash_of);
            let lsn = lsn.expect("what must be dense is appended");
            store.lead(usize::from(number), parts[0].version());
            store.log_mut().want_durable(lsn);
            let mut notes = Notes {
                store,
                tags: &self.tags,
                now_us: time.now_us,
            };
            let state = self.partitions.get_mut(&number).expect("just seen");
            let before = state.history().clone();
            state.begun(start_id, lsn, &mut notes);
            if let Some(from) = state.own_tail() {
                let tail = Tail::new(None, from, before, store);
                self.tails.insert(number, tail);
            }
            self.sweeps.remove(&number);
            self.is_due = true;
        }
    }

    // ---- out ----

    /// Ships what was sealed, offers partitions, answers. Behind the pump of the log.
    pub fn give_out<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        store: &mut Store<P>,
        home_of: &impl Fn(&[u8]) -> (u16, u32),
        io: &mut Vec<Io<B>>,
    ) {
        let log = store.log();
        self.timeline
            .note(time.now_us, log.appended(), log.counters().record_bytes);
        while let Some(frame) = store.log_mut().take_sealed() {
            self.ring.push(frame.first, &frame.bytes);
        }
        self.paced_until_us = None;
        let links: Vec<LinkId> = self.outgoing.keys().copied().collect();
        for link in links {
            let mut outgoing = self.outgoing.remove(&link).expect("just seen");
            let shipped = self.ship(time, &mut outgoing, store, home_of, io);
            self.outgoing.insert(link, outgoing);
            if let Err(refusal) = shipped {
                self.refuse(link, refusal);
            }
        }
        self.hand_over_due(time, store);
        let durable = store.log().durable();
        for incoming in self.incoming.values_mut() {
            incoming
                .receiver
                .pump(time.now_us, durable, &self.partitions, &mut incoming.output);
        }
        store.hold_back(self.backlog());
        let mut sources = self.outgoing.values();
        store.keep_deletions(sources.any(|it| it.sender.wants_deletions()));
    }

    /// Brings forward what is handed over.
    fn hand_over_due<P: Blocks<Block = B>>(&mut self, time: LinkTime, store: &mut Store<P>) {
        for (number, mut handover) in std::mem::take(&mut self.handovers) {
            let state = self.partitions.get_mut(&number).expect("the shard's");
            handover.step = match handover.step {
                drains @ HandoverStep::Drains
                    if matches!(state.role(), Role::Primary { begun: None, .. }) =>
                {
                    drains
                }
                HandoverStep::Drains | HandoverStep::HasAll
                    if !matches!(state.role(), Role::Primary { begun: Some(_), .. }) =>
                {
                    // Somebody else writes it by now.
                    continue;
                }
                HandoverStep::Drains | HandoverStep::HasAll => {
                    let end = state.applied();
                    let has_all = |(_, link): &(&LinkId, &Outgoing<B>)| {
                        link.peer.node == handover.node && link.sender.has_all(number, end)
                    };
                    let mut notes = Notes {
                        store,
                        tags: &self.tags,
                        now_us: time.now_us,
                    };
                    match (self.outgoing.iter().any(|it| has_all(&it)), &handover.step) {
                        (false, _) => HandoverStep::Drains,
                        (true, HandoverStep::HasAll)
                            if !handover.is_waited_for && notes.has_room() =>
                        {
                            state.depose(handover.epoch, &mut notes);
                            self.actions.push_back(LinkAction::Deposed {
                                partition: number,
                                epoch: handover.epoch,
                            });
                            let lsn = store.log().appended();
                            store.log_mut().want_durable(lsn);
                            HandoverStep::Promised(lsn)
                        }
                        (true, before) => {
                            // Without room in the log the promise waits for a turn that brings some.
                            let is_news = matches!(before, HandoverStep::Drains);
                            self.is_due |= is_news && !handover.is_waited_for;
                            HandoverStep::HasAll
                        }
                    }
                }
                HandoverStep::Promised(_)
                    if state.facts().promised > handover.epoch
                        || matches!(state.role(), Role::Member(_)) =>
                {
                    // It writes, or somebody else is to.
                    continue;
                }
                HandoverStep::Promised(lsn) if lsn <= store.log().durable() => {
                    let slot = self.tags.slot(number);
                    for Outgoing {
                        peer,
                        sender,
                        output,
                        ..
                    } in self.outgoing.values_mut()
                    {
                        let is_there = Topology::new(peer.shards).owner(slot) == peer.shard;
                        if peer.node == handover.node && is_there {
                            let at = state.applied();
                            sender.hand_over(time.time_ms, number, handover.epoch, at, output);
                        }
                        sender.close(time.time_ms, number, output);
                    }
                    if is_planted(Bug::HandoverForgotten) {
                        continue;
                    }
                    HandoverStep::Promised(lsn)
                }
                promised @ HandoverStep::Promised(_) => promised,
            };
            self.handovers.insert(number, handover);
        }
    }

    /// What cleaning is to leave: behind what the slowest member is known to have of what is written here;
    /// all of it while this node does not know whether it has diverged.
    fn backlog(&self) -> Option<Backlog> {
        let known = |number: &PartitionId, node| {
            let of_node = self.durable_at.get(&node);
            let lsn = of_node.and_then(|known| known.get(number));
            lsn.copied().unwrap_or_default()
        };
        let lacked = self.members.iter().filter_map(|(number, members)| {
            let state = self.partitions.get(number)?;
            match state.role() {
                Role::Primary { .. } => members.iter().map(|&(node, _)| known(number, node)).min(),
                Role::Member(_) if state.is_readable() => None,
                Role::Member(_) | Role::Idle => Some(Lsn(0)),
            }
        });
        let lacked = lacked.filter(|_| !is_planted(Bug::BacklogForgotten));
        Some(Backlog {
            behind: lacked.min()?,
            // What is read is not released meanwhile.
            bytes_max: match self.tails.is_empty() {
                true => self.config.backlog_bytes_max,
                false => u64::MAX,
            },
        })
    }

    fn ship<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        outgoing: &mut Outgoing<B>,
        store: &mut Store<P>,
        home_of: &impl Fn(&[u8]) -> (u16, u32),
        io: &mut Vec<Io<B>>,
    ) -> Result<(), LinkRefusal> {
        let Outgoing {
            peer,
            sender,
            cursor,
            output,
            ..
        } = outgoing;
        // What is inherited stands in other logs, which the cursor does not read: it is rewritten first.
        if !store.is_inheriting() {
            let durable = store.log().durable();
            let theirs = Topology::new(peer.shards);
            for (&number, state) in &self.partitions {
                let Some(epoch) = state.may_open(durable) else {
                    continue;
                };
                if sender.opened(number) == Some(epoch) {
                    continue;
                }
                let is_there = theirs.owner(self.tags.slot(number)) == peer.shard;
                let members = self.members.get(&number).into_iter().flatten();
                let mut members = members.filter(|(node, _)| *node == peer.node && is_there);
                if let Some(&(_, membership)) = members.next() {
                    sender.open(time.time_ms, number, epoch, membership, output);
                }
            }
        }
        for _ in 0..CURSOR_FRAMES {
            let Some(behind) = sender.wants_log(&self.ring) else {
                // Another cursor may wait for just this memory.
                self.is_due |= cursor.rest();
                break;
            };
            if let Some(until_us) = self.pace.waits_until_us(time.now_us) {
                self.paced_until_us = Some(until_us);
                break;
            }
            store.settle(home_of);
            store.settle_copies();
            let step = cursor.next(store, behind, &mut self.reads, io);
            match step {
                CursorStep::Frame(frame) => {
                    self.pace.spend(time.now_us, frame.bytes.len());
                    let appended = store.log().appended();
                    let hash_of = |key: &[u8]| home_of(key).1;
                    let mut at = 0;
                    let mut lsn = frame.first;
                    for record in records(frame.bytes).map_while(Result::ok) {
                        let bytes = record.bytes.len();
                        if lsn > behind && !record.is_local {
                            let mut offset = frame.offset + at as u64;
                            let counts = parts_of(record.bytes).iter().any(|part| {
                                let place = Place::new(frame.file, offset, part.bytes().len());
                                offset += part.bytes().len() as u64;
                                store.counts(part, place, &hash_of)
                                    && !(part.is_copy() && is_planted(Bug::ScanSkipsCopies))
                            });
                            sender.feed(
                                time.time_ms,
                                lsn,
                                &record,
                                (counts, appended),
                                &self.partitions,
                                output,
                            )?;
                        }
                        at += bytes;
                        lsn.0 += 1;
                    }
                    sender.fed(time.time_ms, frame.last, store.log().appended(), output);
                    self.is_due = true;
                }
                CursorStep::UnderWay => break,
                // What the ring does not hold any more is on its way to the disk, or was released.
                CursorStep::End => {
                    let before = self.ring.before();
                    store.log_mut().want_durable(before);
                    let log = store.log();
                    let read = before.min(log.durable());
                    sender.fed(time.time_ms, read, log.appended(), output);
                    if store.log().durable() < before {
                        break;
                    }
                }
                CursorStep::Damaged { file, offset } => {
                    self.actions.push_back(LinkAction::Damaged { file, offset });
                    return Err(LinkRefusal {
                        code: RefusalCode::Records,
                        text: format!(
                            "the log of the source cannot be read: {:08}.seg at {offset}",
                            file.0
                        ),
                    });
                }
            }
        }
        let mut superseded = self.superseded.iter();
        sender.tell_clock(!superseded.any(|&number| sender.ships(number)));
        let durable = store.log().durable();
        sender.pump(
            time.time_ms,
            durable,
            &self.ring,
            &self.partitions,
            &Reach(store),
            output,
        )
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

fn fault_refusal(fault: &penstock_net::link::LinkFault) -> LinkRefusal {
    LinkRefusal {
        code: RefusalCode::Fault,
        text: fault.to_string(),
    }
}

fn ended(link: LinkId, refused: &Refused<'_>) -> LinkAction {
    LinkAction::Ended {
        link,
        refusal: LinkRefusal {
            code: refused.code,
            text: refused.text.to_string(),
        },
    }
}

/// As much of a text as a refusal takes.
fn short(text: &str) -> &str {
    let most = penstock_net::link::message::REFUSED_TEXT_BYTES_MAX;
    text.get(..text.floor_char_boundary(most.min(text.len())))
        .unwrap_or_default()
}
