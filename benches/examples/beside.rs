//! What one client waits for a durable decrement while other programs want all CPUs, beside a sync
//! of the disk, an echo, and Valkey with `appendfsync always`.
//!
//! `cargo run --release -p penstock-benches --example beside -- [--seconds 2] [--rounds 3] [--hogs
//! 0,2,4] [--dir DIR] NAME=PENSTOCK[,OPTION...]...`, as in `now=target/release/penstock`
//! `ring=target/release/penstock,--durable-by,ring`. Valkey is the `valkey-server` of the PATH, or
//! what VALKEY_SERVER names. All take turns in each round, the client sends one request after the
//! other, and the table has the medians of the rounds, and in how many of them threads made the
//! writes durable in the end.
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
    let (mut seconds, mut rounds, mut hogs) = (2.0, 3, vec![0, 2, 4]);
    let mut dir = std::env::current_dir()?.join("target");
    let mut servers = Vec::new();
    while let Some(word) = words.next() {
        let mut next = || words.next().ok_or(format!("{word} lacks its value"));
        match word.as_str() {
            "hog" => return hog(),
            "--seconds" => seconds = next()?.parse()?,
            "--rounds" => rounds = next()?.parse()?,
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
    let duration = Duration::from_secs_f64(seconds);
    let valkey = valkey();
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
            add("sync", sync(&scratch.0, duration)?);
            drop(hogs);
            for (number, server) in servers.iter().enumerate() {
                let _hogs = Hogs::start(count)?;
                let data = scratch.0.join(format!("{number}-{round}-{count}"));
                let (echo, decrement) = server.measure(&data, duration)?;
                add(&format!("{} echo", server.name), echo);
                add(&format!("{} decr", server.name), decrement);
            }
            match &valkey {
                Some(valkey) => {
                    let _hogs = Hogs::start(count)?;
                    add("Valkey always decr", always(valkey, &scratch.0, duration)?);
                }
                None if round == 0 => eprintln!("SKIPPED: no valkey-server is on the PATH"),
                None => {}
            }
        }
    }
    let load = fs::read_to_string("/proc/loadavg")?;
    println!("{rounds} rounds of {seconds} s each, medians; load at the end: {load}");
    println!("| hogs | one request after the other | p50 us | p99 us | per second | by threads |");
    println!("|---|---|---|---|---|---|");
    rows.sort_by_key(|row| row.1);
    for (name, count, figures) in &rows {
        let middle = |of: fn(&Figures) -> f64| {
            let mut all: Vec<f64> = figures.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (p50, p99) = (middle(|it| it.p50_us), middle(|it| it.p99_us));
        let rate = middle(|it| it.per_second);
        let by_threads = figures.iter().filter(|it| it.is_by_threads).count();
        println!("| {count} | {name} | {p50:.0} | {p99:.0} | {rate:.0} | {by_threads} |");
    }
    Ok(())
}

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

    /// Echo and decrements.
    fn measure(&self, data: &Path, duration: Duration) -> Outcome<(Figures, Figures)> {
        let mut server = Process(
            Command::new(&self.binary)
                .args(["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
                .args(["--admin-listen", "off", "--shards", "1", "--data"])
                .arg(data)
                .args(&self.options)
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()?,
        );
        let address = address_of(&mut server.0)?;
        let client = Client::connect(address, ClientOptions::default())?;
        client.set(KEY, &STOCK.to_le_bytes()).wait()?;
        let mut asking = Asking::connect(address)?;
        let echo = timed(duration, || asking.echo())?;
        let mut decrement = timed(duration, || asking.decrement())?;
        let info = client.info().wait()?;
        decrement.is_by_threads = info.contains("\"storage_durable_by_thread\":1");
        drop((client, asking, server));
        fs::remove_dir_all(data)?;
        Ok((echo, decrement))
    }
}

/// Where the server listens, by what it says before it is ready.
fn address_of(server: &mut Child) -> Outcome<SocketAddr> {
    let lines = BufReader::new(server.stdout.take().ok_or("no pipe")?).lines();
    let (mut address, mut said) = (None, String::new());
    let mut lines = lines.map_while(Result::ok);
    for line in lines.by_ref() {
        let rest = line.strip_prefix("listening").map(str::trim);
        address = address.or(rest.and_then(|it| it.split_whitespace().next()?.parse().ok()));
        if line == "ready" {
            break;
        }
        said += &line;
        said.push('\n');
    }
    // Read to its end, so that the server never waits for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    address.ok_or_else(|| format!("the server did not come up:\n{said}").into())
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

fn valkey() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("VALKEY_SERVER") {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join("valkey-server"))
        .find(|path| path.is_file())
}

/// Decrements of Valkey, each in its file and synced before it is answered.
fn always(binary: &Path, folder: &Path, duration: Duration) -> Outcome<Figures> {
    // Free a moment ago; if somebody took it, the start fails and says so.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let server = Process(
        Command::new(binary)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "yes"])
            .args(["--appendfsync", "always", "--dir"])
            .arg(folder)
            .stdout(Stdio::null())
            .spawn()?,
    );
    let mut stream = connect(SocketAddr::from(([127, 0, 0, 1], port)))?;
    let mut received = Vec::new();
    let figures = timed(duration, || {
        stream.write_all(b"*2\r\n$4\r\nDECR\r\n$5\r\nstock\r\n")?;
        received.clear();
        while !received.ends_with(b"\r\n") {
            read_more(&mut stream, &mut received)?;
        }
        match received.starts_with(b":") {
            true => Ok(()),
            false => Err(format!("Valkey: {}", String::from_utf8_lossy(&received)).into()),
        }
    })?;
    drop((stream, server));
    fs::remove_dir_all(folder.join("appendonlydir"))?;
    Ok(figures)
}

/// What one request after the other took.
struct Figures {
    p50_us: f64,
    p99_us: f64,
    per_second: f64,
    /// Threads beside the ring made writes durable in the end.
    is_by_threads: bool,
}

impl Figures {
    fn line(&self) -> String {
        format!("p50 {:.0} us, p99 {:.0} us", self.p50_us, self.p99_us)
    }
}

fn timed(duration: Duration, mut ask: impl FnMut() -> Outcome<()>) -> Outcome<Figures> {
    let warm_up = Instant::now();
    while warm_up.elapsed() < WARM_UP {
        ask()?;
    }
    let (began, mut took) = (Instant::now(), Vec::new());
    while began.elapsed() < duration {
        let asked = Instant::now();
        ask()?;
        took.push(asked.elapsed());
    }
    let per_second = took.len() as f64 / began.elapsed().as_secs_f64();
    took.sort_unstable();
    let quantile = |per_mille: usize| took[took.len() * per_mille / 1000].as_secs_f64() * 1e6;
    Ok(Figures {
        p50_us: quantile(500),
        p99_us: quantile(990),
        per_second,
        is_by_threads: false,
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
