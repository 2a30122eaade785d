//! Changes of keyspaces on a node of two shards whose disks fill up and empty, turned by hand.

use std::collections::{BTreeMap, VecDeque};

use penstock_net::hello::ClientHello;
use penstock_net::keyspace::{Action, Keyspace, Settings, read_keyspaces};
use penstock_net::level::AckLevel;
use penstock_net::request::{BatchRequest, Condition};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_shard::{Event, Mail, Now, Outbox, SessionId, Shard, ShardConfig, Topology};
use penstock_storage::log::{Log, SyncMethod};
use penstock_storage::place::LogStart;
use penstock_storage::recovery::Replayed;
use penstock_storage::store::Store;
use penstock_storage::version::PARTITIONS;

use crate::device::Device;
use crate::heap::{Heap, HeapBlock};
use crate::image::Image;
use crate::server::{SEGMENT_BYTES, for_each_reply, log_config, shard_config};

const HELLO_ID: u64 = u64::MAX;

pub struct Member {
    pub shard: Shard<Heap>,
    outbox: Outbox<HeapBlock>,
    device: Device,
    /// On its way to this shard.
    mail: VecDeque<Mail>,
    is_full: bool,
}

/// The first shard decides about keyspaces, and has the client.
pub struct Pair {
    pub members: [Member; 2],
    pub session: SessionId,
    pub now: Now,
    /// How long a thread stands still behind what its next turn executes.
    pub stands_still_us: u64,
    /// Connections that were closed.
    pub closed: Vec<SessionId>,
    salt: u64,
    asked: u64,
    pub replies: BTreeMap<u64, (Status, Vec<u8>)>,
}

impl Pair {
    /// The disk of the second shard is full from the beginning.
    fn with_a_full_one() -> Pair {
        Pair::new(true, 64 << 20)
    }

    fn new(second_is_full: bool, replies_bytes_max: usize) -> Pair {
        let config = |number| ShardConfig {
            replies_bytes_max,
            ..shard_config(number, 2, 1)
        };
        Pair::over([config(0), config(1)], second_is_full)
    }

