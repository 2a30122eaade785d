//! Two connections of RESP that are told the same: one is given many commands at once, the other
//! one at a time and each in two parts, so that each goes through the parser. Nobody can tell them
//! apart: not by a byte of an item, of a reply or of the moment at which it may leave, and not by
//! the commands that were slow.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use penstock_net::batch::Batch;
use penstock_net::frame::{HEADER_BYTES, Header, Medium};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::pieces::Pieces;
use penstock_net::reply::{
    BatchReply, ITEM_FLAG_OVERFLOW, ITEM_FLAG_REPLAYED, KeyExpiry, ReplyHead,
};
use penstock_net::resp::{
    Client, ClusterNode, ClusterView, Conversation, Host, Parsed, Parser, SlotRange, SlowCommand,
};
use penstock_net::status::Status;
use penstock_net::version::Version;

use crate::Random;

/// The server around one of the two.
#[derive(Default)]
struct Around {
    elapsed_us: Cell<u64>,
    slow: RefCell<Vec<SlowCommand>>,
}

impl Host for Around {
    fn unix_us(&self) -> u64 {
        1_700_000_000_000_000
    }

    fn elapsed_us(&self) -> u64 {
        self.elapsed_us.get()
    }

    fn was_slow(&self, command: SlowCommand) {
        self.slow.borrow_mut().push(command);
    }

    fn cluster(&self) -> Option<ClusterView> {
        let node = |number| ClusterNode {
            number,
            resp: Some(format!("10.0.0.{number}:7413")),
            cores: None,
        };
        Some(ClusterView {
            id: [7; 16],
            me: 1,
            nodes: vec![node(1), node(2)],
            ranges: vec![SlotRange {
                first: 0,
                last: 16_383,
                writer: 1,
                members: vec![1, 2],
                sync: vec![2],
            }],
        })
    }

    fn serves(&self, _: u16, _: bool) -> bool {
        true
    }
}

/// One of the two connections.
struct Side {
    talk: Conversation,
    around: Around,
    /// All bytes, and how many of them were taken.
    input: Vec<u8>,
    taken: usize,
    /// Where the bytes end that have come: one end after the other is reached.
    ends: Vec<usize>,
    reached: usize,
    /// The items that wait for their answers, by their number: the request.
    asked: BTreeMap<u64, u64>,
    /// The items that it asked for since they were last compared, and their levels.
    new: Vec<(u64, u8, Vec<u8>)>,
    frame_bytes_max: usize,
    frames: usize,
}

impl Side {
    fn new(input: Vec<u8>, ends: Vec<usize>, is_clustered: bool, limits: Limits) -> Side {
        Side {
            talk: Conversation::new(Client::default(), limits, is_clustered),
            around: Around::default(),
            input,
            taken: 0,
            ends,
            reached: 0,
            asked: BTreeMap::new(),
            new: Vec::new(),
            frame_bytes_max: limits.frame_bytes_max as usize,
            frames: 0,
        }
    }

    /// Whether nothing is left but a command that is not whole.
    fn is_done(&self) -> bool {
        !self.talk.is_blocked() && self.reached + 1 == self.ends.len()
    }

    /// Takes what can be taken.
    fn go_on(&mut self) {
        loop {
            let come = &self.input[self.taken..self.ends[self.reached]];
            let mut frame = Vec::new();
            let taken = self.talk.take(come, &mut frame, &self.around);
            self.taken += taken;
            if let Some(head) = frame.first_chunk::<HEADER_BYTES>() {
                self.frames += 1;
                let header = Header::decode(head);
                let batch = Batch::read(&frame[HEADER_BYTES..]).expect("well formed");
                assert!(frame.len() <= self.frame_bytes_max || batch.len() == 1);
                let [level, _] = header.level_or_status.to_le_bytes();
                for number in 0..batch.len() {
                    let place = header.request_id + number as u64;
                    self.asked.insert(place, header.request_id);
                    self.new.push((place, level, batch.item(number).to_vec()));
                }
            }
            if taken > 0 || !frame.is_empty() {
                continue;
            }
            if self.talk.is_blocked() || self.reached + 1 == self.ends.len() {
                return;
            }
            self.reached += 1;
        }
    }

    /// Answers these items together, in this order.
    fn answer(&mut self, numbers: &[u64], seed: u64) {
        let mut bytes = Vec::new();
        let mut rest = numbers;
        while let Some(first) = rest.first() {
            let id = self.asked[first];
            let same = |number: &&u64| self.asked[*number] == id;
            let (now, behind) = rest.split_at(rest.iter().take_while(same).count());
            let mut out = Pieces::default();
            let mut reply = BatchReply::begin(&mut out, id, now.len()).over(Medium::Memory);
            for number in now {
                let item = u16::try_from(number - id).expect("at most 1024");
                write_answer(*number, item, seed, out.written());
                reply.end_item(&mut out);
            }
            assert!(reply.finish(&mut out, 0, false, false));
            bytes.extend(out.into_bytes());
            rest = behind;
        }
        for number in numbers {
            self.asked.remove(number);
        }
        self.talk.answered(&bytes, &self.around);
    }
}

