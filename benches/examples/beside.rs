//! What one client waits for a durable write while other programs want all CPUs, beside a sync of
//! the disk, an echo, and Valkey with `appendfsync always`.
//!
//! `cargo run --release -p penstock-benches --example beside -- [--seconds 2] [--rounds 3] [--hogs
//! 0,4,12] [--pause-us 2000] [--group DIR] [--dir DIR] [--valkey VALKEY_SERVER]
//! NAME=PENSTOCK[,OPTION...]...`, as in `now=target/release/penstock`
//! `two=target/release/penstock,--shards,2`.
//! Valkey is what `--valkey` or VALKEY_SERVER names, or the `valkey-server` of the PATH.
//!
//! All take turns in each round. *decr* and *echo* are one request after the other. *SET, paused*
//! is what an ordinary client does: a SET of RESP each `--pause-us`. The table has the medians of
//! the rounds, what threads and the thread of the shard itself made durable, and
//! in how many rounds the shards had left their cores in the end.
//!
//! `--group DIR` puts each server, not the client and not the hogs, into a control group that is
//! there, as one of half a CPU.
//!
//! It starts its own servers on free ports and its own hogs, and ends each by its process. A hog
//! ends by itself after a minute.

use std::fs;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use penstock_client::{Client, ClientOptions, Verbs};
use penstock_net::batch::Batch;
use penstock_net::frame::{Header, Opcode, write_frame};
use penstock_net::hello::ClientHello;
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::ReplyItem;
use penstock_net::request::BatchRequest;
use penstock_net::status::Status;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// How long a hog lives at most.
const HOG_MAX: Duration = Duration::from_secs(60);
/// How long a server may take to come up, and an answer to come.
const PATIENCE: Duration = Duration::from_secs(20);
/// Thrown away before each run.
const WARM_UP: Duration = Duration::from_secs(1);
const KEY: &[u8] = b"stock";
const STOCK: u64 = 1 << 62;
/// Of `open`, on Linux: a write is durable when it returns.
const O_DSYNC: i32 = 0o10000;

