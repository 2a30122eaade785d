//! The client against a small server of the test's own: a map behind the codec, which answers in
//! the way that each test wants.

mod facts;
mod silence;
mod tokens;

use std::collections::HashMap;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use penstock_client::{Apply, BitTest, Client, ClientError, ClientOptions, Field, Rate, Verbs};
use penstock_net::apply::{Action, ApplyRequest};
use penstock_net::batch::Batch;
use penstock_net::frame::{Header, Opcode};
use penstock_net::hello::{AUTH_NONE, FEATURE_APPLY, FEATURE_SHOWN, ServerHello};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::pieces::Pieces;
use penstock_net::placement::{NodeAddress, Placement, Writer, WriterRange};
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{BatchReply, ITEM_FLAG_SHOWN, ReplyHead, write_error, write_ping_reply};
use penstock_net::request::{Condition, Extra, Request, Verb, Version};
use penstock_net::status::Status;

/// A port below the range that the system gives out, so no other program gets it meanwhile.
const NOBODY: u16 = 1;

#[derive(Clone, Copy)]
enum Manner {
    /// One frame for each request.
    Whole,
    /// A frame for each item, the last item first, byte by byte.
    Scattered,
    /// The connection ends instead of the answer to this many-th batch, then all is well.
    DiesAt(usize),
    /// It does not show what keeps a condition from holding, refuses to be asked for it, and does
    /// not know APPLY.
    ShowsNothing,
    /// Another writer is faster than each write under a condition.
    IsFaster,
    /// A flipped bit in the first reply to a batch.
    Lies,
    /// Another node writes all keys, in this generation.
    Sends(u32, SocketAddr),
    /// It has not begun before so many batches were asked.
    BeginsAt(usize),
    /// It answers BUSY from this batch on, and does not before that other one.
    IsBusy(usize, usize),
    /// It answers BUSY to this many-th batch, and the connection ends instead of the next answer.
    IsBusyAndDies(usize),
    /// It answers BUSY to this many-th batch by an error frame.
    RefusesFrame(usize),
}

/// Serves until the test ends; connections come one after the other.
fn serve(manner: Manner) -> SocketAddr {
    serve_counting(manner, Vec::new()).0
}

/// The same, and how many batches it was asked; HELLO tells the placement.
fn serve_counting(manner: Manner, nodes: Vec<NodeAddress>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let batches = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&batches);
    std::thread::spawn(move || {
        let mut map = HashMap::new();
        for stream in listener.incoming().flatten() {
            converse(stream, manner, &nodes, &mut map, &counted);
        }
    });
    (address, batches)
}

fn converse(
    mut stream: TcpStream,
    manner: Manner,
    nodes: &[NodeAddress],
    map: &mut HashMap<Vec<u8>, (u64, Vec<u8>)>,
    batches: &AtomicUsize,
) {
    let mut receiver = Receiver::new(1 << 20);
    let mut buffer = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match receiver.next(&buffer) {
            Received::Frame {
                header,
                body,
                consumed,
            } => {
                let mut out = Vec::new();
                match Opcode::from_code(header.opcode) {
                    Some(Opcode::Hello) => {
                        let features = match manner {
                            Manner::ShowsNothing => 0,
                            _ => FEATURE_SHOWN | FEATURE_APPLY,
                        };
                        hello(nodes, features).write(&mut out, header.request_id);
                    }
                    Some(Opcode::Batch) => {
                        let before = batches.fetch_add(1, Ordering::Relaxed);
                        let manner = match manner {
                            Manner::DiesAt(number) if before == number => return,
                            Manner::BeginsAt(number) if before >= number => Manner::Whole,
                            Manner::IsBusy(from, to) if !(from..to).contains(&before) => {
                                Manner::Whole
                            }
                            Manner::IsBusyAndDies(number) if before == number + 1 => return,
                            Manner::IsBusyAndDies(number) | Manner::RefusesFrame(number)
                                if before != number =>
                            {
                                Manner::Whole
                            }
                            manner => manner,
                        };
                        match manner {
                            Manner::RefusesFrame(_) => {
                                let text = "there is no room for a frame";
                                let busy = Status::Busy;
                                write_error(&mut out, Some(&header), busy, 1, 0, &text);
                            }
                            _ => answer(manner, header.request_id, body, map, &mut out),
                        }
                        if matches!(manner, Manner::Lies) {
                            out[40] ^= 1;
                        }
                    }
                    _ => write_ping_reply(&mut out, &header, body, 0),
                }
                buffer.drain(..consumed);
                let step = if matches!(manner, Manner::Scattered) {
                    1
                } else {
                    out.len()
                };
                if out
                    .chunks(step.max(1))
                    .any(|piece| stream.write_all(piece).is_err())
                {
                    return;
                }
                continue;
            }
            Received::Incomplete { .. } => {}
            other => panic!("the client sent {other:?}"),
        }
        match stream.read(&mut chunk) {
            Ok(read @ 1..) => buffer.extend_from_slice(&chunk[..read]),
            _ => return,
        }
    }
}

