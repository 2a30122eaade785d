//! A shard as one of several nodes: who writes its partitions, and its links.
//!
//! The plan says of each partition which node writes it in which generation and who else holds it.
//! A shard begins the partitions that are its node's, ships what it writes to the others, takes in
//! what it is shipped, and says of each operation whether it is its to answer. A node alone has
//! none of this.
//!
//! In each turn what has come is taken in before the log is pumped, and what was sealed is shipped
//! behind it.

mod promotions;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use penstock_net::keyspace::Action;
use penstock_net::level::AckLevel;
use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::link::{Membership, Position, RefusalCode};
use penstock_net::placement::{NodeAddress, Placement, Writer, WriterRange};
use penstock_net::reply::Standing;
use penstock_net::request::{MemberRead, Version};
use penstock_net::status::Status;
use penstock_storage::io::{Block, Blocks, Io};
use penstock_storage::place::FileId;
use penstock_storage::place::Lsn;
use penstock_storage::store::Store;

use crate::execute::KeyHash;
use crate::replication::link_set::{LinkAction, LinkSet, LinkSetConfig, LinkTime};
use crate::replication::sender::Confirmed;
use crate::replication::{Duty, Epoch, LinkId, LinkState, PartitionId, PeerStatus, Role};

use promotions::{Promotion, Promotions};

/// Who writes a partition and who else holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The generation in which it is written.
    pub generation: u32,
    /// The node that writes it.
    pub primary: u8,
    /// The other nodes that hold it.
    pub members: Vec<(u8, Membership)>,
    /// The primary does not begin by itself: the node that has written it so far hands it over.
    pub is_handed_over: bool,
    /// The primary may begin with what it holds although it has started since it last followed, and
    /// so may have lost what it had only received.
    pub is_loss_accepted: bool,
    /// The primary may begin even in the middle of a scan or a rewind, with what it has got of it:
    /// some keys older than others, or missing, or not deleted. No state that ever was.
    pub is_incomplete_accepted: bool,
}

impl Assignment {
    /// What a node is to the partition.
    fn duty(&self, node: u8) -> Duty {
        let member = self.members.iter().find(|(member, _)| *member == node);
        match member {
            _ if self.primary == node => Duty::Primary,
            Some(&(_, membership)) => Duty::Member(membership),
            None => Duty::None,
        }
    }

    /// The epoch in which its primary begins, if it is handed over to it.
    fn handed_over(&self) -> Epoch {
        Epoch::new(self.generation, 0, self.primary)
    }

    /// Who holds the partition besides this node. Whoever writes it is one of them: what was
    /// executed here waits at level `replica` for all who may be promoted, and a successor that
    /// lacks it was promoted already.
    fn others(&self, me: u8) -> Vec<(u8, Membership)> {
        let primary = (self.primary, Membership::Sync);
        let all = self.members.iter().copied().chain([primary]);
        all.filter(|&(node, _)| node != me).collect()
    }
}

/// What all nodes of a cluster know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// For each partition, ascending.
    pub partitions: Vec<Assignment>,
    /// The addresses of the nodes for clients, by their numbers.
    pub clients: Vec<(u8, String)>,
}

impl Plan {
    fn of(&self, partition: PartitionId) -> &Assignment {
        &self.partitions[usize::from(partition)]
    }

    /// What clients are told of it.
    #[must_use]
    pub fn placement(&self) -> Placement {
        let node = |(node, clients): &(u8, String)| NodeAddress {
            node: *node,
            clients: clients.clone(),
        };
        let mut writers: Vec<WriterRange> = Vec::new();
        for (partition, assignment) in (0..LINK_PARTITIONS).zip(&self.partitions) {
            let (node, generation) = (assignment.primary, assignment.generation);
            match writers.last_mut() {
                Some(range) if (range.node, range.generation) == (node, generation) => {
                    range.last = partition;
                }
                _ => writers.push(WriterRange {
                    first: partition,
                    last: partition,
                    node,
                    generation,
                }),
            }
        }
        Placement {
            // A change of who writes raises the generation of at least one partition and lowers
            // none.
            version: self.partitions.iter().map(|it| it.generation).sum(),
            nodes: self.clients.iter().map(node).collect(),
            writers,
        }
    }

