//! The links of one shard over its store: bytes of other nodes in, records into the log and the index,
//! records of the log out.
//!
//! It has the partitions of the shard, the ring, and for each link that has proven itself a [`Sender`] or a
//! [`Receiver`]; it does for them what touches the log: notes, records that are applied or written anew,
//! reading what the ring does not hold any more. In each turn [`Links::take_in`] comes before the log is
//! pumped and [`Links::give_out`] behind it, so that what was sealed is shipped while it goes to the
//! disk.
//!
//! It does not know: sockets, secrets, where lostfound is, who is to be primary.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use penstock_net::link::frame::{read_link_frame, write_link_frame};
use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::link::{
    LinkHeader, LinkMessage, LinkReceived, Membership, Mode, Position, RefusalCode, Refused,
};
use penstock_net::slot::slot_of;
use penstock_storage::histogram::Histogram;
use penstock_storage::index::{Cursor, Home};
use penstock_storage::io::{Block, Blocks, Completion, FileId, Io};
use penstock_storage::keyspace::{SETTINGS_BYTES, Settings, prefix_of};
use penstock_storage::log::{Lsn, Place, Purpose, Room};
use penstock_storage::record::{PARTS_MAX, PartKind, PartSpec, PartView, RecordSpec};
use penstock_storage::replica::Backlog;
use penstock_storage::store::{Found, LOOK_AHEAD, SLOTS, Store, Version, partition_of};

use super::cursor::{CursorStep, LogCursor};
use super::epoch::{Epoch, EpochHistory};
use super::handshake::{Introduction, Peer};
use super::notes::{Notes, Tags};
use super::pace::Pace;
use super::partition::{Applicable, CannotBegin, Facts, Partition, Role};
use super::partition_map::PartitionMap;
use super::planted::{Bug, is_planted};
use super::reads::LinkReads;
use super::receiver::{KeptLimits, LinkRefusal, Partitions, Receiver};
use super::record::{ShippedRecord, records};
use super::ring::Ring;
use super::sender::{Confirmed, Counting, LogReach, Sender};
use super::standing::{Lag, LinkState, Traffic};
use super::timeline::Timeline;
use super::{LinkId, PartitionId, Work};
use crate::topology::Topology;

/// Bytes of records that are applied in one turn, about: what a commit that shares the frame waits for.
const APPLY_BYTES: usize = 256 << 10;
/// Reads of a cold key that may fail before that is told.
const READS_MAX: u32 = 3;
/// Keys that are held against what a scan has brought, at a time.
const SWEEP_KEYS: usize = 32;
/// Keys that are written anew in one turn.
const REWIND_KEYS: usize = 64;
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
pub struct LinksConfig {
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
pub struct LinksCounters {
    /// Records of others that were applied.
    pub applied: u64,
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
pub struct LinksMemory {
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
    /// Make durable what was to be kept of a partition, then call [`Links::tail_kept`].
    Sync {
        /// The partition.
        partition: PartitionId,
        /// The link by which its keys are told; none if this node writes them anew itself.
        link: Option<LinkId>,
    },
    /// The primary hands the partition over: [`Links::begin`] in the generation of the epoch.
    Begin {
        /// The partition.
        partition: PartitionId,
        /// The epoch.
        epoch: Epoch,
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
    input: Vec<u8>,
    output: Vec<u8>,
}

/// Cold keys that are read.
#[derive(Debug)]
struct Warming<B> {
    reads: Vec<WarmingRead<B>>,
    /// Reads that failed, or did not bring what the index says.
    failures: u32,
    is_told: bool,
}

impl<B> Default for Warming<B> {
    fn default() -> Self {
        Warming {
            reads: Vec::new(),
            failures: 0,
            is_told: false,
        }
    }
}

#[derive(Debug)]
struct WarmingRead<B> {
    home: (u16, u32),
    place: Place,
    token: Option<u64>,
    read: Option<B>,
}

/// What somebody waits for cold keys for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Waiter {
    Apply(PartitionId),
    Rewind(PartitionId, Option<LinkId>),
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

/// A diverged tail that is looked for in the log.
#[derive(Debug)]
struct Tail {
    /// Who is told its keys; none if this node writes them anew itself.
    link: Option<LinkId>,
    from: Position,
    history: EpochHistory,
    /// What was read of the log for it.
    behind: Lsn,
    /// Where it ends.
    until: Lsn,
    keys: BTreeSet<Vec<u8>>,
    is_read: bool,
    is_told_damaged: bool,
}

impl Tail {
    /// One that ends where the log ends now.
    fn new<P: Blocks>(
        link: Option<LinkId>,
        from: Position,
        history: EpochHistory,
        store: &mut Store<P>,
    ) -> Self {
        let until = store.log().appended();
        store.log_mut().want_durable(until);
        Tail {
            link,
            from,
            history,
            behind: Lsn(0),
            until,
            keys: BTreeSet::new(),
            is_read: false,
            is_told_damaged: false,
        }
    }

    /// Whether a record is one of it.
    fn holds(&self, record: &ShippedRecord<'_>) -> bool {
        let endless = Position {
            epoch: self.history.last().map_or(0, |epoch| epoch.0),
            sequence: u64::MAX,
        };
        !record.is_local
            && record.position > self.from
            && !self.history.contains(record.position, endless)
    }

