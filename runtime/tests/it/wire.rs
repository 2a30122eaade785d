//! A connection on which a test says whatever it likes, byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use penstock_net::batch::Batch;
use penstock_net::frame::{FLAG_FORWARDED, FLAG_MORE, Header, Opcode, write_frame};
use penstock_net::hello::{ClientHello, ServerHello};
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{ReplyItem, text_of};
use penstock_net::request::BatchRequest;
use penstock_net::status::Status;

use crate::server::PATIENCE;

pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    receiver: Receiver,
    bytes: Vec<u8>,
}

/// The answer to one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) value: Vec<u8>,
    /// The shard that answered, and whether the frame says that it was another than the one asked.
    pub(crate) shard: u16,
    pub(crate) is_forwarded: bool,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.value).into_owned()
    }
}

impl Wire {
    pub(crate) fn new(address: SocketAddr) -> Wire {
        Wire::over(TcpStream::connect(address).expect("connected"))
    }

    pub(crate) fn over(stream: TcpStream) -> Wire {
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a read timeout");
        stream.set_nodelay(true).expect("no delay");
        Wire {
            stream,
            receiver: Receiver::new(64 << 20),
            bytes: Vec::new(),
        }
    }

    /// Says HELLO, and from then on takes no frame that is longer than the server promised.
    pub(crate) fn greeted(address: SocketAddr) -> Wire {
        let mut wire = Wire::new(address);
        wire.greet();
        wire
    }

    pub(crate) fn greet(&mut self) -> ServerHello {
        self.say(&hello());
        let (header, body) = self.hear().expect("HELLO");
        assert_eq!(header.opcode, Opcode::Hello as u8);
        let hello = ServerHello::read(&body).expect("HELLO");
        self.receiver
            .set_frame_bytes_max(hello.limits.frame_bytes_max);
        hello
    }

    /// The server may have hung up already: then the next [`Wire::hear`] tells.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Says no more; listens on.
    pub(crate) fn say_no_more(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// The next frame, or `None` when the server has closed the connection.
    pub(crate) fn hear(&mut self) -> Option<(Header, Vec<u8>)> {
        loop {
            match self.receiver.next(&self.bytes) {
                Received::Frame {
                    header,
                    body,
                    consumed,
                } => {
                    let frame = (header, body.to_vec());
                    self.bytes.drain(..consumed);
                    return Some(frame);
                }
                Received::Incomplete { .. } => {}
                other => panic!("the server sent {other:?}"),
            }
            let mut chunk = [0; 64 << 10];
            match self.stream.read(&mut chunk) {
                Ok(read @ 1..) => self.bytes.extend_from_slice(&chunk[..read]),
                Ok(0) => return None,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("the server neither answered nor closed: {error}"),
            }
        }
    }

    /// The next frame must be an error with this status, whose text has these words.
    pub(crate) fn hears_refusal(&mut self, status: Status, words: &[&str]) {
        let (header, body) = self.hear().expect("an answer before the end");
        let text = text_of(&body).expect("a text");
        assert_eq!(
            Status::from_code(header.level_or_status),
            Some(status),
            "{text}"
        );
        for word in words {
            assert!(text.contains(word), "{text:?} has no {word:?}");
        }
    }

    pub(crate) fn still_works(&mut self) {
        self.say(&ping(b"stillok!"));
        assert_eq!(self.hear().expect("a reply").1, b"stillok!");
    }

    /// Sends a batch and hears its answers.
    pub(crate) fn ask(&mut self, items: usize, build: impl FnOnce(&mut Items<'_>)) -> Vec<Answer> {
        self.say(&batch(1, items, build));
        self.answers(1, items)
    }

    /// All answers to one request, by item, in whatever frames they come. The last of the frames
    /// alone says that no more follow.
    pub(crate) fn answers(&mut self, request_id: u64, items: usize) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = vec![None; items];
        let mut count = 0;
        while count < items {
            let (header, body) = self.hear().expect("an answer");
            assert_eq!(header.request_id, request_id);
            assert_eq!(
                header.opcode,
                Opcode::Batch as u8,
                "refused: {:?}",
                text_of(&body)
            );
            let reply = Batch::read(&body).expect("a batch");
            for number in 0..reply.len() {
                let item = ReplyItem::read(reply.item(number)).expect("an item");
                let answer = Answer {
                    status: item.head.status,
                    value: item.value.to_vec(),
                    shard: header.slot_or_shard,
                    is_forwarded: header.flags & FLAG_FORWARDED != 0,
                };
                let is_first = answers[usize::from(item.head.item)]
                    .replace(answer)
                    .is_none();
                assert!(is_first, "item {} was answered twice", item.head.item);
            }
            count += reply.len();
            assert_eq!(
                header.flags & FLAG_MORE != 0,
                count < items,
                "{count} of {items} answered"
            );
        }
        answers.into_iter().flatten().collect()
    }
}

/// Items of a batch under construction.
pub(crate) struct Items<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) batch: BatchRequest,
}

/// A BATCH frame at level disk.
pub(crate) fn batch(request_id: u64, items: usize, build: impl FnOnce(&mut Items<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    let batch = BatchRequest::begin(&mut out, request_id, AckLevel::Disk, 0, items);
    let mut items = Items {
        out: &mut out,
        batch,
    };
    build(&mut items);
    let Items { out: same, batch } = items;
    batch.finish(same);
    out
}

pub(crate) fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    ClientHello {
        protocol_min: 1,
        protocol_max: 1,
        features: 0,
        name: "test",
    }
    .write(&mut bytes, 1);
    bytes
}

pub(crate) fn ping(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header::request(Opcode::Ping, 7, AckLevel::None, 0);
    write_frame(&mut bytes, header, body);
    bytes
}

/// A frame whose header is changed and checksummed anew.
pub(crate) fn reheaded(mut bytes: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    change(&mut bytes[..28]);
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    bytes
}