    fn clients_of(&self, node: u8) -> &str {
        let mut clients = self.clients.iter();
        clients
            .find(|(number, _)| *number == node)
            .map_or("", |(_, address)| address)
    }
}

/// How a shard takes part in a cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Its links.
    pub links: LinkSetConfig,
    /// Who holds what.
    pub plan: Arc<Plan>,
    /// How long a reply at level `replica` waits for members, at most.
    pub replica_timeout_us: u64,
    /// The cluster is new: a partition that the plan names for this node may be begun although
    /// nothing of it is here. What a later plan names may not.
    pub is_new: bool,
}

/// What a shard wants done about its links.
#[derive(Debug, Default)]
pub struct LinkOutbox {
    /// Links with bytes to send: [`crate::Shard::take_link_output`].
    pub sendable: Vec<LinkId>,
    /// Links that are to be ended, with what is to be sent before.
    pub ended: Vec<(LinkId, Vec<u8>)>,
    /// Records that have diverged, each with all of its parts, to be kept.
    pub kept: Vec<(PartitionId, Vec<u8>)>,
    /// What was kept of a partition is to be made durable: [`crate::Event::TailKept`].
    pub to_sync: Vec<(PartitionId, Option<LinkId>)>,
    /// What people should know.
    pub told: Vec<String>,
}

/// What a node does with a partition. The later, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartitionRole {
    /// It answers for it.
    Primary,
    /// It holds what the primary holds, but for what is under way.
    Following,
    /// It is to write it, and its first record is not durable.
    Beginning,
    /// It has written it, and another node is to.
    Draining,
    /// It gets what it lacks.
    CatchingUp,
    /// It has followed since it started, and nobody ships it now.
    Followed,
    /// Nothing runs.
    Idle,
    /// It gets all of it anew.
    Scanning,
    /// It lets go what it had written alone.
    Rewinding,
}

impl PartitionRole {
    /// Every role, in this order.
    pub const ALL: [PartitionRole; 9] = [
        PartitionRole::Primary,
        PartitionRole::Following,
        PartitionRole::Beginning,
        PartitionRole::Draining,
        PartitionRole::CatchingUp,
        PartitionRole::Followed,
        PartitionRole::Idle,
        PartitionRole::Scanning,
        PartitionRole::Rewinding,
    ];

    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PartitionRole::Primary => "primary",
            PartitionRole::Beginning => "beginning",
            PartitionRole::Draining => "draining",
            PartitionRole::Following => "following",
            PartitionRole::CatchingUp => "catching up",
            PartitionRole::Scanning => "scanning",
            PartitionRole::Rewinding => "rewinding",
            PartitionRole::Followed => "followed",
            PartitionRole::Idle => "idle",
        }
    }

    /// Whether nothing is to be done.
    #[must_use]
    pub const fn is_well(self) -> bool {
        matches!(self, PartitionRole::Primary | PartitionRole::Following)
    }

    /// Whether what is here is no state that a primary had.
    #[must_use]
    pub const fn is_incomplete(self) -> bool {
        matches!(self, PartitionRole::Scanning | PartitionRole::Rewinding)
    }
}

/// What is known of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStatus {
    /// The partition.
    pub partition: PartitionId,
    /// What this node does with it.
    pub role: PartitionRole,
    /// What it is to do by the plan.
    pub duty: Duty,
    /// The epoch promised.
    pub epoch: Epoch,
    /// The sequence of the last record in the log.
    pub applied: u64,
    /// The same of the last record that is there, if only in memory.
    pub received: u64,
    /// It wrote the last record that is here.
    pub was_last: bool,
    /// The nodes that level `replica` waits for, if this one writes the partition, ascending.
    pub waits_for: Vec<u8>,
    /// The same of the last one that was known to be durable here a moment ago.
    pub durable: u64,
}