    /// Which keys of a record may have to be written anew.
    fn note_keys(&mut self, record: &ShippedRecord<'_>, epochs: &[u8]) {
        let is_own = self.link.is_none() && !record.is_local;
        let is_behind = self.holds(record) || is_own && record.position > self.from;
        for part in parts_of(record.bytes) {
            // A scan brings older values of keys that had been deleted here: with others of their records.
            let is_deleted = is_own && part.kind() == PartKind::Tombstone;
            if (is_behind || is_deleted) && part.key() != epochs {
                self.keys.insert(part.key().to_vec());
            }
        }
    }
}

/// What a scan has brought, to know what it has not.
#[derive(Debug, Default)]
struct Sweep {
    /// Keys that have come since it began: the newest version of each, and whether that is a value. A deletion
    /// may have the version of a value: the source has swept that one itself.
    seen: BTreeMap<Vec<u8>, (Version, bool)>,
    /// How far the keys that are here were held against that; none at the end.
    at: Option<Cursor>,
    /// How many of them are looked at together from there on.
    batch_keys: Option<usize>,
    has_begun: bool,
    /// JOIN has come. What comes behind it the source may still lose, and it says nothing of what the scan has brought.
    has_ended: bool,
}

impl Sweep {
    fn note(&mut self, part: &PartView<'_>) {
        if self.has_ended {
            return;
        }
        let (version, is_put) = (part.version(), part.kind() == PartKind::Put);
        let known = self.seen.get(part.key());
        let is_news =
            known.is_none_or(|&(other, _)| version > other || version == other && !is_put);
        if is_news {
            self.seen.insert(part.key().to_vec(), (version, is_put));
        }
    }

