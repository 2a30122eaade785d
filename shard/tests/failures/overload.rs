//! A connection that sends more than its shard runs in short turns.

use std::collections::BTreeMap;

use penstock_net::frame::Medium;
use penstock_net::hello::ClientHello;
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{ReplyItem, read_batch_reply};
use penstock_net::request::{BatchRequest, Condition};
use penstock_net::status::Status;
use penstock_shard::{Event, Now, Outbox, SessionId, Shard, ShardConfig};
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::{Log, LogConfig, SyncMethod};
use penstock_storage::place::LogStart;
use penstock_storage::recovery::Replayed;
use penstock_storage::store::Store;
use penstock_storage::version::PARTITIONS;

use crate::device::Device;
use crate::heap::{Heap, HeapBlock};
use crate::image::Image;
use crate::server::{log_config, shard_config};

const HELLO_ID: u64 = u64::MAX;
const SEGMENT_BYTES: usize = 4 << 20;
/// More than anybody may have under way.
const UNREAD_BYTES: u64 = 1 << 30;

/// What a frame was answered: its items one by one, or BUSY as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Items(Vec<Status>),
    Busy { retry_after_ms: u16 },
}

/// A shard with one connection.
struct Node {
    shard: Shard<Heap>,
    outbox: Outbox<HeapBlock>,
    device: Device,
    now: Now,
    session: SessionId,
    medium: Medium,
    inbox: Vec<u8>,
    answers: BTreeMap<u64, Answer>,
    asked: u64,
    salt: u64,
}

impl Node {
    fn new(medium: Medium) -> Node {
        let config = LogConfig {
            frame_bytes: 8 * BLOCK_BYTES,
            record_bytes_max: 8 * BLOCK_BYTES - 64,
            ..log_config(SyncMethod::DurableWrite, 1)
        };
        let log = Log::new(config, LogStart::default(), Heap);
        let store = Store::new(log, Heap, 1 << 8, [0; PARTITIONS], Replayed::new(4 << 20));
        let mut config = ShardConfig {
            replies_bytes_max: 16 << 20,
            output_bytes_max: 4 << 20,
            input_bytes_max: 16 << 20,
            ..shard_config(0, 1, 1)
        };
        config.hello.limits = Limits {
            frame_bytes_max: 1 << 20,
            value_bytes_max: 12 << 10,
        };
        let now = Now { us: 1, unix_ms: 1 };
        let mut shard = Shard::new(config, store);
        let session = match medium {
            Medium::Memory => shard.front_mut().open_session_in_memory(now),
            Medium::Wire => shard.front_mut().open_session(now),
        };
        let mut node = Node {
            shard,
            outbox: Outbox::default(),
            device: Device::holding(Image::default()),
            now,
            session,
            medium,
            inbox: Vec::new(),
            answers: BTreeMap::new(),
            asked: 0,
            salt: 0,
        };
        let hello = ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: 0,
            name: "overload",
        };
        hello.write(&mut node.inbox, HELLO_ID);
        node.hand_over();
        node.settle();
        node
    }

    /// Sends a frame that sets so many keys of its own.
    fn sets(&mut self, keys: usize, value: &[u8]) -> u64 {
        self.asked += 1;
        let (id, out) = (self.asked, &mut self.inbox);
        let mut batch = BatchRequest::begin(out, id, AckLevel::Disk, 0, keys);
        for number in 0..keys {
            batch.set(out, &key(id, number), value, Condition::Always);
        }
        batch.finish(out);
        id
    }

    /// Reads the keys of a frame.
    fn gets(&mut self, of: u64, keys: usize) -> Vec<Status> {
        self.asked += 1;
        let (id, out) = (self.asked, &mut self.inbox);
        let mut batch = BatchRequest::begin(out, id, AckLevel::Disk, 0, keys);
        for number in 0..keys {
            batch.get(out, &key(of, number));
        }
        batch.finish(out);
        self.hand_over();
        self.settle();
        match &self.answers[&id] {
            Answer::Items(items) => items.clone(),
            busy => panic!("{busy:?}"),
        }
    }

    /// Hands over what was sent, with much more behind it.
    fn flood(&mut self) {
        let unread = Event::Unread {
            session: self.session,
            bytes: UNREAD_BYTES,
        };
        self.shard.step(self.now, unread, &mut self.outbox);
        self.hand_over();
    }

    fn hand_over(&mut self) {
        let received = Event::Received {
            session: self.session,
            bytes: &self.inbox,
        };
        let consumed = self.shard.step(self.now, received, &mut self.outbox);
        self.inbox.drain(..consumed);
    }

    fn turn(&mut self) {
        self.now.us += 100;
        self.shard.step(self.now, Event::TurnEnds, &mut self.outbox);
        let mut outbox = std::mem::take(&mut self.outbox);
        assert!(outbox.fatal.is_none());
        self.device.submit(&mut outbox.io);
        for _ in 0..outbox.spares {
            self.salt += 1;
            let spare = Event::Spare {
                file: self.device.image.create(SEGMENT_BYTES),
                salt: self.salt,
                bytes: SEGMENT_BYTES as u64,
                is_reused: false,
            };
            self.shard.step(self.now, spare, &mut self.outbox);
        }
        for session in outbox.sendable {
            let mut bytes = Vec::new();
            self.shard.take_output(self.now, session, &mut bytes);
            let sent = Event::Sent { session };
            self.shard.step(self.now, sent, &mut self.outbox);
            self.read(&bytes);
        }
        if !outbox.resume.is_empty() {
            self.hand_over();
        }
    }

    fn end_writes(&mut self) {
        while !self.device.under_way().is_empty() {
            let ended = Event::Completed(self.device.complete(0));
            self.shard.step(self.now, ended, &mut self.outbox);
        }
    }

    fn settle(&mut self) {
        for _ in 0..200 {
            self.turn();
            self.end_writes();
        }
    }

    fn read(&mut self, bytes: &[u8]) {
        let mut receiver = Receiver::new(u32::MAX);
        receiver.set_medium(self.medium);
        let mut at = 0;
        while at < bytes.len() {
            let Received::Frame {
                header,
                body,
                consumed,
            } = receiver.next(&bytes[at..])
            else {
                panic!("the shard sends whole frames");
            };
            at += consumed;
            if header.request_id == HELLO_ID {
                continue;
            }
            if header.level_or_status == Status::Busy.code() {
                let retry_after_ms = header.deadline_or_retry_ms;
                let busy = Answer::Busy { retry_after_ms };
                let before = self.answers.insert(header.request_id, busy);
                assert!(before.is_none(), "{} is answered twice", header.request_id);
                continue;
            }
            let batch = read_batch_reply(body).expect("a batch");
            let empty = || Answer::Items(Vec::new());
            let answer = self.answers.entry(header.request_id).or_insert_with(empty);
            let Answer::Items(items) = answer else {
                panic!("{} was refused", header.request_id)
            };
            for number in 0..batch.len() {
                let item = ReplyItem::read(batch.item(number)).expect("an item");
                items.push(item.head.status);
            }
        }
    }
}

