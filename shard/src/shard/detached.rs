//! Items that run outside their frame: after a read, or for another shard.

use std::sync::Arc;

use penstock_net::pieces::{Pieces, PiecesReader};
use penstock_net::reply::BatchReply;
use penstock_net::status::Status;
use penstock_storage::if_planted;
use penstock_storage::io::Blocks;
use penstock_storage::place::{Lsn, Place};
use penstock_storage::planted::{self, Bug, is_planted};

use crate::accounts::busy::AnswerTerms;
use crate::event::Outbox;
use crate::execution::operation::{Disposition, Operation};
use crate::execution::verbs::Cold;
use crate::mail::{Mail, MailedReply, MailedRequest, ReplyAddress, ReplyMail};
use crate::requests::mailboxes::MailRoom;
use crate::requests::parking::{Order, Origin, PARKED_MAX, Parked};
use crate::shard::Shard;
use crate::step::Step;

impl<P: Blocks> Shard<P> {
    /// Has an operation on a slot wait for a read, and keeps so many bytes free for its answer.
    pub(super) fn park(
        &mut self,
        cold: Cold,
        operation: &Operation<'_>,
        slot: u16,
        reserved: usize,
        out: &mut Vec<u8>,
    ) -> Disposition {
        self.park_in_order(
            cold,
            Order::Of(slot),
            operation,
            operation.parked(slot, reserved),
            out,
        )
    }

    /// The same of an operation that may use these slots.
    pub(super) fn park_in_order(
        &mut self,
        cold: Cold,
        uses: Order,
        operation: &Operation<'_>,
        parked: Parked,
        out: &mut Vec<u8>,
    ) -> Disposition {
        let item = operation.item;
        let bytes_max = self.execution.setup.config().parked_bytes_max;
        // Half of it stays to what waits for reads.
        let bytes_max = bytes_max - self.execution.joint.bytes().min(bytes_max / 2);
        if !self
            .execution
            .requests
            .parking
            .has_room(item.len(), bytes_max)
        {
            let message = format!(
                "{} operations of {} bytes wait for reads: \
                 the limits are {PARKED_MAX} and {bytes_max} bytes",
                self.execution.requests.parking.len(),
                self.execution.requests.parking.parked_bytes(),
            );
            let asked = self.execution.asked_by(item);
            return self
                .execution
                .refuse_item(asked, operation, Status::Busy, &message, out);
        }
        self.execution.stats.park();
        self.reserve(operation.origin, &operation.address, parked.reserved);
        self.execution.requests.parking.park(cold, uses, parked);
        Disposition::Later
    }

    /// Hands an item over to the shard that owns its slot.
    pub(super) fn mail_request(
        &mut self,
        owner: u16,
        operation: &Operation<'_>,
        slot: u16,
        is_read: bool,
        out: &mut Vec<u8>,
    ) -> Disposition {
        assert!(
            operation.origin == Origin::Here,
            "the shards of a node agree on who owns a slot"
        );
        match self.execution.requests.mail.room(owner) {
            MailRoom::Yes => {}
            MailRoom::Wait => return Disposition::Postponed,
            MailRoom::Full(items) => {
                let message =
                    format!("{items} items are on their way to shard {owner}, which is the limit");
                let asked = self.execution.asked_by(operation.item);
                return self
                    .execution
                    .refuse_item(asked, operation, Status::Busy, &message, out);
            }
        }
        self.execution.stats.forward();
        let session = operation.address.session;
        let kept = self.front.sessions.reserve_awaited(session, is_read);
        let request = MailedRequest {
            address: ReplyAddress {
                answer_bytes: u32::try_from(kept).expect("a frame bounds it"),
                ..operation.address
            },
            level: operation.level,
            deadline_us: operation.deadline_us,
            came_us: operation.came_us,
            slot,
            end: 0,
        };
        self.execution
            .requests
            .mail
            .ask(owner, request, operation.item);
        Disposition::Later
    }

    /// Runs the operations that found no room, in order, until one finds none again.
    pub(super) fn run_postponed(&mut self, step: &mut Step<'_, P::Block>) {
        for _ in 0..self.execution.requests.postponed.len() {
            let Some(parked) = self.execution.requests.postponed.pop() else {
                break;
            };
            if let Some(parked) = self.run_detached(step, parked, None) {
                // What was postponed first goes first the next time.
                self.execution.requests.postponed.insert(0, parked);
                break;
            }
        }
    }

