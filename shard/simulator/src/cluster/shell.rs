//! What stands around one shard of a node in a turn: its disk, the network, the other shards.

use penstock_shard::audit::Audited;
use penstock_shard::replication::{LinkId, PartitionId};
use penstock_shard::{
    BadPlace, Event as ShardEvent, FailedEffects, Fatal, KeyTableOrder, Mail, Network, SessionId,
    Shell, SnapshotWrite, TokenHorizon,
};
use penstock_storage::cleaning::Damaged;
use penstock_storage::io::Io;
use penstock_storage::place::FileId;
use penstock_storage::recovery::Corruption;

use super::event::Event;
use super::links::End;
use super::node::Core;
use super::{Step, World, number_of};
use crate::disk::PoolBlock;

/// The world as one shard reaches it.
pub(super) struct CoreShell<'a> {
    pub(super) world: &'a mut World,
    pub(super) end: End,
}

impl CoreShell<'_> {
    fn core(&mut self) -> &mut Core {
        let End { node, shard, .. } = self.end;
        self.world.core(node, shard).expect("it runs")
    }

    fn close_all(&mut self, sessions: &mut Vec<(SessionId, &'static str)>) {
        let End { node, shard, .. } = self.end;
        for (session, _) in sessions.drain(..) {
            if let Some(client) = self.world.client_of(node, shard, session) {
                let connection = self.world.clients[client].connection;
                let connection = connection.expect("it was found by it");
                self.world.step(node, shard, ShardEvent::Closed { session });
                let closed = Event::Closed { client, connection };
                self.world.after(self.world.setting.network_us, closed);
            }
        }
    }
}

impl Shell for CoreShell<'_> {
    type Block = PoolBlock;
    type End = String;
    type Network = Self;

    fn network(&mut self) -> &mut Self {
        self
    }

    /// No node ends by itself, but one that was started on an older copy of its directory.
    fn fail(&mut self, fatal: Fatal, _: &mut Vec<String>) -> Step {
        let node = self.end.node;
        if fatal == Fatal::GoneBack && self.world.has_gone_back {
            self.world.meet("told to have gone back");
            self.world.empty(node);
            return Ok(());
        }
        let number = number_of(node);
        Err(format!(
            "node {number} ends, and its disk is sound: {fatal}"
        ))
    }

    fn stopped(&mut self) {
        self.core().is_stopped = true;
    }

    fn submit(&mut self, requests: &mut Vec<Io<PoolBlock>>) -> Step {
        let End { node, run, shard } = self.end;
        for io in requests.drain(..) {
            let (Io::Write { file, .. } | Io::Sync { file, .. } | Io::Read { file, .. }) = &io;
            let mut disk = self.world.nodes[node].disk.borrow_mut();
            if disk.forgotten.contains(file) {
                return Err(format!("{file:?} is used although it was let go of"));
            }
            let (ticket, ends_us) = disk.submit(self.world.now_us, io);
            drop(disk);
            let done = Event::DiskDone {
                node,
                run,
                shard,
                ticket,
            };
            self.world.at(ends_us, done);
        }
        Ok(())
    }

    fn inform(&mut self, requests: &mut Vec<(SessionId, u64)>) {
        assert!(requests.is_empty(), "no client asks for INFO");
    }

    /// After a while.
    fn remove(&mut self, files: &mut Vec<FileId>) {
        let End { node, run, .. } = self.end;
        for file in files.drain(..) {
            self.world.meet("segments released");
            let mut disk = self.world.nodes[node].disk.borrow_mut();
            disk.forgotten.insert(file);
            drop(disk);
            let delay_us = self.world.chance.latency(5_000);
            self.world
                .after(delay_us, Event::Remove { node, run, file });
        }
    }

    fn forget(&mut self, files: &mut Vec<FileId>) {
        let mut disk = self.world.nodes[self.end.node].disk.borrow_mut();
        disk.forgotten.extend(files.drain(..));
    }

    /// The last shard lets the inherited logs go.
    fn taken_over(&mut self) {
        let End { node, run, .. } = self.end;
        if self.world.nodes[node].takes_over() {
            let typical_us = self.world.harm.pick(&[20, 5_000]);
            let delay_us = self.world.harm.latency(typical_us);
            self.world.after(delay_us, Event::TakenOver { node, run });
        }
    }

    /// No segment is called damaged that is sound. Scrubbing and bad places are judged where one
    /// node is simulated.
    fn report_damage(
        &mut self,
        cleaning: &mut Vec<Damaged>,
        scrub: &mut Vec<Corruption>,
        requests: &mut Vec<BadPlace>,
    ) -> Step {
        scrub.clear();
        requests.clear();
        let node = self.end.node;
        match cleaning.drain(..).next_back() {
            Some(Damaged { file, offset }) if !self.world.may_find_damage(node) => Err(format!(
                "node {}: {:08}.seg is called damaged at {offset}",
                number_of(node),
                file.0
            )),
            _ => Ok(()),
        }
    }

    fn report_token_horizon(&mut self, _: TokenHorizon) {}

    fn report_failed_effects(&mut self, failed: &mut Vec<FailedEffects>) {
        if let Err(wrong) = self.world.judge_failed(failed) {
            self.world.failure.get_or_insert(wrong);
        }
        failed.clear();
    }

    fn write_snapshot(&mut self, writes: &mut Vec<SnapshotWrite>) {
        let End { node, run, shard } = self.end;
        for write in writes.drain(..) {
            let delay_us = self.world.snapshots.within(20, 600);
            let snapshot = Event::Snapshot {
                node,
                run,
                shard,
                write,
            };
            self.world.after(delay_us, snapshot);
        }
    }

    fn order_key_tables(&mut self, orders: &mut Vec<KeyTableOrder>) {
        let End { node, run, shard } = self.end;
        for order in orders.drain(..) {
            match order {
                KeyTableOrder::Make(home) => {
                    let event = Event::KeyTable {
                        node,
                        run,
                        shard,
                        home,
                    };
                    let delay_us = self.world.snapshots.within(200, 20_000);
                    self.world.after(delay_us, event);
                }
                KeyTableOrder::Load(_) => unreachable!("no start tells of any"),
                KeyTableOrder::Remove(file) => {
                    let mut disk = self.world.nodes[node].disk.borrow_mut();
                    disk.key_tables.remove(&file);
                }
            }
        }
    }

    fn make_spares(&mut self, spares: usize) {
        let End { node, run, shard } = self.end;
        for _ in 0..spares {
            let delay_us = self.world.chance.latency(3_000);
            self.world
                .after(delay_us, Event::Spare { node, run, shard });
        }
    }
}

