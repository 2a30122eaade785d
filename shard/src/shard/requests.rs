//! Frames of a connection, and the items of each: what runs at once is answered at once.

use std::fmt;

use penstock_net::batch::Batch;
use penstock_net::frame::{Header, Medium, Opcode};
use penstock_net::hello::ClientHello;
use penstock_net::level::AckLevel;
use penstock_net::pieces::Pieces;
use penstock_net::receive::Received;
use penstock_net::refusal::{KeyspaceName, Refusal};
use penstock_net::reply::{BatchReply, ReplyHead, write_error, write_ping_reply};
use penstock_net::request::{Extra, Request, Verb, Version, likely_key};
use penstock_net::scan::ScanRequest;
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_net::stranger::{Opening, Stranger, opening};
use penstock_storage::io::Blocks;
use penstock_storage::keyspace::Settings;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::{Found, LOOK_AHEAD, Store};
use penstock_storage::version::partition_of;

use crate::answers::Asked;
use crate::execute::{Cold, Context, Ran, run};
use crate::linked::Elsewhere;
use crate::mail::{ReplyAddress, SessionId};
use crate::member_read::{Stale, look_at_member};
use crate::requests::parking::Origin;
use crate::sessions::SMALL_ANSWER_BYTES;

use super::memory::{answer_bytes, may_show_value};
use super::{
    Known, Now, Operation, Outbox, Outgrown, Progress, REPLICA_REPLIES_MAX, ReplicaReply, Shard,
    Step,
};

impl<P: Blocks> Shard<P> {
    pub(super) fn received(
        &mut self,
        now: Now,
        id: SessionId,
        bytes: &[u8],
        outbox: &mut Outbox<P::Block>,
    ) -> usize {
        let Some(session) = self.sessions.get_open(id) else {
            return bytes.len();
        };
        if session.is_ending {
            return bytes.len();
        }
        if session.is_paused() {
            return 0;
        }
        session.last_heard_us = now.us;
        if !session.has_said_hello && session.medium == Medium::Wire {
            match opening(bytes) {
                Opening::Stranger(stranger) => {
                    self.answer_stranger(id, stranger, outbox);
                    return bytes.len();
                }
                // The rest of the line decides, within the time of a partial frame.
                Opening::Undecided if !bytes.is_empty() => {
                    session.frame_began_us = session.frame_began_us.or(Some(now.us));
                    return 0;
                }
                Opening::Undecided | Opening::Frame => {}
            }
        }
        let session = self.sessions.at_mut(id);
        let came_us = session.waits_since_us.take().unwrap_or(now.us);
        let mut consumed = 0;
        loop {
            let rest = &bytes[consumed..];
            if !self.sessions.has_room_for_replies(id) || !self.requests.postponed.is_empty() {
                let expires_us = self.front_deadline_us(id, rest, came_us);
                if !self.sessions.may_expire(now.us, id, expires_us) {
                    // What is left came with what was taken; what comes next does not.
                    let since_us = if rest.is_empty() { now.us } else { came_us };
                    self.sessions.pause(id, since_us, expires_us);
                    break;
                }
            }
            let session = self.sessions.at_mut(id);
            match session.receiver.next(rest) {
                Received::Incomplete { .. } => {
                    if let Some(refusal) = self.sessions.refusal_of_input(id, rest.len()) {
                        let session = self.sessions.at_mut(id);
                        if let Some((header, given_up)) = session.receiver.give_up(rest) {
                            session.frame_began_us = session.frame_began_us.or(Some(now.us));
                            consumed += given_up;
                            let is_last = !session.has_said_hello;
                            self.refuse(id, Some(&header), refusal, is_last, outbox);
                            continue;
                        }
                    }
                    let session = self.sessions.at_mut(id);
                    let is_begun = !rest.is_empty() || session.receiver.is_skipping();
                    session.frame_began_us = match is_begun {
                        true => session.frame_began_us.or(Some(now.us)),
                        false => None,
                    };
                    break;
                }
                Received::Skipped { consumed: skipped } => {
                    consumed += skipped;
                    if !session.receiver.is_skipping() {
                        session.frame_began_us = None;
                    }
                }
                Received::Refused {
                    header,
                    refusal,
                    consumed: refused,
                    is_fatal,
                } => {
                    session.frame_began_us = None;
                    consumed += refused;
                    let is_last = is_fatal || !session.has_said_hello;
                    self.refuse(id, header.as_ref(), refusal, is_last, outbox);
                    if is_last {
                        return bytes.len();
                    }
                }
                Received::Frame {
                    header,
                    body,
                    consumed: frame,
                } => {
                    session.frame_began_us = None;
                    if !self.frame(now, came_us, id, &header, body, outbox) {
                        let expires_us = deadline_us_of(&header, came_us);
                        self.sessions.pause(id, came_us, expires_us);
                        break;
                    }
                    consumed += frame;
                    if self.sessions.at(id).is_ending {
                        return bytes.len();
                    }
                }
            }
        }
        consumed
    }

