//! The starts, ends and turns of nodes.

use std::sync::Arc;

use penstock_shard::Event as ShardEvent;
use penstock_shard::Fatal;
use penstock_shard::KeyTableOrder;
use penstock_shard::Mail;
use penstock_shard::Outbox;
use penstock_shard::SessionId;
use penstock_storage::cleaning::Damaged;
use penstock_storage::io::Io;

use super::event::Event;
use super::links::End;
use super::node::Core;
use super::{Step, World, number_of};
use crate::disk::PoolBlock;

impl World {
    pub(super) fn start(&mut self, node: usize) -> Step {
        if self.nodes[node].cores.is_some() {
            return Ok(());
        }
        let is_new = !self.nodes[node].was_started && !self.nodes[node].was_wiped;
        self.prepare_start(node);
        if self.may_go_back() && self.nodes[node].was_started {
            self.nodes[node].copy();
        }
        let (now, plan) = (self.now(), Arc::clone(&self.plan));
        let started = self.nodes[node].start(now, &self.setting, plan, is_new);
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
        let now = self.now();
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
        let now = self.now();
        if !self.is_run(node, run) {
            return Ok(());
        }
        let core = self.core(node, shard).expect("it runs");
        if core.turn_us.is_none_or(|due_us| due_us > now.us) {
            return Ok(());
        }
        core.turn_us = None;
        core.shard.step(now, ShardEvent::TurnEnds, &mut core.outbox);
        // Every field by name: one that is forgotten here does not compile.
        let Outbox {
            io,
            sendable,
            resume,
            looks,
            mut close,
            mail,
            info,
            spares,
            removals,
            has_taken_over,
            forgotten,
            damaged,
            rotten: _,
            bad_places: _,
            links,
            snapshots,
            key_tables,
            is_stopped,
            fatal,
        } = std::mem::take(&mut core.outbox);
        assert!(info.is_empty(), "no client asks for INFO");
        core.is_stopped |= is_stopped;
        let deadline_us = core.shard.deadline_us(now);
        if fatal == Some(Fatal::GoneBack) && self.has_gone_back {
            self.meet("told to have gone back");
            self.empty(node);
            return Ok(());
        }
        self.judge_ends(node, fatal, damaged.last())?;
        let end = End { node, run, shard };
        self.submit(end, io)?;
        for session in sendable {
            self.send_output(node, shard, session);
        }
        for session in resume {
            if let Some(client) = self.client_of(node, shard, session) {
                self.deliver(client);
            }
        }
        close.append(&mut self.overdue(end, looks));
        self.close(end, close);
        self.send_mail(end, mail);
        for write in snapshots {
            let delay_us = self.snapshots.within(20, 600);
            let snapshot = Event::Snapshot {
                node,
                run,
                shard,
                write,
            };
            self.after(delay_us, snapshot);
        }
        self.order_key_tables(end, key_tables);
        for file in removals {
            self.meet("segments released");
            self.nodes[node].disk.borrow_mut().forgotten.insert(file);
            let delay_us = self.chance.latency(5_000);
            self.after(delay_us, Event::Remove { node, run, file });
        }
        let mut disk = self.nodes[node].disk.borrow_mut();
        disk.forgotten.extend(forgotten);
        drop(disk);
        for _ in 0..spares {
            let delay_us = self.chance.latency(3_000);
            self.after(delay_us, Event::Spare { node, run, shard });
        }
        if has_taken_over && self.nodes[node].takes_over() {
            let typical_us = self.harm.pick(&[20, 5_000]);
            let delay_us = self.harm.latency(typical_us);
            self.after(delay_us, Event::TakenOver { node, run });
        }
        self.links_of_turn(node, shard, links)?;
        if let Some(deadline_us) = deadline_us {
            self.turn_at(node, shard, deadline_us.max(now.us + 1));
        }
        self.end_stopped(node);
        self.watch_handovers();
        Ok(())
    }

    /// No node ends by itself, and none calls a segment damaged that is sound.
    fn judge_ends(&self, node: usize, fatal: Option<Fatal>, damaged: Option<&Damaged>) -> Step {
        let number = number_of(node);
        if let Some(fatal) = fatal {
            return Err(format!(
                "node {number} ends, and its disk is sound: {fatal}"
            ));
        }
        match damaged.filter(|_| !self.may_find_damage(node)) {
            Some(Damaged { file, offset }) => Err(format!(
                "node {number}: {:08}.seg is called damaged at {offset}",
                file.0
            )),
            None => Ok(()),
        }
    }

    /// Hands disk requests to the disk of a node.
    pub(super) fn submit(&mut self, end: End, requests: Vec<Io<PoolBlock>>) -> Step {
        let End { node, run, shard } = end;
        for io in requests {
            let (Io::Write { file, .. } | Io::Sync { file, .. } | Io::Read { file, .. }) = &io;
            let mut disk = self.nodes[node].disk.borrow_mut();
            if disk.forgotten.contains(file) {
                return Err(format!("{file:?} is used although it was let go of"));
            }
            let (ticket, ends_us) = disk.submit(self.now_us, io);
            drop(disk);
            let done = Event::DiskDone {
                node,
                run,
                shard,
                ticket,
            };
            self.at(ends_us, done);
        }
        Ok(())
    }

    /// Tells a shard what peers have not acknowledged. Returns the connections to be closed for
    /// that.
    pub(super) fn overdue(
        &mut self,
        end: End,
        looks: Vec<SessionId>,
    ) -> Vec<(SessionId, &'static str)> {
        let now = self.now();
        let core = self.core(end.node, end.shard).expect("it runs");
        for session in looks {
            let told = ShardEvent::Unacknowledged { session, bytes: 0 };
            core.shard.step(now, told, &mut core.outbox);
        }
        std::mem::take(&mut core.outbox.close)
    }

    /// Closes connections of clients.
    pub(super) fn close(&mut self, end: End, sessions: Vec<(SessionId, &'static str)>) {
        for (session, _) in sessions {
            if let Some(client) = self.client_of(end.node, end.shard, session) {
                let connection = self.clients[client].connection.expect("it was found by it");
                self.step(end.node, end.shard, ShardEvent::Closed { session });
                let closed = Event::Closed { client, connection };
                self.after(self.setting.network_us, closed);
            }
        }
    }

    /// Delivers batches to other shards of the node, those to one shard in their order.
    pub(super) fn send_mail(&mut self, end: End, mail: Vec<(u16, Mail)>) {
        let End { node, run, shard } = end;
        for (to, mail) in mail {
            let to = usize::from(to);
            let (delay_us, now_us) = (self.chance.latency(3), self.now_us);
            let core = self.core(node, shard).expect("it runs");
            core.mail_us[to] = core.mail_us[to].max(now_us + delay_us);
            let when_us = core.mail_us[to];
            let mail = Event::Mail {
                node,
                run,
                to,
                mail,
            };
            self.at(when_us, mail);
        }
    }

    /// Makes and removes key tables.
    pub(super) fn order_key_tables(&mut self, end: End, orders: Vec<KeyTableOrder>) {
        let End { node, run, shard } = end;
        for order in orders {
            match order {
                KeyTableOrder::Make(home) => {
                    let event = Event::KeyTable {
                        node,
                        run,
                        shard,
                        home,
                    };
                    let delay_us = self.snapshots.within(200, 20_000);
                    self.after(delay_us, event);
                }
                KeyTableOrder::Load(_) => unreachable!("no start tells of any"),
                KeyTableOrder::Remove(file) => {
                    let mut disk = self.nodes[node].disk.borrow_mut();
                    disk.key_tables.remove(&file);
                }
            }
        }
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
