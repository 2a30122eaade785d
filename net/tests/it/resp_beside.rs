//! A connection of RESP at a node of a cluster, and beside a clock: where clients are sent, what
//! members may answer, which commands are slow, what a frame asks for.

use std::cell::{Cell, RefCell};

use penstock_net::batch::Batch;
use penstock_net::frame::{HEADER_BYTES, Header, Medium};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::pieces::Pieces;
use penstock_net::placement::Writer;
use penstock_net::reply::{BatchReply, ReplyHead};
use penstock_net::request::{Extra, Request};
use penstock_net::resp::{
    Client, ClusterNode, ClusterView, Conversation, Host, SlotRange, SlowCommand,
};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_net::version::Version;

/// A node of three: node 1 writes all, node 2 is this one, node 3 has no RESP port.
#[derive(Default)]
struct Beside {
    elapsed_us: Cell<u64>,
    slow: RefCell<Vec<SlowCommand>>,
}

impl Host for Beside {
    fn unix_us(&self) -> u64 {
        1_700_000_000_000_000
    }

    fn elapsed_us(&self) -> u64 {
        self.elapsed_us.get()
    }

    fn was_slow(&self, command: SlowCommand) {
        self.slow.borrow_mut().push(command);
    }

    fn slow_commands(&self) -> Vec<SlowCommand> {
        self.slow.borrow().clone()
    }

    fn forget_slow_commands(&self) {
        self.slow.borrow_mut().clear();
    }