    #[cold]
    fn refuse(
        &mut self,
        id: SessionId,
        header: Option<&Header>,
        refusal: Refusal,
        is_last: bool,
        outbox: &mut Outbox<P::Block>,
    ) {
        self.stats.refuse_frame(refusal.status());
        let shard = self.setup.shard();
        let session = self.sessions.at_mut(id);
        write_error(
            session.output.pieces.written(),
            header,
            refusal.status(),
            0,
            shard,
            &refusal,
        );
        session.is_ending |= is_last;
        self.note(id, Lsn(0), 0, outbox);
    }

    /// Tells a client of another protocol where it is, in its own words, and ends its connection.
    #[cold]
    fn answer_stranger(
        &mut self,
        id: SessionId,
        stranger: Stranger,
        outbox: &mut Outbox<P::Block>,
    ) {
        self.stats.refuse_frame(Status::Malformed);
        let session = self.sessions.at_mut(id);
        let answer = stranger.answer().as_bytes();
        session.output.pieces.written().extend_from_slice(answer);
        session.is_ending = true;
        self.note(id, Lsn(0), 0, outbox);
    }

    /// Runs one frame. `false` if it must be given again because there is no room for it now.
    fn frame(
        &mut self,
        now: Now,
        came_us: u64,
        id: SessionId,
        header: &Header,
        body: &[u8],
        outbox: &mut Outbox<P::Block>,
    ) -> bool {
        let refusal = match self.judge(id, header) {
            Ok((Opcode::Batch, level)) => match Batch::read(body) {
                Ok(_) if self.sessions.at(id).is_under_way(header.request_id) => {
                    Refusal::RequestUnderWay(header.request_id)
                }
                Ok(batch) if level != AckLevel::Replica || self.linked.is_some() => loop {
                    match self.batch(now, came_us, id, header, batch, level, outbox) {
                        Progress::Whole => return true,
                        Progress::FrameFull if self.sessions.has_room_for_replies(id) => {}
                        Progress::FrameFull | Progress::NoRoom => return false,
                    }
                },
                Ok(_) => Refusal::Replica,
                Err(refusal) => refusal,
            },
            Ok((Opcode::Ping, _))
                if body.len() > SMALL_ANSWER_BYTES && self.sessions.room_for_replies() == 0 =>
            {
                self.sessions.at_mut(id).asks_for_much = true;
                return false;
            }
            Ok((Opcode::Ping, _)) => {
                self.stats.ping();
                let shard = self.setup.shard();
                write_ping_reply(
                    self.sessions.at_mut(id).output.pieces.written(),
                    header,
                    body,
                    shard,
                );
                self.note(id, Lsn(0), 0, outbox);
                return true;
            }
            Ok((Opcode::Info, _)) if !body.is_empty() => Refusal::InfoBody { len: body.len() },
            Ok((Opcode::Info, _)) => {
                outbox.info.push((id, header.request_id));
                return true;
            }
            Ok((Opcode::Hello, _)) => match ClientHello::read(body) {
                Ok(_) => {
                    let session = self.sessions.at_mut(id);
                    session.has_said_hello = true;
                    session
                        .receiver
                        .set_frame_bytes_max(self.setup.limits().frame_bytes_max);
                    self.setup
                        .config()
                        .hello
                        .write(session.output.pieces.written(), header.request_id);
                    self.note(id, Lsn(0), 0, outbox);
                    return true;
                }
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        let is_last = !self.sessions.at(id).has_said_hello;
        self.refuse(id, Some(header), refusal, is_last, outbox);
        true
    }

    /// Checks the header's fields, and that HELLO is said first and once.
    #[inline]
    fn judge(&self, id: SessionId, header: &Header) -> Result<(Opcode, AckLevel), Refusal> {
        let is_hello = header.opcode == Opcode::Hello as u8;
        match (self.sessions.at(id).has_said_hello, is_hello) {
            (false, false) => Err(Refusal::HelloExpected {
                opcode: header.opcode,
            }),
            (true, true) => Err(Refusal::HelloRepeated),
            _ => header.read_request(),
        }
    }

    /// Runs the items of a batch from where it was left.
    #[expect(
        clippy::too_many_arguments,
        reason = "a frame, its time and its connection"
    )]
    fn batch(
        &mut self,
        now: Now,
        came_us: u64,
        id: SessionId,
        header: &Header,
        batch: Batch<'_>,
        level: AckLevel,
        outbox: &mut Outbox<P::Block>,
    ) -> Progress {
        let level = level.max(self.setup.config().level_min);
        let deadline_us = deadline_us_of(header, came_us);
        // Then all that is left is answered so, in few bytes.
        let is_expired = self.comes_too_late(now, deadline_us).is_some();
        let session = self.sessions.at_mut(id);
        let first = session.interrupted.take().map_or(0, |(_, items)| items);
        let mut out = std::mem::take(&mut session.output.pieces);
        let mut reply = BatchReply::begin(&mut out, header.request_id, batch.len() - first)
            .over(session.medium);
        let mut gate = Lsn(0);
        let mut owed = 0;
        let mut next = first;
        let mut progress = Progress::Whole;
        let room = self.sessions.room_for_replies();
        let frame_full_bytes = match is_expired {
            true => self.setup.frame_full_bytes(),
            false => self
                .setup
                .frame_full_bytes()
                .min(room.max(SMALL_ANSWER_BYTES)),
        };
        let mut known = [None; LOOK_AHEAD];
        while next < batch.len() {
            let ahead = (next - first) % LOOK_AHEAD;
            if ahead == 0 {
                self.look_ahead(batch, next, &mut known);
            }
            let item = batch.item(next);
            if room == 0 && !is_expired && self.asks_for_much(item, SMALL_ANSWER_BYTES) {
                let session = self.sessions.at_mut(id);
                session.interrupted = Some((header.request_id, next));
                session.asks_for_much = true;
                progress = Progress::NoRoom;
                break;
            }
            let number = match is_planted(Bug::CountFromInterruption) {
                true => next - first,
                false => next,
            };
            let number = u16::try_from(number).expect("at most 1024 items");
            let operation = Operation {
                address: ReplyAddress {
                    session: id,
                    request_id: header.request_id,
                    item: number,
                    item_bytes: u32::try_from(item.len()).expect("a frame bounds it"),
                    answer_bytes: 0,
                },
                level,
                deadline_us,
                came_us,
                brought: None,
                known: known[ahead],
            };
            let step = match self.is_held_back(now, deadline_us, item) {
                true => Step::Postponed,
                false => self.operation(now, Origin::Here, operation, item, &mut out),
            };
            match step {
                Step::Answered(lsn) => {
                    gate = match is_planted(Bug::GateOfLastItem) {
                        true => lsn,
                        false => gate.max(lsn),
                    };
                    reply.end_item(&mut out);
                    if reply.bytes() > frame_full_bytes {
                        progress = Progress::FrameFull;
                    }
                }
                Step::Later => {
                    owed += 1;
                    if !self.sessions.has_room_for_replies(id) {
                        progress = Progress::NoRoom;
                    }
                }
                Step::Postponed => {
                    if !is_planted(Bug::RepeatInterruptedBatch) {
                        self.sessions.at_mut(id).interrupted = Some((header.request_id, next));
                    }
                    progress = Progress::NoRoom;
                    break;
                }
            }
            next += 1;
            if progress != Progress::Whole {
                if next == batch.len() {
                    progress = Progress::Whole;
                } else {
                    self.sessions.at_mut(id).interrupted = Some((header.request_id, next));
                }
                break;
            }
        }
        let is_whole = progress == Progress::Whole;
        let answered = reply.len();
        self.stats.answer_at_once(now.us, came_us, answered as u64);
        let session = self.sessions.at_mut(id);
        if owed > 0 {
            session.owe(header.request_id, owed);
        }
        let more = !is_whole || owed > 0 || session.owes(header.request_id);
        let has_reply = reply.finish(&mut out, self.setup.shard(), more && answered > 0, false);
        self.sessions.at_mut(id).output.pieces = out;
        if has_reply {
            self.note(id, gate, answered, outbox);
        }
        progress
    }

