//! The server process: start-up, one thread per core, signals, the end.
//!
//! The order of a start: configuration is resolved, the machine is looked at, the data directory is
//! locked and gets its next incarnation, the ports are bound, every core recovers its own log, and
//! only when all have succeeded does any of them serve. The order of a stop: every core stops
//! taking requests and seals its log; when all have, they send what is left and end.

mod connection;
mod core;
mod open;
mod stats;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
use std::{fmt, io};

use core_affinity::CoreId;
use penstock_net::hello::{AUTH_NONE, ServerHello};
use penstock_net::limits::Limits;
use penstock_shard::opening::{Inventory, OpeningError, take_inventory};
use penstock_shard::{Mail, ShardConfig, Topology};
use penstock_storage::log::SyncMethod;
use penstock_storage::recovery::Survey;
use penstock_storage::segment::Owner;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::block::{Arena, ArenaLayout};
use crate::calibrate::calibrate;
use crate::checks::{self, Demand};
use crate::config::{Config, IoMode};
use crate::directory::{Directory, DirectoryError, DirectoryOptions};
use crate::disk::{self, Disk, DiskOptions};
use crate::spare::{SpareOutcome, Spares};
use stats::Stats;

/// Why a server did not start or did not end well.
#[derive(Debug)]
pub enum ServeError {
    /// The data directory cannot be used.
    Directory(DirectoryError),
    /// What stands in the data directory cannot be served.
    Opening(OpeningError),
    /// An address cannot be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// More shards than the CPUs that the process may use.
    Cores {
        /// Shards asked for.
        shards: u32,
        /// CPUs allowed.
        allowed: usize,
    },
    /// An option has a value that another forbids.
    Option(String),
    /// The system refused something else.
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The server ran and a shard failed: nothing was acknowledged that is not durable.
    Failed(String),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Directory(error) => error.fmt(f),
            ServeError::Opening(error @ OpeningError::Recovery(_)) => write!(
                f,
                "{error}; no record was touched: `penstock inspect` with the data directory shows all, with --repair it tells what a mend would give up"
            ),
            ServeError::Opening(error) => error.fmt(f),
            ServeError::Listen { address, error } if error.kind() == io::ErrorKind::AddrInUse => {
                write!(
                    f,
                    "cannot listen on {address}: another process does; choose another with --listen or --shard-ports (0 takes free ones)"
                )
            }
            ServeError::Listen { address, error } => {
                write!(f, "cannot listen on {address}: {error}")
            }
            ServeError::Cores { shards, allowed } => {
                write!(
                    f,
                    "--shards {shards} needs as many CPUs, and this process may use {allowed}: ask for at most {allowed}"
                )
            }
            ServeError::Option(text) | ServeError::Failed(text) => f.write_str(text),
            ServeError::System { action, error } => write!(f, "cannot {action}: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}

impl From<OpeningError> for ServeError {
    fn from(error: OpeningError) -> Self {
        ServeError::Opening(error)
    }
}

/// What reaches a core from outside its thread.
pub(crate) enum Letter {
    /// From another core.
    Mail(Mail),
    /// From the thread that makes segment files.
    Spare(SpareOutcome),
    /// Stop taking requests and seal the log.
    Stop,
    /// Every core has: end.
    Leave,
}

/// What a core tells the main thread.
pub(crate) enum Report {
    /// Its log is recovered; what it found, in words.
    Ready { shard: u16, text: String },
    /// It cannot serve.
    Refused(ServeError),
    /// Its log is sealed and durable.
    Stopped,
    /// It must not go on.
    Fatal(String),
    /// Its thread ends.
    Gone,
}

/// What a core is made of; moves to its thread.
pub(crate) struct CoreStart {
    pub(crate) shard: u16,
    pub(crate) core: Option<CoreId>,
    pub(crate) config: Arc<Config>,
    pub(crate) shard_config: ShardConfig,
    pub(crate) owner: Owner,
    pub(crate) survey: Arc<Survey>,
    pub(crate) segments: crate::directory::Segments,
    pub(crate) spares: crate::spare::SpareHandle,
    /// Spare segments that an earlier run left, for this shard.
    pub(crate) spares_left: Vec<penstock_storage::io::FileId>,
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) disk_mode: disk::IoMode,
    pub(crate) sync: SyncMethod,
    pub(crate) has_uring: bool,
    pub(crate) inbox: flume::Receiver<Letter>,
    pub(crate) outboxes: Vec<flume::Sender<Letter>>,
    pub(crate) reports: flume::Sender<Report>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) clock: Instant,
    pub(crate) unix_ms_at_start: u64,
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// [`ServeError`], whose text is one line that names the cause and what to do.
pub fn serve(config: Config) -> Result<(), ServeError> {
    let system = |action| move |error| ServeError::System { action, error };
    refuse_open_door(&config)?;
    // Before any thread: a signal that comes early must not kill a half-started process.
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT])
        .map_err(system("watch for signals"))?;

    let allowed = checks::allowed_cores();
    let options = DirectoryOptions {
        shards: (config.shards > 0).then_some(u32::from(config.shards)),
        shards_of_new: u32::try_from(allowed.len().clamp(1, 256)).expect("at most 256"),
        segment_bytes: config.segment_bytes,
    };
    if usize::from(config.shards) > allowed.len() {
        return Err(ServeError::Cores {
            shards: u32::from(config.shards),
            allowed: allowed.len(),
        });
    }
    let directory = Directory::open(&config.data, options).map_err(ServeError::Directory)?;
    let identity = *directory.identity();
    let shards = u16::try_from(identity.log_count)
        .map_err(|_| ServeError::Option(format!("{} shards", identity.log_count)))?;
    if usize::from(shards) > allowed.len() {
        return Err(ServeError::Cores {
            shards: identity.log_count,
            allowed: allowed.len(),
        });
    }

    let has_uring = disk::probe().is_ok();
    let disk_mode = match config.io {
        IoMode::Auto => disk::IoMode::Auto,
        IoMode::Uring => disk::IoMode::Uring,
        IoMode::Threads => disk::IoMode::Threads,
    };
    banner(&config, &directory, shards);

    // On a thread of its own: the kernel keeps the workers that a sync needed for as long as the
    // thread lives, and the shards are to show none.
    let sync = std::thread::scope(|scope| {
        let timed = scope.spawn(|| calibrate_disk(&directory, disk_mode));
        timed.join().expect("calibration does not panic")
    })?;
    let owner = Owner {
        cluster_id: identity.cluster_id,
        node_id: identity.node_id,
    };
    let Inventory {
        survey,
        spares: spares_left,
    } = take_inventory(
        &mut directory.segments().clone(),
        owner,
        shards,
        config.segment_bytes,
    )?;

    let (shared, own) = bind(&config, shards)?;
    let own_ports: Vec<u16> = own.iter().map(port_of).collect();
    let topology = Topology::new(shards);
    let clock = Instant::now();
    let unix_ms_at_start = unix_ms();
    let spares = Spares::start(directory.segments())
        .map_err(system("start the thread that prepares segments"))?;
    let stats = Arc::new(Stats::new(shards));
    let survey = Arc::new(survey);
    let config = Arc::new(config);
    let (report_sender, reports) = flume::unbounded();
    let boxes: Vec<_> = (0..shards).map(|_| flume::unbounded()).collect();
    let senders: Vec<_> = boxes.iter().map(|(sender, _)| sender.clone()).collect();
    let shared_address = shared[0]
        .local_addr()
        .map_err(system("read the address listened on"))?;

    let mut threads = Vec::new();
    let per_shard = boxes.into_iter().zip(shared).zip(own);
    for (shard, (((_, inbox), shared), own)) in (0u16..).zip(per_shard) {
        let limits = Limits {
            frame_bytes_max: config.frame_bytes_max,
            value_bytes_max: config.value_bytes_max,
        };
        let hello = ServerHello {
            protocol: 1,
            shard,
            shard_count: shards,
            auth_methods: AUTH_NONE,
            cluster_id: identity.cluster_id,
            node_id: identity.node_id,
            incarnation: identity.incarnation,
            features: 0,
            nonce: [0; 32],
            limits,
            interval_ms: config.interval_ms,
            slots: topology.ranges(|shard| own_ports[usize::from(shard)]),
        };
        let shard_config = ShardConfig {
            shard,
            topology,
            hello,
            level_min: config.durability,
            output_bytes_max: usize::try_from(config.output_bytes_max).unwrap_or(usize::MAX),
            partial_frame_us_max: u64::from(config.partial_frame_timeout_ms) * 1000,
            write_stall_us_max: u64::from(config.write_stall_timeout_ms) * 1000,
            idle_us_max: u64::from(config.idle_timeout_s) * 1_000_000,
            mailed_items_max: 64 * 1024,
            hash_seed: crate::system::random_u64().map_err(system("get random bytes"))?,
        };
        let start = CoreStart {
            shard,
            core: allowed.get(usize::from(shard)).copied(),
            config: Arc::clone(&config),
            shard_config,
            owner,
            survey: Arc::clone(&survey),
            segments: directory.segments().clone(),
            spares: spares.handle(),
            spares_left: spares_left
                .iter()
                .copied()
                .skip(usize::from(shard))
                .step_by(usize::from(shards))
                .collect(),
            listeners: vec![shared, own],
            disk_mode,
            sync,
            has_uring: has_uring && config.io != IoMode::Threads,
            inbox,
            outboxes: senders.clone(),
            reports: report_sender.clone(),
            stats: Arc::clone(&stats),
            clock,
            unix_ms_at_start,
        };
        let thread = std::thread::Builder::new()
            .name(format!("penstock-{shard}"))
            .spawn(move || core::run(start))
            .map_err(system("start the thread of a shard"))?;
        threads.push(thread);
    }

    let signal_sender = report_sender.clone();
    let signal_handle = signals.handle();
    let watcher = std::thread::Builder::new()
        .name("penstock-signal".into())
        .spawn(move || {
            // The first signal asks for the clean stop; a second one does not wait for it.
            for (count, _) in signals.forever().enumerate() {
                if count > 0 || signal_sender.send(Report::Stopped).is_err() {
                    eprintln!("penstock: second signal, leaving without the clean stop; the next start recovers");
                    std::process::exit(130);
                }
            }
        })
        .map_err(system("start the thread that watches for signals"))?;
    drop(report_sender);
    let outcome = conduct(
        shards,
        &senders,
        &reports,
        shared_address,
        &own_ports,
        &config,
    );
    signal_handle.close();
    let _ = watcher.join();
    if outcome.is_ok() {
        threads.into_iter().for_each(|thread: JoinHandle<()>| {
            let _ = thread.join();
        });
    }
    outcome
}