    pub fn over([first, second]: [ShardConfig; 2], second_is_full: bool) -> Pair {
        let now = Now { us: 1, unix_ms: 1 };
        let member = |shard_config: ShardConfig, is_full| {
            let config = log_config(SyncMethod::DurableWrite, 1);
            let log = Log::new(config, LogStart::default(), Heap);
            let store = Store::new(log, Heap, 1 << 8, [0; PARTITIONS], Replayed::new(1 << 16));
            Member {
                shard: Shard::new(shard_config, store),
                outbox: Outbox::default(),
                device: Device::holding(Image::default()),
                mail: VecDeque::new(),
                is_full,
            }
        };
        let mut members = [member(first, false), member(second, second_is_full)];
        let session = members[0].shard.front_mut().open_session(now);
        let mut pair = Pair {
            members,
            session,
            now,
            stands_still_us: 0,
            closed: Vec::new(),
            salt: 0,
            asked: 0,
            replies: BTreeMap::new(),
        };
        let hello = ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: 0,
            name: "pair",
        };
        let mut bytes = Vec::new();
        hello.write(&mut bytes, HELLO_ID);
        pair.send(&bytes);
        pair.settle();
        pair
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let member = &mut self.members[0];
        let session = self.session;
        let received = Event::Received { session, bytes };
        let consumed = member.shard.step(self.now, received, &mut member.outbox);
        assert_eq!(consumed, bytes.len());
    }

    /// Sends a change or question, and tells its number.
    fn ask(&mut self, prefix: &[u8], action: Action) -> u64 {
        self.asked += 1;
        let mut bytes = Vec::new();
        let mut batch = BatchRequest::begin(&mut bytes, self.asked, AckLevel::Disk, 0, 1);
        batch.keyspace(&mut bytes, prefix, action);
        batch.finish(&mut bytes);
        self.send(&bytes);
        self.asked
    }

    /// The same, until it is answered.
    fn keyspace(&mut self, prefix: &[u8], action: Action) -> (Status, Vec<Keyspace>) {
        let asked = self.ask(prefix, action);
        self.settle();
        let (status, value) = self.replies.remove(&asked).expect("a reply");
        let listed = match status {
            Status::Ok => read_keyspaces(&value).expect("keyspaces"),
            _ => Vec::new(),
        };
        (status, listed)
    }

    pub fn turn(&mut self, number: usize) {
        let now = self.now;
        let member = &mut self.members[number];
        member.shard.step(now, Event::TurnEnds, &mut member.outbox);
        self.now.us += std::mem::take(&mut self.stands_still_us);
        let now = self.now;
        member.shard.end_turn(now, &mut member.outbox);
        let outbox = std::mem::take(&mut member.outbox);
        self.closed
            .extend(outbox.close.iter().map(|&(session, _)| session));
        assert!(outbox.fatal.is_none());
        member.device.submit(&mut { outbox.io });
        for _ in 0..outbox.spares {
            self.add_spare(number);
        }
        for (to, mail) in outbox.mail {
            self.members[usize::from(to)].mail.push_back(mail);
        }
        for session in outbox.sendable {
            let mut bytes = Vec::new();
            let Member { shard, outbox, .. } = &mut self.members[number];
            shard.take_output(now, session, &mut bytes);
            shard.step(now, Event::Sent { session }, outbox);
            self.read_replies(&bytes);
        }
    }

    fn add_spare(&mut self, number: usize) {
        self.salt += 1;
        let member = &mut self.members[number];
        let event = match member.is_full {
            true => Event::SpareRefused,
            false => Event::Spare {
                file: member.device.image.create(SEGMENT_BYTES),
                salt: self.salt,
                bytes: SEGMENT_BYTES as u64,
                is_reused: false,
            },
        };
        member.shard.step(self.now, event, &mut member.outbox);
    }

    fn make_room(&mut self, number: usize) {
        self.members[number].is_full = false;
        for _ in 0..3 {
            self.add_spare(number);
        }
    }

    fn read_replies(&mut self, bytes: &[u8]) {
        for_each_reply(bytes, |id, item| {
            let reply = (item.head.status, item.value.to_vec());
            let before = self.replies.insert(id, reply);
            assert!(before.is_none(), "answered twice");
        });
    }

    pub fn deliver(&mut self, number: usize) {
        let member = &mut self.members[number];
        while let Some(mail) = member.mail.pop_front() {
            let mail = Event::Mail(mail);
            member.shard.step(self.now, mail, &mut member.outbox);
        }
    }

    fn end_requests(&mut self, number: usize) {
        while !self.members[number].device.under_way().is_empty() {
            self.end_request(number);
        }
    }

    /// Ends the oldest request of a device, if there is one.
    fn end_request(&mut self, number: usize) {
        let member = &mut self.members[number];
        if !member.device.under_way().is_empty() {
            let ended = Event::Completed(member.device.complete(0));
            member.shard.step(self.now, ended, &mut member.outbox);
        }
    }

    pub fn settle(&mut self) {
        for round in 0..50 {
            for number in 0..2 {
                // The maker of spares tries once more, in vain.
                if round == 25 && self.members[number].is_full {
                    self.add_spare(number);
                }
                self.turn(number);
                self.deliver(number);
                self.end_requests(number);
            }
            self.now.us += 1_000;
        }
    }
}

fn set(versions: u8) -> Action {
    Action::Set(Settings {
        versions,
        ..Settings::default()
    })
}

fn prefixes(listed: &[Keyspace]) -> Vec<&[u8]> {
    listed.iter().map(|keyspace| &*keyspace.prefix).collect()
}

#[test]
fn a_change_that_meets_a_full_disk_is_indeterminate_and_comes_when_there_is_room() {
    let mut pair = Pair::with_a_full_one();
    for versions in 1..=100 {
        let (status, _) = pair.keyspace(b"a", set(versions));
        assert_eq!(status, Status::Indeterminate, "change {versions}");
    }
    let (status, _) = pair.keyspace(b"a", Action::Create(Settings::default()));
    assert_eq!(
        status,
        Status::Exists,
        "the shard that decides has logged it"
    );
    pair.make_room(1);
    pair.settle();
    let logged = pair.members[1].shard.store().keyspaces();
    let (_, in_force) = logged.of(16_383, b"abc").expect("it came");
    assert_eq!(in_force.versions, 100, "the last one counts");
    let (status, listed) = pair.keyspace(b"a", set(7));
    assert_eq!((status, listed[0].settings.versions), (Status::Ok, 7));
}

