//! Items that run apart from their frame: what waits for a read, and what other shards ask.

use std::collections::VecDeque;

use bytes::Bytes;
use penstock_net::pieces::Pieces;
use penstock_net::reply::BatchReply;
use penstock_net::request::Request;
use penstock_net::scan::ScanRequest;
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::place::{Lsn, Place};
use penstock_storage::planted::{Bug, is_planted};

use crate::answers::Asked;
use crate::execute::Cold;
use crate::mail::{
    Mail, MailedReply, MailedRequest, ReplyAddress, ReplyMail, RequestMail, TakenMail,
};
use crate::parking::{Origin, PARKED_MAX, Parked};

use super::memory::bytes_beyond_kept;
use super::{Now, Operation, Outbox, Shard, Step};

impl<P: Blocks> Shard<P> {
    /// Has an operation wait for a read, and keeps so many bytes free for its answer.
    #[expect(clippy::too_many_arguments, reason = "an operation and its read")]
    pub(super) fn park(
        &mut self,
        cold: Cold,
        origin: Origin,
        operation: Operation<'_>,
        slot: u16,
        item: &[u8],
        reserved: usize,
        out: &mut Vec<u8>,
    ) -> Step {
        let Operation {
            address,
            level,
            deadline_us,
            ..
        } = operation;
        let bytes_max = self.config.parked_bytes_max;
        if !self.parking.has_room(item.len(), bytes_max) {
            let message = format!(
                "{} operations of {} bytes wait for reads: the limits are {PARKED_MAX} and {bytes_max} bytes",
                self.parking.len(),
                self.parking.parked_bytes(),
            );
            let asked = self.asked_by(item);
            return self.refuse_item(asked, &operation, Status::Busy, &message, out);
        }
        self.counters.parked += 1;
        self.reserve(origin, &address, reserved);
        self.parking.park(
            cold,
            Parked {
                origin,
                address,
                level,
                deadline_us,
                came_us: operation.came_us,
                slot,
                reserved,
                item: item.into(),
            },
        );
        Step::Later
    }

    /// What an item asks for.
    #[cold]
    pub(super) fn asked_by(&self, item: &[u8]) -> Asked {
        match Request::read(item, self.limits.value_bytes_max) {
            _ if ScanRequest::is_scan(item) => Asked::Scan,
            Ok(request) => Asked::of(request.verb),
            Err(_) => Asked::Unreadable,
        }
    }

    /// Hands an item over to the shard that owns its slot.
    #[expect(clippy::too_many_arguments, reason = "an operation and whom it is for")]
    pub(super) fn mail_request(
        &mut self,
        origin: Origin,
        owner: u16,
        operation: Operation<'_>,
        slot: u16,
        is_read: bool,
        item: &[u8],
        out: &mut Vec<u8>,
    ) -> Step {
        let Operation {
            mut address,
            level,
            deadline_us,
            ..
        } = operation;
        assert!(
            origin == Origin::Here,
            "the shards of a node agree on who owns a slot"
        );
        if self.peers[usize::from(owner)].outstanding >= self.config.mailed_items_max {
            let message = format!(
                "{} items are on their way to shard {owner}, which is the limit",
                self.peers[usize::from(owner)].outstanding
            );
            let asked = self.asked_by(item);
            return self.refuse_item(asked, &operation, Status::Busy, &message, out);
        }
        let bytes_max = self.mailed_bytes_max;
        let peer = &mut self.peers[usize::from(owner)];
        // One item may go beyond: it would wait for ever while smaller ones of others fill what is
        // left.
        if peer.outstanding > 0 && peer.outstanding_bytes >= bytes_max {
            return Step::Postponed;
        }
        self.counters.forwarded += 1;
        peer.outstanding += 1;
        peer.outstanding_bytes += item.len();
        let kept = self.sessions.reserve_awaited(address.session, is_read);
        address.answer_bytes = u32::try_from(kept).expect("a frame bounds it");
        let peer = &mut self.peers[usize::from(owner)];
        peer.request_bytes.extend_from_slice(item);
        let end =
            u32::try_from(peer.request_bytes.len()).expect("credits and frame limits bound a mail");
        peer.requests.push(MailedRequest {
            address,
            level,
            deadline_us,
            came_us: operation.came_us,
            slot,
            end,
        });
        Step::Later
    }

