//! A blocking connection that shows each answer, whatever its status.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use penstock_net::batch::Batch;
use penstock_net::frame::{Header, Opcode};
use penstock_net::hello::ClientHello;
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{ITEM_FLAG_REPLAYED, ReplyItem};
use penstock_net::request::{BatchRequest, Version};
use penstock_net::status::Status;

/// The longest that the server may take for an answer while nobody holds it up.
pub const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Why a connection is of no use any more.
#[derive(Debug)]
pub enum WireError {
    /// It was refused, closed or reset.
    Closed(String),
    /// No answer came in time.
    TimedOut,
    /// The server sent what it must never send.
    Wrong(String),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Closed(text) => write!(f, "the connection is gone: {text}"),
            WireError::TimedOut => write!(f, "no answer came in time"),
            WireError::Wrong(text) => write!(f, "the server sent {text}"),
        }
    }
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => WireError::TimedOut,
            _ => WireError::Closed(error.to_string()),
        }
    }
}

impl From<WireError> for String {
    fn from(error: WireError) -> Self {
        error.to_string()
    }
}

/// One item's answer.
pub struct Reply {
    pub status: Status,
    pub version: Version,
    /// It repeats the answer to an earlier request with the same token.
    pub is_replayed: bool,
    pub value: Vec<u8>,
}

impl Reply {
    /// The answer to an item of a request that was refused whole.
    fn refused(status: Status) -> Reply {
        Reply {
            status,
            version: Version::default(),
            is_replayed: false,
            value: Vec::new(),
        }
    }
}

/// The connection.
pub struct Wire {
    stream: TcpStream,
    receiver: Receiver,
    bytes: Vec<u8>,
    /// Answers by request, of requests that are not answered whole.
    early: HashMap<u64, Vec<(u16, Reply)>>,
    /// Requests that were refused whole: none of their items was executed.
    refused: HashMap<u64, Status>,
}

impl Wire {
    /// Connects and says HELLO; an answer may take so long, now and later.
    pub fn connect(address: SocketAddr, answer_max: Duration) -> Result<Wire, WireError> {
        let stream = TcpStream::connect_timeout(&address, answer_max)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(answer_max))?;
        stream.set_write_timeout(Some(answer_max))?;
        let mut wire = Wire {
            stream,
            receiver: Receiver::new(64 << 20),
            bytes: Vec::new(),
            early: HashMap::new(),
            refused: HashMap::new(),
        };
        let mut hello = Vec::new();
        ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: 0,
            name: "torture",
        }
        .write(&mut hello, 1);
        wire.send(&hello)?;
        wire.frame(|header, _| match header.opcode == Opcode::Hello as u8 {
            true => Ok(()),
            false => Err(WireError::Wrong(format!(
                "opcode {} to a HELLO",
                header.opcode
            ))),
        })??;
        Ok(wire)
    }

    /// Hands a frame to the socket.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), WireError> {
        Ok(self.stream.write_all(frame)?)
    }

    /// Waits for one frame and hands out its header and its body.
    fn frame<T>(&mut self, read: impl FnOnce(&Header, &[u8]) -> T) -> Result<T, WireError> {
        loop {
            match self.receiver.next(&self.bytes) {
                Received::Frame {
                    header,
                    body,
                    consumed,
                } => {
                    let read = read(&header, body);
                    self.bytes.drain(..consumed);
                    return Ok(read);
                }
                Received::Incomplete { .. } => {}
                other => return Err(WireError::Wrong(format!("{other:?}"))),
            }
            let mut chunk = [0; 64 << 10];
            match self.stream.read(&mut chunk)? {
                0 => return Err(WireError::Closed("closed".into())),
                read => self.bytes.extend_from_slice(&chunk[..read]),
            }
        }
    }

    /// All answers to one request, by item. They may come in several frames, and those of later
    /// requests before them: these are kept until they are asked for.
    pub fn replies(&mut self, request_id: u64, items: usize) -> Result<Vec<Reply>, WireError> {
        loop {
            let early = self.early.entry(request_id).or_default();
            if early.len() == items {
                let mut replies = self.early.remove(&request_id).unwrap_or_default();
                replies.sort_unstable_by_key(|(item, _)| *item);
                let is_each_once = replies
                    .iter()
                    .enumerate()
                    .all(|(at, (item, _))| at == usize::from(*item));
                return is_each_once
                    .then(|| replies.into_iter().map(|(_, reply)| reply).collect())
                    .ok_or(WireError::Wrong("two answers to one item".into()));
            }
            if let Some(status) = self.refused.remove(&request_id) {
                self.early.remove(&request_id);
                return Ok((0..items).map(|_| Reply::refused(status)).collect());
            }
            let (id, answers) = self.frame(read_batch)??;
            match answers {
                Answers::Items(replies) => self.early.entry(id).or_default().extend(replies),
                Answers::Refused(status)
                    if self.early.get(&id).is_some_and(|of| !of.is_empty()) =>
                {
                    return Err(WireError::Wrong(format!(
                        "{status:?} to the whole of request {id} behind answers to its items"
                    )));
                }
                Answers::Refused(status) => {
                    self.refused.insert(id, status);
                }
            }
        }
    }

    /// Sends a frame with request id 1 and waits for its answers.
    pub fn ask(&mut self, frame: &[u8], items: usize) -> Result<Vec<Reply>, WireError> {
        self.send(frame)?;
        self.replies(1, items)
    }

    /// The values of keys, none for those that are absent.
    pub fn get(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, String> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut frame = Vec::new();
        let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::Disk, 0, keys.len());
        for key in keys {
            batch.get(&mut frame, key);
        }
        batch.finish(&mut frame);
        let replies = self.ask(&frame, keys.len())?;
        replies
            .into_iter()
            .map(|reply| match reply.status {
                Status::Ok => Ok(Some(reply.value)),
                Status::NotFound => Ok(None),
                other => Err(format!(
                    "GET answered {other:?}: {}",
                    String::from_utf8_lossy(&reply.value)
                )),
            })
            .collect()
    }
}

/// What one frame answers.
enum Answers {
    /// Items, each with its number.
    Items(Vec<(u16, Reply)>),
    /// The whole request. Nothing of it was executed.
    Refused(Status),
}

fn read_batch(header: &Header, body: &[u8]) -> Result<(u64, Answers), WireError> {
    let (opcode, id) = (header.opcode, header.request_id);
    if opcode != Opcode::Batch as u8 {
        return Err(WireError::Wrong(format!("opcode {opcode} to request {id}")));
    }
    match Status::from_code(header.level_or_status) {
        Some(Status::Ok) => {}
        Some(status) => return Ok((id, Answers::Refused(status))),
        None => {
            let code = header.level_or_status;
            return Err(WireError::Wrong(format!(
                "status {code:#06x} to request {id}"
            )));
        }
    }
    let batch = Batch::read(body).map_err(|refusal| WireError::Wrong(refusal.to_string()))?;
    let replies = (0..batch.len()).map(|number| {
        let item = ReplyItem::read(batch.item(number))
            .map_err(|refusal| WireError::Wrong(refusal.to_string()))?;
        let reply = Reply {
            status: item.head.status,
            version: item.head.version,
            is_replayed: item.head.flags & ITEM_FLAG_REPLAYED != 0,
            value: item.value.to_vec(),
        };
        Ok((item.head.item, reply))
    });
    let replies = replies.collect::<Result<_, WireError>>()?;
    Ok((id, Answers::Items(replies)))
}