fn main() -> Outcome<()> {
    let mut words = std::env::args().skip(1);
    let (mut seconds, mut rounds, mut hogs) = (2.0, 3, vec![0, 4, 12]);
    let mut pause = Duration::from_millis(2);
    let (mut group, mut valkey) = (None, None);
    let mut dir = std::env::current_dir()?.join("target");
    let mut servers = Vec::new();
    while let Some(word) = words.next() {
        let mut next = || words.next().ok_or(format!("{word} lacks its value"));
        match word.as_str() {
            "hog" => return hog(),
            "--seconds" => seconds = next()?.parse()?,
            "--rounds" => rounds = next()?.parse()?,
            "--pause-us" => pause = Duration::from_micros(next()?.parse()?),
            "--group" => group = Some(PathBuf::from(next()?)),
            "--valkey" => valkey = Some(PathBuf::from(next()?)),
            "--dir" => dir = next()?.into(),
            "--hogs" => {
                hogs = next()?
                    .split(',')
                    .map(str::parse)
                    .collect::<Result<_, _>>()?
            }
            named => servers.push(Contender::parse(named)?),
        }
    }
    if servers.is_empty() {
        return Err("name a server: now=target/release/penstock".into());
    }
    let scratch = Scratch::new(dir.join(format!("beside-{}", std::process::id())))?;
    let run = Run {
        duration: Duration::from_secs_f64(seconds),
        pause,
        group,
    };
    let valkey = valkey.or_else(installed_valkey);
    let mut rows: Vec<(String, usize, Vec<Figures>)> = Vec::new();
    for round in 0..rounds {
        for &count in &hogs {
            let mut add = |name: &str, figures: Figures| {
                eprintln!("round {round}, {count} hogs, {name}: {}", figures.line());
                match rows.iter_mut().find(|row| row.0 == name && row.1 == count) {
                    Some(row) => row.2.push(figures),
                    None => rows.push((name.to_string(), count, vec![figures])),
                }
            };
            let hogs = Hogs::start(count)?;
            add("sync", sync(&scratch.0, run.duration)?);
            drop(hogs);
            for (number, server) in servers.iter().enumerate() {
                let _hogs = Hogs::start(count)?;
                let data = scratch.0.join(format!("{number}-{round}-{count}"));
                for (what, figures) in server.measure(&data, &run)? {
                    add(&format!("{} {what}", server.name), figures);
                }
            }
            match &valkey {
                Some(valkey) => {
                    let _hogs = Hogs::start(count)?;
                    for (what, figures) in always(valkey, &scratch.0, &run)? {
                        add(&format!("Valkey always {what}"), figures);
                    }
                }
                None if round == 0 => eprintln!("SKIPPED: no valkey-server is on the PATH"),
                None => {}
            }
        }
    }
    let load = fs::read_to_string("/proc/loadavg")?;
    println!("{rounds} rounds of {seconds} s each, medians; load at the end: {load}");
    println!(
        "| hogs | request | p50 us | p99 us | p99.9 us | per second | by threads | inline | off \
         core |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    rows.sort_by_key(|row| row.1);
    for (name, count, figures) in &rows {
        let middle = |of: fn(&Figures) -> f64| {
            let mut all: Vec<f64> = figures.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (p50, p99) = (middle(|it| it.p50_us), middle(|it| it.p99_us));
        let (p999, rate) = (middle(|it| it.p999_us), middle(|it| it.per_second));
        let sum = |of: fn(&Durability) -> u64| -> u64 {
            figures.iter().map(|it| of(&it.durability)).sum()
        };
        let (by_threads, inline) = (sum(|it| it.by_threads), sum(|it| it.inline));
        let off_core = sum(|it| it.off_core);
        println!(
            "| {count} | {name} | {p50:.0} | {p99:.0} | {p999:.0} | {rate:.0} | {by_threads} | \
             {inline} | {off_core} |"
        );
    }
    Ok(())
}

/// What all servers of a run are measured with.
struct Run {
    duration: Duration,
    /// Between two SETs of the client that pauses.
    pause: Duration,
    group: Option<PathBuf>,
}

impl Run {
    fn start(&self, command: &mut Command) -> Outcome<Process> {
        let process = Process(command.spawn()?);
        if let Some(group) = &self.group {
            fs::write(group.join("cgroup.procs"), process.0.id().to_string())?;
        }
        Ok(process)
    }
}

/// Figures by what was asked.
type Measured = Vec<(&'static str, Figures)>;

/// One server of ours, and what it is started with.
struct Contender {
    name: String,
    binary: PathBuf,
    options: Vec<String>,
}

impl Contender {
    fn parse(named: &str) -> Outcome<Contender> {
        let (name, rest) = named
            .split_once('=')
            .ok_or(format!("{named} is no NAME=PENSTOCK"))?;
        let mut words = rest.split(',').map(str::to_string);
        Ok(Contender {
            name: name.to_string(),
            binary: words.next().ok_or("a binary")?.into(),
            options: words.collect(),
        })
    }

    /// Echoes, decrements, and SETs of a client that pauses.
    fn measure(&self, data: &Path, run: &Run) -> Outcome<Measured> {
        let mut command = Command::new(&self.binary);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args(["--resp-listen", "127.0.0.1:0", "--admin-listen", "off"])
            .arg("--data")
            .arg(data);
        if !self.options.iter().any(|it| it == "--shards") {
            command.args(["--shards", "1"]);
        }
        command
            .args(&self.options)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut server = run.start(&mut command)?;
        let Addresses { address, resp } = addresses_of(&mut server.0)?;
        let client = Client::connect(address, ClientOptions::default())?;
        client.set(KEY, &STOCK.to_le_bytes()).wait()?;
        let mut asking = Asking::connect(address)?;
        let durability = || -> Outcome<Durability> { Ok(Durability::of(&client.info().wait()?)) };
        let echo = timed(run.duration, || asking.echo())?;
        let begun = durability()?;
        let mut decrement = timed(run.duration, || asking.decrement())?;
        decrement.durability = durability()?.since(&begun);
        let begun = durability()?;
        let mut set = paused_sets(resp, run)?;
        set.durability = durability()?.since(&begun);
        drop((client, asking, server));
        fs::remove_dir_all(data)?;
        Ok(vec![
            ("echo", echo),
            ("decr", decrement),
            ("SET, paused", set),
        ])
    }
}

/// Who made writes durable.
#[derive(Clone, Copy, Default)]
struct Durability {
    /// Threads beside the ring.
    by_threads: u64,
    /// The thread of the shard.
    inline: u64,
    /// Shards that run on other CPUs than their core at present.
    off_core: u64,
}

impl Durability {
    /// From the text of INFO; an older build has fewer of the numbers.
    fn of(info: &str) -> Durability {
        // The sum of all shards stands before those of each.
        let number = |name: &str| {
            let (_, rest) = info.split_once(&format!("\"{name}\":"))?;
            let end = rest.find(|it: char| !it.is_ascii_digit())?;
            rest[..end].parse().ok()
        };
        Durability {
            by_threads: number("storage_punted").unwrap_or(0),
            inline: number("storage_inline").unwrap_or(0),
            off_core: number("off_core").unwrap_or(0),
        }
    }

    fn since(self, begun: &Durability) -> Durability {
        Durability {
            by_threads: self.by_threads - begun.by_threads,
            inline: self.inline - begun.inline,
            off_core: self.off_core,
        }
    }
}

/// Where a server listens.
struct Addresses {
    address: SocketAddr,
    resp: SocketAddr,
}

/// Where the server listens, by what it says before it is ready.
fn addresses_of(server: &mut Child) -> Outcome<Addresses> {
    let lines = BufReader::new(server.stdout.take().ok_or("no pipe")?).lines();
    let (mut address, mut resp, mut said) = (None, None, String::new());
    let mut lines = lines.map_while(Result::ok);
    for line in lines.by_ref() {
        let named = |name: &str| -> Option<SocketAddr> {
            let rest = line.strip_prefix(name)?;
            rest.split_whitespace().next()?.parse().ok()
        };
        address = address.or(named("listening"));
        resp = resp.or(named("resp"));
        if line == "ready" {
            break;
        }
        said += &line;
        said.push('\n');
    }
    // Read to its end, so that the server never waits for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    match address.zip(resp) {
        Some((address, resp)) => Ok(Addresses { address, resp }),
        None => Err(format!("the server did not come up:\n{said}").into()),
    }
}

/// A connection with the two frames that it asks again and again.
struct Asking {
    stream: TcpStream,
    receiver: Receiver,
    received: Vec<u8>,
    ping: Vec<u8>,
    update: Vec<u8>,
}

impl Asking {
    fn connect(address: SocketAddr) -> Outcome<Asking> {
        let mut hello = Vec::new();
        ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: 0,
            name: "beside",
        }
        .write(&mut hello, 0);
        let mut ping = Vec::new();
        let header = Header::request(Opcode::Ping, 1, AckLevel::None, 0);
        write_frame(&mut ping, header, &[b'v'; 64]);
        let step = |operation| Instruction {
            operation,
            field_type: FieldType::U64,
            key: 0,
            reason: 1,
            offset: 0,
            immediate: 1,
        };
        let steps = [step(Operation::Ge), step(Operation::Sub)];
        let mut update = Vec::new();
        let mut batch = BatchRequest::begin(&mut update, 2, AckLevel::Disk, 0, 1);
        batch.update_if(&mut update, KEY, None, &steps, None);
        batch.finish(&mut update);
        let mut asking = Asking {
            stream: connect(address)?,
            receiver: Receiver::new(1 << 20),
            received: Vec::new(),
            ping,
            update,
        };
        asking.stream.write_all(&hello)?;
        asking.answer(|_| true)?;
        Ok(asking)
    }

    fn echo(&mut self) -> Outcome<()> {
        self.stream.write_all(&self.ping)?;
        self.answer(|body| body.len() == 64)
    }

    fn decrement(&mut self) -> Outcome<()> {
        self.stream.write_all(&self.update)?;
        self.answer(|body| {
            let batch = Batch::read(body).ok();
            let item = batch.and_then(|batch| ReplyItem::read(batch.item(0)).ok());
            item.is_some_and(|item| {
                item.head.status == Status::Ok && item.head.level == AckLevel::Disk
            })
        })
    }

    fn answer(&mut self, is_right: impl Fn(&[u8]) -> bool) -> Outcome<()> {
        loop {
            match self.receiver.next(&self.received) {
                Received::Frame {
                    header,
                    body,
                    consumed,
                } => {
                    if header.level_or_status != Status::Ok.code() || !is_right(body) {
                        return Err(format!("{header:?} is the wrong answer").into());
                    }
                    self.received.drain(..consumed);
                    return Ok(());
                }
                Received::Incomplete { .. } => read_more(&mut self.stream, &mut self.received)?,
                other => return Err(format!("{other:?} is no answer").into()),
            }
        }
    }
}

fn connect(address: SocketAddr) -> Outcome<TcpStream> {
    let began = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn read_more(stream: &mut TcpStream, into: &mut Vec<u8>) -> Outcome<()> {
    let mut chunk = [0; 4096];
    match stream.read(&mut chunk)? {
        0 => Err("the server closed the connection".into()),
        read => {
            into.extend_from_slice(&chunk[..read]);
            Ok(())
        }
    }
}

/// 4 KiB made durable in a file that has its blocks, one after the other.
fn sync(folder: &Path, duration: Duration) -> Outcome<Figures> {
    const BLOCKS: u16 = 1024;
    let path = folder.join("synced");
    fs::write(&path, vec![0; 4096 * usize::from(BLOCKS)])?;
    let file = fs::OpenOptions::new()
        .write(true)
        .custom_flags(O_DSYNC)
        .open(&path)?;
    file.sync_all()?;
    let mut number = 0;
    timed(duration, || {
        number += 1;
        file.write_all_at(&[1; 4096], number % u64::from(BLOCKS) * 4096)?;
        Ok(())
    })
}

fn installed_valkey() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("VALKEY_SERVER") {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join("valkey-server"))
        .find(|path| path.is_file())
}

/// Decrements and SETs of Valkey, each in its file and synced before it is answered.
fn always(binary: &Path, folder: &Path, run: &Run) -> Outcome<Measured> {
    // Free a moment ago; if somebody took it, the start fails and says so.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut command = Command::new(binary);
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "yes"])
        .args(["--appendfsync", "always", "--dir"])
        .arg(folder)
        .stdout(Stdio::null());
    let server = run.start(&mut command)?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = connect(address)?;
    let mut received = Vec::new();
    let decrement = timed(run.duration, || {
        ask_resp(
            &mut stream,
            &mut received,
            b"*2\r\n$4\r\nDECR\r\n$5\r\nstock\r\n",
        )
    })?;
    let set = paused_sets(address, run)?;
    drop((stream, server));
    fs::remove_dir_all(folder.join("appendonlydir"))?;
    Ok(vec![("decr", decrement), ("SET, paused", set)])
}

