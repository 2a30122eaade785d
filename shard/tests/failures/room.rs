//! Connections that ask for much and read nothing beside one that reads, on a node of two shards in
//! virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use penstock_net::hello::ClientHello;
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::request::{BatchRequest, Condition};
use penstock_net::resp::{Client, Conversation};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_shard::{
    Event, Mail, Now, Outbox, SessionId, Shard, ShardConfig, SpareFailure, Topology,
};
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::{Log, LogConfig, SyncMethod};
use penstock_storage::place::LogStart;
use penstock_storage::recovery::Replayed;
use penstock_storage::store::Store;
use penstock_storage::version::PARTITIONS;

use crate::device::Device;
use crate::heap::{Heap, HeapBlock};
use crate::image::Image;
use crate::interpreter::Lines;
use crate::rights::resp::Still;
use crate::scripts::command;
use crate::server::{for_each_reply, log_config, shard_config};

const HELLO_ID: u64 = u64::MAX;
const SEGMENT_BYTES: usize = 1 << 20;
/// Longer than what is answered without room.
const VALUE_BYTES: usize = 8 << 10;
/// Sixteen values.
const REPLIES_BYTES_MAX: usize = 16 * VALUE_BYTES;
const STALL_US: u64 = 5_000_000;
/// What the network takes from the server for a peer that reads nothing.
const NETWORK_BYTES: usize = 12 << 10;
/// Between two turns.
const STEP_US: u64 = 1_000;

struct Member {
    shard: Shard<Heap>,
    outbox: Outbox<HeapBlock>,
    device: Device,
    mail: VecDeque<Mail>,
}

struct Connection {
    shard: usize,
    session: SessionId,
    /// Sent by the client and not consumed.
    inbox: Vec<u8>,
    reads: bool,
    /// What the network holds for one that reads nothing.
    in_network: usize,
    /// By request: when and what the answer was.
    answers: BTreeMap<u64, (u64, Status)>,
    /// Of the port for clients of Redis: what it talks, and its scripts that were answered.
    talk: Option<Conversation>,
    answered: usize,
    /// When and why it was closed.
    closed: Option<(u64, &'static str)>,
}

struct Node {
    members: [Member; 2],
    connections: Vec<Connection>,
    now: Now,
    salt: u64,
    asked: u64,
    /// No segment file can be opened.
    spares_fail: bool,
}

impl Node {
    fn new() -> Node {
        let member = |number: u16| {
            let config = LogConfig {
                frame_bytes: 8 * BLOCK_BYTES,
                record_bytes_max: 8 * BLOCK_BYTES - 64,
                ..log_config(SyncMethod::DurableWrite, 1)
            };
            let log = Log::new(config, LogStart::default(), Heap);
            let store = Store::new(log, Heap, 1 << 8, [0; PARTITIONS], Replayed::new(4 << 20));
            let mut config = ShardConfig {
                replies_bytes_max: REPLIES_BYTES_MAX,
                output_bytes_max: 1 << 20,
                write_stall_us_max: STALL_US,
                mailed_items_max: 1 << 16,
                ..shard_config(number, 2, 1)
            };
            config.hello.limits = limits();
            Member {
                shard: Shard::new(config, store),
                outbox: Outbox::default(),
                device: Device::holding(Image::default()),
                mail: VecDeque::new(),
            }
        };
        Node {
            members: [member(0), member(1)],
            connections: Vec::new(),
            now: Now { us: 1, unix_ms: 1 },
            salt: 0,
            asked: 0,
            spares_fail: false,
        }
    }

    fn connect(&mut self, shard: usize, reads: bool) -> usize {
        let session = self.members[shard].shard.front_mut().open_session(self.now);
        let mut inbox = Vec::new();
        ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: 0,
            name: "room",
        }
        .write(&mut inbox, HELLO_ID);
        self.connections.push(Connection {
            shard,
            session,
            inbox,
            reads,
            in_network: 0,
            answers: BTreeMap::new(),
            talk: None,
            answered: 0,
            closed: None,
        });
        let place = self.connections.len() - 1;
        self.hand_over(place);
        place
    }

