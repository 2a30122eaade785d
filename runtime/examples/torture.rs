//! `cargo torture kill --rounds N`: the real server under kill -9.
//!
//! Each round starts the real binary, lets fifty pipelined writers work, kills it at a random
//! moment (sometimes stops it cleanly), starts it again and asks for everything that was ever
//! acknowledged. Every writer keeps its own account, so that after a crash each key has the state
//! of its last acknowledged operation or of an unacknowledged one after it, two keys changed by one
//! operation agree, and the shared counter lost no less than was acknowledged and no more than was
//! asked. It runs on loopback and ends by itself; the exit code is not 0 if anything was lost.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use penstock_net::batch::Batch;
use penstock_net::frame::Opcode;
use penstock_net::hello::ClientHello;
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::ReplyItem;
use penstock_net::request::{BatchRequest, Condition};
use penstock_net::status::Status;

const WRITERS: usize = 50;
const KEYS_PER_WRITER: u64 = 24;
const FRAMES_AHEAD: usize = 4;
const ITEMS_PER_FRAME: usize = 8;
const STOCK: &[u8] = b"stock:shared";
const STOCK_INITIAL: u64 = 1 << 60;
const START_SECONDS_MAX: u64 = 60;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1).collect()) {
        Ok(options) => options,
        Err(text) => {
            eprintln!(
                "torture: {text}\nusage: cargo torture kill [--rounds N] [--seed S] [--shards 1|2|both] [--io uring|threads|both] [--data DIR]"
            );
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("torture: FAILED (seed {}): {text}", options.seed);
            ExitCode::FAILURE
        }
    }
}

struct Options {
    rounds: u64,
    seed: u64,
    shards: Vec<u16>,
    io: Vec<&'static str>,
    data: PathBuf,
}

impl Options {
    fn parse(arguments: Vec<String>) -> Result<Options, String> {
        let mut arguments = arguments.into_iter();
        match arguments.next().as_deref() {
            Some("kill") => {}
            other => {
                return Err(format!(
                    "the only kind is kill, not {}",
                    other.unwrap_or("nothing")
                ));
            }
        }
        let clock = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |since| since.as_secs());
        let mut options = Options {
            rounds: 8,
            seed: clock,
            shards: vec![1, 2],
            io: vec!["uring", "threads"],
            data: std::env::temp_dir().join(format!("penstock-torture-{}", std::process::id())),
        };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or(format!("{name} needs a value"))?;
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|_| format!("{name} takes a number, not {value}"))
            };
            match name.as_str() {
                "--rounds" => options.rounds = number()?,
                "--seed" => options.seed = number()?,
                "--data" => options.data = value.clone().into(),
                "--shards" if value == "both" => {}
                "--shards" => {
                    options.shards = vec![u16::try_from(number()?).map_err(|_| "too many shards")?]
                }
                "--io" if value == "both" => {}
                "--io" if value == "uring" => options.io = vec!["uring"],
                "--io" if value == "threads" => options.io = vec!["threads"],
                _ => return Err(format!("{name} {value} is not known")),
            }
        }
        Ok(options)
    }
}

/// A small generator whose whole state is the printed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn run(options: &Options) -> Result<(), String> {
    let binary = binary()?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut random = Random(options.seed);
    println!(
        "torture kill: {} rounds, {WRITERS} writers, seed {}, data {}",
        options.rounds,
        options.seed,
        options.data.display()
    );
    let mut settings: Vec<(u16, &str)> = Vec::new();
    for &shards in &options.shards {
        if usize::from(shards) > cpus {
            println!("skipped: --shards {shards}, because this process may use {cpus} CPU(s) only");
            continue;
        }
        settings.extend(options.io.iter().map(|&io| (shards, io)));
    }
    if settings.is_empty() {
        return Err("nothing to run".into());
    }
    let mut worlds: Vec<World> = settings
        .iter()
        .map(|&(shards, io)| World::new(&options.data, shards, io))
        .collect();
    let (mut kills, mut acked) = (0u64, 0u64);
    for round in 0..options.rounds {
        let which = usize::try_from(round).expect("few rounds") % worlds.len();
        // A fresh directory now and then, so that first segments are met as often as old ones.
        if random.below(12) == 0 {
            worlds[which].start_over()?;
        }
        let world = &mut worlds[which];
        let before = world.acked();
        let how = world.round(&binary, &mut random).map_err(|text| {
            format!(
                "round {round}, shards {}, io {}: {text}",
                world.shards, world.io
            )
        })?;
        kills += u64::from(how == How::Kill);
        acked += world.acked() - before;
        println!(
            "round {round:4}  shards {} io {:7}  {}  {:7} acked, {:5} unknown, all accounted for",
            world.shards,
            world.io,
            if how == How::Kill {
                "kill -9"
            } else {
                "SIGTERM"
            },
            world.acked() - before,
            world.unknown_last
        );
    }
    let _ = std::fs::remove_dir_all(&options.data);
    println!(
        "torture kill: {} rounds passed, {kills} by kill -9, {acked} acknowledged operations, none lost",
        options.rounds
    );
    Ok(())
}

