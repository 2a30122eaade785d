//! The two tasks of a connection that speaks RESP: one reads and gives frames to the shard, one
//! takes frames of the shard and writes.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_net::auth::{Challenge, Transport};
use penstock_net::resp::{
    Conversation, Host, Message, Push, Received, ReplyBound, TrackedBy, WaitsFor,
};
use penstock_shard::tracking::writer_of;
use penstock_shard::{Event, Outside, SessionId};

use super::channels::{Mailed, Receiver, Unblocked};
use super::client_place::ClientPlace;
use super::connection::Connection;
use super::core::Core;
use super::debug_sleep;
use super::halves::{ReadHalf, WriteHalf};
use super::inlet::Brought;
use super::kept::{BUFFER_BYTES, BUFFER_BYTES_BUSY, Kept};
use super::resp_host::RespHost;
use crate::system::peer_has_gone;

/// Replies that no shard counts, beyond which it is told at once, in bytes.
const REPLY_BYTES_FREE: usize = 4 << 10;

/// Steps that the messages of a core take before others have their turn: those of patterns, ...
const STEPS_AT_ONCE: usize = 1 << 20;
/// ... and these for a message, and for each connection that gets it.
const PUSH_STEPS: usize = 256;
/// How long they have it, at the least.
const PUSH_PAUSE: Duration = Duration::from_millis(1);

/// How long a peer may send behind an error that ends its connection, ...
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// ... and how many bytes: as much as Redis takes as one argument.
const DRAIN_BYTES_MAX: u64 = 512 << 20;
/// The longest wait of a timer. Behind it the clock is asked, and the rest is waited for.
const TIMER_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a connection whose command is held waits before it looks again, at the least, ...
const HELD_MIN: Duration = Duration::from_millis(1);
/// ... and at most: one whose peer has gone is noticed then.
const HELD_MAX: Duration = Duration::from_secs(1);

/// The connections of the RESP ports of one core, by their numbers.
#[derive(Default)]
pub(super) struct Subscribers(RefCell<HashMap<u64, Rc<RespConnection>>>);

/// What connections to one port of a core have.
#[derive(Clone)]
pub(super) struct RespPort {
    pub(super) host: Rc<RespHost>,
    pub(super) subscribers: Rc<Subscribers>,
}

/// What the tasks of one connection share.
struct RespConnection {
    /// Its number.
    id: u64,
    connection: Rc<Connection>,
    conversation: RefCell<Conversation>,
    host: Rc<RespHost>,
    subscribers: Rc<Subscribers>,
    /// What the shard was told last.
    reported: Cell<Outside>,
    /// Bytes for the peer that are being sent and that no shard counts.
    sending: Cell<usize>,
}

impl RespConnection {
    fn session(&self) -> SessionId {
        self.connection.session
    }

    fn reply_bound(&self, core: &Core) -> ReplyBound {
        ReplyBound {
            one: self.host.reply_bytes_max(),
            left: core.room_for_replies(),
        }
    }

    /// What is held here, if the shard is to be told, with so many bytes that have not run.
    fn held(&self, input_bytes: usize, is_partial: bool) -> Outside {
        let mut conversation = self.conversation.borrow_mut();
        let pushes = conversation.push_bytes();
        Outside {
            input: input_bytes + conversation.queued_bytes(),
            replies: conversation.out().len() + self.sending.get() + pushes.list,
            kept: conversation.kept_bytes(),
            is_partial,
            awaits_others: matches!(conversation.waits_for(), WaitsFor::Keys(_)),
        }
    }

    /// Tells the shard what is held here; what is wrong if there is no room for what the peer has
    /// sent.
    fn report_held(
        &self,
        core: &Core,
        input_bytes: usize,
        is_partial: bool,
    ) -> Option<&'static str> {
        let held = self.held(input_bytes, is_partial);
        if self.reported.replace(held) == held && !is_partial && held.replies == 0 {
            return None;
        }
        let has_room = core.holds_outside(self.session(), held);
        match (has_room, is_partial) {
            (false, true) => Some("ERR the server has no room for the rest of this command"),
            (false, false) if self.conversation.borrow().is_queueing() => {
                Some("ERR the server has no room for what MULTI has queued")
            }
            _ => None,
        }
    }

    /// Tells the shard what is held here since answers have come or replies have left.
    fn report_replies(&self, core: &Core) {
        let before = self.reported.get();
        let held = self.held(0, before.is_partial);
        let (replies, kept) = (held.replies, held.kept);
        // Long messages that few connections share count, too: their peers are to take them.
        let waiting = self.conversation.borrow().push_bytes().messages;
        let is_little = replies.max(kept).max(waiting) <= REPLY_BYTES_FREE;
        if is_little && (before.replies, before.kept) == (0, 0) {
            return;
        }
        let held = Outside {
            replies,
            kept,
            ..before
        };
        if self.reported.replace(held) != held {
            core.holds_outside(self.session(), held);
        }
    }

    /// Gives back the keys that KEYS has collected while there is no room for replies. The pages
    /// that it waits for may need just this room.
    fn bound_values(&self, core: &Core) {
        let is_short = core.room_for_replies() == 0;
        if is_short && self.conversation.borrow_mut().refuse_more_values() {
            self.report_replies(core);
        }
    }
}