/// Follows the cores through their life.
fn conduct(
    shards: u16,
    cores: &[flume::Sender<Letter>],
    reports: &flume::Receiver<Report>,
    shared: SocketAddr,
    own_ports: &[u16],
    config: &Config,
) -> Result<(), ServeError> {
    let (mut ready, mut stopped, mut gone) = (0, 0, 0);
    let mut is_stopping = false;
    let tell = |letter: fn() -> Letter| cores.iter().for_each(|core| drop(core.send(letter())));
    loop {
        let Ok(report) = reports.recv() else {
            return Ok(());
        };
        match report {
            Report::Ready { shard, text } => {
                println!("shard {shard}     {text}");
                ready += 1;
                if ready == shards {
                    let ports: Vec<String> = own_ports.iter().map(u16::to_string).collect();
                    println!(
                        "listening    {shared} (every shard), ports {} (one each)",
                        ports.join(" ")
                    );
                    println!(
                        "acks         {} by default; interval loses at most {} ms",
                        config.durability.name(),
                        config.interval_ms
                    );
                    println!("ready");
                }
            }
            Report::Refused(error) => return Err(error),
            Report::Fatal(text) => return Err(ServeError::Failed(text)),
            // From the signal watcher before the stop, from the cores during it.
            Report::Stopped if !is_stopping => {
                is_stopping = true;
                println!("stopping     no more requests; making everything durable");
                tell(|| Letter::Stop);
            }
            Report::Stopped => {
                stopped += 1;
                if stopped == shards {
                    tell(|| Letter::Leave);
                }
            }
            Report::Gone => {
                gone += 1;
                if gone == shards {
                    println!("stopped      everything acknowledged is durable");
                    return Ok(());
                }
            }
        }
    }
}

