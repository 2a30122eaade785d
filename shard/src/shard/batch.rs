//! Batches: the items of a frame in their order, answered in as few frames as possible.

use penstock_net::batch::Batch;
use penstock_net::frame::Header;
use penstock_net::level::AckLevel;
use penstock_net::reply::BatchReply;
use penstock_net::request::may_begin_run;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{Bug, is_planted};

use crate::execution::batch_run::{Arrival, BatchRun, Passed, Progress, deadline_us_of};
use crate::execution::direct_answers::DirectAnswers;
use crate::execution::operation::{Disposition, Known, Operation};
use crate::execution::window::Upcoming;
use crate::mail::ReplyAddress;
use crate::now::Now;
use crate::requests::parking::{Order, Origin};
use crate::sessions::SMALL_ANSWER_BYTES;
use crate::shard::Shard;
use crate::step::Step;

impl<P: Blocks> Shard<P> {
    /// Runs the items of a batch from where it was left, until it is whole or its reply frame ends.
    pub(super) fn batch(
        &mut self,
        step: &mut Step<'_, P::Block>,
        arrival: Arrival,
        header: &Header,
        batch: Batch<'_>,
        level: AckLevel,
    ) -> Progress {
        let mut run = self.begin_batch(step.now, arrival, header, batch.len(), level);
        self.note_writer(Origin::Here, arrival.id);
        let mut ahead = Upcoming::new();
        let mut progress = Progress::Whole;
        while run.next < batch.len() {
            if !ahead.covers(run.next) {
                let rights = run.rights.as_deref();
                self.execution
                    .prefetch_items(batch, run.next, rights, &mut ahead);
            }
            let item = ahead.plain(run.next);
            let is_others =
                item.is_some_and(|(_, known, _)| !self.execution.setup.owns(known.slot));
            let plain = match item {
                Some(item) if !is_others => {
                    let leave = *ahead
                        .leave
                        .get_or_insert_with(|| self.execution.direct_leave(&run));
                    self.execution
                        .answer_directly(step.now, &mut run, leave, item)
                }
                _ => None,
            };
            let passed = match plain {
                Some(passed) => passed,
                None => {
                    let known = ahead.known(run.next);
                    match is_others {
                        true => ahead.something_left(),
                        false => ahead.something_ran(),
                    }
                    self.run_next(step.now, &mut run, batch, known)
                }
            };
            match passed {
                Passed::On => run.next += 1,
                Passed::Again => {
                    progress = Progress::NoRoom;
                    break;
                }
                Passed::Stop(stop) => {
                    run.next += 1;
                    if run.next < batch.len() {
                        progress = stop;
                        let interrupted = Some((run.request_id, run.next));
                        self.front.sessions.at_mut(arrival.id).interrupted = interrupted;
                    }
                    break;
                }
            }
        }
        self.end_batch(step, run, progress == Progress::Whole);
        progress
    }

    /// Begins a reply frame of a batch of so many items, where the frame before was left.
    #[inline]
    fn begin_batch(
        &mut self,
        now: Now,
        arrival: Arrival,
        header: &Header,
        items: usize,
        level: AckLevel,
    ) -> BatchRun {
        let deadline_us = deadline_us_of(header, arrival.came_us);
        let is_expired = self.execution.comes_too_late(now, deadline_us).is_some();
        let room = self.front.sessions.room_for_replies();
        let full_bytes = self.execution.setup.frame_full_bytes();
        let reachable = self
            .execution
            .reachable(level.max(self.execution.setup.config().level_min));
        let session = self.front.sessions.at_mut(arrival.id);
        let first = session.interrupted.take().map_or(0, |(_, items)| items);
        let rights = session.access.rights.take();
        let mut out = std::mem::take(&mut session.output.pieces);
        let reply = BatchReply::begin(&mut out, header.request_id, items - first);
        BatchRun {
            arrival,
            request_id: header.request_id,
            level: reachable,
            is_unleveled: level == AckLevel::None,
            deadline_us,
            is_expired,
            first,
            next: first,
            reply: reply.over(session.peer.medium),
            out,
            gate: Lsn(0),
            is_busy: false,
            owed: 0,
            plain: DirectAnswers::new(self.execution.store.log().durable()),
            rights,
            takes_long_answers: self.front.sessions.has_room_for_long_answers(),
            full_bytes: match is_expired {
                true => full_bytes,
                false => full_bytes.min(room.max(SMALL_ANSWER_BYTES)),
            },
        }
    }