/// SETs of a client of Redis that does something else in between, over some keys.
fn paused_sets(address: SocketAddr, run: &Run) -> Outcome<Figures> {
    const KEYS: u64 = 100;
    let mut stream = connect(address)?;
    let (mut received, mut number) = (Vec::new(), 0);
    timed_between(run.duration, run.pause, || {
        number += 1;
        let key = number % KEYS;
        let command = format!("*3\r\n$3\r\nSET\r\n$4\r\nk:{key:02}\r\n$5\r\nvalue\r\n");
        ask_resp(&mut stream, &mut received, command.as_bytes())
    })
}

/// One command whose answer is a line.
fn ask_resp(stream: &mut TcpStream, received: &mut Vec<u8>, command: &[u8]) -> Outcome<()> {
    stream.write_all(command)?;
    received.clear();
    while !received.ends_with(b"\r\n") {
        read_more(stream, received)?;
    }
    match received.first() {
        Some(b':' | b'+') => Ok(()),
        _ => Err(format!("{} is the wrong answer", String::from_utf8_lossy(received)).into()),
    }
}

/// What requests took.
struct Figures {
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    per_second: f64,
    durability: Durability,
}

impl Figures {
    fn line(&self) -> String {
        let Figures {
            p50_us,
            p99_us,
            p999_us,
            ..
        } = self;
        format!("p50 {p50_us:.0} us, p99 {p99_us:.0} us, p99.9 {p999_us:.0} us")
    }
}