    /// Runs an operation that was taken out of its frame and answers it by itself.
    pub(super) fn run_detached(
        &mut self,
        now: Now,
        mut parked: Parked,
        brought: Option<(Place, &[u8])>,
        outbox: &mut Outbox<P::Block>,
    ) {
        let reserved = parked.reserved;
        self.unreserve(&mut parked);
        let operation = Operation {
            address: parked.address,
            level: parked.level,
            deadline_us: match is_planted(Bug::ForgetParkedDeadline) {
                true => 0,
                false => parked.deadline_us,
            },
            came_us: parked.came_us,
            brought,
            known: None,
        };
        let mut out = std::mem::take(&mut self.scratch);
        let step = match self.outgrown(&parked, reserved) {
            None => self.operation(now, parked.origin, operation, &parked.item, &mut out),
            Some((asked, outgrown)) => {
                let out = out.written();
                self.refuse_item(asked, &operation, Status::Busy, &outgrown, out)
            }
        };
        match step {
            Step::Answered(gate) => {
                self.stages.queued(now.us, parked.came_us, 1);
                self.answer_detached(parked.origin, parked.address, gate, &out, outbox)
            }
            Step::Later => {}
            Step::Postponed => {
                parked.reserved = reserved;
                self.reserve(parked.origin, &parked.address, reserved);
                self.postponed.push_back(parked);
            }
        }
        // What it shares is held by the answer alone.
        out.clear();
        self.scratch = out;
    }

    /// Answers what waits for a read, for room in the log or for room for answers and has passed
    /// its deadline.
    pub(super) fn expire(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        if is_planted(Bug::ForgetParkedDeadline) {
            return;
        }
        let is_over = |parked: &Parked| parked.deadline_us != 0 && now.us > parked.deadline_us;
        let mut expired = self.parking.take_out(is_over);
        expired.extend(take_out(&mut self.postponed, is_over));
        for peer in &mut self.peers {
            let held = take_out(&mut peer.held, is_over);
            for parked in &held {
                peer.is_held_no_more(parked.address.session);
            }
            expired.extend(held);
        }
        for mut parked in expired {
            self.unreserve(&mut parked);
            let operation = Operation {
                address: parked.address,
                level: parked.level,
                deadline_us: parked.deadline_us,
                came_us: parked.came_us,
                brought: None,
                known: None,
            };
            let (status, message) = self
                .comes_too_late(now, parked.deadline_us)
                .expect("its deadline has passed");
            let asked = self.asked_by(&parked.item);
            let mut out = Vec::new();
            self.refuse_item(asked, &operation, status, &message, &mut out);
            self.stages.queued(now.us, parked.came_us, 1);
            let out = out.into();
            self.answer_detached(parked.origin, parked.address, Lsn(0), &out, outbox);
        }
    }

    pub(super) fn answer_detached(
        &mut self,
        origin: Origin,
        address: ReplyAddress,
        gate: Lsn,
        item: &Pieces,
        outbox: &mut Outbox<P::Block>,
    ) {
        let from = match origin {
            Origin::Here => {
                self.answer_here(address, gate, item, self.config.shard, outbox);
                return;
            }
            Origin::Shard(from) => from,
        };
        self.counters.executed_for_others += 1;
        let peer = &mut self.peers[usize::from(from)];
        // Answers leave in order of execution, so one gate covers those before it.
        let gate = peer
            .replies
            .back()
            .map_or(gate, |(last, _)| gate.max(*last));
        peer.replying_bytes += bytes_beyond_kept(item.len(), &address);
        item.reader().take(item.len(), &mut peer.reply_bytes);
        let end = peer.reply_bytes_sent + peer.reply_bytes.len() as u64;
        // The end is made relative when the mail leaves; until then its low bits are enough.
        let [a, b, c, d, ..] = end.to_le_bytes();
        peer.replies.push_back((
            gate,
            MailedReply {
                address,
                end: u32::from_le_bytes([a, b, c, d]),
            },
        ));
    }

