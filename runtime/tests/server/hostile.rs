//! What a server meets: bytes that are not frames, peers that stall, files that were harmed. Each
//! gets a clear answer, and the server serves on.

mod descriptors;
mod file_bytes;
mod filling;
mod peers;
mod protocol;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::scratch;
use penstock_client::{Client, ClientError, ClientOptions, Field, Verbs};
use penstock_net::batch::Batch;
use penstock_net::frame::{FLAG_FORWARDED, FLAG_MORE, Header, Opcode, write_frame};
use penstock_net::hello::{ClientHello, ServerHello};
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{ReplyItem, text_of};
use penstock_net::request::{BatchRequest, Condition};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;

struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    fn command(data: &Path, flags: &[&str]) -> Command {
        let mut command = crate::command::program(env!("CARGO_BIN_EXE_penstock"));
        // Flags of a test go before these.
        let defaults = [
            ("PENSTOCK_LISTEN", "127.0.0.1:0"),
            ("PENSTOCK_SHARD_PORTS", "0"),
            ("PENSTOCK_ADMIN_LISTEN", "127.0.0.1:0"),
            ("PENSTOCK_SEGMENT_BYTES", "4MiB"),
            ("PENSTOCK_VALUE_BYTES_MAX", "64KiB"),
            ("PENSTOCK_CACHE_BYTES", "16MiB"),
        ];
        command.envs(defaults);
        command.arg("serve").arg("--data").arg(data).args(flags);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(data: &Path, flags: &[&str]) -> Server {
        Server::run(Server::command(data, flags))
    }

    /// With so many open files at most.
    fn start_with_files(data: &Path, flags: &[&str], files: u32) -> Server {
        let direct = Server::command(data, flags);
        let mut command = crate::command::program("sh");
        let script = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        command.arg("-c").arg(script).arg(direct.get_program());
        command.args(direct.get_args());
        let set = direct
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        command.envs(set);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Server::run(command)
    }

    fn run(mut command: Command) -> Server {
        let mut process = command.spawn().expect("the server");
        let mut banner = BufReader::new(process.stdout.take().expect("piped"));
        let (mut address, mut said) = (None, String::new());
        loop {
            let mut line = String::new();
            if banner.read_line(&mut line).expect("text") == 0 {
                panic!("the server did not start: {said}");
            }
            if line.starts_with("listening") {
                address = line
                    .split_whitespace()
                    .nth(1)
                    .and_then(|text| text.parse().ok());
            }
            if line.trim() == "ready" {
                break;
            }
            said += &line;
        }
        std::thread::spawn(move || std::io::copy(&mut banner, &mut std::io::sink()));
        Server {
            process,
            address: address.expect("an address in the banner"),
        }
    }

    fn client(&self) -> Client {
        let options = ClientOptions {
            deadline: Duration::from_secs(20),
            ..ClientOptions::default()
        };
        Client::connect(self.address, options).expect("connected")
    }

    /// It answers somebody else as if nothing had happened.
    fn serves_on(&self) {
        let client = self.client();
        client.set(b"alive", b"yes").wait().expect("set");
        assert_eq!(
            client
                .get(b"alive")
                .wait()
                .expect("get")
                .expect("present")
                .bytes,
            &b"yes"[..]
        );
    }

    /// Connections that are open, with that of `client`.
    fn connections(&self, client: &Client) -> u64 {
        let info = client.info().wait().expect("info");
        let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
        info["counters"]["connections"].as_u64().expect("a number")
    }

    fn resident_kib(&self) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("proc");
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS"))
            .expect("a size");
        line.split_whitespace()
            .nth(1)
            .and_then(|number| number.parse().ok())
            .expect("a number")
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A directory of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        Folder(scratch::folder(format!("hostile-{name}")))
    }
}

/// A connection on which a test says whatever it likes.
struct Raw {
    stream: TcpStream,
    receiver: Receiver,
    bytes: Vec<u8>,
}

impl Raw {
    fn new(address: SocketAddr) -> Raw {
        let stream = TcpStream::connect(address).expect("connected");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a socket");
        Raw {
            stream,
            receiver: Receiver::new(64 << 20),
            bytes: Vec::new(),
        }
    }

    fn greeted(address: SocketAddr) -> Raw {
        let mut raw = Raw::new(address);
        raw.say(&hello());
        assert_eq!(raw.receive().expect("HELLO").0.opcode, Opcode::Hello as u8);
        raw
    }

