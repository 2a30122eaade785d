//! What connections of the real server own: nothing while they are idle, no more than `memory_max`
//! carries whatever they send, and for as long as they like.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use penstock_net::hello::ClientHello;
use penstock_net::level::AckLevel;
use penstock_net::request::{BatchRequest, Condition};

use crate::cluster::nodes::free_address;
use crate::command::command;
use crate::process::{Server, the_machine};
use crate::scratch;

const MIB: u64 = 1 << 20;

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Served {
    server: Server,
    resp: SocketAddr,
    banner: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    Native,
    Resp,
}

const PORTS: [Port; 2] = [Port::Native, Port::Resp];

impl Served {
    fn start(name: &str, options: &[&str]) -> Served {
        let resp = free_address();
        let data = scratch::folder(name);
        let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
        serve.args(["--admin-listen", "off", "--durability", "none"]);
        serve.args(["--cache-bytes", "16MiB", "--resp-listen"]);
        serve.arg(resp.to_string()).args(options);
        if !options.contains(&"--shards") {
            serve.args(["--shards", "1"]);
        }
        serve.arg("--data").arg(data);
        let (server, banner) = Server::start_with_banner(&mut serve);
        Served {
            server,
            resp,
            banner,
        }
    }

    fn address(&self, port: Port) -> SocketAddr {
        match port {
            Port::Native => self.server.address,
            Port::Resp => self.resp,
        }
    }

    fn connect(&self, port: Port) -> TcpStream {
        let stream = TcpStream::connect(self.address(port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// A connection that has said HELLO, if its protocol wants that.
    fn greeted(&self, port: Port) -> TcpStream {
        let mut stream = self.connect(port);
        if port == Port::Native {
            let mut hello = Vec::new();
            let said = ClientHello {
                protocol_min: 1,
                protocol_max: 1,
                features: 0,
                name: "test",
            };
            said.write(&mut hello, 1);
            stream.write_all(&hello).unwrap();
            receive(&mut stream);
        }
        stream
    }

    fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.process.id()));
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap() * 1024
    }

