//! Kills, power cuts, pauses, cuts of the network and wiped disks.

use penstock_net::level::AckLevel;
use penstock_shard::Event as ShardEvent;
use penstock_shard::replication::LinkId;

use super::event::Event;
use super::{NODES, Phase, World, number_of};

impl World {
    pub(super) fn blow(&mut self) {
        if self.phase != Phase::Traffic {
            return;
        }
        let node = self.chance.index(NODES);
        match self.chance.below(100) {
            0..14 => self.end_node(node, false),
            14..24 => self.end_node(node, true),
            24..34 => {
                if self.nodes[node].cores.is_some()
                    && self.now_us >= self.nodes[node].paused_until_us
                {
                    let pause_us = self.chance.within(10_000, 3_000_000);
                    self.pause(node, pause_us);
                }
            }
            34..56 => {
                let other = (node + 1 + self.chance.index(NODES - 1)) % NODES;
                let is_one_way = self.chance.chance(300_000);
                self.meet(match is_one_way {
                    true => "cut one way",
                    false => "cut",
                });
                let cut_us = self.chance.within(5_000, 4_000_000);
                self.cut(node, other, cut_us);
                if !is_one_way {
                    self.cut(other, node, cut_us);
                }
            }
            56..72 => {
                let links: Vec<u64> = self.linked.values().copied().collect();
                if !links.is_empty() {
                    let link = self.chance.pick(&links);
                    self.lose_link(link);
                }
            }
            72..76 => {
                if self.setting.may_wipe && !self.has_wiped {
                    self.wipe(node);
                }
            }
            _ => self.promote_some(),
        }
        let delay_us = self.chance.latency(self.setting.blows_us);
        self.after(delay_us, Event::Blow);
    }

    pub(super) fn pause(&mut self, node: usize, pause_us: u64) {
        let is_paused = self.now_us < self.nodes[node].paused_until_us;
        if self.nodes[node].cores.is_some() && !is_paused {
            self.meet("pause");
            self.nodes[node].paused_until_us = self.now_us + pause_us;
            self.after(pause_us, Event::RunsAgain { node });
        }
    }

    /// No bytes come from the one to the other for a while.
    pub(super) fn cut(&mut self, from: usize, to: usize, cut_us: u64) {
        self.cuts.insert((from, to));
        self.after(cut_us, Event::Heal { from, to });
    }

    /// A link ends, and what is on its way with it.
    pub(super) fn lose_link(&mut self, link: u64) {
        self.meet("link lost");
        for is_destination in [false, true] {
            let state = &self.links[&link];
            let end = state.end(is_destination);
            let silence_us = self.network.latency(self.setting.network_us);
            self.end_here(link, is_destination, silence_us);
            if self.is_run(end.node, end.run) {
                let down = ShardEvent::LinkDown { link: LinkId(link) };
                self.step(end.node, end.shard, down);
            }
        }
    }

    /// Whether a node may still start with an older copy of its directory.
    pub(super) fn may_go_back(&self) -> bool {
        self.setting.may_go_back && !self.has_gone_back && self.phase == Phase::Traffic
    }

    pub(super) fn end_node(&mut self, node: usize, is_power_cut: bool) {
        if self.nodes[node].cores.is_none() {
            return;
        }
        self.meet(match is_power_cut {
            true => "power cut",
            false => "kill",
        });
        self.die(node, is_power_cut);
        if self.may_go_back() && self.chance.chance(600_000) && self.nodes[node].go_back() {
            self.meet("gone back");
            self.has_gone_back = true;
            self.oracle.gone_back(number_of(node));
            self.keep_sales(None, None);
        }
        let again_us = self.chance.within(1_000, 2_000_000);
        self.after(again_us, Event::Start { node });
    }

    /// A node loses its disk and comes back empty, as another one with the same number.
    pub(super) fn wipe(&mut self, node: usize) {
        if self.nodes[node].cores.is_none() {
            return;
        }
        self.meet("wiped");
        self.empty(node);
    }

    /// As the operator does with a node that is told to have gone back.
    pub(super) fn empty(&mut self, node: usize) {
        self.has_wiped = true;
        self.die(node, true);
        let salt = self.chance.bits();
        self.nodes[node].wipe(salt);
        let number = number_of(node);
        self.oracle.wiped(number);
        self.keep_sales(None, Some(AckLevel::Replica));
        let again_us = self.chance.within(100_000, 2_000_000);
        self.after(again_us, Event::Start { node });
    }
}
