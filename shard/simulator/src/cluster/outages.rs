//! What befalls nodes that decide by themselves: they stand still, are suspended, die, and are cut
//! off from each other, in one direction or both, or from the store, for up to ten minutes.

use std::collections::BTreeMap;

use penstock_net::link::message::LINK_PARTITIONS;

use crate::random::Random;

use super::event::Event;
use super::{EVENTS_MAX, LONG_EVENTS_MAX, NODES, Phase, SETTLE_US_MAX, Step, World, number_of};

/// How long traffic goes on.
const TRAFFIC_US: (u64, u64) = (6_000_000, 20_000_000);
/// Within this behind the last fault all nodes are the same: a hold-down takes five minutes at
/// most.
const CALM_US_MAX: u64 = 1_500_000_000;
/// So long people wait for nodes that nothing can be expected of.
const PATIENCE_US: u64 = 5_000_000;
/// ... and for a handover, which may be complete but for its last step.
const HANDOVER_US: u64 = 20_000_000;

/// What a seed decides of them, and what they have done.
#[derive(Debug)]
pub(super) struct Outages {
    /// Between two of them, at most.
    every_us: u64,
    /// One more lasts for minutes.
    has_long: bool,
    /// When traffic ends, and all faults with it.
    end_us: u64,
    /// Messages are slow until then.
    slow_until_us: u64,
    /// Until when a shard of a node stands still.
    still_until_us: BTreeMap<(usize, usize), u64>,
    /// Since when nobody writes a partition, and whether it did before.
    idle_since_us: BTreeMap<u16, u64>,
}

impl Outages {
    pub(super) fn new(random: &mut Random) -> Self {
        Outages {
            every_us: random.pick(&[2_000_000, 6_000_000, 15_000_000]),
            has_long: random.chance(25_000),
            end_us: 1_000_000 + random.within(TRAFFIC_US.0, TRAFFIC_US.1),
            slow_until_us: 0,
            still_until_us: BTreeMap::new(),
            idle_since_us: BTreeMap::new(),
        }
    }

    /// What takes a while is seldom disturbed.
    pub(super) fn are_rare(&mut self) {
        self.every_us = 15_000_000;
    }
}

impl World {
    fn outages(&mut self) -> &mut Outages {
        &mut self.deciders.as_mut().expect("nodes decide").outages
    }

    /// Traffic does not end before.
    pub(super) fn outages_go_on_until(&mut self, until_us: u64) {
        let outages = self.outages();
        outages.end_us = outages.end_us.max(until_us);
    }

    fn luck(&mut self) -> &mut Random {
        &mut self.deciders.as_mut().expect("nodes decide").random
    }

    /// The next outage, if nodes decide.
    pub(super) fn befall_deciders(&mut self) {
        if self.phase != Phase::Traffic {
            return;
        }
        let every_us = self.outages().every_us;
        let next_us = self.luck().within(50_000, every_us);
        self.after(next_us, Event::Outage);
        let node = self.luck().index(NODES);
        let other = (node + 1 + self.luck().index(NODES - 1)) % NODES;
        match self.luck().below(22) {
            0..=2 => self.stand_still(node, false),
            3 => self.stand_still(node, true),
            4 | 5 => self.go_down(node, false),
            6 => self.go_down(node, true),
            7 | 8 => self.cut_off("cut one way", &[(node, other)]),
            9 => self.cut_off("cut", &[(node, other), (other, node)]),
            10 => {
                let others = (0..NODES).filter(|&it| it != node);
                let ways = others.flat_map(|it| [(node, it), (it, node)]);
                self.cut_off("node cut off", &ways.collect::<Vec<_>>());
                if self.luck().chance(500_000) {
                    self.lose_store(node);
                }
            }
            11 => self.lose_store(node),
            12 => {
                self.meet("store down");
                let until_us = self.now_us + self.length(200_000, 10_000_000);
                self.store().goes_down(until_us);
            }
            13 => self.stop_core(node),
            14 => {
                self.meet("connection of heartbeats lost");
                self.break_wires(node);
            }
            15 => {
                let links: Vec<u64> = self.linked.values().copied().collect();
                if !links.is_empty() {
                    let link = self.luck().pick(&links);
                    self.lose_link(link);
                }
            }
            16 | 17 => {
                self.meet("slow network");
                let until_us = self.now_us + self.luck().within(100_000, 4_000_000);
                self.outages().slow_until_us = until_us;
            }
            18 => {
                self.meet("wall clock steps");
                let step_us = self.luck().below(20_000_000).cast_signed() - 10_000_000;
                self.clocks[node].step(step_us);
                // It often steps when the network comes or goes.
                self.cut_off("cut", &[(node, other), (other, node)]);
            }
            19 => {
                self.cut_off("cut one way", &[(other, node)]);
                self.lose_store(node);
            }
            20 => {
                let now_us = self.now_us;
                if self.store().is_up(now_us) {
                    self.switch_some(node);
                }
            }
            _ => {
                self.meet("store down beside a kill");
                self.go_down(node, false);
                let until_us = self.now_us + self.length(200_000, 4_000_000);
                self.store().goes_down(until_us);
            }
        }
    }