    fn say(&mut self, bytes: &[u8]) {
        // The server may have hung up already: then the next hear() tells.
        let _ = self.stream.write_all(bytes);
    }

    /// The next frame, or `None` when the server has closed the connection.
    fn receive(&mut self) -> Option<(Header, Vec<u8>)> {
        loop {
            if let Received::Frame {
                header,
                body,
                consumed,
            } = self.receiver.next(&self.bytes)
            {
                let frame = (header, body.to_vec());
                self.bytes.drain(..consumed);
                return Some(frame);
            }
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk) {
                Ok(read @ 1..) => self.bytes.extend_from_slice(&chunk[..read]),
                Ok(0) => return None,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("the server neither answered nor closed: {error}"),
            }
        }
    }

    /// The next frame must be an error with this status, whose text has these words.
    fn gets_refusal(&mut self, status: Status, words: &[&str]) {
        let (header, body) = self.receive().expect("an answer before the end");
        let text = text_of(&body).expect("a text");
        assert_eq!(
            Status::from_code(header.level_or_status),
            Some(status),
            "{text}"
        );
        let retry_after_ms = header.deadline_or_retry_ms;
        let expected = match status {
            Status::Busy => 1..=1000,
            _ => 0..=0,
        };
        assert!(
            expected.contains(&retry_after_ms),
            "{retry_after_ms} ms: {text}"
        );
        words
            .iter()
            .for_each(|word| assert!(text.contains(word), "{text:?} has no {word:?}"));
    }

    fn still_works(&mut self) {
        self.say(&ping(b"stillok!"));
        assert_eq!(self.receive().expect("a reply").1, b"stillok!");
    }
}

fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    ClientHello {
        protocol_min: 1,
        protocol_max: 1,
        features: 0,
        name: "hostile",
    }
    .write(&mut bytes, 1);
    bytes
}

fn ping(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(
        &mut bytes,
        Header::request(Opcode::Ping, 7, AckLevel::None, 0),
        body,
    );
    bytes
}

