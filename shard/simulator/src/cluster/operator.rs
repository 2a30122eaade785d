//! The operator, who writes the cluster's file: switches, promotes where no node serves, and at
//! last accepts a loss.

use std::sync::Arc;

use penstock_net::link::Membership;
use penstock_shard::cluster::{Assignment, PartitionRole, PartitionStatus, Plan};
use penstock_shard::replication::Epoch;

use crate::disk::DiskFaults;

use super::node::Node;
use super::{Event, NODES, OPERATE_US, Phase, Step, World, number_of};

/// So long behind the last fault a handover that was promised may take.
const HANDOVER_US_MAX: u64 = 5_000_000;
/// How long a partition is served by nobody until the operator does something, in looks.
const PATIENCE_ROUNDS: u64 = 5;

impl World {
    /// Somebody else is to write some of the partitions, whether the old one is there or not.
    pub(super) fn promote_some(&mut self) {
        let node = self.chance.index(NODES);
        let all = self.chance.chance(500_000);
        let of: Vec<u16> = self.partitions.clone();
        let chosen: Vec<u16> = of
            .into_iter()
            .filter(|_| all || self.chance.chance(400_000))
            .collect();
        let is_planned = self.chance.chance(500_000);
        self.promote(&chosen, node, is_planned);
    }

    /// A person has nodes hand some partitions over to this one.
    pub(super) fn switch_some(&mut self, node: usize) {
        let partitions = self.partitions.clone();
        self.promote(&partitions, node, true);
    }

    /// Writes a new file: this node is to write these partitions. If `is_planned`, their writer
    /// hands them over.
    fn promote(&mut self, partitions: &[u16], node: usize, is_planned: bool) {
        let number = number_of(node);
        let mut plan = (*self.plan).clone();
        let mut is_news = false;
        for &partition in partitions {
            let is_promotable = self.is_promotable(partition, number);
            let assignment = &mut plan.partitions[usize::from(partition)];
            if assignment.primary == number || !is_promotable {
                continue;
            }
            is_news = true;
            let before = assignment.primary;
            // A node that is replaced by force leaves the sync set, unless it is kept there.
            let is_out = !is_planned && self.harms.takes_members_out() && self.harm.chance(500_000);
            assignment.members.retain(|&(member, _)| member != number);
            assignment.members.push(match is_out {
                true => (before, Membership::Learner),
                false => (before, Membership::Sync),
            });
            let (from, to) = (usize::from(before) - 1, node);
            match is_planned {
                true => self.handed.insert(partition, (from, to, [None; 2])),
                false => self.handed.remove(&partition),
            };
            self.prove_anew(partition);
            assignment.generation += 1;
            assignment.primary = number;
            assignment.is_handed_over = is_planned;
            assignment.is_loss_accepted = false;
            assignment.is_incomplete_accepted = false;
            self.oracle.promoted(partition);
            if !is_planned {
                self.part(partition);
            }
        }
        if is_news {
            self.meet(match is_planned {
                true => "switch",
                false => "promotion",
            });
            self.publish(plan);
        }
    }

    /// Each node reads the file when it comes to it.
    pub(super) fn publish(&mut self, plan: Plan) {
        if self.deciders.is_some() {
            return self.publish_document(&plan);
        }
        self.plan = Arc::new(plan);
        for node in 0..NODES {
            let run = self.nodes[node].run;
            let delay_us = match self.chance.below(3) {
                0 => {
                    self.meet("plan came late");
                    self.chance.within(200_000, 3_000_000)
                }
                _ => self.chance.within(100, 30_000),
            };
            self.after(delay_us, Event::Plan { node, run });
        }
    }

    pub(super) fn serves(&self, node: usize, partition: u16) -> bool {
        let state = self.nodes[node].partition(partition);
        state.is_some_and(|it| it.role == PartitionRole::Primary)
    }