    fn lose_store(&mut self, node: usize) {
        self.meet("store out of reach of a node");
        let until_us = self.now_us + self.length(200_000, 10_000_000);
        self.store().leaves(node, until_us);
    }

    /// How long an outage lasts: now and then for minutes, in runs that have such.
    fn length(&mut self, least_us: u64, most_us: u64) -> u64 {
        let is_long = self.outages().has_long && self.luck().chance(300_000);
        let us = match is_long {
            true => self.luck().within(10_000_000, 600_000_000),
            false => self.luck().within(least_us, most_us),
        };
        self.outages().has_long &= !is_long;
        let end_us = self.now_us + us;
        let outages = self.outages();
        outages.end_us = outages.end_us.max(end_us.saturating_sub(5_000_000));
        us
    }

    /// A process is stopped, or a machine suspended.
    fn stand_still(&mut self, node: usize, is_suspended: bool) {
        let is_paused = self.now_us < self.nodes[node].paused_until_us;
        if self.nodes[node].cores.is_none() || is_paused {
            return;
        }
        let us = match self.luck().chance(400_000) {
            true => self.luck().within(20_000, 600_000),
            false => self.length(300_000, 8_000_000),
        };
        self.meet(match is_suspended {
            true => "machine suspended",
            false if us > 60_000_000 => "process stopped for minutes",
            false => "process stopped",
        });
        if is_suspended {
            self.clocks[node].suspend(self.now_us);
        }
        self.nodes[node].paused_until_us = self.now_us + us;
        self.after(us, Event::RunsAgain { node });
    }

    fn go_down(&mut self, node: usize, is_power_cut: bool) {
        if self.nodes[node].cores.is_none() {
            return;
        }
        self.meet(match is_power_cut {
            true => "power cut",
            false => "kill",
        });
        self.die(node, is_power_cut);
        let down_us = match self.luck().chance(500_000) {
            true => self.luck().within(1_000, 1_000_000),
            false => self.length(1_000_000, 15_000_000),
        };
        self.after(down_us, Event::Start { node });
    }

    fn cut_off(&mut self, what: &'static str, ways: &[(usize, usize)]) {
        self.meet(what);
        let us = self.length(100_000, 10_000_000);
        for &(from, to) in ways {
            self.cut(from, to, us);
        }
    }

    /// One shard stands still, and the node goes on.
    fn stop_core(&mut self, node: usize) {
        if self.nodes[node].cores.is_none() {
            return;
        }
        self.meet("core stood still");
        let shard = {
            let shards = usize::from(self.nodes[node].shards);
            self.luck().index(shards)
        };
        let until_us = self.now_us + self.length(100_000, 6_000_000);
        self.outages()
            .still_until_us
            .insert((node, shard), until_us);
    }

    /// Until when a shard stands still, if it does.
    pub(super) fn stands_still(&self, node: usize, shard: usize) -> Option<u64> {
        let outages = &self.deciders.as_ref()?.outages;
        let until_us = outages.still_until_us.get(&(node, shard)).copied();
        until_us.filter(|&until_us| self.now_us < until_us)
    }

    /// Until when the last of the shards of a node stands still that did.
    pub(super) fn cores_stand_until_us(&self, node: usize) -> u64 {
        let stands = self
            .deciders
            .iter()
            .flat_map(|it| &it.outages.still_until_us);
        let of_node = stands.filter(|((of, _), _)| *of == node);
        of_node.map(|(_, &until_us)| until_us).max().unwrap_or(0)
    }

