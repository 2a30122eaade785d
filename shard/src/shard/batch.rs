//! Batches: the items of a frame in their order, answered in as few frames as possible.

use std::sync::Arc;

use penstock_net::batch::Batch;
use penstock_net::frame::Header;
use penstock_net::level::AckLevel;
use penstock_net::pieces::Pieces;
use penstock_net::reply::BatchReply;
use penstock_net::request::may_begin_run;
use penstock_net::rights::Rights;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{self, Bug, is_planted};

use crate::mail::{ReplyAddress, SessionId};
use crate::requests::parking::Origin;
use crate::sessions::SMALL_ANSWER_BYTES;

use super::operation::{Known, Operation, Step};
use super::plain_answers::PlainAnswers;
use super::window::LookAhead;
use super::{Now, Outbox, Shard};

/// Bytes of a connection that wait to be run.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    pub(super) id: SessionId,
    /// When they came, in microseconds of the node's clock.
    pub(super) came_us: u64,
}

/// How far a batch has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Every item has run, or is on its way.
    Whole,
    /// Its reply goes on in another frame.
    FrameFull,
    /// There is no room in the log, for replies or for mail: try again after something completed.
    NoRoom,
}

/// What became of one item.
pub(super) enum Passed {
    /// The next one may run.
    On,
    /// It has run, or is on its way, and the batch stops behind it.
    Stop(Progress),
    /// It must be given again.
    Again,
}

/// A reply frame of a batch that is being written.
pub(super) struct BatchRun {
    arrival: Arrival,
    request_id: u64,
    level: AckLevel,
    /// The request named no level.
    is_unleveled: bool,
    deadline_us: u64,
    /// Its deadline has passed: all that is left is answered so, in few bytes.
    is_expired: bool,
    /// The item with which this frame began, and the next one.
    first: usize,
    pub(super) next: usize,
    reply: BatchReply,
    pub(super) out: Pieces,
    /// What the frame depends on.
    gate: Lsn,
    /// One of the items of this frame is BUSY.
    is_busy: bool,
    /// Items that are answered later.
    owed: usize,
    /// Bytes that are left for replies when the frame begins.
    room: usize,
    /// A frame of so many bytes is ended.
    full_bytes: usize,
    /// What was answered without an operation.
    pub(super) plain: PlainAnswers,
    /// What its items are judged by. The session has it back at the end: a count of its owners
    /// would be shared by all cores.
    pub(super) rights: Option<Arc<Rights>>,
}

impl BatchRun {
    /// What an answer calls the item at this place of the batch.
    #[inline]
    pub(super) fn number(&self, at: usize) -> u16 {
        let first = planted::or(Bug::CountFromInterruption, self.first, 0);
        u16::try_from(at - first).expect("at most 1024 items")
    }

    /// The frame depends on this record too.
    #[inline]
    pub(super) fn depends_on(&mut self, lsn: Lsn) {
        self.gate = planted::or(Bug::GateOfLastItem, lsn, self.gate.max(lsn));
    }

    /// What was written behind the last answer is the next one. Whether the frame ends with it.
    #[inline]
    pub(super) fn ends_item(&mut self) -> bool {
        self.reply.end_item(&mut self.out);
        self.reply.bytes() > self.full_bytes
    }

    /// Ends an answer.
    #[inline]
    fn passed(&mut self) -> Passed {
        match self.ends_item() {
            true => Passed::Stop(Progress::FrameFull),
            false => Passed::On,
        }
    }

    /// So many more of its items are answered later.
    pub(super) fn owes(&mut self, items: usize) {
        self.owed += items;
    }

    /// The connection that it came from.
    pub(super) fn session(&self) -> SessionId {
        self.arrival.id
    }

    /// The level that its items reach at least.
    #[inline]
    pub(super) fn level(&self) -> AckLevel {
        self.level
    }

    /// Whether its items are executed, and there is room for what they answer.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        !self.is_expired && self.room > 0
    }
}