    /// The node that the newest file names should serve. If no node serves for long, the operator
    /// tries another one, and in the end one by force.
    pub(super) fn operate(&mut self) -> Step {
        self.after(OPERATE_US, Event::Operate);
        self.judge_stops()?;
        if !self.is_made {
            let primary = |world: &World, partition: u16| {
                usize::from(world.plan.partitions[usize::from(partition)].primary) - 1
            };
            let mut all = self.partitions.iter();
            self.is_made = all.all(|&it| self.serves(primary(self, it), it));
            if self.is_made {
                let first = match self.deciders {
                    Some(_) => Event::Outage,
                    None => Event::Blow,
                };
                self.after(self.setting.blows_us, first);
                self.begin_harms();
                self.begin_to_part();
            }
            return Ok(());
        }
        if self.phase == Phase::Traffic && self.is_traffic_over() {
            self.phase = Phase::Settle;
            self.phase_us = self.now_us;
            self.calm();
        }
        if self.phase == Phase::Settle && self.clients.iter().all(|it| it.operation.is_none()) {
            let difference = self.difference();
            self.note_rest(difference.is_none());
            match difference {
                // All effects are to have run.
                None if self.may_fire() => {}
                None => {
                    self.phase = Phase::Done;
                    return self.judge();
                }
                Some(_)
                    if self.is_out_of_patience()
                        && !self.is_incomplete_accepted
                        && self.is_dead_end() =>
                {
                    self.meet("lost with its only whole copy");
                    self.is_incomplete_accepted = true;
                    self.phase_us = self.now_us;
                }
                Some(difference) if self.is_out_of_patience() => {
                    return Err(format!("the nodes do not come to rest: {difference}"));
                }
                Some(_) => {}
            }
        }
        if self.phase == Phase::Settle && self.may_accept_incomplete && !self.is_incomplete_accepted
        {
            self.promote_incomplete();
        }
        if self.deciders.is_some() {
            return self.check_deciders();
        }
        for partition in self.partitions.clone() {
            let number = self.plan.partitions[usize::from(partition)].primary;
            let primary = usize::from(number) - 1;
            let rounds = self.idle_rounds.entry(partition).or_default();
            *rounds += 1;
            let rounds = *rounds;
            let is_handed_over = self.plan.partitions[usize::from(partition)].is_handed_over;
            if self.serves(primary, partition) {
                self.idle_rounds.insert(partition, 0);
                if is_handed_over {
                    self.meet("switched");
                }
            } else if rounds.is_multiple_of(PATIENCE_ROUNDS) && self.phase == Phase::Settle {
                // It goes on by itself, and soon.
                let is_promised = self.is_handover_promised(partition);
                if is_promised && self.now_us > self.phase_us + HANDOVER_US_MAX {
                    return Err(format!(
                        "the handover of partition {partition} stands still: {}",
                        self.states_of(partition)
                    ));
                }
                if !is_promised {
                    self.help(partition, rounds / PATIENCE_ROUNDS);
                }
            }
        }
        Ok(())
    }

    /// What each node is to a partition, for people.
    fn states_of(&self, partition: u16) -> String {
        let states = |node: &Node| node.partition(partition).map(|it| format!("{it:?}"));
        let all: Vec<_> = self.nodes.iter().map(states).collect();
        format!("{all:?}")
    }

    /// Whether a handover is complete but for its last step: the new node has all of the partition,
    /// the old one, which has written last of all, has promised the new epoch, and the new one has
    /// not begun it.
    pub(super) fn is_handover_promised(&self, partition: u16) -> bool {
        let Assignment {
            generation,
            primary,
            is_handed_over,
            ..
        } = self.plan.partitions[usize::from(partition)];
        let status = |node: usize| self.nodes[node].partition(partition);
        let Some(new) = status(usize::from(primary) - 1) else {
            return false;
        };
        let epoch = Epoch::new(generation, 0, primary);
        let last = |node: usize| self.nodes[node].last_version(partition);
        let newest = (0..NODES).filter_map(last).max();
        // A node that was replaced before may have promised the epoch, too.
        let wrote_last = (0..NODES).filter(|&node| last(node) == newest);
        let mut others = wrote_last.filter_map(status);
        let is_promised = others.any(|old| {
            (old.epoch, old.was_last, old.received) == (epoch, true, new.received)
                && matches!(old.role, PartitionRole::Idle | PartitionRole::Followed)
        });
        // An older copy of its directory may not know that the node had begun the epoch. The other
        // node need not hand over twice, so an operator must choose.
        is_handed_over
            && is_promised
            && new.epoch < epoch
            && !new.role.is_incomplete()
            && !self.has_gone_back
    }

