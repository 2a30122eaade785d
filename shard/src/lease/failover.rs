//! What one node knows of the others, and what it decides by that.

use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::link::{Claim, Claims, Confirm, Heartbeat, PartitionSet};
use penstock_storage::if_planted;

use crate::replication::planted::{Bug, is_planted};

use super::decided::{Placing, Wish};
use super::hold_down::HoldDown;
use super::lease::Lease;
use super::lender::{Lender, Named};
use super::rules::LeaseRules;
use super::standing::Standing;
use super::table::LeaseTable;

const PARTITIONS: usize = LINK_PARTITIONS as usize;

/// What the plan says, as far as nodes decide by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverPlan {
    /// Its number: each change raises it.
    pub number: u64,
    /// For each partition, ascending.
    pub placings: Vec<Placing>,
    /// How long leases are.
    pub rules: LeaseRules,
    /// A removal leaves at least so many members.
    pub min_sync: usize,
    /// Nobody takes over, and nobody enters a sync set.
    pub is_paused: bool,
    /// Nodes that stay learners unless a person says otherwise.
    pub stay_learners: Vec<u8>,
}

/// The heartbeats of another node.
#[derive(Debug)]
struct PeerHeartbeats {
    node: u8,
    /// The newest one, and when it was read.
    number: u64,
    read_us: u64,
    /// When the newest one of this node was sent that it has confirmed.
    confirmed_us: u64,
    /// Since when it has confirmed without a gap.
    steady_us: u64,
    /// The partitions that it has named. It goes by leases there.
    named: PartitionSet,
    sequences: Box<[u32; PARTITIONS]>,
}

/// One node of a cluster that decides by itself.
#[derive(Debug)]
pub struct Failover {
    me: u8,
    plan: FailoverPlan,
    /// The first plan that has had failover since it was off; `None` while it is off.
    leased_from: Option<u64>,
    /// The partitions that this node and another one hold.
    shared: Vec<u16>,
    lease: Lease,
    lender: Lender,
    peers: Vec<PeerHeartbeats>,
    standings: Vec<Standing>,
    /// Since when each partition is claimed and its members are the present ones.
    since_us: Vec<u64>,
    partitions: HoldDown,
    members: HoldDown,
    is_swapping: bool,
    /// How often what this node claims may have changed.
    claim_changes: u64,
    /// The generation in which each partition was handed over here last.
    handed_over: Box<[u32; PARTITIONS]>,
    /// Who wrote each partition before the plan had it handed over; 0: that was not seen.
    handed_by: Box<[u8; PARTITIONS]>,
}

impl Failover {
    /// A node that starts. `now_us` is of its begin, before it has sent or read anything.
    ///
    /// # Panics
    /// If the plan does not place every partition.
    #[must_use]
    pub fn new(now_us: u64, me: u8, plan: FailoverPlan) -> Self {
        assert_eq!(
            plan.placings.len(),
            PARTITIONS,
            "a plan places every partition"
        );
        let rules = plan.rules;
        Failover {
            me,
            shared: shared(me, &plan),
            plan,
            leased_from: Some(0),
            lease: Lease::new(rules),
            lender: Lender::new(now_us, rules),
            peers: Vec::new(),
            standings: vec![Standing::default(); PARTITIONS],
            since_us: vec![now_us; PARTITIONS],
            partitions: HoldDown::default(),
            members: HoldDown::default(),
            is_swapping: false,
            claim_changes: 0,
            handed_over: Box::new([0; PARTITIONS]),
            handed_by: Box::new([0; PARTITIONS]),
        }
    }

    /// The plan that is in force here.
    #[must_use]
    pub fn plan(&self) -> &FailoverPlan {
        &self.plan
    }