/// The server beside this program, built if it is not there.
fn binary() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let profile = own
        .parent()
        .and_then(Path::parent)
        .ok_or("no directory of its own")?;
    let binary = profile.join("penstock");
    // Always built: an older binary beside a newer tree would prove nothing.
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args([
        "build",
        "--quiet",
        "-p",
        "penstock-runtime",
        "--bin",
        "penstock",
        "--target-dir",
    ]);
    build.arg(profile.parent().ok_or("no target directory")?);
    if profile.ends_with("release") {
        build.arg("--release");
    }
    let built = build
        .status()
        .map_err(|error| format!("cargo build: {error}"))?;
    if built.success() && binary.exists() {
        Ok(binary)
    } else {
        Err("the server could not be built".into())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Kill,
    Stop,
}

/// One data directory and what its writers know of it.
struct World {
    data: PathBuf,
    shards: u16,
    io: &'static str,
    is_new: bool,
    accounts: Vec<Account>,
    unknown_last: u64,
}

impl World {
    fn new(data: &Path, shards: u16, io: &'static str) -> World {
        let data = data.join(format!("{shards}-{io}"));
        World {
            data,
            shards,
            io,
            is_new: true,
            accounts: (0..WRITERS).map(Account::new).collect(),
            unknown_last: 0,
        }
    }

    fn start_over(&mut self) -> Result<(), String> {
        if self.data.exists() {
            std::fs::remove_dir_all(&self.data).map_err(|error| error.to_string())?;
        }
        self.is_new = true;
        let acked: Vec<u64> = self.accounts.iter().map(|account| account.acked).collect();
        self.accounts = (0..WRITERS).map(Account::new).collect();
        for (account, acked) in self.accounts.iter_mut().zip(acked) {
            account.acked = acked;
        }
        Ok(())
    }

    fn acked(&self) -> u64 {
        self.accounts.iter().map(|account| account.acked).sum()
    }

    fn round(&mut self, binary: &Path, random: &mut Random) -> Result<How, String> {
        // Now and then the start itself is killed: recovery must survive a crash of its own.
        if !self.is_new && random.below(4) == 0 {
            let mut server = Server::spawn(binary, &self.data, self.shards, self.io)?;
            std::thread::sleep(Duration::from_millis(random.below(400)));
            server.kill()?;
        }
        let mut server = Server::start(binary, &self.data, self.shards, self.io)?;
        if self.is_new {
            self.prepare(server.address)?;
            self.is_new = false;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let started = Arc::new(AtomicU64::new(0));
        let seeds: Vec<u64> = self.accounts.iter().map(|_| random.next()).collect();
        let how = if random.below(6) == 0 {
            How::Stop
        } else {
            How::Kill
        };
        let work_ms = 50 + random.below(900);
        let outcome: Result<(), String> = std::thread::scope(|scope| {
            let writers: Vec<_> = self
                .accounts
                .iter_mut()
                .zip(seeds)
                .map(|(account, seed)| {
                    let (is_over, started) = (Arc::clone(&is_over), Arc::clone(&started));
                    let address = server.address;
                    scope.spawn(move || account.work(address, Random(seed), &is_over, &started))
                })
                .collect();
            let until = Instant::now() + Duration::from_secs(10);
            while started.load(Ordering::Relaxed) < WRITERS as u64 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(work_ms));
            let ended = if how == How::Kill {
                server.kill()
            } else {
                server.stop()
            };
            is_over.store(true, Ordering::Relaxed);
            for writer in writers {
                writer.join().map_err(|_| "a writer panicked")??;
            }
            ended
        });
        outcome?;
        self.unknown_last = self.accounts.iter().map(Account::unknown).sum();
        let inspected = Command::new(binary)
            .arg("inspect")
            .arg(&self.data)
            .output()
            .map_err(|error| error.to_string())?;
        if !inspected.status.success() {
            return Err(format!(
                "inspect found damage after the crash: {}{}",
                String::from_utf8_lossy(&inspected.stdout),
                String::from_utf8_lossy(&inspected.stderr)
            ));
        }
        let mut server = Server::start(binary, &self.data, self.shards, self.io)?;
        self.verify(server.address)?;
        if random.below(2) == 0 {
            server.kill()?
        } else {
            server.stop()?
        }
        Ok(how)
    }

