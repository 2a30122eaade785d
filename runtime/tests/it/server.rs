//! A server as a process of its own, on free ports, that a failing test takes down with it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_net::client::{Client, ClientOptions};

/// Longer than anything here takes, so that only a hang ends a test by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    process: Child,
    /// The port that all shards share.
    pub(crate) address: SocketAddr,
    /// Ports that one shard alone listens on.
    pub(crate) shard_ports: Vec<u16>,
    /// What it said of itself before it served.
    pub(crate) banner: String,
    stderr: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Server {
    /// `penstock serve` on free ports with small segments and a small cache; `flags` win.
    pub(crate) fn command(data: &Path, flags: &[&str]) -> Command {
        let mut command = penstock(&["serve", "--data"]);
        command.envs([
            ("PENSTOCK_LISTEN", "127.0.0.1:0"),
            ("PENSTOCK_SHARD_PORTS", "0"),
            ("PENSTOCK_SEGMENT_BYTES", "4MiB"),
            ("PENSTOCK_VALUE_BYTES_MAX", "64KiB"),
            ("PENSTOCK_CACHE_BYTES", "16MiB"),
        ]);
        command.arg(data).args(flags);
        command
    }

    /// Starts it and waits until it serves.
    pub(crate) fn start(data: &Path, flags: &[&str]) -> Server {
        let mut process = Server::command(data, flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server");
        let stdout = process.stdout.take().expect("piped");
        let errors = process.stderr.take().expect("piped");
        let stderr = Arc::new(Mutex::new(String::new()));
        let (sender, lines) = std::sync::mpsc::channel();
        // Both are read to their end, so that the server never waits for a pipe.
        let readers = vec![
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            }),
            std::thread::spawn({
                let stderr = Arc::clone(&stderr);
                move || {
                    for line in BufReader::new(errors).lines().map_while(Result::ok) {
                        let mut said = stderr.lock().expect("no reader panics");
                        *said += &line;
                        said.push('\n');
                    }
                }
            }),
        ];
        let mut server = Server {
            process,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            shard_ports: Vec::new(),
            banner: String::new(),
            stderr,
            readers,
        };
        loop {
            let Ok(line) = lines.recv_timeout(PATIENCE) else {
                server.kill();
                panic!(
                    "the server did not start: {}{}",
                    server.banner,
                    server.stderr()
                );
            };
            if let Some(rest) = line.strip_prefix("listening") {
                let mut words = rest.split_whitespace();
                server.address = words
                    .next()
                    .and_then(|word| word.parse().ok())
                    .expect("an address");
                server.shard_ports = words.filter_map(|word| word.parse().ok()).collect();
            }
            if line == "ready" {
                return server;
            }
            server.banner += &line;
            server.banner.push('\n');
        }
    }

    pub(crate) fn client(&self) -> Client {
        let options = ClientOptions {
            deadline: PATIENCE,
            ..ClientOptions::default()
        };
        Client::connect(self.address, options).expect("connected")
    }

    /// It answers somebody else as if nothing had happened.
    pub(crate) fn serves_on(&self) {
        let client = self.client();
        client.set(b"alive", b"yes").wait().expect("set");
        let found = client.get(b"alive").wait().expect("get").expect("present");
        assert_eq!(found.bytes, &b"yes"[..]);
    }

    /// One of the sums that INFO shows.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let info = self.client().info().wait().expect("info");
        let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
        info["counters"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// Runs a command against this server.
    pub(crate) fn ask(&self, words: &[&str]) -> Output {
        penstock(words)
            .args(["--addr", &self.address.to_string()])
            .output()
            .expect("the command")
    }

    /// Runs a command that must end with this code; what it printed on both streams.
    pub(crate) fn told(&self, code: i32, words: &[&str]) -> String {
        let output = self.ask(words);
        let text = text_of(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
        text
    }

    /// What it wrote to its standard error so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().expect("no reader panics").clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("proc");
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS"))
            .expect("a size");
        line.split_whitespace()
            .nth(1)
            .and_then(|number| number.parse().ok())
            .expect("a number")
    }

    /// Asks for the clean stop and does not wait for it.
    pub(crate) fn terminate(&self) {
        let sent = Command::new("kill")
            .args(["-TERM", &self.pid().to_string()])
            .status();
        assert!(sent.expect("kill").success());
    }

    /// The exit code of a process that is about to end.
    pub(crate) fn ended(mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.process.try_wait().expect("a child") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the server did not end: {}", self.stderr());
    }

    /// SIGTERM, and the exit code that follows.
    pub(crate) fn stop(self) -> Option<i32> {
        self.terminate();
        self.ended()
    }

    /// SIGKILL; gone when this returns.
    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.readers.drain(..).for_each(|reader| {
            let _ = reader.join();
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The binary with these words and without any `PENSTOCK_...` variable.
pub(crate) fn penstock(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PENSTOCK_") {
            command.env_remove(name);
        }
    }
    command.args(words);
    command
}

/// Both streams of a command that ended.
pub(crate) fn text_of(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// A start that must be refused: exit code 2 and one line, which has these words. A server that
/// starts all the same is killed.
pub(crate) fn refused(data: &Path, flags: &[&str], words: &[&str]) {
    let mut process = Server::command(data, flags)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server");
    let until = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = process.try_wait().expect("a child") {
            break status;
        }
        if Instant::now() > until {
            let _ = process.kill();
            let _ = process.wait();
            panic!("{flags:?} was not refused; expected {words:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut line = String::new();
    let mut errors = process.stderr.take().expect("piped");
    errors.read_to_string(&mut line).expect("text");
    assert_eq!(status.code(), Some(2), "{flags:?}: {line}");
    assert_eq!(line.lines().count(), 1, "one line: {line}");
    assert!(line.starts_with("penstock: "), "{line}");
    for word in words {
        assert!(line.contains(word), "{line:?} has no {word:?}");
    }
}

/// How many shards this machine can run, up to two; says so when it is one.
pub(crate) fn two_shards() -> bool {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        println!("SKIPPED: two shards need two CPUs, and this process may use {cpus}");
    }
    cpus >= 2
}