/// What a shard knows of its partitions and of the other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationStatus {
    /// Its partitions, ascending.
    pub partitions: Vec<PartitionStatus>,
    /// The nodes that ship to it, or that it ships to.
    pub peers: Vec<PeerStatus>,
}

/// Why an operation is not answered here.
pub(crate) struct Redirect {
    partition: PartitionId,
    primary: u8,
    generation: u32,
    me: u8,
    clients: String,
}

impl Redirect {
    /// What the reply's version tells.
    pub(crate) fn version(&self) -> Version {
        Writer::version(self.primary, self.generation)
    }

    pub(crate) fn status(&self) -> Status {
        match self.primary == self.me {
            true => Status::NotPrimary,
            false => Status::Moved,
        }
    }
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.primary == self.me {
            true => write!(
                f,
                "partition {}: this node is to write it and has not begun",
                self.partition
            ),
            false => write!(
                f,
                "partition {} is written by node {} at {}",
                self.partition, self.primary, self.clients
            ),
        }
    }
}

/// The cluster's part of a shard.
pub(crate) struct ClusterMember<B> {
    links: LinkSet<B>,
    plan: Arc<Plan>,
    me: u8,
    /// Partitions of this shard that its node is to begin.
    to_begin: Promotions,
    /// Partitions of this shard that are answered for here.
    served: [bool; LINK_PARTITIONS as usize],
    are_all_served: bool,
    /// In this turn.
    deposed: Vec<PartitionId>,
    replica_timeout_us: u64,
    is_due: bool,
    /// Another node says that this one has an older copy of its directory.
    has_gone_back: bool,
    /// Up to which sequence each partition was durable when that was last looked at, and what is
    /// next.
    durable: [u64; LINK_PARTITIONS as usize],
    appended: (Lsn, [u64; LINK_PARTITIONS as usize]),
}

fn time<P: Blocks>(now_us: u64, store: &Store<P>) -> LinkTime {
    LinkTime {
        now_us,
        time_ms: store.time_ms(),
    }
}

impl<B: Block> ClusterMember<B> {
    /// Over a store that was just opened.
    ///
    /// # Errors
    /// The partition whose notes in the log cannot be understood.
    pub(crate) fn new<P: Blocks<Block = B>>(
        config: ClusterConfig,
        store: &mut Store<P>,
    ) -> Result<Self, PartitionId> {
        let me = config.links.me.node;
        let mut links = LinkSet::new(config.links, store).map_err(|note| note.partition)?;
        let mut to_begin = Promotions::default();
        for partition in 0..LINK_PARTITIONS {
            if links.partition(partition).is_none() {
                continue;
            }
            let assignment = config.plan.of(partition);
            links.place(partition, assignment.others(me));
            let state = links.partition(partition).expect("just seen");
            let promised = state.facts().promised;
            let has_begun = (promised.generation(), promised.node()) == (assignment.generation, me);
            if assignment.primary == me && (has_begun || !assignment.is_handed_over) {
                to_begin.add(Promotion {
                    partition,
                    generation: assignment.generation,
                    from_nothing: config.is_new,
                });
            }
            // It was to hand over, and went down. Before it had promised the other one's epoch,
            // that one has not begun, and gets the partition from the next start of this one;
            // nothing is answered meanwhile. Behind that it may not have been told.
            let before = assignment.generation - 1;
            if assignment.primary != me && assignment.is_handed_over {
                if (promised.generation(), promised.node()) == (before, me) {
                    to_begin.add(Promotion::of(partition, before));
                } else if promised == assignment.handed_over() {
                    links.hand_over(partition, assignment.primary, promised);
                }
            }
        }
        Ok(ClusterMember {
            links,
            plan: config.plan,
            me,
            to_begin,
            served: [false; LINK_PARTITIONS as usize],
            are_all_served: false,
            deposed: Vec::new(),
            replica_timeout_us: config.replica_timeout_us,
            is_due: false,
            has_gone_back: false,
            durable: [0; LINK_PARTITIONS as usize],
            appended: (Lsn(0), [0; LINK_PARTITIONS as usize]),
        })
    }