    fn prepare(&self, address: SocketAddr) -> Result<(), String> {
        let mut wire = Wire::connect(address)?;
        let mut frame = Vec::new();
        let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::Disk, 0, 2 * WRITERS + 1);
        batch.set(
            &mut frame,
            STOCK,
            &STOCK_INITIAL.to_le_bytes(),
            Condition::Always,
        );
        for account in &self.accounts {
            for key in account.pair_keys() {
                batch.set(&mut frame, &key, &0u64.to_le_bytes(), Condition::Always);
            }
        }
        batch.finish(&mut frame);
        let replies = wire.ask(&frame, 2 * WRITERS + 1)?;
        replies
            .iter()
            .all(|reply| reply.status == Status::Ok)
            .then_some(())
            .ok_or("the first writes were refused".into())
    }

    /// Compares the server with every account, and takes over what it says of unknown operations.
    fn verify(&mut self, address: SocketAddr) -> Result<(), String> {
        let mut wire = Wire::connect(address)?;
        let sold: u64 = {
            let stock = wire
                .get(&[STOCK.to_vec()])?
                .remove(0)
                .ok_or("the shared counter is gone")?;
            STOCK_INITIAL - number(&stock)
        };
        let (acked, unknown) = self
            .accounts
            .iter()
            .fold((0, 0), |(acked, unknown), account| {
                (acked + account.sold_acked, unknown + account.sold_unknown)
            });
        if sold < acked || sold > acked + unknown {
            return Err(format!(
                "the shared counter fell by {sold}; {acked} decrements were acknowledged and {unknown} are unknown"
            ));
        }
        // What the server applied of the unknown ones is known now.
        for account in &mut self.accounts {
            account.sold_unknown = 0;
        }
        self.accounts[0].sold_acked += sold - acked;
        for account in &mut self.accounts {
            account.verify(&mut wire)?;
        }
        Ok(())
    }
}

/// What one writer did and knows.
struct Account {
    writer: usize,
    next_value: u64,
    /// Of each own key: its last certain state (`None` is absent) and the uncertain ones after it.
    keys: HashMap<u64, KeyAccount>,
    pair_acked: u64,
    pair_sent: u64,
    sold_acked: u64,
    sold_unknown: u64,
    acked: u64,
}

#[derive(Default)]
struct KeyAccount {
    certain: Option<Vec<u8>>,
    uncertain: Vec<Option<Vec<u8>>>,
}

/// One operation on its way.
enum Sent {
    Own { key: u64, state: Option<Vec<u8>> },
    Pair { number: u64 },
    Sale,
}

impl Account {
    fn new(writer: usize) -> Account {
        Account {
            writer,
            next_value: 0,
            keys: HashMap::new(),
            pair_acked: 0,
            pair_sent: 0,
            sold_acked: 0,
            sold_unknown: 0,
            acked: 0,
        }
    }

    fn own_key(&self, key: u64) -> Vec<u8> {
        format!("writer:{}:{key}", self.writer).into_bytes()
    }

    fn pair_keys(&self) -> [Vec<u8>; 2] {
        ["a", "b"].map(|end| format!("{{pair:{}}}{end}", self.writer).into_bytes())
    }

    fn unknown(&self) -> u64 {
        self.sold_unknown
            + self
                .keys
                .values()
                .map(|key| key.uncertain.len() as u64)
                .sum::<u64>()
            + (self.pair_sent - self.pair_acked)
    }

