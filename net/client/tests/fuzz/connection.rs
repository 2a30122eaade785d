//! The client's connection against a server that sends what it likes, in pieces of any size.
//!
//! An input is a list of steps: operations are queued and sent, time passes, the server answers
//! well or badly, the connection is lost. Two connections live the same life, but one gets the
//! server's bytes whole and the other in pieces: both must tell the same outcomes, each operation
//! one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Connection, Item, Queued, What};
use crate::named::NamedWrite;
use crate::operation::{Answer, ClientError};
use crate::options::ClientOptions;
use crate::queued::{FrameWaiter, Waiter};
use crate::target::{Choices, keep};
use penstock_net::batch::Batch;
use penstock_net::frame::{Header, Opcode, write_frame};
use penstock_net::hello::{AUTH_NONE, ClientHello, FEATURE_TOKENS, ServerHello};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::pieces::Pieces;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{BatchReply, ReplyHead, write_error};
use penstock_net::request::{Ask, Condition, Expiry, Request, Token, Version, Wanted, When};
use penstock_net::status::Status;

crate::target!(connection, "tests/fuzz", judge);

const STEPS_MAX: usize = 200;

/// The outcomes of one connection's operations: by operation, in any words that tell them apart.
#[derive(Clone, Default)]
struct Outcomes(Arc<Mutex<Vec<Vec<String>>>>);

impl Outcomes {
    fn open(&self) -> usize {
        let mut all = self.0.lock().expect("nobody panics with it");
        all.push(Vec::new());
        all.len() - 1
    }

    fn note(&self, operation: usize, outcome: String) {
        self.0.lock().expect("nobody panics with it")[operation].push(outcome);
    }
}

struct Wait {
    operation: usize,
    outcomes: Outcomes,
}

impl Waiter for Wait {
    fn sent(&self, _is_named: bool) {}

    fn put_back(&self) {}

    fn done(&self, outcome: Result<Answer, ClientError>) {
        // What the caller would make of it must be a text as well.
        let text = match &outcome {
            Ok(answer) => format!(
                "{answer:?} {:?}",
                answer.clone().ok().map_err(|e| e.to_string())
            ),
            Err(error) => format!("{error:?} {error}"),
        };
        self.outcomes.note(self.operation, text);
    }
}

impl FrameWaiter for Wait {
    fn sent(&self) {}

    fn done(&self, outcome: Result<&[u8], ClientError>) {
        self.outcomes.note(self.operation, format!("{outcome:?}"));
    }
}

/// One client and what it has said.
struct Side {
    connection: Connection,
    queue: VecDeque<Queued>,
    outcomes: Outcomes,
    pending: Arc<AtomicUsize>,
    out: Vec<u8>,
    error: Option<ClientError>,
}

impl Side {
    fn new() -> Side {
        let (connection, out) =
            Connection::begin(&ClientOptions::default(), None).expect("no login");
        Side {
            connection,
            queue: VecDeque::new(),
            outcomes: Outcomes::default(),
            pending: Arc::default(),
            out,
            error: None,
        }
    }

    fn ask(&mut self, what: usize, until: Instant) {
        let done = Box::new(Wait {
            operation: self.outcomes.open(),
            outcomes: self.outcomes.clone(),
        });
        let key = b"stock:42";
        let item = match what % 6 {
            0 => Ask::Get {
                key,
                wanted: Wanted::ValueAndExpiry,
            },
            1 => Ask::Set {
                key,
                value: &[7; 40],
                when: Condition::Absent.showing(),
                expiry: Expiry::In(1),
            },
            2 => Ask::Del {
                key,
                when: When::from(Condition::Version(Version {
                    epoch: 1,
                    sequence: 2,
                })),
            },
            3 => Ask::UpdateIf {
                key,
                second_key: Some(b"other"),
                instructions: &[],
                start: Some(&[1]),
                expiry: Expiry::Keep,
            },
            other => {
                let opcode = [Opcode::Ping, Opcode::Info][other - 4];
                let what = What::Frame {
                    opcode,
                    body: &[],
                    done,
                };
                let queued = Queued::new(what, until, &self.pending);
                return self.queue.push_back(queued);
            }
        };
        // A GET needs no token.
        let item = match item.needs_token() {
            true => Item::Named {
                write: NamedWrite::new(&item, Token::new(1, [7; 10])),
                by_caller: what.is_multiple_of(2),
            },
            false => Item::of(&item),
        };
        let what = What::Item { item, done };
        let queued = Queued::new(what, until, &self.pending);
        self.queue.push_back(queued);
    }