    /// The plan has changed. What this node is to write is begun in the next turns; what it is not
    /// to write any more it answers no more, whether the other node has begun or not.
    pub(crate) fn replan(&mut self, plan: Arc<Plan>) {
        let partitions: Vec<PartitionId> = self.links.partitions().collect();
        for partition in partitions {
            let (before, now) = (self.plan.of(partition), plan.of(partition));
            if before == now {
                continue;
            }
            let state = self.links.partition(partition).expect("the shard's");
            let has_written = matches!(state.role(), Role::Primary { .. });
            let promised = state.facts().promised;
            self.links.place(partition, now.others(self.me));
            let is_same = (before.primary, before.generation) == (now.primary, now.generation);
            let accepts = |it: &Assignment| (it.is_loss_accepted, it.is_incomplete_accepted);
            if is_same && accepts(before) == accepts(now) {
                continue;
            }
            // It may have been handed over in the turn before, and not have begun yet.
            let is_due = |it: &Promotion| it.generation == now.generation && now.primary == self.me;
            // What was handed over here in between is handed on.
            let goes_on = now.is_handed_over && now.primary != self.me;
            self.to_begin
                .retain(|it| it.partition != partition || is_due(it) || goes_on);
            if !is_same {
                self.links.cancel_handover(partition, !now.is_handed_over);
            }
            let is_elsewhere = now.primary != self.me && !now.is_handed_over;
            self.links.supersede(partition, is_elsewhere);
            // It was told to begin, perhaps before a start.
            let has_promised =
                (promised.generation(), promised.node()) == (now.generation, self.me);
            let has_begun = has_written && has_promised;
            if now.primary != self.me {
                if now.is_handed_over {
                    self.links
                        .hand_over(partition, now.primary, now.handed_over());
                }
            } else if !has_begun && (!now.is_handed_over || has_promised) {
                // A node that was started for a new cluster may have nothing yet of what another
                // one writes.
                self.to_begin.add(Promotion {
                    partition,
                    generation: now.generation,
                    from_nothing: now.is_incomplete_accepted,
                });
            }
        }
        let is_named = |node| plan.clients.iter().any(|(number, _)| *number == node);
        self.links.keep_nodes(is_named);
        self.plan = plan;
        // At once: what comes before the turn is answered by the new plan, too.
        self.are_all_served = true;
        for partition in self.links.partitions() {
            let served = &mut self.served[usize::from(partition)];
            *served &= self.plan.of(partition).primary == self.me;
            self.are_all_served &= *served;
        }
    }

    pub(crate) fn links(&mut self) -> &mut LinkSet<B> {
        &mut self.links
    }

    /// Why an operation on this partition is not this node's to answer, if it is not.
    #[inline]
    pub(crate) fn elsewhere(&self, partition: usize) -> Option<Redirect> {
        match self.served[partition] {
            true => None,
            false => Some(self.elsewhere_of(PartitionId::try_from(partition).expect("256"))),
        }
    }

    /// How new what is here of a partition is that another node writes, and whether a version is
    /// there; `None` if nobody may read it here.
    pub(crate) fn standing_of_member(
        &mut self,
        now_us: u64,
        partition: usize,
        read: MemberRead,
    ) -> Option<(Standing, bool)> {
        let number = PartitionId::try_from(partition).expect("256");
        let age_us = self.links.age_us(now_us, number)?;
        let state = self.links.partition(number)?;
        let Role::Member(member) = state.role() else {
            return None;
        };
        // It follows one that another has succeeded, as the plan knows.
        if member.epoch.generation() < self.plan.of(number).generation {
            return None;
        }
        let through = state.applied();
        let standing = Standing {
            age_us: age_us.unwrap_or(u64::MAX),
            through: Version {
                epoch: through.epoch,
                sequence: through.sequence,
            },
        };
        let holds_version = self.holds(partition, read.version_min);
        // No member is ever as new as that.
        if read.staleness_us_max > 0 {
            self.links.want(now_us, number, read.staleness_us_max);
        }
        Some((standing, holds_version))
    }