    /// How long a heartbeat is on its way.
    pub(super) fn heartbeat_latency(&mut self) -> u64 {
        let now_us = self.now_us;
        let is_slow = now_us < self.outages().slow_until_us;
        match is_slow || self.phase == Phase::Traffic && self.luck().chance(5_000) {
            true => self.luck().within(1_000, 400_000),
            false => self
                .network
                .within(self.setting.network_us / 2, 2 * self.setting.network_us),
        }
    }

    /// Events that the run may have.
    pub(super) fn events_max(&self) -> u64 {
        match &self.deciders {
            Some(_) => LONG_EVENTS_MAX,
            None => EVENTS_MAX,
        }
    }

    // ---- looks of people ----

    /// Whether it is time for traffic and faults to end.
    pub(super) fn is_traffic_over(&self) -> bool {
        match &self.deciders {
            Some(deciders) => self.now_us >= deciders.outages.end_us,
            None => self.issued >= self.setting.operations,
        }
    }

    /// All outages end.
    pub(super) fn calm_deciders(&mut self) {
        let now_us = self.now_us;
        let Some(deciders) = &mut self.deciders else {
            return;
        };
        deciders.store.comes_back();
        deciders.outages.slow_until_us = 0;
        deciders.outages.still_until_us.clear();
        deciders.outages.idle_since_us.clear();
        deciders.outages.end_us = now_us;
        for node in 0..NODES {
            for shard in 0..usize::from(self.nodes[node].shards) {
                self.turn_at(node, shard, now_us);
            }
        }
    }

    /// Whether all has had its time to come to rest.
    pub(super) fn is_out_of_patience(&self) -> bool {
        let most_us = match self.deciders {
            Some(_) => CALM_US_MAX,
            None => SETTLE_US_MAX,
        };
        self.now_us > self.phase_us + most_us
    }

    /// People look who writes what. They do something only behind all faults, if no node may.
    pub(super) fn check_deciders(&mut self) -> Step {
        for partition in self.partitions.clone() {
            let assignment = &self.plan.partitions[usize::from(partition)];
            let (primary, is_handed_over) = (assignment.primary, assignment.is_handed_over);
            let now_us = self.now_us;
            if self.serves(usize::from(primary) - 1, partition) {
                self.outages().idle_since_us.remove(&partition);
                if is_handed_over {
                    self.meet("switched");
                }
                continue;
            }
            self.meet("a partition without a writer, at a look");
            let since_us = self.outages().idle_since_us.entry(partition);
            let since_us = *since_us.or_insert(now_us);
            if self.phase != Phase::Settle {
                continue;
            }
            let is_stuck = is_handed_over
                && now_us > since_us + HANDOVER_US
                && !self.is_handover_promised(partition);
            if is_stuck || now_us > since_us + PATIENCE_US && self.is_left_to_people(partition) {
                self.meet("left to people");
                self.outages().idle_since_us.remove(&partition);
                self.accept_loss(partition);
            }
        }
        Ok(())
    }

    /// The last resort: the node that has most writes a partition, and what it lacks is lost.
    fn accept_loss(&mut self, partition: u16) {
        let has = |node: usize| {
            let state = self.nodes[node].partition(partition);
            state.map(|it| (it.received > 0, !it.role.is_incomplete(), it.received))
        };
        let best = (0..NODES).max_by_key(|&node| (has(node), std::cmp::Reverse(node)));
        let number = number_of(best.expect("there are nodes"));
        assert!(partition < LINK_PARTITIONS, "a partition");
        self.oracle.forced(partition);
        self.keep_sales(Some(partition), None);
        self.part(partition);
        let mut plan = (*self.plan).clone();
        let assignment = &mut plan.partitions[usize::from(partition)];
        let before = assignment.primary;
        assignment.members.retain(|&(member, _)| member != number);
        if before != number {
            let learner = penstock_net::link::Membership::Learner;
            assignment.members.push((before, learner));
            self.oracle.promoted(partition);
        }
        assignment.primary = number;
        assignment.renew();
        assignment.is_loss_accepted = true;
        self.handed.remove(&partition);
        self.publish_document(&plan);
    }
}
