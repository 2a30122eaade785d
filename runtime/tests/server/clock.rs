//! The clock of the machine and the time of the store: a clock that nobody vouches for is refused,
//! a store that is ahead says so, and there is a way back.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use penstock::system::kernel_clock::{ClockKeeping, clock_keeping};
use penstock_client::{Client, Expiry, Verbs, new_token, new_token_at};

use crate::command::command;
use crate::process::{Server, signal};
use crate::scrape::{Numbers, ask};
use crate::scratch::folder;

const HOUR_MS: u64 = 3_600_000;

const FLAGS: &[&str] = &[
    "--listen",
    "127.0.0.1:0",
    "--shard-ports",
    "0",
    "--resp-listen",
    "127.0.0.1:0",
    "--shards",
    "1",
    "--cache-bytes",
    "16MiB",
    "--segment-bytes",
    "4MiB",
    "--value-bytes-max",
    "64KiB",
];

fn serve(data: &Path, flags: &[&str]) -> Command {
    let mut command = command(&["serve"]);
    command.args(FLAGS).args(flags).arg("--data").arg(data);
    command.stderr(Stdio::piped());
    command
}

/// The exit code of a process that is to end by itself, and what it has said on standard error.
fn end_of(process: &mut Child) -> (Option<i32>, String) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = process.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut said = String::new();
    let errors = process.stderr.as_mut().expect("piped");
    errors.read_to_string(&mut said).unwrap();
    (status.code(), said)
}

fn stop(mut server: Server) -> String {
    server.signal("-TERM");
    let (code, said) = end_of(&mut server.process);
    assert_eq!(code, Some(0), "{said}");
    said
}

fn inspect(data: &Path, words: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, .. } = command(&["inspect"])
        .arg(data)
        .args(words)
        .output()
        .unwrap();
    (status.code(), String::from_utf8(stdout).unwrap())
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

fn value(client: &Client, key: &[u8]) -> Option<Vec<u8>> {
    let found = client.get(key).wait().unwrap();
    found.map(|found| found.bytes.to_vec())
}