/// One request after the other.
fn timed(duration: Duration, ask: impl FnMut() -> Outcome<()>) -> Outcome<Figures> {
    timed_between(duration, Duration::ZERO, ask)
}

/// Requests with a pause before each.
fn timed_between(
    duration: Duration,
    pause: Duration,
    mut ask: impl FnMut() -> Outcome<()>,
) -> Outcome<Figures> {
    let mut ask_once = || -> Outcome<Duration> {
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        let asked = Instant::now();
        ask()?;
        Ok(asked.elapsed())
    };
    let warm_up = Instant::now();
    while warm_up.elapsed() < WARM_UP {
        ask_once()?;
    }
    let (began, mut took) = (Instant::now(), Vec::new());
    while began.elapsed() < duration {
        took.push(ask_once()?);
    }
    let per_second = took.len() as f64 / began.elapsed().as_secs_f64();
    took.sort_unstable();
    let quantile = |per_mille: usize| took[took.len() * per_mille / 1000].as_secs_f64() * 1e6;
    Ok(Figures {
        p50_us: quantile(500),
        p99_us: quantile(990),
        p999_us: quantile(999),
        per_second,
        durability: Durability::default(),
    })
}

/// A program that wants a CPU and needs nothing else.
fn hog() -> Outcome<()> {
    let began = Instant::now();
    let mut number = 0u64;
    while began.elapsed() < HOG_MAX {
        for _ in 0..1_000_000 {
            number = black_box(number.wrapping_add(1));
        }
    }
    Ok(())
}

/// Programs that want a CPU, ended when this is dropped.
struct Hogs {
    _processes: Vec<Process>,
}

impl Hogs {
    fn start(count: usize) -> Outcome<Hogs> {
        let start = || {
            Ok(Process(
                Command::new(std::env::current_exe()?).arg("hog").spawn()?,
            ))
        };
        Ok(Hogs {
            _processes: (0..count).map(|_| start()).collect::<Outcome<_>>()?,
        })
    }
}

/// A process that is ended when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder that is gone in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(path: PathBuf) -> Outcome<Scratch> {
        fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