    /// Starts loading what the next items of a batch will look up, and notes where it is looked up.
    #[inline]
    fn look_ahead<'a>(
        &self,
        batch: Batch<'a>,
        next: usize,
        known: &mut [Option<Known<'a>>; LOOK_AHEAD],
    ) {
        *known = [None; LOOK_AHEAD];
        let count = LOOK_AHEAD.min(batch.len() - next);
        if count < 4 {
            return;
        }
        let mut homes = [(0, 0); LOOK_AHEAD];
        let mut last: Option<Known<'a>> = None;
        let mut is_one_key = true;
        for (number, home) in homes[..count].iter_mut().enumerate() {
            let Some(key) = likely_key(batch.item(next + number)) else {
                continue;
            };
            let it = match last {
                Some(last) if last.key == key => Known { key, ..last },
                _ => {
                    is_one_key &= last.is_none();
                    let (slot, hash) = self.setup.hash().home_of(key);
                    Known { key, slot, hash }
                }
            };
            *home = (it.slot, it.hash);
            known[number] = Some(it);
            last = Some(it);
        }
        // One hot key is in the processor's cache already.
        if !is_one_key {
            self.store.look_ahead(&homes[..count]);
        }
    }

    /// Whether an item writes here and is to wait while cleaning makes room for what is written.
    /// Nothing else waits for that: neither reads nor deletions.
    #[inline]
    pub(super) fn is_held_back(&mut self, now: Now, deadline_us: u64, item: &[u8]) -> bool {
        self.store.holds_writes() && self.is_write_in_time(now, deadline_us, item)
    }