    fn cluster(&self) -> Option<ClusterView> {
        let node = |number, resp: Option<&str>| ClusterNode {
            number,
            resp: resp.map(str::to_string),
            cores: None,
        };
        Some(ClusterView {
            id: [7; 16],
            me: 2,
            nodes: vec![
                node(1, Some("one:7413")),
                node(2, Some("two:7413")),
                node(3, None),
            ],
            ranges: vec![SlotRange {
                first: 0,
                last: 16_383,
                writer: 1,
                members: vec![2, 3],
                sync: vec![2, 3],
            }],
        })
    }
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

fn conversation() -> Conversation {
    Conversation::new(Client::default(), Limits::default(), true)
}

/// Gives the connection a command; the frames that it asks with.
fn give(talk: &mut Conversation, host: &Beside, words: &[&str]) -> Vec<Vec<u8>> {
    let bytes = command(words);
    let (mut at, mut frames) = (0, Vec::new());
    loop {
        let mut frame = Vec::new();
        let taken = talk.take(&bytes[at..], &mut frame, host);
        at += taken;
        if taken == 0 && frame.is_empty() {
            return frames;
        }
        if !frame.is_empty() {
            frames.push(frame);
        }
    }
}

/// Answers all items of a frame with this status, version and value.
fn answer(
    talk: &mut Conversation,
    host: &Beside,
    frame: &[u8],
    status: Status,
    version: Version,
    value: &[u8],
) {
    let header = Header::decode(frame.first_chunk().expect("a head"));
    let items = Batch::read(&frame[HEADER_BYTES..]).expect("good").len();
    let mut out = Pieces::default();
    let mut reply = BatchReply::begin(&mut out, header.request_id, items).over(Medium::Memory);
    for item in 0..u16::try_from(items).expect("few") {
        ReplyHead::new(status, item, AckLevel::Disk, version).write(out.written(), value);
        reply.end_item(&mut out);
    }
    assert!(reply.finish(&mut out, 0, false, false));
    talk.answered(&out.into_bytes(), host);
}

fn reply_of(talk: &mut Conversation) -> String {
    String::from_utf8(std::mem::take(talk.out())).expect("text")
}

#[test]
fn what_another_node_writes_is_moved_to_its_address_with_the_slot_of_the_key() {
    let host = Beside::default();
    let mut talk = conversation();
    let slot = slot_of(b"stock");
    for words in [
        &["GET", "stock"][..],
        &["INCR", "stock"],
        &["INCREX", "stock"],
        &["KV.APPLY", "stock", "k1 absent"],
        &["APPEND", "stock", "x"],
    ] {
        let frames = give(&mut talk, &host, words);
        let [frame] = &frames[..] else {
            panic!("{} frames", frames.len())
        };
        let version = Writer::version(1, 5);
        answer(
            &mut talk,
            &host,
            frame,
            Status::Moved,
            version,
            b"elsewhere",
        );
        let reply = reply_of(&mut talk);
        let expected = format!("-MOVED {slot} one:7413\r\n");
        assert!(reply.ends_with(&expected), "{words:?}: {reply}");
    }
    let frames = give(&mut talk, &host, &["GET", "stock"]);
    let version = Writer::version(3, 5);
    answer(&mut talk, &host, &frames[0], Status::Moved, version, b"");
    assert_eq!(reply_of(&mut talk), "-CLUSTERDOWN Hash slot not served\r\n");
    // The node that writes the slot may know a program that this one does not.
    assert!(give(&mut talk, &host, &["KV.RUN", "buy", "stock"]).is_empty());
    assert_eq!(reply_of(&mut talk), format!("-MOVED {slot} one:7413\r\n"));
    // The array of MGET does not begin where the slot is not served.
    assert!(give(&mut talk, &host, &["MGET", "stock"]).is_empty());
    assert_eq!(reply_of(&mut talk), format!("-MOVED {slot} one:7413\r\n"));
    let frames = give(&mut talk, &host, &["MGET", "stock", "other"]);
    assert!(frames.is_empty());
    assert!(reply_of(&mut talk).starts_with("-CROSSSLOT "));
}

#[test]
fn a_scan_passes_over_slots_that_another_node_writes() {
    let host = Beside::default();
    let mut talk = conversation();
    let frames = give(&mut talk, &host, &["SCAN", "0"]);
    let version = Writer::version(1, 5);
    answer(
        &mut talk,
        &host,
        &frames[0],
        Status::Moved,
        version,
        b"elsewhere",
    );
    assert_eq!(
        reply_of(&mut talk),
        "*2\r\n$1\r\n0\r\n*0\r\n",
        "it writes none"
    );
    // Its node lost the slot while the scan was in it: the rest is not passed over in silence.
    let inside = (7u64 << 32 | 1).to_string();
    let frames = give(&mut talk, &host, &["SCAN", &inside]);
    answer(
        &mut talk,
        &host,
        &frames[0],
        Status::Moved,
        version,
        b"elsewhere",
    );
    assert_eq!(
        reply_of(&mut talk),
        "-ERR SCAN: the cursor stands in slot 7, which another node writes: begin anew\r\n"
    );
}

#[test]
fn behind_readonly_members_may_answer_as_old_as_the_connection_says() {
    let host = Beside::default();
    let mut talk = conversation();
    let asked = |frames: &[Vec<u8>]| {
        let batch = Batch::read(&frames[0][HEADER_BYTES..]).expect("good");
        match Request::read(batch.item(0), 1 << 20).expect("good").extra {
            Extra::Member(member) => Some(member.staleness_us_max),
            _ => None,
        }
    };
    let reads: [&[&str]; 3] = [&["GET", "k"], &["TTL", "k"], &["EXISTS", "k"]];
    for (setting, age_us) in [
        (&["READWRITE"][..], None),
        (&["READONLY"], Some(1_000_000)),
        (&["KV.OPTS", "stale=30"], Some(30_000)),
        (&["READWRITE"], None),
    ] {
        assert!(give(&mut talk, &host, setting).is_empty());
        assert_eq!(reply_of(&mut talk), "+OK\r\n");
        for words in reads {
            let frames = give(&mut talk, &host, words);
            assert_eq!(asked(&frames), age_us, "{words:?} behind {setting:?}");
            let version = Version::default();
            answer(&mut talk, &host, &frames[0], Status::Stale, version, b"old");
            let slot = slot_of(b"k");
            let moved = format!("-MOVED {slot} one:7413\r\n");
            assert_eq!(reply_of(&mut talk), moved, "the writer knows");
        }
    }
}

#[test]
fn a_level_is_that_of_its_own_frames_and_wait_reads_each_written_partition_at_all_nodes() {
    let host = Beside::default();
    let mut talk = conversation();
    let level = |frame: &[u8]| {
        let header = Header::decode(frame.first_chunk().expect("a head"));
        AckLevel::from_code(u8::try_from(header.level_or_status).expect("a level"))
    };
    let pipeline = [
        command(&["SET", "a", "1"]),
        command(&["KV.OPTS", "level=replica"]),
        command(&["SET", "b", "1"]),
        command(&["KV.OPTS", "level=default"]),
        command(&["SET", "{a}c", "1"]),
        command(&["WAIT", "1", "1000"]),
        command(&["GET", "d"]),
    ]
    .concat();
    let (mut at, mut levels) = (0, Vec::new());
    let version = Version {
        epoch: 1,
        sequence: 1,
    };
    while at < pipeline.len() {
        let mut frame = Vec::new();
        at += talk.take(&pipeline[at..], &mut frame, &host);
        assert!(!frame.is_empty(), "it goes on");
        let items = Batch::read(&frame[HEADER_BYTES..]).expect("good").len();
        levels.push((level(&frame).expect("one"), items));
        answer(&mut talk, &host, &frame, Status::Ok, version, b"");
    }
    assert_eq!(
        levels,
        [
            (AckLevel::None, 1),
            (AckLevel::Replica, 1),
            (AckLevel::None, 1),
            // Of the two partitions that were written.
            (AckLevel::Replica, 2),
            (AckLevel::None, 1),
        ]
    );
    let ok = "+OK\r\n".repeat(5);
    assert_eq!(reply_of(&mut talk), format!("{ok}:2\r\n$0\r\n\r\n"));
    // What was written stays written: WAIT tells of it again, and not of what some nodes lack.
    let frames = give(&mut talk, &host, &["WAIT", "1", "70"]);
    let header = Header::decode(frames[0].first_chunk().expect("a head"));
    assert_eq!(header.deadline_or_retry_ms, 70, "the time of WAIT");
    lacking(&mut talk, &host, &frames[0], &[2, 1]);
    assert_eq!(
        reply_of(&mut talk),
        ":1\r\n",
        "of the partition with the fewest"
    );
    let frames = give(&mut talk, &host, &["WAIT", "1", "0"]);
    let header = Header::decode(frames[0].first_chunk().expect("a head"));
    assert_eq!(header.deadline_or_retry_ms, 0);
    lacking(&mut talk, &host, &frames[0], &[0, 1]);
    assert_eq!(reply_of(&mut talk), ":0\r\n");
    let frames = give(&mut talk, &host, &["WAIT", "5", "10000000"]);
    let header = Header::decode(frames[0].first_chunk().expect("a head"));
    assert_eq!(header.deadline_or_retry_ms, u16::MAX, "a minute at most");
    answer(&mut talk, &host, &frames[0], Status::Deadline, version, b"");
    assert_eq!(reply_of(&mut talk), ":0\r\n", "nobody was asked in time");
    // Another connection has written nothing.
    let mut talk = conversation();
    assert!(give(&mut talk, &host, &["WAIT", "1", "0"]).is_empty());
    assert_eq!(reply_of(&mut talk), ":0\r\n");
}

/// Answers a frame of WAIT: so many nodes have what each of its items stands for.
fn lacking(talk: &mut Conversation, host: &Beside, frame: &[u8], nodes: &[u8]) {
    let header = Header::decode(frame.first_chunk().expect("a head"));
    let mut out = Pieces::default();
    let mut reply = BatchReply::begin(&mut out, header.request_id, nodes.len());
    reply = reply.over(Medium::Memory);
    for (item, &nodes) in (0..).zip(nodes) {
        let version = Version::default();
        let head = ReplyHead::new(Status::NoReplicas, item, AckLevel::None, version);
        ReplyHead {
            reason: nodes,
            ..head
        }
        .write(out.written(), b"not in time");
        reply.end_item(&mut out);
    }
    assert!(reply.finish(&mut out, 0, false, false));
    talk.answered(&out.into_bytes(), host);
}

#[test]
fn a_command_that_was_answered_late_is_reported_with_its_key_and_one_in_time_is_not() {
    let host = Beside::default();
    let mut talk = conversation();
    let version = Version::default();
    for (took_us, is_slow) in [(0, false), (9_999, false), (10_000, true), (70_000, true)] {
        let frames = give(&mut talk, &host, &["SET", "stock", "1", "EX", "9"]);
        host.elapsed_us.set(host.elapsed_us.get() + took_us);
        answer(&mut talk, &host, &frames[0], Status::Ok, version, b"");
        let slow = std::mem::take(&mut *host.slow.borrow_mut());
        assert_eq!(slow.len(), usize::from(is_slow), "{took_us}");
        for command in slow {
            assert_eq!(command.took_us, took_us);
            let shown: Vec<&[u8]> = command.arguments.iter().map(Vec::as_slice).collect();
            assert_eq!(shown, [&b"set"[..], b"stock", b"... (3 more arguments)"]);
        }
    }
}
