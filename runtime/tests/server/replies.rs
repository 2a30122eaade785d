//! Clients that ask for much at once and do not read it, in the real server: what they make it hold
//! is bounded by its memory, others are served, and in the end every answer has come, once and
//! right.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use penstock_client::{Client, ClientOptions, Verbs};
use penstock_net::frame::Opcode;
use penstock_net::hello::ClientHello;
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{ReplyItem, read_batch_reply};
use penstock_net::request::BatchRequest;
use penstock_net::status::Status;

use crate::command::command;
use crate::process::Server;
use crate::scratch;

const FRAME_BYTES_MAX: u32 = 2 << 20;
const MEMORY_MAX: u64 = 192 << 20;
const KEYS: u32 = 64;
const READERS: u32 = 8;

/// What each of the readers asks for before it reads anything.
#[derive(Clone, Copy)]
struct Asked {
    frames: u32,
    /// In each frame.
    gets: u32,
    value_bytes: usize,
}

fn key(number: u32) -> Vec<u8> {
    format!("large:{}", number % KEYS).into_bytes()
}

fn value(number: u32, bytes: usize) -> Vec<u8> {
    vec![(number % KEYS).to_le_bytes()[0]; bytes]
}

fn resident_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// A connection that has asked for all that and has read nothing.
fn asker(address: SocketAddr, first: u32, asked: Asked) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut bytes = Vec::new();
    let hello = ClientHello {
        protocol_min: 1,
        protocol_max: 1,
        features: 0,
        name: "asker",
    };
    hello.write(&mut bytes, u64::MAX);
    for frame in 0..asked.frames {
        let items_max = usize::try_from(asked.gets).unwrap();
        let mut batch = BatchRequest::begin(&mut bytes, frame.into(), AckLevel::Disk, 0, items_max);
        for item in 0..asked.gets {
            batch.get(&mut bytes, &key(first + frame * asked.gets + item));
        }
        batch.finish(&mut bytes);
    }
    stream.write_all(&bytes).unwrap();
    stream
}

/// Reads until every answer has come. Some may be refused, but none that was run.
fn read_all(mut stream: TcpStream, first: u32, asked: Asked) {
    let mut receiver = Receiver::new(FRAME_BYTES_MAX);
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 1 << 20];
    let mut missing: BTreeSet<u32> = (0..asked.frames * asked.gets).collect();
    let mut refused = 0;
    while !missing.is_empty() {
        let read = stream.read(&mut chunk).unwrap();
        assert!(read > 0, "{} answers are missing", missing.len());
        bytes.extend_from_slice(&chunk[..read]);
        let mut done = 0;
        loop {
            match receiver.next(&bytes[done..]) {
                Received::Frame {
                    header,
                    body,
                    consumed,
                } => {
                    let frame = u32::try_from(header.request_id).unwrap_or(u32::MAX);
                    if header.level_or_status == Status::Busy.code() {
                        // So many requests at once are more than the core can run in time.
                        for item in 0..asked.gets {
                            let number = frame * asked.gets + item;
                            assert!(missing.remove(&number), "it was run and is refused");
                        }
                        refused += asked.gets;
                    } else if header.opcode == Opcode::Batch as u8 {
                        let items = read_batch_reply(body).unwrap();
                        for number in 0..items.len() {
                            let item = ReplyItem::read(items.item(number)).unwrap();
                            assert_eq!(item.head.status, Status::Ok);
                            let number = frame * asked.gets + u32::from(item.head.item);
                            assert!(missing.remove(&number), "answered twice");
                            assert!(item.value == value(first + number, asked.value_bytes));
                        }
                    }
                    done += consumed;
                }
                Received::Incomplete { .. } => break,
                other => panic!("{other:?}"),
            }
        }
        bytes.drain(..done);
    }
    assert!(refused < asked.frames * asked.gets, "all was refused");
}

fn much_is_asked_for(name: &str, cache: &str, asked: Asked) {
    let data = scratch::folder(name);
    let server = Server::start(
        command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args([
                "--shards",
                "2",
                "--cache-bytes",
                cache,
                "--write-stall-timeout-ms",
                "60s",
            ])
            .args(["--memory-max", &MEMORY_MAX.to_string(), "--data"])
            .arg(&data),
    );
    let options = ClientOptions {
        deadline: Duration::from_secs(60),
        ..ClientOptions::default()
    };
    let client = Client::connect(server.address, options).unwrap();
    for number in 0..KEYS {
        let value = value(number, asked.value_bytes);
        client.set(&key(number), &value).wait().unwrap();
    }
    let process = server.process.id();
    let is_over = AtomicBool::new(false);
    let resident_max = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut resident_max = 0;
            while !is_over.load(Ordering::Relaxed) {
                resident_max = resident_bytes(process).max(resident_max);
                std::thread::sleep(Duration::from_millis(1));
            }
            resident_max
        });
        let askers: Vec<_> = (0..READERS)
            .map(|reader| (asker(server.address, reader * 7, asked), reader * 7))
            .collect();
        // Whoever asks for little is served beside them.
        for round in 0..10_u32 {
            client.set(b"small", &round.to_le_bytes()).wait().unwrap();
            let found = client.get(b"small").wait().unwrap().unwrap();
            assert_eq!(found.bytes, &round.to_le_bytes()[..]);
            std::thread::sleep(Duration::from_millis(20));
        }
        let readers: Vec<_> = askers
            .into_iter()
            .map(|(stream, first)| scope.spawn(move || read_all(stream, first, asked)))
            .collect();
        let outcomes: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        for outcome in outcomes {
            outcome.unwrap();
        }
        watcher.join().unwrap()
    });
    assert!(
        resident_max <= MEMORY_MAX,
        "{resident_max} of {MEMORY_MAX} bytes"
    );
    drop(server);
    let _ = fs::remove_dir_all(&data);
}

const LARGE: Asked = Asked {
    frames: 1,
    gets: 100,
    value_bytes: 1 << 20,
};

#[test]
fn answers_from_memory_that_nobody_reads_stay_within_memory_max() {
    much_is_asked_for("replies-hot", "1GiB", LARGE);
}

#[test]
fn answers_from_the_disk_that_nobody_reads_stay_within_memory_max() {
    much_is_asked_for("replies-cold", "2MiB", LARGE);
}

#[test]
fn many_short_answers_that_nobody_reads_stay_within_memory_max() {
    let short = Asked {
        frames: 16,
        gets: 1024,
        value_bytes: 4000,
    };
    much_is_asked_for("replies-short", "1GiB", short);
}
