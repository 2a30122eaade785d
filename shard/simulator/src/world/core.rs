//! The loop around one shard: its turns, its connections, its mail.

use penstock_shard::{Event as ShardEvent, SessionId, carry_out};

use crate::coverage::Fault;
use crate::disk::PoolBlock;

use super::shell::CoreShell;
use super::{Event, Link, Step, World};

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
        self.notify_readers();
        self.turn_soon(shard);
        consumed
    }

    pub(super) fn turn_soon(&mut self, shard: usize) {
        let when_us = self.now_us + self.chance.below(8);
        self.turn_at(shard, when_us);
    }

    pub(super) fn turn_at(&mut self, shard: usize, when_us: u64) {
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
        if let Some(sales) = &mut self.sales {
            let store = core.shard.store();
            sales.notice(store.token_horizon_ms(), store.data().time_ms());
        }
        if let Some(holds) = &mut self.holds {
            holds.notice(core.shard.store().data().time_ms());
        }
        if !core.shard.store().data().has_room_for_keys() {
            self.coverage.borrow_mut().fault(Fault::NoMemory);
        }
        let timely = core.judge_time(now);
        let deadline_us = core.shard.deadline_us(now);
        timely.map_err(|wrong| format!("shard {shard}: {wrong}"))?;
        self.notify_readers();
        let node = self.node.as_mut().expect("it runs");
        let core = &mut node.cores[shard];
        // What is carried out steps the shard over a new outbox.
        let mut outbox = std::mem::take(&mut core.outbox);
        let world = &mut *self;
        carry_out(&mut outbox, &mut CoreShell { world, run, shard })?;
        if !self.is_run(run) {
            return Ok(());
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

    pub(super) fn link_of(&self, run: u64, shard: usize, session: SessionId) -> Option<usize> {
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
        if self.deliver_visitor(link) {
            return;
        }
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
    pub(super) fn send_output(&mut self, link: usize, session: SessionId) {
        let now = self.now();
        let shard = self.links[link].shard;
        let mut bytes = Vec::new();
        let node = self.node.as_mut().expect("it runs");
        let state = &mut node.cores[shard].shard;
        state.take_output(now, session, &mut bytes);
        let is_finished = state.front().is_finished(session);
        if self.answered_visitor(link, &bytes) {
            return;
        }
        if !bytes.is_empty() {
            self.trace.fold_bytes(&bytes);
            if self.links[link].is_abandoned {
                // Nobody takes it: the server notices by its own deadline.
                return;
            }
            self.links[link].output_us.get_or_insert(now.us);
            self.send_to_client(link, bytes);
        }
        if is_finished {
            self.close_at_server(link);
        }
    }

    pub(super) fn send_to_client(&mut self, link: usize, bytes: Vec<u8>) {
        let pieces = self.pieces(bytes);
        for piece in pieces {
            let delay_us = self.delay();
            let state = &mut self.links[link];
            state.client_us = state.client_us.max(self.now_us + delay_us);
            let when_us = state.client_us;
            self.at(when_us, Event::ToClient { link, bytes: piece });
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
        self.end_visit(link);
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
