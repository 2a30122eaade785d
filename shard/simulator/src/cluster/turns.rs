//! The starts, ends and turns of nodes.

use std::sync::Arc;

use penstock_shard::Event as ShardEvent;
use penstock_shard::carry_out;

use super::event::Event;
use super::links::End;
use super::node::Core;
use super::shell::CoreShell;
use super::{Step, World, number_of};

impl World {
    pub(super) fn start(&mut self, node: usize) -> Step {
        if self.nodes[node].cores.is_some() {
            return Ok(());
        }
        if !self.start_decider(node) {
            return Ok(());
        }
        let is_new = !self.nodes[node].was_started && !self.nodes[node].was_wiped;
        self.prepare_start(node);
        if self.may_go_back() && self.nodes[node].was_started {
            self.nodes[node].copy();
        }
        self.choose_horizon(node);
        let now = self.now_of(node);
        self.nodes[node].read_plan(Arc::clone(&self.plan), self.now_us);
        let started = self.nodes[node].start(now, &self.setting, is_new);
        let started = started.map_err(|refusal| format!("node {}: {refusal}", number_of(node)))?;
        if started.has_snapshot {
            self.meet("start with a snapshot");
        }
        if started.has_changed {
            self.has_changed_shards = true;
            self.meet(match started.inherited_already {
                true => "shards changed again",
                false => "shards changed",
            });
        }
        let run = self.nodes[node].run;
        for shard in 0..usize::from(self.nodes[node].shards) {
            self.turn_at(node, shard, self.now_us);
        }
        self.after(1_000, Event::Dial { node, run });
        self.begin_to_decide(node);
        Ok(())
    }

    /// The process ends without a word.
    pub(super) fn die(&mut self, node: usize, is_power_cut: bool) {
        if self.nodes[node].cores.take().is_none() {
            return;
        }
        let run = self.nodes[node].run;
        self.nodes[node].kept.clear();
        self.nodes[node].frozen.clear();
        self.nodes[node].paused_until_us = 0;
        self.nodes[node].stops_since_us = None;
        let mut disk = self.nodes[node].disk.borrow_mut();
        match is_power_cut {
            true => disk.power_cut(),
            false => disk.process_ends(),
        }
        drop(disk);
        self.clocks[node].wake(self.now_us);
        self.end_decider(node, is_power_cut);
        let ids: Vec<u64> = self.links.keys().copied().collect();
        for link in ids {
            for is_there in [false, true] {
                let end = self.links[&link].end(is_there);
                if end.node == node && end.run == run {
                    let silence_us = self.silence(is_power_cut);
                    self.end_here(link, is_there, silence_us);
                }
            }
        }
        for client in 0..self.clients.len() {
            let state = &self.clients[client];
            if let Some(connection) = state.connection
                && state.node == node
            {
                let silence_us = self.silence(is_power_cut);
                self.after(silence_us, Event::Closed { client, connection });
            }
        }
    }

    /// How long it takes until somebody hears that the other is gone.
    pub(super) fn silence(&mut self, is_power_cut: bool) -> u64 {
        match is_power_cut {
            true => self.network.within(1_000, 800_000),
            false => self.network.latency(self.setting.network_us),
        }
    }

    pub(super) fn core(&mut self, node: usize, shard: usize) -> Option<&mut Core> {
        let cores = self.nodes[node].cores.as_mut()?;
        cores.get_mut(shard)
    }

    pub(super) fn step(
        &mut self,
        node: usize,
        shard: usize,
        event: ShardEvent<'_, crate::disk::PoolBlock>,
    ) -> usize {
        let now = self.now_of(node);
        let Some(core) = self.core(node, shard) else {
            return 0;
        };
        let consumed = core.shard.step(now, event, &mut core.outbox);
        let soon_us = self.now_us + self.chance.below(8);
        self.turn_at(node, shard, soon_us);
        consumed
    }

    pub(super) fn turn_at(&mut self, node: usize, shard: usize, when_us: u64) {
        let run = self.nodes[node].run;
        let Some(core) = self.core(node, shard) else {
            return;
        };
        if core.turn_us.is_none_or(|due_us| when_us < due_us) {
            core.turn_us = Some(when_us);
            self.at(when_us, Event::Turn { node, run, shard });
        }
    }

    pub(super) fn turn(&mut self, node: usize, run: u64, shard: usize) -> Step {
        let now = self.now_of(node);
        if !self.is_run(node, run) {
            return Ok(());
        }
        let (now_us, still_until_us) = (self.now_us, self.stands_still(node, shard));
        let core = self.core(node, shard).expect("it runs");
        if core.turn_us.is_none_or(|due_us| due_us > now_us) {
            return Ok(());
        }
        core.turn_us = None;
        if let Some(until_us) = still_until_us {
            self.turn_at(node, shard, until_us);
            return Ok(());
        }
        let core = self.core(node, shard).expect("it runs");
        core.shard.step(now, ShardEvent::TurnEnds, &mut core.outbox);
        core.shard.end_turn(now, &mut core.outbox);
        let store = core.shard.store();
        let (horizon_ms, time_ms) = (store.token_horizon_ms(), store.data().time_ms());
        let deadline_us = core.shard.deadline_us(now);
        // What is carried out steps the shard over a new outbox.
        let mut outbox = std::mem::take(&mut core.outbox);
        self.judge_writers(node)?;
        if let Some(sales) = &mut self.sales {
            sales.notice(horizon_ms, time_ms);
        }
        if let Some(holds) = &mut self.holds {
            holds.notice(time_ms);
        }
        let (world, end) = (&mut *self, End { node, run, shard });
        carry_out(&mut outbox, &mut CoreShell { world, end })?;
        if !self.is_run(node, run) {
            return Ok(());
        }
        self.read_waiting_links(end);
        if let Some(deadline_us) = deadline_us {
            let delay_us = self.clocks[node].in_true_us(deadline_us.saturating_sub(now.us).max(1));
            self.turn_at(node, shard, now_us.saturating_add(delay_us));
        }
        self.end_stopped(node);
        self.watch_handovers();
        Ok(())
    }

    /// What all shards of a node have taken over is void from now on.
    pub(super) fn inherited_gone(&mut self, node: usize) {
        self.meet("inherited logs gone");
        let files = self.nodes[node].void_inherited();
        for shard in 0..usize::from(self.nodes[node].shards) {
            self.step(node, shard, ShardEvent::InheritedGone);
        }
        let run = self.nodes[node].run;
        for file in files {
            let delay_us = self.harm.latency(5_000);
            self.after(delay_us, Event::Remove { node, run, file });
        }
    }
}
