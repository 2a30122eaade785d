//! A connection with a thread of its own behind its handshake, as that of heartbeats: frames in and
//! out, with TLS around their bytes or without. It blocks, and each of its waits has a deadline.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use penstock_net::link::frame::{read_link_frame, write_link_frame};
use penstock_net::link::{LinkHeader, LinkMessage, LinkReceived, Marks, RefusalCode, Refused};
use penstock_shard::replication::receiver::LinkRefusal;

use crate::cluster::links::greeting::Greeted;
use crate::tls::TlsConnection;

/// A peer that takes nothing for so long has no connection.
const WRITE: Duration = Duration::from_secs(1);
/// Readings behind a refusal, each as long as the longest wait for a frame, until the other end has
/// closed, too.
const FAREWELL_READS_MAX: u32 = 10;

/// What a connection carries, and how it is read.
pub(crate) struct LineRules {
    /// What it carries, for people.
    pub(crate) of: &'static str,
    /// The longest wait for a frame: how soon a thread hears that it is over.
    pub(crate) read_wait: Duration,
    /// Bytes of one reading.
    pub(crate) piece_bytes: usize,
    /// Bytes of a frame that comes, at most.
    pub(crate) frame_bytes_max: u32,
}

/// Why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LineEnd {
    /// What the other end sent is refused, and it was told so.
    Refused(LinkRefusal),
    /// The other end refuses it.
    RefusedThere(LinkRefusal),
    /// The socket or TLS has failed, or the other end has closed it. For people.
    Failed(String),
}

/// For people.
impl fmt::Display for LineEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineEnd::Refused(refusal) => f.write_str(&refusal.text),
            LineEnd::RefusedThere(refusal) => write!(f, "it says: {}", refusal.text),
            LineEnd::Failed(cause) => f.write_str(cause),
        }
    }
}

/// A connection.
pub(crate) struct BlockingLine {
    stream: Arc<TcpStream>,
    tls: Option<TlsConnection>,
    rules: LineRules,
    received: Vec<u8>,
    piece: Box<[u8]>,
    /// The number of the next frame that comes.
    next: u64,
    outgoing: Outgoing,
    sealed: Vec<u8>,
}

/// Frames that are to be sent.
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    next: u64,
}

impl Outgoing {
    /// Appends a frame. Its marks and its time are 0.
    pub(crate) fn put(&mut self, message: &LinkMessage<'_>) {
        let header = LinkHeader {
            number: self.next,
            ..LinkHeader::default()
        };
        self.next += 1;
        write_link_frame(&mut self.bytes, header, message);
    }
}

