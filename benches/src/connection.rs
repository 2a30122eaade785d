//! One connection of a run: its requests, those that are not answered yet, and its account.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Instant;

use mio::net::TcpStream;
use penstock_client::tls::TlsSession;
use penstock_net::batch::Batch;
use penstock_net::frame::{FLAG_REPLY, Opcode};
use penstock_net::placement::Writer;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{ReplyItem, text_of};
use penstock_net::status::{Executed, Status};

use crate::BenchError;
use crate::entry::{Access, Entry};
use crate::workload::Load;

/// Request ids within one shot.
const IDS_PER_SHOT: u64 = 1024;
/// The opcode of a batch.
const BATCH: u8 = Opcode::Batch as u8;
/// Ack levels, by their codes.
pub(crate) const LEVELS: usize = 5;

/// A shot that is not answered whole.
#[derive(Clone, Copy, Debug)]
struct Due {
    shot: u64,
    /// When it was due, in nanoseconds of the run.
    since_ns: u64,
    items_left: usize,
    /// Items that were answered and not shed.
    served: usize,
}

/// What one frame says of its items; the rest was refused.
#[derive(Clone, Copy, Default)]
struct ItemCounts {
    acked: usize,
    elsewhere: usize,
    unknown: usize,
    shed: usize,
}

/// What became of the operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Answered OK.
    pub(crate) acked: u64,
    /// Answered no: nothing was changed.
    pub(crate) refused: u64,
    /// Answered BUSY, DEADLINE or DRAINING: not executed, because the server had too much to do.
    pub(crate) shed: u64,
    /// Answered as unknown, or lost with a connection before the answer.
    pub(crate) unknown: u64,
    /// Sent, and not answered within some seconds after the end of the run.
    pub(crate) unanswered: u64,
    /// Not executed, because another node was to: asked anew there.
    pub(crate) elsewhere: u64,
    /// Connections that took the place of one that had ended.
    pub(crate) reconnected: u64,
    /// Of the answered ones, how many told each ack level, by its code.
    pub(crate) levels: [u64; LEVELS],
}

impl Account {
    pub(crate) fn plus(self, other: Account) -> Account {
        Account {
            acked: self.acked + other.acked,
            refused: self.refused + other.refused,
            shed: self.shed + other.shed,
            unknown: self.unknown + other.unknown,
            unanswered: self.unanswered + other.unanswered,
            elsewhere: self.elsewhere + other.elsewhere,
            reconnected: self.reconnected + other.reconnected,
            levels: std::array::from_fn(|code| self.levels[code] + other.levels[code]),
        }
    }
}

/// What a connection through TLS needs.
pub(crate) struct Secured {
    session: TlsSession,
    /// Records on their way.
    sealed: Vec<u8>,
    /// Of one read.
    chunk: Vec<u8>,
}

impl Secured {
    pub(crate) fn new(session: TlsSession) -> Secured {
        Secured {
            session,
            sealed: Vec::new(),
            chunk: vec![0; 64 << 10],
        }
    }
}

/// One connection.
pub(crate) struct Connection {
    stream: TcpStream,
    secured: Option<Secured>,
    load: Load,
    items_per_shot: usize,
    next_shot: u64,
    due: VecDeque<Due>,
    receiver: Receiver,
    received: Vec<u8>,
    filled: usize,
    to_send: Vec<u8>,
    sent: usize,
    is_raw: bool,
    access: Access,
    /// Of a connection that was made anew and is not open.
    entry: Option<Entry>,
    /// Another node is to be asked, by the last answer: where, if that was told.
    elsewhere: Option<Option<SocketAddr>>,
    pub(crate) account: Account,
    /// When something came last.
    pub(crate) last_received: Instant,
    /// Open loop: when the next shot is due.
    pub(crate) next_due_ns: u64,
}

impl Connection {
    pub(crate) fn new(
        stream: TcpStream,
        secured: Option<Secured>,
        access: Access,
        load: Load,
        items_per_shot: usize,
        is_raw: bool,
    ) -> Connection {
        Connection {
            stream,
            secured,
            load,
            items_per_shot,
            next_shot: 1,
            due: VecDeque::new(),
            receiver: Receiver::new(64 << 20),
            received: vec![0; 256 << 10],
            filled: 0,
            to_send: Vec::new(),
            sent: 0,
            is_raw,
            access,
            entry: None,
            elsewhere: None,
            account: Account::default(),
            last_received: Instant::now(),
            next_due_ns: 0,
        }
    }

    /// Goes on over another stream, which is not open.
    pub(crate) fn reopen(
        &mut self,
        stream: TcpStream,
        session: Option<TlsSession>,
    ) -> Result<(), BenchError> {
        let binding = session.as_ref().and_then(TlsSession::channel_binding);
        self.stream = stream;
        self.secured = session.map(Secured::new);
        self.receiver = Receiver::new(64 << 20);
        self.filled = 0;
        self.to_send.clear();
        self.sent = 0;
        self.entry = Some(Entry::begin(&self.access, binding, &mut self.to_send)?);
        self.account.reconnected += 1;
        Ok(())
    }

