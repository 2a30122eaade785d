//! A blocking connection for what surrounds a run: filling keys, reading the counter, INFO.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::time::Duration;

use penstock_net::batch::Batch;
use penstock_net::frame::{FLAG_REPLY, Header, Opcode, write_frame};
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{ReplyItem, text_of};
use penstock_net::request::{BatchRequest, Condition};
use penstock_net::status::Status;

use crate::args::{BenchArgs, Workload};
use crate::workload::{SALE_STOCK, STOCK, STOCK_INITIAL, hold, key};
use crate::{BenchError, Stream};

/// The longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(30);
/// A server publishes its counters more often than this.
const COUNTERS_AGE_MAX: Duration = Duration::from_millis(250);
/// Items in one frame while keys are filled, at most.
const FILL_ITEMS: usize = 256;
/// Bytes in one frame, if more than one item is in it.
const FILL_FRAME_BYTES: usize = 256 << 10;
/// Bytes of frames that are under way at once, if more than one is.
const FILL_BYTES: usize = 4 << 20;
/// Frames that are under way at once, at most.
const FILL_FRAMES: usize = 16;
/// An item without its value, with room to spare.
const ITEM_BYTES: usize = 64;
/// The id of the first frame of a filling. Those before are of single requests.
const FILL_ID: u64 = 16;

pub(crate) struct Control {
    stream: Stream,
    receiver: Receiver,
    bytes: Vec<u8>,
}

impl Control {
    pub(crate) fn connect(args: &BenchArgs) -> Result<Control, BenchError> {
        let stream = args.access()?.enter(args.addr[0], ANSWER)?;
        let timed = stream.socket().set_read_timeout(Some(ANSWER));
        timed.map_err(|error| BenchError::Connection(error.to_string()))?;
        Ok(Control {
            stream,
            receiver: Receiver::new(64 << 20),
            bytes: Vec::new(),
        })
    }

    /// Writes the keys that the workload reads, and the counter that `decr` sells from. Keys that
    /// are filled already it only looks for.
    pub(crate) fn prepare(&mut self, args: &BenchArgs) -> Result<(), BenchError> {
        match args.workload() {
            _ if args.filled => self.expect_filled(args),
            Workload::Echo | Workload::EchoItems | Workload::Set => Ok(()),
            // A counter with a ledger is set where it is written.
            Workload::Decr if args.ledger => Ok(()),
            Workload::Decr => self.set_stock(STOCK, STOCK_INITIAL),
            Workload::Buy => self.set_stock(SALE_STOCK, STOCK_INITIAL),
            Workload::SoldOut => self.set_stock(SALE_STOCK, 0),
            Workload::Get | Workload::Mixed => {
                let value = vec![b'v'; args.value_bytes as usize];
                let (items, frames) = filling(value.len());
                let keys = args.keys as usize;
                let batch = |first: usize| {
                    let numbers = first..(first + items).min(keys);
                    numbers
                        .map(|number| (key(number), Some(&value[..])))
                        .collect()
                };
                self.write((0..keys).step_by(items).map(batch), frames)
            }
        }
    }

    /// Deletes all keys that the workload may have written.
    pub(crate) fn clean(&mut self, args: &BenchArgs) -> Result<(), BenchError> {
        type Name = fn(usize) -> Vec<u8>;
        let (stock, name): (Option<&[u8]>, Option<Name>) = match args.workload() {
            Workload::Echo | Workload::EchoItems => (None, None),
            Workload::Decr => (Some(STOCK), None),
            Workload::Buy => (Some(SALE_STOCK), Some(hold)),
            Workload::SoldOut => (Some(SALE_STOCK), None),
            Workload::Get | Workload::Set | Workload::Mixed => (None, Some(key)),
        };
        let stock = stock.map(|stock| vec![(stock.to_vec(), None)]);
        self.write(stock.into_iter(), 1)?;
        let Some(name) = name else {
            return Ok(());
        };
        let ((items, frames), keys) = (filling(0), args.keys as usize);
        let batch = |first: usize| {
            let numbers = first..(first + items).min(keys);
            numbers.map(|number| (name(number), None)).collect()
        };
        self.write((0..keys).step_by(items).map(batch), frames)
    }

    fn set_stock(&mut self, key: &[u8], units: u64) -> Result<(), BenchError> {
        let units = units.to_le_bytes();
        self.write([vec![(key.to_vec(), Some(&units[..]))]].into_iter(), 1)
    }

    /// Looks for the last key: the one that a filling writes last.
    fn expect_filled(&mut self, args: &BenchArgs) -> Result<(), BenchError> {
        let last = key(args.keys as usize - 1);
        match self.read(&last, args.level.wire())?.0 {
            Status::Ok => Ok(()),
            status => Err(BenchError::Arguments(format!(
                "--filled with --keys {}: a read of {}, the last of them, is answered {}; run get \
                 once without --filled",
                args.keys,
                String::from_utf8_lossy(&last),
                status.name()
            ))),
        }
    }