impl RespConnection {
    /// A message comes.
    fn receive(&self, core: &Core, push: Push) {
        if self.connection.is_shut.get() {
            return;
        }
        let received = {
            let mut conversation = self.conversation.borrow_mut();
            conversation.set_rights(core.rights_of(self.session()));
            conversation.bound_replies(self.reply_bound(core));
            conversation.receive(push, self.host.channels().messages_left())
        };
        self.received(core, received);
    }

    /// A tracked key has changed; without a key all have.
    fn invalidate(&self, core: &Core, key: Option<Arc<Message>>, by: TrackedBy) {
        let received = {
            let mut conversation = self.conversation.borrow_mut();
            conversation.set_rights(core.rights_of(self.session()));
            conversation.bound_replies(self.reply_bound(core));
            conversation.invalidate(key, by, self.host.channels().messages_left())
        };
        self.received(core, received);
    }

    /// The connection of this number is gone, which this one may have named by REDIRECT.
    fn redirect_broke(&self, gone: u64) {
        let mut conversation = self.conversation.borrow_mut();
        conversation.redirect_broke(gone, &*self.host);
        self.connection.has_output.set();
    }

    /// Drops what the peer still sends behind an error that ends the connection, so that it can
    /// read the error: an end of both directions would take that away.
    async fn drain(&self) {
        let until = Instant::now() + DRAIN_MAX;
        while !self.connection.is_shut.get() {
            let dropped = self.conversation.borrow().dropped_bytes();
            let left = until.saturating_duration_since(Instant::now());
            if dropped.is_none_or(|bytes| bytes > DRAIN_BYTES_MAX) || left.is_zero() {
                return;
            }
            let more = self.connection.has_output.wait();
            let _ = monoio::time::timeout(left, more).await;
        }
    }

    /// CLIENT PAUSE holds nothing back any more.
    fn goes_on(&self) {
        if self.conversation.borrow().held_until_us().is_some() {
            self.connection.may_resume.set();
        }
    }

    /// Waits until a command that is held may be taken, or something else has happened. `false` if
    /// its peer has gone meanwhile.
    async fn wait_held(&self, until_us: u64) -> bool {
        let left_us = until_us.saturating_sub(self.host.elapsed_us());
        let left = Duration::from_micros(left_us).clamp(HELD_MIN, HELD_MAX);
        let may_resume = self.connection.may_resume.wait();
        let _ = monoio::time::timeout(left, may_resume).await;
        !peer_has_gone(self.connection.descriptor())
    }

    /// Waits until the connection may try a key, the time is over, or its peer has sent more.
    /// `false` if the peer has gone meanwhile: no try may be made for it.
    async fn wait_for_keys(
        &self,
        core: &Core,
        reader: &mut ReadHalf,
        buffer: &mut Vec<u8>,
        until_us: Option<u64>,
    ) -> bool {
        if buffer.len() >= BUFFER_BYTES {
            // What comes behind that waits in the socket, and hides the end of it. A connection is
            // counted with more than these bytes, however long it waits.
            return self.wait_held(until_us.unwrap_or(u64::MAX)).await;
        }
        let left_us = until_us.map(|until_us| until_us.saturating_sub(self.host.elapsed_us()));
        let left = left_us.map(|us| Duration::from_micros(us).min(TIMER_MAX));
        let resumed = &self.connection.may_resume;
        let Some(Brought { bytes, .. }) = reader.read_until(buffer, resumed, left).await else {
            return false;
        };
        if bytes > 0 {
            core.received(bytes);
        }
        !peer_has_gone(self.connection.descriptor())
    }

    /// The connection may try a key that it waits for.
    fn may_try(&self) {
        self.conversation.borrow_mut().may_try();
        self.connection.may_resume.set();
    }

    /// CLIENT UNBLOCK has named the connection.
    fn unblocked(&self, unblocked: Unblocked) {
        let Unblocked {
            ticket, is_error, ..
        } = unblocked;
        self.conversation.borrow_mut().unblock(ticket, is_error);
        self.connection.may_resume.set();
    }