    /// Runs the next item of a batch, and with it those behind it that repeat it.
    #[inline]
    fn run_next(
        &mut self,
        now: Now,
        run: &mut BatchRun,
        batch: Batch<'_>,
        known: Option<Known<'_>>,
    ) -> Passed {
        let item = batch.item(run.next);
        let answer_at = run.out.written().len();
        let waits = self.execution.replica_waits.begun();
        match self.batch_item(now, run, item, known) {
            Passed::On if !may_begin_run(item) => Passed::On,
            Passed::On if self.execution.replica_waits.begun() > waits => {
                self.go_on_waiting(now, run, batch)
            }
            Passed::On => self.execution.go_on(now, run, batch, answer_at),
            passed => passed,
        }
    }

    /// Runs the next item of a batch.
    #[inline]
    fn batch_item(
        &mut self,
        now: Now,
        run: &mut BatchRun,
        item: &[u8],
        known: Option<Known<'_>>,
    ) -> Passed {
        let Arrival { id, came_us } = run.arrival;
        let operation = Operation {
            origin: Origin::Here,
            address: ReplyAddress {
                session: id,
                request_id: run.request_id,
                item: run.number(run.next),
                item_bytes: u32::try_from(item.len()).expect("a frame bounds it"),
                wants_began: self.front.sessions.at(id).peer.wants_began,
                knows_all: self.front.sessions.at(id).peer.knows_all,
                knows_wrong_type: self.front.sessions.at(id).peer.knows_wrong_type,
                is_unleveled: run.is_unleveled,
                answer_bytes: 0,
            },
            level: run.level,
            deadline_us: run.deadline_us,
            came_us,
            item,
            brought: None,
            known,
            rights: run.rights.as_ref(),
            program: None,
            answer: None,
            order: Order::OfAll,
        };
        let asks_for_much = !run.takes_long_answers
            && !run.is_expired
            && self.execution.asks_for_much(item, SMALL_ANSWER_BYTES)
            && !self.execution.is_denied(&operation);
        if asks_for_much {
            return self.waits_for_much(run);
        }
        let is_held_back = self.execution.is_held_back(now, run.deadline_us, item)
            && !self.execution.is_denied(&operation);
        let disposition = match is_held_back {
            true => Disposition::Postponed,
            false => self.operation(now, &operation, &mut run.out),
        };
        let passed = match disposition {
            Disposition::Answered(lsn) => {
                run.depends_on(lsn);
                run.passed()
            }
            Disposition::Busy => {
                run.is_busy = true;
                run.passed()
            }
            Disposition::Later => {
                run.owed += 1;
                match self.front.sessions.has_room_for_replies(id) {
                    true => Passed::On,
                    false => Passed::Stop(Progress::NoRoom),
                }
            }
            Disposition::Postponed => {
                if !is_planted(Bug::RepeatInterruptedBatch) {
                    self.front.sessions.at_mut(id).interrupted = Some((run.request_id, run.next));
                }
                Passed::Again
            }
        };
        match passed {
            Passed::On | Passed::Stop(_) if self.execution.slice.is_over() => {
                Passed::Stop(Progress::NoRoom)
            }
            passed => passed,
        }
    }

    /// Has the next item of a batch wait for room for its long answer.
    fn waits_for_much(&mut self, run: &BatchRun) -> Passed {
        let session = self.front.sessions.at_mut(run.arrival.id);
        session.interrupted = Some((run.request_id, run.next));
        session.pause.wants_much();
        Passed::Again
    }

    /// Ends a reply frame: hands it to the connection and notes what is answered later.
    #[inline]
    fn end_batch(&mut self, step: &mut Step<'_, P::Block>, mut run: BatchRun, is_whole: bool) {
        self.execution.end_direct_answers(&mut run);
        let Arrival { id, came_us } = run.arrival;
        let (request_id, owed, mut out) = (run.request_id, run.owed, run.out);
        let answered = run.reply.len();
        self.execution
            .stats
            .answer_at_once(step.now.us, came_us, answered as u64);
        let session = self.front.sessions.at_mut(id);
        session.access.rights = run.rights;
        if owed > 0 {
            session.owe(request_id, owed);
        }
        let more = !is_whole || owed > 0 || session.owes(request_id);
        let shard = self.execution.setup.shard();
        let retry_after_ms = match run.is_busy {
            true => self.execution.stats.retry_after_ms(),
            false => 0,
        };
        let has_reply = run.reply.retry_after(retry_after_ms).finish(
            &mut out,
            shard,
            more && answered > 0,
            false,
        );
        session.output.pieces = out;
        if has_reply {
            self.note(id, run.gate, answered, step.outbox);
        }
    }
}