    /// Whether a version is of the past of a partition, and there.
    pub(crate) fn holds(&self, partition: usize, version: Version) -> bool {
        let number = PartitionId::try_from(partition).expect("256");
        let state = self.links.partition(number);
        let Version { epoch, sequence } = version;
        state.is_some_and(|it| it.holds(Position { epoch, sequence }))
    }

    /// The same of what concerns all partitions.
    pub(crate) fn elsewhere_of_any(&self) -> Option<Redirect> {
        if self.are_all_served {
            return None;
        }
        let mut all = self.links.partitions();
        let first = all.find(|&partition| !self.served[usize::from(partition)])?;
        Some(self.elsewhere_of(first))
    }

    #[cold]
    fn elsewhere_of(&self, partition: PartitionId) -> Redirect {
        let assignment = self.plan.of(partition);
        let promised = self
            .links
            .partition(partition)
            .map(|it| it.facts().promised);
        // A later one has been met, of which the plan does not know yet.
        let later = promised.filter(|it| it.generation() > assignment.generation);
        let (primary, generation) = match later {
            Some(epoch) => (epoch.node(), epoch.generation()),
            None => (assignment.primary, assignment.generation),
        };
        Redirect {
            partition,
            primary,
            generation,
            me: self.me,
            clients: self.plan.clients_of(primary).into(),
        }
    }

    pub(crate) fn are_all_served(&self) -> bool {
        self.are_all_served
    }

    /// Why settings of a keyspace cannot be told or changed here, if they cannot.
    pub(crate) fn refuses_settings(
        &self,
        action: &Action,
        level: AckLevel,
    ) -> Option<(Status, String)> {
        // Nobody waits for the members of all partitions.
        if level == AckLevel::Replica {
            let text = "keyspaces have no ack level replica: ask for them at level disk";
            return Some((Status::Unsupported, text.into()));
        }
        if *action == Action::List {
            return None;
        }
        if let Some(elsewhere) = self.elsewhere_of_any() {
            return Some((elsewhere.status(), elsewhere.to_string()));
        }
        let mut all = self.plan.partitions.iter();
        if all.any(|assignment| assignment.primary != self.me) {
            let text = "settings of keyspaces are changed on a node that writes all partitions";
            return Some((Status::Unsupported, text.into()));
        }
        match action {
            Action::Create(settings) | Action::Set(settings)
                if settings.versions > 0 || settings.retention_ms > 0 =>
            {
                let text = "the nodes of a cluster do not keep versions yet";
                Some((Status::Unsupported, text.into()))
            }
            _ => None,
        }
    }

    /// Whether level `replica` has somebody to wait for.
    pub(crate) fn has_sync(&self, partition: usize) -> bool {
        let members = &self.plan.partitions[partition].members;
        let mut others = members.iter().filter(|(node, _)| *node != self.me);
        others.any(|(_, membership)| *membership == Membership::Sync)
    }

    fn waits_for(&self, partition: PartitionId) -> Vec<u8> {
        let members = self.plan.of(partition).members.iter();
        let sync = members.filter(|(_, membership)| *membership == Membership::Sync);
        let mut nodes: Vec<u8> = sync.map(|&(node, _)| node).collect();
        nodes.sort_unstable();
        nodes
    }

