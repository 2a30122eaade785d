//! Several clients that send whatever they like to one node: it goes on, says only what its
//! protocol allows, and answers every request that was whole exactly once.
//!
//! An input is one byte (shards; whether it is one client's stream that is to be cut) and a list of
//! steps: clients come, send frames or noise, and go; shards turn, disks and mail move on, time
//! passes. With the cut, the rest is a stream that must be answered alike whole and in pieces.

use penstock_net::batch::Batch;
use penstock_net::frame::{FLAG_MORE, FLAG_REPLY, Header, Opcode, write_frame};
use penstock_net::hello::ClientHello;
use penstock_net::level::AckLevel;
use penstock_net::limits::FRAME_BYTES_BEFORE_HELLO_MAX;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{ReplyItem, text_of};
use penstock_net::request::{BatchRequest, Condition};
use penstock_net::status::Status;
use penstock_net::stranger::{Opening, Stranger, opening};

use crate::FOLDER;
use crate::node::{FRAME_BYTES_MAX, Node, Tally, frames};
use crate::target::{Choices, keep};

const STEPS_MAX: usize = 200;
const CONNECTIONS_MAX: usize = 4;
const CUT: u8 = 0x80;

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let manner = choices.byte();
    if manner & CUT != 0 {
        cut(&mut choices);
        return;
    }
    let mut node = Node::new(1 + u16::from(manner % 3), 2_000);
    // What each connection was sent.
    let mut sent: Vec<Vec<u8>> = Vec::new();
    for _ in 0..STEPS_MAX {
        if choices.is_empty() {
            break;
        }
        step(&mut node, &mut sent, &mut choices);
    }
    // What is left of the input is somebody's last word.
    if let Some(last) = sent.len().checked_sub(1) {
        say(&mut node, &mut sent, last, choices.rest());
    }
    if node.is_poisoned() {
        // The process ends; what was said until then was asked.
        for (connection, stream) in node.connections.iter().zip(&sent) {
            let (asked, _) = asked(stream);
            for (name, answered) in answers(&connection.received) {
                assert!(answered <= asked.get(&name).copied().unwrap_or_default());
            }
        }
        return;
    }
    node.settle();
    let open = node.connections.iter().filter(|open| !open.is_closed);
    assert_eq!(node.sessions(), open.count() as u64);
    for (number, stream) in sent.iter().enumerate() {
        let connection = &node.connections[number];
        let answers = answers(&connection.received);
        if connection.is_closed {
            continue;
        }
        let (asked, is_over) = asked(stream);
        assert_eq!(answers, asked, "connection {number}: answered is asked");
        assert_eq!(node.is_finished(number), is_over);
    }
}

fn step(node: &mut Node, sent: &mut Vec<Vec<u8>>, choices: &mut Choices<'_>) {
    let shards = node.shards();
    let manner = choices.byte();
    match manner % 10 {
        0 if sent.len() < CONNECTIONS_MAX => {
            node.connect(choices.below(shards));
            sent.push(Vec::new());
            // Most begin as they should.
            if manner < 200 {
                let mut bytes = Vec::new();
                hello(&mut bytes);
                let last = sent.len() - 1;
                say(node, sent, last, &bytes);
            }
        }
        1..=4 if !sent.is_empty() => {
            let connection = choices.below(sent.len());
            let mut bytes = Vec::new();
            let at = sent[connection].len();
            match choices.byte() % 8 {
                0 => bytes.extend_from_slice(choices.bytes(40)),
                // A frame that ends too soon.
                1 => {
                    bytes = frame(choices, at);
                    bytes.truncate(choices.below(48));
                }
                _ => bytes = frame(choices, at),
            }
            say(node, sent, connection, &bytes);
        }
        5 if !sent.is_empty() => {
            if manner > 240 {
                node.close(choices.below(sent.len()));
            }
        }
        6 => node.turn(choices.below(shards)),
        7 => node.complete(choices.below(shards), choices),
        8 if manner > 240 => node.fail(choices.below(shards), choices),
        8 => node.deliver(choices.below(shards)),
        _ => node.now.us += 1_000 * u64::from(choices.byte()),
    }
}

fn say(node: &mut Node, sent: &mut [Vec<u8>], connection: usize, bytes: &[u8]) {
    sent[connection].extend_from_slice(bytes);
    node.send(connection, bytes);
}

fn hello(out: &mut Vec<u8>) {
    let hello = ClientHello {
        protocol_min: 1,
        protocol_max: 1,
        features: 0,
        name: "fuzz",
    };
    hello.write(out, 1);
}