    fn received(&self, core: &Core, received: Received) {
        match received {
            Received::Passed => {}
            Received::Waits => {
                self.report_replies(core);
                self.connection.has_output.set();
            }
            Received::TooMuch => {
                self.report_replies(core);
                self.host.channels().subscriber_ended();
                core.ends_subscriber(self.id);
                self.connection.shut_down();
            }
        }
    }

    /// A half has ended; both have, if `have_both`.
    fn ended(&self, core: &Core, have_both: bool) {
        self.conversation.borrow_mut().leaves(&*self.host);
        if have_both {
            self.conversation.borrow_mut().ended(&*self.host);
            self.subscribers.0.borrow_mut().remove(&self.id);
            self.host.clients.remove(self.id);
            core.remove(self.session());
        }
    }
}

/// Gives what is in the mail of a core to its connections. When that has taken many steps, others
/// have their turn.
pub(super) async fn deliver_mail(core: Rc<Core>, port: RespPort, mail: flume::Receiver<Mailed>) {
    let mut steps = 0;
    while let Ok(mailed) = mail.recv_async().await {
        let delivery = port.deliver(&core, mailed);
        steps += delivery.steps;
        for receiver in &delivery.receivers {
            if steps >= STEPS_AT_ONCE {
                steps = 0;
                monoio::time::sleep(PUSH_PAUSE).await;
            }
            port.invalidate(&core, *receiver, delivery.key.as_ref());
            steps += PUSH_STEPS;
        }
        if steps >= STEPS_AT_ONCE {
            steps = 0;
            monoio::time::sleep(PUSH_PAUSE).await;
        }
    }
}

/// Connections that get a tracked key, or a null for all keys.
#[derive(Default)]
struct Delivery {
    key: Option<Arc<Message>>,
    receivers: Box<[Receiver]>,
    /// Steps that were taken already.
    steps: usize,
}

impl RespPort {
    fn connection(&self, id: u64) -> Option<Rc<RespConnection>> {
        self.subscribers.0.borrow().get(&id).cloned()
    }

    /// Gives what was in the mail to the connections that it is for, but for tracked keys: those
    /// are to be given to the receivers of the delivery.
    fn deliver(&self, core: &Core, mailed: Mailed) -> Delivery {
        let number = self.host.number_of_core();
        let channels = self.host.channels();
        let mut delivery = Delivery {
            steps: PUSH_STEPS,
            ..Delivery::default()
        };
        match mailed {
            Mailed::Message(message) => delivery.steps = self.deliver_message(core, message),
            Mailed::Invalidated(invalidated) => {
                channels.took_invalidated(number);
                delivery.key = Some(Arc::clone(&invalidated.key));
                delivery.receivers = invalidated.receivers.clone();
            }
            Mailed::AllInvalidated => {
                channels.took_all_invalidated(number);
                delivery.receivers = self.host.tracking().receivers_of_all(number).into();
            }
            Mailed::Sleep(until) => debug_sleep::stand_still(until),
            Mailed::Unpaused => {
                channels.took_unpaused(number);
                let all = self.subscribers.0.borrow();
                all.values().for_each(|it| it.goes_on());
            }
            Mailed::MayTry(client) => {
                if let Some(connection) = self.connection(client) {
                    connection.may_try();
                }
            }
            Mailed::Unblocked(unblocked) => {
                if let Some(connection) = self.connection(unblocked.client) {
                    connection.unblocked(unblocked);
                }
            }
            Mailed::RedirectBroke { tracker, gone } => {
                if let Some(connection) = self.connection(tracker) {
                    connection.redirect_broke(gone);
                }
            }
        }
        delivery
    }

    fn deliver_message(&self, core: &Core, message: Arc<Message>) -> usize {
        let mut given = 1;
        let number = self.host.number_of_core();
        let channels = self.host.channels();
        let of_patterns = channels.deliver(number, &message, |id, pattern| {
            if let Some(connection) = self.connection(id) {
                let message = Arc::clone(&message);
                let push = match pattern {
                    None => Push::Message(message),
                    Some(pattern) => Push::OfPattern(message, Arc::clone(pattern)),
                };
                connection.receive(core, push);
                given += 1;
            }
        });
        of_patterns + given * PUSH_STEPS
    }