/// Writes the answer to each frame of a connection, until the client ends the connection or there
/// is no answer.
fn answer_frames(mut stream: TcpStream, mut answer: impl FnMut(&Header, &[u8]) -> Option<Vec<u8>>) {
    let mut receiver = Receiver::new(1 << 20);
    let (mut buffer, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        if let Received::Frame {
            header,
            body,
            consumed,
        } = receiver.next(&buffer)
        {
            let Some(out) = answer(&header, body) else {
                return;
            };
            buffer.drain(..consumed);
            if stream.write_all(&out).is_err() {
                return;
            }
            continue;
        }
        match stream.read(&mut chunk) {
            Ok(read @ 1..) => buffer.extend_from_slice(&chunk[..read]),
            _ => return,
        }
    }
}

fn hello(nodes: &[NodeAddress], features: u64) -> ServerHello {
    let range = WriterRange {
        first: 0,
        last: 255,
        node: 1,
        generation: 1,
    };
    let placement = Placement {
        version: 256,
        nodes: nodes.to_vec(),
        writers: vec![range],
    };
    ServerHello {
        protocol: 1,
        shard: 0,
        shard_count: 1,
        auth_methods: AUTH_NONE,
        cluster_id: [1; 16],
        node_id: [2; 16],
        incarnation: 1,
        features,
        nonce: [0; 32],
        limits: Limits::default(),
        time_ms: 0,
        interval_ms: 100,
        slots: Vec::new(),
        placement: (!nodes.is_empty()).then_some(placement),
    }
}

fn answer(
    manner: Manner,
    request_id: u64,
    body: &[u8],
    map: &mut HashMap<Vec<u8>, (u64, Vec<u8>)>,
    out: &mut Vec<u8>,
) {
    let batch = Batch::read(body).expect("a batch");
    let items: Vec<Vec<u8>> = (0..batch.len())
        .map(|number| {
            if let Ok(request) = ApplyRequest::read(batch.item(number), 1 << 20) {
                return apply(number, &request);
            }
            one(
                manner,
                number,
                &Request::read(batch.item(number), 1 << 20).expect("an item"),
                map,
            )
        })
        .collect();
    let mut frame = |items: &[Vec<u8>], more| {
        let mut pieces = Pieces::default();
        let mut reply = BatchReply::begin(&mut pieces, request_id, items.len());
        if matches!(manner, Manner::IsBusy(..) | Manner::IsBusyAndDies(_)) {
            reply = reply.retry_after(1);
        }
        for item in items {
            let item = Pieces::from(item.clone());
            reply.raw(&mut pieces, &mut item.reader(), item.len());
        }
        reply.finish(&mut pieces, 0, more, false);
        out.extend_from_slice(&pieces.into_bytes());
    };
    match manner {
        Manner::Scattered => items
            .iter()
            .enumerate()
            .rev()
            .for_each(|(number, item)| frame(std::slice::from_ref(item), number > 0)),
        _ => frame(&items, false),
    }
}

