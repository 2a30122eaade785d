//! The loop around one shard: its turns, its connections, its mail.

use penstock_shard::{Event as ShardEvent, Mail, Outbox, SessionId};
use penstock_storage::cleaning::Damaged;
use penstock_storage::io::Io;
use penstock_storage::place::FileId;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::recovery::Corruption;

use crate::coverage::Fault;
use crate::disk::PoolBlock;
use crate::plan::Budget;

use super::{Event, FIRST_FRAME, Link, Phase, Step, World};

impl World {
    pub(super) fn step(&mut self, shard: usize, event: ShardEvent<'_, PoolBlock>) -> usize {
        let now = self.now();
        let Some(node) = self.node.as_mut() else {
            return 0;
        };
        let core = &mut node.cores[shard];
        let consumed = core.shard.step(now, event, &mut core.outbox);
        if let Err(wrong) = core.judge_time(now) {
            self.failure = Some(format!("shard {shard}: {wrong}"));
        }
        self.turn_soon(shard);
        consumed
    }

    pub(super) fn turn_soon(&mut self, shard: usize) {
        let when_us = self.now_us + self.chance.below(8);
        self.turn_at(shard, when_us);
    }

    fn turn_at(&mut self, shard: usize, when_us: u64) {
        let Some(node) = self.node.as_mut() else {
            return;
        };
        let run = node.run;
        let core = &mut node.cores[shard];
        if core.turn_us.is_none_or(|due_us| when_us < due_us) {
            core.turn_us = Some(when_us);
            self.at(when_us, Event::Turn { run, shard });
        }
    }