    pub(super) fn execute_mail(&mut self, now: Now, mail: &RequestMail) {
        let origin = Origin::Shard(mail.from);
        let mut start = 0;
        // Answers to other shards never touch a connection of this one.
        let mut outbox = Outbox::default();
        for request in &mail.items {
            let item = &mail.bytes[start..request.end as usize];
            start = request.end as usize;
            let peer = &self.peers[usize::from(mail.from)];
            let is_below = peer.replying_bytes <= self.mailed_bytes_max || self.is_stopping;
            let has_room = peer.held.is_empty() && is_below;
            // Who asked keeps room for an answer that fits.
            let may_pass = || {
                let has_held = peer.held_of.contains_key(&request.address.session);
                let kept = request.address.answer_bytes as usize;
                (!has_held || is_planted(Bug::PassHeld)) && !self.asks_for_much(item, kept)
            };
            let may_run = self.postponed.is_empty() && (has_room || may_pass());
            if may_run && !self.is_held_back(now, request.deadline_us, item) {
                let operation = Operation {
                    address: request.address,
                    level: request.level,
                    deadline_us: request.deadline_us,
                    came_us: request.came_us,
                    brought: None,
                    known: None,
                };
                let mut out = std::mem::take(&mut self.scratch);
                match self.operation(now, origin, operation, item, &mut out) {
                    Step::Answered(gate) => {
                        self.counters.at_once += 1;
                        self.stages.queued(now.us, request.came_us, 1);
                        self.answer_detached(origin, request.address, gate, &out, &mut outbox)
                    }
                    Step::Later => {}
                    Step::Postponed => self.postponed.push_back(detached(origin, request, item)),
                }
                out.clear();
                self.scratch = out;
            } else {
                let peer = &mut self.peers[usize::from(mail.from)];
                peer.held.push_back(detached(origin, request, item));
                *peer.held_of.entry(request.address.session).or_default() += 1;
            }
        }
    }

    pub(super) fn deliver_mail(&mut self, mail: &ReplyMail, outbox: &mut Outbox<P::Block>) {
        self.peers[usize::from(mail.from)].outstanding -= match is_planted(Bug::CreditForMail) {
            true => 1,
            false => mail.items.len(),
        };
        let peer = &mut self.peers[usize::from(mail.from)];
        let mut start = 0;
        for reply in &mail.items {
            peer.outstanding_bytes -= reply.address.item_bytes as usize;
            let end = reply.end as usize;
            peer.taken_bytes += bytes_beyond_kept(end - start, &reply.address);
            start = end;
        }
        let mut start = 0;
        let mut items = mail.bytes.reader();
        let mut next = 0;
        // Neighbouring answers to one request share a frame.
        while next < mail.items.len() {
            let address = mail.items[next].address;
            let same = |reply: &MailedReply| {
                reply.address.session == address.session
                    && reply.address.request_id == address.request_id
            };
            // As many as one frame has room for.
            let full = start + self.frame_full_bytes;
            let of_request = mail.items[next..].iter().take_while(|reply| same(reply));
            let before = of_request.take_while(|reply| reply.end as usize <= full);
            let count = before.count().max(1);
            let group = &mail.items[next..next + count];
            next += count;
            let shard = mail.from;
            let group_start = start;
            start = group[count - 1].end as usize;
            if self.sessions.get_open(address.session).is_none() {
                if !is_planted(Bug::ShiftAfterClosed) {
                    items.skip(start - group_start);
                }
                continue;
            }
            let mut item_start = group_start;
            let answers = group.iter().map(|reply| {
                let bytes = reply.end as usize - item_start;
                item_start = reply.end as usize;
                (bytes, reply.address.answer_bytes as usize)
            });
            self.sessions.unreserve_awaited(address.session, answers);
            let session = self.sessions.at_mut(address.session);
            let more = session.settle(address.request_id, count);
            let out = &mut session.output.pieces;
            let mut reply = BatchReply::begin(out, address.request_id, count).over(session.medium);
            let mut item_start = group_start;
            for item in group {
                let end = item.end as usize;
                reply.raw(out, &mut items, end - item_start);
                item_start = end;
            }
            reply.finish(out, shard, more, true);
            self.note(address.session, Lsn(0), count, outbox);
        }
        self.has_progress = true;
    }

