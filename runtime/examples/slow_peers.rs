//! What peers that do not read, or read slowly, do to others and to themselves:
//!
//! ```text
//! cargo run --release -p penstock --example slow_peers -- hogs  [--server BINARY] [--seconds 8]
//! cargo run --release -p penstock --example slow_peers -- rates [--server BINARY] [--io threads]
//! ```
//!
//! `hogs` prints the latency of one honest client alone, beside 4 and beside 20 connections that
//! pipeline GETs of 1 MiB and read nothing. `rates` reads 8 MiB at steady rates and prints which
//! readers were cut. Both run on loopback against a server of their own with `memory_max` 512 MiB
//! and two shards, in a directory that is removed, and end by themselves.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use penstock_net::batch::Batch;
use penstock_net::frame::{Header, Opcode, write_frame};
use penstock_net::hello::ClientHello;
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::ReplyItem;
use penstock_net::request::{BatchRequest, Condition};
use penstock_net::status::Status;

/// Lengths of the values that the honest client reads.
const LENGTHS: [usize; 4] = [64, 4 << 10, 64 << 10, 1 << 20];
/// Keys of each length, so that both shards have some.
const KEYS: usize = 8;
/// GETs that a hog sends.
const HOG_GETS: u64 = 2_000;
/// What an honest client gives a GET.
const DEADLINE_MS: u16 = 500;
/// Bytes that a slow reader asks for.
const RATE_BYTES: usize = 8 << 20;
/// How long a slow reader is watched, at most.
const RATE_TIME_MAX: Duration = Duration::from_secs(60);
/// Bytes a second of the slow readers, in thousands.
const RATES: [usize; 9] = [1, 5, 20, 30, 50, 100, 200, 500, 1_000];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("slow_peers: {text}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let mut words = std::env::args().skip(1);
    let kind = words.next().ok_or("say hogs or rates")?;
    let (mut binary, mut seconds, mut io) = (None, 8, String::from("auto"));
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        match word.as_str() {
            "--server" => binary = Some(PathBuf::from(value)),
            "--seconds" => {
                let number: u64 = value.parse().map_err(|_| "--seconds is a number")?;
                seconds = number.clamp(1, 60);
            }
            "--io" => io = value,
            _ => return Err(format!("{word} is not known")),
        }
    }
    // An example lies beside the binary, in a folder of its own.
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let beside = own
        .parent()
        .and_then(Path::parent)
        .unwrap_or(Path::new("."));
    let binary = binary.unwrap_or_else(|| beside.join("penstock"));
    let server = Server::start(&binary, &io)?;
    println!("server {}, io {io}", binary.display());
    match kind.as_str() {
        "hogs" => hogs(&server, Duration::from_secs(seconds)),
        "rates" => rates(&server),
        _ => Err(format!("{kind} is not known: hogs or rates")),
    }
}

// ---- hogs ----

fn hogs(server: &Server, time: Duration) -> Result<(), String> {
    fill(server)?;
    println!(
        "one honest client, a GET at a time with a deadline of {DEADLINE_MS} ms, {time:?} each"
    );
    println!(
        "hogs   bytes    GETs  p50 ms  p99 ms  max ms  late answers  hogs cut, first and last after"
    );
    for count in [0, 4, 20] {
        let mut hogs = Vec::new();
        for _ in 0..count {
            hogs.push(Hog::new(server.address)?);
        }
        let began = Instant::now();
        let mut honest = Wire::new(server.address)?;
        let mut latencies: [Vec<f64>; LENGTHS.len()] = Default::default();
        let mut late = [0_usize; LENGTHS.len()];
        let mut round = 0;
        while began.elapsed() < time {
            for (which, &length) in LENGTHS.iter().enumerate() {
                let asked = Instant::now();
                let status = honest.get(&key(length, round % KEYS), DEADLINE_MS)?;
                latencies[which].push(asked.elapsed().as_secs_f64() * 1e3);
                late[which] += usize::from(status != Status::Ok);
            }
            hogs.iter_mut().for_each(|hog| hog.send_more(began));
            round += 1;
        }
        let mut cut: Vec<f64> = hogs.iter().filter_map(|hog| hog.cut_after).collect();
        cut.sort_by(f64::total_cmp);
        for (which, latencies) in latencies.iter_mut().enumerate() {
            latencies.sort_by(f64::total_cmp);
            let at = |percent: usize| latencies[latencies.len() * percent / 100];
            let ends = match (cut.first(), cut.last()) {
                (Some(first), Some(last)) => {
                    format!("{} of {count}, {first:.1} s and {last:.1} s", cut.len())
                }
                _ => format!("0 of {count}"),
            };
            println!(
                "{count:4} {:7} {:7} {:7.2} {:7.2} {:7.0}  {:12}  {ends}",
                LENGTHS[which],
                latencies.len(),
                at(50),
                at(99),
                latencies[latencies.len() - 1],
                late[which],
            );
        }
    }
    Ok(())
}

