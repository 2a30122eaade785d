//! Frames of a connection: each whole frame is judged and runs at once.

use penstock_net::auth::AuthFault;
use penstock_net::batch::Batch;
use penstock_net::frame::{Header, Medium, Opcode, write_frame};
use penstock_net::hello::ClientHello;
use penstock_net::level::AckLevel;
use penstock_net::pieces::Pieces;
use penstock_net::program::{BACKUP_ASKS, SCHEMA_ASKED};
use penstock_net::receive::Received;
use penstock_net::refusal::Refusal;
use penstock_net::reply::{BatchReply, write_error, write_ping_reply};
use penstock_net::status::Status;
use penstock_net::stranger::{Opening, Stranger, opening};
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;

use crate::accounts::busy::AnswerTerms;
use crate::admission::Short;
use crate::event::Outbox;
use crate::execution::batch_run::{Arrival, Progress, deadline_us_of};
use crate::logins::Stage;
use crate::mail::{ReplyAddress, SessionId};
use crate::sessions::{SMALL_ANSWER_BYTES, Session};
use crate::shard::Shard;
use crate::step::Step;

/// What was taken of the bytes of a connection.
enum Taken {
    /// So many; more may be.
    Bytes(usize),
    /// What is left must wait.
    Enough,
    /// All of it: the connection ends.
    All,
}

impl<P: Blocks> Shard<P> {
    /// Runs the frames that are whole among the bytes of a connection. Returns how many bytes were
    /// taken.
    pub(super) fn received(
        &mut self,
        step: &mut Step<'_, P::Block>,
        id: SessionId,
        bytes: &[u8],
    ) -> usize {
        let Some(session) = self.front.sessions.get_open(id) else {
            return bytes.len();
        };
        if session.is_ending {
            return bytes.len();
        }
        if session.pause.is_on() {
            return 0;
        }
        session.last_received_us = step.now.us;
        self.front.admission.note_active(&mut session.claim);
        if !session.access.has_said_hello() && session.peer.medium == Medium::Wire {
            match opening(bytes) {
                Opening::Stranger(stranger) => {
                    self.answer_stranger(id, stranger, step.outbox);
                    return bytes.len();
                }
                // The rest of the line decides, within the time of a partial frame.
                Opening::Undecided if !bytes.is_empty() => {
                    session.partial_frame(step.now.us, bytes.len());
                    return 0;
                }
                Opening::Undecided | Opening::Frame => {}
            }
        }
        let came_us = session.pause.take_since_us(step.now.us);
        let arrival = Arrival { id, came_us };
        self.execution.slice.begin();
        let mut consumed = 0;
        let taken = loop {
            match self.next_frame(step, arrival, &bytes[consumed..]) {
                Taken::Bytes(taken) => consumed += taken,
                Taken::Enough => break consumed,
                Taken::All => break bytes.len(),
            }
        };
        self.goes_on_behind_slice();
        taken
    }

    /// Runs the frame at the front of the bytes that are left of a connection, if there is room for
    /// it and it is whole.
    #[inline]
    fn next_frame(
        &mut self,
        step: &mut Step<'_, P::Block>,
        arrival: Arrival,
        rest: &[u8],
    ) -> Taken {
        let Arrival { id, came_us } = arrival;
        if !self.front.sessions.has_room_for_replies(id)
            || !self.execution.requests.postponed.is_empty()
            || self.execution.slice.is_over() && !rest.is_empty()
        {
            let expires_us = self.front.front_deadline_us(id, rest, came_us);
            if !self.front.sessions.may_expire(step.now.us, id, expires_us) {
                // What is left came with what was taken; what comes next does not.
                let since_us = if rest.is_empty() {
                    step.now.us
                } else {
                    came_us
                };
                self.front.sessions.pause(id, since_us, expires_us);
                return Taken::Enough;
            }
        }
        let session = self.front.sessions.at_mut(id);
        match session.receiver.next(rest) {
            Received::Incomplete { .. } => self.partial_frame(step, id, rest),
            Received::Skipped { consumed } => {
                match session.receiver.is_skipping() {
                    true => session.passes_over(step.now.us, consumed),
                    false => session.arriving = None,
                }
                Taken::Bytes(consumed)
            }
            Received::Refused {
                header,
                refusal,
                consumed,
                is_fatal,
            } => {
                session.arriving = None;
                let is_last = is_fatal || !session.access.has_said_hello();
                self.refuse(id, header.as_ref(), refusal, is_last, step.outbox);
                match is_last {
                    true => Taken::All,
                    false => Taken::Bytes(consumed),
                }
            }
            Received::Frame {
                header,
                body,
                consumed,
            } => {
                session.arriving = None;
                if !self.frame(step, arrival, &header, body) {
                    let expires_us = deadline_us_of(&header, came_us);
                    self.front.sessions.pause(id, came_us, expires_us);
                    return Taken::Enough;
                }
                match self.front.sessions.at(id).is_ending {
                    true => Taken::All,
                    false => Taken::Bytes(consumed),
                }
            }
        }
    }