    /// A connection of the port for clients of Redis, which reads.
    fn connect_translated(&mut self, shard: usize) -> usize {
        let front = self.members[shard].shard.front_mut();
        let session = front.open_session_translated(self.now, 0);
        self.connections.push(Connection {
            shard,
            session,
            inbox: Conversation::greeting(),
            reads: true,
            in_network: 0,
            answers: BTreeMap::new(),
            talk: Some(Conversation::new(Client::default(), limits(), false)),
            answered: 0,
            closed: None,
        });
        let place = self.connections.len() - 1;
        self.hand_over(place);
        place
    }

    /// Asks for so many dear scripts on a key of that shard.
    fn dear(&mut self, place: usize, of: u16, count: usize) {
        self.eval(place, of, ("dear", "PING"), count);
    }

    /// Asks so many times for a script of [`Lines`] with these words on a key of that shard.
    fn eval(&mut self, place: usize, of: u16, (script, words): (&str, &str), count: usize) {
        let key = String::from_utf8(key(of)).expect("text");
        let bytes = command(&format!("EVAL {script} 1 {key} {words}")).repeat(count);
        let Connection { talk, inbox, .. } = &mut self.connections[place];
        let talk = talk.as_mut().expect("a connection of that port");
        let taken = talk.take(&bytes, inbox, &still());
        assert_eq!(taken, bytes.len(), "the ring has room for all");
        self.hand_over(place);
    }

    fn hand_over(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        if connection.closed.is_some() {
            return;
        }
        let member = &mut self.members[connection.shard];
        let received = Event::Received {
            session: connection.session,
            bytes: &connection.inbox,
        };
        let consumed = member.shard.step(self.now, received, &mut member.outbox);
        connection.inbox.drain(..consumed);
    }

    /// Asks for the value of a key of that shard.
    fn get(&mut self, place: usize, of: u16, deadline_ms: u16) -> u64 {
        self.asked += 1;
        let inbox = &mut self.connections[place].inbox;
        let level = AckLevel::None;
        let mut batch = BatchRequest::begin(inbox, self.asked, level, deadline_ms, 1);
        batch.get(inbox, &key(of));
        batch.finish(inbox);
        self.asked
    }

    fn set(&mut self, place: usize, key: &[u8]) -> u64 {
        self.asked += 1;
        let inbox = &mut self.connections[place].inbox;
        let mut batch = BatchRequest::begin(inbox, self.asked, AckLevel::Disk, 0, 1);
        batch.set(inbox, key, &[7; VALUE_BYTES], Condition::Always);
        batch.finish(inbox);
        self.asked
    }

    /// Sets a key of each shard.
    fn fill(&mut self) {
        let place = self.connect(0, true);
        for of in 0..2 {
            self.set(place, &key(of));
        }
        self.hand_over(place);
        self.turns(100);
        let answers = &self.connections[place].answers;
        assert_eq!(answers.len(), 2);
        assert!(answers.values().all(|&(_, status)| status == Status::Ok));
    }

    /// Connections that ask for both keys again and again and read nothing, so many on each shard.
    fn hogs(&mut self, on: [usize; 2]) -> Vec<usize> {
        let mut places = Vec::new();
        for (shard, count) in on.into_iter().enumerate() {
            for _ in 0..count {
                let place = self.connect(shard, false);
                for _ in 0..100 {
                    self.get(place, 0, 0);
                    self.get(place, 1, 0);
                }
                places.push(place);
            }
        }
        places.iter().for_each(|&place| self.hand_over(place));
        places
    }

    fn turns(&mut self, turns: usize) {
        for _ in 0..turns {
            for number in 0..2 {
                self.turn(number);
                let member = &mut self.members[number];
                while let Some(mail) = member.mail.pop_front() {
                    let mail = Event::Mail(mail);
                    member.shard.step(self.now, mail, &mut member.outbox);
                }
                while !member.device.under_way().is_empty() {
                    let ended = Event::Completed(member.device.complete(0));
                    member.shard.step(self.now, ended, &mut member.outbox);
                }
            }
            self.now.us += STEP_US;
        }
    }