    /// Runs an operation outside its frame and answers it in a frame of its own. Returns the
    /// operation if there is no room for it now.
    #[must_use]
    pub(super) fn run_detached(
        &mut self,
        step: &mut Step<'_, P::Block>,
        mut parked: Parked,
        brought: Option<(Place, &[u8])>,
    ) -> Option<Parked> {
        let reserved = parked.reserved;
        self.unreserve(&mut parked);
        self.front.renew_rights(&mut parked);
        let operation = Operation {
            deadline_us: planted::or(Bug::ForgetParkedDeadline, 0, parked.deadline_us),
            brought,
            ..Operation::of(&parked)
        };
        let mut out = self.execution.requests.take_scratch();
        let disposition = match self.outgrown(&parked, reserved) {
            None => self.operation(step.now, &operation, &mut out),
            Some(_) if self.execution.is_denied(&operation) => {
                self.operation(step.now, &operation, &mut out)
            }
            Some((asked, outgrown)) => {
                let out = out.written();
                self.execution
                    .refuse_item(asked, &operation, Status::Busy, &outgrown, out)
            }
        };
        let terms = self.execution.terms(&disposition);
        if let Some(terms) = terms {
            self.execution
                .stats
                .answer_later(step.now.us, parked.came_us);
            self.answer_detached(parked.origin, parked.address, terms, &out, step.outbox);
        }
        let postponed = match disposition {
            Disposition::Answered(_) | Disposition::Busy | Disposition::Later => None,
            Disposition::Postponed => {
                parked.reserved = reserved;
                self.reserve(parked.origin, &parked.address, reserved);
                Some(parked)
            }
        };
        self.execution.requests.give_scratch(out);
        postponed
    }

    /// Answers what waits for a read, for room in the log or for room for answers and has passed
    /// its deadline.
    pub(super) fn expire(&mut self, step: &mut Step<'_, P::Block>) {
        if_planted!(Bug::ForgetParkedDeadline, return);
        let is_over = |parked: &Parked| parked.deadline_us != 0 && step.now.us > parked.deadline_us;
        for mut parked in self.execution.requests.take_out(is_over) {
            self.unreserve(&mut parked);
            let operation = Operation::of(&parked);
            let (status, message) = self
                .execution
                .comes_too_late(step.now, parked.deadline_us)
                .expect("its deadline has passed");
            let asked = self.execution.asked_by(&parked.item);
            let mut out = Vec::new();
            self.execution
                .refuse_item(asked, &operation, status, &message, &mut out);
            self.execution
                .stats
                .answer_later(step.now.us, parked.came_us);
            let out = out.into();
            let terms = AnswerTerms::behind(Lsn(0));
            self.answer_detached(parked.origin, parked.address, terms, &out, step.outbox);
        }
    }

    /// Gives an operation that ran outside its frame its answer.
    pub(super) fn answer_detached(
        &mut self,
        origin: Origin,
        address: ReplyAddress,
        terms: AnswerTerms,
        item: &Pieces,
        outbox: &mut Outbox<P::Block>,
    ) {
        match origin {
            Origin::Here => self.answer_here(address, terms, item, outbox),
            Origin::Shard(from) => {
                self.execution.stats.execute_for_other(1);
                self.execution
                    .requests
                    .mail
                    .answer(from, address, terms, item);
            }
        }
    }