    /// Waits for the rest of a frame, or gives it up if there is no room for more of it.
    fn partial_frame(
        &mut self,
        step: &mut Step<'_, P::Block>,
        id: SessionId,
        rest: &[u8],
    ) -> Taken {
        let refusal = self.front.sessions.refusal_of_input(id, rest.len());
        let session = self.front.sessions.at_mut(id);
        if let Some(refusal) = refusal
            && let Some((header, given_up)) = session.receiver.give_up(rest)
        {
            session.passes_over(step.now.us, 0);
            let is_last = !session.access.has_said_hello();
            self.refuse(id, Some(&header), refusal, is_last, step.outbox);
            return Taken::Bytes(given_up);
        }
        if !rest.is_empty() {
            session.partial_frame(step.now.us, rest.len());
        } else if session.receiver.is_skipping() {
            // None may have come since the frame was refused: its time runs from now on.
            session.passes_over(step.now.us, 0);
        } else {
            session.arriving = None;
        }
        Taken::Enough
    }

    /// Answers a frame that is no request, or none that this server takes, with the reason.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        id: SessionId,
        header: Option<&Header>,
        refusal: Refusal,
        is_last: bool,
        outbox: &mut Outbox<P::Block>,
    ) {
        let status = refusal.status();
        self.execution.stats.refuse_frame(status);
        let retry_after_ms = match (status, &refusal) {
            (Status::Busy, _) => self.execution.stats.retry_after_ms(),
            (_, Refusal::Auth(AuthFault::Delayed(ms))) => u16::try_from(*ms).unwrap_or(u16::MAX),
            _ => 0,
        };
        let shard = self.execution.setup.shard();
        let session = self.front.sessions.at_mut(id);
        write_error(
            session.output.pieces.written(),
            header,
            status,
            retry_after_ms,
            shard,
            &refusal,
        );
        session.is_ending |= is_last;
        self.note(id, Lsn(0), 0, outbox);
        self.front.bound_unsent(id, outbox);
    }

    /// Tells a client of another protocol where it is, in its own words, and ends its connection.
    #[cold]
    fn answer_stranger(
        &mut self,
        id: SessionId,
        stranger: Stranger,
        outbox: &mut Outbox<P::Block>,
    ) {
        self.execution.stats.refuse_frame(Status::Malformed);
        let session = self.front.sessions.at_mut(id);
        let answer = stranger.answer().as_bytes();
        session.output.pieces.written().extend_from_slice(answer);
        session.is_ending = true;
        self.note(id, Lsn(0), 0, outbox);
    }

    /// Runs one frame. `false` if it must be given again because there is no room for it now.
    fn frame(
        &mut self,
        step: &mut Step<'_, P::Block>,
        arrival: Arrival,
        header: &Header,
        body: &[u8],
    ) -> bool {
        let id = arrival.id;
        let refusal = match self.front.judge(id, header) {
            Ok((Opcode::Batch, level)) => match self.may_begin_batch(id, header, level, body) {
                Ok(batch) => match self.front.is_short(step.now, id, header, batch) {
                    None => return self.run_batch(step, arrival, header, batch, level),
                    Some(short) => {
                        self.shed(id, header, short, batch.len(), step.outbox);
                        return true;
                    }
                },
                Err(refusal) => refusal,
            },
            Ok((Opcode::Ping, _)) => return self.ping(id, header, body, step.outbox),
            Ok((Opcode::Auth, _)) => {
                self.log_in(step, id, header, body);
                return true;
            }
            Ok((Opcode::Info, _)) if self.denies_info(id, header, body, step.outbox) => {
                return true;
            }
            Ok((Opcode::Info, _)) if body == SCHEMA_ASKED => {
                return self.answer_schema(id, header, step.outbox);
            }
            Ok((Opcode::Info, _)) if body == BACKUP_ASKS => {
                let question = (id, header.request_id);
                self.execution.joint.hold(step.now.us, question);
                step.outbox.info.push((id, header.request_id));
                return true;
            }
            Ok((Opcode::Info, _)) if !body.is_empty() => Refusal::InfoBody { len: body.len() },
            Ok((Opcode::Info, _)) => {
                step.outbox.info.push((id, header.request_id));
                return true;
            }
            Ok((Opcode::Hello, _)) => match ClientHello::read(body) {
                Ok(hello) => {
                    let session: &mut Session = self.front.sessions.at_mut(id);
                    session.peer.offers(hello.features);
                    self.say_hello(id, header, step.outbox);
                    return true;
                }
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        let is_last = !self.front.sessions.at(id).access.has_said_hello();
        self.refuse(id, Some(header), refusal, is_last, step.outbox);
        true
    }

    /// The batch of a frame, if it may run.
    #[inline]
    fn may_begin_batch<'a>(
        &self,
        id: SessionId,
        header: &Header,
        level: AckLevel,
        body: &'a [u8],
    ) -> Result<Batch<'a>, Refusal> {
        let batch = Batch::read(body)?;
        if self.front.sessions.at(id).is_under_way(header.request_id) {
            Err(Refusal::RequestUnderWay(header.request_id))
        } else if level == AckLevel::Replica && self.execution.linked.is_none() {
            Err(Refusal::Replica)
        } else {
            Ok(batch)
        }
    }

    /// Answers a batch BUSY that has run in no part.
    #[cold]
    fn shed(
        &mut self,
        id: SessionId,
        header: &Header,
        short: Short,
        operations: usize,
        outbox: &mut Outbox<P::Block>,
    ) {
        self.execution.stats.shed(short, operations as u64);
        let shard = self.execution.setup.shard();
        let mut answer = Header::reply(header.opcode, header.request_id, Status::Busy, shard);
        answer.deadline_or_retry_ms = self.front.admission.retry_after_ms(short);
        let out = self.front.sessions.at_mut(id).output.pieces.written();
        write_frame(out, answer, short.message());
        self.note(id, Lsn(0), 0, outbox);
    }

    /// Runs a batch, in as many reply frames as it takes. `false` if there is no room for the rest.
    #[inline]
    fn run_batch(
        &mut self,
        step: &mut Step<'_, P::Block>,
        arrival: Arrival,
        header: &Header,
        batch: Batch<'_>,
        level: AckLevel,
    ) -> bool {
        loop {
            match self.batch(step, arrival, header, batch, level) {
                Progress::Whole => return true,
                Progress::FrameFull if self.front.sessions.has_room_for_replies(arrival.id) => {}
                Progress::FrameFull | Progress::NoRoom => return false,
            }
        }
    }

    /// Answers a PING. `false` if there is no room for a long one.
    fn ping(
        &mut self,
        id: SessionId,
        header: &Header,
        body: &[u8],
        outbox: &mut Outbox<P::Block>,
    ) -> bool {
        if body.len() > SMALL_ANSWER_BYTES && !self.front.sessions.has_room_for_long_answers() {
            self.front.sessions.at_mut(id).pause.wants_much();
            return false;
        }
        self.execution.stats.ping();
        let out = self.front.sessions.at_mut(id).output.pieces.written();
        write_ping_reply(out, header, body, self.execution.setup.shard());
        self.note(id, Lsn(0), 0, outbox);
        self.front.bound_unsent(id, outbox);
        true
    }

    /// Answers a HELLO: from now on the connection may ask, or log in.
    fn say_hello(&mut self, id: SessionId, header: &Header, outbox: &mut Outbox<P::Block>) {
        let must_log_in =
            self.front.logins.are_needed() && self.front.sessions.at(id).peer.is_remote;
        let hello = self
            .execution
            .setup
            .config()
            .hello
            .at(self.execution.store.data().time_ms());
        let session: &mut Session = self.front.sessions.at_mut(id);
        let out = session.output.pieces.written();
        match must_log_in {
            true => {
                session.access.stage = Stage::Authenticating;
                let is_by_wire = session.peer.medium == Medium::Wire;
                let login = session.access.login.as_ref();
                let methods = login.map_or(0, |login| login.methods(is_by_wire));
                let nonce = login.map_or([0; 32], |login| login.nonce());
                hello
                    .before_login(methods, nonce)
                    .write(out, header.request_id);
            }
            false => {
                hello.write(out, header.request_id);
                self.open(id);
            }
        }
        self.note(id, Lsn(0), 0, outbox);
    }

    /// A connection may ask from now on.
    pub(super) fn open(&mut self, id: SessionId) {
        let frame_bytes_max = self.execution.setup.limits().frame_bytes_max;
        let session: &mut Session = self.front.sessions.at_mut(id);
        session.access.stage = Stage::Open;
        session.receiver.set_frame_bytes_max(frame_bytes_max);
    }

    /// Gives an operation of a connection of this shard its answer.
    pub(super) fn answer_here(
        &mut self,
        address: ReplyAddress,
        terms: AnswerTerms,
        item: &Pieces,
        outbox: &mut Outbox<P::Block>,
    ) {
        let shard = self.execution.setup.shard();
        let Some(session) = self.front.sessions.get_open(address.session) else {
            return;
        };
        let more = session.settle(address.request_id, 1);
        let out = &mut session.output.pieces;
        let mut reply = BatchReply::begin(out, address.request_id, 1).over(session.peer.medium);
        reply.raw(out, &mut item.reader(), item.len());
        let reply = reply.retry_after(terms.retry_after_ms);
        reply.finish(out, shard, more, false);
        self.note(address.session, terms.gate, 1, outbox);
    }

    /// The answers of so many operations, or something else, were appended to a connection's
    /// output; they depend on `gate`.
    #[inline]
    pub(super) fn note(
        &mut self,
        id: SessionId,
        gate: Lsn,
        operations: usize,
        outbox: &mut Outbox<P::Block>,
    ) {
        let gates = (gate, self.execution.store.log().durable());
        self.front
            .sessions
            .note_output(id, gates, operations, &mut outbox.sendable);
    }
}
