//! The bound on the memory of the process, in the real server: it is loaded with four times as much
//! as it may take, and all the while its resident memory stays below the bound and every answer is
//! right. When the index fills it, new keys are refused and nothing else is.

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_client::{Client, ClientError, ClientOptions, Verbs};
use penstock_net::batch::Batch;
use penstock_net::frame::{Header, Opcode, write_frame};
use penstock_net::hello::ClientHello;
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::ReplyItem;
use penstock_net::request::BatchRequest;

use crate::command::command;
use crate::process::{Server, the_machine};
use crate::scratch::folder;

/// A server whose resident memory is looked at all the time.
struct Watched {
    server: Server,
    watcher: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    resident_max: Arc<AtomicU64>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

const MIB: u64 = 1 << 20;

impl Watched {
    fn start(data: &Path, memory_max: u64) -> Watched {
        Watched::start_with(data, memory_max, &[])
    }

    fn start_with(data: &Path, memory_max: u64, flags: &[&str]) -> Watched {
        let server = Server::start(
            command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
                .args(["--shards", "1", "--durability", "none"])
                .args(["--value-bytes-max", "64KiB", "--frame-bytes-max", "256KiB"])
                .args(["--write-stall-timeout-ms", "5m"])
                .args(["--segment-bytes", "16MiB", "--memory-max"])
                .arg(memory_max.to_string())
                .args(flags)
                .arg("--data")
                .arg(data),
        );
        let is_over = Arc::new(AtomicBool::new(false));
        let resident_max = Arc::new(AtomicU64::new(0));
        let watcher = {
            let (is_over, resident_max) = (Arc::clone(&is_over), Arc::clone(&resident_max));
            let process = server.process.id();
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    resident_max.fetch_max(resident_bytes(process), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(2));
                }
            })
        };
        Watched {
            server,
            watcher: Some(watcher),
            is_over,
            resident_max,
        }
    }

    fn client(&self) -> Client {
        let options = ClientOptions {
            level: AckLevel::None,
            deadline: Duration::from_secs(60),
            ..ClientOptions::default()
        };
        Client::connect(self.server.address, options).unwrap()
    }

    /// The most that was seen so far.
    fn resident_max(&self) -> u64 {
        self.resident_max.load(Ordering::Relaxed)
    }
}

/// VmRSS; 0 for a process that has ended.
fn resident_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn info(client: &Client) -> serde_json::Value {
    serde_json::from_str(&client.info().wait().unwrap()).unwrap()
}

/// A value that tells its key and round, of a length that differs from key to key.
fn value(key: u64, round: u64) -> Vec<u8> {
    let len = match key % 16 {
        0 => 30_000,
        1..=4 => 3_000,
        5..=8 => 20,
        _ => 800,
    };
    [key, round]
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .cycle()
        .take(len + usize::try_from(round % 5).unwrap() * 8)
        .collect()
}