fn reheaded(mut bytes: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    change(&mut bytes[..28]);
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn bytes_that_are_not_frames_are_refused_by_name_and_end_their_connection_only() {
    let folder = Folder::new("frames");
    let server = Server::start(&folder.0, &["--shards", "1"]);
    let mut bad_crc = ping(b"12345678");
    bad_crc[28] ^= 1;
    let fatal: [(Vec<u8>, &str); 5] = [
        (
            b"GET / HTTP/1.1\r\nHost: example\r\nAccept: */*\r\n\r\n".to_vec(),
            "not the Penstock protocol",
        ),
        (bad_crc, "header CRC"),
        (
            reheaded(ping(b""), |header| header[5] = 9),
            "protocol version is 1, not 9",
        ),
        (
            reheaded(ping(b""), |header| {
                header[..4].copy_from_slice(&0u32.to_le_bytes())
            }),
            "at least 32, not 0",
        ),
        (
            reheaded(ping(b""), |header| {
                header[..4].copy_from_slice(&33u32.to_le_bytes())
            }),
            "multiple of 8",
        ),
    ];
    for (bytes, words) in fatal {
        let mut raw = Raw::greeted(server.address);
        raw.say(&bytes);
        raw.gets_refusal(Status::Malformed, &[words]);
        assert!(raw.receive().is_none(), "framing is lost after: {words}");
    }
    let mut bad_body = ping(b"12345678");
    bad_body[33] ^= 1;
    // Before HELLO any refusal is the last word.
    for (bytes, status, words) in [
        (ping(b""), Status::HelloExpected, "HELLO"),
        (bad_body, Status::Malformed, "body CRC"),
        (ping(&vec![0; 1 << 20]), Status::TooLarge, "1048608"),
    ] {
        let mut raw = Raw::new(server.address);
        raw.say(&bytes);
        raw.gets_refusal(status, &[words]);
        assert!(raw.receive().is_none(), "still open after: {words}");
    }
    // Half a frame, then nothing: the peer is gone, nobody else notices.
    Raw::greeted(server.address).say(&ping(b"12345678")[..17]);
    server.serves_on();
}

/// However few of its bytes come at a time.
#[test]
fn a_client_of_another_protocol_is_refused_in_its_own_words_and_its_connection_ends() {
    let folder = Folder::new("strangers");
    let server = Server::start(&folder.0, &["--shards", "1"]);
    let cases: [(&[u8], &str, &str); 4] = [
        (b"*1\r\n$4\r\nPING\r\n", "-ERR ", "RESP"),
        (b"PING\r\n", "-ERR ", "native protocol"),
        (b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", "-ERR ", "RESP"),
        (
            b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n",
            "HTTP/1.1 400 ",
            "native protocol",
        ),
    ];
    for (bytes, begin, words) in cases {
        for chunk in [bytes.len(), 1] {
            let mut stream = TcpStream::connect(server.address).expect("connected");
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .expect("a socket");
            stream.set_nodelay(true).expect("a socket");
            for some in bytes.chunks(chunk) {
                // It may have hung up on the first line.
                let _ = stream.write_all(some);
            }
            let mut answer = String::new();
            let mut buffer = [0; 1024];
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                answer += std::str::from_utf8(&buffer[..read]).expect("text");
                if chunk == 1 {
                    break;
                }
            }
            // Bytes that come behind the first line may take the answer back, which is how TCP is.
            let is_answered = answer.starts_with(begin) && answer.contains(words);
            assert!(
                is_answered || (chunk == 1 && answer.is_empty()),
                "{answer:?} to {:?}",
                bytes.escape_ascii()
            );
        }
    }
    server.serves_on();
}

#[test]
fn a_bad_frame_or_item_is_refused_by_name_and_its_connection_lives_on() {
    let folder = Folder::new("items");
    let server = Server::start(&folder.0, &["--shards", "1"]);
    let mut raw = Raw::greeted(server.address);
    let mut bad_body = ping(b"12345678");
    bad_body[33] ^= 1;
    raw.say(&bad_body);
    raw.gets_refusal(Status::Malformed, &["body CRC"]);
    raw.say(&reheaded(ping(b""), |header| header[6] = 0x77));
    raw.gets_refusal(Status::Unsupported, &["opcode 0x77"]);
    raw.say(&reheaded(ping(b""), |header| header[7] = 0x40));
    raw.gets_refusal(Status::Malformed, &["flags", "0x40"]);
    raw.say(&reheaded(ping(b""), |header| header[20] = 1));
    raw.gets_refusal(Status::Malformed, &["reserved"]);
    // Over the limit: the body is skipped as it arrives.
    raw.say(&ping(&vec![0; 3 << 20]));
    raw.gets_refusal(Status::TooLarge, &["3145760", "2097152"]);
    raw.still_works();

    let mut frame = Vec::new();
    let mut batch = BatchRequest::begin(&mut frame, 9, AckLevel::Disk, 0, 8);
    batch.set(&mut frame, b"", b"x", Condition::Always);
    batch.set(&mut frame, &[b'k'; 1025], b"x", Condition::Always);
    batch.set(
        &mut frame,
        b"big",
        &vec![0; (64 << 10) + 1],
        Condition::Always,
    );
    batch.set(&mut frame, b"short", b"abc", Condition::Always);
    batch.update_if(
        &mut frame,
        b"short",
        None,
        &[Field::u32(0).increase(1)],
        None,
    );
    batch.update_if(
        &mut frame,
        b"one",
        Some(b"two"),
        &[Field::u32(0).increase(1)],
        Some(b"12345678"),
    );
    batch.set(&mut frame, b"empty", b"", Condition::Always);
    batch.get(&mut frame, b"missing");
    batch.finish(&mut frame);
    raw.say(&frame);
    // In as many frames as the server likes: the first write of a new log waits for its segment.
    let mut answers: Vec<(Status, String)> = Vec::new();
    while answers.len() < 8 {
        let (_, body) = raw.receive().expect("a reply");
        let reply = Batch::read(&body).expect("a batch");
        answers.extend((0..reply.len()).map(|number| {
            let item = ReplyItem::read(reply.item(number)).expect("an item");
            (
                item.head.status,
                String::from_utf8_lossy(item.value).into_owned(),
            )
        }));
    }
    let expected = [
        (Status::BadKey, "0 bytes; 1 to 1024"),
        (Status::BadKey, "1025 bytes; 1 to 1024"),
        (Status::TooLarge, "65537 bytes; at most 65536"),
        (Status::Ok, ""),
        (
            Status::BadField,
            "4 bytes at offset 0 lies outside the value of 3 bytes",
        ),
        (Status::CrossSlot, "one slot"),
        (Status::Ok, ""),
        (Status::NotFound, ""),
    ];
    for ((status, text), (expected, words)) in answers.iter().zip(expected) {
        assert_eq!(*status, expected, "{text}");
        assert!(text.contains(words), "{text:?} has no {words:?}");
    }
    let client = server.client();
    assert_eq!(
        client
            .get(b"empty")
            .wait()
            .expect("get")
            .expect("an empty value is a value")
            .bytes
            .len(),
        0
    );
    assert_eq!(
        client
            .get(b"short")
            .wait()
            .expect("get")
            .expect("present")
            .bytes,
        &b"abc"[..],
        "a refused edit changes nothing"
    );
}

#[test]
fn a_key_of_another_core_is_answered_and_marked() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("skipped: two shards need two CPUs");
        return;
    }
    let folder = Folder::new("forward");
    let server = Server::start(&folder.0, &["--shards", "2"]);
    let mut raw = Raw::new(server.address);
    raw.say(&hello());
    let (_, body) = raw.receive().expect("HELLO");
    let hello = ServerHello::read(&body).expect("HELLO");
    for range in &hello.slots {
        let key = (0..)
            .map(|n: u32| format!("key:{n}").into_bytes())
            .find(|key| (range.first..=range.last).contains(&slot_of(key)))
            .expect("some key");
        for own in &hello.slots {
            let mut raw = Raw::greeted(SocketAddr::new(server.address.ip(), own.port));
            let mut frame = Vec::new();
            let mut batch = BatchRequest::begin(&mut frame, 5, AckLevel::Disk, 0, 1);
            batch.set(&mut frame, &key, b"v", Condition::Always);
            batch.finish(&mut frame);
            raw.say(&frame);
            let (header, body) = raw.receive().expect("a reply");
            let reply = Batch::read(&body).expect("a batch");
            assert_eq!(
                ReplyItem::read(reply.item(0)).expect("an item").head.status,
                Status::Ok
            );
            assert_eq!(header.flags & FLAG_FORWARDED != 0, own.shard != range.shard);
            assert_eq!(header.slot_or_shard, range.shard);
        }
    }
}