impl BlockingLine {
    /// Of a socket that both sides have proven themselves on; the dialling side `is_source`.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn new(
        stream: Arc<TcpStream>,
        greeted: Greeted,
        is_source: bool,
        rules: LineRules,
    ) -> std::io::Result<BlockingLine> {
        stream.set_read_timeout(Some(rules.read_wait))?;
        stream.set_write_timeout(Some(WRITE))?;
        // HELLO and PROOF have gone one way, and WELCOME the other.
        let (next, next_out) = match is_source {
            true => (2, 3),
            false => (3, 2),
        };
        Ok(BlockingLine {
            stream,
            tls: greeted.tls,
            received: greeted.received,
            piece: vec![0; rules.piece_bytes].into(),
            rules,
            next,
            outgoing: Outgoing {
                bytes: Vec::new(),
                next: next_out,
            },
            sealed: Vec::new(),
        })
    }

    /// Waits for bytes, but not longer than the longest wait.
    ///
    /// # Errors
    /// [`LineEnd::Failed`].
    pub(crate) fn receive(&mut self) -> Result<(), LineEnd> {
        let bytes = match (&mut &*self.stream).read(&mut self.piece) {
            Ok(0) => return Err(closed()),
            Ok(bytes) => bytes,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
                    return Ok(());
                }
                _ => return Err(LineEnd::Failed(error.to_string())),
            },
        };
        let Some(tls) = &mut self.tls else {
            self.received.extend_from_slice(&self.piece[..bytes]);
            return Ok(());
        };
        let taken = tls.receive(&self.piece[..bytes], &mut self.received);
        let has_ended = tls.has_ended();
        // The alert that says why, or a new key.
        tls.take_output(&mut self.sealed);
        let written = self.write();
        taken.map_err(|fault| LineEnd::Failed(fault.to_string()))?;
        written?;
        match has_ended && self.received.is_empty() {
            true => Err(closed()),
            false => Ok(()),
        }
    }

    /// Takes the whole frames that have come, in their order. `take` may put answers.
    ///
    /// # Errors
    /// [`LineEnd`]: bytes that are no such frames, what `take` refuses, or a refusal that came.
    pub(crate) fn frames(
        &mut self,
        mut take: impl FnMut(&LinkMessage<'_>, &mut Outgoing) -> Result<(), LinkRefusal>,
    ) -> Result<u64, LineEnd> {
        let (mut taken, mut at) = (0, 0);
        let outcome = loop {
            let read = read_link_frame(&self.received[at..], self.next, self.rules.frame_bytes_max);
            let frame = match read {
                Ok(LinkReceived::Frame(frame)) => frame,
                Ok(LinkReceived::Incomplete { .. }) => break Ok(()),
                Err(fault) => break Err(refuse(RefusalCode::Fault, fault.to_string())),
            };
            if let LinkMessage::Refused(refused) = &frame.message {
                return Err(LineEnd::RefusedThere(LinkRefusal {
                    code: refused.code,
                    text: refused.text.into(),
                }));
            }
            if frame.header.marks != Marks::default() || frame.header.time != 0 {
                let text = format!("marks or a time stand in a frame of {}", self.rules.of);
                break Err(refuse(RefusalCode::Fault, text));
            }
            if let Err(refusal) = take(&frame.message, &mut self.outgoing) {
                break Err(refusal);
            }
            at += frame.bytes;
            self.next += 1;
            taken += 1;
        };
        self.received.drain(..at);
        outcome.map_err(|refusal| self.refuse(refusal))?;
        Ok(taken)
    }

    /// Frames that are to be sent with the next [`BlockingLine::flush`].
    pub(crate) fn outgoing(&mut self) -> &mut Outgoing {
        &mut self.outgoing
    }

    /// Sends what was put.
    ///
    /// # Errors
    /// [`LineEnd::Failed`].
    pub(crate) fn flush(&mut self) -> Result<(), LineEnd> {
        if self.outgoing.bytes.is_empty() {
            return Ok(());
        }
        match &mut self.tls {
            None => std::mem::swap(&mut self.outgoing.bytes, &mut self.sealed),
            Some(tls) => {
                let mut left = self.outgoing.bytes.as_slice();
                while !left.is_empty() {
                    let sealed = tls.seal(std::iter::once(left), &mut self.sealed);
                    if sealed == 0 {
                        return Err(closed());
                    }
                    left = &left[sealed..];
                }
            }
        }
        self.outgoing.bytes.clear();
        self.write()
    }

    /// Tells the other end why it is over.
    pub(crate) fn refuse(&mut self, refusal: LinkRefusal) -> LineEnd {
        self.outgoing.put(&LinkMessage::Refused(Refused {
            code: refusal.code,
            text: &refusal.text,
        }));
        // Whether it still listens or not. Bytes that nobody has read take back what was written
        // to a socket that is closed.
        if self.flush().is_ok() && self.stream.shutdown(Shutdown::Write).is_ok() {
            let mut left = FAREWELL_READS_MAX;
            while left > 0 && !matches!((&mut &*self.stream).read(&mut self.piece), Ok(0)) {
                left -= 1;
            }
        }
        LineEnd::Refused(refusal)
    }

    fn write(&mut self) -> Result<(), LineEnd> {
        let written = (&mut &*self.stream).write_all(&self.sealed);
        self.sealed.clear();
        written.map_err(|error| LineEnd::Failed(error.to_string()))
    }
}

fn closed() -> LineEnd {
    LineEnd::Failed("the other end has closed the connection".into())
}

fn refuse(code: RefusalCode, text: String) -> LinkRefusal {
    LinkRefusal { code, text }
}