    #[cold]
    fn is_write_in_time(&mut self, now: Now, deadline_us: u64, item: &[u8]) -> bool {
        if ScanRequest::is_scan(item) || self.comes_too_late(now, deadline_us).is_some() {
            return false;
        }
        let is_held_back =
            Request::read(item, self.setup.limits().value_bytes_max).is_ok_and(|request| {
                matches!(request.verb, Verb::Set | Verb::UpdateIf)
                    && self.setup.owns(slot_of_request(&request))
            });
        if is_held_back {
            self.store.write_waits();
        }
        is_held_back
    }

    /// Runs, parks or mails one item; a reply item is written at the end of `out`.
    #[inline]
    pub(super) fn operation(
        &mut self,
        now: Now,
        origin: Origin,
        operation: Operation<'_>,
        item: &[u8],
        pieces: &mut Pieces,
    ) -> Step {
        let Operation {
            address,
            level,
            deadline_us,
            ..
        } = operation;
        let out = pieces.written();
        if ScanRequest::is_scan(item) {
            return self.begin_scan(now, origin, operation, item, out);
        }
        let request = match Request::read(item, self.setup.limits().value_bytes_max) {
            Ok(request) => request,
            Err(refusal) => {
                return self.refuse_item(
                    Asked::Unreadable,
                    &operation,
                    refusal.status(),
                    &refusal,
                    out,
                );
            }
        };
        let asked = Asked::of(request.verb);
        let known = operation
            .known
            .filter(|known| std::ptr::eq(known.key, request.key) && request.verb != Verb::Keyspace);
        let slot = known.map_or_else(|| slot_of_request(&request), |known| known.slot);
        if let Some((status, message)) = self.comes_too_late(now, deadline_us) {
            return self.refuse_item(asked, &operation, status, &message, out);
        }
        let owner = self.setup.owner(slot);
        if owner != self.setup.shard() {
            let is_read = asked.is_read() || may_show_value(&request);
            return self.mail_request(origin, owner, operation, slot, is_read, item, out);
        }
        if !self.requests.parking.is_empty()
            && let Some(cold) = self.requests.parking.behind(origin, &address, slot)
        {
            // It runs later, and its key is read meanwhile.
            let hash = known.map_or_else(|| self.setup.hash().of(request.key), |known| known.hash);
            let found = self.store.find(slot, hash, request.key);
            if let Found::Cold(place) = found
                && !self.requests.parking.is_full()
            {
                self.requests.parking.fetch(Cold {
                    slot,
                    hash,
                    place,
                    version: None,
                });
            }
            let reserved = answer_bytes(&request, self.value_bytes(found));
            return self.park(cold, origin, operation, slot, item, reserved, out);
        }
        let mut is_of_member = false;
        if let Extra::Keyspace(action) = request.extra {
            if let Some(linked) = &self.linked
                && let Some((status, message)) = linked.refuses_settings(&action, level)
            {
                return self.refuse_item(asked, &operation, status, &message, out);
            }
            return self.keyspace(origin, operation, request.key, action, out);
        }
        let mut context = Context {
            now_us: now.us,
            hash: self.setup.hash(),
            slot,
            key_hash: known.map_or_else(|| self.setup.hash().of(request.key), |known| known.hash),
            item: address.item,
            level,
            memory_max: self.setup.config().memory_max,
            spare_failure: self.files.failure(),
            ttl_ms: 0,
            brought: operation.brought,
            standing: None,
            shared_bytes_min: self.setup.config().shared_bytes_min,
        };
        if !self.store.keyspaces().is_empty()
            && let Err(refusal) = obey(&self.store, &request, &mut context)
        {
            return self.refuse_item(asked, &operation, refusal.status(), &refusal, out);
        }
        let mut level = context.level;
        if let Extra::Member(read) = request.extra {
            let linked = self.linked.as_deref_mut();
            let partition = partition_of(slot);
            match look_at_member(linked, &self.store, now.us, partition, level, read) {
                None => {}
                Some(Ok((standing, is_member))) => {
                    context.standing = Some(standing);
                    is_of_member = is_member;
                }
                Some(Err(stale)) => return self.refuse_stale(asked, &operation, &stale, out),
            }
        }
        if is_of_member {
            // Before it is applied it is durable at the primary.
            level = AckLevel::Disk;
            context.level = level;
        }
        if let Some(linked) = self.linked.as_ref().filter(|_| !is_of_member) {
            let partition = partition_of(slot);
            let is_waited_for = level == AckLevel::Replica;
            if let Some(elsewhere) = linked.elsewhere(partition) {
                return self.refuse_elsewhere(asked, &operation, &elsewhere, out);
            }
            if is_waited_for && !linked.has_sync(partition) {
                let message = format!(
                    "nothing was executed: no other node is in the sync set of partition {partition}, so nobody but this one would have it"
                );
                return self.refuse_item(asked, &operation, Status::NoReplicas, &message, out);
            }
            if is_waited_for && !self.replica_waits.has_room() {
                let message = format!(
                    "{REPLICA_REPLIES_MAX} replies wait for other nodes, which is the limit"
                );
                return self.refuse_item(asked, &operation, Status::Busy, &message, out);
            }
        }
        let from = pieces.len();
        let ran = run(&mut self.store, &context, &request, pieces);
        let out = pieces.written();
        match ran {
            Ran::Answered { gate: _, status } if level == AckLevel::Replica => {
                self.stats.answer(asked, status);
                let whom = ReplicaReply {
                    origin,
                    address,
                    is_change: !asked.is_read() && status == Status::Ok,
                    item: pieces.split_off(from),
                };
                self.wait_for_members(now, slot, level, whom);
                Step::Later
            }
            Ran::Answered { gate: _, status } if is_of_member => {
                self.replica_waits.answer_member_read();
                self.stats.answer(asked, status);
                Step::Answered(Lsn(0))
            }
            Ran::Answered { gate, status } => {
                self.stats.answer(asked, status);
                Step::Answered(self.gate(level, gate))
            }
            Ran::Cold(cold) | Ran::SecondCold(cold)
                if operation.brought.is_some()
                    && cold.version.is_some()
                    && !self.has_room_for_more(origin, address.session) =>
            {
                // It was parked for its key, and only now shows how long the version is.
                let bytes = cold.place.bytes as usize;
                self.refuse_item(asked, &operation, Status::Busy, &Outgrown(bytes), out)
            }
            Ran::Cold(cold) => {
                let reserved = answer_bytes(&request, cold.place.bytes as usize);
                self.park(cold, origin, operation, slot, item, reserved, out)
            }
            Ran::SecondCold(cold) => {
                let reserved = answer_bytes(&request, cold.place.bytes as usize);
                let step = self.park(cold, origin, operation, slot, item, reserved, out);
                let parking = &mut self.requests.parking;
                if matches!(step, Step::Later) && parking.keeps_first_key(origin, &address, slot) {
                    self.store
                        .keep(Some((slot, self.setup.hash().of(request.key))));
                }
                step
            }
            Ran::Postponed => Step::Postponed,
        }
    }