    /// Writes until the server is gone. Only an answer that contradicts the account is an error.
    fn work(
        &mut self,
        address: SocketAddr,
        mut random: Random,
        is_over: &AtomicBool,
        started: &AtomicU64,
    ) -> Result<(), String> {
        let wire = Wire::connect(address);
        started.fetch_add(1, Ordering::Relaxed);
        let mut wire = match wire {
            Ok(wire) => wire,
            Err(_) if is_over.load(Ordering::Relaxed) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut ahead: std::collections::VecDeque<(u64, Vec<Sent>)> =
            std::collections::VecDeque::new();
        let mut request_id = 10;
        let mut is_broken = false;
        while !is_broken {
            while ahead.len() < FRAMES_AHEAD && !is_over.load(Ordering::Relaxed) {
                request_id += 1;
                let mut frame = Vec::new();
                let sent = self.frame(&mut frame, request_id, &mut random);
                // Whatever was handed to the socket may be executed.
                for sent in &sent {
                    self.note_sent(sent);
                }
                is_broken |= wire.stream.write_all(&frame).is_err();
                ahead.push_back((request_id, sent));
            }
            let Some((expected, sent)) = ahead.front() else {
                break;
            };
            let replies = match wire.replies(*expected, sent.len()) {
                Ok(replies) => replies,
                // The end of the connection is what this is about; anything else is the server's fault.
                Err(text) if text.contains("closed") || text.contains("reset") => break,
                Err(text) => return Err(format!("writer {}: {text}", self.writer)),
            };
            let (_, sent) = ahead.pop_front().expect("looked at above");
            for (sent, reply) in sent.into_iter().zip(replies) {
                self.note_reply(sent, &reply)?;
            }
        }
        Ok(())
    }

    fn frame(&mut self, frame: &mut Vec<u8>, request_id: u64, random: &mut Random) -> Vec<Sent> {
        let mut batch = BatchRequest::begin(frame, request_id, AckLevel::Disk, 0, ITEMS_PER_FRAME);
        let mut sent = Vec::new();
        for _ in 0..ITEMS_PER_FRAME {
            let instruction = |operation, key, immediate| Instruction {
                operation,
                field_type: FieldType::U64,
                key,
                reason: 0,
                offset: 0,
                immediate,
            };
            match random.below(10) {
                0..4 => {
                    let instructions = [
                        instruction(Operation::Ge, 0, 1),
                        instruction(Operation::Sub, 0, 1),
                    ];
                    batch.update_if(frame, STOCK, None, &instructions, None);
                    sent.push(Sent::Sale);
                }
                4 => {
                    self.pair_sent += 1;
                    let number = self.pair_sent;
                    let instructions = [
                        instruction(Operation::Set, 0, number),
                        instruction(Operation::Set, 1, number),
                    ];
                    let [a, b] = self.pair_keys();
                    batch.update_if(frame, &a, Some(&b), &instructions, None);
                    sent.push(Sent::Pair { number });
                }
                5 => {
                    let key = random.below(KEYS_PER_WRITER);
                    batch.del(frame, &self.own_key(key), Condition::Always);
                    sent.push(Sent::Own { key, state: None });
                }
                _ => {
                    let key = random.below(KEYS_PER_WRITER);
                    self.next_value += 1;
                    let mut value = format!("{}-{}-", self.writer, self.next_value).into_bytes();
                    // From inline to several blocks.
                    let bytes =
                        [0, 8, 100, 900, 9_000][usize::try_from(random.below(5)).expect("small")];
                    value.resize(value.len() + bytes, b'x');
                    batch.set(frame, &self.own_key(key), &value, Condition::Always);
                    sent.push(Sent::Own {
                        key,
                        state: Some(value),
                    });
                }
            }
        }
        batch.finish(frame);
        sent
    }

    fn note_sent(&mut self, sent: &Sent) {
        match sent {
            Sent::Own { key, state } => self
                .keys
                .entry(*key)
                .or_default()
                .uncertain
                .push(state.clone()),
            Sent::Pair { .. } => {}
            Sent::Sale => self.sold_unknown += 1,
        }
    }

    fn note_reply(&mut self, sent: Sent, reply: &Reply) -> Result<(), String> {
        let refused = matches!(reply.status, Status::Draining | Status::Busy | Status::Full);
        self.acked += u64::from(!refused);
        match sent {
            Sent::Own { key, state } => {
                let account = self.keys.get_mut(&key).expect("noted when sent");
                // Operations on one key are answered in their order.
                let oldest = account.uncertain.remove(0);
                assert_eq!(oldest, state, "answers come in the order of a connection");
                let gone = state.is_none() && reply.status == Status::NotFound;
                if reply.status == Status::Ok || gone {
                    account.certain = state;
                } else if !refused {
                    return Err(format!(
                        "writer {}: an own key answered {:?}",
                        self.writer, reply.status
                    ));
                }
            }
            Sent::Pair { number } if reply.status == Status::Ok => self.pair_acked = number,
            Sent::Sale if reply.status == Status::Ok => {
                self.sold_unknown -= 1;
                self.sold_acked += 1;
            }
            Sent::Sale if refused => self.sold_unknown -= 1,
            Sent::Pair { .. } if refused => {}
            _ => {
                return Err(format!(
                    "writer {}: answered {:?}",
                    self.writer, reply.status
                ));
            }
        }
        Ok(())
    }

    fn verify(&mut self, wire: &mut Wire) -> Result<(), String> {
        let mut numbers: Vec<u64> = self.keys.keys().copied().collect();
        numbers.sort_unstable();
        let names: Vec<Vec<u8>> = numbers.iter().map(|&key| self.own_key(key)).collect();
        for (key, found) in numbers.iter().zip(wire.get(&names)?) {
            let account = self.keys.get_mut(key).expect("listed above");
            if found != account.certain && !account.uncertain.contains(&found) {
                let show = |state: &Option<Vec<u8>>| {
                    state.as_ref().map_or("absent".into(), |value| {
                        String::from_utf8_lossy(&value[..value.len().min(24)]).into_owned()
                    })
                };
                return Err(format!(
                    "writer {} key {key} is {}, was acknowledged as {} and has {} unknown operations after that",
                    self.writer,
                    show(&found),
                    show(&account.certain),
                    account.uncertain.len()
                ));
            }
            account.certain = found;
            account.uncertain.clear();
        }
        let pair: Vec<u64> = wire
            .get(&self.pair_keys())?
            .iter()
            .map(|value| value.as_deref().map_or(u64::MAX, number))
            .collect();
        if pair[0] != pair[1] || pair[0] < self.pair_acked || pair[0] > self.pair_sent {
            return Err(format!(
                "writer {}: the pair is {pair:?}; {} was acknowledged, {} was sent",
                self.writer, self.pair_acked, self.pair_sent
            ));
        }
        (self.pair_acked, self.pair_sent) = (pair[0], pair[0]);
        Ok(())
    }
}

fn number(value: &[u8]) -> u64 {
    value
        .first_chunk()
        .map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

struct Reply {
    status: Status,
    value: Vec<u8>,
}

/// A blocking connection.
struct Wire {
    stream: TcpStream,
    receiver: Receiver,
    bytes: Vec<u8>,
    /// Answers by request, of requests that are not answered whole.
    early: HashMap<u64, Vec<(u16, Reply)>>,
}

impl Wire {
    fn connect(address: SocketAddr) -> Result<Wire, String> {
        let connect = || {
            let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            stream.set_write_timeout(Some(Duration::from_secs(30)))?;
            Ok(stream)
        };
        let stream = connect().map_err(|error: std::io::Error| format!("connect: {error}"))?;
        let mut wire = Wire {
            stream,
            receiver: Receiver::new(64 << 20),
            bytes: Vec::new(),
            early: HashMap::new(),
        };
        let mut hello = Vec::new();
        ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: 0,
            name: "torture",
        }
        .write(&mut hello, 1);
        wire.stream
            .write_all(&hello)
            .map_err(|error| error.to_string())?;
        wire.frame(|opcode, _, _| {
            (opcode == Opcode::Hello as u8)
                .then_some(())
                .ok_or("no HELLO".to_string())
        })??;
        Ok(wire)
    }

    /// Waits for one frame and hands out its opcode, request id and body.
    fn frame<T>(&mut self, read: impl FnOnce(u8, u64, &[u8]) -> T) -> Result<T, String> {
        loop {
            match self.receiver.next(&self.bytes) {
                Received::Frame {
                    header,
                    body,
                    consumed,
                } => {
                    let read = read(header.opcode, header.request_id, body);
                    self.bytes.drain(..consumed);
                    return Ok(read);
                }
                Received::Incomplete { .. } => {}
                other => return Err(format!("the server sent {other:?}")),
            }
            let mut chunk = [0; 64 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err("closed".into()),
                Ok(read) => self.bytes.extend_from_slice(&chunk[..read]),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// All answers to one request, by item. They may come in several frames, and those of later
    /// requests before them: these are kept until they are asked for.
    fn replies(&mut self, request_id: u64, items: usize) -> Result<Vec<Reply>, String> {
        loop {
            let early = self.early.entry(request_id).or_default();
            if early.len() == items {
                let mut replies = self.early.remove(&request_id).unwrap_or_default();
                replies.sort_unstable_by_key(|(item, _)| *item);
                let is_each_once = replies
                    .iter()
                    .enumerate()
                    .all(|(at, (item, _))| at == usize::from(*item));
                return is_each_once
                    .then(|| replies.into_iter().map(|(_, reply)| reply).collect())
                    .ok_or("an item was answered twice".into());
            }
            let (id, replies) = self.frame(|opcode, id, body| {
                if opcode != Opcode::Batch as u8 {
                    return Err(format!("opcode {opcode} answered request {id}"));
                }
                let batch = Batch::read(body).map_err(|refusal| refusal.to_string())?;
                let item = |number| {
                    ReplyItem::read(batch.item(number)).map_err(|refusal| refusal.to_string())
                };
                let reply = |item: ReplyItem<'_>| {
                    (
                        item.head.item,
                        Reply {
                            status: item.head.status,
                            value: item.value.to_vec(),
                        },
                    )
                };
                let replies: Result<Vec<_>, String> = (0..batch.len())
                    .map(|number| item(number).map(reply))
                    .collect();
                Ok((id, replies?))
            })??;
            self.early.entry(id).or_default().extend(replies);
        }
    }

    fn ask(&mut self, frame: &[u8], items: usize) -> Result<Vec<Reply>, String> {
        self.stream
            .write_all(frame)
            .map_err(|error| error.to_string())?;
        self.replies(1, items)
    }

    fn get(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, String> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut frame = Vec::new();
        let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::Disk, 0, keys.len());
        for key in keys {
            batch.get(&mut frame, key);
        }
        batch.finish(&mut frame);
        let replies = self.ask(&frame, keys.len())?;
        replies
            .into_iter()
            .map(|reply| match reply.status {
                Status::Ok => Ok(Some(reply.value)),
                Status::NotFound => Ok(None),
                other => Err(format!(
                    "GET answered {other:?}: {}",
                    String::from_utf8_lossy(&reply.value)
                )),
            })
            .collect()
    }
}

/// The real server.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn spawn(binary: &Path, data: &Path, shards: u16, io: &str) -> Result<Server, String> {
        let mut command = Command::new(binary);
        command.arg("serve").arg("--data").arg(data);
        command.args([
            "--listen",
            "127.0.0.1:0",
            "--shard-ports",
            "0",
            "--io",
            io,
            "--shards",
            &shards.to_string(),
        ]);
        // Small segments, so that rotation happens under every kill, and a small cache, so that
        // some answers come from the disk.
        command.args([
            "--segment-bytes",
            "4MiB",
            "--value-bytes-max",
            "64KiB",
            "--cache-bytes",
            "1MiB",
        ]);
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        Ok(Server {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
        })
    }