    /// Another plan is in force. One that is not behind the present one changes nothing.
    pub fn take_plan(&mut self, now_us: u64, plan: FailoverPlan) {
        let is_alone = is_planted(Bug::RemovedLate) || is_planted(Bug::SwapAssumedFailed);
        if plan.number <= self.plan.number && !is_alone {
            return;
        }
        let mut removed: Vec<u8> = Vec::new();
        let both = self.plan.placings.iter().zip(&plan.placings);
        for ((before, now), at) in both.zip(0u8..=255) {
            if before == now {
                continue;
            }
            self.since_us[usize::from(at)] = now_us;
            let (old, new) = (&before.assignment, &now.assignment);
            if old.primary != new.primary {
                if !new.is_handed_over {
                    self.partitions.changed(now_us, at);
                }
                self.handed_by[usize::from(at)] = old.primary;
            }
            removed.extend(before.sync().filter(|&node| now.is_learner(node)));
        }
        removed.sort_unstable();
        removed.dedup();
        for node in removed {
            self.members.changed(now_us, node);
        }
        self.leased_from.get_or_insert(plan.number);
        self.shared = shared(self.me, &plan);
        self.lease.set_rules(plan.rules);
        self.lender.set_rules(plan.rules);
        // A swap against the plan before can only fail now, or is what made this plan. A node that
        // took over first needs the lease of this one at once, or removes it.
        self.lender.release();
        self.claim_changes += 1;
        self.plan = plan;
    }

    /// The plan in force has no failover any more. Who has gone by leases need not do so when a
    /// later plan has failover again: another node may read that plan later than this one.
    pub fn turn_off(&mut self) {
        self.leased_from = None;
        for peer in &mut self.peers {
            peer.named = PartitionSet::none();
        }
    }

    /// What a shard says of one of its partitions.
    pub fn note(&mut self, now_us: u64, partition: u16, standing: Standing) {
        let at = usize::from(partition);
        let is_vouched = |it: &Standing| it.is_turning && (it.is_able || it.is_awaiting);
        let (was, is) = (is_vouched(&self.standings[at]), is_vouched(&standing));
        self.claim_changes += u64::from(was != is);
        if !was && is {
            self.since_us[at] = now_us;
        }
        self.standings[at] = standing;
    }

    /// Notes what the shards of this node have told. `shard_of` is the shard of a partition.
    pub fn note_all(&mut self, now_us: u64, table: &LeaseTable, shard_of: impl Fn(u16) -> u16) {
        for at in 0..self.shared.len() {
            let partition = self.shared[at];
            let turned_us = table.turned_us(shard_of(partition));
            let is_turning = turned_us > 0 && now_us <= turned_us + LeaseRules::STANDSTILL_US;
            self.note(now_us, partition, table.standing(partition, is_turning));
            let generation = table.handed_over(partition);
            let before = &mut self.handed_over[usize::from(partition)];
            if std::mem::replace(before, generation) != generation {
                self.handed_over(partition, generation);
            }
        }
    }

    /// Tells the shards of this node until when they may serve each partition, and from when on.
    /// To be called under the lock of this value: before the CONFIRM leaves that a heartbeat is
    /// answered, and behind each CONFIRM and each plan that was taken.
    pub fn publish(&self, table: &LeaseTable) {
        for (partition, placing) in self.shared() {
            for node in placing.sync() {
                table.lend(node, partition, self.lease.end_by(node, partition));
            }
        }
        for partition in 0..LINK_PARTITIONS {
            table.begin(partition, self.lender.begins_us(partition));
            table.ask(partition, self.lender.generation(partition));
        }
    }

    /// To be told often: at least each tenth of a grace.
    pub fn note_awake(&mut self, now_us: u64) {
        self.lender.note_awake(now_us);
        for at in 0..self.peers.len() {
            let peer = &self.peers[at];
            let is_confirmed = now_us < peer.confirmed_us + self.silence_us();
            if !is_confirmed || !self.grants_all(now_us, peer.node) {
                self.peers[at].steady_us = now_us;
            }
        }
    }

    /// Whether a node has granted each partition that is written here and held there, L / 2 ago at
    /// most. The thread of its heartbeats may answer while the core of a partition stands still.
    fn grants_all(&self, now_us: u64, node: u8) -> bool {
        let mut held = self.written().filter(|(_, placing)| placing.holds(node));
        held.all(|(partition, _)| now_us < self.granted_us(node, partition) + self.silence_us())
    }