    /// Answers an item that is not executed, with the reason.
    #[cold]
    pub(super) fn refuse_item(
        &mut self,
        asked: Asked,
        operation: &Operation,
        status: Status,
        reason: &dyn fmt::Display,
        out: &mut Vec<u8>,
    ) -> Step {
        self.stats.refuse(asked, status);
        let item = operation.address.item;
        ReplyHead::new(status, item, operation.level, Version::default())
            .write_message(out, reason);
        Step::Answered(Lsn(0))
    }

    /// Tells who answers it.
    #[cold]
    pub(super) fn refuse_elsewhere(
        &mut self,
        asked: Asked,
        operation: &Operation,
        elsewhere: &Elsewhere,
        out: &mut Vec<u8>,
    ) -> Step {
        let status = elsewhere.status();
        self.stats.refuse(asked, status);
        let item = operation.address.item;
        ReplyHead::new(status, item, operation.level, elsewhere.version())
            .write_message(out, elsewhere);
        Step::Answered(Lsn(0))
    }

    /// Tells how far this node is.
    #[cold]
    fn refuse_stale(
        &mut self,
        asked: Asked,
        operation: &Operation,
        stale: &Stale,
        out: &mut Vec<u8>,
    ) -> Step {
        self.replica_waits.refuse_member_read();
        self.stats.refuse(asked, Status::Stale);
        let item = operation.address.item;
        ReplyHead::new(Status::Stale, item, operation.level, Version::default()).write_telling(
            out,
            None,
            Some(stale.standing),
            stale.to_string().as_bytes(),
        );
        Step::Answered(Lsn(0))
    }