fn one(
    manner: Manner,
    number: usize,
    request: &Request<'_>,
    map: &mut HashMap<Vec<u8>, (u64, Vec<u8>)>,
) -> Vec<u8> {
    let item = u16::try_from(number).expect("small");
    let found = map.get(request.key).cloned();
    let version = |sequence| Version { epoch: 1, sequence };
    let head = |status, sequence| ReplyHead::new(status, item, AckLevel::Disk, version(sequence));
    let mut out = Vec::new();
    let refused = match manner {
        Manner::Sends(generation, address) => {
            let version = Writer::version(2, generation);
            let text = format!("partition 7 is written by node 2 at {address}");
            Some((Status::Moved, version, text))
        }
        Manner::BeginsAt(_) => {
            let text = "this node is to write it and has not begun".to_string();
            Some((Status::NotPrimary, Writer::version(1, 1), text))
        }
        Manner::IsBusy(..) | Manner::IsBusyAndDies(_) => {
            let text = "a queue is full".to_string();
            Some((Status::Busy, Version::default(), text))
        }
        _ => None,
    };
    if let Some((status, version, text)) = refused {
        ReplyHead::new(status, item, AckLevel::Disk, version).write_message(&mut out, &text);
        return out;
    }
    match (request.verb, found) {
        (Verb::Get, Some((sequence, value))) => head(Status::Ok, sequence).write(&mut out, &value),
        (Verb::Set, found) => {
            let found = match manner {
                Manner::IsFaster if request.condition != Condition::Always => {
                    let sequence = found.map_or(0, |(sequence, _)| sequence) + 1;
                    let faster = (sequence, b"of another".to_vec());
                    map.insert(request.key.to_vec(), faster.clone());
                    Some(faster)
                }
                _ => found,
            };
            let sequence = found.as_ref().map_or(0, |(sequence, _)| *sequence);
            let fails = match (request.condition, &found) {
                (Condition::Absent, Some(_)) => Some(Status::Exists),
                (Condition::Version(_), None) => Some(Status::NotFound),
                (Condition::Version(wanted), _) => {
                    (wanted != version(sequence)).then_some(Status::VersionMismatch)
                }
                _ => None,
            };
            let shows = request.extra == Extra::Show;
            assert!(!shows || !matches!(manner, Manner::ShowsNothing));
            if let Some(status) = fails {
                let mut head = head(status, sequence);
                let shown = found.filter(|_| shows).map(|(_, value)| value);
                head.flags = shown.as_ref().map_or(0, |_| ITEM_FLAG_SHOWN);
                head.write(&mut out, &shown.unwrap_or_default());
            } else {
                map.insert(request.key.to_vec(), (sequence + 1, request.value.to_vec()));
                head(Status::Ok, sequence + 1).write(&mut out, &[]);
            }
        }
        (Verb::UpdateIf, Some(_)) => {
            let failed = ReplyHead {
                reason: request.instruction(0).reason,
                instruction: 0,
                ..head(Status::GuardFailed, 1)
            };
            failed.write(&mut out, &5u64.to_le_bytes());
        }
        _ => head(Status::NotFound, 0).write(&mut out, &[]),
    }
    out
}

/// Denies what the last instruction asks for, in the way of its kind.
fn apply(number: usize, request: &ApplyRequest<'_>) -> Vec<u8> {
    let item = u16::try_from(number).expect("small");
    let version = |sequence| Version { epoch: 1, sequence };
    let last = request.instructions().last().expect("one instruction");
    let (status, value) = match last.action {
        Action::Exists => (Status::NotFound, Vec::new()),
        Action::Version(_) => (Status::VersionMismatch, version(7).to_bytes().to_vec()),
        Action::Rate(..) => (Status::GuardFailed, 1_500u64.to_le_bytes().to_vec()),
        Action::Bits(..) => (Status::GuardFailed, 6u64.to_le_bytes().to_vec()),
        _ => (Status::Ok, [41u64, 42].map(u64::to_le_bytes).concat()),
    };
    let mut head = ReplyHead::new(status, item, AckLevel::Disk, version(3));
    if status != Status::Ok {
        head.reason = last.reason;
        head.instruction = u8::try_from(request.instructions().count() - 1).expect("few");
    }
    let mut out = Vec::new();
    head.write(&mut out, &value);
    out
}

fn connect(address: SocketAddr) -> Client {
    Client::connect(
        address,
        ClientOptions {
            deadline: Duration::from_secs(20),
            ..ClientOptions::default()
        },
    )
    .expect("connected")
}