    fn silence_us(&self) -> u64 {
        self.plan.rules.silence_us()
    }

    /// When the newest heartbeat was sent in whose answer a node granted a partition; or since when
    /// that is expected of it.
    fn granted_us(&self, node: u8, partition: u16) -> u64 {
        let end_us = self.lease.end_by(node, partition);
        let sent_us = end_us.saturating_sub(self.plan.rules.lease_us());
        let since_us = self.since_us[usize::from(partition)].max(self.lender.awake_us());
        sent_us.max(since_us)
    }

    /// The next heartbeat to a node, which is to be sent now.
    pub fn send<'a>(&mut self, now_us: u64, node: u8, into: &'a mut Vec<u8>) -> Heartbeat<'a> {
        let number = self.lease.send(now_us, node);
        let last_read = self.peer_mut(now_us, node).number;
        let both_hold = self.shared().filter(|it| it.1.holds(node));
        let claims = both_hold.map(|(partition, placing)| Claim {
            partition,
            generation: self.claimed(now_us, partition, placing),
            sequence: low(self.standings[usize::from(partition)].sequence),
        });
        Heartbeat {
            number,
            last_read,
            plan: self.plan.number,
            claims: Claims::write(into, claims),
        }
    }

    /// The generation in which this node writes a partition and vouches for it, or is to take it
    /// from a node that is there; otherwise 0. So the lease is there when the partition comes. If
    /// the old primary is lost before that, or late, the claims end, and a member takes over.
    fn claimed(&self, now_us: u64, partition: u16, placing: &Placing) -> u16 {
        let by = self.handed_by[usize::from(partition)];
        let is_coming = || {
            let standing = self.standings[usize::from(partition)];
            let is_mine = placing.assignment.primary == self.me;
            let is_awaited = standing.is_awaiting && !self.is_overdue(now_us, partition);
            is_mine && standing.is_turning && is_awaited && self.is_present(now_us, by)
        };
        match self.vouches(partition, placing) || is_coming() {
            true => u16::try_from(placing.assignment.generation).expect("14 bits"),
            false => 0,
        }
    }

    /// Whether a handover that the plan has is to be waited for no more.
    fn is_overdue(&self, now_us: u64, partition: u16) -> bool {
        now_us >= self.since_us[usize::from(partition)] + LeaseRules::HANDOVER_US
    }

    /// Whether a heartbeat of a node was read within the grace.
    fn is_present(&self, now_us: u64, node: u8) -> bool {
        let grace_us = self.plan.rules.grace_us();
        let mut peer = self.peers.iter().filter(|it| it.node == node);
        peer.any(|it| now_us < it.read_us + grace_us)
    }

    /// Whether this node writes a partition, or is able to begin.
    fn vouches(&self, partition: u16, placing: &Placing) -> bool {
        let standing = self.standings[usize::from(partition)];
        placing.assignment.primary == self.me && standing.is_turning && standing.is_able
    }

    /// A heartbeat was read; what it is answered.
    pub fn read(&mut self, now_us: u64, from: u8, heartbeat: &Heartbeat<'_>) -> Confirm {
        let is_confirmed = self.lease.is_confirmed(now_us, from, heartbeat.last_read);
        let is_leased = self
            .leased_from
            .is_some_and(|first| heartbeat.plan >= first);
        let peer = self.peer_mut(now_us, from);
        peer.number = peer.number.max(heartbeat.number);
        peer.read_us = now_us;
        for claim in heartbeat.claims.iter() {
            peer.sequences[usize::from(claim.partition)] = claim.sequence;
            if is_leased {
                peer.named.insert(claim.partition);
            }
        }
        let claims = heartbeat.claims.iter().filter(|_| is_confirmed);
        let claims = claims.map(|it| (it.partition, u32::from(it.generation)));
        let (plan, standings) = (&self.plan, &self.standings);
        let named = |partition: u16| {
            let assignment = &plan.placings[usize::from(partition)].assignment;
            Named {
                primary: assignment.primary,
                generation: assignment.generation,
            }
        };
        let is_turning = |partition: u16| standings[usize::from(partition)].is_turning;
        Confirm {
            number: heartbeat.number,
            plan: self.plan.number,
            granted: self.lender.judge(now_us, from, claims, named, is_turning),
        }
    }

    /// A node has answered a heartbeat of this start of this node. Returns when that was sent;
    /// `None` if it never was, or long ago.
    pub fn confirm(&mut self, now_us: u64, node: u8, confirm: &Confirm) -> Option<u64> {
        let mut number = confirm.number;
        if_planted! { Bug::LeaseFromReceiving, number = self.lease.send(now_us, node) }
        self.lease.confirm(node, number, &confirm.granted);
        let sent_us = self.lease.sent_us(node, confirm.number)?;
        let peer = self.peer_mut(now_us, node);
        peer.confirmed_us = peer.confirmed_us.max(sent_us);
        Some(sent_us)
    }

    /// Rises with each change of what this node claims, at least: then a heartbeat leaves at once.
    #[must_use]
    pub fn claim_changes(&self) -> u64 {
        self.claim_changes
    }

    /// Another start of a node is at the other end: its numbers begin anew.
    pub fn meet(&mut self, now_us: u64, node: u8) {
        self.peer_mut(now_us, node).number = 0;
    }

    /// The old primary of a partition has handed it to this node, in this generation.
    pub fn handed_over(&mut self, partition: u16, generation: u32) {
        self.lender.handed_over(partition, generation);
    }

    /// Until when this node may serve a partition that its plan gives it.
    #[must_use]
    pub fn lease_end_us(&self, partition: u16) -> u64 {
        let placing = &self.plan.placings[usize::from(partition)];
        self.lease.end_us(partition, placing.sync())
    }

    /// The same by one member.
    #[must_use]
    pub fn lease_end_by(&self, node: u8, partition: u16) -> u64 {
        self.lease.end_by(node, partition)
    }

    /// How long this node goes on taking nothing over of some partition that it may be promoted
    /// for; 0: a loss is replaced at once.
    #[must_use]
    pub fn held_us(&self, now_us: u64) -> u64 {
        let mine = self.shared().filter(|it| it.1.is_promotable(self.me));
        let until_us = mine.map(|(partition, _)| self.held_until_us(partition));
        until_us.max().unwrap_or(0).saturating_sub(now_us)
    }

    /// How long a learner of what is written here is not to join, if it confirms without a gap
    /// meanwhile; `None` if no learner is to join.
    #[must_use]
    pub fn enters_in_us(&self, now_us: u64, node: u8) -> Option<u64> {
        let peer = self.peers.iter().find(|it| it.node == node)?;
        let is_learner = self.written().any(|it| it.1.is_learner(node));
        let is_to_join = is_learner && !self.plan.stay_learners.contains(&node);
        let from_us = peer.steady_us + self.members.hold_us(node);
        is_to_join.then(|| from_us.saturating_sub(now_us))
    }

    /// Whether what this node has lent of a partition is over.
    #[must_use]
    pub fn may_begin(&self, now_us: u64, partition: u16) -> bool {
        self.lender.may_begin(now_us, partition)
    }

    /// Whether this node may serve a partition now, if its first record is durable.
    #[must_use]
    pub fn may_serve(&self, now_us: u64, partition: u16) -> bool {
        let placing = &self.plan.placings[usize::from(partition)];
        placing.assignment.primary == self.me
            && now_us < self.lease_end_us(partition)
            && self.may_begin(now_us, partition)
    }

    /// What is to be changed in the plan by one swap against the plan in force here. None while a
    /// swap is under way. `is_complete` tells of a member and a partition that this node writes
    /// whether the member has all that was acknowledged.
    pub fn wish(&mut self, now_us: u64, is_complete: impl Fn(u8, u16) -> bool) -> Option<Wish> {
        if self.is_swapping {
            return None;
        }
        let mut wish = self.removal(now_us);
        if !self.plan.is_paused {
            wish = wish
                .or_else(|| self.takeover(now_us))
                .or_else(|| self.entry(now_us, is_complete));
        }
        self.is_swapping = wish.is_some();
        if let Some(Wish::TakeOver { partitions, .. }) = &wish {
            self.lender.withhold(*partitions);
        }
        wish
    }

    /// The swap is over, with whatever outcome: the plan of the home tells which.
    pub fn swapped(&mut self) {
        self.is_swapping = false;
        self.lender.release();
    }

    /// Members of what is written here that confirm nothing. If none confirms, this node is more
    /// likely cut off than all others are lost: it leaves them the time to take over.
    fn removal(&self, now_us: u64) -> Option<Wish> {
        let mut silent: Vec<(u8, PartitionSet)> = Vec::new();
        for (partition, placing) in self.written() {
            let silent_for = |us: u64| {
                let is_silent = move |&node: &u8| now_us >= self.granted_us(node, partition) + us;
                placing.sync().filter(is_silent)
            };
            let members = placing.sync().count();
            let is_alone = !self.plan.is_paused
                && members > 1
                && silent_for(self.silence_us() / 2).count() == members;
            let silence_us = match is_alone {
                true => self.plan.rules.alone_us(),
                false => self.silence_us(),
            };
            // Of the members that are silent none counts as the minimum: the first one that is back
            // is as good as any other.
            let most = members.saturating_sub(self.plan.min_sync);
            if silent_for(silence_us).count() > most || !placing.has_generation() {
                continue;
            }
            for node in silent_for(silence_us) {
                match silent.iter_mut().find(|it| it.0 == node) {
                    Some((_, partitions)) => partitions.insert(partition),
                    None => silent.push((node, PartitionSet::from_iter([partition]))),
                }
            }
        }
        (!silent.is_empty()).then_some(Wish::Remove { silent })
    }

    /// Partitions of a node that is lost, if it is this node's turn.
    fn takeover(&self, now_us: u64) -> Option<Wish> {
        let is_mine = |&(partition, placing): &(u16, &Placing)| {
            let standing = self.standings[usize::from(partition)];
            let hold_us = self.held_until_us(partition);
            // A node that waits for a handover is not silent: it may have nothing to claim yet.
            let assignment = &placing.assignment;
            let has_begun = !assignment.is_handed_over
                || self.lender.generation(partition) == assignment.generation
                || self.is_overdue(now_us, partition);
            placing.is_promotable(self.me)
                && self.goes_by_leases(assignment.primary, partition)
                && has_begun
                && placing.has_generation()
                && standing.is_turning
                && standing.is_candidate
                && now_us >= self.lender.lost_us(partition).max(hold_us)
        };
        let lost: Vec<(u16, &Placing)> = self.shared().filter(is_mine).collect();
        let from = lost
            .iter()
            .map(|(_, placing)| placing.assignment.primary)
            .min()?;
        let of_node = lost.iter().filter(|it| it.1.assignment.primary == from);
        let partitions: PartitionSet = of_node.map(|&(partition, _)| partition).collect();
        let wait_us = self.rank(now_us, from, &partitions) * LeaseRules::RANK_US;
        let is_due = |&partition: &u16| {
            let hold_us = self.held_until_us(partition);
            now_us >= self.lender.lost_us(partition).max(hold_us) + wait_us
        };
        let due: PartitionSet = partitions.iter().filter(is_due).collect();
        (!due.is_empty()).then_some(Wish::TakeOver {
            from,
            partitions: due,
        })
    }

    /// Whether a node has named a partition in a heartbeat that this start has read. One that never
    /// did may go by a plan without failover, and serve without a lease.
    fn goes_by_leases(&self, node: u8, partition: u16) -> bool {
        let mut peer = self.peers.iter().filter(|it| it.node == node);
        peer.any(|it| it.named.has(partition))
    }

    /// Until when this node does not take a partition over, because its writer has just changed.
    fn held_until_us(&self, partition: u16) -> u64 {
        let partition = u8::try_from(partition).expect("256");
        self.partitions.until_us(partition)
    }

    /// How many candidates go before this node.
    fn rank(&self, now_us: u64, lost: u8, partitions: &PartitionSet) -> u64 {
        let goes_before = |peer: &&PeerHeartbeats| {
            let others = partitions.iter().filter(|&partition| {
                self.plan.placings[usize::from(partition)].is_promotable(peer.node)
            });
            let mut is_candidate = false;
            let mut ahead = 0i64;
            for at in others.map(usize::from) {
                is_candidate = true;
                let mine = low(self.standings[at].sequence);
                ahead += i64::from(peer.sequences[at].wrapping_sub(mine).cast_signed());
            }
            let is_here = self.is_present(now_us, peer.node);
            is_candidate && is_here && (ahead > 0 || ahead == 0 && peer.node < self.me)
        };
        let others = self.peers.iter().filter(|peer| peer.node != lost);
        others.filter(goes_before).count() as u64
    }

    /// A learner that is to join, or a joining member that is to be admitted.
    fn entry(&self, now_us: u64, is_complete: impl Fn(u8, u16) -> bool) -> Option<Wish> {
        for peer in &self.peers {
            let node = peer.node;
            let of = |is_of: &dyn Fn(&Placing) -> bool| -> PartitionSet {
                let mut written = Vec::new();
                for (partition, placing) in self.written() {
                    let is_served = self.may_serve(now_us, partition);
                    if is_of(placing) && is_served && is_complete(node, partition) {
                        written.push(partition);
                    }
                }
                written.into_iter().collect()
            };
            let partitions = of(&|placing| placing.joining.contains(&node));
            if !partitions.is_empty() {
                return Some(Wish::Admit { node, partitions });
            }
            let is_steady = now_us >= peer.steady_us + self.members.hold_us(node);
            if !is_steady || self.plan.stay_learners.contains(&node) {
                continue;
            }
            let partitions = of(&|placing| placing.is_learner(node) && placing.has_generation());
            if !partitions.is_empty() {
                return Some(Wish::Join { node, partitions });
            }
        }
        None
    }

    fn shared(&self) -> impl Iterator<Item = (u16, &Placing)> {
        let placing = |&partition: &u16| (partition, &self.plan.placings[usize::from(partition)]);
        self.shared.iter().map(placing)
    }

    /// Partitions that this node writes and vouches for, and that others hold.
    fn written(&self) -> impl Iterator<Item = (u16, &Placing)> {
        self.shared().filter(|it| self.vouches(it.0, it.1))
    }

    fn peer_mut(&mut self, now_us: u64, node: u8) -> &mut PeerHeartbeats {
        let at = self.peers.iter().position(|peer| peer.node == node);
        let at = at.unwrap_or_else(|| {
            self.peers.push(PeerHeartbeats {
                node,
                number: 0,
                read_us: 0,
                confirmed_us: 0,
                steady_us: now_us,
                named: PartitionSet::none(),
                sequences: Box::new([0; PARTITIONS]),
            });
            self.peers.len() - 1
        });
        &mut self.peers[at]
    }
}

/// The partitions that a node holds, and another one.
fn shared(me: u8, plan: &FailoverPlan) -> Vec<u16> {
    let is_shared = |it: &(u16, &Placing)| it.1.holds(me) && !it.1.assignment.members.is_empty();
    let all = (0..).zip(&plan.placings).filter(is_shared);
    all.map(|(partition, _)| partition).collect()
}

/// The low 32 bits of a sequence. Two are compared by their difference.
fn low(sequence: u64) -> u32 {
    u32::try_from(sequence & u64::from(u32::MAX)).expect("32 bits")
}

#[cfg(test)]
mod tests;