    /// Starts it and waits until it serves.
    fn start(binary: &Path, data: &Path, shards: u16, io: &str) -> Result<Server, String> {
        let mut server = Server::spawn(binary, data, shards, io)?;
        let stdout = server.child.stdout.take().ok_or("no banner")?;
        let (sender, banner) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // Read to the end, so that the server never waits for a reader.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let until = Instant::now() + Duration::from_secs(START_SECONDS_MAX);
        let mut seen = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(line) = banner.recv_timeout(left) else {
                let _ = server.child.kill();
                return Err(format!("the server did not come up:\n{}", seen.join("\n")));
            };
            if line.starts_with("listening") {
                server.address = line
                    .split_whitespace()
                    .nth(1)
                    .and_then(|text| text.parse().ok())
                    .ok_or("no address in the banner")?;
            }
            if line == "ready" {
                return Ok(server);
            }
            seen.push(line);
        }
    }

    fn kill(&mut self) -> Result<(), String> {
        let _ = self.child.kill();
        self.child
            .wait()
            .map(drop)
            .map_err(|error| error.to_string())
    }

    fn stop(&mut self) -> Result<(), String> {
        let sent = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status();
        sent.map_err(|error| error.to_string())?;
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                return status
                    .success()
                    .then_some(())
                    .ok_or(format!("SIGTERM ended the server with {status}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.kill();
        Err("SIGTERM did not end the server within 30 s".into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