#[test]
fn operations_of_many_threads_share_a_connection_and_get_their_own_answers() {
    for manner in [Manner::Whole, Manner::Scattered] {
        let client = connect(serve(manner));
        std::thread::scope(|scope| {
            for thread in 0..8u32 {
                let client = client.clone();
                scope.spawn(move || {
                    let keys: Vec<Vec<u8>> = (0..50u32)
                        .map(|n| format!("{thread}:{n}").into_bytes())
                        .collect();
                    let sets: Vec<_> = keys.iter().map(|key| client.set(key, key)).collect();
                    sets.into_iter()
                        .for_each(|set| drop(set.wait().expect("set")));
                    let gets: Vec<_> = keys.iter().map(|key| (key, client.get(key))).collect();
                    for (key, get) in gets {
                        assert_eq!(
                            get.wait().expect("get").expect("present").bytes,
                            key.as_slice()
                        );
                    }
                });
            }
        });
        assert_eq!(client.get(b"missing").wait(), Ok(None));
    }
}

#[test]
fn what_was_sent_before_the_connection_broke_is_unknown_and_the_next_operation_connects_again() {
    let client = connect(serve(Manner::DiesAt(1)));
    client.set(b"a", b"1").wait().expect("the first batch");
    assert!(matches!(
        client.set(b"a", b"2").wait(),
        Err(ClientError::Unknown(_))
    ));
    assert_eq!(
        client
            .get(b"a")
            .wait()
            .expect("connected again")
            .expect("present")
            .bytes,
        &b"1"[..]
    );
}

#[test]
fn a_reply_that_does_not_check_is_not_believed() {
    let client = connect(serve(Manner::Lies));
    assert!(matches!(
        client.get(b"a").wait(),
        Err(ClientError::Unknown(it)) if it.text().contains("CRC")
    ));
}

#[test]
fn a_failed_guard_shows_the_reason_and_the_actual_value() {
    let client = connect(serve(Manner::Whole));
    client
        .set(b"stock", &5u64.to_le_bytes())
        .wait()
        .expect("set");
    match client
        .update_if(b"stock", &[Field::u64(0).or_else(9).at_least(6)])
        .wait()
    {
        Err(ClientError::No(answer)) => assert_eq!(
            (answer.status, answer.reason, answer.actual()),
            (Status::GuardFailed, 9, Some(5))
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_apply_returns_its_numbers_or_what_did_not_hold() {
    let client = connect(serve(Manner::Whole));
    let mut order = Apply::new();
    let (stock, limit) = (order.key(b"{a}stock"), order.key(b"{a}limit"));
    order.then(stock.u32(0).decrease(1u64)).then(stock.exists());
    let asked = |last| {
        let mut order = order.clone();
        order.then(last);
        client.apply(&order).wait()
    };
    let done = asked(limit.u64(0).returned()).expect("all of it");
    assert_eq!(
        (&done.fields[..], done.version.sequence),
        (&[41, 42][..], 3)
    );

    let denied = |last| match asked(last) {
        Err(ClientError::No(answer)) => {
            assert_eq!((answer.failed(), answer.reason), (Some(2), 9));
            let text = ClientError::No(answer.clone()).to_string();
            (answer, text)
        }
        other => panic!("{other:?}"),
    };
    let (missing, text) = denied(limit.exists().or_else(9));
    assert_eq!(missing.status, Status::NotFound);
    assert_eq!(text, "NOT_FOUND: instruction 2, reason 9");

    let rate = Rate {
        interval_us: 100_000,
        burst: 20,
        quantity: 1,
    };
    let (early, _) = denied(limit.u64(0).take(rate).or_else(9));
    assert_eq!(early.rate_wait(), Some(Duration::from_micros(1_500)));
    assert_eq!(early.actual_version(), None);

    let version = |sequence| Version { epoch: 1, sequence };
    let (other, text) = denied(limit.has_version(version(6)).or_else(9));
    assert_eq!(other.actual_version(), Some(version(7)));
    assert_eq!(other.rate_wait(), None);
    assert_eq!(
        text,
        "VERSION_MISMATCH: instruction 2, reason 9, actual version 1:7"
    );

    let (bits, text) = denied(stock.u32(0).has_bits(BitTest::Any, 1u64).or_else(9));
    assert_eq!(bits.actual(), Some(6));
    assert_eq!(
        text,
        "GUARD_FAILED: instruction 2, reason 9, actual value 6"
    );
}

#[test]
fn a_server_that_does_not_know_apply_is_not_asked_for_it() {
    let (address, asked) = serve_counting(Manner::ShowsNothing, Vec::new());
    let client = connect(address);
    let mut order = Apply::new();
    let stock = order.key(b"stock");
    order.then(stock.exists());
    let before = client.set(b"stock", b"1");
    let refused = client.apply(&order);
    let behind = client.set(b"stock", b"2");
    match refused.wait() {
        Err(ClientError::Refused(answer)) => assert_eq!(answer.status, Status::Unsupported),
        other => panic!("{other:?}"),
    }
    before.wait().expect("it is no APPLY");
    assert_eq!(behind.wait().expect("it is no APPLY").version.sequence, 2);
    assert!(asked.load(Ordering::Relaxed) <= 2);
    let text = client
        .apply(&order)
        .wait()
        .expect_err("once more")
        .to_string();
    assert_eq!(
        text,
        "UNSUPPORTED: the server does not know APPLY: feature bit 7 is missing in its HELLO"
    );
}

#[test]
fn closures_of_concurrent_writers_are_all_applied_once() {
    let client = connect(serve(Manner::Whole));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let client = client.clone();
            scope.spawn(move || {
                for _ in 0..25 {
                    let changed = client.update(b"count", |bytes| {
                        let count = bytes
                            .first_chunk()
                            .map_or(0, |bytes| u64::from_le_bytes(*bytes));
                        *bytes = (count + 1).to_le_bytes().to_vec();
                        true
                    });
                    changed.expect("within the tries").expect("not declined");
                }
            });
        }
    });
    assert_eq!(
        client
            .get(b"count")
            .wait()
            .expect("get")
            .expect("present")
            .bytes,
        &100u64.to_le_bytes()[..]
    );
    assert_eq!(
        client.update(b"count", |_| false),
        Ok(None),
        "a declined edit writes nothing"
    );
}