    /// Gives a connection a tracked key. If it is gone, the one that tracks the key gets that.
    fn invalidate(&self, core: &Core, receiver: Receiver, key: Option<&Arc<Message>>) {
        let Receiver { client, tracker } = receiver;
        let by = match client == tracker {
            true => TrackedBy::ThisConnection,
            false => TrackedBy::AnotherConnection,
        };
        match self.connection(client) {
            Some(connection) if !connection.connection.is_shut.get() => {
                connection.invalidate(core, key.cloned(), by);
            }
            _ if client == tracker => {}
            _ => {
                if let Some(its_core) = self.host.tracking().broke(receiver) {
                    self.host.channels().mail_redirect_broke(its_core, receiver);
                }
            }
        }
    }
}

/// Begins the tasks of a connection between these addresses.
pub(super) fn serve_resp(
    core: &Rc<Core>,
    port: &RespPort,
    connection: Rc<Connection>,
    (addresses, must_log_in): ((&str, &str), Option<Transport>),
    (reader, writer): (ReadHalf, WriteHalf),
) {
    let host = &port.host;
    let place = ClientPlace {
        core: host.number_of_core(),
        writer: writer_of(host.number_of_core(), connection.session),
    };
    let socket = (connection.descriptor(), place);
    let client = host.clients.add(addresses.0, addresses.1, socket);
    let id = client.id;
    let mut conversation = Conversation::new(client, host.limits(), host.is_clustered());
    if let Some(transport) = must_log_in {
        let certificate = transport.certificate_name.as_ref();
        let certificate = certificate.map(|name| name.to_string());
        conversation.require_login(transport.may_carry_secrets(), certificate);
    }
    let shared = Rc::new(RespConnection {
        id,
        connection,
        conversation: RefCell::new(conversation),
        host: Rc::clone(host),
        subscribers: Rc::clone(&port.subscribers),
        reported: Cell::default(),
        sending: Cell::new(0),
    });
    let all = &port.subscribers.0;
    all.borrow_mut().insert(id, Rc::clone(&shared));
    monoio::spawn(read(Rc::clone(core), Rc::clone(&shared), reader));
    monoio::spawn(write(Rc::clone(core), shared, writer));
}

async fn read(core: Rc<Core>, shared: Rc<RespConnection>, mut reader: ReadHalf) {
    let (mut buffer, mut frame) = (Vec::new(), Conversation::greeting());
    while run(&core, &shared, &mut reader, &mut buffer, &mut frame).await {
        core.kept.give_back(std::mem::take(&mut frame));
        let Some(Brought { bytes, .. }) = reader.read(&mut buffer).await else {
            break;
        };
        core.received(bytes);
        frame = core.kept.lend(BUFFER_BYTES);
    }
    shared.ended(&core, shared.connection.reader_ended());
}

/// Gives the shard what is whole in the buffer. `false` if the connection ends.
async fn run(
    core: &Rc<Core>,
    shared: &RespConnection,
    reader: &mut ReadHalf,
    buffer: &mut Vec<u8>,
    frame: &mut Vec<u8>,
) -> bool {
    let connection = &shared.connection;
    loop {
        while !frame.is_empty() {
            let session = connection.session;
            let bytes = &frame[..];
            let consumed = core.step(Event::Received { session, bytes });
            frame.drain(..consumed);
            if frame.is_empty() {
                break;
            }
            if !core.is_paused(session) {
                return false;
            }
            shared.report_held(core, frame.len() + buffer.len(), false);
            reader.give_back(buffer);
            connection.may_resume.wait().await;
            if connection.is_shut.get() {
                return false;
            }
        }
        if connection.is_shut.get() {
            return false;
        }
        let (taken, (is_blocked, rests), is_inside, has_output) = {
            let mut conversation = shared.conversation.borrow_mut();
            conversation.set_rights(core.rights_of(connection.session));
            shared.host.follow(core.ahead_ms());
            conversation.bound_replies(shared.reply_bound(core));
            let taken = conversation.take(buffer, frame, &*shared.host);
            if conversation.has_taken_secret() {
                buffer[..taken].fill(0);
            }
            let is_inside = conversation.is_inside(buffer.len() - taken);
            let has_output = !conversation.out().is_empty() || conversation.is_finished();
            let waits = (conversation.is_blocked(), conversation.rests());
            (taken, waits, is_inside, has_output)
        };
        buffer.drain(..taken);
        if has_output {
            connection.has_output.set();
        }
        if rests && frame.is_empty() {
            monoio::time::sleep(PUSH_PAUSE).await;
        }
        if taken > 0 || rests || !frame.is_empty() {
            continue;
        }
        if let Some(text) = shared.report_held(core, buffer.len(), is_inside) {
            shared.conversation.borrow_mut().end(text);
            buffer.clear();
            connection.has_output.set();
            continue;
        }
        if !is_blocked {
            return true;
        }
        let waits_for = shared.conversation.borrow().waits_for();
        if !matches!(waits_for, WaitsFor::Keys(_)) {
            reader.give_back(buffer);
        }
        let goes_on = match waits_for {
            WaitsFor::Replies => {
                connection.may_resume.wait().await;
                true
            }
            WaitsFor::PauseEnd(until_us) => shared.wait_held(until_us).await,
            WaitsFor::Keys(until_us) => shared.wait_for_keys(core, reader, buffer, until_us).await,
        };
        if !goes_on {
            return false;
        }
    }
}

