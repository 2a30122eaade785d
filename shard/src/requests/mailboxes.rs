//! What goes to and comes from the other shards of a node: items, answers, and the credit of both.
//!
//! An asking shard bounds the items that it has sent and not seen answered. An answering shard
//! bounds the bytes of answers that the asking one has not said to have taken; items that find no
//! room for their answer are held, in order.

use std::collections::VecDeque;

use penstock_net::pieces::{Pieces, PiecesReader};
use penstock_storage::if_planted;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{self, Bug, is_planted};

use crate::accounts::busy::AnswerTerms;
use crate::mail::{
    Mail, MailedReply, MailedRequest, ReplyAddress, ReplyMail, RequestMail, SessionId, TakenMail,
};

use super::held::Held;
use super::parking::Parked;

/// The mail to and from one other shard.
#[derive(Debug, Default)]
struct Mailbox {
    requests: Vec<MailedRequest>,
    request_bytes: Vec<u8>,
    /// Items sent and not answered yet.
    outstanding: usize,
    /// Their bytes.
    outstanding_bytes: usize,
    /// Bytes of the other shard's answers that went to connections without room kept for them. That
    /// shard does not know of it yet.
    taken_bytes: usize,
    /// Bytes of answers to it for which it keeps no room and that it has not said to have taken,
    /// and of those that wait for reads.
    replying_bytes: usize,
    /// Items of it that wait until it has taken answers, or until scripts may run again.
    held: Held,
    replies: VecDeque<(Lsn, MailedReply)>,
    reply_bytes: Pieces,
    /// `end` of the replies counts from here.
    reply_bytes_sent: u64,
    /// Empty buffers for the next replies that leave.
    spare_replies: Vec<MailedReply>,
    spare_reply_bytes: Pieces,
}

/// The buffers of a mail are kept up to so many bytes each.
const SPARE_BYTES_MAX: usize = 256 << 10;

impl Mailbox {
    /// The answers that depend on nothing behind `durable`.
    fn take_replies(&mut self, durable: Lsn) -> Option<(Vec<MailedReply>, Pieces)> {
        let is_ready = |gate: Lsn| gate <= durable || is_planted(Bug::MailUndurable);
        let ready = self.replies.iter().take_while(|(gate, _)| is_ready(*gate));
        let count = ready.count();
        if count == 0 {
            return None;
        }
        let [a, b, c, d, ..] = self.reply_bytes_sent.to_le_bytes();
        let sent = u32::from_le_bytes([a, b, c, d]);
        let relative = |(_, reply): (Lsn, MailedReply)| MailedReply {
            end: reply.end.wrapping_sub(sent),
            ..reply
        };
        let mut items = std::mem::take(&mut self.spare_replies);
        items.extend(self.replies.drain(..count).map(relative));
        let end = items[count - 1].end as usize;
        let mut bytes = std::mem::take(&mut self.spare_reply_bytes);
        self.reply_bytes.move_to(end, &mut bytes);
        self.reply_bytes_sent += end as u64;
        Some((items, bytes))
    }
}

/// Whether an item may be sent to another shard now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MailRoom {
    /// It may.
    Yes,
    /// So many items are on their way, which is the limit: the answer is BUSY.
    Full(usize),
    /// Their bytes are too many: it waits until some are answered.
    Wait,
}

/// The mail to and from all other shards.
#[derive(Debug)]
pub(crate) struct Mailboxes {
    /// By shard; the one of the shard itself stays empty.
    all: Vec<Mailbox>,
    items_max: usize,
    /// Bytes of answers to one other shard that it has not taken, at which no more are made, and of
    /// items on their way to it.
    bytes_max: usize,
}

impl Mailboxes {
    /// No mail, for a node of so many shards.
    pub(crate) fn new(shards: u16, items_max: usize, bytes_max: usize) -> Self {
        Mailboxes {
            all: (0..shards).map(|_| Mailbox::default()).collect(),
            items_max,
            bytes_max,
        }
    }

    fn of(&mut self, shard: u16) -> &mut Mailbox {
        &mut self.all[usize::from(shard)]
    }

    // ---- this shard asks ----

    /// Whether an item may be sent to a shard now.
    pub(crate) fn room(&self, to: u16) -> MailRoom {
        let mailbox = &self.all[usize::from(to)];
        // One item may go beyond: it would wait for ever while smaller ones of others fill what is
        // left.
        if mailbox.outstanding >= self.items_max {
            MailRoom::Full(mailbox.outstanding)
        } else if mailbox.outstanding > 0 && mailbox.outstanding_bytes >= self.bytes_max {
            MailRoom::Wait
        } else {
            MailRoom::Yes
        }
    }