    /// Hands the answers of another shard to their connections. Neighbouring answers to one request
    /// share a frame.
    pub(super) fn deliver_mail(&mut self, mail: &ReplyMail, outbox: &mut Outbox<P::Block>) {
        self.execution.requests.mail.answered(mail);
        let mut start = 0;
        let mut bytes = mail.bytes.reader();
        let mut rest = &mail.items[..];
        while let Some(first) = rest.first() {
            let address = first.address;
            let is_same = |reply: &&MailedReply| {
                reply.address.session == address.session
                    && reply.address.request_id == address.request_id
            };
            // As many as one frame has room for.
            let full = start + self.execution.setup.frame_full_bytes();
            let of_request = rest.iter().take_while(is_same);
            let before = of_request.take_while(|reply| reply.end as usize <= full);
            let (group, others) = rest.split_at(before.count().max(1));
            rest = others;
            let end = group.last().map_or(start, |last| last.end as usize);
            let is_void = group.iter().any(|reply| reply.is_void);
            if is_void {
                self.front.sessions.void(address.session);
                bytes.skip(end - start);
            } else if self.front.sessions.get_open(address.session).is_some() {
                self.deliver_group(mail.from, group, start, &mut bytes, outbox);
            } else if !is_planted(Bug::ShiftAfterClosed) {
                bytes.skip(end - start);
            }
            start = end;
        }
        self.execution.phase.note_progress(true);
    }

    /// Hands answers to one request of an open connection over in one frame. Their bytes begin at
    /// `start` of the mail.
    fn deliver_group(
        &mut self,
        shard: u16,
        group: &[MailedReply],
        start: usize,
        bytes: &mut PiecesReader<'_>,
        outbox: &mut Outbox<P::Block>,
    ) {
        let address = group[0].address;
        let mut item_start = start;
        let answers = group.iter().map(|reply| {
            let bytes = reply.end as usize - item_start;
            item_start = reply.end as usize;
            (bytes, reply.address.answer_bytes as usize)
        });
        self.front
            .sessions
            .unreserve_awaited(address.session, answers);
        let session = self.front.sessions.at_mut(address.session);
        let more = session.settle(address.request_id, group.len());
        let out = &mut session.output.pieces;
        let reply = BatchReply::begin(out, address.request_id, group.len());
        let retry_after_ms = group.iter().map(|item| item.retry_after_ms).max();
        let mut reply = reply
            .over(session.peer.medium)
            .retry_after(retry_after_ms.unwrap_or(0));
        let mut item_start = start;
        for item in group {
            let end = item.end as usize;
            reply.raw(out, bytes, end - item_start);
            item_start = end;
        }
        reply.finish(out, shard, more, true);
        self.note(address.session, Lsn(0), group.len(), outbox);
    }

    /// If the scripts of this event have taken their slice, what is left of it goes on in the next
    /// turn, behind what others have sent.
    pub(super) fn goes_on_behind_slice(&mut self) {
        let is_over = self.execution.slice.is_over();
        self.execution.phase.note_progress(is_over);
    }

    /// Runs the items of other shards that were held, as far as there is room for their answers and
    /// a slice for their scripts.
    pub(super) fn run_held(&mut self, step: &mut Step<'_, P::Block>) {
        for from in 0..self.execution.requests.mail.shards() {
            self.execution.slice.begin();
            while self.execution.requests.postponed.is_empty()
                && !self.execution.slice.is_over()
                && let Some(held) = self
                    .execution
                    .requests
                    .mail
                    .next_held(from, self.execution.phase.is_stopping())
            {
                if self
                    .execution
                    .is_held_back(step.now, held.deadline_us, &held.item)
                {
                    self.execution.requests.mail.hold_first(from, held);
                    break;
                }
                if let Some(held) = self.run_detached(step, held, None) {
                    self.execution.requests.postponed.push(held);
                }
            }
            self.goes_on_behind_slice();
        }
    }

    /// Sends what may leave for other shards.
    pub(super) fn send_mail(&mut self, step: &mut Step<'_, P::Block>) {
        step.outbox
            .mail
            .append(&mut self.execution.keyspaces.take_mail());
        if let Some(failed) = self.front.logins.take_failed() {
            let own = self.execution.setup.shard();
            let others =
                (0..self.execution.setup.config().topology.shards()).filter(|to| *to != own);
            let mail = others.map(|to| (to, Mail::FailedLogins(Arc::clone(&failed))));
            step.outbox.mail.extend(mail);
        }
        let durable = self.execution.store.log().durable();
        let may_report_taken = self.front.sessions.may_report_taken();
        let (shard, mail) = (
            self.execution.setup.shard(),
            &mut self.execution.requests.mail,
        );
        mail.send(
            step.now.us,
            shard,
            durable,
            may_report_taken,
            &mut step.outbox.mail,
        );
    }
}
