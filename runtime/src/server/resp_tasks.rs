//! The two tasks of a connection that speaks RESP: one reads and gives frames to the shard, one
//! takes frames of the shard and writes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use penstock_net::auth::{Challenge, Transport};
use penstock_net::resp::Conversation;
use penstock_shard::{Event, SessionId};

use super::connection::Connection;
use super::core::Core;
use super::halves::{Brought, ReadHalf, WriteHalf};
use super::resp_host::RespHost;

/// Bytes of a new receive buffer: what an idle connection costs.
const RECEIVE_BYTES_MIN: usize = 4 << 10;

/// Bytes to which it grows by itself for a busy connection; larger commands make it grow further.
const RECEIVE_BYTES_BUSY: usize = 64 << 10;

/// A buffer of frames or replies that is larger than this is given back when it is empty.
const BUFFER_BYTES_KEPT: usize = 256 << 10;

/// What the tasks of one connection share.
struct RespConnection {
    connection: Rc<Connection>,
    conversation: RefCell<Conversation>,
    host: Rc<RespHost>,
    /// What the shard was told last: bytes of the peer, bytes for it, and whether a command is not
    /// whole.
    told: Cell<(usize, usize, bool)>,
    /// Bytes for the peer that are being sent and that no shard counts.
    sending: Cell<usize>,
}

impl RespConnection {
    fn session(&self) -> SessionId {
        self.connection.session
    }

    /// Tells the shard what is held here; `false` if there is no room for a partial command.
    fn tell(&self, core: &Core, input_bytes: usize, is_partial: bool) -> bool {
        let reply_bytes = self.conversation.borrow_mut().out().len() + self.sending.get();
        let now = (input_bytes, reply_bytes, is_partial);
        if self.told.replace(now) == now && !is_partial && reply_bytes == 0 {
            return true;
        }
        core.holds_outside(self.session(), input_bytes, reply_bytes, is_partial)
    }

    /// Tells the shard that what was made here has left.
    fn tell_sent(&self, core: &Core) {
        self.sending.set(0);
        let (input_bytes, reply_bytes, is_partial) = self.told.get();
        if reply_bytes > 0 {
            self.told.set((input_bytes, 0, is_partial));
            core.holds_outside(self.session(), input_bytes, 0, is_partial);
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
    let client = host.clients.add(addresses.0, addresses.1);
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
        told: Cell::new((0, 0, false)),
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
    let mut buffer: Vec<u8> = Vec::with_capacity(RECEIVE_BYTES_MIN);
    let mut frame = Conversation::greeting();
    while run(&core, &shared, &mut buffer, &mut frame).await {
        let held = buffer.len();
        if held == buffer.capacity() {
            // A command that does not fit; its lengths were judged.
            buffer.reserve(held.max(RECEIVE_BYTES_MIN));
        }
        let capacity = buffer.capacity();
        let brought;
        (brought, buffer) = reader.read(buffer).await;
        let Some(Brought { bytes, was_full }) = brought else {
            break;
        };
        core.received(bytes);
        if held == 0 && capacity > RECEIVE_BYTES_BUSY && bytes < RECEIVE_BYTES_BUSY {
            buffer.shrink_to(RECEIVE_BYTES_BUSY);
        } else if was_full && capacity < RECEIVE_BYTES_BUSY && core.is_open(shared.session()) {
            buffer.reserve(capacity);
        }
        if frame.capacity() > BUFFER_BYTES_KEPT {
            frame = Vec::new();
        }
    }
    ended(&core, &shared, id, shared.connection.reader_ended());
}

/// Gives the shard what is whole in the buffer. `false` if the connection ends.
async fn run(
    core: &Rc<Core>,
    shared: &RespConnection,
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
        if !shared.tell(core, buffer.len(), is_inside) {
            let text = "ERR the server has no room for the rest of this command";
            shared.conversation.borrow_mut().end(text);
            buffer.clear();
            connection.has_output.set();
            continue;
        }
        if !is_blocked {
            return true;
        }
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
    // `taken_bytes` counts the bytes of frames since all replies had left. The network was told of
    // `told_bytes` of them.
    let (mut taken_bytes, mut told_bytes) = (0, 0);
    loop {
        connection.has_output.wait().await;
        frames.clear();
        core.take_output(session, &mut frames);
        taken_bytes += frames.len();
        let is_blocked = {
            let mut conversation = shared.conversation.borrow_mut();
            conversation.answered(&frames, &*shared.host);
            std::mem::swap(conversation.out(), &mut replies);
            if let Some(challenge) = conversation.take_challenge() {
                hash(&shared, challenge);
            }
            conversation.is_blocked()
        };
        if is_blocked {
            connection.may_resume.set();
        }
        if frames.is_empty() {
            shared.sending.set(replies.len());
        }
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
        for buffer in [&mut frames, &mut replies] {
            if buffer.capacity() > BUFFER_BYTES_KEPT {
                *buffer = Vec::new();
            }
        }
        shared.tell_sent(&core);
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