    /// Queues an item for the next mail to shard `to`. The caller asks [`Mailboxes::room`] first.
    /// `request.end` is set here.
    pub(crate) fn ask(&mut self, to: u16, request: MailedRequest, item: &[u8]) {
        let mailbox = self.of(to);
        mailbox.outstanding += 1;
        mailbox.outstanding_bytes += item.len();
        mailbox.request_bytes.extend_from_slice(item);
        let end = mailbox.request_bytes.len();
        mailbox.requests.push(MailedRequest {
            end: u32::try_from(end).expect("credits and frame limits bound a mail"),
            ..request
        });
    }

    /// Takes in that another shard has answered.
    pub(crate) fn answered(&mut self, mail: &ReplyMail) {
        let mailbox = self.of(mail.from);
        mailbox.outstanding -= planted::or(Bug::CreditForMail, 1, mail.items.len());
        let mut start = 0;
        for reply in &mail.items {
            mailbox.outstanding_bytes -= reply.address.item_bytes as usize;
            let end = reply.end as usize;
            mailbox.taken_bytes += bytes_beyond_kept(end - start, &reply.address);
            start = end;
        }
    }

    /// Keeps the buffers of items that a shard sent, for the next items that go there.
    pub(crate) fn keep_buffers(&mut self, mail: RequestMail) {
        let RequestMail { from, items, bytes } = mail;
        let mailbox = self.of(from);
        if mailbox.requests.is_empty() {
            keep(&mut mailbox.requests, items);
            keep(&mut mailbox.request_bytes, bytes);
        }
    }

    /// Keeps the buffers of answers of a shard, for the next answers that go there.
    pub(crate) fn keep_reply_buffers(&mut self, mail: ReplyMail) {
        let ReplyMail { from, items, bytes } = mail;
        let mailbox = self.of(from);
        keep(&mut mailbox.spare_replies, items);
        if bytes.capacity() <= SPARE_BYTES_MAX {
            mailbox.spare_reply_bytes = bytes;
            mailbox.spare_reply_bytes.clear();
        }
    }

    /// Whether another shard waits to be told that its answers were taken.
    pub(crate) fn has_unreported(&self) -> bool {
        self.all.iter().any(|mailbox| mailbox.taken_bytes > 0)
    }

    /// Whether so many answers were taken that another shard is to be told.
    pub(crate) fn owes_credit(&self) -> bool {
        let least = self.bytes_max / 4;
        self.all.iter().any(|mailbox| mailbox.taken_bytes > least)
    }

    // ---- this shard answers ----

    /// Whether an item of a shard may run: none is held before it, and there is room for its
    /// answer.
    pub(crate) fn may_run(&self, from: u16, is_stopping: bool) -> bool {
        let mailbox = &self.all[usize::from(from)];
        mailbox.held.is_empty() && (is_stopping || self.has_room_for_more(from))
    }

    /// Whether an answer to a shard may be longer than what it keeps free for it.
    pub(crate) fn has_room_for_more(&self, from: u16) -> bool {
        self.room_for_answers(from) > 0
    }

    /// Whether an item of this connection is held.
    pub(crate) fn holds_of(&self, from: u16, session: &SessionId) -> bool {
        self.all[usize::from(from)].held.has_of(session)
    }

    /// Whether any item is held.
    pub(crate) fn holds_any(&self) -> bool {
        self.all.iter().any(|mailbox| !mailbox.held.is_empty())
    }

    /// Holds an item until it may run.
    pub(crate) fn hold(&mut self, from: u16, parked: Parked) {
        self.of(from).held.push(parked);
    }

    /// Holds the item again that [`Mailboxes::next_held`] gave last: it is the next one.
    pub(crate) fn hold_first(&mut self, from: u16, parked: Parked) {
        self.of(from).held.push_first(parked);
    }

    /// The next item that was held and has room for its answer now.
    pub(crate) fn next_held(&mut self, from: u16, is_stopping: bool) -> Option<Parked> {
        match is_stopping || self.has_room_for_more(from) {
            true => self.of(from).held.pop(),
            false => None,
        }
    }

    /// The shards, by number.
    pub(crate) fn shards(&self) -> u16 {
        u16::try_from(self.all.len()).expect("made of so many")
    }

    /// Takes out the held items that `is_it` says, in order.
    pub(super) fn take_out_held(
        &mut self,
        is_it: impl Fn(&Parked) -> bool,
        into: &mut Vec<Parked>,
    ) {
        for mailbox in &mut self.all {
            mailbox.held.take_out(&is_it, into);
        }
    }

