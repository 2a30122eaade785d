//! A connection of RESP beside a session that a test plays: order, cuts, bounds, the heap.

use std::sync::{Arc, LazyLock};

use penstock_net::apply::{Action, ApplyInstruction, Arithmetic, NumberAt, Operand};
use penstock_net::batch::Batch;
use penstock_net::frame::{HEADER_BYTES, Header, Medium, Opcode};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::pieces::Pieces;
use penstock_net::program::{
    Argument, ArgumentKind, Blank, Program, ProgramParts, Programs, ServedSchema,
};
use penstock_net::reply::{BatchReply, ReplyHead, write_error};
use penstock_net::request::{Request, Verb};
use penstock_net::resp::{Client, Conversation, Host, ReplyBound};
use penstock_net::status::Status;
use penstock_net::version::Version;

pub struct Still;

impl Host for Still {
    fn unix_us(&self) -> u64 {
        1_700_000_000_000_000
    }

    fn elapsed_us(&self) -> u64 {
        0
    }

    fn schema(&self) -> Arc<ServedSchema> {
        schema()
    }
}

/// The program `take`: a quantity from 1 to 10 from a stock, and a note of at most 5 bytes.
fn schema() -> Arc<ServedSchema> {
    static SCHEMA: LazyLock<Arc<ServedSchema>> = LazyLock::new(|| {
        let instruction = |key, action| ApplyInstruction {
            key,
            reason: 0,
            action,
        };
        let take = Program::new(ProgramParts {
            name: "take".into(),
            keys: vec!["stock".into(), "order".into()],
            arguments: vec![
                Argument {
                    name: "quantity".into(),
                    kind: ArgumentKind::Number { min: 1, max: 10 },
                },
                Argument {
                    name: "note".into(),
                    kind: ArgumentKind::Bytes { max: 5 },
                },
            ],
            instructions: vec![
                instruction(
                    0,
                    Action::Change(Arithmetic::Sub, NumberAt::decimal(), Operand::Immediate(0)),
                ),
                instruction(1, Action::Put { start: 0, len: 0 }),
            ],
            data: Vec::new(),
            blanks: vec![
                Blank::Operand {
                    instruction: 0,
                    argument: 0,
                },
                Blank::Value {
                    instruction: 1,
                    argument: 1,
                },
            ],
        });
        let programs = Programs::new(vec![take.expect("a sound program")]);
        Arc::new(ServedSchema {
            programs,
            layouts: Vec::new(),
            text: String::new(),
        })
    });
    Arc::clone(&SCHEMA)
}

fn conversation() -> Conversation {
    Conversation::new(Client::default(), Limits::default(), false)
}

/// An item that waits for its answer.
struct Asked {
    request_id: u64,
    item: u16,
    key: Vec<u8>,
    is_get: bool,
}

/// Gives the connection bytes; what it asks is added to `asked`. Returns the bytes that it left.
fn give(talk: &mut Conversation, bytes: &[u8], asked: &mut Vec<Asked>) -> usize {
    let mut at = 0;
    loop {
        let mut frame = Vec::new();
        let taken = talk.take(&bytes[at..], &mut frame, &Still);
        at += taken;
        if let Some(head) = frame.first_chunk::<HEADER_BYTES>() {
            let header = Header::decode(head);
            assert_eq!(header.len as usize, frame.len(), "one whole frame");
            let batch = Batch::read(&frame[HEADER_BYTES..]).expect("well formed");
            for number in 0..batch.len() {
                let item = batch.item(number);
                let read = Request::read(item, 1 << 20);
                asked.push(Asked {
                    request_id: header.request_id,
                    item: u16::try_from(number).expect("few"),
                    key: read.as_ref().map_or(Vec::new(), |read| read.key.to_vec()),
                    is_get: read.is_ok_and(|read| read.verb == Verb::Get),
                });
            }
        }
        if taken == 0 && frame.is_empty() {
            return bytes.len() - at;
        }
    }
}