/// A frame whose checksums are right, with an id that no other has: it begins behind `at` bytes.
fn frame(choices: &mut Choices<'_>, at: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let request_id = 8 * at as u64 + u64::from(choices.byte() % 8);
    match choices.byte() % 8 {
        0 => hello(&mut out),
        1 => {
            let header = Header::request(Opcode::Ping, request_id, AckLevel::None, 0);
            write_frame(&mut out, header, choices.bytes(32));
        }
        2 => {
            let header = Header::request(Opcode::Info, request_id, AckLevel::None, 0);
            write_frame(&mut out, header, &[]);
        }
        // Any header.
        3 => {
            let header = Header {
                len: 0,
                opcode: [1, 2, 3, 0x10, choices.byte()][choices.below(5)],
                flags: choices.byte() & 1,
                request_id,
                level_or_status: u16::from(choices.byte() % 5),
                slot_or_shard: u16::try_from(choices.number() & 0xFFFF).expect("two bytes"),
                topology: u16::from(choices.byte() % 2),
                deadline_or_retry_ms: u16::from(choices.byte()),
                body_crc: 0,
            };
            write_frame(&mut out, header, choices.bytes(64));
        }
        // A batch of anything.
        4 => {
            let header = Header::request(Opcode::Batch, request_id, AckLevel::Disk, 0);
            let mut body = vec![1, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0];
            let item = choices.bytes(64);
            let len = item.len().next_multiple_of(8).to_le_bytes()[0];
            body.extend_from_slice(&[len, 0, 0, 0]);
            body.extend_from_slice(item);
            write_frame(&mut out, header, &body);
        }
        // A batch of good items.
        _ => {
            let level = AckLevel::from_code(choices.byte() % 4).expect("four levels");
            let deadline_ms = u16::from(choices.byte() % 3);
            let mut batch = BatchRequest::begin(&mut out, request_id, level, deadline_ms, 8);
            for _ in 0..=choices.below(8) {
                let key = [b'a' + choices.byte() % 16];
                match choices.byte() % 4 {
                    0 | 1 => batch.get(&mut out, &key),
                    2 => {
                        let len = 4 * choices.below(64);
                        batch.set(&mut out, &key, &vec![7; len], Condition::Always);
                    }
                    _ => batch.del(&mut out, &key, Condition::Present),
                }
            }
            batch.finish(&mut out);
        }
    }
    out
}

/// By request id and item (none for a frame): how often.
type Answers = Tally<(u64, Option<u16>)>;

/// What the server said, checked for what it may say.
fn answers(received: &[u8]) -> Answers {
    let mut answers = Answers::new();
    let mut add = |request_id, item| *answers.entry((request_id, item)).or_default() += 1;
    let text_of_stranger = [Stranger::Redis, Stranger::Http].map(Stranger::answer);
    let is_answered = |text: &&str| received.ends_with(text.as_bytes());
    if text_of_stranger.iter().any(is_answered) {
        add(0, None);
    }
    for (header, body) in frames(received) {
        assert!(header.flags & FLAG_REPLY != 0);
        let status = Status::from_code(header.level_or_status).expect("a status");
        if status != Status::Ok {
            assert!(!text_of(body).expect("an error has a text").is_empty());
            add(header.request_id, None);
        } else if header.opcode == Opcode::Batch as u8 {
            let batch = Batch::read(body).expect("a batch");
            for number in 0..batch.len() {
                let item = ReplyItem::read(batch.item(number)).expect("a reply item");
                add(header.request_id, Some(item.head.item));
            }
        } else {
            assert_eq!(header.flags & FLAG_MORE, 0);
            add(header.request_id, None);
        }
    }
    answers
}

/// What must be answered in a stream, and whether the server ends the connection then.
fn asked(stream: &[u8]) -> (Answers, bool) {
    let mut receiver = Receiver::new(FRAME_BYTES_BEFORE_HELLO_MAX);
    let mut asked = Answers::new();
    let mut has_said_hello = false;
    let mut at = 0;
    match opening(stream) {
        Opening::Stranger(_) => {
            asked.insert((0, None), 1);
            return (asked, true);
        }
        Opening::Undecided => return (asked, false),
        Opening::Frame => {}
    }
    loop {
        let mut add = |request_id, item| *asked.entry((request_id, item)).or_default() += 1;
        match receiver.next(&stream[at..]) {
            Received::Incomplete { .. } => return (asked, false),
            Received::Skipped { consumed } => at += consumed,
            Received::Refused {
                header,
                consumed,
                is_fatal,
                ..
            } => {
                add(header.map_or(0, |header| header.request_id), None);
                if is_fatal || !has_said_hello {
                    return (asked, true);
                }
                at += consumed;
            }
            Received::Frame {
                header,
                body,
                consumed,
            } => {
                at += consumed;
                let is_hello = header.opcode == Opcode::Hello as u8;
                let request = match header.read_request() {
                    Ok(request) if is_hello != has_said_hello => Some(request),
                    _ => None,
                };
                match request {
                    Some((Opcode::Hello, _)) if ClientHello::read(body).is_ok() => {
                        has_said_hello = true;
                        receiver.set_frame_bytes_max(FRAME_BYTES_MAX);
                        add(header.request_id, None);
                    }
                    Some((Opcode::Batch, level)) if level != AckLevel::Replica => {
                        match Batch::read(body) {
                            Ok(batch) => (0..batch.len()).for_each(|item| {
                                let item = u16::try_from(item).expect("at most 1024 items");
                                add(header.request_id, Some(item));
                            }),
                            Err(_) => add(header.request_id, None),
                        }
                    }
                    _ => add(header.request_id, None),
                }
                if !has_said_hello {
                    return (asked, true);
                }
            }
        }
    }
}