    fn turn(&mut self, number: usize) {
        let now = self.now;
        let member = &mut self.members[number];
        member.shard.step(now, Event::TurnEnds, &mut member.outbox);
        let mut outbox = std::mem::take(&mut member.outbox);
        assert!(outbox.fatal.is_none());
        member.device.submit(&mut outbox.io);
        for _ in 0..outbox.spares {
            self.salt += 1;
            if self.spares_fail {
                let failed = Event::SpareFailed(SpareFailure::NoDescriptor);
                member.shard.step(now, failed, &mut member.outbox);
                continue;
            }
            let spare = Event::Spare {
                file: member.device.image.create(SEGMENT_BYTES),
                salt: self.salt,
                bytes: SEGMENT_BYTES as u64,
                is_reused: false,
            };
            member.shard.step(now, spare, &mut member.outbox);
        }
        for (to, mail) in outbox.mail {
            self.members[usize::from(to)].mail.push_back(mail);
        }
        for session in outbox.sendable {
            self.send(number, session);
        }
        for session in outbox.probes {
            let place = self.place(number, session);
            let bytes = self.connections[place].in_network as u64;
            let event = Event::Unacknowledged { session, bytes };
            let member = &mut self.members[number];
            member.shard.step(now, event, &mut member.outbox);
            outbox.close.append(&mut member.outbox.close);
        }
        for (session, reason) in outbox.close {
            let place = self.place(number, session);
            self.connections[place].closed = Some((now.us, reason));
            let member = &mut self.members[number];
            let closed = Event::Closed { session };
            member.shard.step(now, closed, &mut member.outbox);
        }
        for session in outbox.resume {
            let place = self.place(number, session);
            self.hand_over(place);
        }
    }

    fn place(&self, number: usize, session: SessionId) -> usize {
        let is_it = |it: &Connection| (it.shard, it.session) == (number, session);
        self.connections
            .iter()
            .position(is_it)
            .expect("it was opened")
    }

    /// The network takes what there is, or as much as it has room for.
    fn send(&mut self, number: usize, session: SessionId) {
        let place = self.place(number, session);
        let Member { shard, outbox, .. } = &mut self.members[number];
        let mut bytes = Vec::new();
        shard.take_output(self.now, session, &mut bytes);
        let connection = &mut self.connections[place];
        if connection.reads {
            shard.step(self.now, Event::Sent { session }, outbox);
            if let Some(talk) = &mut connection.talk {
                talk.answered(&bytes, &still());
                let replies = std::mem::take(talk.out());
                connection.answered += replies.split(|byte| *byte == b'+').count() - 1;
                return;
            }
            let (answers, us) = (&mut connection.answers, self.now.us);
            for_each_reply(&bytes, |id, item| {
                let before = answers.insert(id, (us, item.head.status));
                assert!(before.is_none(), "answered twice");
            });
            return;
        }
        let taken = bytes.len().min(NETWORK_BYTES - connection.in_network);
        connection.in_network += taken;
        let is_all = taken == bytes.len();
        let bytes = taken;
        shard.step(self.now, Event::Took { session, bytes }, outbox);
        if is_all {
            shard.step(self.now, Event::Sent { session }, outbox);
        }
    }

    /// How long, in microseconds, a GET of a connection takes, and how it is answered.
    fn ask(&mut self, place: usize, of: u16, deadline_ms: u16) -> (u64, Status) {
        let began_us = self.now.us;
        let id = self.get(place, of, deadline_ms);
        self.hand_over(place);
        for _ in 0..60_000 {
            self.turns(1);
            if let Some((us, status)) = self.connections[place].answers.get(&id) {
                return (us - began_us, *status);
            }
        }
        panic!("no answer within a minute");
    }
}

fn limits() -> Limits {
    Limits {
        frame_bytes_max: 64 << 10,
        value_bytes_max: 12 << 10,
    }
}

fn still() -> Still {
    Still {
        schema: Arc::default(),
        unix_us: 1,
        joined_cores: 0,
    }
}

/// A key of that shard.
fn key(of: u16) -> Vec<u8> {
    let mut keys = (0..).map(|number: u32| format!("key:{number}").into_bytes());
    keys.find(|key| is_of(key, of)).expect("every second one")
}

fn is_of(key: &[u8], shard: u16) -> bool {
    Topology::new(2).owner(slot_of(key)) == shard
}

#[test]
fn who_reads_is_answered_at_once_beside_many_that_ask_for_much_and_read_nothing() {
    for hogs in [[2, 2], [4, 0], [10, 10]] {
        let mut node = Node::new();
        node.fill();
        let honest = node.connect(0, true);
        let (alone_us, _) = node.ask(honest, 1, 0);
        node.hogs(hogs);
        for round in 0..2_000 {
            let (us, status) = node.ask(honest, round % 2, 500);
            assert_eq!(status, Status::Ok, "{hogs:?}, round {round}");
            assert!(
                us <= alone_us + STEP_US,
                "{us} us in round {round} beside {hogs:?}"
            );
        }
    }
}