    fn receive(&mut self, bytes: &[u8]) {
        let mut outcome = Ok(());
        let used = allocation_counter::measure(|| outcome = self.connection.receive(bytes));
        // What arrived, grown by doubling; answers and the words of their outcomes.
        let bound = 64 * bytes.len() as u64 + (64 << 10);
        assert!(
            used.bytes_max <= bound,
            "{used:?} for {} bytes",
            bytes.len()
        );
        for (queued, answer) in self.connection.take_elsewhere() {
            assert!(matches!(queued.what, What::Item { .. }));
            queued.settle(Ok(answer));
        }
        for refused in self.connection.take_refused() {
            assert!(matches!(refused.queued.what, What::Item { .. }));
            refused.queued.settle(refused.outcome);
        }
        if self.error.is_none() {
            self.error = outcome.err();
        }
    }
}

fn judge(input: &[u8]) {
    let start = Instant::now();
    let mut now = start;
    let mut choices = Choices::new(input);
    let (mut whole, mut pieces) = (Side::new(), Side::new());
    for _ in 0..STEPS_MAX {
        if choices.is_empty() || whole.error.is_some() {
            break;
        }
        let mut served = Vec::new();
        match choices.byte() % 8 {
            0 | 1 => {
                let (what, ms) = (choices.below(6), choices.below(256));
                for side in [&mut whole, &mut pieces] {
                    side.ask(what, now + Duration::from_millis(ms as u64));
                }
            }
            2 => {
                for side in [&mut whole, &mut pieces] {
                    side.connection.send(&mut side.queue, now, &mut side.out);
                }
            }
            3 => now += Duration::from_millis(choices.below(256) as u64),
            4 => {
                for side in [&mut whole, &mut pieces] {
                    side.connection.expire(now);
                }
            }
            5 => reply(&mut choices, &mut served),
            6 => hello(&mut choices, &mut served),
            _ => served.extend_from_slice(choices.bytes(40)),
        }
        if served.is_empty() {
            continue;
        }
        whole.receive(&served);
        let step = choices.below(served.len()) + 1;
        for piece in served.chunks(step) {
            if pieces.error.is_none() {
                pieces.receive(piece);
            }
        }
        assert_eq!(whole.error, pieces.error, "in pieces of {step}");
    }
    // What is left of the input is the server's last word.
    let noise = choices.rest();
    for side in [&mut whole, &mut pieces] {
        side.receive(noise);
    }
    let ends = [whole, pieces].map(|side| end(side, start));
    assert_eq!(ends[0], ends[1]);
}

/// The connection is given up: then every operation that was sent has one outcome, and those that
/// still wait in the queue have none.
fn end(mut side: Side, start: Instant) -> (Vec<Vec<String>>, Vec<u8>) {
    let all = side.outcomes.0.lock().expect("nobody panics with it").len();
    let open = side.connection.under_way() + side.queue.len();
    let ended = |side: &Side| {
        let outcomes = side.outcomes.0.lock().expect("nobody panics with it");
        assert!(outcomes.iter().all(|it| it.len() <= 1), "{outcomes:?}");
        outcomes.iter().filter(|it| it.len() == 1).count()
    };
    assert_eq!(ended(&side) + open, all, "each is told of or open");
    for queued in side.connection.lose("the end") {
        assert!(queued.may_be_repeated(true));
        assert_eq!(queued.is_in_doubt, queued.token().is_some());
        queued.fail(ClientError::Unknown("the end".into()));
    }
    assert_eq!(side.connection.under_way(), 0);
    let pending = || side.pending.load(Ordering::Relaxed);
    assert_eq!(
        pending(),
        side.queue.len(),
        "each that is over counts no more"
    );
    assert_eq!(
        ended(&side) + side.queue.len(),
        all,
        "each sent one is told of"
    );
    side.connection.expire(start);
    check_sent(&side.out);
    let outcomes = side
        .outcomes
        .0
        .lock()
        .expect("nobody panics with it")
        .clone();
    (outcomes, side.out)
}