#[test]
fn the_late_end_of_one_change_is_not_taken_for_that_of_the_next() {
    let mut pair = Pair::with_a_full_one();
    let (status, _) = pair.keyspace(b"a", set(1));
    assert_eq!(status, Status::Indeterminate);
    pair.make_room(1);
    // The second shard logs the first change, while it hears nothing of the next one.
    pair.turn(1);
    let next = pair.ask(b"b", set(1));
    for _ in 0..50 {
        for number in 0..2 {
            pair.turn(number);
            pair.end_requests(number);
        }
        pair.deliver(0);
        pair.now.us += 1_000;
    }
    assert_eq!(pair.replies.get(&next), None, "one shard does not know it");
    pair.settle();
    let (status, _) = pair.replies.remove(&next).expect("a reply");
    assert_eq!(status, Status::Ok);
    let (_, listed) = pair.keyspace(b"", Action::List);
    assert_eq!(prefixes(&listed), [b"a", b"b"]);
    assert!(listed[1].revision > listed[0].revision, "{listed:?}");
}

#[test]
fn what_is_answered_of_keyspaces_is_durable() {
    let mut pair = Pair::with_a_full_one();
    pair.make_room(1);
    pair.settle();
    let (made, list) = (pair.ask(b"a", set(1)), pair.ask(b"", Action::List));
    pair.turn(0);
    let (status, value) = pair.replies.remove(&list).expect("it waits for nothing");
    assert_eq!(status, Status::Ok);
    assert_eq!(
        prefixes(&read_keyspaces(&value).expect("a list")),
        [[0; 0]; 0]
    );
    pair.settle();
    assert_eq!(pair.replies[&made].0, Status::Ok);
    let (_, listed) = pair.keyspace(b"", Action::List);
    assert_eq!(prefixes(&listed), [b"a"]);
}

#[test]
fn a_change_is_answered_when_its_last_record_is_durable_wherever_the_log_ran_out_of_room() {
    let mut pair = Pair::new(false, 64 << 20);
    // A segment holds the records of two changes and a part of the third.
    for prefix in b'a'..=b'i' {
        let asked = pair.ask(&[prefix], set(1));
        let answered = (0..1_000).find_map(|_| {
            for number in 0..2 {
                pair.turn(number);
                pair.deliver(number);
                pair.end_request(number);
            }
            pair.now.us += 100;
            pair.replies.remove(&asked)
        });
        assert_eq!(answered.expect("an answer").0, Status::Ok);
        for Member { shard, .. } in &pair.members {
            let log = shard.store().log();
            assert_eq!(log.durable(), log.appended(), "prefix {prefix}");
        }
    }
}

#[test]
fn a_large_item_goes_to_another_shard_while_small_ones_of_others_are_on_their_way() {
    // A quarter of it is for items on their way to the other shard.
    let mut pair = Pair::new(false, 4 << 10);
    let keys = (0..).map(|number: u32| number.to_le_bytes());
    let mut keys = keys.filter(|key| Topology::new(2).owner(slot_of(key)) == 1);
    let mut set = |pair: &mut Pair, bytes: usize| {
        pair.asked += 1;
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, pair.asked, AckLevel::Disk, 0, 1);
        let key = keys.next().expect("every second one");
        batch.set(&mut out, &key, &vec![7; bytes], Condition::Always);
        batch.finish(&mut out);
        // That all of it is taken, is what is tested.
        pair.send(&out);
        pair.asked
    };
    let asked = [10, 1_500].map(|bytes| set(&mut pair, bytes));
    pair.settle();
    for asked in asked {
        let (status, _) = pair.replies.remove(&asked).expect("a reply");
        assert_eq!(status, Status::Ok);
    }
}