    /// The resident memory once it is no more than `most`, or what it is after a long while.
    fn settled_bytes(&self, most: u64) -> u64 {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let now = self.resident_bytes();
            if now <= most || Instant::now() > until {
                return now;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until so much is resident.
    fn resident_over(&self, least: u64) {
        let until = Instant::now() + PATIENCE;
        while self.resident_bytes() < least {
            assert!(Instant::now() < until, "{}", self.resident_bytes());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// How the kernel's timer of a connection stands at the server's end: 2 is keep-alive.
    fn timer_of(&self, stream: &TcpStream) -> u8 {
        let ours = stream.local_addr().unwrap().port();
        let theirs = stream.peer_addr().unwrap().port();
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let (local, remote) = (format!(":{theirs:04X}"), format!(":{ours:04X}"));
        let line = table.lines().find(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[1].ends_with(&local) && fields[2].ends_with(&remote)
        });
        let timer = line.unwrap().split_whitespace().nth(5).unwrap();
        timer[..2].parse().unwrap()
    }
}

/// Some bytes of an answer; none at the end of the connection.
fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = vec![0; 64 << 10];
    match stream.read(&mut received) {
        Ok(read) => received.truncate(read),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => received.clear(),
        Err(error) => panic!("{error}"),
    }
    received
}

/// One write of a value.
fn set(port: Port, key: &str, value: &[u8]) -> Vec<u8> {
    match port {
        Port::Native => {
            let mut frame = Vec::new();
            let mut batch = BatchRequest::begin(&mut frame, 7, AckLevel::None, 0, 1);
            batch.set(&mut frame, key.as_bytes(), value, Condition::Always);
            batch.finish(&mut frame);
            frame
        }
        Port::Resp => {
            let mut command =
                format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n", key.len()).into_bytes();
            command.extend(format!("${}\r\n", value.len()).bytes());
            command.extend_from_slice(value);
            command.extend_from_slice(b"\r\n");
            command
        }
    }
}

/// Gives a connection of RESP an array of commands whose words are divided by blanks.
fn ask(stream: &mut TcpStream, commands: &[&str]) -> String {
    let mut bytes = Vec::new();
    for line in commands {
        let words: Vec<&str> = line.split(' ').collect();
        bytes.extend(format!("*{}\r\n", words.len()).bytes());
        words
            .iter()
            .for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    }
    stream.write_all(&bytes).unwrap();
    String::from_utf8_lossy(&receive(stream)).into_owned()
}

#[test]
fn an_idle_connection_owns_no_buffer_whatever_it_has_sent_and_read() {
    let _one = the_machine();
    const CONNECTIONS: u64 = 400;
    let long = vec![b'v'; 60_000];
    for io in ["auto", "threads"] {
        let served = Served::start("idle-buffers", &["--io", io]);
        for port in PORTS {
            let mut all = Vec::new();
            let mut before = 0;
            // The first half touches the memory of values and of buffers, and gives the buffers
            // back, so that the second half shows what connections own.
            for _ in 0..2 {
                let mut half: Vec<TcpStream> =
                    (0..CONNECTIONS).map(|_| served.greeted(port)).collect();
                before = served.resident_bytes();
                for stream in &mut half {
                    stream.write_all(&set(port, "k", &long)).unwrap();
                    assert!(!receive(stream).is_empty(), "{io} {port:?}");
                    if port == Port::Resp {
                        // Many commands, whose replies and places are many, too.
                        let pings = "*1\r\n$4\r\nPING\r\n".repeat(500);
                        let gets = "*2\r\n$3\r\nGET\r\n$1\r\nx\r\n".repeat(500);
                        stream
                            .write_all(&[pings, gets].concat().into_bytes())
                            .unwrap();
                        let mut bytes = 0;
                        while bytes < 500 * (7 + 5) {
                            bytes += receive(stream).len();
                        }
                    }
                }
                all.extend(half);
                // Longer than a connection keeps room after it was heard.
                std::thread::sleep(Duration::from_secs(3));
            }
            let most = before + CONNECTIONS * 2_048 + 3 * MIB;
            let after = served.settled_bytes(most);
            assert!(
                after <= most,
                "{io} {port:?}: each connection keeps {} bytes",
                after.saturating_sub(before) / CONNECTIONS
            );
            // Each is served on, from a stub and with a buffer again.
            for stream in &mut all {
                for value in [&long[..], b"v"] {
                    stream.write_all(&set(port, "k", value)).unwrap();
                    assert!(!receive(stream).is_empty(), "{io} {port:?}");
                }
            }
        }
        served.server.stop();
    }
}

#[test]
fn connections_beyond_what_memory_max_carries_are_refused_by_name() {
    let _one = the_machine();
    let options = ["--memory-max", "48MiB", "--value-bytes-max", "64KiB"];
    let served = Served::start("carried", &options);
    let banner_line = served
        .banner
        .iter()
        .find(|line| line.starts_with("connections"));
    let banner_line = banner_line.expect("the start tells how many it carries");
    let carried: usize = banner_line
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .unwrap();
    assert!(
        banner_line.contains("memory_max of 48 MiB carries"),
        "{banner_line}"
    );
    assert_eq!(carried, 48 * 1024 / 4 / 8);
    let mut open = Vec::new();
    for number in 0..carried {
        open.push(served.greeted(PORTS[number % 2]));
    }
    let mut refused = served.connect(Port::Resp);
    let text = String::from_utf8(receive(&mut refused)).unwrap();
    assert!(
        text.starts_with("-ERR max number of clients reached: "),
        "{text}"
    );
    assert!(text.contains("memory_max of 48 MiB carries"), "{text}");
    let mut refused = served.connect(Port::Native);
    let text = String::from_utf8_lossy(&receive(&mut refused)).into_owned();
    assert!(text.contains("memory_max of 48 MiB carries"), "{text}");
    // All that they may send without being whole: the rest of it never comes. Those for which
    // there is no room are ended.
    for (number, stream) in open.iter_mut().enumerate().skip(8) {
        let part = &set(PORTS[number % 2], "k", &[b'v'; 60_000])[..40_000];
        let _ = stream.write_all(part);
    }
    let resident = served.resident_bytes();
    assert!(resident < 48 * MIB, "{resident}");
    // New keys find room beside them, as soon as what was ended has given its memory back.
    let until = Instant::now() + Duration::from_secs(30);
    let (mut number, mut in_a_row) = (0, 0);
    while in_a_row < 1_000 {
        let reply = ask(&mut open[1], &[&format!("SET new:{number} value")]);
        number += 1;
        if reply == "+OK\r\n" {
            in_a_row += 1;
            continue;
        }
        assert!(
            reply.starts_with("-OOM ") && Instant::now() < until,
            "{reply}"
        );
        in_a_row = 0;
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(served.resident_bytes() < 48 * MIB);
}

/// Sets new keys until none is taken any more, or so many are; returns how many were. `next` is the
/// number of the next key.
fn fill(stream: &mut TcpStream, next: &mut u32, most: usize) -> usize {
    const AT_ONCE: u32 = 500;
    let mut taken = 0;
    while taken < most {
        let numbers = *next..*next + AT_ONCE;
        *next = numbers.end;
        let commands: Vec<String> = numbers.map(|it| format!("SET new:{it} v")).collect();
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let mut reply = ask(stream, &commands);
        while reply.matches("\r\n").count() < commands.len() {
            reply += &String::from_utf8(receive(stream)).unwrap();
        }
        let more = reply.matches("+OK\r\n").count();
        assert_eq!(
            more + reply.matches("-OOM ").count(),
            commands.len(),
            "{reply}"
        );
        if more == 0 {
            break;
        }
        taken += more;
    }
    taken
}

/// The allocator keeps what the connections had, because keys lie beside it, and the process is not
/// near its bound.
#[test]
fn new_keys_find_room_in_what_connections_had_when_those_have_ended() {
    let _one = the_machine();
    let options = ["--memory-max", "48MiB", "--value-bytes-max", "64KiB"];
    let served = Served::start("kept", &options);
    let mut keys = served.connect(Port::Resp);
    let before = served.resident_bytes();
    let part = &set(Port::Resp, "k", &[b'v'; 2_000])[..900];
    let mut open: Vec<TcpStream> = (0..1_500).map(|_| served.connect(Port::Resp)).collect();
    for stream in &mut open {
        stream.write_all(part).unwrap();
    }
    served.resident_over(before + 6 * MIB);
    let mut next = 0;
    let taken = fill(&mut keys, &mut next, usize::MAX);
    assert!(taken > 10_000, "{taken}");
    assert!(served.resident_bytes() < 48 * MIB);
    drop(open);
    // Some room for keys is left in what the index has.
    const MORE: usize = 50_000;
    let until = Instant::now() + PATIENCE;
    let mut more = 0;
    while more < MORE {
        more += fill(&mut keys, &mut next, MORE - more);
        assert!(Instant::now() < until, "{more} behind {taken}");
    }
    assert!(served.resident_bytes() < 48 * MIB);
}

#[test]
fn what_multi_has_queued_is_within_memory_max_and_who_queues_too_much_is_refused() {
    let _one = the_machine();
    let served = Served::start("queued", &["--memory-max", "128MiB"]);
    let value = "v".repeat(900_000);
    let (mut queued, mut ended) = (Vec::new(), 0);
    let sets = ["{a}1", "{a}2"].map(|key| set(Port::Resp, key, value.as_bytes()));
    let begin = b"*1\r\n$5\r\nMULTI\r\n";
    for _ in 0..100 {
        let mut stream = served.connect(Port::Resp);
        // The server may end the connection before it has read all.
        let sent = stream.write_all(&[&begin[..], &sets[0], &sets[1]].concat());
        let mut reply = Vec::new();
        while reply != b"+OK\r\n+QUEUED\r\n+QUEUED\r\n" {
            let received = receive(&mut stream);
            if received.is_empty() {
                break;
            }
            reply.extend(received);
        }
        // An answer may say so behind both.
        stream
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let mut more = vec![0; 4096];
        if let Ok(read) = stream.read(&mut more) {
            reply.extend(&more[..read]);
        }
        let reply = String::from_utf8_lossy(&reply).into_owned();
        if sent.is_err() || reply.contains('-') {
            let has_no_room = reply.contains("-ERR the server has no room for ");
            assert!(has_no_room || sent.is_err(), "{reply:?}");
            ended += 1;
        } else {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            queued.push(stream);
        }
    }
    assert!(ended > 50, "{ended} were ended");
    assert!(served.resident_bytes() < 128 * MIB);
    let mut other = served.connect(Port::Resp);
    assert_eq!(ask(&mut other, &["SET new key"]), "+OK\r\n");
    // Who was let in has its transaction.
    assert!(ask(&mut queued[0], &["EXEC"]).starts_with("*2\r\n+OK\r\n+OK"));
}

#[test]
fn a_transaction_with_a_long_reply_is_refused_and_others_are_served_meanwhile() {
    let _one = the_machine();
    let options = ["--memory-max", "160MiB", "--value-bytes-max", "1000000"];
    for shards in ["1", "2"] {
        let served = Served::start("long-exec", &[&options[..], &["--shards", shards]].concat());
        let mut one = served.connect(Port::Resp);
        one.write_all(&set(Port::Resp, "big", &vec![b'v'; 1_000_000]))
            .unwrap();
        assert_eq!(receive(&mut one), b"+OK\r\n");
        let mut most = 0;
        let mget = format!("MGET{}", " big".repeat(400));
        let gets = vec!["GET big"; 1_000];
        let ranges = vec!["GETRANGE big 0 -1"; 300];
        for commands in [&[&mget[..]][..], &gets, &ranges] {
            let all = [&["MULTI"][..], commands, &["SET big short", "EXEC"]].concat();
            let mut reply = ask(&mut one, &all);
            while !reply.ends_with("\r\n") || !reply.contains("-EXECABORT") {
                reply.push_str(&String::from_utf8_lossy(&receive(&mut one)));
                assert!(reply.len() < 1_000_000, "{}", &reply[..200]);
            }
            most = most.max(served.resident_bytes());
            assert!(
                reply.contains("and 4194304 is the limit: output_bytes_max"),
                "{reply}"
            );
            assert_eq!(ask(&mut one, &["STRLEN big"]), ":1000000\r\n");
        }
        assert!(most < 160 * MIB, "{most}");
    }
}

#[test]
fn transactions_on_more_values_than_replies_have_room_for_are_answered_side_by_side() {
    let _one = the_machine();
    for (shards, memory) in [("1", "64MiB"), ("2", "128MiB")] {
        let options = ["--memory-max", memory, "--value-bytes-max", "1MiB"];
        let options = [&options[..], &["--shards", shards]].concat();
        let served = Served::start("kept-values", &options);
        let mut one = served.connect(Port::Resp);
        let keys = ["{a}1", "{a}2", "{a}3", "{a}4", "{a}5"];
        for key in keys {
            let value = vec![b'v'; 1 << 20];
            one.write_all(&set(Port::Resp, key, &value)).unwrap();
            assert_eq!(receive(&mut one), b"+OK\r\n");
        }
        let lengths = keys.map(|key| format!("STRLEN {key}"));
        let lengths = lengths.each_ref().map(String::as_str);
        let begin = [&["MULTI"][..], &lengths].concat();
        // On one shard and on the other, alone and several at the same time.
        let mut all: Vec<TcpStream> = (0..6).map(|_| served.connect(Port::Resp)).collect();
        for stream in &mut all {
            let reply = whole(stream, &begin, begin.len());
            assert!(!reply.contains('-'), "{reply}");
        }
        for stream in &mut all {
            stream.write_all(b"*1\r\n$4\r\nEXEC\r\n").unwrap();
        }
        for stream in &mut all {
            let expected = format!("*5\r\n{}", ":1048576\r\n".repeat(5));
            let mut reply = String::new();
            while reply.len() < expected.len() {
                reply.push_str(&String::from_utf8_lossy(&receive(stream)));
            }
            assert_eq!(reply, expected);
        }
        // The values stay in the shard: no room is taken.
        let reply = whole(&mut one, &["MULTI", lengths[0], "EXEC"], 4);
        assert!(reply.ends_with("*1\r\n:1048576\r\n"), "{reply}");
    }
}

/// Asks for so many lines of replies.
fn whole(stream: &mut TcpStream, commands: &[&str], lines: usize) -> String {
    let mut reply = ask(stream, commands);
    while reply.lines().count() < lines || !reply.ends_with("\r\n") {
        let received = receive(stream);
        assert!(
            !received.is_empty(),
            "the connection ended behind {reply:?}"
        );
        reply.push_str(&String::from_utf8_lossy(&received));
    }
    reply
}

#[test]
fn long_replies_that_nobody_reads_stay_within_memory_max_whichever_command_makes_them() {
    let _one = the_machine();
    let served = Served::start("unread", &["--memory-max", "96MiB"]);
    let mut one = served.connect(Port::Resp);
    one.write_all(&set(Port::Resp, "big", &[b'v'; 10_000]))
        .unwrap();
    assert_eq!(receive(&mut one), b"+OK\r\n");
    let command = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let mut bytes = format!("*{}\r\n", words.len());
        words
            .iter()
            .for_each(|word| bytes.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        bytes
    };
    let exec = [
        command("MULTI"),
        command("GET big").repeat(400),
        command("EXEC"),
    ]
    .concat();
    let mut most = 0;
    for what in [
        exec,
        command("PING").repeat(20_000),
        command("COMMAND DOCS").repeat(2_000),
        command("INFO").repeat(2_000),
        command("CLIENT LIST").repeat(2_000),
        command("HELLO 2").repeat(2_000),
        command(&format!("MGET{}", " big".repeat(1_000))),
        command("CONFIG GET *").repeat(2_000),
        command("ECHO some-words-to-be-said-again").repeat(20_000),
        command("GETEX big PERSIST").repeat(1_000),
    ] {
        let mut unread = Vec::new();
        for _ in 0..100 {
            let mut stream = served.connect(Port::Resp);
            stream.set_nonblocking(true).unwrap();
            // As much as goes in: what is not read any more stays here.
            let _ = stream.write(what.as_bytes());
            unread.push(stream);
        }
        for _ in 0..50 {
            most = most.max(served.resident_bytes());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(
            most < 96 * MIB,
            "{most} behind {}",
            &what[..60.min(what.len())]
        );
        drop(unread);
        assert_eq!(ask(&mut one, &["STRLEN big"]), ":10000\r\n");
    }
}

/// What is known of a thousand commands takes room until they are answered, and the answers are
/// long. Nobody reads from connections that wait for room, so none is found to have ended.
#[test]
fn connections_that_have_ended_and_wait_for_room_do_not_wait_for_each_other() {
    let _one = the_machine();
    let served = Served::start("gone", &["--memory-max", "96MiB", "--shards", "1"]);
    let mut one = served.connect(Port::Resp);
    one.write_all(&set(Port::Resp, "big", &[b'v'; 10_000]))
        .unwrap();
    assert_eq!(receive(&mut one), b"+OK\r\n");
    let echo = "*2\r\n$4\r\nECHO\r\n$31\r\nsome-words-to-be-said-again-now\r\n".repeat(20_000);
    let getex = "*3\r\n$5\r\nGETEX\r\n$3\r\nbig\r\n$7\r\nPERSIST\r\n".repeat(1_000);
    for what in [echo, getex] {
        let unread: Vec<TcpStream> = (0..100)
            .map(|_| {
                let mut stream = served.connect(Port::Resp);
                stream.set_nonblocking(true).unwrap();
                let _ = stream.write(what.as_bytes());
                stream
            })
            .collect();
        std::thread::sleep(Duration::from_millis(500));
        drop(unread);
        // What is answered by GET needs room.
        assert_eq!(ask(&mut one, &["STRLEN big"]), ":10000\r\n");
    }
}

#[test]
fn pipelines_of_scripts_that_nobody_reads_hold_up_no_pipeline_that_is_read() {
    let _one = the_machine();
    let text = "return redis.call('GET', KEYS[1])";
    let eval = |key: &str| {
        format!(
            "*4\r\n$4\r\nEVAL\r\n${}\r\n{text}\r\n$1\r\n1\r\n${}\r\n{key}\r\n",
            text.len(),
            key.len()
        )
    };
    let getex = |key: &str| {
        let len = key.len();
        format!("*3\r\n$5\r\nGETEX\r\n${len}\r\n{key}\r\n$7\r\nPERSIST\r\n")
    };
    for shards in ["1", "2"] {
        let options = ["--memory-max", "96MiB", "--shards", shards];
        let served = Served::start("unread-scripts", &options);
        let mut one = served.connect(Port::Resp);
        let keys: Vec<String> = (0..10).map(|key| format!("big{key}")).collect();
        for key in &keys {
            one.write_all(&set(Port::Resp, key, &[b'v'; 10_000]))
                .unwrap();
            assert_eq!(receive(&mut one), b"+OK\r\n");
        }
        let both = keys.iter().map(|key| getex(key) + &eval(key));
        let round: String = both.collect();
        for _ in 0..3 {
            let mut unread = Vec::new();
            for _ in 0..100 {
                let mut stream = served.connect(Port::Resp);
                stream.set_nonblocking(true).unwrap();
                let _ = stream.write(round.repeat(50).as_bytes());
                unread.push(stream);
            }
            // The room of the others may leave none for a long reply, and then nothing is executed.
            one.write_all(round.repeat(5).as_bytes()).unwrap();
            let mut reply = String::new();
            let ends = |line: &&str| line.starts_with('v') || line.starts_with('-');
            while !reply.ends_with('\n') || reply.lines().filter(ends).count() < 100 {
                let received = receive(&mut one);
                assert!(!received.is_empty(), "it ended, {shards} shards");
                reply.push_str(&String::from_utf8_lossy(&received));
            }
            let mut errors = reply.lines().filter(|line| line.starts_with('-'));
            assert!(
                errors.all(|line| line.starts_with("-BUSY")),
                "{shards} shards"
            );
            assert!(served.resident_bytes() < 96 * MIB);
            drop(unread);
        }
        let reply = whole(&mut one, &["GET big0"], 2);
        assert_eq!(reply.len(), 10_010, "{shards} shards");
    }
}

#[test]
fn an_upload_that_moves_is_not_cut_and_one_that_drips_is() {
    let options = ["--partial-frame-timeout-ms", "2s"];
    let served = Served::start("uploads", &options);
    for port in PORTS {
        let mut moving = served.greeted(port);
        let mut dripping = served.greeted(port);
        let frame = set(port, "k", &vec![b'v'; 300_000]);
        let began = Instant::now();
        let mut dripped = Ok(());
        for piece in frame.chunks(40_000) {
            moving.write_all(piece).unwrap();
            if dripped.is_ok() {
                dripped = dripping.write_all(&piece[..10]);
            }
            std::thread::sleep(Duration::from_millis(600));
        }
        assert!(began.elapsed() > Duration::from_secs(4));
        let reply = receive(&mut moving);
        match port {
            Port::Native => assert!(!reply.is_empty()),
            Port::Resp => assert_eq!(reply, b"+OK\r\n"),
        }
        // It is cut: what is said before is no answer to a frame that never came.
        while !receive(&mut dripping).is_empty() {}
    }
}

#[test]
fn idle_connections_of_resp_stay_and_are_probed_unless_an_option_says_else() {
    let served = Served::start("idle-resp", &["--idle-timeout-s", "1s"]);
    let mut resp = served.connect(Port::Resp);
    let reply = ask(
        &mut resp,
        &["CONFIG GET timeout", "CONFIG GET tcp-keepalive"],
    );
    let expected = "*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n*2\r\n$13\r\ntcp-keepalive\r\n$2\r\n60\r\n";
    assert_eq!(reply, expected);
    let mut native = served.greeted(Port::Native);
    assert_eq!(served.timer_of(&resp), 2, "keep-alive");
    assert!(receive(&mut native).is_empty(), "the native one is closed");
    assert_eq!(ask(&mut resp, &["PING"]), "+PONG\r\n");
    served.server.stop();

    let served = Served::start("idle-resp", &["--resp-idle-timeout-s", "1s"]);
    let mut resp = served.connect(Port::Resp);
    let reply = ask(&mut resp, &["CONFIG GET timeout"]);
    assert_eq!(reply, "*2\r\n$7\r\ntimeout\r\n$1\r\n1\r\n");
    assert!(receive(&mut resp).is_empty(), "it is closed");
}