#[test]
fn an_update_that_lost_reads_nothing_before_its_next_try() {
    for (manner, operations) in [
        (Manner::Whole, 1 + 2 + 2),
        (Manner::ShowsNothing, 2 + 2 + 2),
    ] {
        let (address, asked) = serve_counting(manner, Vec::new());
        let client = connect(address);
        let mut runs = 0;
        let changed = client.update(b"key", |bytes| {
            runs += 1;
            if runs == 1 {
                assert!(bytes.is_empty());
                client.set(b"key", b"of another").wait().expect("set");
            }
            bytes.extend_from_slice(b", mended");
            true
        });
        assert_eq!(changed.expect("done").expect("written").version.sequence, 2);
        let value = client.get(b"key").wait().expect("get").expect("present");
        assert_eq!((runs, &value.bytes[..]), (2, &b"of another, mended"[..]));
        assert_eq!(asked.load(Ordering::Relaxed), operations);
    }
}

#[test]
fn a_condition_that_does_not_hold_shows_what_is_there_on_demand() {
    let client = connect(serve(Manner::Whole));
    client.set(b"key", b"value").wait().expect("set");
    for (asks, shown) in [(false, None), (true, Some(&b"value"[..]))] {
        let when = match asks {
            true => Condition::Absent.showing(),
            false => Condition::Absent.into(),
        };
        let outcome = client.set_if(b"key", b"", when);
        match outcome.wait() {
            Err(ClientError::No(answer)) => {
                assert_eq!(
                    (answer.status, answer.version.sequence),
                    (Status::Exists, 1)
                );
                let value = answer.shown().map(|value| value.bytes);
                assert_eq!(value.as_deref(), shown);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_update_goes_on_until_the_deadline_and_says_so() {
    let options = ClientOptions {
        deadline: Duration::from_millis(300),
        ..ClientOptions::default()
    };
    let address = serve(Manner::IsFaster);
    for _ in 0..100 {
        let Ok(client) = Client::connect(address, options.clone()) else {
            continue;
        };
        let outcome = client.update(b"key", |bytes| {
            *bytes = b"lost".to_vec();
            true
        });
        match outcome {
            Err(ClientError::Busy(text)) => {
                assert!(
                    text.contains("tries within the deadline of 300ms"),
                    "{text}"
                );
                return;
            }
            // The deadline may pass within a try.
            Err(ClientError::Deadline | ClientError::Unknown(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("each time the deadline passed within a try");
}

#[test]
fn without_a_server_nothing_was_sent() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], NOBODY));
    let options = ClientOptions {
        deadline: Duration::from_millis(200),
        ..ClientOptions::default()
    };
    assert!(matches!(
        Client::connect(nobody, options),
        Err(ClientError::NotSent(_) | ClientError::Deadline)
    ));
}

fn patient() -> ClientOptions {
    ClientOptions {
        deadline: Duration::from_secs(20),
        ..ClientOptions::default()
    }
}

#[test]
fn what_another_node_writes_is_sent_there_and_asked_there_from_then_on() {
    let (writer, _) = serve_counting(Manner::Whole, Vec::new());
    let (other, asked) = serve_counting(Manner::Sends(2, writer), Vec::new());
    let client = connect(other);
    for round in 0..5u8 {
        client.set(b"key", &[round]).wait().expect("followed");
    }
    let value = client.get(b"key").wait().expect("followed");
    assert_eq!(value.expect("present").bytes, &[4][..]);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[test]
fn a_client_of_one_address_learns_from_hello_who_writes() {
    let (writer, _) = serve_counting(Manner::Whole, Vec::new());
    let node = NodeAddress {
        node: 1,
        clients: writer.to_string(),
    };
    let (other, asked) = serve_counting(Manner::Sends(1, writer), vec![node]);
    let client = connect(other);
    client.set(b"key", b"1").wait().expect("sent to the writer");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[test]
fn who_does_not_follow_is_answered_who_writes() {
    let writer = serve(Manner::Whole);
    let options = ClientOptions {
        follows: false,
        ..patient()
    };
    let client = Client::connect(serve(Manner::Sends(2, writer)), options).expect("connected");
    match client.set(b"key", b"1").wait() {
        Err(ClientError::Busy(text)) => assert!(text.ends_with(&writer.to_string()), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_that_has_not_begun_is_asked_until_it_has() {
    let (address, asked) = serve_counting(Manner::BeginsAt(3), Vec::new());
    let client = connect(address);
    client.set(b"key", b"1").wait().expect("at last");
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[test]
fn nodes_that_send_to_each_other_are_asked_until_the_deadline_and_nothing_is_unknown() {
    let first = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = first.local_addr().expect("bound");
    let second = serve(Manner::Sends(2, address));
    std::thread::spawn(move || {
        let asked = AtomicUsize::new(0);
        for stream in first.incoming().flatten() {
            let manner = Manner::Sends(1, second);
            converse(stream, manner, &[], &mut HashMap::new(), &asked);
        }
    });
    let options = ClientOptions {
        deadline: Duration::from_secs(1),
        ..ClientOptions::default()
    };
    let client = Client::connect(address, options).expect("connected");
    for _ in 0..20 {
        match client.set(b"key", b"1").wait() {
            Err(ClientError::Busy(_) | ClientError::Deadline) => return,
            // A try was under way at the deadline: the slower the machine, the more often.
            Err(ClientError::Unknown(it)) => {
                assert_eq!(it.text(), "no answer within the deadline");
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("each time a try was under way at the deadline");
}

#[test]
fn of_several_addresses_those_are_passed_over_that_do_not_answer() {
    let gone = SocketAddr::from(([127, 0, 0, 1], NOBODY));
    let addresses = [gone, serve(Manner::Whole)].map(|it| it.to_string());
    let client = Client::connect_any(&addresses, patient()).expect("the second one answers");
    client.set(b"key", b"1").wait().expect("set");
}

#[test]
fn of_several_addresses_one_that_is_silent_does_not_take_the_time_of_the_others() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addresses = [silent.local_addr().expect("bound"), serve(Manner::Whole)];
    let addresses = addresses.map(|it| it.to_string());
    let client = Client::connect_any(&addresses, patient()).expect("the second one answers");
    client.set(b"key", b"1").wait().expect("set");
}

#[test]
fn what_was_sent_to_a_node_that_is_gone_is_unknown_and_what_was_not_goes_to_another_one() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let dying = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("connected to");
        drop(listener);
        let asked = AtomicUsize::new(0);
        converse(stream, Manner::DiesAt(0), &[], &mut HashMap::new(), &asked);
    });
    let (other, asked) = serve_counting(Manner::Whole, Vec::new());
    let addresses = [dying, other].map(|it| it.to_string());
    let client = Client::connect_any(&addresses, patient()).expect("connected");
    assert!(matches!(
        client.set(b"key", b"1").wait(),
        Err(ClientError::Unknown(_))
    ));
    assert_eq!(asked.load(Ordering::Relaxed), 0, "it was not sent again");
    client.set(b"key", b"2").wait().expect("the other one");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

/// The smallest executor: a thread that parks.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn the_same_operations_can_be_awaited_in_any_executor() {
    let client = connect(serve(Manner::Scattered));
    block_on(async {
        let (first, second) = (client.set(b"a", b"1"), client.set(b"b", b"2"));
        first.await.expect("set");
        second.await.expect("set");
        assert_eq!(
            client.get(b"b").await.expect("get").expect("present").bytes,
            &b"2"[..]
        );
    });
}

/// Ten operations, one after the other: they earn one retry.
fn earn_a_retry(client: &Client) {
    for _ in 0..10 {
        client.set(b"key", b"1").wait().expect("set");
    }
}

#[test]
fn an_operation_that_was_answered_busy_is_sent_again_until_the_server_has_room() {
    let (address, asked) = serve_counting(Manner::IsBusy(30, 32), Vec::new());
    let client = connect(address);
    (0..3).for_each(|_| earn_a_retry(&client));
    client.set(b"key", b"2").wait().expect("at the third try");
    assert_eq!(asked.load(Ordering::Relaxed), 33);
    let found = client.get(b"key").wait().expect("get").expect("present");
    assert_eq!(found.bytes, &b"2"[..]);
}

#[test]
fn an_operation_of_a_frame_that_was_answered_busy_is_sent_again() {
    let (address, asked) = serve_counting(Manner::RefusesFrame(10), Vec::new());
    let client = connect(address);
    earn_a_retry(&client);
    client.set(b"key", b"2").wait().expect("at the second try");
    assert_eq!(asked.load(Ordering::Relaxed), 12);
}

#[test]
fn a_server_that_is_always_busy_is_asked_a_tenth_more_often_and_the_callers_are_answered_busy() {
    let (address, asked) = serve_counting(Manner::IsBusy(0, usize::MAX), Vec::new());
    let client = connect(address);
    for _ in 0..300 {
        match client.get(b"key").wait() {
            Err(ClientError::Busy(text)) => assert_eq!(text, "BUSY: a queue is full"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(asked.load(Ordering::Relaxed), 330);
}

#[test]
fn a_client_that_is_set_so_sends_nothing_again_that_was_answered_busy() {
    let (address, asked) = serve_counting(Manner::IsBusy(10, usize::MAX), Vec::new());
    let options = ClientOptions {
        retries_busy: false,
        ..patient()
    };
    let client = Client::connect(address, options).expect("connected");
    earn_a_retry(&client);
    let outcome = client.get(b"key").wait();
    assert!(matches!(outcome, Err(ClientError::Busy(_))), "{outcome:?}");
    assert_eq!(asked.load(Ordering::Relaxed), 11);
}

#[test]
fn a_write_that_was_sent_again_is_not_sent_once_more_when_the_connection_is_lost() {
    let (address, asked) = serve_counting(Manner::IsBusyAndDies(20), Vec::new());
    let client = connect(address);
    // More is saved than one retry: it is not the budget that keeps the write from being sent.
    (0..2).for_each(|_| earn_a_retry(&client));
    let outcome = client.set(b"key", b"2").wait();
    assert!(
        matches!(outcome, Err(ClientError::Unknown(_))),
        "{outcome:?}"
    );
    assert_eq!(asked.load(Ordering::Relaxed), 22);
    let found = client.get(b"key").wait().expect("connected again");
    assert_eq!(found.expect("present").bytes, &b"1"[..]);
    assert_eq!(asked.load(Ordering::Relaxed), 23, "nothing else was sent");
}