/// Until clients can authenticate, only this machine may be let in without being asked.
fn refuse_open_door(config: &Config) -> Result<(), ServeError> {
    let ip = config.listen.ip();
    if ip.is_loopback() || config.allow_unauthenticated {
        return Ok(());
    }
    Err(ServeError::Option(format!(
        "--listen {} can be reached from other machines, and clients cannot authenticate yet: give --allow-unauthenticated if that is wanted",
        config.listen
    )))
}

/// Times the disk once, before the shards share it, and says which way of syncing it is best at.
fn calibrate_disk(directory: &Directory, mode: disk::IoMode) -> Result<SyncMethod, ServeError> {
    let system = |action| move |error| ServeError::System { action, error };
    let arena = Arena::new(ArenaLayout::default()).map_err(system("map the memory of a disk"))?;
    let options = DiskOptions {
        mode,
        ..DiskOptions::default()
    };
    let mut disk =
        Disk::open(options, &arena).map_err(|refused| ServeError::Option(refused.to_string()))?;
    println!("{:<12} {}", "disk engine", disk.describe());
    disk.problems().iter().for_each(print_problem);
    let calibration = match calibrate(&mut disk, &arena, directory.segments()) {
        // What is on a full disk can still be read.
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            println!("sync method  durable writes: not timed, because the disk is full");
            return Ok(SyncMethod::DurableWrite);
        }
        timed => timed.map_err(system("time the disk"))?,
    };
    let method = match calibration.method {
        SyncMethod::DurableWrite => "durable writes",
        SyncMethod::WriteThenSync => "write, then fdatasync",
    };
    println!(
        "sync method  {method}: 4 KiB durable in {} us by durable writes, {} us by write and fdatasync; read in {} us",
        calibration.durable_write_us, calibration.write_then_sync_us, calibration.read_us
    );
    Ok(calibration.method)
}