#[test]
fn resident_memory_stays_below_memory_max_with_four_times_as_much_data() {
    let _one = the_machine();
    const MEMORY_MAX: u64 = 96 * MIB;
    const KEYS: u64 = 120_000;
    let data = folder("memory-bound");
    let server = Watched::start(&data, MEMORY_MAX);
    let client = server.client();
    let check = |what: &str| {
        let seen = server.resident_max();
        assert!(seen <= MEMORY_MAX, "{seen} of {MEMORY_MAX} bytes {what}");
    };
    let mut written = 0;
    let mut set = |keys: &[u64], round: u64| {
        let mut left = keys.to_vec();
        let mut tries = 0;
        while !left.is_empty() {
            tries += 1;
            assert!(tries < 1_000, "the core is busy for ever");
            let set = |key: u64| (key, client.set(&key.to_le_bytes(), &value(key, round)));
            let pending: Vec<_> = left.drain(..).map(set).collect();
            for (key, pending) in pending {
                match pending.wait() {
                    // Of a machine that is busy with other things; memory that is used up is FULL.
                    Err(ClientError::Busy(_)) => left.push(key),
                    facts => drop(facts.expect("no key is refused")),
                }
            }
        }
        let bytes = keys.iter().map(|&key| value(key, round).len() as u64);
        written += bytes.sum::<u64>();
    };
    let keys: Vec<u64> = (0..KEYS).collect();
    for keys in keys.chunks(256) {
        set(keys, 0);
        check("while it was filled");
    }
    // Every third changes its length, so that cells move to other pages.
    let thirds: Vec<u64> = (0..KEYS).step_by(3).collect();
    for keys in thirds.chunks(256) {
        set(keys, 3);
        check("while values grew");
    }
    assert!(written >= 4 * MEMORY_MAX, "{written} bytes are too few");
    let read = |step: u64| {
        for number in (0..KEYS / 2).step_by(128) {
            let mut left: Vec<u64> = (number..number + 128).map(|it| it * step % KEYS).collect();
            let mut tries = 0;
            while !left.is_empty() {
                tries += 1;
                assert!(tries < 1_000, "the core is busy for ever");
                let get = |key: u64| (key, client.get(&key.to_le_bytes()));
                let pending: Vec<_> = left.drain(..).map(get).collect();
                for (key, pending) in pending {
                    let round = if key % 3 == 0 { 3 } else { 0 };
                    match pending.wait() {
                        // As of a write above.
                        Err(ClientError::Busy(_)) => left.push(key),
                        found => {
                            let found = found.expect("no read is refused").expect("it was set");
                            assert!(found.bytes == value(key, round), "key {key}");
                        }
                    }
                }
            }
            check("while it was read");
        }
    };
    [1, 7_919].into_iter().for_each(read);
    let facts = info(&client);
    assert_eq!(facts["memory_max"].as_u64(), Some(MEMORY_MAX));
    assert!(facts["resident_bytes"].as_u64().unwrap() <= MEMORY_MAX);
    let held = || {
        let counters = &info(&client)["counters"];
        counters["memory_bytes"].as_u64().unwrap()
    };
    // What the allocator keeps of frames counts as others' until it goes back to the system, and a
    // crowded machine gives it back late. So values that went for it may need another reading.
    let ends = Instant::now() + Duration::from_secs(60);
    while held() < MEMORY_MAX / 4 && Instant::now() < ends {
        read(1);
    }
    let held = held();
    eprintln!(
        "{written} bytes written, at most {} of {MEMORY_MAX} bytes resident, {held} of index and \
         values",
        server.resident_max()
    );
    // A bound that is kept by holding nothing would be none.
    assert!(held >= MEMORY_MAX / 4, "{held} bytes of index and values");
    drop((client, server));
    fs::remove_dir_all(data).unwrap();
}

fn prefaulted(client: &Client) -> u64 {
    info(client)["prefaulted_bytes"].as_u64().unwrap()
}

