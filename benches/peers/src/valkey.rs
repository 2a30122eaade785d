//! A Valkey server without persistence, as a process, spoken to by pipelined SETs and GETs.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::machine::Usage;
use crate::workload::{self, Order, Random};

const START_MAX: Duration = Duration::from_secs(10);
const PIPELINE: u64 = 1000;
/// Bytes of a key whose operations are measured.
pub const KEY_BYTES: usize = 16;

pub struct Valkey {
    child: Child,
    port: u16,
    stream: TcpStream,
    pub version: String,
}

/// What VALKEY_SERVER names, or `valkey-server` of the PATH, or why there is none.
pub fn binary() -> Result<PathBuf, &'static str> {
    if let Some(path) = std::env::var_os("VALKEY_SERVER") {
        return Ok(path.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join("valkey-server"))
        .find(|path| path.is_file())
        .ok_or("no valkey-server: name one by VALKEY_SERVER (README.md tells where to get it)")
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Get,
    Set,
}

impl Work {
    pub fn name(self) -> &'static str {
        match self {
            Work::Get => "GET",
            Work::Set => "SET",
        }
    }
}

/// How operations are asked for.
pub struct Load {
    pub connections: u64,
    /// Operations that each connection has under way.
    pub depth: u64,
    /// Not measured, before the duration.
    pub warm_up: Duration,
    pub duration: Duration,
}

/// The requests that a connection has under way: built once, sent many times with other keys.
struct Pipeline {
    requests: Vec<u8>,
    /// Where the keys stand.
    places: Vec<Range<usize>>,
    /// What the server answers.
    expected: Vec<u8>,
    replies: Vec<u8>,
    key: Vec<u8>,
    keys: u64,
    random: Random,
}

impl Pipeline {
    fn new(work: Work, load: &Load, keys: u64, value: &[u8]) -> Pipeline {
        let key = vec![0; KEY_BYTES];
        let (mut requests, mut expected) = (Vec::new(), Vec::new());
        let mut places = Vec::new();
        for _ in 0..load.depth {
            places.push(match work {
                Work::Get => {
                    bulk(&mut expected, value);
                    command(&mut requests, &[b"GET", &key])
                }
                Work::Set => {
                    expected.extend_from_slice(b"+OK\r\n");
                    command(&mut requests, &[b"SET", &key, value])
                }
            });
        }
        Pipeline {
            requests,
            places,
            replies: vec![0; expected.len()],
            expected,
            key,
            keys,
            random: Random::new(5),
        }
    }

    fn ask(&mut self, stream: &mut TcpStream) -> Outcome<()> {
        for place in &self.places {
            let number = self.random.below(self.keys);
            workload::key_into(&mut self.key, number, KEY_BYTES, Order::Random);
            self.requests[place.clone()].copy_from_slice(&self.key);
        }
        Ok(stream.write_all(&self.requests)?)
    }

    fn take(&mut self, stream: &mut TcpStream) -> Outcome<()> {
        stream.read_exact(&mut self.replies)?;
        if self.replies != self.expected {
            let told = String::from_utf8_lossy(&self.replies[..self.replies.len().min(40)]);
            return Err(format!("Valkey: {told}").into());
        }
        Ok(())
    }
}

fn connect(port: u16) -> Outcome<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    Ok(stream)
}

/// Appends a command of these words; gives where the second, the key, stands.
fn command(request: &mut Vec<u8>, words: &[&[u8]]) -> Range<usize> {
    write!(request, "*{}\r\n", words.len()).expect("a Vec takes all");
    let places: Vec<_> = words.iter().map(|word| bulk(request, word)).collect();
    places[1].clone()
}

/// Appends bytes with their length before them; gives where they stand.
fn bulk(into: &mut Vec<u8>, bytes: &[u8]) -> Range<usize> {
    write!(into, "${}\r\n", bytes.len()).expect("a Vec takes all");
    let start = into.len();
    into.extend_from_slice(bytes);
    into.extend_from_slice(b"\r\n");
    start..start + bytes.len()
}

