//! One connection of a sale: one request under way, as one frame or as two when it is sent twice.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;
use penstock_client::tls::TlsSession;
use penstock_net::batch::Batch;
use penstock_net::frame::FLAG_REPLY;
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{ITEM_FLAG_REPLAYED, ReplyItem, text_of};
use penstock_net::request::BatchRequest;
use penstock_net::status::{Executed, Status};

use crate::BenchError;
use crate::entry::{Access, Entry};
use crate::sale::book::{Ask, Book, Verdict};

/// Bytes of an answer, at most: it has one item without a value, or a text.
const ANSWER_BYTES_MAX: u32 = 1 << 16;

/// What a connection has come to.
#[derive(Debug)]
pub(crate) enum ChannelError {
    /// It broke: a new one is made.
    Broken(io::Error),
    /// The server answered something that no answer to the request may be, or lets nobody in.
    WrongAnswer(String),
}

struct UnderWay {
    ask: Ask,
    frames_left: u32,
    verdict: Verdict,
}

/// One connection.
pub(crate) struct Channel {
    stream: TcpStream,
    receiver: Receiver,
    received: Vec<u8>,
    session: Option<TlsSession>,
    /// Until the connection is open.
    entry: Option<Entry>,
    level: AckLevel,
    /// Requests; they wait until the connection is open.
    asked: Vec<u8>,
    out: Vec<u8>,
    sent: usize,
    under_way: Option<UnderWay>,
}

impl Channel {
    /// Begins to connect.
    pub(crate) fn connect(address: SocketAddr, access: &Access) -> Result<Channel, BenchError> {
        let (stream, mut session) = access.begin(address)?;
        let binding = session.as_ref().and_then(TlsSession::channel_binding);
        let (mut said, mut out) = (Vec::new(), Vec::new());
        let entry = Entry::begin(access, binding, &mut said)?;
        say(session.as_mut(), &mut said, &mut out);
        Ok(Channel {
            stream,
            receiver: Receiver::new(ANSWER_BYTES_MAX),
            received: Vec::new(),
            session,
            entry: Some(entry),
            level: access.level(),
            asked: Vec::new(),
            out,
            sent: 0,
            under_way: None,
        })
    }

    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends a request, twice if the buyer does.
    pub(crate) fn send(&mut self, ask: Ask, book: &mut Book) -> Result<(), ChannelError> {
        assert!(self.under_way.is_none(), "one request at a time");
        let frames = 1 + u32::from(book.is_doubled(&ask));
        let apply = book.apply(&ask);
        for id in 1..=frames {
            let mut batch = BatchRequest::begin(&mut self.asked, id.into(), self.level, 0, 1);
            batch.token(ask.token);
            batch.apply(&mut self.asked, &apply);
            batch.finish(&mut self.asked);
        }
        self.under_way = Some(UnderWay {
            ask,
            frames_left: frames,
            verdict: Verdict::Later,
        });
        self.flush()
    }

    /// Hands on what the socket takes now.
    pub(crate) fn flush(&mut self) -> Result<(), ChannelError> {
        if self.entry.is_none() {
            say(self.session.as_mut(), &mut self.asked, &mut self.out);
        }
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(broken("it takes nothing")),
                Ok(written) => self.sent += written,
                // Readiness comes when the connection is made, or when it takes more.
                Err(error) if is_not_yet(&error) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ChannelError::Broken(error)),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Whether all that was to be sent is with the kernel.
    pub(crate) fn is_flushed(&self) -> bool {
        self.asked.is_empty() && self.out.is_empty()
    }

    /// Gives up the connection: what was under way, if anything was.
    pub(crate) fn give_up(self) -> Option<Ask> {
        self.under_way.map(|it| it.ask)
    }