    /// An answer to a shard will take so many bytes.
    pub(crate) fn reserve(&mut self, from: u16, address: &ReplyAddress, bytes: usize) {
        self.of(from).replying_bytes += bytes_beyond_kept(bytes, address);
    }

    /// Ends that, before it is answered.
    pub(crate) fn unreserve(&mut self, from: u16, address: &ReplyAddress, bytes: usize) {
        if_planted!(Bug::KeepReserved, return);
        self.of(from).replying_bytes -= bytes_beyond_kept(bytes, address);
    }

    /// Bytes that answers to a shard may have, beyond those that it keeps free for them, until no
    /// more are made.
    pub(crate) fn room_for_answers(&self, from: u16) -> usize {
        let replying_bytes = self.all[usize::from(from)].replying_bytes;
        (self.bytes_max + 1).saturating_sub(replying_bytes)
    }

    /// Answers an item of a shard.
    pub(crate) fn answer(
        &mut self,
        from: u16,
        address: ReplyAddress,
        terms: AnswerTerms,
        item: &Pieces,
    ) {
        self.answer_part(from, address, terms, item.len(), &mut item.reader());
    }

    /// Answers an item of a shard with the next bytes of what is read.
    pub(crate) fn answer_part(
        &mut self,
        from: u16,
        address: ReplyAddress,
        terms: AnswerTerms,
        bytes: usize,
        part: &mut PiecesReader<'_>,
    ) {
        let AnswerTerms {
            gate,
            retry_after_ms,
        } = terms;
        let mailbox = self.of(from);
        // Answers leave in order of execution, so one gate covers those before it.
        let last = mailbox.replies.back();
        let gate = last.map_or(gate, |(last, _)| gate.max(*last));
        mailbox.replying_bytes += bytes_beyond_kept(bytes, &address);
        part.take(bytes, &mut mailbox.reply_bytes);
        let end = mailbox.reply_bytes_sent + mailbox.reply_bytes.len() as u64;
        // The end is made relative when the mail leaves; until then its low bits are enough.
        let [a, b, c, d, ..] = end.to_le_bytes();
        let end = u32::from_le_bytes([a, b, c, d]);
        let reply = MailedReply {
            address,
            end,
            retry_after_ms,
            is_void: false,
        };
        mailbox.replies.push_back((gate, reply));
    }

    /// The answers that have not left are void.
    pub(crate) fn void_unsent(&mut self) {
        for mailbox in &mut self.all {
            for (_, reply) in &mut mailbox.replies {
                reply.is_void = true;
            }
        }
    }

    /// The asking shard has taken so many bytes of answers.
    pub(crate) fn taken(&mut self, mail: &TakenMail) {
        self.of(mail.from).replying_bytes -= mail.bytes;
    }

    // ---- the end of a turn ----

    /// Sends what may leave: items, answers that are durable, and what was taken if that may be
    /// told.
    pub(crate) fn send(
        &mut self,
        now_us: u64,
        from: u16,
        durable: Lsn,
        may_report_taken: bool,
        into: &mut Vec<(u16, Mail)>,
    ) {
        for (to, mailbox) in (0u16..).zip(&mut self.all) {
            if !mailbox.requests.is_empty() {
                let items = std::mem::take(&mut mailbox.requests);
                let bytes = std::mem::take(&mut mailbox.request_bytes);
                if_planted!(Bug::LoseMail, now_us.is_multiple_of(9), continue);
                into.push((to, Mail::Requests(RequestMail { from, items, bytes })));
            }
            if let Some((items, bytes)) = mailbox.take_replies(durable) {
                into.push((to, Mail::Replies(ReplyMail { from, items, bytes })));
            }
            let is_reported = may_report_taken && !is_planted(Bug::ForgetTaken);
            if is_reported && mailbox.taken_bytes > self.bytes_max / 4 {
                let bytes = std::mem::take(&mut mailbox.taken_bytes);
                into.push((to, Mail::Taken(TakenMail { from, bytes })));
            }
        }
    }
}

/// Keeps a buffer in the place of an empty one, if that has less room.
fn keep<T>(empty: &mut Vec<T>, mut buffer: Vec<T>) {
    let is_small = buffer.capacity() * size_of::<T>() <= SPARE_BYTES_MAX;
    if is_small && buffer.capacity() > empty.capacity() {
        buffer.clear();
        *empty = buffer;
    }
}

/// What an answer of so many bytes takes beyond the room that the asking shard keeps for it.
#[inline]
pub(crate) fn bytes_beyond_kept(bytes: usize, address: &ReplyAddress) -> usize {
    match bytes <= address.answer_bytes as usize {
        true => 0,
        false => bytes,
    }
}