/// Sets the keys that are read.
fn fill(server: &Server) -> Result<(), String> {
    let mut wire = Wire::new(server.address)?;
    for length in LENGTHS {
        for number in 0..KEYS {
            let mut frame = Vec::new();
            let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::Disk, 0, 1);
            batch.set(
                &mut frame,
                &key(length, number),
                &vec![7; length],
                Condition::Always,
            );
            batch.finish(&mut frame);
            let status = wire.ask(&frame)?;
            if status != Status::Ok {
                return Err(format!("a SET was answered {}", status.name()));
            }
        }
    }
    Ok(())
}

fn key(length: usize, number: usize) -> Vec<u8> {
    format!("value:{length}:{number}").into_bytes()
}

fn get(id: u64, key: &[u8], deadline_ms: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut batch = BatchRequest::begin(&mut frame, id, AckLevel::None, deadline_ms, 1);
    batch.get(&mut frame, key);
    batch.finish(&mut frame);
    frame
}

/// A connection that asks for much and reads nothing.
struct Hog {
    stream: TcpStream,
    /// What it has not sent yet.
    left: Vec<u8>,
    /// Seconds until the server cut it.
    cut_after: Option<f64>,
}

impl Hog {
    fn new(address: SocketAddr) -> Result<Hog, String> {
        let stream = Wire::new(address)?.stream;
        let text_of = |error: std::io::Error| error.to_string();
        stream.set_nonblocking(true).map_err(text_of)?;
        let left = (2..2 + HOG_GETS).flat_map(|id| {
            let number = usize::try_from(id).expect("small") % KEYS;
            get(id, &key(1 << 20, number), 0)
        });
        let mut hog = Hog {
            stream,
            left: left.collect(),
            cut_after: None,
        };
        hog.send_more(Instant::now());
        Ok(hog)
    }