fn key(frame: u64, number: usize) -> Vec<u8> {
    format!("key {number} of {frame}").into_bytes()
}

#[test]
fn a_frame_that_is_refused_has_changed_nothing() {
    const KEYS: usize = 16;
    let mut node = Node::new(Medium::Wire);
    let mut frames = Vec::new();
    for _ in 0..20 {
        frames.extend((0..20).map(|_| node.sets(KEYS, b"value")));
        node.flood();
        node.turn();
        node.end_writes();
    }
    node.settle();
    let records = node.shard.store().log().counters().records;
    let shed = node.shard.counters().shed_for_core;
    // Nobody is ahead any more.
    node.now.us += 6_000_000;
    node.settle();
    let (mut ran, mut refused) = (0, 0);
    for frame in frames {
        let answer = node.answers[&frame].clone();
        let found = node.gets(frame, KEYS);
        match answer {
            Answer::Items(items) => {
                ran += items.len();
                assert_eq!(items, [Status::Ok; KEYS]);
                assert_eq!(found, [Status::Ok; KEYS]);
            }
            Answer::Busy { retry_after_ms } => {
                refused += KEYS;
                assert!((1..=1000).contains(&retry_after_ms));
                assert_eq!(found, [Status::NotFound; KEYS]);
            }
        }
    }
    assert!(ran > 0 && refused > 0, "{ran} ran, {refused} were refused");
    assert_eq!(records, ran as u64);
    assert_eq!(shed, refused as u64);
}

#[test]
fn a_frame_that_waits_for_room_goes_on_when_its_connection_is_ahead() {
    const KEYS: usize = 400;
    let mut node = Node::new(Medium::Wire);
    for _ in 0..20 {
        for _ in 0..20 {
            node.sets(16, b"");
        }
        node.flood();
        node.turn();
        node.end_writes();
    }
    node.settle();
    // More than the log takes before something is written.
    let frame = node.sets(KEYS, &[7; 1_000]);
    node.flood();
    node.turn();
    assert!(
        node.shard.front().is_paused(node.session),
        "there is no room for all"
    );
    node.settle();
    assert_eq!(node.answers[&frame], Answer::Items(vec![Status::Ok; KEYS]));
}

#[test]
fn a_caller_in_memory_is_never_refused() {
    let mut node = Node::new(Medium::Memory);
    for _ in 0..20 {
        for _ in 0..20 {
            node.sets(16, b"");
        }
        node.flood();
        node.turn();
    }
    node.settle();
    assert_eq!(node.shard.counters().shed_for_core, 0);
    assert_eq!(node.answers.len(), 400);
}

#[test]
fn an_operation_whose_deadline_passed_while_it_waited_is_not_executed() {
    let mut node = Node::new(Medium::Wire);
    let first = node.sets(400, &[7; 1_000]);
    node.asked += 1;
    let (id, out) = (node.asked, &mut node.inbox);
    let mut batch = BatchRequest::begin(out, id, AckLevel::Disk, 5, 1);
    batch.set(out, &key(id, 0), b"too late", Condition::Always);
    batch.finish(out);
    node.hand_over();
    node.turn();
    assert!(
        node.shard.front().is_paused(node.session),
        "there is no room for all"
    );
    node.now.us += 6_000;
    node.settle();
    assert_eq!(node.answers[&first], Answer::Items(vec![Status::Ok; 400]));
    assert_eq!(node.answers[&id], Answer::Items(vec![Status::Deadline]));
    assert_eq!(node.gets(id, 1), [Status::NotFound]);
}
