//! A blocking connection for what surrounds a run: filling keys, reading the counter, INFO.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use penstock_net::batch::Batch;
use penstock_net::frame::{FLAG_REPLY, Header, Opcode, write_frame};
use penstock_net::hello::ClientHello;
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{ReplyItem, text_of};
use penstock_net::request::{BatchRequest, Condition};
use penstock_net::status::Status;

use crate::BenchError;
use crate::args::{BenchArgs, Workload};
use crate::workload::{SALE_STOCK, STOCK, STOCK_INITIAL, key};

/// Items written in one frame while keys are filled.
const FILL_ITEMS: usize = 256;

pub(crate) struct Control {
    stream: TcpStream,
    receiver: Receiver,
    bytes: Vec<u8>,
}

/// The HELLO that every connection begins with.
pub(crate) fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    ClientHello {
        protocol_min: 1,
        protocol_max: 1,
        features: 0,
        name: "penstock bench",
    }
    .write(&mut bytes, 0);
    bytes
}

impl Control {
    pub(crate) fn connect(args: &BenchArgs) -> Result<Control, BenchError> {
        let failed = |error: std::io::Error| {
            BenchError::Connection(format!("no server at {}: {error}", args.addr[0]))
        };
        let stream = TcpStream::connect(args.addr[0]).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .map_err(failed)?;
        let mut control = Control {
            stream,
            receiver: Receiver::new(64 << 20),
            bytes: Vec::new(),
        };
        control.send(&hello())?;
        control.frame(|_, _| ())?;
        Ok(control)
    }

    /// Writes the keys that the workload reads, and the counter that `decr` sells from.
    pub(crate) fn prepare(&mut self, args: &BenchArgs) -> Result<(), BenchError> {
        let value = vec![b'v'; args.value_bytes as usize];
        match args.workload {
            Workload::Echo | Workload::EchoItems | Workload::Set => Ok(()),
            // A counter with a ledger is set where it is written.
            Workload::Decr if args.ledger => Ok(()),
            Workload::Decr => self.set_stock(STOCK, STOCK_INITIAL),
            Workload::Buy => self.set_stock(SALE_STOCK, STOCK_INITIAL),
            Workload::SoldOut => self.set_stock(SALE_STOCK, 0),
            Workload::Get | Workload::Mixed => {
                let per_frame = FILL_ITEMS.min((1 << 20) / (value.len() + 64)).max(1);
                for first in (0..args.keys as usize).step_by(per_frame) {
                    let numbers = first..(first + per_frame).min(args.keys as usize);
                    self.set(
                        &numbers
                            .map(|number| (key(number), value.clone()))
                            .collect::<Vec<_>>(),
                    )?;
                }
                Ok(())
            }
        }
    }

    fn set_stock(&mut self, key: &[u8], units: u64) -> Result<(), BenchError> {
        self.set(&[(key.to_vec(), units.to_le_bytes().to_vec())])
    }

    fn set(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), BenchError> {
        let mut frame = Vec::new();
        let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::Disk, 0, pairs.len());
        for (key, value) in pairs {
            batch.set(&mut frame, key, value, Condition::Always);
        }
        batch.finish(&mut frame);
        self.send(&frame)?;
        self.items(pairs.len())
    }

    /// The level that the server gives to what asks for this one, by its answer to a read of a key
    /// of the workload.
    pub(crate) fn level_of(&mut self, args: &BenchArgs) -> Result<AckLevel, BenchError> {
        let key = match args.workload {
            Workload::Decr => STOCK.to_vec(),
            Workload::Buy | Workload::SoldOut => SALE_STOCK.to_vec(),
            _ => key(0),
        };
        let mut frame = Vec::new();
        let mut batch = BatchRequest::begin(&mut frame, 3, args.level.wire(), 0, 1);
        batch.get(&mut frame, &key);
        batch.finish(&mut frame);
        self.send(&frame)?;
        let level = self.frame(|_, body| {
            let batch = Batch::read(body).ok()?;
            Some(ReplyItem::read(batch.item(0)).ok()?.head.level)
        })?;
        level.ok_or(BenchError::WrongAnswer("a read has no level".into()))
    }

    /// The server's counters, by name.
    pub(crate) fn counters(&mut self) -> Result<BTreeMap<String, u64>, BenchError> {
        let mut frame = Vec::new();
        write_frame(
            &mut frame,
            Header::request(Opcode::Info, 2, AckLevel::None, 0),
            &[],
        );
        self.send(&frame)?;
        let text = self.frame(|_, body| text_of(body).map(str::to_string))?;
        let text = text.ok_or(BenchError::WrongAnswer("INFO is not text".into()))?;
        let wrong = |error| BenchError::WrongAnswer(format!("INFO is not JSON: {error}"));
        let info: serde_json::Value = serde_json::from_str(&text).map_err(wrong)?;
        let counters = info.get("counters").and_then(serde_json::Value::as_object);
        let numbers = counters
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.clone(), value.as_u64()?)));
        Ok(numbers.collect())
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), BenchError> {
        self.stream
            .write_all(frame)
            .map_err(|error| BenchError::Connection(error.to_string()))
    }

    /// Waits until `count` items were answered with OK, in however many frames.
    fn items(&mut self, count: usize) -> Result<(), BenchError> {
        let mut seen = 0;
        while seen < count {
            seen += self.frame(|_, body| {
                let wrong = |text: String| BenchError::WrongAnswer(text);
                let batch = Batch::read(body).map_err(|refusal| wrong(refusal.to_string()))?;
                for number in 0..batch.len() {
                    let item = ReplyItem::read(batch.item(number))
                        .map_err(|refusal| wrong(refusal.to_string()))?;
                    if item.head.status != Status::Ok {
                        return Err(wrong(format!(
                            "the server answered {}: {}",
                            item.head.status.name(),
                            String::from_utf8_lossy(item.value)
                        )));
                    }
                }
                Ok(batch.len())
            })??;
        }
        Ok(())
    }

    fn frame<T>(&mut self, read: impl FnOnce(&Header, &[u8]) -> T) -> Result<T, BenchError> {
        loop {
            match self.receiver.next(&self.bytes) {
                Received::Frame {
                    header,
                    body,
                    consumed,
                } if header.flags & FLAG_REPLY != 0 => {
                    if header.level_or_status != Status::Ok.code() {
                        return Err(BenchError::WrongAnswer(
                            text_of(body)
                                .unwrap_or("an error without a text")
                                .to_string(),
                        ));
                    }
                    let read = read(&header, body);
                    self.bytes.drain(..consumed);
                    return Ok(read);
                }
                Received::Incomplete { .. } => {}
                other => {
                    return Err(BenchError::WrongAnswer(format!(
                        "the server sent {other:?}"
                    )));
                }
            }
            let mut chunk = [0; 64 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    return Err(BenchError::Connection(
                        "the server closed the connection".into(),
                    ));
                }
                Ok(read) => self.bytes.extend_from_slice(&chunk[..read]),
                Err(error) => return Err(BenchError::Connection(error.to_string())),
            }
        }
    }
}