#[test]
fn a_request_id_is_refused_while_a_request_with_it_is_under_way() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("skipped: two shards need two CPUs");
        return;
    }
    let folder = Folder::new("ids");
    let server = Server::start(&folder.0, &["--shards", "2"]);
    server.serves_on();
    let mut raw = Raw::greeted(server.address);
    let mut frame = Vec::new();
    let mut batch = BatchRequest::begin(&mut frame, 5, AckLevel::Disk, 0, 64);
    // Of so many keys some are of the other core.
    for n in 0..64u8 {
        batch.set(&mut frame, &[b'k', n], b"v", Condition::Always);
    }
    batch.finish(&mut frame);
    let twice = [frame.clone(), frame].concat();
    // The answers of the other core may have come before the second request is taken: then it is
    // no second one, and runs.
    let mut was_refused = false;
    for _ in 0..200 {
        raw.say(&twice);
        let (mut answered, mut refused) = (0, 0);
        while answered + 64 * refused < 128 {
            let (header, body) = raw.receive().expect("the connection lives");
            assert_eq!(header.request_id, 5);
            if Status::from_code(header.level_or_status) == Some(Status::Malformed) {
                let text = text_of(&body).expect("a text");
                assert!(text.contains("request id 5"), "{text}");
                refused += 1;
                continue;
            }
            answered += Batch::read(&body).expect("a batch").len();
            let has_more = header.flags & FLAG_MORE != 0;
            assert_eq!(has_more, answered % 64 != 0, "{answered} answered");
        }
        assert_eq!(answered + 64 * refused, 128);
        was_refused |= refused > 0;
        if was_refused {
            break;
        }
    }
    assert!(was_refused, "no request met one with its id");
    raw.still_works();
}