/// Some answer, which follows from the number of the item.
fn write_answer(number: u64, item: u16, seed: u64, out: &mut Vec<u8>) {
    let mut random = Random(number ^ seed);
    let version = Version {
        epoch: 2,
        sequence: random.next() % 9,
    };
    let mut head = ReplyHead::new(Status::Ok, item, AckLevel::Disk, version);
    let number = [7, 0, 10, 99, random.next()][random.below(5)].to_le_bytes();
    match random.below(40) {
        0 => {
            head.status = Status::Busy;
            head.write_message(out, &"no room");
        }
        1 => {
            (head.status, head.flags) = (Status::GuardFailed, ITEM_FLAG_OVERFLOW);
            head.write(out, &number);
        }
        2 => {
            head.status = Status::Moved;
            head.write_message(out, &"elsewhere");
        }
        3 => {
            head.status = Status::NotFound;
            head.write(out, &[]);
        }
        4 => {
            head.status = Status::BadField;
            head.write_message(out, &"no number");
        }
        5 => {
            head.flags = ITEM_FLAG_REPLAYED;
            head.write(out, &number);
        }
        6 => head.write(out, b"a value that is longer"),
        7 => {
            let expiry = KeyExpiry {
                expiry_ms: 9,
                time_ms: 3,
            };
            head.write_extended(out, Some(expiry), None, b"value");
        }
        8..12 => head.write(out, &vec![b'v'; random.below(120)]),
        12..16 => {
            head.status = Status::NotFound;
            head.write(out, &[]);
        }
        _ => head.write(out, &number),
    }
}

/// Where the bytes of one side end, one command after the other: behind the first line of each, and
/// behind all of it.
fn ends_of_commands(input: &[u8], limits: Limits) -> Vec<usize> {
    let bulk_bytes_max = limits.value_bytes_max as usize;
    let mut parser = Parser::new(bulk_bytes_max, bulk_bytes_max + 4096);
    let (mut ends, mut at) = (Vec::new(), 0);
    while at < input.len() {
        let rest = &input[at..];
        let len = match parser.next(rest) {
            Parsed::Command(len) | Parsed::Nothing(len) => len,
            // What is not whole, or broken: nothing is taken behind it.
            Parsed::Incomplete | Parsed::Broken(_) => rest.len(),
        };
        let line = rest.iter().position(|byte| *byte == b'\n');
        ends.push(at + line.map_or(1, |end| end + 1).min(len - 1));
        at += len;
        ends.push(at);
    }
    ends.push(input.len());
    ends
}

/// What can be seen of a side: its replies, the slow commands, whether it holds replies, whether it
/// is blocked.
fn shown(side: &mut Side) -> (String, String, bool, bool) {
    (
        String::from_utf8_lossy(side.talk.out()).into_owned(),
        format!("{:?}", side.around.slow.borrow()),
        side.talk.holds_replies(),
        side.talk.is_blocked(),
    )
}

/// Gives two connections the same bytes, one of them cut at `cuts`, and answers their items in some
/// order. Panics where they differ. Returns how many frames each of them made.
pub(crate) fn compare(
    random: &mut Random,
    seed: u64,
    input: &[u8],
    mut cuts: Vec<usize>,
    limits: Limits,
) -> [usize; 2] {
    let is_clustered = random.below(2) == 0;
    cuts.sort_unstable();
    cuts.push(input.len());
    let ends = ends_of_commands(input, limits);
    let mut sides = [cuts, ends].map(|ends| Side::new(input.to_vec(), ends, is_clustered, limits));
    for round in 0..10_000 {
        let context = format!("seed {seed}, round {round}");
        sides.iter_mut().for_each(Side::go_on);
        let [together, alone] = &mut sides;
        assert_eq!(together.taken, alone.taken, "{context}");
        assert_eq!(together.new, alone.new, "{context}");
        assert_eq!(shown(together), shown(alone), "{context}");
        sides.iter_mut().for_each(|side| side.new.clear());
        let [together, alone] = &mut sides;
        assert_eq!(together.asked.len(), alone.asked.len(), "{context}");
        if alone.asked.is_empty() {
            if alone.is_done() {
                break;
            }
            // Nothing is taken before replies are read.
            sides.iter_mut().for_each(|side| side.talk.out().clear());
            continue;
        }
        // Some of the first ones, most of them in their order.
        let most = [9, 90, 4_000][random.below(3)];
        let most = 1 + random.below(most);
        let mut numbers: Vec<u64> = alone.asked.keys().copied().take(most).collect();
        if random.below(3) == 0 {
            for _ in 0..1 + random.below(4) {
                let (one, other) = (random.below(numbers.len()), random.below(numbers.len()));
                numbers.swap(one, other);
            }
        }
        if random.below(4) == 0 {
            numbers.drain(..random.below(numbers.len()));
        }
        let waited_us = [0, 300, 20_000][random.below(3)];
        let is_read = random.below(4) > 0;
        for side in &mut sides {
            side.around
                .elapsed_us
                .set(side.around.elapsed_us.get() + waited_us);
            side.answer(&numbers, seed);
        }
        let [together, alone] = &mut sides;
        assert_eq!(shown(together), shown(alone), "{context}");
        if is_read {
            sides.iter_mut().for_each(|side| side.talk.out().clear());
        }
    }
    let [together, alone] = sides;
    assert!(together.is_done() && alone.asked.is_empty(), "seed {seed}");
    [together.frames, alone.frames]
}