    /// Why nothing is executed any more.
    #[inline]
    pub(super) fn comes_too_late(
        &self,
        now: Now,
        deadline_us: u64,
    ) -> Option<(Status, &'static str)> {
        if self.phase.is_stopping() {
            Some((Status::Draining, "the server is stopping"))
        } else if deadline_us != 0 && now.us > deadline_us {
            Some((Status::Deadline, "the deadline passed before execution"))
        } else {
            None
        }
    }

    pub(super) fn answer_here(
        &mut self,
        address: ReplyAddress,
        gate: Lsn,
        item: &Pieces,
        outbox: &mut Outbox<P::Block>,
    ) {
        let shard = self.setup.shard();
        let Some(session) = self.sessions.get_open(address.session) else {
            return;
        };
        let more = session.settle(address.request_id, 1);
        let out = &mut session.output.pieces;
        let mut reply = BatchReply::begin(out, address.request_id, 1).over(session.medium);
        reply.raw(out, &mut item.reader(), item.len());
        reply.finish(out, shard, more, false);
        self.note(address.session, gate, 1, outbox);
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
        let gates = (gate, self.store.log().durable());
        self.sessions
            .note_output(id, gates, operations, &mut outbox.sendable);
    }
}

/// When a request that came then expires; 0 for never.
pub(super) fn deadline_us_of(header: &Header, came_us: u64) -> u64 {
    match header.deadline_or_retry_ms {
        0 => 0,
        deadline_ms => came_us + u64::from(deadline_ms) * 1000,
    }
}

/// The slot whose shard answers.
#[inline]
pub(super) fn slot_of_request(request: &Request<'_>) -> u16 {
    match request.verb {
        // One shard decides about keyspaces.
        Verb::Keyspace => 0,
        _ => slot_of(request.key),
    }
}

/// Holds an operation to the settings of its keyspaces.
#[cold]
fn obey<P: Blocks>(
    store: &Store<P>,
    request: &Request<'_>,
    context: &mut Context<'_>,
) -> Result<(), Refusal> {
    if let Some(key) = request.second_key {
        context.level = context.level.max(least_level(store, context.slot, key));
    }
    let Some((prefix, settings)) = store.keyspaces().of(context.slot, request.key) else {
        return Ok(());
    };
    context.level = context.level.max(level_min(settings));
    context.ttl_ms = settings.ttl_ms;
    let max = settings.value_bytes_max;
    if max > 0 && request.value.len() > max as usize {
        return Err(Refusal::KeyspaceValueLength {
            len: request.value.len(),
            max,
            keyspace: KeyspaceName::new(prefix),
        });
    }
    Ok(())
}

/// The least level that the keyspace of a key has.
#[inline]
pub(super) fn least_level<P: Blocks>(store: &Store<P>, slot: u16, key: &[u8]) -> AckLevel {
    match store.keyspaces().of(slot, key) {
        Some((_, settings)) => level_min(settings),
        None => AckLevel::None,
    }
}

fn level_min(settings: &Settings) -> AckLevel {
    AckLevel::from_code(settings.level_min).unwrap_or_default()
}