#[test]
fn many_that_read_nothing_are_ended_early_while_another_waits_for_their_room() {
    let mut node = Node::new();
    node.fill();
    let hogs = node.hogs([40, 0]);
    node.turns(10);
    let honest = node.connect(0, true);
    let (us, status) = node.ask(honest, 0, 0);
    assert_eq!(status, Status::Ok);
    assert!(us <= STALL_US / 20 + 400_000, "{us} us");
    let ended = hogs.iter().filter_map(|&hog| node.connections[hog].closed);
    let reasons: Vec<_> = ended.map(|(_, reason)| reason).collect();
    assert!(!reasons.is_empty());
    assert!(
        reasons.iter().all(|reason| reason.contains("others")),
        "{reasons:?}"
    );
}

#[test]
fn all_that_read_nothing_are_ended_in_the_time_that_is_documented() {
    let mut node = Node::new();
    node.fill();
    let began_us = node.now.us;
    let hogs = node.hogs([3, 3]);
    node.turns(7_000);
    for hog in hogs {
        let (us, reason) = node.connections[hog].closed.expect("it was ended");
        let took_us = us - began_us;
        assert!(
            (STALL_US..STALL_US + STALL_US / 4).contains(&took_us),
            "{took_us} us"
        );
        assert!(reason.contains("write_stall_timeout_ms"), "{reason}");
    }
}

#[test]
fn a_request_that_waits_for_room_is_answered_at_its_deadline() {
    let mut node = Node::new();
    node.fill();
    node.hogs([40, 0]);
    node.turns(10);
    let honest = node.connect(0, true);
    let (us, status) = node.ask(honest, 0, 100);
    assert_eq!(status, Status::Deadline);
    assert!((100_000..240_000).contains(&us), "{us} us");
}

/// Scripts of [`Lines`] that run one behind the other, at most: 50,000 steps.
const SLICE_SCRIPTS: usize = 60;
/// Scripts of a pipeline.
const SCRIPTS: usize = 400;

#[test]
fn the_scripts_of_a_pipeline_let_others_have_their_turn() {
    for of in 0..2 {
        let mut node = Node::new();
        for member in &mut node.members {
            member.shard.execution_mut().serve_scripts(Box::new(Lines));
        }
        let hogs: Vec<usize> = (0..8).map(|_| node.connect_translated(0)).collect();
        let honest = node.connect_translated(0);
        node.turns(1);
        for &hog in &hogs {
            node.dear(hog, of, SCRIPTS);
        }
        let ran = |node: &Node, place: usize| node.connections[place].answered;
        let of_hogs = |node: &Node| hogs.iter().map(|&hog| ran(node, hog)).collect::<Vec<_>>();
        node.turns(1);
        let behind_one_turn = of_hogs(&node);
        assert!(
            behind_one_turn.iter().all(|ran| *ran <= SLICE_SCRIPTS),
            "{behind_one_turn:?} of shard {of}"
        );
        node.turns(2);
        let before = of_hogs(&node);
        assert!(before.iter().any(|ran| *ran < SCRIPTS), "they are not done");
        let answered = ran(&node, honest);
        node.dear(honest, of, 1);
        let mut turns = 0;
        while ran(&node, honest) == answered {
            node.turns(1);
            turns += 1;
            assert!(turns <= 4, "behind {before:?} to {:?}", of_hogs(&node));
        }
        // All are done in the end.
        node.turns(400);
        assert_eq!(of_hogs(&node), [SCRIPTS; 8], "of shard {of}");
    }
}

/// The answers of both shards tell when to try again, which is checked wherever answers are read.
#[test]
fn a_segment_file_that_cannot_be_opened_is_not_reported_as_a_full_disk() {
    for of in 0..2 {
        let mut node = Node::new();
        node.fill();
        let writer = node.connect(0, true);
        node.spares_fail = true;
        let new = (0..2_000).map(|number: u32| format!("new:{number}").into_bytes());
        let mut of_shard = new.filter(|key| is_of(key, of));
        let refused = of_shard.find_map(|key| {
            let id = node.set(writer, &key);
            node.hand_over(writer);
            node.turns(20);
            let (_, status) = node.connections[writer].answers[&id];
            (status != Status::Ok).then_some(status)
        });
        assert_eq!(refused, Some(Status::Busy), "by shard {of}");
    }
}