    /// Lets a node write what it has of a scan or a rewind, if there is one in the middle of it.
    fn promote_incomplete(&mut self) {
        let cores = |node: usize| self.nodes[node].cores.iter().flatten();
        let states = |node| cores(node).flat_map(|core| core.shard.execution().partitions());
        let found = (0..NODES).find_map(|node| {
            // One that has nothing would begin another past.
            let is_incomplete = |it: &PartitionStatus| it.received > 0 && it.role.is_incomplete();
            let mut of_node = states(node).filter(|it| self.partitions.contains(&it.partition));
            of_node.find(is_incomplete).map(|it| (it.partition, node))
        });
        if let Some((partition, node)) = found {
            self.meet("incomplete accepted");
            self.is_incomplete_accepted = true;
            self.phase_us = self.now_us;
            self.name(partition, node, true);
        }
    }

    /// Nobody serves a partition, for the `turn`th time.
    fn help(&mut self, partition: u16, turn: u64) {
        let assignment = self.plan.partitions[usize::from(partition)].clone();
        let may = |node: &usize| {
            let number = number_of(*node);
            number == assignment.primary || self.is_promotable(partition, number)
        };
        if turn % 8 < 6 {
            let node = usize::try_from(turn).expect("few") % NODES;
            if may(&node) {
                self.name(partition, node, false);
            }
            return;
        }
        // People choose who has most, and accept what is lost.
        let has = |world: &World, node: usize| {
            let state = world.nodes[node].partition(partition);
            state
                // Who has nothing is whole, and would begin another past.
                .map(|it| (it.received > 0, !it.role.is_incomplete(), it.received))
        };
        let best = (0..NODES).max_by_key(|&node| (has(self, node), may(&node)));
        self.meet("forced promotion");
        self.oracle.forced(partition);
        self.keep_sales(Some(partition), None);
        self.name(partition, best.expect("there are nodes"), true);
    }

    /// Writes a new file in which this node is to write a partition, also if it was to before.
    fn name(&mut self, partition: u16, node: usize, is_loss_accepted: bool) {
        let number = number_of(node);
        let mut plan = (*self.plan).clone();
        let assignment = &mut plan.partitions[usize::from(partition)];
        let before = assignment.primary;
        self.joining.remove(&(partition, number));
        self.prove_anew(partition);
        self.handed.remove(&partition);
        if before != number {
            assignment.members.retain(|&(member, _)| member != number);
            assignment.members.push((before, Membership::Sync));
            self.oracle.promoted(partition);
        }
        self.part(partition);
        assignment.primary = number;
        assignment.generation += 1;
        assignment.is_handed_over = false;
        assignment.is_loss_accepted = is_loss_accepted;
        assignment.is_incomplete_accepted = is_loss_accepted && self.is_incomplete_accepted;
        self.publish(plan);
    }

    /// All faults end.
    fn calm(&mut self) {
        self.complete_members();
        self.calm_deciders();
        for (from, to) in std::mem::take(&mut self.cuts) {
            self.cuts.insert((from, to));
            self.heal(from, to);
        }
        for node in 0..NODES {
            if self.nodes[node].paused_until_us > self.now_us {
                self.nodes[node].paused_until_us = self.now_us;
                self.after(0, Event::RunsAgain { node });
            }
            self.make_roomy(node);
            let mut disk = self.nodes[node].disk.borrow_mut();
            disk.faults = DiskFaults::default();
            drop(disk);
            self.repair(node);
            if self.nodes[node].cores.is_none() {
                self.after(0, Event::Start { node });
            }
        }
    }
}