    /// Writes batches of keys and values; without a value a key is deleted. At most `frames`
    /// batches are under way.
    fn write<'a>(
        &mut self,
        batches: impl Iterator<Item = Vec<(Vec<u8>, Option<&'a [u8]>)>>,
        frames: usize,
    ) -> Result<(), BenchError> {
        let mut under_way = UnderWay::default();
        let mut frame = Vec::new();
        for (id, pairs) in (FILL_ID..).zip(batches) {
            while under_way.0.len() >= frames {
                self.items(&mut under_way)?;
            }
            frame.clear();
            let mut batch = BatchRequest::begin(&mut frame, id, AckLevel::Disk, 0, pairs.len());
            for (key, value) in &pairs {
                match value {
                    Some(value) => batch.set(&mut frame, key, value, Condition::Always),
                    None => batch.del(&mut frame, key, Condition::Always),
                }
            }
            batch.finish(&mut frame);
            self.send(&frame)?;
            under_way.0.push_back((id, pairs.len()));
        }
        while !under_way.0.is_empty() {
            self.items(&mut under_way)?;
        }
        Ok(())
    }

    /// The level that the server gives to what asks for this one, by its answer to a read of a key
    /// of the workload.
    pub(crate) fn level_of(&mut self, args: &BenchArgs) -> Result<AckLevel, BenchError> {
        let key = match args.workload() {
            Workload::Decr => STOCK.to_vec(),
            Workload::Buy | Workload::SoldOut => SALE_STOCK.to_vec(),
            _ => key(0),
        };
        Ok(self.read(&key, args.level.wire())?.1)
    }

    /// The status of a read of a key, and the level that it reached.
    fn read(&mut self, key: &[u8], level: AckLevel) -> Result<(Status, AckLevel), BenchError> {
        let mut frame = Vec::new();
        let mut batch = BatchRequest::begin(&mut frame, 3, level, 0, 1);
        batch.get(&mut frame, key);
        batch.finish(&mut frame);
        self.send(&frame)?;
        let read = self.frame(|_, body| {
            let batch = Batch::read(body).ok()?;
            let head = ReplyItem::read(batch.item(0)).ok()?.head;
            Some((head.status, head.level))
        })?;
        read.ok_or(BenchError::WrongAnswer("a read has no level".into()))
    }

    /// The server's counters, by name, with all that was answered before the call.
    pub(crate) fn counters(&mut self) -> Result<BTreeMap<String, u64>, BenchError> {
        std::thread::sleep(COUNTERS_AGE_MAX);
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

    /// Takes in the next frame, which answers items of one that is under way: each was written, or
    /// there was nothing to delete.
    fn items(&mut self, under_way: &mut UnderWay) -> Result<(), BenchError> {
        self.frame(|header, body| {
            let wrong = |text: String| BenchError::WrongAnswer(text);
            let batch = Batch::read(body).map_err(|refusal| wrong(refusal.to_string()))?;
            for number in 0..batch.len() {
                let item = ReplyItem::read(batch.item(number))
                    .map_err(|refusal| wrong(refusal.to_string()))?;
                // Of a key that was never drawn.
                let is_absent = item.head.status == Status::NotFound;
                if item.head.status != Status::Ok && !is_absent {
                    return Err(wrong(format!(
                        "the server answered {}: {}",
                        item.head.status.name(),
                        String::from_utf8_lossy(item.value)
                    )));
                }
            }
            under_way.answered(header.request_id, batch.len())
        })?
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

/// Frames of a filling that are not answered whole, by their ids, and how many items each waits
/// for. Several shards answer one frame in several, and frames in any order, so an id is of one
/// frame alone.
#[derive(Default)]
struct UnderWay(VecDeque<(u64, usize)>);

impl UnderWay {
    /// So many items of a frame were answered.
    fn answered(&mut self, id: u64, items: usize) -> Result<(), BenchError> {
        let wrong =
            || BenchError::WrongAnswer(format!("{items} items of frame {id} were not asked"));
        let mut frames = self.0.iter_mut();
        let (_, left) = frames.find(|frame| frame.0 == id).ok_or_else(wrong)?;
        *left = left.checked_sub(items).ok_or_else(wrong)?;
        self.0.retain(|frame| frame.1 > 0);
        Ok(())
    }
}

/// Items in a frame of a filling, and frames under way, for values of so many bytes.
fn filling(value_bytes: usize) -> (usize, usize) {
    let item_bytes = value_bytes + ITEM_BYTES;
    let items = (FILL_FRAME_BYTES / item_bytes).clamp(1, FILL_ITEMS);
    (
        items,
        (FILL_BYTES / (items * item_bytes)).clamp(1, FILL_FRAMES),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filling_stays_within_its_bytes_or_goes_frame_by_frame() {
        assert_eq!(filling(0), (FILL_ITEMS, FILL_FRAMES));
        for value_bytes in [0, 64, 4096, 1 << 18, 1 << 20, 8 << 20] {
            let (items, frames) = filling(value_bytes);
            let bytes = items * frames * (value_bytes + ITEM_BYTES);
            assert!(bytes <= FILL_BYTES || (items, frames) == (1, 1));
        }
    }

    #[test]
    fn a_frame_is_answered_in_parts_and_in_any_order_but_never_beyond_its_items() {
        let mut under_way = UnderWay([(7, 3), (8, 2)].into());
        under_way.answered(8, 2).expect("asked");
        under_way.answered(7, 1).expect("asked");
        assert!(under_way.answered(8, 1).is_err() && under_way.answered(7, 3).is_err());
        under_way.answered(7, 2).expect("asked");
        assert!(under_way.0.is_empty());
    }
}
