//! The two tasks of a connection that speaks RESP: one reads and gives frames to the shard, one
//! takes frames of the shard and writes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use penstock_net::auth::{Challenge, Transport};
use penstock_net::resp::{Conversation, ReplyBound};
use penstock_shard::{Event, Outside, SessionId};

use super::connection::Connection;
use super::core::Core;
use super::halves::{ReadHalf, WriteHalf};
use super::inlet::Brought;
use super::kept::{BUFFER_BYTES, BUFFER_BYTES_BUSY, Kept};
use super::resp_host::RespHost;

/// Replies that no shard counts, beyond which it is told at once, in bytes.
const REPLY_BYTES_FREE: usize = 4 << 10;

/// What the tasks of one connection share.
struct RespConnection {
    connection: Rc<Connection>,
    conversation: RefCell<Conversation>,
    host: Rc<RespHost>,
    /// What the shard was told last.
    told: Cell<Outside>,
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
        Outside {
            input: input_bytes + conversation.queued_bytes(),
            replies: conversation.out().len() + self.sending.get(),
            kept: conversation.kept_bytes(),
            is_partial,
        }
    }

    /// Tells the shard what is held here; what is wrong if there is no room for what the peer has
    /// sent.
    fn tell(&self, core: &Core, input_bytes: usize, is_partial: bool) -> Option<&'static str> {
        let held = self.held(input_bytes, is_partial);
        if self.told.replace(held) == held && !is_partial && held.replies == 0 {
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
        let told = self.told.get();
        let held = self.held(0, told.is_partial);
        let (replies, kept) = (held.replies, held.kept);
        let is_little = replies.max(kept) <= REPLY_BYTES_FREE;
        if is_little && (told.replies, told.kept) == (0, 0) {
            return;
        }
        let held = Outside {
            replies,
            kept,
            ..told
        };
        if self.told.replace(held) != held {
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

/// Begins the tasks of a connection between these addresses.
pub(super) fn serve_resp(
    core: &Rc<Core>,
    host: &Rc<RespHost>,
    connection: Rc<Connection>,
    (addresses, must_log_in): ((&str, &str), Option<Transport>),
    (reader, writer): (ReadHalf, WriteHalf),
) {
    let client = host
        .clients
        .add(addresses.0, addresses.1, connection.descriptor());
    let id = client.id;
    let mut conversation = Conversation::new(client, host.limits(), host.is_clustered());
    if let Some(transport) = must_log_in {
        let certificate = transport.certificate_name.as_ref();
        let certificate = certificate.map(|name| name.to_string());
        conversation.require_login(transport.may_carry_secrets(), certificate);
    }
    let shared = Rc::new(RespConnection {
        connection,
        conversation: RefCell::new(conversation),
        host: Rc::clone(host),
        told: Cell::default(),
        sending: Cell::new(0),
    });
    monoio::spawn(read(Rc::clone(core), Rc::clone(&shared), id, reader));
    monoio::spawn(write(Rc::clone(core), shared, id, writer));
}

/// Both halves have ended.
fn ended(core: &Core, shared: &RespConnection, id: u64, have_both: bool) {
    if have_both {
        shared.host.clients.remove(id);
        core.remove(shared.session());
    }
}

async fn read(core: Rc<Core>, shared: Rc<RespConnection>, id: u64, mut reader: ReadHalf) {
    let (mut buffer, mut frame) = (Vec::new(), Conversation::greeting());
    while run(&core, &shared, &mut reader, &mut buffer, &mut frame).await {
        core.kept.give_back(std::mem::take(&mut frame));
        let Some(Brought { bytes, .. }) = reader.read(&mut buffer).await else {
            break;
        };
        core.received(bytes);
        frame = core.kept.lend(BUFFER_BYTES);
    }
    ended(&core, &shared, id, shared.connection.reader_ended());
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
            shared.tell(core, frame.len() + buffer.len(), false);
            reader.give_back(buffer);
            connection.may_resume.wait().await;
            if connection.is_shut.get() {
                return false;
            }
        }
        if connection.is_shut.get() {
            return false;
        }
        let (taken, is_blocked, is_inside, has_output) = {
            let mut conversation = shared.conversation.borrow_mut();
            conversation.set_rights(core.rights_of(connection.session));
            shared.host.follow(core.ahead_ms());
            conversation.bound_replies(shared.reply_bound(core));
            let taken = conversation.take(buffer, frame, &*shared.host);
            if conversation.has_heard_secret() {
                buffer[..taken].fill(0);
            }
            let is_inside = conversation.is_inside(buffer.len() - taken);
            let has_output = !conversation.out().is_empty() || conversation.is_finished();
            (taken, conversation.is_blocked(), is_inside, has_output)
        };
        buffer.drain(..taken);
        if has_output {
            connection.has_output.set();
        }
        if taken > 0 || !frame.is_empty() {
            continue;
        }
        if let Some(text) = shared.tell(core, buffer.len(), is_inside) {
            shared.conversation.borrow_mut().end(text);
            buffer.clear();
            connection.has_output.set();
            continue;
        }
        if !is_blocked {
            return true;
        }
        reader.give_back(buffer);
        connection.may_resume.wait().await;
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

async fn write(core: Rc<Core>, shared: Rc<RespConnection>, id: u64, mut writer: WriteHalf) {
    let (connection, session) = (&shared.connection, shared.session());
    let mut frames: Vec<u8> = Vec::new();
    let mut replies: Vec<u8> = Vec::new();
    let mut kept = Kept::new(&core.kept);
    // `taken_bytes` counts the bytes of frames since all replies had left. The network was told of
    // `told_bytes` of them.
    let (mut taken_bytes, mut told_bytes) = (0, 0);
    loop {
        connection.has_output.wait().await;
        core.take_output(session, &mut frames);
        taken_bytes += frames.len();
        let is_blocked = {
            let mut conversation = shared.conversation.borrow_mut();
            conversation.bound_replies(shared.reply_bound(&core));
            conversation.answered(&frames, &*shared.host);
            std::mem::swap(conversation.out(), &mut replies);
            if let Some(challenge) = conversation.take_challenge() {
                hash(&shared, challenge);
            }
            conversation.is_blocked()
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
            let told = written.min(taken_bytes - told_bytes);
            told_bytes += told;
            core.took(session, told);
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
            (taken_bytes, told_bytes) = (0, 0);
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
    ended(&core, &shared, id, shared.connection.half_ended());
}