/// Has the password of a login hashed; the login goes on behind that.
fn hash(shared: &Rc<RespConnection>, challenge: Challenge) {
    let hashed = shared.host.hashing().begin(challenge);
    let shared = Rc::clone(shared);
    monoio::spawn(async move {
        let salted = match hashed {
            Some(hashed) => hashed.recv_async().await.ok(),
            None => None,
        };
        shared.conversation.borrow_mut().hashed(salted.as_deref());
        shared.connection.may_resume.set();
        shared.connection.has_output.set();
    });
}

async fn write(core: Rc<Core>, shared: Rc<RespConnection>, mut writer: WriteHalf) {
    let (connection, session) = (&shared.connection, shared.session());
    let mut frames: Vec<u8> = Vec::new();
    let mut replies: Vec<u8> = Vec::new();
    let mut kept = Kept::new(&core.kept);
    // `taken_bytes` counts the bytes of frames since all replies had left. The network was told of
    // `reported_bytes` of them.
    let (mut taken_bytes, mut reported_bytes) = (0, 0);
    loop {
        connection.has_output.wait().await;
        core.take_output(session, &mut frames);
        taken_bytes += frames.len();
        let (is_blocked, has_pushes) = {
            let mut conversation = shared.conversation.borrow_mut();
            conversation.bound_replies(shared.reply_bound(&core));
            conversation.answered(&frames, &*shared.host);
            let has_pushes = conversation.push_bytes().messages > 0;
            conversation.take_out(&mut replies);
            if let Some(challenge) = conversation.take_challenge() {
                hash(&shared, challenge);
            }
            (conversation.is_blocked(), has_pushes)
        };
        frames.clear();
        if frames.capacity() > BUFFER_BYTES_BUSY {
            frames = Vec::new();
        }
        if is_blocked {
            connection.may_resume.set();
        }
        // The shard counts the frames until their replies have left.
        shared
            .sending
            .set(replies.len().saturating_sub(taken_bytes));
        shared.report_replies(&core);
        let (mut sent, all) = (0, replies.len());
        connection.is_sending.set(all > 0);
        while sent < all {
            let result;
            (result, replies) = writer.write_bytes(replies, sent).await;
            let Ok(written @ 1..) = result else { break };
            sent += written;
            // A slow peer is not a stalled one.
            let frame_bytes = written.min(taken_bytes - reported_bytes);
            reported_bytes += frame_bytes;
            core.took(session, frame_bytes);
            if has_pushes {
                core.gave(session, written - frame_bytes);
            }
        }
        connection.is_sending.set(false);
        if sent < all || writer.flush().await.is_err() {
            break;
        }
        replies.clear();
        shared.sending.set(0);
        shared.report_replies(&core);
        let capacity = frames.capacity() + replies.capacity();
        let talk_bytes = shared.conversation.borrow().capacity();
        // The shard has a buffer that changes places with `frames`.
        let all_bytes = capacity + frames.capacity() + talk_bytes;
        if connection.is_resting() || !kept.keeps(all_bytes) {
            kept.keeps_nothing();
            (frames, replies) = (Vec::new(), Vec::new());
            shared.conversation.borrow_mut().give_back();
            core.give_back(session);
        }
        let (holds_replies, is_finished, is_blocked) = {
            let conversation = shared.conversation.borrow();
            let holds_replies = conversation.holds_replies();
            (
                holds_replies,
                conversation.is_finished(),
                conversation.is_blocked(),
            )
        };
        if taken_bytes > 0 && !holds_replies {
            core.sent(session, all);
            (taken_bytes, reported_bytes) = (0, 0);
        }
        if shared.conversation.borrow().may_send() {
            connection.has_output.set();
        }
        shared.bound_values(&core);
        if is_blocked {
            connection.may_resume.set();
        }
        if connection.is_shut.get() || is_finished || core.is_finished(session) {
            break;
        }
    }
    writer.end().await;
    shared.drain().await;
    shared.ended(&core, shared.connection.half_ended());
}
