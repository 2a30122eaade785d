//! The part of one shard in a cluster: what its node is to write, and its links.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use penstock_net::keyspace::Action;
use penstock_net::level::AckLevel;
use penstock_net::limits::FEW_KEYS_MAX;
use penstock_net::link::frame::{LINK_VERSION_LEVEL_ALL, LINK_VERSION_MEMBERS};
use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::link::{Membership, PartitionSet, Position, RefusalCode};
use penstock_net::reply::Standing;
use penstock_net::request::{MemberRead, Version};
use penstock_net::status::Status;
use penstock_storage::io::{Block, Blocks, Io};
use penstock_storage::place::{FileId, Lsn};
use penstock_storage::store::Store;
use penstock_storage::version::{SLOTS, partition_of};

use crate::execution::verbs::KeyHash;
use crate::keyspaces::Writer as SettingsWriter;
use crate::replication::handshake::Peer;
use crate::replication::link_set::{LinkAction, LinkSet, LinkTime};
use crate::replication::planted::{Bug, is_planted};
use crate::replication::{Epoch, Needed, Partition, PartitionId, PeerStatus, Role, SyncSet};

use super::deferred::DeferredPlan;
use super::durable_sequences::DurableSequences;
use super::leases::{LeaseCounters, Leases};
use super::observer::Observer;
use super::offers::NodeOffers;
use super::plan::{Assignment, Plan};
use super::promotions::{self, Promotion, Promotions};
use super::proofs::Proofs;
use super::redirect::Redirect;
use super::served::ServedPartitions;
use super::standings::Standings;
use super::status::{PartitionStatus, ReplicationStatus};
use super::{ClusterConfig, LinkOutbox};

/// The cluster's part of a shard.
pub(crate) struct ClusterMember<B> {
    links: LinkSet<B>,
    plan: Arc<Plan>,
    deferred: DeferredPlan,
    me: u8,
    /// Partitions of this shard that its node is to begin.
    promotions: Promotions,
    /// Partitions that no other node may write next by the plan.
    alone: PartitionSet,
    served: ServedPartitions,
    leases: Leases,
    offers: Arc<NodeOffers>,
    proofs: Proofs,
    /// Partitions that this node writes no more since the last turn, or not in the epoch before.
    deposed: Vec<PartitionId>,
    /// Partitions that this node wrote and has begun anew, in a later generation, in this turn, or
    /// that it may have answered for behind a lease.
    renewed: Vec<PartitionId>,
    replica_timeout_us: u64,
    is_due: bool,
    /// Another node says that this one has an older copy of its directory.
    has_gone_back: bool,
    durable: DurableSequences,
    /// The time of the store when this node began to write each partition, in unix milliseconds.
    began_ms: BTreeMap<PartitionId, u64>,
}