/// The frame that answers these items: a GET with its key, others with OK.
fn answer(asked: &[&Asked]) -> Vec<u8> {
    let mut out = Pieces::default();
    let id = asked[0].request_id;
    let mut reply = BatchReply::begin(&mut out, id, asked.len()).over(Medium::Memory);
    for one in asked {
        assert_eq!(one.request_id, id);
        let version = Version {
            epoch: 1,
            sequence: 1,
        };
        let head = ReplyHead::new(Status::Ok, one.item, AckLevel::Disk, version);
        let value: &[u8] = if one.is_get {
            &one.key
        } else {
            &[5, 0, 0, 0, 0, 0, 0, 0]
        };
        head.write(out.written(), value);
        reply.end_item(&mut out);
    }
    assert!(reply.finish(&mut out, 0, false, false));
    out.into_bytes()
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

fn pipeline() -> (Vec<u8>, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut expected = Vec::new();
    for (words, reply) in [
        (&["GET", "a"][..], "$1\r\na\r\n"),
        (&["PING"], "+PONG\r\n"),
        (&["SET", "k", "v"], "+OK\r\n"),
        (
            &["MGET", "x", "y", "zz"],
            "*3\r\n$1\r\nx\r\n$1\r\ny\r\n$2\r\nzz\r\n",
        ),
        (&["INCR", "n"], ":5\r\n"),
        (&["DEL", "a", "b", "c"], ":3\r\n"),
        (&["MSET", "a", "1", "b", "2"], "+OK\r\n"),
        (
            &["NOPE"],
            "-ERR unknown command 'NOPE', with args beginning with: \r\n",
        ),
        (&["GETRANGE", "abc", "1", "-1"], "$2\r\nbc\r\n"),
        (&["EXISTS", "a", "a"], ":2\r\n"),
        (&["ECHO", "e"], "$1\r\ne\r\n"),
    ] {
        bytes.extend(command(words));
        expected.extend(reply.bytes());
    }
    (bytes, expected)
}

/// A number that follows from the one before.
fn next(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    usize::try_from(*seed >> 40).expect("24 bits")
}

#[test]
fn replies_leave_in_the_order_of_their_commands_whatever_order_the_answers_have() {
    let (bytes, expected) = pipeline();
    for mut seed in 0..300 {
        let mut talk = conversation();
        let mut asked = Vec::new();
        // In two reads, so that there is more than one frame.
        let cut = next(&mut seed) % bytes.len();
        let left = give(&mut talk, &bytes[..cut], &mut asked);
        let rest = [&bytes[cut - left..cut], &bytes[cut..]].concat();
        assert_eq!(give(&mut talk, &rest, &mut asked), 0);
        let mut out = Vec::new();
        while !asked.is_empty() {
            let one = asked.swap_remove(next(&mut seed) % asked.len());
            talk.answered(&answer(&[&one]), &Still);
            out.append(talk.out());
            assert!(expected.starts_with(&out), "seed {seed}");
        }
        assert_eq!(out, expected, "seed {seed}");
        assert!(!talk.holds_replies());
    }
}

#[test]
fn a_refused_frame_is_the_error_of_each_of_its_commands() {
    let mut talk = conversation();
    let mut asked = Vec::new();
    let bytes = [
        command(&["GET", "a"]),
        command(&["MSET", "a", "1", "b", "2"]),
    ]
    .concat();
    give(&mut talk, &bytes, &mut asked);
    let mut header = Header::request(Opcode::Batch, asked[0].request_id, AckLevel::None, 0);
    header.len = 32;
    let mut frame = Vec::new();
    write_error(&mut frame, Some(&header), Status::Busy, 7, 0, &"no room");
    talk.answered(&frame, &Still);
    let busy = "-BUSY no room; try again in 7 ms\r\n";
    assert_eq!(talk.out(), &busy.repeat(2).into_bytes());
}

#[test]
fn a_connection_that_does_not_take_its_answers_is_blocked_at_the_bound_of_the_ring() {
    let mut talk = conversation();
    let mut asked = Vec::new();
    let bytes = command(&["GET", "k"]).repeat(100_000);
    let left = give(&mut talk, &bytes, &mut asked);
    assert!(talk.is_blocked() && left > 0);
    assert_eq!(asked.len(), 4096);
    let keys: Vec<String> = (0..100_000).map(|number| format!("k{number}")).collect();
    let mut talk = conversation();
    let words: Vec<&str> = ["DEL"]
        .into_iter()
        .chain(keys.iter().map(String::as_str))
        .collect();
    let bytes = command(&words);
    asked.clear();
    let mut left = give(&mut talk, &bytes, &mut asked);
    let mut answered = 0;
    while !asked.is_empty() {
        assert!(asked.len() <= 2 * 4096);
        answered += asked.len();
        for one in std::mem::take(&mut asked) {
            talk.answered(&answer(&[&one]), &Still);
        }
        left = give(&mut talk, &bytes[bytes.len() - left..], &mut asked);
    }
    assert_eq!((answered, left), (100_000, 0));
    assert_eq!(talk.out(), b":100000\r\n");
}

#[test]
fn while_there_is_no_room_for_replies_few_commands_are_under_way_and_all_have_their_turn() {
    let many: Vec<&str> = std::iter::once("DEL").chain(["k"; 100]).collect();
    let cases = [
        (command(&["GET", "k"]).repeat(1_000), 16),
        (command(&many), 100),
    ];
    for (bytes, at_once) in cases {
        let mut talk = conversation();
        talk.bound_replies(ReplyBound {
            one: 1 << 20,
            left: 0,
        });
        let (mut asked, mut answered) = (Vec::new(), 0);
        let mut left = give(&mut talk, &bytes, &mut asked);
        let items = bytes.iter().filter(|byte| **byte == b'k').count();
        while !asked.is_empty() {
            assert!(asked.len() <= at_once, "{} at once", asked.len());
            assert_eq!(talk.kept_bytes(), 0);
            answered += asked.len();
            for one in std::mem::take(&mut asked) {
                talk.answered(&answer(&[&one]), &Still);
            }
            talk.out().clear();
            left = give(&mut talk, &bytes[bytes.len() - left..], &mut asked);
        }
        assert_eq!((answered, left), (items, 0));
    }
}

#[test]
fn what_is_answered_here_and_not_read_blocks_the_connection() {
    let mut talk = conversation();
    let bytes = command(&["PING"]).repeat(100_000);
    let left = give(&mut talk, &bytes, &mut Vec::new());
    assert!(talk.is_blocked() && left > 0);
    assert!((64 << 10..65 << 10).contains(&talk.out().len()));
    talk.out().clear();
    assert!(give(&mut talk, &bytes[bytes.len() - left..], &mut Vec::new()) < left);
}

#[test]
fn warm_commands_take_nothing_from_the_heap() {
    let mut talk = conversation();
    let (bytes, expected) = pipeline();
    let clean: Vec<u8> = [
        command(&["GET", "a"]),
        command(&["SET", "k", "v"]),
        command(&["SET", "k", "v", "EX", "10"]),
        command(&["INCR", "n"]).repeat(9),
        command(&["PING"]),
        command(&["GET", "a"]).repeat(5),
        command(&["GET", "another key"]),
        command(&["SET", "l", "a value"]),
        command(&["GET", "b"]),
        command(&["INCR", "m"]),
        command(&["DEL", "m"]),
        command(&["DEL", "n"]),
        command(&["DEL", "a", "b", "c"]),
        command(&["EXPIRE", "a", "10"]),
        command(&["TTL", "a"]),
        command(&["MGET", "x", "y", "zz"]),
        command(&["MSET", "a", "1", "b", "2"]),
        command(&[
            "KV.RUN",
            "take",
            "{s}",
            "KEY",
            "{s}1",
            "quantity=7",
            "note=hello",
        ]),
    ]
    .concat();
    let mut asked = Vec::new();
    give(&mut talk, &bytes, &mut asked);
    let all: Vec<&Asked> = asked.iter().collect();
    talk.answered(&answer(&all), &Still);
    assert_eq!(talk.out(), &expected);
    talk.out().clear();
    let mut frame = Vec::with_capacity(64 << 10);
    for round in 0..20 {
        // What is asked does not change but for the number of the request.
        frame.clear();
        let mut probe = Vec::new();
        let taken = allocation_counter::measure(|| {
            assert_eq!(talk.take(&clean, &mut frame, &Still), clean.len());
        });
        let header = Header::decode(frame.first_chunk().expect("a frame"));
        let batch = Batch::read(&frame[HEADER_BYTES..]).expect("well formed");
        for number in 0..batch.len() {
            let read = Request::read(batch.item(number), 1 << 20);
            probe.push(Asked {
                request_id: header.request_id,
                item: u16::try_from(number).expect("few"),
                key: read.as_ref().map_or(Vec::new(), |read| read.key.to_vec()),
                is_get: read.is_ok_and(|read| read.verb == Verb::Get),
            });
        }
        let replies = answer(&probe.iter().collect::<Vec<_>>());
        let answered = allocation_counter::measure(|| talk.answered(&replies, &Still));
        talk.out().clear();
        if round > 2 {
            assert_eq!(
                (taken.count_total, answered.count_total),
                (0, 0),
                "round {round}"
            );
        }
    }
}