    /// Whether the source has a value of this key.
    fn has_come(&self, key: &[u8]) -> bool {
        self.seen.get(key).is_some_and(|&(_, is_put)| is_put)
    }
}

/// Keys that are written anew for a member, or because what the log says of them is not what is here.
#[derive(Debug)]
struct Rewrite {
    keys: VecDeque<Vec<u8>>,
    last: (Position, Lsn),
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
    /// Its epoch is promised here, with this record; then it is told by this link.
    Promised(Lsn, LinkId),
}

/// The links of one shard.
#[derive(Debug)]
pub struct Links<B> {
    config: LinksConfig,
    tags: Tags,
    partitions: Partitions,
    /// Who gets each partition while this node writes it.
    members: PartitionMap<Vec<(u8, Membership)>>,
    ring: Ring,
    outgoing: BTreeMap<LinkId, Outgoing<B>>,
    incoming: BTreeMap<LinkId, Incoming>,
    warming: BTreeMap<Waiter, Warming<B>>,
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
    /// Of partitions that are scanned although something of them is here.
    sweeps: BTreeMap<PartitionId, Sweep>,
    /// Up to which record of this log each node is known to have all of a partition on its disk.
    durable_at: BTreeMap<u8, PartitionMap<Lsn>>,
    reads: LinkReads,
    actions: VecDeque<LinkAction>,
    counters: LinksCounters,
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

/// Whether all of a diverged tail is still in the log, or a scan brings the partition anew.
fn is_told_whole<P: Blocks>(
    state: &Partition,
    number: PartitionId,
    fork: Position,
    store: &Store<P>,
) -> bool {
    let facts = state.facts();
    // What came by a scan is told without what had been deleted before.
    let is_dense = facts.dense_behind <= fork.sequence || is_planted(Bug::TailOfScan);
    facts.scan_from.is_some()
        || store.forgotten(usize::from(number)) <= fork.sequence && is_dense
        || is_planted(Bug::TailHalfReleased)
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

impl<B: Block> Links<B> {
    /// The links of a shard whose store was just opened; the log tells what the partitions are.
    ///
    /// # Errors
    /// [`UnreadableNote`]: it was written by another version.
    pub fn new<P: Blocks<Block = B>>(
        config: LinksConfig,
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
        Ok(Links {
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
            sweeps: BTreeMap::new(),
            durable_at: BTreeMap::new(),
            reads: LinkReads::default(),
            actions: VecDeque::new(),
            counters: LinksCounters::default(),
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

    /// What was done.
    #[must_use]
    pub fn counters(&self) -> LinksCounters {
        self.counters
    }

    /// How long it took until members told to have received, and to have on their disks, what was shipped to them live, in
    /// microseconds from the turn in which it was appended.
    #[must_use]
    pub fn delays(&self) -> (&Histogram, &Histogram) {
        (&self.received_us, &self.durable_us)
    }

    /// What links take of the memory.
    #[must_use]
    pub fn memory(&self) -> LinksMemory {
        let kept = self.partitions.values().map(Partition::kept_bytes);
        let outgoing = self.outgoing.values();
        let outgoing = outgoing.map(|it| it.input.capacity() + it.output.capacity());
        let incoming = self.incoming.values();
        let incoming = incoming.map(|it| it.input.capacity() + it.output.capacity());
        LinksMemory {
            ring_bytes: self.ring.bytes() as u64,
            received_bytes: kept.sum::<usize>() as u64,
            buffer_bytes: outgoing.chain(incoming).sum::<usize>() as u64,
        }
    }

    /// What went over the links by which a node is shipped to, or by which it ships.
    #[must_use]
    pub fn traffic(&self, node: u8, is_outgoing: bool) -> Traffic {
        let mut traffic = self
            .traffic
            .get(&(node, is_outgoing))
            .copied()
            .unwrap_or_default();
        if is_outgoing {
            for link in self.outgoing.values().filter(|it| it.peer.node == node) {
                traffic.sent_frames += link.sender.sent();
                traffic.received_frames += link.sender.next_number() - 1;
            }
        } else {
            for link in self.incoming.values().filter(|it| it.node == node) {
                traffic.sent_frames += link.receiver.sent();
                traffic.received_frames += link.receiver.next_number() - 1;
            }
        }
        traffic
    }

    /// How far the link is by which a node ships a partition to this one.
    #[must_use]
    pub fn state_from(&self, node: u8, partition: PartitionId) -> LinkState {
        let mut links = self.incoming.iter().filter(|(_, it)| it.node == node);
        let Some(state) = self.partitions.get(&partition) else {
            return LinkState::Absent;
        };
        match state.role() {
            Role::Member(member) if links.clone().any(|(link, _)| *link == member.link) => {
                match state.is_readable() {
                    true => LinkState::Live,
                    false => LinkState::CatchingUp,
                }
            }
            _ if links.next().is_some() => LinkState::Handshake,
            _ => LinkState::Absent,
        }
    }

    /// How far the link is by which a partition is shipped to a node.
    #[must_use]
    pub fn state_to(&self, node: u8, partition: PartitionId) -> LinkState {
        let slot = self.tags.slot(partition);
        let links = self.outgoing.values().filter(|link| {
            link.peer.node == node && Topology::new(link.peer.shards).owner(slot) == link.peer.shard
        });
        let states = links.map(|link| link.sender.link_state(partition));
        states.max().unwrap_or(LinkState::Absent)
    }

    /// What a member has not confirmed so far of what this node writes; unknown if it has not told where it stands
    /// since this start.
    #[must_use]
    pub fn lag(&self, now_us: u64, node: u8, confirmed: Confirmed) -> Option<Lag> {
        let (records, behind) = self.lacking(node, confirmed)?;
        let behind = behind.and_then(|lsn| self.timeline.behind(lsn));
        Some(Lag {
            records,
            bytes: behind.map_or(0, |it| it.bytes),
            us: behind.map_or(0, |it| now_us.saturating_sub(it.since_us)),
        })
    }

    /// How many records a member lacks, and behind which record of the log they stand.
    fn lacking(&self, node: u8, confirmed: Confirmed) -> Option<(u64, Option<Lsn>)> {
        let is_there = |link: &&Outgoing<B>| link.peer.node == node;
        let left = self.left.get(&node);
        let (mut records, mut behind) = (0, None);
        let mut lack = |count: u64, from: Option<Lsn>| {
            records += count;
            if count > 0 {
                let from = from.unwrap_or_default();
                behind = Some(behind.map_or(from, |before: Lsn| before.min(from)));
            }
        };
        for link in self.outgoing.values().filter(is_there) {
            let (count, from) = link.sender.unconfirmed(confirmed);
            lack(count, from);
        }
        let open = left.map_or_else(LeftOpen::default, |left| left.open(confirmed));
        if !self.outgoing.values().any(|link| is_there(&link)) {
            lack(open.records, open.behind);
        }
        for (&number, state) in &self.partitions {
            let is_written = matches!(state.role(), Role::Primary { begun: Some(_), .. });
            let members = self.members.get(&number).into_iter().flatten();
            if !is_written || !members.into_iter().any(|(member, _)| *member == node) {
                continue;
            }
            let links = self.outgoing.values().filter(is_there);
            let shipped = links.filter_map(|link| link.sender.shipped(number)).max();
            let (has, from) = match (shipped, left) {
                (Some((has, from)), _) => (has, Some(from)),
                (None, Some(left)) => (*left.shipped.get(&number)?, open.behind),
                (None, None) => return None,
            };
            lack(state.applied().sequence.saturating_sub(has), from);
        }
        Some((records, behind))
    }

    /// What every member has, needs no account of when it was appended.
    pub fn forget_times(&mut self) {
        let nodes: BTreeSet<u8> = self
            .members
            .values()
            .flat_map(|members| members.iter().map(|(node, _)| *node))
            .collect();
        let mut until = self.ring.last();
        for node in nodes {
            match self.lacking(node, Confirmed::Durable) {
                Some((0, _)) => {}
                Some((_, behind)) => until = until.min(behind.unwrap_or_default()),
                None => return,
            }
        }
        self.timeline.forget(until);
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
        let handover = Handover {
            node,
            epoch,
            is_waited_for: false,
            step: HandoverStep::Drains,
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

    /// The partition is not handed over any more, if that has not been promised.
    pub fn keep(&mut self, partition: PartitionId) {
        let is_promised = |it: &Handover| matches!(it.step, HandoverStep::Promised(..));
        self.handovers
            .retain(|&of, it| of != partition || is_promised(it));
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
            sender: Sender::new((2, 1), self.config.pending_bytes_max / 2),
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

    /// What was kept of a partition is durable, and its keys may be told.
    pub fn tail_kept(&mut self, partition: PartitionId, link: Option<LinkId>) {
        let is_told = self
            .tails
            .get(&partition)
            .is_some_and(|tail| tail.link == link && tail.is_read);
        if !is_told {
            return;
        }
        let tail = self.tails.remove(&partition).expect("just seen");
        let Some(link) = link else {
            let keys = tail.keys.into_iter().collect();
            self.begin_rewrite(partition, None, keys);
            return;
        };
        if let Some(incoming) = self.incoming.get_mut(&link) {
            incoming.receiver.tail_saved(partition, tail.keys);
        }
    }

    fn begin_rewrite(
        &mut self,
        partition: PartitionId,
        link: Option<LinkId>,
        keys: VecDeque<Vec<u8>>,
    ) {
        let last = (self.partitions[&partition].applied(), Lsn(0));
        let rewrite = Rewrite { keys, last };
        self.rewrites.insert((partition, link), rewrite);
        self.is_due = true;
    }

    /// The end of a read of this part of the shard.
    pub fn read(&mut self, completion: Completion<B>) {
        self.reads.ended(completion.token.0);
        let cursors = self.outgoing.values_mut().map(|link| &mut link.cursor);
        let mut cursors = cursors.chain([&mut self.tail_cursor]);
        if let Some(cursor) = cursors.find(|cursor| cursor.awaits(completion.token.0)) {
            cursor.read(completion);
            return;
        }
        let token = Some(completion.token.0);
        for warming in self.warming.values_mut() {
            let Some(at) = warming.reads.iter().position(|read| read.token == token) else {
                continue;
            };
            match (completion.result, completion.block) {
                (Ok(()), Some(block)) => {
                    warming.reads[at].token = None;
                    warming.reads[at].read = Some(block);
                }
                _ => {
                    warming.reads.remove(at);
                    warming.failures += 1;
                }
            }
            return;
        }
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
            let taken =
                incoming
                    .receiver
                    .frame(&frame, &mut self.partitions, &mut notes, &mut work);
            if let Err(refusal) = taken {
                break Some(refusal);
            }
            self.is_due = true;
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

    /// Appends what was received and is durable at its source, in the order of each partition.
    fn apply<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        store: &mut Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<B>>,
    ) {
        let mut left = APPLY_BYTES;
        let holds = |state: &Partition| state.applicable(u64::MAX).is_some();
        let holding = self.partitions.iter().filter(|(_, state)| holds(state));
        let mut numbers: Vec<PartitionId> = holding.map(|(&number, _)| number).collect();
        let first = numbers.partition_point(|number| *number < self.apply_from);
        numbers.rotate_left(first);
        // How many of the records that come next have what they need in the processor's caches.
        let mut ahead = 0;
        for (at, &number) in numbers.iter().enumerate() {
            let (link, told) = self.told_of(number);
            while let Some(applicable) = self.partitions[&number].applicable(told) {
                if left == 0 {
                    self.apply_from = number + 1;
                    return;
                }
                if ahead == 0 {
                    ahead = self.look_ahead(&numbers[at..], store, hash_of);
                }
                let (frame, lsn) = match applicable {
                    Applicable::Record {
                        bytes, is_dense, ..
                    } => {
                        ahead = ahead.saturating_sub(1);
                        let parts = parts_of(bytes);
                        let mut keys: [&[u8]; PARTS_MAX] = [&[]; PARTS_MAX];
                        for (key, part) in keys.iter_mut().zip(&parts) {
                            *key = part.key();
                        }
                        let keys = (parts[0].slot(), &keys[..parts.len()]);
                        let warmer = Warmer {
                            warming: &mut self.warming,
                            reads: &mut self.reads,
                            actions: &mut self.actions,
                        };
                        if !warmer.warm(Waiter::Apply(number), keys, store, hash_of, io) {
                            break;
                        }
                        if store.room_for(Purpose::Grow, bytes.len()) != Room::Yes {
                            return;
                        }
                        left = left.saturating_sub(bytes.len());
                        self.counters.applied += 1;
                        let lsn = store.apply(time.now_us, &parts, is_dense, hash_of);
                        let lsn = lsn.unwrap_or(store.log().appended());
                        let state = self.partitions.get_mut(&number).expect("just seen");
                        (state.record_applied(), lsn)
                    }
                    Applicable::Join => {
                        if self.partitions[&number].facts().scan_from.is_some()
                            && !self.sweep(time, number, store, hash_of, io)
                        {
                            break;
                        }
                        let mut notes = Notes {
                            store,
                            tags: &self.tags,
                            now_us: time.now_us,
                        };
                        if !notes.has_room() {
                            return;
                        }
                        self.sweeps.remove(&number);
                        let state = self.partitions.get_mut(&number).expect("just seen");
                        let frame = state.join(&mut notes);
                        (frame, store.log().appended())
                    }
                };
                store.log_mut().want_durable(lsn);
                self.is_due = true;
                if let Some(incoming) = link.and_then(|link| self.incoming.get_mut(&link)) {
                    incoming.receiver.applied(number, frame, lsn);
                }
            }
        }
    }

    /// By which link a partition is shipped, and which of its frames are durable at the source.
    fn told_of(&self, number: PartitionId) -> (Option<LinkId>, u64) {
        let link = match self.partitions[&number].role() {
            Role::Member(member) => Some(member.link),
            _ => None,
        };
        let incoming = link.and_then(|link| self.incoming.get(&link));
        (link, incoming.map_or(0, |it| it.receiver.told()))
    }

    /// Loads what the first records of these partitions need that may be applied, and tells of how many: each of them alone
    /// would wait for memory several times.
    fn look_ahead<P: Blocks<Block = B>>(
        &self,
        numbers: &[PartitionId],
        store: &Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
    ) -> usize {
        let mut homes = [(0, 0); LOOK_AHEAD];
        let mut count = 0;
        let records = numbers.iter().flat_map(|number| {
            let (_, told) = self.told_of(*number);
            self.partitions[number].upcoming(told)
        });
        let guesses = records.filter_map(PartView::guess);
        for (home, (slot, key)) in homes.iter_mut().zip(guesses) {
            *home = (slot, hash_of(key));
            count += 1;
        }
        store.look_ahead(&homes[..count]);
        count
    }

    /// At the end of a scan: takes out what is here and did not come, for it was deleted so long ago that
    /// nobody has the deletion any more. Whether that is done.
    fn sweep<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        number: PartitionId,
        store: &mut Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<B>>,
    ) -> bool {
        let Some(sweep) = self.sweeps.get_mut(&number) else {
            return true;
        };
        let slots = SLOTS / LINK_PARTITIONS;
        let (first, last) = (number * slots, number * slots + (slots - 1));
        if !std::mem::replace(&mut sweep.has_begun, true) && !is_planted(Bug::SweepForgotten) {
            sweep.at = Some(Cursor {
                slot: first,
                hash: 0,
            });
        }
        let Some(at) = sweep.at else {
            return true;
        };
        // All that is read of a batch is in memory at once, and other reads of the shard need some, too.
        let bytes_max = self.config.pending_bytes_max / 8;
        let keys = *sweep.batch_keys.get_or_insert_with(|| {
            let (mut keys, mut bytes) = (0, 0);
            store.homes_from(at, last, SWEEP_KEYS, &mut |_, found| {
                if let Home::Disk(packed) = found {
                    bytes += packed.place().map_or(0, |place| place.bytes as usize);
                }
                keys += usize::from(keys == 0 || bytes <= bytes_max);
            });
            keys.max(1)
        });
        let warmer = Warmer {
            warming: &mut self.warming,
            reads: &mut self.reads,
            actions: &mut self.actions,
        };
        let cold_of = |store: &Store<P>| {
            let mut cold = Vec::new();
            store.homes_from(at, last, keys, &mut |home, found| {
                if let Home::Disk(packed) = found {
                    cold.extend(packed.place().map(|place| (home, place)));
                }
            });
            cold
        };
        if !warmer.warm_all(Waiter::Apply(number), cold_of, store, hash_of, io) {
            return false;
        }
        let mut gone = Vec::new();
        let next = store.homes_from(at, last, keys, &mut |home, found| {
            if let Home::Memory(id) = found
                && !store.cell(id).is_deleted()
                && !sweep.has_come(store.cell(id).key())
            {
                gone.push((home, id));
            }
        });
        for (home, id) in gone {
            let key_bytes = store.cell(id).key().len();
            if store.room(Purpose::Keep, key_bytes, 0, false) != Room::Yes {
                return false;
            }
            let Some(lsn) = store.sweep(time.now_us, home, id) else {
                return false;
            };
            self.is_due = true;
            store.log_mut().want_durable(lsn);
            self.counters.swept += 1;
        }
        (sweep.at, sweep.batch_keys) = (next, None);
        self.is_due = true;
        next.is_none()
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
            let warmer = Warmer {
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

    /// Writes keys anew, each with its present value or as a deletion.
    fn rewrite<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        store: &mut Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<B>>,
    ) {
        // A link that has ended waits for nothing; what was read for it is memory that others lack.
        let rewrites = &self.rewrites;
        self.warming.retain(|waiter, _| match *waiter {
            Waiter::Apply(_) => true,
            Waiter::Rewind(number, link) => rewrites.contains_key(&(number, link)),
        });
        let mut left = REWIND_KEYS;
        let all: Vec<(PartitionId, Option<LinkId>)> = self.rewrites.keys().copied().collect();
        for (number, link) in all {
            let durable = store.log().durable();
            let state = &self.partitions[&number];
            let is_possible = match link {
                Some(_) => state.may_write(durable),
                None => state.own_tail().is_some(),
            };
            if !is_possible {
                self.rewrites.remove(&(number, link));
                continue;
            }
            let rewrite = self.rewrites.get_mut(&(number, link)).expect("just seen");
            while let Some(key) = rewrite.keys.front().filter(|_| left > 0) {
                let slot = slot_of(key);
                if partition_of(slot) != usize::from(number) {
                    // Nobody of this partition has such a key.
                    rewrite.keys.pop_front();
                    continue;
                }
                let hash = hash_of(key);
                if let Some(prefix) = prefix_of(key) {
                    if store.room(Purpose::Keep, key.len(), SETTINGS_BYTES, false) != Room::Yes {
                        break;
                    }
                    if let Some(lsn) = rewrite_settings(time.now_us, slot, key, prefix, store) {
                        store.log_mut().want_durable(lsn);
                        let state = self.partitions.get_mut(&number).expect("just seen");
                        rewrite.last = (state.next_position(), lsn);
                    }
                    rewrite.keys.pop_front();
                    self.counters.rewritten += 1;
                    left -= 1;
                    continue;
                }
                let warmer = Warmer {
                    warming: &mut self.warming,
                    reads: &mut self.reads,
                    actions: &mut self.actions,
                };
                let keys = (slot, &[key.as_slice()][..]);
                if !warmer.warm(Waiter::Rewind(number, link), keys, store, hash_of, io) {
                    break;
                }
                let found = store.find(slot, hash, key);
                let value_bytes = match found {
                    Found::Cached(id) => store.cell(id).value().len(),
                    Found::Absent | Found::Cold(_) => 0,
                };
                if store.room(Purpose::Keep, key.len(), value_bytes, true) != Room::Yes {
                    break;
                }
                let cell = match found {
                    Found::Cached(id) => id,
                    Found::Absent => {
                        let id = store.insert((slot, hash), key, &[], None);
                        store.delete(id);
                        id
                    }
                    Found::Cold(_) => unreachable!("it was read"),
                };
                let (lsn, version) = store.commit(time.now_us, slot, &[(hash, cell)]);
                store.log_mut().want_durable(lsn);
                let state = self.partitions.get_mut(&number).expect("just seen");
                let at = state.next_position();
                assert_eq!(at, position(version), "versions follow each other");
                rewrite.last = (at, lsn);
                rewrite.keys.pop_front();
                self.counters.rewritten += 1;
                self.is_due = true;
                left -= 1;
            }
            if !rewrite.keys.is_empty() {
                continue;
            }
            let (at, lsn) = rewrite.last;
            if let Some(link) = link {
                if let Some(outgoing) = self.outgoing.get_mut(&link) {
                    outgoing
                        .sender
                        .rewound(time.time_ms, number, at, lsn, &mut outgoing.output);
                }
            } else {
                let mut notes = Notes {
                    store,
                    tags: &self.tags,
                    now_us: time.now_us,
                };
                if !notes.has_room() {
                    continue;
                }
                let state = self.partitions.get_mut(&number).expect("just seen");
                state.own_tail_rewritten(&mut notes);
                self.is_due = true;
            }
            self.rewrites.remove(&(number, link));
        }
    }

    /// Asks for scans of the partitions whose tails are not all in the log any more.
    fn judge_tails<P: Blocks<Block = B>>(&mut self, time: LinkTime, store: &mut Store<P>) {
        let numbers: Vec<PartitionId> = self.tails.keys().copied().collect();
        for number in numbers {
            // Refusing the link of one tail has ended all that came by it.
            let Some(tail) = self.tails.get(&number) else {
                continue;
            };
            // What is gone of its own tail outranks nothing any more.
            let Some(link) = tail.link else {
                continue;
            };
            let fork = tail.from;
            let state = self.partitions.get_mut(&number).expect("it is the shard's");
            if is_told_whole(state, number, fork, store) {
                continue;
            }
            let mut notes = Notes {
                store,
                tags: &self.tags,
                now_us: time.now_us,
            };
            if !notes.has_room() {
                return;
            }
            state.must_scan(&mut notes);
            self.counters.tails_lost += 1;
            let text = format!(
                "partition {number}: records behind {fork:?} were given up here, so all of it is wanted"
            );
            self.refuse(
                link,
                LinkRefusal {
                    code: RefusalCode::Order,
                    text,
                },
            );
        }
    }

    /// Looks in the log for what has diverged: one reader for all tails, from where the one that is furthest
    /// behind was read to.
    fn read_tails<P: Blocks<Block = B>>(&mut self, store: &mut Store<P>, io: &mut Vec<Io<B>>) {
        // What is inherited stands in other logs, which the cursor does not read: it is rewritten first.
        if store.is_inheriting() {
            return;
        }
        for _ in 0..CURSOR_FRAMES {
            let unread = self.tails.values().filter(|tail| !tail.is_read);
            let Some(behind) = unread.map(|tail| tail.behind).min() else {
                self.is_due |= self.tail_cursor.rest();
                return;
            };
            match self.tail_cursor.next(store, behind, &mut self.reads, io) {
                CursorStep::Frame(frame) => {
                    for record in records(frame.bytes).map_while(Result::ok) {
                        let number = record.partition;
                        let tail = self.tails.get_mut(&number);
                        let tail = tail.filter(|it| !it.is_read && it.behind < frame.last);
                        let Some(tail) = tail else { continue };
                        tail.note_keys(&record, &self.tags.epochs(number));
                        if !tail.holds(&record) {
                            continue;
                        }
                        if !is_planted(Bug::TailNotSaved) {
                            self.counters.kept += 1;
                            self.counters.kept_bytes += record.bytes.len() as u64;
                            self.actions.push_back(LinkAction::Keep {
                                partition: number,
                                record: record.bytes.to_vec(),
                            });
                        }
                        if is_planted(Bug::TailReadHalf) {
                            break;
                        }
                    }
                    for tail in self.tails.values_mut().filter(|tail| !tail.is_read) {
                        tail.behind = tail.behind.max(frame.last);
                    }
                    self.is_due = true;
                }
                CursorStep::UnderWay => return,
                CursorStep::End => {
                    if !self.end_tails(store) {
                        return;
                    }
                }
                // It is read again in the next turn: without it the partitions never are whole.
                CursorStep::Damaged { file, offset } => {
                    let mut is_told = true;
                    for tail in self.tails.values_mut().filter(|tail| !tail.is_read) {
                        is_told &= std::mem::replace(&mut tail.is_told_damaged, true);
                    }
                    if !is_told {
                        self.actions.push_back(LinkAction::Damaged { file, offset });
                    }
                    return;
                }
            }
        }
    }

    /// All that is durable was read for the tails; whether one of them is known whole by that.
    fn end_tails<P: Blocks<Block = B>>(&mut self, store: &mut Store<P>) -> bool {
        let mut has_ended = false;
        for (&number, tail) in self.tails.iter_mut().filter(|(_, tail)| !tail.is_read) {
            if store.log().durable() < tail.until && !is_planted(Bug::TailReadEarly) {
                continue;
            }
            // A part that is moved while it is looked for stands behind what was read.
            if let Some(lsn) = store.moving_until() {
                tail.until = lsn;
                store.log_mut().want_durable(lsn);
                continue;
            }
            // Some of it was released meanwhile.
            if tail.link.is_some()
                && !is_told_whole(&self.partitions[&number], number, tail.from, store)
            {
                continue;
            }
            tail.is_read = true;
            has_ended = true;
            self.actions.push_back(LinkAction::Sync {
                partition: number,
                link: tail.link,
            });
        }
        has_ended
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
                    match (self.outgoing.iter().find(has_all), &handover.step) {
                        (None, _) => HandoverStep::Drains,
                        (Some((&link, _)), HandoverStep::HasAll)
                            if !handover.is_waited_for && notes.has_room() =>
                        {
                            state.depose(handover.epoch, &mut notes);
                            self.actions.push_back(LinkAction::Deposed {
                                partition: number,
                                epoch: handover.epoch,
                            });
                            let lsn = store.log().appended();
                            store.log_mut().want_durable(lsn);
                            HandoverStep::Promised(lsn, link)
                        }
                        (Some(_), _) => HandoverStep::HasAll,
                    }
                }
                HandoverStep::Promised(lsn, link) if lsn <= store.log().durable() => {
                    if let Some(outgoing) = self.outgoing.get_mut(&link) {
                        let out = &mut outgoing.output;
                        let sender = &mut outgoing.sender;
                        sender.hand_over(time.time_ms, number, handover.epoch, out);
                    }
                    for outgoing in self.outgoing.values_mut() {
                        let out = &mut outgoing.output;
                        outgoing.sender.close(time.time_ms, number, out);
                    }
                    continue;
                }
                promised @ HandoverStep::Promised(..) => promised,
            };
            self.is_due |= matches!(handover.step, HandoverStep::HasAll) && !handover.is_waited_for;
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

/// What reads cold keys, and what it has read.
struct Warmer<'a, B> {
    warming: &'a mut BTreeMap<Waiter, Warming<B>>,
    reads: &'a mut LinkReads,
    actions: &'a mut VecDeque<LinkAction>,
}

impl<B: Block> Warmer<'_, B> {
    /// Whether nothing of these keys is cold. Otherwise all of it is read, and comes into the cache at
    /// once: what comes first, or is there already, may leave before the last is there.
    fn warm<P: Blocks<Block = B>>(
        self,
        waiter: Waiter,
        (slot, keys): (u16, &[&[u8]]),
        store: &mut Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<B>>,
    ) -> bool {
        let is_cold = |key: &[u8]| matches!(store.find(slot, hash_of(key), key), Found::Cold(_));
        if !keys.iter().any(|key| is_cold(key)) {
            if !self.warming.is_empty() {
                self.warming.remove(&waiter);
            }
            return true;
        }
        let cold_of = |store: &Store<P>| store.cold_of(slot, keys.iter().copied(), hash_of);
        self.warm_all(waiter, cold_of, store, hash_of, io)
    }

    /// The same of whatever is cold.
    fn warm_all<P: Blocks<Block = B>>(
        self,
        waiter: Waiter,
        cold_of: impl Fn(&Store<P>) -> Vec<((u16, u32), Place)>,
        store: &mut Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<B>>,
    ) -> bool {
        let mut cold = cold_of(store);
        let of_waiter = self.warming.entry(waiter).or_default();
        // What is cold no more, or elsewhere now, is not asked for.
        of_waiter
            .reads
            .retain(|read| read.token.is_some() || cold.contains(&(read.home, read.place)));
        let is_there = |at: &((u16, u32), Place)| {
            let mut reads = of_waiter.reads.iter();
            reads.any(|read| (read.home, read.place) == *at && read.read.is_some())
        };
        if !cold.is_empty() && cold.iter().all(is_there) {
            for read in std::mem::take(&mut of_waiter.reads) {
                let Some(block) = read.read else { continue };
                let home_of = |key: &[u8]| (slot_of(key), hash_of(key));
                let admitted = store.admit(read.home, read.place, block.bytes(), home_of);
                of_waiter.failures += u32::from(admitted.is_err());
            }
            cold = cold_of(store);
        }
        if cold.is_empty() {
            self.warming.remove(&waiter);
            return true;
        }
        // It is read again and again: without it the partition does not go on.
        if of_waiter.failures >= READS_MAX && !std::mem::replace(&mut of_waiter.is_told, true) {
            let (_, place) = cold[0];
            self.actions.push_back(LinkAction::Damaged {
                file: place.file,
                offset: place.offset,
            });
        }
        for (home, place) in cold {
            let is_known = of_waiter
                .reads
                .iter()
                .any(|read| (read.home, read.place) == (home, place));
            if is_known {
                continue;
            }
            let Some((token, _)) = self.reads.begin(store, place, io) else {
                break;
            };
            of_waiter.reads.push(WarmingRead {
                home,
                place,
                token: Some(token),
                read: None,
            });
        }
        false
    }
}

/// Logs what is in force for a prefix anew, or that nothing is, under a revision that outranks those of
/// earlier epochs; nothing if there is no place for another prefix here, where the other one is in force
/// nowhere.
fn rewrite_settings<P: Blocks>(
    now_us: u64,
    slot: u16,
    key: &[u8],
    prefix: &[u8],
    store: &mut Store<P>,
) -> Option<Lsn> {
    let dropped = Settings {
        is_dropped: true,
        ..Settings::default()
    };
    let known = store.keyspaces().newest(prefix).copied().unwrap_or(dropped);
    let floor = u64::from(store.leads(partition_of(slot))) << 32;
    let settings = Settings {
        revision: known.revision.max(floor) + 1,
        ..known
    };
    store.hear(prefix, settings).ok()?;
    Some(store.commit_settings(now_us, slot, key, prefix))
}

/// Keeps account of what a scan brings. What comes of a partition that the link does not have any more was dropped, and must
/// neither end nor fill the account of the link that has it.
fn note_scan(
    sweeps: &mut BTreeMap<PartitionId, Sweep>,
    message: &LinkMessage<'_>,
    is_of_link: impl Fn(PartitionId) -> bool,
    is_there: impl Fn(PartitionId) -> bool,
) {
    match message {
        LinkMessage::Begin(begin) if is_of_link(begin.partition) => {
            sweeps.remove(&begin.partition);
            if begin.mode == Mode::Scan && is_there(begin.partition) {
                sweeps.insert(begin.partition, Sweep::default());
            }
        }
        LinkMessage::Join(join) if is_of_link(join.partition) => {
            if let Some(sweep) = sweeps.get_mut(&join.partition) {
                sweep.has_ended = true;
            }
        }
        LinkMessage::Records(shipped) if !sweeps.is_empty() => {
            for record in records(shipped.bytes).map_while(Result::ok) {
                if is_of_link(record.partition)
                    && let Some(sweep) = sweeps.get_mut(&record.partition)
                {
                    for part in parts_of(record.bytes) {
                        sweep.note(&part);
                    }
                }
            }
        }
        _ => {}
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

#[cfg(test)]
mod tests {
    use penstock_net::link::message::{EpochEntry, Epochs};
    use penstock_net::link::{Begin, Join, Records};

    use super::*;
    use crate::replication::tests::{encoded, encoded_deletion, keys_of_partition};

    #[test]
    fn what_comes_behind_the_join_of_a_scan_says_nothing_of_what_the_scan_has_brought() {
        let keys = keys_of_partition(7, 2);
        let at = |sequence| Position {
            epoch: 256,
            sequence,
        };
        let begin = LinkMessage::Begin(Begin {
            partition: 7,
            mode: Mode::Scan,
            epoch: 256,
            from: at(0),
            epochs: Epochs::default(),
        });
        let join = LinkMessage::Join(Join {
            partition: 7,
            at: at(1_000),
        });
        // One key has come and is deleted behind it; another one, which was deleted, is written again.
        let came = encoded(at(5), &[(&keys[0], 1)]);
        let deleted = encoded_deletion(at(1_001), &keys[0]);
        let written = encoded(at(1_002), &[(&keys[1], 1)]);
        let shipped = |bytes| LinkMessage::Records(Records { count: 1, bytes });
        let mut sweeps = BTreeMap::new();
        for message in [
            begin,
            shipped(&came),
            join,
            shipped(&deleted),
            shipped(&written),
        ] {
            note_scan(&mut sweeps, &message, |_| true, |_| true);
        }
        let has_come = |key: &Vec<u8>| sweeps[&7].has_come(key);
        assert_eq!((has_come(&keys[0]), has_come(&keys[1])), (true, false));
    }

    #[test]
    fn what_comes_by_a_link_that_has_lost_the_partition_is_no_part_of_the_scan_of_another() {
        let keys = keys_of_partition(7, 2);
        let at = |sequence| Position {
            epoch: 256,
            sequence,
        };
        let mut entries = Vec::new();
        let begin = LinkMessage::Begin(Begin {
            partition: 7,
            mode: Mode::Scan,
            epoch: 256,
            from: at(0),
            epochs: Epochs::write(
                &mut entries,
                [EpochEntry {
                    epoch: 256,
                    start_id: 1,
                    first: 1,
                }],
            ),
        });
        let bytes = [
            encoded(at(5), &[(&keys[0], 1)]),
            encoded(at(6), &[(&keys[1], 1)]),
        ];
        let shipped = |bytes| LinkMessage::Records(Records { count: 1, bytes });
        let mut sweeps = BTreeMap::new();
        let mut note = |message: &LinkMessage<'_>, is_of_link| {
            note_scan(&mut sweeps, message, |_| is_of_link, |_| true);
            let seen = |key: &Vec<u8>| sweeps.get(&7).is_some_and(|it| it.has_come(key));
            (seen(&keys[0]), seen(&keys[1]))
        };
        assert_eq!(note(&begin, true), (false, false));
        assert_eq!(note(&shipped(&bytes[0]), true), (true, false));
        assert_eq!(note(&shipped(&bytes[1]), false), (true, false));
        assert_eq!(note(&begin, false), (true, false));
        assert_eq!(note(&shipped(&bytes[1]), true), (true, true));
    }
}