/// Waits until so much is prefaulted at the least, and tells how much is.
fn until_prefaulted(client: &Client, least: u64) -> u64 {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let bytes = prefaulted(client);
        if bytes >= least {
            return bytes;
        }
        assert!(Instant::now() < until, "{bytes} bytes are prefaulted");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn values_are_written_to_prefaulted_memory_and_all_of_it_is_within_the_bound() {
    let _one = the_machine();
    let given = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if !given.is_ok_and(|it| it.contains("[madvise]") || it.contains("[always]")) {
        return println!("skipped: the system gives no huge pages");
    }
    let data = folder("memory-prefaulted");
    let flags = ["--cache-bytes", "64MiB", "--prefault-percent", "100"];
    let server = Watched::start_with(&data, 1024 * MIB, &flags);
    let client = server.client();
    // A region may be in use already.
    let before = until_prefaulted(&client, 62 * MIB);
    assert!(before <= 64 * MIB, "{before}");
    let resident = resident_bytes(server.server.process.id());
    let set = |key: u64| (key, client.set(&key.to_le_bytes(), &[7; 900]));
    let until = Instant::now() + Duration::from_secs(60);
    let mut left: VecDeque<u64> = (0..40_000).collect();
    while !left.is_empty() {
        let pending: Vec<_> = left.drain(..left.len().min(256)).map(set).collect();
        for (key, pending) in pending {
            match pending.wait() {
                // Of a machine that is busy with other things.
                Err(ClientError::Busy(_)) => left.push_back(key),
                outcome => drop(outcome.expect("there is room")),
            }
        }
        assert!(Instant::now() < until, "{} keys are left", left.len());
    }
    let used = before - prefaulted(&client);
    let grown = resident_bytes(server.server.process.id()).saturating_sub(resident);
    eprintln!("{before} bytes were prefaulted, {used} are used, {grown} came beside them");
    // The values take 36 MiB. Some of them fit in a region that was in use before.
    assert!(used >= 32 * MIB, "{used}");
    assert!(grown <= 12 * MIB, "{grown} for an index of 40,000 keys");
    drop((client, server));
    // Where the bound leaves less, less is prefaulted.
    fs::remove_dir_all(&data).unwrap();
    let flags = ["--cache-bytes", "1GiB", "--prefault-percent", "100"];
    let server = Watched::start_with(&data, 96 * MIB, &flags);
    until_prefaulted(&server.client(), 16 * MIB);
    std::thread::sleep(Duration::from_millis(500));
    assert!(server.resident_max() <= 96 * MIB);
    drop(server);
    let server = Watched::start_with(&data, 96 * MIB, &["--prefault-percent", "0"]);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(prefaulted(&server.client()), 0);
    drop(server);
    fs::remove_dir_all(data).unwrap();
}

#[test]
fn when_the_index_fills_the_memory_new_keys_are_refused_and_nothing_else() {
    let _one = the_machine();
    const MEMORY_MAX: u64 = 48 * MIB;
    let data = folder("memory-full");
    let server = Watched::start(&data, MEMORY_MAX);
    let client = server.client();
    let mut next = 0u64;
    let refused = loop {
        let pending: Vec<_> = (next..next + 1_000)
            .map(|key| client.set(&key.to_le_bytes(), &[7; 8]))
            .collect();
        let mut refused = None;
        for pending in pending {
            match pending.wait() {
                Ok(_) if refused.is_none() => next += 1,
                // Others may still find an entry that is free.
                Ok(_) => {}
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        let seen = server.resident_max();
        assert!(seen <= MEMORY_MAX, "{seen} of {MEMORY_MAX} bytes");
        assert!(next < 10_000_000, "the index of {next} keys has room");
        if let Some(refused) = refused {
            break refused;
        }
    };
    let ClientError::Busy(message) = &refused else {
        panic!("{refused:?}");
    };
    assert!(
        message.contains(&format!("memory_max = {MEMORY_MAX}")),
        "{message}"
    );
    eprintln!("{next} keys, then: {message}");
    for number in 0..2_000u64 {
        let key = (number * 7_919 % next).to_le_bytes();
        let found = client.get(&key).wait().unwrap().expect("it was set");
        assert_eq!(found.bytes[..], [7; 8]);
        client.set(&key, &[8; 16]).wait().expect("an update");
        let found = client.get(&key).wait().unwrap().expect("it was set");
        assert_eq!(found.bytes[..], [8; 16]);
    }
    // Deleting makes room again.
    let deleted: Vec<u64> = (0..next / 5).collect();
    for keys in deleted.chunks(1_000) {
        let pending: Vec<_> = keys
            .iter()
            .map(|key| client.del(&key.to_le_bytes()))
            .collect();
        for pending in pending {
            assert!(pending.wait().expect("a deletion"));
        }
    }
    let pending: Vec<_> = (0..1_000u64)
        .map(|number| client.set(format!("a new key {number}").as_bytes(), b"value"))
        .collect();
    for pending in pending {
        pending.wait().expect("there is room again");
    }
    let seen = server.resident_max();
    assert!(seen <= MEMORY_MAX, "{seen} of {MEMORY_MAX} bytes");
    drop((client, server));
    fs::remove_dir_all(data).unwrap();
}

#[test]
fn frames_that_never_end_take_no_more_than_the_bound_and_others_are_served() {
    let _one = the_machine();
    let data = folder("memory-partial-frames");
    let memory_max = 128 * MIB;
    let watched = Watched::start(&data, memory_max);
    let client = watched.client();
    for key in 0..2_000_u64 {
        let set = client.set(&key.to_le_bytes(), &value(key, 0));
        set.wait().unwrap();
    }
    // Each is all but its last byte of the largest frame: 300 MiB together.
    let mut frame = Vec::new();
    write_frame(
        &mut frame,
        Header::request(Opcode::Ping, 9, AckLevel::None, 0),
        &vec![7; (256 << 10) - 64],
    );
    let mut hello = Vec::new();
    let greeting = ClientHello {
        protocol_min: 1,
        protocol_max: 1,
        features: 0,
        name: "hostile",
    };
    greeting.write(&mut hello, 1);
    let mut held = Vec::new();
    for _ in 0..1_200 {
        let mut stream = TcpStream::connect(watched.server.address).unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        stream.write_all(&hello).unwrap();
        let sent = stream.write_all(&frame[..frame.len() - 1]);
        held.push((stream, sent));
        let key = held.len() as u64;
        client
            .set(&key.to_le_bytes(), &value(key, 1))
            .wait()
            .unwrap();
    }
    let resident_max = watched.resident_max();
    println!("{} MiB of {}", resident_max / MIB, memory_max / MIB);
    assert!(resident_max <= memory_max, "{resident_max}");
    // A frame that is ended, and that may be, is answered; the others are told that it was too
    // much.
    let mut refused = 0;
    for (stream, _) in &mut held {
        let _ = stream.write_all(&frame[frame.len() - 1..]);
        let _ = stream.shutdown(Shutdown::Write);
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let mut answers = Vec::new();
        let _ = stream.take(64 << 10).read_to_end(&mut answers);
        let text = String::from_utf8_lossy(&answers);
        refused += u32::from(text.contains("of frames wait to be whole"));
    }
    println!("{refused} were refused");
    assert!(refused > 0);
    for key in 0..2_000_u64 {
        let round = u64::from((1..=1_200).contains(&key));
        let found = client.get(&key.to_le_bytes()).wait().unwrap();
        assert_eq!(found.unwrap().bytes, value(key, round));
    }
}

/// A reply holds the block that a large value stands in. Once the value has changed nobody else
/// does, and it is memory that the values do not count.
#[test]
fn readers_that_take_nothing_hold_no_more_old_values_than_the_bound_leaves() {
    let _one = the_machine();
    const MEMORY_MAX: u64 = 96 * MIB;
    const KEYS: u64 = 40;
    const READERS: u64 = 150;
    let data = folder("memory-old-values");
    let watched = Watched::start(&data, MEMORY_MAX);
    let client = watched.client();
    let large = |key: u64, round| value(16 * key, round);
    for key in KEYS..6_000 {
        let set = client.set(&key.to_le_bytes(), &large(key, 0));
        set.wait().unwrap();
    }
    let mut asked = Vec::new();
    let greeting = ClientHello {
        protocol_min: 1,
        protocol_max: 1,
        features: 0,
        name: "slow",
    };
    greeting.write(&mut asked, 1);
    let mut batch = BatchRequest::begin(&mut asked, 2, AckLevel::None, 0, 40);
    for key in 0..KEYS {
        batch.get(&mut asked, &key.to_le_bytes());
    }
    batch.finish(&mut asked);
    let mut readers = Vec::new();
    for round in 0..READERS {
        let pending: Vec<_> = (0..KEYS)
            .map(|key| client.set(&key.to_le_bytes(), &large(key, round)))
            .collect();
        for pending in pending {
            pending.wait().unwrap();
        }
        let mut reader = TcpStream::connect(watched.server.address).unwrap();
        reader.write_all(&asked).unwrap();
        readers.push(reader);
    }
    let resident_max = watched.resident_max();
    println!("{} MiB of {}", resident_max / MIB, MEMORY_MAX / MIB);
    assert!(resident_max <= MEMORY_MAX, "{resident_max}");
    for (reader, round) in readers.iter_mut().zip(0..) {
        reader
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let (mut receiver, mut bytes) = (Receiver::new(u32::MAX), Vec::new());
        let mut seen = 0;
        while seen < KEYS {
            let Received::Frame {
                header,
                body,
                consumed,
            } = receiver.next(&bytes)
            else {
                let mut some = vec![0; 256 << 10];
                let read = reader.read(&mut some).unwrap();
                assert!(read > 0, "{seen} of {KEYS} values came");
                bytes.extend_from_slice(&some[..read]);
                continue;
            };
            let batch = (header.request_id == 2).then(|| Batch::read(body).unwrap());
            for number in 0..batch.map_or(0, |batch| batch.len()) {
                let item = ReplyItem::read(batch.unwrap().item(number)).unwrap();
                let key = u64::from(item.head.item);
                let shown = u64::from_le_bytes(*item.value[8..].first_chunk().unwrap());
                // When it was answered is known to nobody, but it is one value.
                assert!(shown >= round && shown < READERS, "{shown} after {round}");
                assert!(item.value == large(key, shown), "key {key}, round {shown}");
                seen += 1;
            }
            bytes.drain(..consumed);
        }
    }
    let resident_max = watched.resident_max();
    assert!(resident_max <= MEMORY_MAX, "{resident_max}");
    drop((readers, client, watched));
    fs::remove_dir_all(data).unwrap();
}