    pub(crate) fn received(
        &self,
        partition: PartitionId,
    ) -> impl Iterator<Item = Option<Lsn>> + '_ {
        self.links.received(partition)
    }

    /// Partitions that this node writes no more, since the last turn.
    pub(crate) fn deposed(&self) -> &[PartitionId] {
        &self.deposed
    }

    pub(crate) fn replica_timeout_us(&self) -> u64 {
        self.replica_timeout_us
    }

    pub(crate) fn is_reading(&self, file: FileId) -> bool {
        self.links.is_reading(file)
    }

    /// Whether another turn can do more, whatever ends until then.
    pub(crate) fn deadline_us(&self, now_us: u64) -> Option<u64> {
        match self.is_due {
            true => Some(now_us),
            false => self.links.deadline_us(now_us),
        }
    }

    /// Before the log is pumped.
    pub(crate) fn take_in<P: Blocks<Block = B>>(
        &mut self,
        now_us: u64,
        store: &mut Store<P>,
        hash: &KeyHash,
        io: &mut Vec<Io<B>>,
        outbox: &mut LinkOutbox,
    ) {
        let time = time(now_us, store);
        self.links.follow_commits(store);
        self.begin(time, store, outbox);
        self.links.take_in(time, store, &|key| hash.of(key), io);
        self.look(store);
    }

    /// Behind the pump. `is_waited_for` tells of a partition whether replies in it wait at level
    /// `replica`.
    pub(crate) fn give_out<P: Blocks<Block = B>>(
        &mut self,
        now_us: u64,
        store: &mut Store<P>,
        hash: &KeyHash,
        is_waited_for: impl Fn(PartitionId) -> bool,
        io: &mut Vec<Io<B>>,
        outbox: &mut LinkOutbox,
    ) {
        let time = time(now_us, store);
        self.links.follow_commits(store);
        self.links.answer_first(is_waited_for);
        self.links.give_out(time, store, &|key| hash.of(key), io);
        self.look(store);
        self.deposed.clear();
        let mut lost: BTreeMap<Epoch, Vec<PartitionId>> = BTreeMap::new();
        while let Some(action) = self.links.take_action() {
            if let LinkAction::Deposed { partition, epoch } = action {
                lost.entry(epoch).or_default().push(partition);
                self.deposed.push(partition);
            } else {
                self.act(action, outbox);
            }
        }
        outbox.told.extend(lost.iter().map(|(epoch, partitions)| {
            let (which, node) = (which_of(partitions), epoch.node());
            format!("{which}: written by node {node} since epoch {epoch}, and not by this one")
        }));
        outbox.sendable.extend(self.links.sendable());
        self.is_due = self.links.take_due();
    }

    /// Which partitions are answered for here.
    fn look<P: Blocks<Block = B>>(&mut self, store: &Store<P>) {
        self.are_all_served = true;
        for (partition, may_write) in self.links.writable(store) {
            let is_served = may_write && self.plan.of(partition).primary == self.me;
            self.served[usize::from(partition)] = is_served;
            self.are_all_served &= is_served;
        }
    }

    /// Begins what is this node's to write.
    fn begin<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        store: &mut Store<P>,
        outbox: &mut LinkOutbox,
    ) {
        let mut refused: BTreeMap<String, Vec<PartitionId>> = BTreeMap::new();
        while let Some(next) = self.to_begin.next() {
            let (partition, generation) = (next.partition, next.generation);
            let state = self.links.partition(partition).expect("the shard's");
            let is_empty = promotions::is_empty(state);
            let is_forced = next.is_forced(self.me, state, self.plan.of(partition));
            let begun = self
                .links
                .begin(time, partition, generation, is_forced, store);
            let Some(begun) = begun else {
                // The log has no room for it now.
                break;
            };
            self.to_begin.remove(next);
            let assignment = self.plan.of(partition);
            // A partition may also be handed over here before the plan is read that says so.
            let is_before = generation < assignment.generation && assignment.is_handed_over;
            if begun.is_ok() && assignment.primary != self.me && is_before {
                let epoch = assignment.handed_over();
                self.links.hand_over(partition, assignment.primary, epoch);
            }
            if let Err(cause) = begun {
                let is_accepted = assignment.is_incomplete_accepted;
                let cause = format!(
                    "in generation {generation}: {}",
                    promotions::cause_text(cause, is_empty, is_accepted)
                );
                refused.entry(cause).or_default().push(partition);
            }
        }
        let told = refused
            .iter()
            .map(|(cause, partitions)| format!("{}: not begun {cause}", which_of(partitions)));
        outbox.told.extend(told);
    }

    fn act(&mut self, action: LinkAction, outbox: &mut LinkOutbox) {
        match action {
            LinkAction::End {
                link,
                refusal,
                output,
            } => {
                outbox
                    .told
                    .push(format!("a link is ended: {}", refusal.text));
                outbox.ended.push((link, output));
            }
            LinkAction::Ended { link, refusal } => {
                let told = [RefusalCode::GoneBack, RefusalCode::Incarnation];
                self.has_gone_back |= told.contains(&refusal.code);
                outbox.told.push(format!(
                    "a link is ended by the other node: {}",
                    refusal.text
                ));
                outbox.ended.push((link, Vec::new()));
            }
            LinkAction::Deposed { .. } => unreachable!("the caller takes them together"),
            LinkAction::Keep { partition, record } => outbox.kept.push((partition, record)),
            LinkAction::Sync { partition, link } => outbox.to_sync.push((partition, link)),
            // People have chosen another node since.
            LinkAction::Begin { partition, epoch }
                if epoch.generation() < self.plan.of(partition).generation
                    && !self.plan.of(partition).is_handed_over => {}
            LinkAction::Begin { partition, epoch } => {
                // It may come by two links.
                self.to_begin
                    .add(Promotion::of(partition, epoch.generation()));
            }
            LinkAction::Lacks { partition, node } => outbox.told.push(format!(
                "partition {partition}: node {node} hands it over, and not all of it is here: nobody writes it until the file names who is to (penstock cluster promote)"
            )),
            LinkAction::Room { is_there: false } => outbox.told.push(
                "the log is full: what is shipped here is not applied until it has room (disk_bytes_max, or the disk)".into(),
            ),
            LinkAction::Room { is_there: true } => outbox
                .told
                .push("the log has room again: what is shipped here is applied".into()),
            LinkAction::Damaged { file, offset } => outbox.told.push(format!(
                "{:08}.seg cannot be read at offset {offset} for a link",
                file.0
            )),
        }
    }

    /// Whether this node must not go on.
    pub(crate) fn has_gone_back(&self) -> bool {
        self.has_gone_back
    }

    pub(crate) fn look_at_links(&self) -> &LinkSet<B> {
        &self.links
    }

    /// The number of this node, and where clients find each.
    pub(crate) fn nodes(&self) -> (u8, &[(u8, String)]) {
        (self.me, &self.plan.clients)
    }

    /// Replaces what was known.
    pub(crate) fn look_around<P: Blocks<Block = B>>(
        &mut self,
        now_us: u64,
        store: &Store<P>,
        status: &mut ReplicationStatus,
    ) {
        self.note_durable(store);
        self.links.forget_times();
        status.partitions.clear();
        status.partitions.extend(self.partitions());
        status.peers.clear();
        status.peers.extend(self.peers(now_us));
    }

    /// What is known of the nodes that ship to it, or that it ships to.
    pub(crate) fn peers(&self, now_us: u64) -> impl Iterator<Item = PeerStatus> + '_ {
        let nodes = self.plan.clients.iter().map(|(node, _)| *node);
        nodes.flat_map(move |node| {
            let to = self.peer_to(now_us, node);
            to.into_iter().chain(self.peer_from(now_us, node))
        })
    }

    fn note_durable<P: Blocks<Block = B>>(&mut self, store: &Store<P>) {
        if self.appended.0 > store.log().durable() {
            return;
        }
        self.durable = self.appended.1;
        self.appended.0 = store.log().appended();
        for partition in self.links.partitions() {
            let state = self.links.partition(partition).expect("the shard's");
            self.appended.1[usize::from(partition)] = state.applied().sequence;
        }
        if self.appended.0 <= store.log().durable() {
            self.durable = self.appended.1;
        }
    }

    /// What is known of a node to which this one ships.
    fn peer_to(&self, now_us: u64, node: u8) -> Option<PeerStatus> {
        let mut peer = None;
        for partition in self.links.partitions() {
            let assignment = self.plan.of(partition);
            let duty = assignment.duty(node);
            if assignment.primary != self.me || !matches!(duty, Duty::Member(_)) {
                continue;
            }
            let state = self.links.state_to(node, partition);
            join(&mut peer, node, duty, state);
        }
        let peer = peer?;
        Some(PeerStatus {
            lag: self.links.lag(now_us, node, Confirmed::Received),
            durable_lag: self.links.lag(now_us, node, Confirmed::Durable),
            traffic: self.links.traffic(node, true),
            ..peer
        })
    }

    /// What is known of a node that ships to this one.
    fn peer_from(&self, now_us: u64, node: u8) -> Option<PeerStatus> {
        let mut peer = None;
        let mut staleness_us = Some(0);
        for partition in self.links.partitions() {
            let assignment = self.plan.of(partition);
            let is_member = matches!(assignment.duty(self.me), Duty::Member(_));
            if assignment.primary == node && is_member {
                let state = self.links.state_from(node, partition);
                join(&mut peer, node, Duty::Primary, state);
                let age_us = self.links.age_us(now_us, partition).flatten();
                staleness_us = age_us.and_then(|age_us| Some(age_us.max(staleness_us?)));
            }
        }
        let peer = peer?;
        Some(PeerStatus {
            staleness_us,
            clock_ahead_ms: self.links.clock_ahead_ms(node),
            traffic: self.links.traffic(node, false),
            ..peer
        })
    }

    pub(crate) fn partitions(&self) -> impl Iterator<Item = PartitionStatus> + '_ {
        let all = self.links.partitions();
        all.map(|partition| self.partition(partition).expect("the shard's"))
    }

    /// The same of one; none if it is not the shard's.
    pub(crate) fn partition(&self, partition: PartitionId) -> Option<PartitionStatus> {
        let state = self.links.partition(partition)?;
        let facts = state.facts();
        let assignment = self.plan.of(partition);
        let role = match state.role() {
            Role::Primary { .. } if self.served[usize::from(partition)] => PartitionRole::Primary,
            Role::Primary { epoch, .. } if epoch.generation() < assignment.generation => {
                PartitionRole::Draining
            }
            // Handed over before the plan was read that names it, or the first record is not
            // durable.
            Role::Primary { .. } => PartitionRole::Beginning,
            _ if facts.scan_from.is_some() => PartitionRole::Scanning,
            _ if facts.rewind_from.is_some() => PartitionRole::Rewinding,
            Role::Member(_) if state.is_readable() => PartitionRole::Following,
            Role::Member(_) => PartitionRole::CatchingUp,
            Role::Idle if state.has_followed() => PartitionRole::Followed,
            Role::Idle => PartitionRole::Idle,
        };
        Some(PartitionStatus {
            partition,
            role,
            duty: assignment.duty(self.me),
            epoch: facts.promised,
            applied: state.applied().sequence,
            received: state.received().sequence,
            was_last: state.was_last(self.me),
            waits_for: match role {
                PartitionRole::Primary => self.waits_for(partition),
                _ => Vec::new(),
            },
            durable: self.durable[usize::from(partition)],
        })
    }
}

/// One more partition of a node. One that is in the sync set of some and learner of others is told
/// as the former.
fn join(peer: &mut Option<PeerStatus>, node: u8, duty: Duty, state: LinkState) {
    let sync = Duty::Member(Membership::Sync);
    *peer = Some(match *peer {
        None => PeerStatus {
            node,
            duty,
            partitions: 1,
            state,
            lag: None,
            durable_lag: None,
            staleness_us: None,
            clock_ahead_ms: None,
            traffic: Default::default(),
        },
        Some(before) => PeerStatus {
            duty: if before.duty == sync { sync } else { duty },
            partitions: before.partitions + 1,
            state: before.state.min(state),
            ..before
        },
    });
}

fn which_of(partitions: &[PartitionId]) -> String {
    match partitions {
        [one] => format!("partition {one}"),
        all => format!("partition {} and {} others", all[0], all.len() - 1),
    }
}