    /// Reads what has arrived. The request that is answered whole by it, and its outcome.
    pub(crate) fn receive(
        &mut self,
        chunk: &mut [u8],
        book: &mut Book,
    ) -> Result<Option<(Ask, Verdict)>, ChannelError> {
        loop {
            match self.stream.read(chunk) {
                Ok(0) => return Err(broken("the server closed it")),
                Ok(read) => {
                    match &mut self.session {
                        None => self.received.extend_from_slice(&chunk[..read]),
                        Some(session) => {
                            let opened = session.receive(&chunk[..read], &mut self.received);
                            opened.map_err(|error| ChannelError::Broken(error.into()))?;
                        }
                    }
                    // It took all there was; readiness comes again.
                    if read < chunk.len() {
                        break;
                    }
                }
                Err(error) if is_not_yet(&error) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ChannelError::Broken(error)),
            }
        }
        self.enter()?;
        let received = std::mem::take(&mut self.received);
        let (taken, outcome) = self.frames(&received, book);
        self.received = received;
        self.received.drain(..taken);
        outcome
    }

    /// Goes on with what comes before the first request.
    fn enter(&mut self) -> Result<(), ChannelError> {
        while let Some(entry) = &mut self.entry {
            let mut said = Vec::new();
            let taken = entry.take(&mut self.receiver, &self.received, &mut said);
            let taken = taken.map_err(|error| ChannelError::WrongAnswer(error.to_string()))?;
            let Some(consumed) = taken else { break };
            self.received.drain(..consumed);
            say(self.session.as_mut(), &mut said, &mut self.out);
            if entry.is_open() {
                self.entry = None;
            }
            self.flush()?;
        }
        Ok(())
    }

    fn frames(
        &mut self,
        received: &[u8],
        book: &mut Book,
    ) -> (usize, Result<Option<(Ask, Verdict)>, ChannelError>) {
        let mut at = 0;
        let mut done = None;
        loop {
            match self.receiver.next(&received[at..]) {
                Received::Frame {
                    header,
                    body,
                    consumed,
                } => {
                    at += consumed;
                    if header.flags & FLAG_REPLY == 0 {
                        return (at, wrong("no reply".into()));
                    }
                    match verdict(header.level_or_status, body) {
                        Ok(verdict) => done = done.or(self.answered(verdict, book)),
                        Err(text) => return (at, wrong(text)),
                    }
                }
                Received::Incomplete { .. } => return (at, Ok(done)),
                other => return (at, wrong(format!("{other:?}"))),
            }
        }
    }

    fn answered(&mut self, verdict: Verdict, book: &mut Book) -> Option<(Ask, Verdict)> {
        let mut it = self.under_way.take()?;
        book.take_answer(&mut it.ask, verdict);
        it.frames_left -= 1;
        // One answer that did it is the outcome, whatever the other one says.
        if !matches!(it.verdict, Verdict::Done { .. }) {
            it.verdict = verdict;
        }
        if it.frames_left == 0 {
            return Some((it.ask, it.verdict));
        }
        self.under_way = Some(it);
        None
    }
}

/// Moves bytes for the server behind `out`, as they go over the socket.
fn say(session: Option<&mut TlsSession>, bytes: &mut Vec<u8>, out: &mut Vec<u8>) {
    match session {
        None => out.append(bytes),
        Some(session) => {
            session.seal(bytes, out);
            bytes.clear();
        }
    }
}

/// What the reply to a frame of one item says.
fn verdict(status: u16, body: &[u8]) -> Result<Verdict, String> {
    let status = Status::from_code(status);
    if status != Some(Status::Ok) {
        return match status {
            Some(Status::Busy | Status::Draining | Status::Deadline) => Ok(Verdict::Later),
            _ => Err(format!("{status:?}: {}", text_of(body).unwrap_or(""))),
        };
    }
    let batch = Batch::read(body).map_err(|refusal| refusal.to_string())?;
    if batch.len() != 1 {
        return Err(format!("{} items for one", batch.len()));
    }
    let item = ReplyItem::read(batch.item(0)).map_err(|refusal| refusal.to_string())?;
    match item.head.status {
        Status::Ok => Ok(Verdict::Done {
            version: item.head.version,
            is_replayed: item.head.flags & ITEM_FLAG_REPLAYED != 0,
        }),
        Status::GuardFailed | Status::NotFound if item.head.reason != 0 => Ok(Verdict::No {
            reason: item.head.reason,
        }),
        Status::Busy | Status::Deadline | Status::Draining | Status::Full => Ok(Verdict::Later),
        // The node does not write now: it begins to, or its lease is over.
        Status::NotPrimary | Status::Moved => Ok(Verdict::Later),
        status if status.executed() == Executed::Unknown && status != Status::TokenTooOld => {
            Ok(Verdict::Later)
        }
        status => Err(format!(
            "{}: {}",
            status.name(),
            String::from_utf8_lossy(item.value)
        )),
    }
}

fn wrong<T>(text: String) -> Result<T, ChannelError> {
    Err(ChannelError::WrongAnswer(format!("the server sent {text}")))
}

fn broken(text: &str) -> ChannelError {
    ChannelError::Broken(io::Error::other(text.to_string()))
}

fn is_not_yet(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::NotConnected
    )
}

/// How long a connection that broke waits before the next is made.
pub(crate) const RECONNECT_PAUSE: Duration = Duration::from_millis(50);