#[test]
fn operations_of_one_connection_on_one_slot_keep_their_order_around_a_cold_key() {
    let folder = Folder::new("cold");
    let server = Server::start(&folder.0, &["--shards", "1", "--cache-bytes", "1MiB"]);
    let client = server.client();
    let value = vec![9u8; 4_000];
    let sets: Vec<_> = (0..1_500u32)
        .map(|n| client.set(format!("{{s}}{n}").as_bytes(), &value))
        .collect();
    sets.into_iter()
        .for_each(|set| drop(set.wait().expect("set")));
    let mut raw = Raw::greeted(server.address);
    let mut frame = Vec::new();
    let mut batch = BatchRequest::begin(&mut frame, 5, AckLevel::Disk, 0, 200);
    // A cold key first, then a counter of the same slot that every step reads back.
    for step in 0..50u64 {
        batch.get(&mut frame, format!("{{s}}{step}").as_bytes());
        batch.set(
            &mut frame,
            b"{s}counter",
            &step.to_le_bytes(),
            Condition::Always,
        );
        batch.get(&mut frame, b"{s}counter");
    }
    batch.finish(&mut frame);
    raw.say(&frame);
    let mut answers: Vec<Option<Vec<u8>>> = vec![None; 150];
    while answers.iter().any(Option::is_none) {
        let (_, body) = raw.receive().expect("a reply");
        let reply = Batch::read(&body).expect("a batch");
        for number in 0..reply.len() {
            let item = ReplyItem::read(reply.item(number)).expect("an item");
            assert_eq!(item.head.status, Status::Ok);
            assert!(
                answers[usize::from(item.head.item)]
                    .replace(item.value.to_vec())
                    .is_none()
            );
        }
    }
    for (step, answers) in (0u64..).zip(answers.chunks(3)) {
        assert_eq!(answers[0].as_deref(), Some(&value[..]));
        assert_eq!(
            answers[2].as_deref(),
            Some(&step.to_le_bytes()[..]),
            "step {step} read another step's counter"
        );
    }
    let info = client.info().wait().expect("info");
    let counters: serde_json::Value = serde_json::from_str(&info).expect("JSON");
    let reads = counters["counters"]["reads"].as_u64().expect("a number");
    let bytes = counters["counters"]["read_bytes"]
        .as_u64()
        .expect("a number");
    assert!(
        reads > 0 && bytes <= reads * 8192,
        "{reads} reads of {bytes} bytes: a part of 4 KiB spans two blocks at most"
    );
}

#[test]
fn harmed_files_are_refused_with_place_and_reason() {
    let folder = Folder::new("harm");
    let mut server = Server::start(&folder.0, &["--shards", "1"]);
    let client = server.client();
    (0..200u32).for_each(|n| drop(client.set(&n.to_le_bytes(), &[1; 500]).wait().expect("set")));
    drop(client);
    // Long enough for the mark that proves how far the log is durable.
    std::thread::sleep(Duration::from_millis(300));
    server.kill();
    let segment = folder.0.join("segments/00000001.seg");
    let good = fs::read(&segment).expect("the first segment");
    let refused = |code: i32, expected: &[&str]| {
        let output = Server::command(&folder.0, &["--shards", "1"])
            .output()
            .expect("the server");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text}");
        expected
            .iter()
            .for_each(|word| assert!(text.contains(word), "{text:?} has no {word:?}"));
        // A slow machine is told how far the start has come.
        let lines = text.lines().filter(|line| !line.contains(" INFO startup "));
        assert_eq!(lines.count(), 1, "one line: {text}");
    };
    let mut flipped = good.clone();
    flipped[40_000] ^= 4;
    fs::write(&segment, &flipped).expect("written");
    refused(1, &["00000001.seg is damaged at offset", "LSN", "inspect"]);
    fs::write(&segment, &good[..30_000]).expect("written");
    refused(1, &["00000001.seg is damaged"]);
    let mut foreign = good.clone();
    foreign[20] ^= 0xFF;
    let crc = crc32fast::hash(&foreign[..4092]);
    foreign[4092..4096].copy_from_slice(&crc.to_le_bytes());
    fs::write(&segment, &foreign).expect("written");
    refused(2, &["00000001.seg belongs to node"]);
    fs::write(&segment, &good).expect("written");
    let server = Server::start(&folder.0, &["--shards", "1"]);
    let client = server.client();
    (0..200u32).for_each(|n| {
        assert_eq!(
            client
                .get(&n.to_le_bytes())
                .wait()
                .expect("get")
                .expect("present")
                .bytes,
            &[1; 500][..]
        )
    });
}