    /// Sends more if the server takes it, and notes if it has cut the connection.
    fn send_more(&mut self, began: Instant) {
        if self.cut_after.is_some() {
            return;
        }
        let is_cut = match self
            .stream
            .write(&self.left[..self.left.len().min(64 << 10)])
        {
            Ok(0) if self.left.is_empty() => matches!(self.stream.take_error(), Ok(Some(_))),
            Ok(written) => {
                self.left.drain(..written);
                false
            }
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        if is_cut {
            self.cut_after = Some(began.elapsed().as_secs_f64());
        }
    }
}

// ---- rates ----

fn rates(server: &Server) -> Result<(), String> {
    fill(server)?;
    println!(
        "{} MiB of replies, each reader for {RATE_TIME_MAX:?} at most",
        RATE_BYTES >> 20
    );
    println!("KB/s  read MB  seconds  ended by");
    let readers = RATES.map(|rate| {
        let address = server.address;
        std::thread::spawn(move || (rate, read_at(address, rate * 1_000)))
    });
    for reader in readers {
        let (rate, outcome) = reader.join().map_err(|_| "a reader failed")?;
        let (read, time, end) = outcome?;
        println!(
            "{rate:4}  {:7.2}  {:7.1}  {end}",
            read as f64 / 1e6,
            time.as_secs_f64()
        );
    }
    Ok(())
}

/// Reads at a steady rate, in bytes a second; how much, for how long, and why it ended. A PING each
/// second finds out whether the connection is there: what the server sent before it cut it could be
/// read for long.
fn read_at(address: SocketAddr, rate: usize) -> Result<(usize, Duration, &'static str), String> {
    let mut stream = Wire::new(address)?.stream;
    for id in 0..RATE_BYTES >> 20 {
        let key = key(1 << 20, id % KEYS);
        let frame = get(2 + id as u64, &key, 0);
        stream
            .write_all(&frame)
            .map_err(|error| error.to_string())?;
    }
    let mut ping = Vec::new();
    write_frame(
        &mut ping,
        Header::request(Opcode::Ping, 1 << 32, AckLevel::None, 0),
        b"",
    );
    let began = Instant::now();
    let (mut read, mut pings) = (0, 0);
    let mut chunk = vec![0; rate / 20];
    while began.elapsed() < RATE_TIME_MAX && read < RATE_BYTES {
        let due = Duration::from_secs_f64(read as f64 / rate as f64);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        let is_gone = began.elapsed().as_secs() > pings && stream.write_all(&ping).is_err();
        pings = began.elapsed().as_secs();
        match stream.read(&mut chunk) {
            Ok(taken @ 1..) if !is_gone => read += taken,
            _ => return Ok((read, began.elapsed(), "the server")),
        }
    }
    Ok((read, began.elapsed(), "the reader"))
}

// ---- one connection ----

struct Wire {
    stream: TcpStream,
    receiver: Receiver,
    bytes: Vec<u8>,
    id: u64,
}

impl Wire {
    /// A connection that has said HELLO.
    fn new(address: SocketAddr) -> Result<Wire, String> {
        let text_of = |error: std::io::Error| format!("{address}: {error}");
        let stream = TcpStream::connect(address).map_err(text_of)?;
        stream.set_nodelay(true).map_err(text_of)?;
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).map_err(text_of)?;
        let mut wire = Wire {
            stream,
            receiver: Receiver::new(64 << 20),
            bytes: Vec::new(),
            id: 1,
        };
        let mut hello = Vec::new();
        ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: 0,
            name: "slow_peers",
        }
        .write(&mut hello, 1);
        wire.stream.write_all(&hello).map_err(text_of)?;
        let (header, _) = wire.frame()?;
        match header.opcode == Opcode::Hello as u8 {
            true => Ok(wire),
            false => Err("HELLO was not answered".into()),
        }
    }

    fn get(&mut self, key: &[u8], deadline_ms: u16) -> Result<Status, String> {
        self.id += 1;
        let frame = get(self.id, key, deadline_ms);
        self.ask(&frame)
    }

    /// Sends a batch of one item; its status.
    fn ask(&mut self, frame: &[u8]) -> Result<Status, String> {
        let sent = self.stream.write_all(frame);
        sent.map_err(|error| error.to_string())?;
        let (_, body) = self.frame()?;
        let batch = Batch::read(&body).map_err(|refusal| refusal.to_string())?;
        let item = ReplyItem::read(batch.item(0)).map_err(|refusal| refusal.to_string())?;
        Ok(item.head.status)
    }

    fn frame(&mut self) -> Result<(Header, Vec<u8>), String> {
        let mut chunk = vec![0; 256 << 10];
        loop {
            if let Received::Frame {
                header,
                body,
                consumed,
            } = self.receiver.next(&self.bytes)
            {
                let frame = (header, body.to_vec());
                self.bytes.drain(..consumed);
                return Ok(frame);
            }
            match self.stream.read(&mut chunk) {
                Ok(read @ 1..) => self.bytes.extend_from_slice(&chunk[..read]),
                Ok(_) => return Err("the server closed the connection".into()),
                Err(error) => return Err(format!("no answer: {error}")),
            }
        }
    }
}

// ---- the server ----

struct Server {
    process: Child,
    address: SocketAddr,
    folder: PathBuf,
}

impl Server {
    fn start(binary: &Path, io: &str) -> Result<Server, String> {
        let folder =
            std::env::temp_dir().join(format!("penstock-slow-peers-{}", std::process::id()));
        let mut process = Command::new(binary)
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--shard-ports",
                "0",
                "--admin-listen",
                "off",
            ])
            .args([
                "--shards",
                "2",
                "--memory-max",
                "512MiB",
                "--io",
                io,
                "--data",
            ])
            .arg(&folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let mut banner = BufReader::new(process.stdout.take().expect("piped"));
        let mut address = None;
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            if banner.read_line(&mut line).unwrap_or(0) == 0 {
                return Err("the server did not start".into());
            }
            if line.starts_with("listening") {
                address = line
                    .split_whitespace()
                    .nth(1)
                    .and_then(|text| text.parse().ok());
            }
        }
        std::thread::spawn(move || std::io::copy(&mut banner, &mut std::io::sink()));
        let address = address.ok_or("no address in the banner")?;
        Ok(Server {
            process,
            address,
            folder,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