fn print_problem(problem: &checks::Problem) {
    println!("  problem    {}", problem.cause);
    println!("  mend       {}", problem.mend);
}

/// The listeners: the shared port once per shard, and one port per shard.
fn bind(config: &Config, shards: u16) -> Result<(Vec<TcpListener>, Vec<TcpListener>), ServeError> {
    let mut address = config.listen;
    let mut shared = Vec::new();
    // Sharing a port also lets a second server share it by mistake, so one listener first tries
    // to have it alone.
    drop(listen(address, false)?);
    for _ in 0..shards {
        let listener = listen(address, true)?;
        address.set_port(port_of(&listener));
        shared.push(listener);
    }
    let mut own = Vec::new();
    for shard in 0..shards {
        let port = match config.shard_ports {
            0 => 0,
            base => base.checked_add(shard).ok_or_else(|| ServeError::Option(format!("--shard-ports {base} leaves no port for shard {shard}; at most {} are possible", u16::MAX - base)))?,
        };
        own.push(listen(SocketAddr::new(config.listen.ip(), port), false)?);
    }
    Ok((shared, own))
}

fn listen(address: SocketAddr, is_shared: bool) -> Result<TcpListener, ServeError> {
    let bind = || {
        let domain = socket2::Domain::for_address(address);
        let socket =
            socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(is_shared)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(4096)?;
        Ok(TcpListener::from(socket))
    };
    bind().map_err(|error| ServeError::Listen { address, error })
}

fn port_of(listener: &TcpListener) -> u16 {
    let unknown = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    listener.local_addr().unwrap_or(unknown).port()
}

fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}

/// What the machine is like, each problem with its cause and its mend.
fn banner(config: &Config, directory: &Directory, shards: u16) {
    println!("penstock {}", env!("CARGO_PKG_VERSION"));
    let identity = directory.identity();
    println!(
        "data         {} ({}, start {}, {shards} shards)",
        directory.path().display(),
        if directory.is_new() {
            "new"
        } else {
            "existing"
        },
        identity.incarnation
    );
    let demand = Demand {
        segments: directory.segments(),
        shards: u32::from(shards),
        segment_bytes: config.segment_bytes,
        arena_bytes: ArenaLayout::default().bytes() as u64,
        connections_max: u64::from(config.connections_max),
    };
    for check in checks::look(&demand) {
        println!("{:<12} {}", check.name, check.value);
        check.problem.iter().for_each(print_problem);
    }
}