    /// Ends it. What is under way stays unknown.
    pub(crate) fn abandon(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        self.account.unknown += self.items_under_way();
        self.due.clear();
        self.elsewhere = None;
    }

    /// Whether operations may be sent.
    pub(crate) fn is_open(&self) -> bool {
        self.entry.is_none()
    }

    /// Whether an answer said that another node is to be asked, and which.
    pub(crate) fn elsewhere(&self) -> Option<Option<SocketAddr>> {
        self.elsewhere
    }

    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Operations that are not answered.
    pub(crate) fn items_under_way(&self) -> u64 {
        self.due.iter().map(|due| due.items_left as u64).sum()
    }

    /// Shots that are not answered whole.
    pub(crate) fn under_way(&self) -> usize {
        self.due.len()
    }

    /// Sends the next shot, which was due at `since_ns`.
    pub(crate) fn shoot(&mut self, since_ns: u64) -> Result<(), BenchError> {
        let shot = self.next_shot;
        self.next_shot += 1;
        self.load
            .write(shot, shot * IDS_PER_SHOT, &mut self.to_send);
        self.due.push_back(Due {
            shot,
            since_ns,
            items_left: self.items_per_shot,
            served: 0,
        });
        self.flush()
    }

    /// Hands on what the socket takes now.
    pub(crate) fn flush(&mut self) -> Result<(), BenchError> {
        let out = match &mut self.secured {
            None => &mut self.to_send,
            Some(secured) => {
                secured.session.seal(&self.to_send, &mut secured.sealed);
                self.to_send.clear();
                &mut secured.sealed
            }
        };
        while self.sent < out.len() {
            match self.stream.write(&out[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(BenchError::Connection(format!(
                        "a connection broke: {error}"
                    )));
                }
            }
        }
        out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads once from the socket; how many bytes came, and whether there may be more.
    fn read(&mut self) -> std::io::Result<(usize, bool)> {
        let Some(secured) = &mut self.secured else {
            if self.filled == self.received.len() {
                self.received.resize(self.received.len() * 2, 0);
            }
            let room = &mut self.received[self.filled..];
            let read = self.stream.read(room)?;
            let is_all = read < room.len();
            self.filled += read;
            return Ok((read, is_all));
        };
        let read = self.stream.read(&mut secured.chunk)?;
        let is_all = read < secured.chunk.len();
        self.received.truncate(self.filled);
        let bytes = &mut secured.chunk[..read];
        secured.session.receive(bytes, &mut self.received)?;
        self.filled = self.received.len();
        Ok((read, is_all))
    }

    /// Reads all that has arrived; `done` is told of each shot that is answered whole now, with
    /// the time it was due. The time is read once for all that one read brought.
    pub(crate) fn receive(&mut self, mut done: impl FnMut(u64, usize)) -> Result<(), BenchError> {
        loop {
            let is_all = match self.read() {
                Ok((0, _)) => {
                    return Err(BenchError::Connection(
                        "the server closed a connection".into(),
                    ));
                }
                Ok((_, is_all)) => is_all,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => false,
                Err(error) => {
                    return Err(BenchError::Connection(format!(
                        "a connection broke: {error}"
                    )));
                }
            };
            self.read_frames(&mut done)?;
            // A read that did not fill the buffer took all there was; readiness comes again.
            if is_all {
                let secured = self.secured.as_ref();
                let has_output = secured.is_some_and(|it| it.session.has_output());
                // A login goes on, or TLS has something to say.
                if has_output || !self.is_open() {
                    self.flush()?;
                }
                return Ok(());
            }
        }
    }

    fn read_frames(&mut self, done: &mut impl FnMut(u64, usize)) -> Result<(), BenchError> {
        let received = std::mem::take(&mut self.received);
        let mut at = 0;
        let outcome = loop {
            let rest = &received[at..self.filled];
            if self.is_raw {
                let bytes = self.load.bytes();
                if rest.len() < bytes {
                    break Ok(());
                }
                at += bytes;
                self.settle(
                    self.due.front().map_or(0, |due| due.shot),
                    self.items_per_shot,
                    done,
                );
                continue;
            }
            match self.receiver.next(rest) {
                Received::Frame {
                    header,
                    body,
                    consumed,
                } => {
                    at += consumed;
                    if let Some(entry) = &mut self.entry {
                        if let Err(error) = entry.received(&header, body, &mut self.to_send) {
                            break Err(error);
                        }
                        if entry.is_open() {
                            self.entry = None;
                        }
                        continue;
                    }
                    if let Err(error) = self.reply(
                        header.opcode,
                        header.flags,
                        header.level_or_status,
                        header.request_id,
                        body,
                        done,
                    ) {
                        break Err(error);
                    }
                }
                Received::Incomplete { .. } => break Ok(()),
                other => {
                    break Err(BenchError::WrongAnswer(format!(
                        "the server sent {other:?}"
                    )));
                }
            }
        };
        self.received = received;
        self.received.copy_within(at..self.filled, 0);
        self.filled -= at;
        outcome
    }

    fn reply(
        &mut self,
        opcode: u8,
        flags: u8,
        status: u16,
        request_id: u64,
        body: &[u8],
        done: &mut impl FnMut(u64, usize),
    ) -> Result<(), BenchError> {
        let wrong = |text: String| Err(BenchError::WrongAnswer(text));
        if flags & FLAG_REPLY != 0 && status == Status::Busy.code() && opcode == BATCH {
            return self.frame_shed(request_id, done);
        }
        if flags & FLAG_REPLY == 0 || status != Status::Ok.code() {
            return wrong(format!(
                "request {request_id} was answered {status:#06x}: {}",
                text_of(body).unwrap_or("")
            ));
        }
        let shot = request_id / IDS_PER_SHOT;
        if opcode == Opcode::Ping as u8 {
            let items = self.items_per_shot / self.load.frames();
            let acked = items;
            return self.answered(
                shot,
                items,
                ItemCounts {
                    acked,
                    ..ItemCounts::default()
                },
                done,
            );
        }
        let batch = match Batch::read(body) {
            Ok(batch) => batch,
            Err(refusal) => return wrong(refusal.to_string()),
        };
        let mut counts = ItemCounts::default();
        for number in 0..batch.len() {
            let item = ReplyItem::read(batch.item(number));
            if let Ok(item) = &item
                && shows_level(item.head.status)
            {
                let code = usize::from(item.head.level.code());
                self.account.levels[code] += 1;
            }
            match item {
                Ok(item) if item.head.status == Status::Ok => counts.acked += 1,
                Ok(item) if matches!(item.head.status, Status::Moved | Status::NotPrimary) => {
                    counts.elsewhere += 1;
                    let writer = Writer::read(item.head.version, item.value);
                    self.elsewhere = Some(writer.and_then(|it| it.clients.parse().ok()));
                }
                Ok(item) if item.head.status.executed() == Executed::Unknown => counts.unknown += 1,
                Ok(item)
                    if matches!(
                        item.head.status,
                        Status::Busy | Status::Draining | Status::Deadline
                    ) =>
                {
                    counts.shed += 1;
                }
                Ok(item)
                    if matches!(
                        item.head.status,
                        Status::GuardFailed | Status::NotFound | Status::Full
                    ) => {}
                Ok(item) => {
                    return wrong(format!(
                        "an item was answered {}: {}",
                        item.head.status.name(),
                        String::from_utf8_lossy(item.value)
                    ));
                }
                Err(refusal) => return wrong(refusal.to_string()),
            }
        }
        self.answered(shot, batch.len(), counts, done)
    }

    /// A whole frame was not executed: all its items, as one frame of each shot has.
    fn frame_shed(
        &mut self,
        request_id: u64,
        done: &mut impl FnMut(u64, usize),
    ) -> Result<(), BenchError> {
        let shed = self.items_per_shot / self.load.frames();
        let counts = ItemCounts {
            shed,
            ..ItemCounts::default()
        };
        self.answered(request_id / IDS_PER_SHOT, shed, counts, done)
    }

    fn answered(
        &mut self,
        shot: u64,
        items: usize,
        counts: ItemCounts,
        done: &mut impl FnMut(u64, usize),
    ) -> Result<(), BenchError> {
        let Some(due) = self
            .due
            .iter_mut()
            .find(|due| due.shot == shot)
            .filter(|due| due.items_left >= items)
        else {
            return Err(BenchError::WrongAnswer(format!(
                "{items} items of shot {shot} were answered that were not asked"
            )));
        };
        due.items_left -= items;
        due.served += items - counts.shed;
        let refused = items - counts.acked - counts.elsewhere - counts.unknown - counts.shed;
        self.account.refused += refused as u64;
        self.account.acked += counts.acked as u64;
        self.account.elsewhere += counts.elsewhere as u64;
        self.account.unknown += counts.unknown as u64;
        self.account.shed += counts.shed as u64;
        if due.items_left == 0 {
            let (since_ns, served) = (due.since_ns, due.served);
            self.due.retain(|due| due.shot != shot);
            done(since_ns, served);
        }
        Ok(())
    }

    fn settle(&mut self, shot: u64, items: usize, done: &mut impl FnMut(u64, usize)) {
        // Bytes came back: that is all that a bare echo can prove.
        let acked = items;
        let _ = self.answered(
            shot,
            items,
            ItemCounts {
                acked,
                ..ItemCounts::default()
            },
            done,
        );
    }
}

/// Whether the level of an answer with this status tells how durable what it shows is.
fn shows_level(status: Status) -> bool {
    matches!(status, Status::Ok | Status::GuardFailed | Status::NotFound)
}
