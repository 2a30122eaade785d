//! The RESP port of the real server: atomic commands, pipelines, bad input.

mod announced;
mod beyond;
mod blocking;
mod channels;
mod channels_table;
mod cores;
mod flush_table;
mod fuzzed;
mod hash_table;
mod holds;
mod lifetimes;
mod list_table;
mod named;
mod oracle;
mod pausing;
mod running;
mod script_table;
mod scripts;
mod set_table;
mod several;
mod spread;
mod table;
mod text_tokens;
mod tools;
mod tracking;
mod tracking_table;
mod watching;
mod zset_table;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use penstock_client::{Client, ClientOptions, Verbs};

use crate::cluster::nodes::free_address;
use crate::command::command;
use crate::process::Server;
use crate::scratch::folder;

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Resp {
    server: Server,
    address: SocketAddr,
}

/// A server with a RESP port, and what `options` add.
fn start(name: &str, options: &[&str]) -> Resp {
    let address = free_address();
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    serve.args(["--admin-listen", "off", "--resp-listen"]);
    serve.arg(address.to_string()).args(options);
    serve.arg("--data").arg(folder(name));
    let server = Server::start(&mut serve);
    Resp { server, address }
}

/// A connection, and what it has read beyond the last reply.
pub(crate) struct Talk {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Talk {
    pub(crate) fn with(address: SocketAddr) -> Talk {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let bytes = Vec::new();
        Talk { stream, bytes }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next reply, as it is on the wire; empty at the end of the connection.
    pub(crate) fn reply(&mut self) -> Vec<u8> {
        loop {
            if let Some(end) = reply_end(&self.bytes, 0) {
                return self.bytes.drain(..end).collect();
            }
            let mut more = vec![0; 64 << 10];
            match self.stream.read(&mut more) {
                Ok(0) => return Vec::new(),
                Ok(read) => self.bytes.extend(&more[..read]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Vec::new(),
                Err(error) => panic!("{error}, behind {:?}", self.bytes.escape_ascii()),
            }
        }
    }

    /// Replies are asked for by [`Talk::has_reply`] alone from now on.
    pub(crate) fn never_waits(&mut self) {
        self.stream.set_nonblocking(true).unwrap();
    }

    /// Whether the next reply is there.
    pub(crate) fn has_reply(&mut self) -> bool {
        let mut more = vec![0; 64 << 10];
        match self.stream.read(&mut more) {
            Ok(0) => panic!("it was closed"),
            Ok(read) => self.bytes.extend(&more[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        reply_end(&self.bytes, 0).is_some()
    }

    pub(crate) fn ask(&mut self, words: &[&str]) -> String {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.send(&encode(&words));
        String::from_utf8(self.reply()).unwrap()
    }

    /// The replies to a pipeline of one command, so many times.
    pub(crate) fn ask_times(&mut self, words: &[&str], times: usize) -> Vec<String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.send(&encode(&words).repeat(times));
        let replies = (0..times).map(|_| String::from_utf8(self.reply()).unwrap());
        replies.collect()
    }
}

fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(*word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Where the reply ends that begins at `at`.
fn reply_end(bytes: &[u8], at: usize) -> Option<usize> {
    let line = bytes.get(at..)?;
    let len = line.windows(2).position(|pair| pair == b"\r\n")?;
    let (kind, text) = (line[0], &line[1..len]);
    let next = at + len + 2;
    let count = || {
        let text = std::str::from_utf8(text).expect("a length is text");
        text.parse::<i64>().expect("a length")
    };
    match kind {
        b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => Some(next),
        b'$' | b'=' if count() < 0 => Some(next),
        b'$' | b'=' => {
            let end = next + usize::try_from(count()).unwrap() + 2;
            (bytes.len() >= end).then_some(end)
        }
        b'*' | b'~' | b'%' | b'>' => {
            let elements = count().max(0) * if kind == b'%' { 2 } else { 1 };
            (0..elements).try_fold(next, |at, _| reply_end(bytes, at))
        }
        other => panic!("a reply begins with {other}"),
    }
}

/// The words of a line, with quotes as inline commands have them.
fn words_of(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let bytes = line.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b' ' {
            at += 1;
            continue;
        }
        let mut word = Vec::new();
        let is_quoted = bytes[at] == b'"';
        at += usize::from(is_quoted);
        while at < bytes.len() && bytes[at] != if is_quoted { b'"' } else { b' ' } {
            if is_quoted && bytes[at] == b'\\' {
                let (byte, len) = match bytes[at + 1] {
                    b'x' => (u8::from_str_radix(&line[at + 2..at + 4], 16).unwrap(), 4),
                    b'r' => (b'\r', 2),
                    b'n' => (b'\n', 2),
                    other => (other, 2),
                };
                word.push(byte);
                at += len;
            } else {
                word.push(bytes[at]);
                at += 1;
            }
        }
        at += 1;
        words.push(word);
    }
    words
}

#[test]
fn commands_that_read_and_write_are_atomic_between_connections_and_shards() {
    let resp = start("resp-atomic", &["--shards", "2"]);
    let (address, each, callers) = (resp.address, 60, 4);
    let threads: Vec<_> = (0..callers)
        .map(|caller| {
            std::thread::spawn(move || {
                let mut talk = Talk::with(address);
                let mut last = Vec::new();
                for number in 0..each {
                    let tail = format!("<{caller}.{number}>");
                    while talk.ask(&["APPEND", "log", &tail]).starts_with("-TRYAGAIN") {}
                    talk.ask(&["INCR", "count"]);
                    let now = format!("{caller}.{number}");
                    let before = loop {
                        let before = talk.ask(&["SET", "baton", &now, "GET"]);
                        if !before.starts_with("-TRYAGAIN") {
                            break before;
                        }
                    };
                    last.push(before);
                }
                last
            })
        })
        .collect();
    let mut batons: Vec<String> = threads
        .into_iter()
        .flat_map(|it| it.join().unwrap())
        .collect();
    let mut talk = Talk::with(address);
    let log = talk.ask(&["GET", "log"]);
    for caller in 0..callers {
        for number in 0..each {
            assert_eq!(log.matches(&format!("<{caller}.{number}>")).count(), 1);
        }
    }
    assert_eq!(
        talk.ask(&["GET", "count"]),
        format!("$3\r\n{}\r\n", each * callers)
    );
    // Each value that was set was told once, to the next who set one; the last one is there.
    batons.push(talk.ask(&["GETDEL", "baton"]));
    batons.sort();
    let distinct = batons.len();
    batons.dedup();
    assert_eq!(
        (batons.len(), distinct),
        (each * callers + 1, each * callers + 1)
    );
    resp.server.stop();
}

#[test]
fn native_clients_and_those_of_redis_share_keys_and_what_was_answered_survives_a_kill() {
    let data = folder("resp-shared");
    let mut resp = start("resp-shared", &["--shards", "2"]);
    let native = resp.server.client();
    let mut talk = Talk::with(resp.address);
    native.set(b"greeting", b"hello").wait().unwrap();
    assert_eq!(talk.ask(&["GET", "greeting"]), "$5\r\nhello\r\n");
    assert_eq!(talk.ask(&["INCRBY", "stock", "41"]), ":41\r\n");
    let mut pipeline = Vec::new();
    for number in 0..3000 {
        let key = format!("key:{number}");
        pipeline.extend(encode(&[b"SET", key.as_bytes(), b"v"]));
    }
    pipeline.extend(encode(&[b"INCR", b"stock"]));
    talk.send(&pipeline);
    for _ in 0..3000 {
        assert_eq!(talk.reply(), b"+OK\r\n");
    }
    assert_eq!(talk.reply(), b":42\r\n");
    resp.server.process.kill().unwrap();
    resp.server.process.wait().unwrap();
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    serve.args(["--admin-listen", "off", "--resp-listen"]);
    serve.arg(resp.address.to_string()).arg("--data").arg(&data);
    let server = Server::start(&mut serve);
    let native = server.client();
    let stock = native
        .get(b"stock")
        .wait()
        .unwrap()
        .expect("it was answered");
    assert_eq!(&stock.bytes[..], b"42");
    let mut talk = Talk::with(resp.address);
    assert_eq!(
        talk.ask(&["EXISTS", "key:0", "key:2999", "key:3000"]),
        ":2\r\n"
    );
    // All keys, each once, over short cursors and both shards.
    let (mut cursor, mut found) = ("0".to_string(), 0);
    loop {
        let page = talk.ask(&["SCAN", &cursor, "MATCH", "key:*", "COUNT", "500"]);
        found += page.matches("key:").count();
        cursor = page.split("\r\n").nth(2).unwrap().to_string();
        if cursor == "0" {
            break;
        }
        assert!(cursor.parse::<u64>().unwrap() < 1 << 53);
    }
    assert_eq!(found, 3000);
    server.stop();
}

#[test]
fn a_hundred_thousand_commands_at_once_are_answered_in_order() {
    let resp = start("resp-pipeline", &["--shards", "2"]);
    let mut talk = Talk::with(resp.address);
    let mut writer = talk.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        for number in 0..50_000 {
            let number = number.to_string();
            bytes.extend(encode(&[b"ECHO", number.as_bytes()]));
            bytes.extend(encode(&[
                b"INCR",
                if bytes.len() % 2 == 0 { b"a" } else { b"b" },
            ]));
        }
        writer.write_all(&bytes).unwrap();
    });
    let mut sums = 0;
    for number in 0..50_000u32 {
        let text = number.to_string();
        assert_eq!(
            talk.reply(),
            format!("${}\r\n{text}\r\n", text.len()).as_bytes()
        );
        let counted = talk.reply();
        assert_eq!(counted[0], b':');
        sums += 1;
    }
    sender.join().unwrap();
    assert_eq!(sums, 50_000);
    resp.server.stop();
}

#[test]
fn half_a_command_ends_at_the_deadline_of_partial_ones_and_what_is_no_resp_is_answered() {
    let resp = start(
        "resp-hostile",
        &["--shards", "1", "--partial-frame-timeout-ms", "200ms"],
    );
    let native = [
        40u32.to_le_bytes().to_vec(),
        vec![0xE7, 1, 1, 0],
        vec![0; 32],
    ]
    .concat();
    let half = b"PING\r\n*2\r\n$3\r\nGET\r\n$10\r\nabc".to_vec();
    for bytes in [native, half] {
        let mut talk = Talk::with(resp.address);
        talk.send(&bytes);
        if bytes.starts_with(b"PING") {
            assert_eq!(talk.reply(), b"+PONG\r\n");
        }
        assert_eq!(talk.reply(), b"", "the connection ends");
    }
    for (bytes, expected) in [
        (
            &b"*1\r\n$-5\r\n"[..],
            "-ERR Protocol error: invalid bulk length\r\n",
        ),
        (
            b"*2000000\r\n",
            "-ERR Protocol error: invalid multibulk length\r\n",
        ),
        (
            &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3],
            "-ERR this port speaks RESP without TLS\r\n",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n",
            "-ERR wrong number of arguments for 'get' command\r\n",
        ),
    ] {
        let mut talk = Talk::with(resp.address);
        talk.send(bytes);
        assert_eq!(
            talk.reply().escape_ascii().to_string(),
            expected.escape_default().to_string()
        );
    }
    let mut talk = Talk::with(resp.address);
    assert_eq!(talk.ask(&["PING"]), "+PONG\r\n");
    resp.server.stop();
}

#[test]
fn native_clients_at_the_port_of_resp_are_answered_where_they_are() {
    let resp = start("resp-native", &["--shards", "1"]);
    // A reply would be waited for longer than the test may run.
    let options = ClientOptions {
        deadline: Duration::from_secs(3600),
        ..ClientOptions::default()
    };
    let refused = Client::connect(resp.address, options).expect_err("another protocol");
    assert!(
        refused
            .to_string()
            .contains("the port for clients of Redis"),
        "{refused}"
    );
    let address = resp.address.to_string();
    for words in [
        &["get", "k"][..],
        &["ping"],
        &["bench", "echo", "--duration", "0.1"],
    ] {
        let output = command(&[words, &["--addr", &address]].concat())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            text.contains("the port for clients of Redis"),
            "{words:?}: {text}"
        );
        assert!(!text.contains("no answer within"), "{words:?}: {text}");
    }
    resp.server.stop();
}

#[test]
fn what_redis_cli_shows_of_a_server_is_in_its_info() {
    let resp = start("resp-stat", &["--shards", "1"]);
    let info = Talk::with(resp.address).ask(&["INFO"]);
    for field in [
        "used_memory",
        "connected_clients",
        "blocked_clients",
        "total_commands_processed",
        "total_connections_received",
    ] {
        let value = info
            .split("\r\n")
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        assert!(
            value.is_some_and(|it| it.parse::<u64>().is_ok()),
            "{field}: {value:?}"
        );
    }
    resp.server.stop();
}

#[test]
fn the_port_can_be_off_and_is_not_opened_to_others_without_being_asked_to() {
    let data = folder("resp-off");
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    serve
        .args(["--resp-listen", "0.0.0.0:0", "--data"])
        .arg(&data);
    let output = serve.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("resp_listen") || text.contains("--resp-listen"),
        "{text}"
    );
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    serve
        .args(["--admin-listen", "off", "--resp-listen", "off", "--data"])
        .arg(&data);
    Server::start(&mut serve).stop();
}