/// A directory whose log ends so long ago, with `key` in it.
fn of_the_past(data: &Path, ago_ms: u64) {
    let server = Server::start(&mut serve(data, &["--admin-listen", "off"]));
    server.client().set(b"key", b"value").wait().unwrap();
    stop(server);
    let then = (unix_ms() - ago_ms).to_string();
    let (code, printed) = inspect(data, &["--lower-time", &then, "--accept-loss", "times"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("lowered: "), "{printed}");
}

#[test]
fn a_clock_more_than_a_day_ahead_of_the_log_needs_the_time_service_or_the_flag() {
    let data = folder("clock-unvouched");
    of_the_past(&data, 49 * HOUR_MS);
    let off = ["--admin-listen", "off"];
    if clock_keeping() == ClockKeeping::Unsynchronised {
        let at_once = [&off[..], &["--clock-wait-s", "0s"]].concat();
        for _ in 0..2 {
            let mut start = serve(&data, &at_once)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let (code, said) = end_of(&mut start);
            assert_eq!(code, Some(2), "{said}");
            for part in ["2 days later", "no time service keeps", "--accept-time"] {
                assert!(said.contains(part), "{part} in {said}");
            }
        }
        // A start waits for the time service. A stop ends the wait.
        let mut start = serve(&data, &off).stdout(Stdio::null()).spawn().unwrap();
        let mut errors = BufReader::new(start.stderr.take().unwrap()).lines();
        let waits = |line: io::Result<String>| line.unwrap().contains("waiting up to 60 s");
        assert!(errors.any(waits), "it does not wait");
        signal(start.id(), "-TERM");
        let rest: Vec<_> = errors.map(Result::unwrap).collect();
        assert_eq!(start.wait().unwrap().code(), Some(0), "{rest:?}");
        assert!(
            rest.iter().any(|line| line.contains("nothing was served")),
            "{rest:?}"
        );
    } else {
        eprintln!("SKIPPED: a time service keeps the clock here, so no start is refused");
    }
    let accepted = ["--admin-listen", "off", "--accept-time"];
    let server = Server::start(&mut serve(&data, &accepted));
    assert_eq!(value(&server.client(), b"key"), Some(b"value".to_vec()));
    server.client().set(b"key", b"later").wait().unwrap();
    let said = stop(server);
    assert!(said.contains("2 days have passed, by the clock"), "{said}");
    // The log has the time now.
    stop(Server::start(&mut serve(&data, &off)));
    // A day and less is an ordinary pause.
    of_the_past(&data, 23 * HOUR_MS);
    stop(Server::start(&mut serve(&data, &off)));
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn lowering_the_time_is_planned_before_it_is_carried_out_and_repeats() {
    let data = folder("clock-lowered");
    let server = Server::start(&mut serve(&data, &["--admin-listen", "off"]));
    let client = server.client();
    let (token, before) = (new_token().unwrap(), new_token().unwrap());
    client.set(b"key", b"value").wait().unwrap();
    client.set(b"timed", b"value").wait().unwrap();
    client
        .set_expiry(b"timed", Expiry::In(HOUR_MS))
        .wait()
        .unwrap();
    client.named(token).set(b"named", b"once").wait().unwrap();
    stop(server);
    let then = unix_ms() - HOUR_MS;
    let wanted = ["--lower-time", &then.to_string()];
    let (code, plan) = inspect(&data, &wanted);
    assert_eq!(code, Some(1), "{plan}");
    for part in ["gives up: times", "TOKEN_TOO_OLD", "nothing was changed"] {
        assert!(plan.contains(part), "{part} in {plan}");
    }
    assert_eq!(
        inspect(&data, &wanted),
        (code, plan),
        "it has changed nothing"
    );
    let accepted = [&wanted[..], &["--accept-loss", "times"]].concat();
    let (code, printed) = inspect(&data, &accepted);
    assert_eq!(code, Some(0), "{printed}");
    let (code, printed) = inspect(&data, &accepted);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("nothing to lower"), "{printed}");
    assert_eq!(inspect(&data, &[]).0, Some(0), "it is sound");

    let server = Server::start(&mut serve(&data, &["--admin-listen", "off"]));
    let client = server.client();
    assert_eq!(value(&client, b"key"), Some(b"value".to_vec()));
    assert_eq!(value(&client, b"timed"), Some(b"value".to_vec()));
    let again = client.named(token).set(b"named", b"once").wait().unwrap();
    assert!(again.is_replayed, "what is found is answered as it was");
    client
        .named(before)
        .set(b"{named}2", b"now")
        .wait()
        .unwrap();
    let old = new_token_at(then - 60_000).unwrap();
    let refused = client.named(old).set(b"named", b"old").wait().unwrap_err();
    assert!(refused.to_string().contains("TOKEN_TOO_OLD"), "{refused}");
    stop(server);
    let later = (unix_ms() + HOUR_MS).to_string();
    let (code, _) = inspect(&data, &["--lower-time", &later]);
    assert_eq!(code, Some(2), "nothing is raised");
    fs::remove_dir_all(&data).unwrap();
}

/// The library that gives a program another wall clock, if it is installed.
fn faketime() -> Option<PathBuf> {
    let folders = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib",
    ];
    let mut paths = folders
        .iter()
        .map(|it| Path::new(it).join("faketime/libfaketime.so.1"));
    paths.find(|path| path.exists())
}

/// A server with all its ports.
struct Ports {
    server: Server,
    admin: SocketAddr,
    resp: SocketAddr,
}

impl Ports {
    fn start(command: &mut Command) -> Ports {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let banner = BufReader::new(process.stdout.take().unwrap());
        let mut lines = banner.lines().map_while(Result::ok);
        let mut shown = std::collections::BTreeMap::new();
        for line in lines.by_ref().take_while(|line| line != "ready") {
            let mut words = line.split_whitespace();
            if let (Some(name), Some(address)) = (words.next(), words.next()) {
                let address = address.trim_start_matches("http://");
                shown.extend(address.parse().ok().map(|it| (name.to_string(), it)));
            }
        }
        std::thread::spawn(move || lines.for_each(drop));
        let address = shown["listening"];
        Ports {
            server: Server { process, address },
            admin: shown["admin"],
            resp: shown["resp"],
        }
    }