impl Network for CoreShell<'_> {
    fn send(&mut self, sessions: &mut Vec<SessionId>) {
        let End { node, shard, .. } = self.end;
        for session in sessions.drain(..) {
            self.world.send_output(node, shard, session);
        }
    }

    fn resume(&mut self, sessions: &mut Vec<SessionId>) {
        let End { node, shard, .. } = self.end;
        for session in sessions.drain(..) {
            if let Some(client) = self.world.client_of(node, shard, session) {
                self.world.deliver(client);
            }
        }
    }

    fn close(&mut self, sessions: &mut Vec<(SessionId, &'static str)>) {
        self.close_all(sessions);
    }

    fn probe_peers(&mut self, sessions: &mut Vec<SessionId>) {
        let now = self.world.now_of(self.end.node);
        let core = self.core();
        for session in sessions.drain(..) {
            // The peer has what its link has taken.
            let event = ShardEvent::Unacknowledged { session, bytes: 0 };
            core.shard.step(now, event, &mut core.outbox);
        }
        let mut overdue = std::mem::take(&mut core.outbox.close);
        self.close_all(&mut overdue);
    }

    fn deliver(&mut self, mail: &mut Vec<(u16, Mail)>) {
        let End { node, run, .. } = self.end;
        for (to, mail) in mail.drain(..) {
            let to = usize::from(to);
            let when_us = self.world.now_us + self.world.chance.latency(3);
            let last_us = &mut self.core().mail_us[to];
            *last_us = when_us.max(*last_us);
            let when_us = *last_us;
            let mail = Event::Mail {
                node,
                run,
                to,
                mail,
            };
            self.world.at(when_us, mail);
        }
    }

    fn report_audit(&mut self, audited: &mut Vec<Audited>, _: u64) {
        assert!(audited.is_empty(), "nobody reads an audit log here");
    }

    fn report_links(&mut self, notices: &mut Vec<String>) {
        for line in notices.drain(..) {
            self.world.report_link(self.end, &line);
        }
    }

    fn keep_diverged(&mut self, records: &mut Vec<(PartitionId, Vec<u8>)>) {
        let End { node, shard, .. } = self.end;
        for (partition, record) in records.drain(..) {
            self.world.meet("diverged records kept");
            self.world.nodes[node].kept.push((shard, partition, record));
        }
    }

    fn sync_diverged(&mut self, partitions: &mut Vec<(PartitionId, Option<LinkId>)>) {
        let End { node, run, shard } = self.end;
        for (partition, link) in partitions.drain(..) {
            let delay_us = self.world.chance.latency(500);
            let found = Event::Found {
                node,
                run,
                shard,
                partition,
                link,
            };
            self.world.after(delay_us, found);
        }
    }

    fn send_links(&mut self, links: &mut Vec<LinkId>) {
        for link in links.drain(..) {
            self.world.send_link_output(self.end, link);
        }
    }

    fn end_links(&mut self, links: &mut Vec<(LinkId, Vec<u8>)>) {
        for (link, last_words) in links.drain(..) {
            self.world.end_link(self.end, link, last_words);
        }
    }
}