/// What a client says is what a server reads.
fn check_sent(mut bytes: &[u8]) {
    let mut receiver = Receiver::new(u32::MAX);
    let mut is_first = true;
    while !bytes.is_empty() {
        let Received::Frame {
            header,
            body,
            consumed,
        } = receiver.next(bytes)
        else {
            panic!("the client sent no frame");
        };
        let (opcode, _) = header.read_request().expect("a request");
        assert_eq!(opcode == Opcode::Hello, is_first);
        if opcode == Opcode::Hello {
            ClientHello::read(body).expect("HELLO");
        }
        if opcode == Opcode::Batch {
            let batch = Batch::read(body).expect("a batch");
            for number in 0..batch.len() {
                Request::read(batch.item(number), 1 << 20).expect("an item");
            }
        }
        is_first = false;
        bytes = &bytes[consumed..];
    }
}

/// A frame in the form of a reply, right in its form and free in what it says.
fn reply(choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    let request_id = choices.below(8) as u64;
    let status = Status::ALL[choices.below(Status::ALL.len())];
    match choices.byte() % 4 {
        0 | 1 => {
            let items = 1 + choices.below(4);
            let mut pieces = Pieces::default();
            let mut batch = BatchReply::begin(&mut pieces, request_id, items);
            for _ in 0..items {
                let number = u16::from(choices.byte() % 6);
                let head = ReplyHead::new(status, number, AckLevel::Disk, Version::default());
                head.write(pieces.written(), choices.bytes(9));
                batch.end_item(&mut pieces);
            }
            batch.finish(&mut pieces, 0, choices.byte().is_multiple_of(2), false);
            out.extend_from_slice(&pieces.into_bytes());
        }
        2 => {
            let header = Header::request(Opcode::Ping, request_id, AckLevel::None, 0);
            write_error(out, Some(&header), status, 3, 0, &"as the server words it");
        }
        _ => {
            let opcode = [2, 3, 0x10, choices.byte()][choices.below(4)];
            let mut header = Header::reply(opcode, request_id, status, 0);
            header.flags = choices.byte();
            write_frame(out, header, choices.bytes(24));
        }
    }
}

fn hello(choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    let limit = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let limits = Limits {
        frame_bytes_max: limit(choices.number()),
        value_bytes_max: limit(choices.number()),
    };
    let hello = ServerHello {
        protocol: 1,
        shard: 0,
        shard_count: 1,
        auth_methods: AUTH_NONE,
        cluster_id: [1; 16],
        node_id: [2; 16],
        incarnation: 1,
        features: [0, FEATURE_TOKENS][choices.below(2)],
        nonce: [0; 32],
        limits,
        time_ms: 0,
        interval_ms: 100,
        slots: Vec::new(),
        placement: None,
    };
    hello.write(out, 0);
}

#[test]
fn lives_of_a_connection_are_kept() {
    let named = |name: &str, steps: &[u8]| (name.to_string(), steps.to_vec());
    let hello_of = |names| [6, 2 << 6 | 21, 0, 2 << 6 | 20, 0, names, 7];
    let hello = hello_of(0);
    let ask = |what| [0, what, 100];
    let send = [2];
    let good = |request| [5, request, 0, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 3];
    let answered = [&hello[..], &ask(0), &send, &good(1)].concat();
    let batch = [&hello[..], &ask(0), &ask(1), &ask(3), &send, &good(1)].concat();
    let frames = [&ask(4)[..], &ask(5), &send, &[5, 1, 0, 3, 0, 0, 1, 9, 9]].concat();
    let refused = [&hello[..], &ask(2), &send, &[5, 1, 7, 2, 5]].concat();
    let late = [&ask(0)[..], &send, &[3, 200, 4], &good(1)].concat();
    let noise = [
        &ask(1)[..],
        &send,
        &[7],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ]
    .concat();
    let ping_by_batch = [&ask(4)[..], &send, &good(1)].concat();
    let batch_by_ping = [&ask(0)[..], &send, &[5, 1, 0, 3, 0, 0, 1, 0]].concat();
    let token = [&hello_of(1)[..], &ask(3), &send, &good(1)].concat();
    let lost = [&hello_of(1)[..], &ask(1), &ask(3), &send].concat();
    let no_token = [&hello[..], &ask(2), &ask(1), &send, &good(1)].concat();
    let inputs = [
        named("token-answered", &token),
        named("tokens-lost", &lost),
        named("token-of-the-caller-at-an-old-server", &no_token),
        named("ping-answered-by-a-batch", &ping_by_batch),
        named("batch-answered-by-a-ping", &batch_by_ping),
        named("one-answer", &answered),
        named("three-in-a-batch", &batch),
        named("ping-and-info", &frames),
        named("whole-frame-refused", &refused),
        named("answered-too-late", &late),
        named("no-penstock", &noise),
    ];
    keep(
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz"),
        "connection",
        &inputs,
    );
}