    pub(super) fn turn(&mut self, run: u64, shard: usize) -> Step {
        let now = self.now();
        if !self.is_run(run) {
            return Ok(());
        }
        let node = self.node.as_mut().expect("it runs");
        let core = &mut node.cores[shard];
        if core.turn_us.is_none_or(|due_us| due_us > now.us) {
            return Ok(());
        }
        core.turn_us = None;
        core.shard.step(now, ShardEvent::TurnEnds, &mut core.outbox);
        if !core.shard.store().has_room_for_keys() {
            self.coverage.borrow_mut().fault(Fault::NoMemory);
        }
        let timely = core.judge_time(now);
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
            rotten,
            bad_places: _,
            links: _,
            snapshots,
            key_tables,
            is_stopped,
            fatal,
        } = std::mem::take(&mut core.outbox);
        assert!(info.is_empty(), "no client asks for INFO");
        core.is_stopped |= is_stopped;
        timely.map_err(|wrong| format!("shard {shard}: {wrong}"))?;
        let deadline_us = core.shard.deadline_us(now);
        if let Some(fatal) = fatal {
            self.trace.fold_bytes(fatal.to_string().as_bytes());
            // The server ends loudly; the machine goes on, or not.
            let is_power_cut = self.chance.chance(300_000);
            self.die(is_power_cut);
            return Ok(());
        }
        self.submit(run, shard, io)?;
        self.reply(run, shard, sendable, resume);
        close.append(&mut self.overdue(shard, looks));
        for (session, _) in close {
            if let Some(link) = self.link_of(run, shard, session) {
                self.close_at_server(link);
            }
        }
        self.send_mail(run, shard, mail);
        self.remove(run, shard, removals);
        self.disk.borrow_mut().forgotten.extend(forgotten);
        if has_taken_over {
            self.took_over(run);
        }
        self.judge_damage(&rotten, &damaged)?;
        for write in snapshots {
            let when_us = now.us + self.snapshots.latency(300);
            self.at(when_us, Event::Snapshot { run, shard, write });
        }
        for order in key_tables {
            self.order_key_table(run, shard, order);
        }
        for _ in 0..spares {
            let when_us = now.us + self.chance.latency(5_000);
            self.at(when_us, Event::Spare { run, shard });
        }
        if let Some(deadline_us) = deadline_us {
            self.turn_at(shard, deadline_us.max(now.us + 1));
        }
        let node = self.node.as_ref().expect("it runs");
        if node.is_stopping && node.cores.iter().all(|core| core.is_stopped) {
            self.at(now.us + 2_000, Event::Exit { run });
        }
        Ok(())
    }

    /// Hands disk requests to the disk.
    fn submit(&mut self, run: u64, shard: usize, requests: Vec<Io<PoolBlock>>) -> Step {
        let now_us = self.now_us;
        for io in requests {
            if let Io::Write {
                offset: FIRST_FRAME,
                ..
            } = &io
                && self.phase == Phase::Traffic
                && self.chance.chance(self.first_frame_crash)
            {
                // The next segment takes the same place in the log, and meets the same more often.
                self.first_frame_crash = 400_000;
                let when_us = now_us + self.chance.within(1, 400);
                self.at(when_us, Event::EarlyCrash { run });
            }
            let (Io::Write { file, .. } | Io::Sync { file, .. } | Io::Read { file, .. }) = &io;
            if self.disk.borrow().forgotten.contains(file) {
                return Err(format!("{file:?} is used although it was let go of"));
            }
            let (ticket, ends_us) = self.disk.borrow_mut().submit(now_us, io);
            self.at(ends_us, Event::DiskDone { run, shard, ticket });
        }
        Ok(())
    }

    /// Sends replies, and hands over bytes again for which there was no room.
    fn reply(&mut self, run: u64, shard: usize, sendable: Vec<SessionId>, resume: Vec<SessionId>) {
        for session in sendable {
            if let Some(link) = self.link_of(run, shard, session) {
                self.send_output(link, session);
            }
        }
        for session in resume {
            if let Some(link) = self.link_of(run, shard, session) {
                self.deliver(link);
            }
        }
    }

    /// Tells the shard what peers have not acknowledged. Returns the connections to be closed for
    /// that.
    fn overdue(&mut self, shard: usize, looks: Vec<SessionId>) -> Vec<(SessionId, &'static str)> {
        let now = self.now();
        let core = &mut self.node.as_mut().expect("it runs").cores[shard];
        for session in looks {
            // The peer has what its link has taken.
            let told = ShardEvent::Unacknowledged { session, bytes: 0 };
            core.shard.step(now, told, &mut core.outbox);
        }
        std::mem::take(&mut core.outbox.close)
    }

    /// Delivers batches to other shards, those to one shard in their order.
    fn send_mail(&mut self, run: u64, shard: usize, mail: Vec<(u16, Mail)>) {
        for (to, mail) in mail {
            let to = usize::from(to);
            let delay_us = self.chance.latency(3);
            let core = &mut self.node.as_mut().expect("it runs").cores[shard];
            core.mail_us[to] = core.mail_us[to].max(self.now_us + delay_us);
            let when_us = core.mail_us[to];
            self.at(when_us, Event::Mail { run, to, mail });
        }
    }

    /// Removes the files of released segments, after a while.
    fn remove(&mut self, run: u64, shard: usize, files: Vec<FileId>) {
        for file in files {
            self.coverage.borrow_mut().fault(Fault::Released);
            let core = &mut self.node.as_mut().expect("it runs").cores[shard];
            let dropped = core.shard.store().cleaning_counters().expired_dropped;
            if std::mem::replace(&mut core.expired_dropped, dropped) < dropped {
                self.coverage.borrow_mut().fault(Fault::ExpiredReleased);
            }
            self.disk.borrow_mut().forgotten.insert(file);
            let when_us = self.now_us + self.chance.latency(5_000);
            self.at(when_us, Event::Remove { run, file });
        }
    }

    /// A shard has taken over what it inherited; the last one lets the inherited logs go.
    fn took_over(&mut self, run: u64) {
        self.taken_over += 1;
        let shards = usize::from(self.layout.shards);
        if self.taken_over == shards || is_planted(Bug::GoneBeforeAll) {
            let typical_us = self.reshards.pick(&[20, 5_000]);
            let when_us = self.now_us + self.reshards.latency(typical_us);
            self.at(when_us, Event::TakenOver { run });
        }
    }

    /// What a shard calls damaged must be damaged.
    fn judge_damage(&mut self, rotten: &[Corruption], damaged: &[Damaged]) -> Step {
        for rotten in rotten {
            self.judge_rotten(rotten)?;
        }
        let reads_fail = self.plan.disk.read_error + self.plan.disk.bad_read > 0;
        if self.plan.budget == Budget::Survivable
            && !reads_fail
            && self.phase != Phase::Rot
            && let Some(damaged) = damaged.last()
        {
            return Err(format!(
                "cleaning finds {:08}.seg damaged at {}, which nothing has touched",
                damaged.file.0, damaged.offset
            ));
        }
        Ok(())
    }

    fn link_of(&self, run: u64, shard: usize, session: SessionId) -> Option<usize> {
        self.links.iter().rposition(|link| {
            link.run == run
                && link.shard == shard
                && link.session == Some(session)
                && !link.is_closed
        })
    }

    /// Gives the server what it has of a connection and did not take yet.
    pub(super) fn deliver(&mut self, link: usize) {
        let Link {
            run,
            shard,
            session,
            ..
        } = self.links[link];
        let (true, Some(session)) = (self.is_run(run), session) else {
            return;
        };
        let bytes = std::mem::take(&mut self.links[link].inbound);
        if bytes.is_empty() {
            return;
        }
        let consumed = self.step(
            shard,
            ShardEvent::Received {
                session,
                bytes: &bytes,
            },
        );
        self.links[link].inbound = bytes[consumed..].to_vec();
    }

    /// Moves what a connection may send onto the network.
    fn send_output(&mut self, link: usize, session: SessionId) {
        let now = self.now();
        let shard = self.links[link].shard;
        let mut bytes = Vec::new();
        let node = self.node.as_mut().expect("it runs");
        let state = &mut node.cores[shard].shard;
        state.take_output(now, session, &mut bytes);
        let is_finished = state.is_finished(session);
        if !bytes.is_empty() {
            self.trace.fold_bytes(&bytes);
            if self.links[link].is_abandoned {
                // Nobody takes it: the server notices by its own deadline.
                return;
            }
            self.links[link].output_us.get_or_insert(now.us);
            let pieces = self.pieces(bytes);
            for piece in pieces {
                let delay_us = self.delay();
                let state = &mut self.links[link];
                state.client_us = state.client_us.max(now.us + delay_us);
                let when_us = state.client_us;
                self.at(when_us, Event::ToClient { link, bytes: piece });
            }
        }
        if is_finished {
            self.close_at_server(link);
        }
    }

    pub(super) fn close_at_server(&mut self, link: usize) {
        let Link {
            run,
            shard,
            session,
            ..
        } = self.links[link];
        self.links[link].is_closed = true;
        if let Some(session) = session
            && self.is_run(run)
        {
            self.step(shard, ShardEvent::Closed { session });
        }
        self.close_soon(link);
    }

    pub(super) fn close_soon(&mut self, link: usize) {
        self.links[link].is_closed = true;
        let delay_us = self.delay();
        let state = &mut self.links[link];
        state.client_us = state.client_us.max(self.now_us + delay_us);
        let when_us = state.client_us;
        self.at(when_us, Event::Closed { link });
    }
}
