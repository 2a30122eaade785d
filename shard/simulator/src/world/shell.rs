//! What stands around one shard in a turn: the virtual disk, the network, the other shards.

use penstock_shard::audit::Audited;
use penstock_shard::replication::{LinkId, PartitionId};
use penstock_shard::{
    BadPlace, Event as ShardEvent, FailedEffects, Fatal, KeyTableOrder, Mail, Network, SessionId,
    Shell, SnapshotWrite, TokenHorizon,
};
use penstock_storage::cleaning::Damaged;
use penstock_storage::io::Io;
use penstock_storage::place::FileId;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::recovery::Corruption;

use crate::coverage::Fault;
use crate::disk::PoolBlock;
use crate::holds::Holds;
use crate::plan::Budget;

use super::{Event, FIRST_FRAME, Phase, Step, World};

/// The world as one shard reaches it.
pub(super) struct CoreShell<'a> {
    pub(super) world: &'a mut World,
    pub(super) run: u64,
    pub(super) shard: usize,
}

impl CoreShell<'_> {
    fn core(&mut self) -> &mut super::Core {
        &mut self.world.node.as_mut().expect("it runs").cores[self.shard]
    }

    fn close_all(&mut self, sessions: &mut Vec<(SessionId, &'static str)>) {
        for (session, _) in sessions.drain(..) {
            if let Some(link) = self.world.link_of(self.run, self.shard, session) {
                self.world.close_at_server(link);
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

    /// The server ends loudly; the machine goes on, or not.
    fn fail(&mut self, fatal: Fatal, _: &mut Vec<String>) -> Step {
        self.world.trace.fold_bytes(fatal.to_string().as_bytes());
        let is_power_cut = self.world.chance.chance(300_000);
        self.world.die(is_power_cut);
        Ok(())
    }

    fn stopped(&mut self) {
        self.core().is_stopped = true;
    }

    fn submit(&mut self, requests: &mut Vec<Io<PoolBlock>>) -> Step {
        let (run, shard) = (self.run, self.shard);
        let world = &mut *self.world;
        let now_us = world.now_us;
        for io in requests.drain(..) {
            if let Io::Write {
                offset: FIRST_FRAME,
                ..
            } = &io
                && world.phase == Phase::Traffic
                && world.chance.chance(world.first_frame_crash)
            {
                // The next segment takes the same place in the log, and meets the same more often.
                world.first_frame_crash = 400_000;
                let when_us = now_us + world.chance.within(1, 400);
                world.at(when_us, Event::EarlyCrash { run });
            }
            let (Io::Write { file, .. } | Io::Sync { file, .. } | Io::Read { file, .. }) = &io;
            if world.disk.borrow().forgotten.contains(file) {
                return Err(format!("{file:?} is used although it was let go of"));
            }
            let (ticket, ends_us) = world.disk.borrow_mut().submit(now_us, io);
            world.at(ends_us, Event::DiskDone { run, shard, ticket });
        }
        Ok(())
    }

    fn inform(&mut self, requests: &mut Vec<(SessionId, u64)>) {
        assert!(requests.is_empty(), "no client asks for INFO");
    }

    /// After a while.
    fn remove(&mut self, files: &mut Vec<FileId>) {
        let run = self.run;
        for file in files.drain(..) {
            let core = self.core();
            let dropped = core.shard.store().cleaning().counters().expired_dropped;
            let has_dropped = std::mem::replace(&mut core.expired_dropped, dropped) < dropped;
            let world = &mut *self.world;
            world.hit(Fault::Released);
            if has_dropped {
                world.hit(Fault::ExpiredReleased);
            }
            world.disk.borrow_mut().forgotten.insert(file);
            let when_us = world.now_us + world.chance.latency(5_000);
            world.at(when_us, Event::Remove { run, file });
        }
    }

    fn forget(&mut self, files: &mut Vec<FileId>) {
        self.world
            .disk
            .borrow_mut()
            .forgotten
            .extend(files.drain(..));
    }

    /// The last shard lets the inherited logs go.
    fn taken_over(&mut self) {
        let run = self.run;
        let world = &mut *self.world;
        world.taken_over += 1;
        let shards = usize::from(world.layout.shards);
        if world.taken_over == shards || is_planted(Bug::GoneBeforeAll) {
            let typical_us = world.reshards.pick(&[20, 5_000]);
            let when_us = world.now_us + world.reshards.latency(typical_us);
            world.at(when_us, Event::TakenOver { run });
        }
    }

    /// What a shard calls damaged must be damaged. Bad places are judged by the answers.
    fn report_damage(
        &mut self,
        cleaning: &mut Vec<Damaged>,
        scrub: &mut Vec<Corruption>,
        requests: &mut Vec<BadPlace>,
    ) -> Step {
        requests.clear();
        for rotten in scrub.drain(..) {
            self.world.judge_rotten(&rotten)?;
        }
        let plan = &self.world.plan;
        let reads_fail = plan.disk.read_error + plan.disk.bad_read > 0;
        let may_find = reads_fail || self.world.phase == Phase::Rot;
        // Cleaning leaves a segment that it cannot read. A log has a largest number of segments, so
        // it may be full from then on.
        self.world.oracle.may_be_full |= !cleaning.is_empty();
        if let Some(damaged) = cleaning.drain(..).next_back()
            && plan.budget == Budget::Survivable
            && !may_find
        {
            return Err(format!(
                "cleaning finds {:08}.seg damaged at {}, which nothing has touched",
                damaged.file.0, damaged.offset
            ));
        }
        Ok(())
    }

    fn report_token_horizon(&mut self, _: TokenHorizon) {}

    /// Effects of holds fail only if their keys cannot be read.
    fn report_failed_effects(&mut self, failed: &mut Vec<FailedEffects>) {
        let may_fail = self.world.holds.as_ref().is_none_or(Holds::may_fail);
        if let Some(it) = failed.first().filter(|_| !may_fail) {
            let key = String::from_utf8_lossy(&it.key);
            let failure = format!("effects of {key} failed: {}", it.why);
            self.world.failure.get_or_insert(failure);
        }
        failed.clear();
    }

    fn write_snapshot(&mut self, writes: &mut Vec<SnapshotWrite>) {
        let (run, shard) = (self.run, self.shard);
        for write in writes.drain(..) {
            let when_us = self.world.now_us + self.world.snapshots.latency(300);
            self.world
                .at(when_us, Event::Snapshot { run, shard, write });
        }
    }

    fn order_key_tables(&mut self, orders: &mut Vec<KeyTableOrder>) {
        for order in orders.drain(..) {
            self.world.order_key_table(self.run, self.shard, order);
        }
    }

    fn make_spares(&mut self, spares: usize) {
        let (run, shard) = (self.run, self.shard);
        for _ in 0..spares {
            let when_us = self.world.now_us + self.world.chance.latency(5_000);
            self.world.at(when_us, Event::Spare { run, shard });
        }
    }
}

impl Network for CoreShell<'_> {
    fn send(&mut self, sessions: &mut Vec<SessionId>) {
        for session in sessions.drain(..) {
            if let Some(link) = self.world.link_of(self.run, self.shard, session) {
                self.world.send_output(link, session);
            }
        }
    }

    fn resume(&mut self, sessions: &mut Vec<SessionId>) {
        for session in sessions.drain(..) {
            if let Some(link) = self.world.link_of(self.run, self.shard, session) {
                self.world.deliver(link);
            }
        }
    }

    fn close(&mut self, sessions: &mut Vec<(SessionId, &'static str)>) {
        self.close_all(sessions);
    }

    fn probe_peers(&mut self, sessions: &mut Vec<SessionId>) {
        let now = self.world.now();
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
        let run = self.run;
        for (to, mail) in mail.drain(..) {
            let to = usize::from(to);
            let when_us = self.world.now_us + self.world.chance.latency(3);
            let last_us = &mut self.core().mail_us[to];
            *last_us = when_us.max(*last_us);
            let when_us = *last_us;
            self.world.at(when_us, Event::Mail { run, to, mail });
        }
    }

    fn report_audit(&mut self, audited: &mut Vec<Audited>, _: u64) {
        assert!(audited.is_empty(), "nobody reads an audit log here");
    }

    fn report_links(&mut self, notices: &mut Vec<String>) {
        assert!(notices.is_empty(), "a node alone has no links");
    }

    fn keep_diverged(&mut self, records: &mut Vec<(PartitionId, Vec<u8>)>) {
        assert!(records.is_empty(), "nothing diverges on a node alone");
    }

    fn sync_diverged(&mut self, partitions: &mut Vec<(PartitionId, Option<LinkId>)>) {
        assert!(partitions.is_empty(), "nothing diverges on a node alone");
    }

    fn send_links(&mut self, links: &mut Vec<LinkId>) {
        assert!(links.is_empty(), "a node alone has no links");
    }

    fn end_links(&mut self, links: &mut Vec<(LinkId, Vec<u8>)>) {
        assert!(links.is_empty(), "a node alone has no links");
    }
}