#[test]
fn a_start_that_cannot_serve_says_why_in_one_line() {
    let folder = Folder::new("start");
    let refused = |flags: &[&str], words: &[&str]| {
        let output = Server::command(&folder.0, flags)
            .output()
            .expect("the server");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {text}");
        words
            .iter()
            .for_each(|word| assert!(text.contains(word), "{text:?} has no {word:?}"));
    };
    refused(&["--shards", "200"], &["--shards 200", "CPUs"]);
    refused(&["--listen", "0.0.0.0:0"], &["--insecure"]);
    refused(
        &["--config", "/nonexistent/penstock.toml"],
        &["/nonexistent/penstock.toml"],
    );
    refused(
        &["--disk-bytes-max", "1MiB", "--shards", "1"],
        &["disk_bytes_max 1048576", "too small", "1 shards take"],
    );
    let server = Server::start(&folder.0, &["--shards", "1"]);
    refused(&["--shards", "1"], &["in use by process"]);
    let other = Folder::new("start-other");
    let output = Server::command(&other.0, &["--shards", "1"])
        .args(["--listen", &server.address.to_string()])
        .output()
        .expect("the server");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(2) && text.contains(&server.address.to_string()),
        "{text}"
    );
}

#[test]
fn a_failed_guard_shows_reason_and_actual_value_and_changes_nothing() {
    let folder = Folder::new("guard");
    let server = Server::start(&folder.0, &["--shards", "1"]);
    let client = server.client();
    client.set(b"k", &5u64.to_le_bytes()).wait().expect("set");
    match client
        .update_if(
            b"k",
            &[
                Field::u64(0).or_else(3).at_least(6),
                Field::u64(0).decrease(6),
            ],
        )
        .wait()
    {
        Err(ClientError::No(answer)) => assert_eq!(
            (answer.reason, answer.instruction, answer.actual()),
            (3, 0, Some(5))
        ),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        client
            .get(b"k")
            .wait()
            .expect("get")
            .expect("present")
            .bytes,
        &5u64.to_le_bytes()[..]
    );
}

/// What a reader has not taken yet is as it was when it was answered.
#[test]
fn a_slow_get_of_64_kib_returns_one_version_during_ten_thousand_edits() {
    const VALUE_BYTES: usize = 64 << 10;
    const GETS: u64 = 250;
    const EDITS_A_GET: u64 = 40;
    let folder = Folder::new("large");
    let flags = ["--durability", "none", "--write-stall-timeout-ms", "5m"];
    let server = Server::start(&folder.0, &flags);
    let client = Client::connect(
        server.address,
        ClientOptions {
            level: AckLevel::None,
            deadline: Duration::from_secs(60),
            ..ClientOptions::default()
        },
    )
    .expect("connected");
    let key = b"large";
    let edited = client.set(key, &vec![0; VALUE_BYTES]).wait();
    edited.expect("it is set");
    let mut slow = Raw::greeted(server.address);
    let mut frames = Vec::new();
    for id in 0..GETS {
        let mut batch = BatchRequest::begin(&mut frames, id, AckLevel::None, 0, 1);
        batch.get(&mut frames, key);
        batch.finish(&mut frames);
    }
    slow.say(&frames);
    let (mut edits, mut newest) = (0, 0);
    let mut behind = 0;
    let ends = [0, VALUE_BYTES / 2, VALUE_BYTES - 8].map(|at| u32::try_from(at).expect("small"));
    for id in 0..GETS {
        let pending: Vec<_> = (0..EDITS_A_GET)
            .map(|_| client.update_if(key, &ends.map(|at| Field::u64(at).increase(1))))
            .collect();
        for pending in pending {
            pending.wait().expect("an edit");
            edits += 1;
        }
        let (header, body) = slow.receive().expect("a reply");
        assert_eq!(header.request_id, id);
        let reply = Batch::read(&body).expect("a batch");
        let item = ReplyItem::read(reply.item(0)).expect("an item");
        assert_eq!(
            (item.head.status, item.value.len()),
            (Status::Ok, VALUE_BYTES)
        );
        let field = |at: u32| {
            let bytes = item.value[at as usize..].first_chunk().expect("within");
            u64::from_le_bytes(*bytes)
        };
        let version = field(ends[0]);
        assert_eq!(ends.map(field), [version; 3], "reply {id}");
        assert!(
            version >= newest && version <= edits,
            "{version} of {edits}"
        );
        newest = version;
        behind += u64::from(version < edits);
    }
    assert_eq!(edits, 10_000);
    assert!(
        behind >= GETS / 2,
        "{behind} replies waited for their reader"
    );
}