fn time<P: Blocks>(now_us: u64, store: &Store<P>) -> LinkTime {
    LinkTime {
        now_us,
        time_ms: store.data().time_ms(),
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
        let (me, shard) = (config.links.me.node, config.links.me.shard);
        let mut links = LinkSet::new(config.links, store).map_err(|note| note.partition)?;
        let mut promotions = Promotions::default();
        let mut alone = PartitionSet::default();
        let mut proofs = Proofs::default();
        let appended = store.log().appended();
        for partition in 0..LINK_PARTITIONS {
            if links.partition(partition).is_none() {
                continue;
            }
            let assignment = config.plan.of(partition);
            proofs.place(partition, None, assignment, appended);
            links.place(partition, assignment.others(me));
            alone.set(partition, config.plan.leaves_alone(partition, me));
            let state = links.partition(partition).expect("just seen");
            let promised = state.facts().promised;
            let has_begun = (promised.generation(), promised.node()) == (assignment.generation, me);
            if assignment.primary == me && (has_begun || !assignment.is_handed_over) {
                promotions.add(Promotion {
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
                    promotions.add(Promotion::of(partition, before));
                } else if promised == assignment.handed_over() {
                    links.hand_over(partition, assignment.primary, promised);
                }
            }
        }
        Ok(ClusterMember {
            links,
            plan: config.plan,
            deferred: DeferredPlan::default(),
            me,
            promotions,
            alone,
            served: ServedPartitions::none(),
            leases: Leases::new(config.leases, shard),
            offers: config.offers,
            proofs,
            deposed: Vec::new(),
            renewed: Vec::new(),
            replica_timeout_us: config.replica_timeout_us,
            is_due: false,
            has_gone_back: false,
            durable: DurableSequences::none(),
            began_ms: BTreeMap::new(),
        })
    }

    /// Whether a plan is to wait. It hands partitions over, and their new primaries have not asked
    /// for their leases yet.
    pub(crate) fn defer(&mut self, now_us: u64, plan: &Arc<Plan>) -> bool {
        let (table, served) = (&self.leases.table, &self.served);
        let plans = (&*self.plan, plan);
        self.deferred
            .defer(now_us, plans, table, |it| served.has(it.into()))
    }

    /// A plan that has waited.
    pub(crate) fn take_deferred(&mut self, now_us: u64) -> Option<Arc<Plan>> {
        self.deferred.take(now_us, &self.leases.table)
    }

    /// The plan has changed. What this node is to write is begun in the next turns; what it is not
    /// to write any more it answers no more, whether the other node has begun or not.
    pub(crate) fn replan<P: Blocks<Block = B>>(
        &mut self,
        now_us: u64,
        plan: Arc<Plan>,
        store: &Store<P>,
    ) {
        let partitions: Vec<PartitionId> = self.links.partitions().collect();
        for partition in partitions {
            let (before, now) = (self.plan.of(partition), plan.of(partition));
            if before == now {
                continue;
            }
            let state = self.links.partition(partition).expect("the shard's");
            let has_written = matches!(state.role(), Role::Primary { .. });
            let hands_over = now.may_be_handed_over_by(self.me, state.role());
            let promised = state.facts().promised;
            self.links.place(partition, now.others(self.me));
            let is_alone = plan.leaves_alone(partition, self.me);
            let stays_so = self.alone.has(partition) && is_planted(Bug::EmptySetOfOldPlan);
            self.alone.set(partition, is_alone || stays_so);
            let appended = store.log().appended();
            self.proofs.place(partition, Some(before), now, appended);
            let is_same = (before.primary, before.generation) == (now.primary, now.generation);
            let accepts = |it: &Assignment| (it.is_loss_accepted, it.is_incomplete_accepted);
            if is_same && accepts(before) == accepts(now) {
                continue;
            }
            // It may have been handed over in the turn before, and not have begun yet.
            let is_due = |it: &Promotion| it.generation == now.generation && now.primary == self.me;
            // What was handed over here in between is handed on.
            let goes_on = now.is_handed_over && now.primary != self.me;
            self.promotions
                .retain(|it| it.partition != partition || is_due(it) || goes_on);
            if !is_same {
                self.links.cancel_handover(partition, !now.is_handed_over);
            }
            let is_elsewhere = now.primary != self.me && !hands_over;
            self.links.supersede(partition, is_elsewhere);
            // It was told to begin, perhaps before a start.
            let has_promised =
                (promised.generation(), promised.node()) == (now.generation, self.me);
            let has_begun = has_written && has_promised;
            if now.primary != self.me {
                if hands_over {
                    self.links
                        .hand_over(partition, now.primary, now.handed_over());
                }
            } else if !has_begun && (!now.is_handed_over || has_promised) {
                // A node that was started for a new cluster may have nothing yet of what another
                // one writes.
                self.promotions.add(Promotion {
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
        self.read_leases(now_us);
        self.leases.read_soon();
        let (plan, me, leases) = (&self.plan, self.me, &self.leases);
        let may_write = |partition| {
            plan.of(partition).primary == me && leases.is_there(now_us, plan, partition)
        };
        self.served.restrict(self.links.partitions(), may_write);
    }

    /// A step begins. What the leases of the node are over for is answered no more.
    #[inline]
    pub(crate) fn steps<P: Blocks<Block = B>>(
        &mut self,
        now_us: u64,
        store: &Store<P>,
        may_execute: bool,
    ) {
        if self.leases.is_due(now_us) {
            self.note_served(now_us, store);
        }
        self.leases.steps(may_execute && self.plan.is_leased);
    }

    /// Whether something may have run under leases since [`ClusterMember::check_leases`].
    #[inline]
    pub(crate) fn is_unchecked(&self) -> bool {
        self.leases.is_unchecked()
    }

    /// Answers for other shards leave behind the next check.
    pub(crate) fn owe_check(&mut self) {
        self.leases.owe();
    }

    /// Whether all that has run since the last call ran under its lease: `now_us` was read behind
    /// it. If not, replies at level `replica` that wait where a lease is not there are given up.
    pub(crate) fn check_leases<P: Blocks<Block = B>>(
        &mut self,
        now_us: u64,
        store: &Store<P>,
    ) -> bool {
        if !self.leases.cover(now_us) {
            self.read_leases(now_us);
            self.note_served(now_us, store);
        }
        let are_covered = self.leases.cover(now_us);
        self.leases.checked();
        if !are_covered {
            let leases = &self.leases;
            let lapsed = self.links.partitions().filter(|&it| !leases.was_there(it));
            self.renewed.extend(lapsed);
        }
        are_covered
    }

    #[cold]
    fn read_leases(&mut self, now_us: u64) {
        let partitions = self.links.partitions();
        self.leases.read(now_us, (&self.plan, self.me), partitions);
    }

    /// A peer has proven itself on a new link.
    pub(crate) fn meet(&self, peer: &Peer) {
        self.offers.note(peer.node, peer.link_version);
    }

    pub(crate) fn links(&mut self) -> &mut LinkSet<B> {
        &mut self.links
    }

    /// Whether operations on this partition are this node's to answer.
    #[inline]
    pub(crate) fn serves(&self, partition: usize) -> bool {
        self.served.has(partition)
    }

    /// Why an operation on this partition is not this node's to answer, if it is not.
    #[inline]
    pub(crate) fn elsewhere(&self, partition: usize) -> Option<Redirect> {
        match self.serves(partition) {
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

    /// The last slot up to `last` for which this node answers, from `slot` on without a gap.
    ///
    /// # Errors
    /// Why `slot` is not this node's to answer.
    pub(crate) fn last_served(&self, slot: u16, last: u16) -> Result<u16, Redirect> {
        let partition = partition_of(slot);
        if let Some(elsewhere) = self.elsewhere(partition) {
            return Err(elsewhere);
        }
        let slots = SLOTS / LINK_PARTITIONS;
        let others = partition + 1..=partition_of(last);
        let mut gaps = others.filter(|partition| !self.served.has(*partition));
        Ok(gaps
            .next()
            .map_or(last, |gap| u16::try_from(gap).expect("256") * slots - 1))
    }

    #[cold]
    fn elsewhere_of(&self, partition: PartitionId) -> Redirect {
        let assignment = self.plan.of(partition);
        let promised = self
            .links
            .partition(partition)
            .map(|it| it.facts().promised);
        // A later generation has been met, and the plan does not know it yet.
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
            lacks_lease: self.plan.is_leased && !self.leases.was_there(partition),
        }
    }

    /// Who logs settings of keyspaces in a partition.
    pub(crate) fn writer_of(&self, partition: usize) -> SettingsWriter {
        let assignment = &self.plan.partitions[partition];
        match self.served.has(partition) {
            true => SettingsWriter::Here,
            false if self.plan.is_assigned(assignment) => SettingsWriter::NotHere,
            false => SettingsWriter::Nobody,
        }
    }

    /// A number that rises when this node answers for other partitions of the shard.
    pub(crate) fn served_changes(&self) -> u64 {
        self.served.changes()
    }

    /// Whether a change of a keyspace waits for other nodes: those that write partitions, and those
    /// that lend.
    pub(crate) fn waits_for_others(&self) -> bool {
        let mut all = self.plan.partitions.iter();
        let is_elsewhere = |it: &Assignment| it.primary != self.me && self.plan.is_assigned(it);
        self.plan.is_leased || all.any(is_elsewhere)
    }

    /// Why an APPLY of more than few keys of this partition does not run here, if it does not: a
    /// member has no room yet that is sure to hold what all keys of a record of many parts hold,
    /// when they are on its disk.
    pub(crate) fn refuses_many_keys(&self, partition: usize) -> Option<String> {
        if self.elsewhere(partition).is_some() {
            return None;
        }
        Some(format!(
            "in a cluster an APPLY has at most {FEW_KEYS_MAX} keys: a node alone takes more"
        ))
    }

    /// Why no key of this partition is given members here, if it is not: another node could not
    /// read the record.
    pub(crate) fn refuses_members(&self, partition: usize) -> Option<String> {
        if self.elsewhere(partition).is_some() {
            return None;
        }
        let node = self
            .offers
            .lacking(&self.plan, self.me, LINK_VERSION_MEMBERS)?;
        Some(format!(
            "no key has members, such as the fields of a hash, before all nodes of the plan \
             understand them: node {node} has not offered that since this node started"
        ))
    }

    /// Why settings of a keyspace cannot be told or changed here, if they cannot, apart from the
    /// node that writes partition 0: [`ClusterMember::elsewhere`].
    pub(crate) fn refuses_settings(
        &self,
        action: &Action,
        level: AckLevel,
    ) -> Option<(Status, String)> {
        // Nobody waits for the members of all partitions.
        if level.waits_for_members() {
            let text = format!(
                "keyspaces have no ack level {}: ask for them at level disk",
                level.name()
            );
            return Some((Status::Unsupported, text));
        }
        if *action == Action::List {
            return None;
        }
        if let Action::Set(settings) | Action::Create(settings) = action
            && settings.needs_feature()
            // Members may have no link with each other: they send a client on.
            && self.elsewhere(0).is_none()
            && let Some(node) =
                self.offers
                    .lacking(&self.plan, self.me, LINK_VERSION_LEVEL_ALL)
        {
            let text = format!(
                "ack level all and a default level stand in no keyspace before all nodes of the \
                 plan understand them: node {node} has not offered that since this node started"
            );
            return Some((Status::Unsupported, text));
        }
        let mut all = (0..).zip(&self.plan.partitions);
        let is_here = |it: &Assignment| {
            it.primary == self.me
                || it.members.iter().any(|(node, _)| *node == self.me)
                || !self.plan.is_assigned(it)
        };
        if let Some((partition, _)) = all.find(|(_, assignment)| !is_here(assignment)) {
            let partition: PartitionId = partition;
            let text = format!(
                "settings of keyspaces are changed at a node that holds all partitions: this one \
                 does not hold partition {partition}"
            );
            return Some((Status::Unsupported, text));
        }
        None
    }

    /// Why this partition has too few members for what is needed.
    pub(crate) fn lacks_members(&self, partition: usize, needed: Needed) -> Option<String> {
        let members = &self.plan.partitions[partition].members;
        let others = members.iter().filter(|(node, _)| *node != self.me);
        let sync = others.filter(|(_, membership)| *membership == Membership::Sync);
        let (count, min_sync) = (sync.count(), self.plan.min_sync);
        match needed {
            Needed::All if count == 0 => Some(format!(
                "nothing was executed: no other node is in the sync set of partition {partition}, \
                 so nobody but this one would have it"
            )),
            Needed::Every if count < min_sync => Some(format!(
                "nothing was executed: {count} other nodes are in the sync set of partition \
                 {partition}, and level all needs min_sync {min_sync} of the plan"
            )),
            _ => None,
        }
    }

    /// When this node began to write a partition, in unix milliseconds of the store.
    pub(crate) fn began_ms(&self, partition: usize) -> u64 {
        let number = PartitionId::try_from(partition).expect("256");
        self.began_ms.get(&number).copied().unwrap_or_default()
    }

    /// Whom the answer to an operation waits for at this level, besides the disk of this node.
    #[inline]
    pub(crate) fn needed(&self, level: AckLevel, is_read: bool) -> Option<Needed> {
        match level {
            AckLevel::Replica => Some(Needed::All),
            AckLevel::All => Some(Needed::Every),
            AckLevel::Disk if self.plan.min_sync > 0 && !is_read => {
                Some(Needed::Some(self.plan.min_sync))
            }
            AckLevel::Disk | AckLevel::Interval | AckLevel::None => None,
        }
    }

    /// How far each node of the sync set has what this node writes of a partition; `None` for one
    /// that does not count. Nobody counts before the generation of the plan has begun: the sync set
    /// is that of this generation, and may have no node of the one before.
    fn received(&self, partition: PartitionId) -> impl Iterator<Item = Option<Lsn>> + '_ {
        let is_outdated = self.is_outdated(partition);
        let received = self.links.received(partition);
        received.map(move |lsn| lsn.filter(|_| !is_outdated))
    }

    /// Whom replies wait for in a partition.
    pub(crate) fn sync_set(
        &self,
        partition: PartitionId,
    ) -> SyncSet<impl Iterator<Item = Option<Lsn>> + '_> {
        SyncSet {
            received: self.received(partition),
            is_alone: self.alone.has(partition) && !self.is_outdated(partition)
                || is_planted(Bug::AllIsDisk),
            min_sync: self.plan.min_sync,
        }
    }

    /// Whether this node writes a partition in an earlier generation than the one that it is to
    /// begin.
    fn is_outdated(&self, partition: PartitionId) -> bool {
        let role = self.links.partition(partition).map(Partition::role);
        let assignment = self.plan.of(partition);
        matches!(role, Some(Role::Primary { epoch, .. })
            if assignment.primary == self.me && epoch.generation() < assignment.generation)
            && !is_planted(Bug::WaitsOutliveGeneration)
    }

    /// Partitions whose replies at level `replica` wait for nobody any more: those that this node
    /// writes no more since the last turn, and those that it has begun anew.
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
        let leased_us = self.plan.is_leased.then(|| self.leases.deadline_us());
        match self.is_due {
            true => Some(now_us),
            false => self
                .links
                .deadline_us(now_us)
                .into_iter()
                .chain(leased_us)
                .chain(self.deferred.deadline_us(now_us))
                .min(),
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
        self.note_served(now_us, store);
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
        self.note_served(now_us, store);
        self.deposed.clear();
        self.deposed.append(&mut self.renewed);
        // A partition may be deposed by several links in one turn.
        let mut lost: BTreeMap<Epoch, BTreeSet<PartitionId>> = BTreeMap::new();
        while let Some(action) = self.links.take_action() {
            if let LinkAction::Deposed { partition, epoch } = action {
                lost.entry(epoch).or_default().insert(partition);
                self.deposed.push(partition);
            } else {
                self.act(action, outbox);
            }
        }
        outbox
            .notices
            .extend(lost.iter().map(|(epoch, partitions)| {
                let partitions: Vec<PartitionId> = partitions.iter().copied().collect();
                let (which, node) = (which_of(&partitions), epoch.node());
                format!("{which}: written by node {node} since epoch {epoch}, and not by this one")
            }));
        outbox.sendable.extend(self.links.sendable());
        self.is_due = self.links.take_due();
        if self.plan.is_leased && self.leases.turns(now_us) {
            self.standings().publish(store);
        }
    }

    /// Notes which partitions are answered for here.
    fn note_served<P: Blocks<Block = B>>(&mut self, now_us: u64, store: &Store<P>) {
        if self.leases.is_due(now_us) {
            self.read_leases(now_us);
        }
        let stamp = self.links.writable_stamp(store);
        let stamp = stamp.map(|writable| (writable, self.leases.reads()));
        if self.served.is_of(stamp) {
            return;
        }
        let (plan, me, leases) = (&self.plan, self.me, &mut self.leases);
        let writable = self.links.writable(store);
        let served = &mut self.served;
        let mut lapses = 0;
        served.set(stamp, writable, |partition, may_write, was_served| {
            let may_write = may_write && plan.of(partition).primary == me;
            let is_there = leases.is_there(now_us, plan, partition);
            lapses += u64::from(was_served && may_write && !is_there);
            may_write && is_there
        });
        leases.lapsed(lapses);
    }

    /// What it tells of its partitions under leases.
    fn standings(&mut self) -> Standings<'_, B> {
        Standings {
            links: &self.links,
            plan: &self.plan,
            me: self.me,
            promotions: &self.promotions,
            proofs: &mut self.proofs,
            table: &self.leases.table,
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
        let mut forced = Vec::new();
        while let Some(next) = self.promotions.next() {
            let (partition, generation) = (next.partition, next.generation);
            let state = self.links.partition(partition).expect("the shard's");
            let is_empty = promotions::is_empty(state);
            let has_written = matches!(state.role(), Role::Primary { .. });
            let is_forced = next.is_forced(self.me, state, self.plan.of(partition));
            let begun = self
                .links
                .begin(time, partition, generation, is_forced, store);
            let Some(begun) = begun else {
                // The log has no room for it now.
                break;
            };
            self.promotions.remove(next);
            if begun.is_ok() {
                self.began_ms.insert(partition, time.time_ms);
            }
            if begun.is_ok() && is_forced && !is_empty {
                forced.push(partition);
            }
            if begun.is_ok() && has_written && !is_planted(Bug::WaitsOutliveGeneration) {
                self.renewed.push(partition);
            }
            let assignment = self.plan.of(partition);
            // A partition may also be handed over here before the plan is read that says so.
            let role = self.links.partition(partition).expect("the shard's").role();
            let is_before = generation < assignment.generation;
            let hands_over = is_before && assignment.may_be_handed_over_by(self.me, role);
            if begun.is_ok() && hands_over {
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
        if !forced.is_empty() {
            outbox.notices.push(format!(
                "{}: begun by accept_loss or accept_incomplete, so what was acknowledged at levels \
                 all and replica may be missing here",
                which_of(&forced)
            ));
        }
        let notices = refused
            .iter()
            .map(|(cause, partitions)| format!("{}: not begun {cause}", which_of(partitions)));
        outbox.notices.extend(notices);
    }

    fn act(&mut self, action: LinkAction, outbox: &mut LinkOutbox) {
        match action {
            LinkAction::End {
                link,
                refusal,
                output,
            } => {
                outbox
                    .notices
                    .push(format!("a link is ended: {}", refusal.text));
                outbox.ended.push((link, output));
            }
            LinkAction::Ended { link, refusal } => {
                let gone_back = [RefusalCode::GoneBack, RefusalCode::Incarnation];
                self.has_gone_back |= gone_back.contains(&refusal.code);
                outbox.notices.push(format!(
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
                let generation = epoch.generation();
                self.leases.table.note_handed_over(partition, generation);
                self.leases.read_soon();
                // It may come by two links.
                self.promotions.add(Promotion::of(partition, generation));
            }
            LinkAction::Lacks { partition, node } => outbox.notices.push(format!(
                "partition {partition}: node {node} hands it over, and not all of it is here: \
                 nobody writes it until the file names who is to (penstock cluster promote)"
            )),
            LinkAction::Room { is_there: false } => outbox.notices.push(
                "the log is full: what is shipped here is not applied until it has room \
                 (disk_bytes_max, or the disk)"
                    .into(),
            ),
            LinkAction::Room { is_there: true } => outbox
                .notices
                .push("the log has room again: what is shipped here is applied".into()),
            LinkAction::Unread { partition, unread } => {
                let whom = match partition {
                    Some(partition) => format!("partition {partition} cannot go on"),
                    None => "nothing more can be shipped by a link".into(),
                };
                outbox.notices.push(format!("{whom}: {unread}"));
            }
        }
    }

    /// Whether this node must not go on.
    pub(crate) fn has_gone_back(&self) -> bool {
        self.has_gone_back
    }

    pub(crate) fn link_set(&self) -> &LinkSet<B> {
        &self.links
    }

    /// What was counted of leases.
    pub(crate) fn lease_counters(&self) -> LeaseCounters {
        self.leases.counters()
    }

    /// The number of this node, and where clients find each.
    pub(crate) fn nodes(&self) -> (u8, &[(u8, String)]) {
        (self.me, &self.plan.clients)
    }

    /// Replaces what was known.
    pub(crate) fn write_status<P: Blocks<Block = B>>(
        &mut self,
        now_us: u64,
        store: &Store<P>,
        status: &mut ReplicationStatus,
    ) {
        let links = &self.links;
        let applied = |partition| {
            let state = links.partition(partition).expect("the shard's");
            (partition, state.applied().sequence)
        };
        self.durable.sample(store, links.partitions().map(applied));
        self.links.forget_times();
        status.partitions.clear();
        status.partitions.extend(self.partitions());
        status.peers.clear();
        status.peers.extend(self.peers(now_us));
    }

    /// The status of the nodes that ship to this one, or that it ships to.
    pub(crate) fn peers(&self, now_us: u64) -> impl Iterator<Item = PeerStatus> + '_ {
        self.observer().peers(now_us)
    }

    /// The status of the partitions of the shard.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = PartitionStatus> + '_ {
        let all = self.links.partitions();
        all.map(|partition| self.partition(partition).expect("the shard's"))
    }

    /// The status of a partition; none if it is not the shard's.
    pub(crate) fn partition(&self, partition: PartitionId) -> Option<PartitionStatus> {
        self.observer().partition(partition)
    }

    fn observer(&self) -> Observer<'_, B> {
        Observer {
            links: &self.links,
            plan: &self.plan,
            me: self.me,
            served: &self.served,
            durable: &self.durable,
        }
    }
}

/// The partitions in a sentence for people.
fn which_of(partitions: &[PartitionId]) -> String {
    match partitions {
        [one] => format!("partition {one}"),
        all => format!("partition {} and {} others", all[0], all.len() - 1),
    }
}