    /// Runs what other shards sent when there was no room for the answers.
    pub(super) fn run_held(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        for from in 0..self.peers.len() {
            while self.postponed.is_empty() {
                let peer = &mut self.peers[from];
                if peer.replying_bytes > self.mailed_bytes_max && !self.is_stopping {
                    break;
                }
                let Some(held) = peer.held.pop_front() else {
                    break;
                };
                if self.is_held_back(now, held.deadline_us, &held.item) {
                    self.peers[from].held.push_front(held);
                    break;
                }
                let peer = &mut self.peers[from];
                peer.is_held_no_more(held.address.session);
                self.run_detached(now, held, None, outbox);
            }
        }
    }

    pub(super) fn send_mail(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        outbox.mail.append(&mut self.keyspaces.take_mail());
        let durable = self.store.log().durable();
        let from = self.config.shard;
        let may_tell_taken = self.sessions.may_tell_taken();
        for (to, peer) in (0u16..).zip(&mut self.peers) {
            if !peer.requests.is_empty() {
                let items = std::mem::take(&mut peer.requests);
                let bytes = Bytes::from(std::mem::take(&mut peer.request_bytes));
                if is_planted(Bug::LoseMail) && now.us.is_multiple_of(9) {
                    continue;
                }
                outbox
                    .mail
                    .push((to, Mail::Requests(RequestMail { from, items, bytes })));
            }
            let ready = peer
                .replies
                .iter()
                .take_while(|(gate, _)| *gate <= durable || is_planted(Bug::MailUndurable))
                .count();
            if ready > 0 {
                let [a, b, c, d, ..] = peer.reply_bytes_sent.to_le_bytes();
                let sent = u32::from_le_bytes([a, b, c, d]);
                let relative = |(_, reply): (Lsn, MailedReply)| MailedReply {
                    end: reply.end.wrapping_sub(sent),
                    ..reply
                };
                let items: Vec<MailedReply> = peer.replies.drain(..ready).map(relative).collect();
                let end = items[ready - 1].end as usize;
                let mut bytes = Pieces::default();
                peer.reply_bytes.move_to(end, &mut bytes);
                peer.reply_bytes_sent += end as u64;
                outbox
                    .mail
                    .push((to, Mail::Replies(ReplyMail { from, items, bytes })));
            }
            let is_told = may_tell_taken && !is_planted(Bug::ForgetTaken);
            if is_told && peer.taken_bytes > self.mailed_bytes_max / 4 {
                let bytes = std::mem::take(&mut peer.taken_bytes);
                outbox
                    .mail
                    .push((to, Mail::Taken(TakenMail { from, bytes })));
            }
        }
    }
}

/// Takes out all that `is_it` says, in order.
fn take_out(queue: &mut VecDeque<Parked>, is_it: impl Fn(&Parked) -> bool) -> Vec<Parked> {
    if !queue.iter().any(&is_it) {
        return Vec::new();
    }
    let (taken, left): (Vec<_>, Vec<_>) = queue.drain(..).partition(is_it);
    queue.extend(left);
    taken
}

fn detached(origin: Origin, request: &MailedRequest, item: &[u8]) -> Parked {
    Parked {
        origin,
        address: request.address,
        level: request.level,
        deadline_us: request.deadline_us,
        came_us: request.came_us,
        slot: request.slot,
        reserved: 0,
        item: item.into(),
    }
}