    fn page(&self, path: &str) -> (u16, String) {
        ask(
            self.admin,
            format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes(),
        )
    }

    /// The answer to a command of RESP, one line.
    fn resp(&self, words: &str) -> String {
        let mut stream = TcpStream::connect(self.resp).unwrap();
        stream.write_all(format!("{words}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    }

    fn ahead_s(&self) -> f64 {
        let (status, text) = self.page("/metrics");
        assert_eq!(status, 200);
        let numbers = Numbers::read(&text);
        let all = numbers.samples.iter();
        let mut of_shards = all.filter(|it| it.0 == "penstock_store_ahead_seconds");
        of_shards.next().expect("it is told").2
    }
}

#[test]
fn a_store_that_is_ahead_of_the_clock_says_so_serves_new_tokens_and_is_brought_back() {
    let Some(library) = faketime() else {
        eprintln!("SKIPPED: no libfaketime here (apt-get install libfaketime)");
        return;
    };
    let data = folder("clock-ahead");
    let admin = ["--admin-listen", "127.0.0.1:0"];
    // One start with a clock that is 8 hours ahead.
    let mut ahead = serve(&data, &admin);
    ahead.env("LD_PRELOAD", library).env("FAKETIME", "+8h");
    ahead.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let ports = Ports::start(&mut ahead);
    assert!(ports.ahead_s() < 1.0, "by its own clock it is right");
    ports.server.client().set(b"key", b"value").wait().unwrap();
    stop(ports.server);

    let ports = Ports::start(&mut serve(&data, &admin));
    // The numbers are published now and then.
    let deadline = Instant::now() + Duration::from_secs(60);
    while ports.ahead_s() < 7.9 * 3_600.0 {
        assert!(Instant::now() < deadline, "{}", ports.ahead_s());
        std::thread::sleep(Duration::from_millis(50));
    }
    let (status, ready) = ports.page("/readyz");
    assert_eq!((status, ready.lines().next()), (200, Some("ready")));
    assert!(
        ready.contains("note: the time of the store is 7 hours ahead"),
        "{ready}"
    );
    // A new token is by the time of the server, that of the client and of the command.
    let client = ports.server.client();
    let token = client.new_token().unwrap();
    client.named(token).set(b"named", b"1").wait().unwrap();
    let address = ports.server.address.to_string();
    let words = [
        "set", "named2", "u32:5", "--token", "new", "--addr", &address,
    ];
    let set = command(&words).output().unwrap();
    assert!(
        set.status.success(),
        "{}",
        String::from_utf8_lossy(&set.stderr)
    );
    // A time that the clock calls future is refused by name, and not taken and gone.
    let soon_s = unix_ms() / 1_000 + 1_800;
    for words in [
        format!("SET key other EXAT {soon_s}"),
        format!("SET new value PXAT {soon_s}000"),
        format!("EXPIREAT key {soon_s}"),
    ] {
        let answer = ports.resp(&words);
        assert!(answer.starts_with("-ERR the expiry "), "{words}: {answer}");
        assert!(answer.contains("ahead of the clock"), "{words}: {answer}");
    }
    assert_eq!(value(&client, b"key"), Some(b"value".to_vec()));
    assert!(ports.resp("SET key value EX 100").starts_with("+OK"));
    let said = stop(ports.server);
    assert!(
        said.contains("hours ahead of the clock of this machine"),
        "{said}"
    );

    let (code, printed) = inspect(&data, &["--lower-time", "now", "--accept-loss", "times"]);
    assert_eq!(code, Some(0), "{printed}");
    let ports = Ports::start(&mut serve(&data, &admin));
    let soon_s = unix_ms() / 1_000 + 1_800;
    assert!(
        ports
            .resp(&format!("SET key other EXAT {soon_s}"))
            .starts_with("+OK")
    );
    assert_eq!(
        value(&ports.server.client(), b"key"),
        Some(b"other".to_vec())
    );
    let client = ports.server.client();
    client
        .named(new_token().unwrap())
        .set(b"key", b"2")
        .wait()
        .unwrap();
    assert!(ports.ahead_s() < 1.0);
    let said = stop(ports.server);
    assert!(!said.contains("ahead of the clock"), "{said}");
    fs::remove_dir_all(&data).unwrap();
}