impl<P: Blocks> Shard<P> {
    /// Runs the items of a batch from where it was left, until it is whole or its reply frame ends.
    pub(super) fn batch(
        &mut self,
        now: Now,
        arrival: Arrival,
        header: &Header,
        batch: Batch<'_>,
        level: AckLevel,
        outbox: &mut Outbox<P::Block>,
    ) -> Progress {
        let mut run = self.begin_batch(now, arrival, header, batch.len(), level);
        let mut ahead = LookAhead::new();
        let mut progress = Progress::Whole;
        while run.next < batch.len() {
            if !ahead.covers(run.next) {
                let rights = run.rights.as_deref();
                self.look_ahead(batch, run.next, rights, &mut ahead);
            }
            let item = ahead.plain(run.next);
            let is_others = item.is_some_and(|(_, known, _)| !self.setup.owns(known.slot));
            let plain = match item {
                Some(item) if !is_others => {
                    let leave = *ahead.leave.get_or_insert_with(|| self.plain_leave(&run));
                    self.answer_plainly(now, &mut run, leave, item)
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
                    self.run_next(now, &mut run, batch, known)
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
                        self.sessions.at_mut(arrival.id).interrupted = interrupted;
                    }
                    break;
                }
            }
        }
        self.end_batch(now, run, progress == Progress::Whole, outbox);
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
        let is_expired = self.comes_too_late(now, deadline_us).is_some();
        let room = self.sessions.room_for_replies();
        let full_bytes = self.setup.frame_full_bytes();
        let reachable = self.reachable(level.max(self.setup.config().level_min));
        let session = self.sessions.at_mut(arrival.id);
        let first = session.interrupted.take().map_or(0, |(_, items)| items);
        let rights = session.rights.take();
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
            reply: reply.over(session.medium),
            out,
            gate: Lsn(0),
            is_busy: false,
            owed: 0,
            plain: PlainAnswers::new(self.store.log().durable()),
            rights,
            room,
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
        let waits = self.replica_waits.begun();
        match self.batch_item(now, run, item, known) {
            Passed::On if !may_begin_run(item) => Passed::On,
            Passed::On if self.replica_waits.begun() > waits => self.go_on_waiting(now, run, batch),
            Passed::On => self.go_on(now, run, batch, answer_at),
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
                tells_began: self.sessions.at(id).tells_began,
                tells_all: self.sessions.at(id).tells_all,
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
        };
        let asks_for_much = run.room == 0
            && !run.is_expired
            && self.asks_for_much(item, SMALL_ANSWER_BYTES)
            && !self.is_denied(&operation);
        if asks_for_much {
            let session = self.sessions.at_mut(id);
            session.interrupted = Some((run.request_id, run.next));
            session.asks_for_much = true;
            return Passed::Again;
        }
        let is_held_back =
            self.is_held_back(now, run.deadline_us, item) && !self.is_denied(&operation);
        let step = match is_held_back {
            true => Step::Postponed,
            false => self.operation(now, &operation, &mut run.out),
        };
        match step {
            Step::Answered(lsn) => {
                run.depends_on(lsn);
                run.passed()
            }
            Step::Busy => {
                run.is_busy = true;
                run.passed()
            }
            Step::Later => {
                run.owed += 1;
                match self.sessions.has_room_for_replies(id) {
                    true => Passed::On,
                    false => Passed::Stop(Progress::NoRoom),
                }
            }
            Step::Postponed => {
                if !is_planted(Bug::RepeatInterruptedBatch) {
                    self.sessions.at_mut(id).interrupted = Some((run.request_id, run.next));
                }
                Passed::Again
            }
        }
    }

    /// Ends a reply frame: hands it to the connection and notes what is answered later.
    #[inline]
    fn end_batch(
        &mut self,
        now: Now,
        mut run: BatchRun,
        is_whole: bool,
        outbox: &mut Outbox<P::Block>,
    ) {
        self.end_plain_answers(&mut run);
        let Arrival { id, came_us } = run.arrival;
        let (request_id, owed, mut out) = (run.request_id, run.owed, run.out);
        let answered = run.reply.len();
        self.stats.answer_at_once(now.us, came_us, answered as u64);
        let session = self.sessions.at_mut(id);
        session.rights = run.rights;
        if owed > 0 {
            session.owe(request_id, owed);
        }
        let more = !is_whole || owed > 0 || session.owes(request_id);
        let shard = self.setup.shard();
        let retry_after_ms = match run.is_busy {
            true => self.stats.retry_after_ms(),
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
            self.note(id, run.gate, answered, outbox);
        }
    }
}

/// When a request that came then expires; 0 for never.
pub(super) fn deadline_us_of(header: &Header, came_us: u64) -> u64 {
    match header.deadline_or_retry_ms {
        0 => 0,
        deadline_ms => came_us + u64::from(deadline_ms) * 1000,
    }
}
