//! Two connections of RESP that are told the same: one is given all bytes at once, so commands that
//! repeat the one before them are taken together with it; the other is given one command at a time.
//! Nobody can tell them apart: not by a byte of an item, of a reply or of the moment at which it
//! may leave, and not by the commands that were slow.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_net::batch::Batch;
use penstock_net::frame::{HEADER_BYTES, Header, Medium};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::pieces::Pieces;
use penstock_net::program::ServedSchema;
use penstock_net::reply::{BatchReply, ITEM_FLAG_OVERFLOW, ITEM_FLAG_REPLAYED, ReplyHead};
use penstock_net::resp::{
    Client, ClusterNode, ClusterView, Conversation, Facts, Host, SlotRange, SlowCommand,
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

    fn facts(&self) -> Facts {
        Facts::default()
    }

    fn clients(&self) -> Vec<Client> {
        Vec::new()
    }

    fn client_changed(&self, _: &Client) {}

    fn was_slow(&self, command: SlowCommand) {
        self.slow.borrow_mut().push(command);
    }

    fn slow_commands(&self) -> Vec<SlowCommand> {
        Vec::new()
    }

    fn forget_slow_commands(&self) {}

    fn cluster(&self) -> Option<ClusterView> {
        let node = |number| ClusterNode {
            number,
            resp: Some(format!("10.0.0.{number}:7413")),
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

    fn schema(&self) -> Arc<ServedSchema> {
        Arc::default()
    }

    fn scan_order(&self) -> u64 {
        1
    }
}

/// One of the two connections.
struct Side {
    talk: Conversation,
    around: Around,
    /// What was given and not taken: the ends of its commands, and its bytes.
    input: Vec<u8>,
    /// Where commands end in all bytes, and how many bytes were taken. Nothing of the one that is
    /// given all at once.
    ends: Vec<usize>,
    taken: usize,
    /// The items that wait for their answers, by their number: the request.
    asked: BTreeMap<u64, u64>,
    /// The items that it asked for since they were last compared, and their levels.
    new: Vec<(u64, u8, Vec<u8>)>,
    frames: usize,
}

impl Side {
    fn new(input: Vec<u8>, ends: Vec<usize>, is_clustered: bool, limits: Limits) -> Side {
        Side {
            talk: Conversation::new(Client::default(), limits, is_clustered),
            around: Around::default(),
            input,
            ends,
            taken: 0,
            asked: BTreeMap::new(),
            new: Vec::new(),
            frames: 0,
        }
    }

    /// Takes what can be taken.
    fn go_on(&mut self) {
        loop {
            let end = self.ends.iter().find(|end| **end > self.taken);
            let end = end.map_or(self.input.len(), |end| *end - self.taken);
            let mut frame = Vec::new();
            let taken = self.talk.take(&self.input[..end], &mut frame, &self.around);
            self.input.drain(..taken);
            self.taken += taken;
            if let Some(head) = frame.first_chunk::<HEADER_BYTES>() {
                self.frames += 1;
                let header = Header::decode(head);
                let batch = Batch::read(&frame[HEADER_BYTES..]).expect("well formed");
                let [level, _] = header.level_or_status.to_le_bytes();
                for number in 0..batch.len() {
                    let place = header.request_id + number as u64;
                    self.asked.insert(place, header.request_id);
                    self.new.push((place, level, batch.item(number).to_vec()));
                }
            }
            if taken == 0 && frame.is_empty() {
                return;
            }
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
        _ => head.write(out, &number),
    }
}

/// Some commands, most of them several times.
fn commands(random: &mut Random) -> Vec<Vec<u8>> {
    let token = "token=0190b8a0-7c00-7000-8000-000000000001";
    let all: [&[&str]; 26] = [
        &["DECR", "k"],
        &["DECR", "k"],
        &["INCR", "another key that is long"],
        &["INCRBY", "k", "5"],
        &["INCRBY", "k", "6"],
        &["INCRBY", "k", "no number"],
        &["GET", "k"],
        &["GET", "l"],
        &["SET", "k", "v"],
        &["SET", "k", "v", "NX"],
        &["SETNX", "k", "v"],
        &["INCREX", "k", "UBOUND", "9"],
        &["TTL", "k"],
        &["EXPIRE", "k", "10"],
        &["DEL", "{k}1", "{k}2"],
        &["MGET", "{k}1", "{k}2"],
        &["APPEND", "k", "more"],
        &["PING"],
        &["MULTI"],
        &["EXEC"],
        &["NOPE"],
        &["HELLO", "3"],
        &["READONLY"],
        &["KV.OPTS", token],
        &["KV.OPTS", "level=none"],
        &["WAIT", "1", "0"],
    ];
    let mut commands = Vec::new();
    for _ in 0..12 {
        let words = all[random.below(all.len()).min(random.below(all.len()))];
        let bytes = match words {
            // An inline command.
            ["DECR", key] if random.below(4) == 0 => format!("decr {key}\r\n").into_bytes(),
            words => {
                let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
                for word in words {
                    bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
                }
                bytes
            }
        };
        let times = [1, 2, 9, 40, 1500][random.below(5).min(random.below(5))];
        commands.extend(std::iter::repeat_n(bytes, times));
    }
    commands
}

#[test]
fn commands_that_repeat_the_one_before_are_taken_and_answered_as_each_by_itself() {
    let mut fewer_frames = 0;
    for seed in 0..50 {
        let mut random = Random(seed);
        let commands = commands(&mut random);
        let mut ends = Vec::new();
        for command in &commands {
            ends.push(ends.last().unwrap_or(&0) + command.len());
        }
        let input = commands.concat();
        let is_clustered = random.below(2) == 0;
        let limits = Limits {
            frame_bytes_max: [24 << 10, 1 << 20][random.below(2)],
            ..Limits::default()
        };
        let together = Side::new(input.clone(), Vec::new(), is_clustered, limits);
        let mut sides = [together, Side::new(input, ends, is_clustered, limits)];
        for round in 0..10_000 {
            let context = format!("seed {seed}, round {round}");
            sides.iter_mut().for_each(Side::go_on);
            let [together, alone] = &mut sides;
            assert_eq!(together.taken, alone.taken, "{context}");
            assert_eq!(together.new, alone.new, "{context}");
            sides.iter_mut().for_each(|side| side.new.clear());
            let [together, alone] = &mut sides;
            assert_eq!(together.asked.len(), alone.asked.len(), "{context}");
            if alone.asked.is_empty() {
                if alone.input.is_empty() {
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
            let shown = |side: &mut Side| {
                let text = String::from_utf8_lossy(side.talk.out()).into_owned();
                let slow = format!("{:?}", side.around.slow.borrow());
                (
                    text,
                    slow,
                    side.talk.holds_replies(),
                    side.talk.is_blocked(),
                )
            };
            assert_eq!(shown(together), shown(alone), "{context}");
            if is_read {
                sides.iter_mut().for_each(|side| side.talk.out().clear());
            }
        }
        let [together, alone] = sides;
        assert!(
            together.input.is_empty() && alone.asked.is_empty(),
            "seed {seed}"
        );
        fewer_frames += usize::from(together.frames < alone.frames);
    }
    assert!(fewer_frames > 35, "{fewer_frames}");
}