impl Valkey {
    pub fn start(binary: &Path, folder: &Path) -> Outcome<Valkey> {
        std::fs::create_dir_all(folder)?;
        let version = String::from_utf8(Command::new(binary).arg("--version").output()?.stdout)?;
        // Free a moment ago; if somebody took it, the start fails and says so.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut child = Command::new(binary)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(folder)
            .stdout(Stdio::null())
            .spawn()?;
        let began = Instant::now();
        let stream = loop {
            match connect(port) {
                Ok(stream) => break stream,
                Err(error) if began.elapsed() > START_MAX => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(error);
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let words: Vec<&str> = version.split_whitespace().collect();
        let of = |name: &str| {
            words
                .iter()
                .find(|word| word.starts_with(name))
                .copied()
                .unwrap_or("")
        };
        let version = format!("Valkey {} {}", of("v="), of("malloc="));
        Ok(Valkey {
            child,
            port,
            stream,
            version,
        })
    }

    /// SETs keys `0..keys`.
    pub fn fill(&mut self, keys: u64, key_bytes: usize, value: &[u8]) -> Outcome<()> {
        let (mut key, mut request) = (Vec::new(), Vec::new());
        for first in (0..keys).step_by(usize::try_from(PIPELINE)?) {
            request.clear();
            let count = PIPELINE.min(keys - first);
            for number in first..first + count {
                workload::key_into(&mut key, number, key_bytes, Order::Random);
                command(&mut request, &[b"SET", &key, value]);
            }
            self.stream.write_all(&request)?;
            let mut replies = vec![0; usize::try_from(count)? * b"+OK\r\n".len()];
            self.stream.read_exact(&mut replies)?;
            if replies.chunks(5).any(|reply| reply != b"+OK\r\n") {
                return Err(format!("Valkey: {}", String::from_utf8_lossy(&replies[..40])).into());
            }
        }
        Ok(())
    }

    /// Operations a second on random keys of `0..keys`, which were filled with this value. One
    /// thread goes from one connection to the next and sends as much again as was answered.
    pub fn rate(&self, work: Work, load: &Load, keys: u64, value: &[u8]) -> Outcome<f64> {
        let mut pipeline = Pipeline::new(work, load, keys, value);
        let mut streams = Vec::new();
        for _ in 0..load.connections {
            let mut stream = connect(self.port)?;
            pipeline.ask(&mut stream)?;
            streams.push(stream);
        }
        let began = Instant::now();
        let mut measured: Option<Instant> = None;
        let mut operations = 0;
        loop {
            for stream in &mut streams {
                pipeline.take(stream)?;
                pipeline.ask(stream)?;
            }
            match measured {
                Some(from) if from.elapsed() >= load.duration => {
                    operations += load.connections * load.depth;
                    return Ok(operations as f64 / from.elapsed().as_secs_f64());
                }
                Some(_) => operations += load.connections * load.depth,
                None if began.elapsed() >= load.warm_up => measured = Some(Instant::now()),
                None => {}
            }
        }
    }

    pub fn usage(&self) -> Outcome<Usage> {
        Usage::of(Some(self.child.id()))
    }
}

impl Drop for Valkey {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_has_a_command_for_each_operation_and_knows_where_its_key_stands() {
        let load = Load {
            connections: 1,
            depth: 3,
            warm_up: Duration::ZERO,
            duration: Duration::ZERO,
        };
        let set = Pipeline::new(Work::Set, &load, 10, b"value");
        let one = [
            b"*3\r\n$3\r\nSET\r\n$16\r\n".as_slice(),
            &[0; 16],
            b"\r\n$5\r\nvalue\r\n",
        ]
        .concat();
        assert_eq!(set.requests, one.repeat(3));
        assert_eq!(set.expected, b"+OK\r\n".repeat(3));
        let get = Pipeline::new(Work::Get, &load, 10, b"value");
        assert_eq!(get.expected, b"$5\r\nvalue\r\n".repeat(3));
        for pipeline in [set, get] {
            assert_eq!(pipeline.places.len(), 3);
            for place in &pipeline.places {
                assert_eq!(pipeline.requests[place.clone()], [0; 16]);
                assert!(pipeline.requests[..place.start].ends_with(b"$16\r\n"));
            }
        }
    }
}