/// One stream of one client, whole and in pieces.
fn cut(choices: &mut Choices<'_>) {
    let pieces = choices.byte();
    let pieces: Vec<usize> = choices
        .bytes(usize::from(pieces % 16))
        .iter()
        .map(|&piece| usize::from(piece))
        .collect();
    let mut stream = Vec::new();
    hello(&mut stream);
    for _ in 0..STEPS_MAX {
        if choices.is_empty() {
            break;
        }
        stream.extend(frame(choices, stream.len()));
    }
    let answers_to = |pieces: &[usize]| {
        let mut node = Node::new(1, 1 << 20);
        let connection = node.connect(0);
        let mut rest = &stream[..];
        for &piece in pieces {
            let (piece, behind) = rest.split_at(piece.min(rest.len()));
            node.send(connection, piece);
            node.turn(0);
            rest = behind;
        }
        node.send(connection, rest);
        node.settle();
        let received = node.connections.swap_remove(connection).received;
        // Replies come in any order, and where one batch is answered in several frames is the
        // log's to decide.
        let mut answers: Vec<(u64, Option<u16>, Vec<u8>)> = Vec::new();
        for (header, body) in frames(&received) {
            match Batch::read(body) {
                Ok(batch) if header.opcode == Opcode::Batch as u8 => {
                    for number in 0..batch.len() {
                        let bytes = batch.item(number);
                        let item = ReplyItem::read(bytes).expect("a reply item").head.item;
                        answers.push((header.request_id, Some(item), bytes.to_vec()));
                    }
                }
                _ => answers.push((header.request_id, None, body.to_vec())),
            }
        }
        answers.sort_unstable();
        answers
    };
    assert_eq!(
        answers_to(&pieces),
        answers_to(&[]),
        "in pieces of {pieces:?}"
    );
}

#[test]
fn days_of_a_node_are_kept() {
    let connect = |shard: u8| vec![0, shard];
    let batch = |connection: u8, id: u8| {
        [
            &[1, connection, 2, id, 5, 2, 0, 3][..],
            &[0, 2, 50, 1, 0, 2, 3, 3, 0],
        ]
        .concat()
    };
    let turn = |shard: u8| vec![6, shard, 7, shard, 0, 8, shard, 6, shard];
    let both = [turn(0), turn(1)].concat();
    let ping = vec![1, 0, 2, 3, 1, 1, 2, 3, 4];
    let named = |name: &str, manner: u8, steps: &[&[u8]]| {
        (name.to_string(), [&[manner][..], &steps.concat()].concat())
    };
    let good = [5, 2, 0, 3, 0, 2, 50, 1, 0, 2, 3, 3, 0, 2, 1, 9, 9, 9, 9];
    let inputs = [
        named("ping", 0, &[&connect(0), &ping, &both]),
        named(
            "two-clients",
            0,
            &[&connect(0), &connect(0), &batch(0, 1), &batch(1, 2), &both],
        ),
        named(
            "two-shards",
            1,
            &[
                &connect(0),
                &connect(1),
                &batch(0, 1),
                &both,
                &batch(1, 2),
                &both,
            ],
        ),
        named("no-hello", 1, &[&[200, 0], &ping, &both]),
        named(
            "gone-too-soon",
            1,
            &[&connect(0), &batch(0, 1), &[245, 0], &both],
        ),
        named(
            "slow",
            0,
            &[
                &connect(0),
                &[1, 0, 1, 1, 1, 9, 9, 20],
                &[9, 255, 9, 255, 9, 255, 9, 255, 9, 255],
                &turn(0),
            ],
        ),
        named(
            "noise",
            0,
            &[
                &connect(0),
                &[1, 0, 0],
                b"GET / HTTP/1.1\r\nHost: penstock\r\n\r\n",
            ],
        ),
        named(
            "cut",
            CUT,
            &[&[3, 5, 30, 70], &[1], &good, &[2], &good, &[3, 1, 4, 4]],
        ),
    ];
    keep(FOLDER, "sessions", &inputs);
}
