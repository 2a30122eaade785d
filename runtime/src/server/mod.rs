//! The server process: start-up, one thread per core, signals, the end.
//!
//! The order of a start: configuration is resolved, the machine is looked at, the data directory is
//! locked and gets its next incarnation, the ports are bound, every core recovers its own log, and
//! only when all have succeeded does any of them serve. The order of a stop: every core stops
//! taking requests and seals its log; when all have, they send what is left and end.

mod admin;
mod connection;
mod core;
mod descriptors;
mod exposition;
mod health;
mod link;
pub mod logging;
mod metrics;
mod signals;
mod supervisor;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io};

use penstock_shard::Mail;
use penstock_shard::linked::Plan;
use penstock_shard::replication::{LinkId, PartitionId};
use tracing::{info, warn};

use crate::cluster::{Deliver, Delivery, Dialing, ProvenLink, Reread};
use crate::config::Config;
use crate::directory::spares::SpareOutcome;
use crate::directory::{DirectoryError, Progress};
use crate::server::logging::Logging;
use crate::startup::checks;
use crate::startup::node::{Bound, Node, OpenError, ShardStart};
use crate::system::lines::{self, tell};
use crate::system::open_files;

use self::admin::Admin;
use self::health::{Health, Phase, Watched};
use self::signals::{Caught, Reload};
use self::supervisor::Supervisor;

/// The shortest value that leaves from where it stands instead of being copied: a copy of 8 KiB
/// costs no more than what the kernel does for one more run of bytes.
const SHARED_BYTES_MIN: usize = 16 << 10;

/// Why a server did not start or did not end well.
#[derive(Debug)]
pub enum ServeError {
    /// The data directory cannot be served.
    Open(OpenError),
    /// An address cannot be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The admin port cannot be listened on.
    ListenAdmin {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The address for links to other nodes cannot be listened on.
    ListenLinks {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The server ran and a shard failed: nothing was acknowledged that is not durable.
    Failed(String),
    /// The server ran and a file turned out to be damaged, or the directory to be an older copy:
    /// likewise. A start would not mend it.
    Damaged(String),
}

impl ServeError {
    /// The exit code of the process: 1 the data is damaged, 2 the configuration or the machine is
    /// wrong, 3 a shard failed.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            ServeError::Failed(_) => 3,
            ServeError::Damaged(_)
            | ServeError::Open(OpenError::Directory(DirectoryError::Damaged { .. })) => 1,
            ServeError::Open(OpenError::Refused { refusal, .. }) if refusal.is_damage() => 1,
            _ => 2,
        }
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Open(error) => error.fmt(f),
            ServeError::Listen { address, error } if error.kind() == io::ErrorKind::AddrInUse => {
                write!(
                    f,
                    "cannot listen on {address}: another process does; choose another with --listen or --shard-ports (0 takes free ones)"
                )
            }
            ServeError::Listen { address, error } => {
                write!(f, "cannot listen on {address}: {error}")
            }
            ServeError::ListenAdmin { address, error } => write!(
                f,
                "cannot listen on {address} for probes and metrics: {error}; choose another address with --admin-listen, or off"
            ),
            ServeError::ListenLinks { address, error } => write!(
                f,
                "cannot listen on {address} for links to other nodes: {error}; the cluster's file names that address for this node"
            ),
            ServeError::Failed(text) | ServeError::Damaged(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for ServeError {}

impl From<OpenError> for ServeError {
    fn from(error: OpenError) -> Self {
        ServeError::Open(error)
    }
}

/// What `action` was refused with.
fn system(action: &'static str) -> impl Fn(io::Error) -> ServeError {
    move |error| OpenError::System { action, error }.into()
}

/// What reaches a core from outside its thread.
pub(crate) enum Letter {
    /// From another core.
    Mail(Mail),
    /// From the thread that makes segment files.
    Spare(SpareOutcome),
    /// The cluster's file was read anew.
    Plan(Arc<Plan>),
    /// From a thread that makes links.
    Link(Box<ProvenLink>),
    /// From the thread that keeps what has diverged.
    TailKept(PartitionId, Option<LinkId>),
    /// Stop taking requests and seal the log.
    Stop,
    /// Every core has: end.
    Leave,
}

/// What a core tells the main thread.
pub(crate) enum Report {
    /// Its log is recovered; what it found, in words. It writes nothing before it may begin.
    Opened { shard: u16, text: String },
    /// It answers.
    Ready,
    /// It cannot serve.
    Refused(ServeError),
    /// Its log is sealed and durable.
    Stopped,
    /// It must not go on.
    Fatal(String),
    /// A file is damaged: the process is to end.
    Damaged(String),
    /// Its thread ends.
    Gone,
}

/// What a core is made of; moves to its thread.
pub(crate) struct CoreStart {
    pub(crate) shard: ShardStart,
    pub(crate) listeners: Vec<TcpListener>,
    /// Of the ring of its sockets; none is epoll.
    pub(crate) socket_entries: Option<u32>,
    /// How many connections are open, of all cores together.
    pub(crate) connections: Arc<AtomicU32>,
    /// Hears when all shards are open; is gone if one is not.
    pub(crate) may_begin: flume::Receiver<()>,
    pub(crate) inbox: flume::Receiver<Letter>,
    pub(crate) outboxes: Vec<flume::Sender<Letter>>,
    pub(crate) reports: flume::Sender<Report>,
}

/// Serves until SIGTERM or SIGINT. SIGHUP reloads the log file and the cluster's file, and says so.
///
/// # Errors
/// [`ServeError`], whose text is one line that names the cause and what to do.
pub fn serve(config: Config, logging: &Logging) -> Result<(), ServeError> {
    refuse_open_door(&config)?;
    // What a directory needs besides is known when it is open.
    let connections_max = u64::from(config.connections_max);
    open_files::require(1, 0, connections_max).map_err(OpenError::OpenFiles)?;
    // Before any thread: a signal that comes early must not kill a half-started process.
    let signals = Caught::new().map_err(system("watch for signals"))?;
    let supervisor = Arc::new(Supervisor::of_process());
    let reread = Reread::default();
    let cluster = config.cluster.clone();
    let reload = Reload {
        logging: logging.clone(),
        cluster: cluster.map(|path| (path, reread.clone())),
        supervisor: Arc::clone(&supervisor),
    };

    let began = Instant::now();
    let health = Arc::new(Health::new());
    // It answers while the start goes on, and ends when this function does.
    let _admin = match config.admin_listen {
        Some(address) => Some(open_admin(address, &health)?),
        None => None,
    };

    let cpus = checks::allowed_cores().len().clamp(1, 256);
    let shards_of_new = u32::try_from(cpus).expect("at most 256");
    let node = Node::open(config, shards_of_new, Bound::Process, lines::out)?;
    let config = Arc::clone(&node.config);
    let shards = node.shards();
    let segments = node.directory.segments().list();
    let segments = segments.map_err(system("list the segments"))?.len() as u64;
    open_files::require(shards.into(), segments, connections_max).map_err(OpenError::OpenFiles)?;
    if let Some(problem) = &node.rings.problem {
        warn!(mend = problem.mend, "{}", problem.cause);
    }

    health.watch(Watched {
        stats: Arc::clone(&node.stats),
        data: node.config.data.clone(),
        is_alone: node.config.cluster.is_none(),
        segments: node.directory.segments().clone(),
        memory: node.memory(),
        clock: node.clock(),
        unix_ms_at_start: node.unix_ms_at_start(),
    });

    let (shared, own) = bind(&config, shards)?;
    let links = match node.links_address() {
        Some(address) => Some(listen(address, false).map_err(|error| match error {
            ServeError::Listen { address, error } => ServeError::ListenLinks { address, error },
            other => other,
        })?),
        None => None,
    };
    let own_ports: Vec<u16> = own.iter().map(port_of).collect();
    let (report_sender, reports) = flume::unbounded();
    let (begin, may_begin) = flume::bounded(usize::from(shards));
    let boxes: Vec<_> = (0..shards).map(|_| flume::unbounded()).collect();
    let senders: Vec<_> = boxes.iter().map(|(sender, _)| sender.clone()).collect();
    let shared_address = shared[0]
        .local_addr()
        .map_err(system("read the address listened on"))?;

    let connections = Arc::new(AtomicU32::new(0));
    let mut threads = Vec::new();
    let per_shard = boxes.into_iter().zip(shared).zip(own);
    for (shard, (((_, inbox), shared), own)) in (0u16..).zip(per_shard) {
        let mut opening = node.shard(shard, |shard| own_ports[usize::from(shard)])?;
        opening.shard_config.shared_bytes_min = SHARED_BYTES_MIN;
        let start = CoreStart {
            shard: opening,
            listeners: vec![shared, own],
            socket_entries: node.rings.setup.map(|it| it.socket_entries),
            connections: Arc::clone(&connections),
            may_begin: may_begin.clone(),
            inbox,
            outboxes: senders.clone(),
            reports: report_sender.clone(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("penstock-{shard}"))
            .spawn(move || core::run(start))
            .map_err(system("start the thread of a shard"))?;
        threads.push(thread);
    }

    let mut dialing = None;
    let deliver_to = senders.clone();
    // Nothing is written or linked before it is known that no shard refuses the directory.
    let all_open = || -> Result<(), ServeError> {
        node.claim_directory()?;
        (0..shards).for_each(|_| begin.send(()).expect("each shard waits"));
        if let Some(listener) = links {
            let deliver = move |delivery| match delivery {
                Delivery::Link(shard, proven) => {
                    drop(deliver_to[usize::from(shard)].send(Letter::Link(proven)));
                }
                Delivery::Plan(plan) => deliver_to
                    .iter()
                    .for_each(|core| drop(core.send(Letter::Plan(Arc::clone(&plan))))),
            };
            dialing = Some(dial(&node, listener, Arc::new(deliver), reread)?);
        }
        Ok(())
    };
    let signal_sender = report_sender.clone();
    let watcher = signals
        .watch(reload, move || signal_sender.send(Report::Stopped).is_ok())
        .map_err(system("start the thread that watches for signals"))?;
    drop(report_sender);
    let outcome = conduct(
        shards,
        &senders,
        &reports,
        shared_address,
        &own_ports,
        &config,
        (began, node.directory.segments().progress(), node.rings.io()),
        &health,
        &supervisor,
        all_open,
    );
    drop(dialing);
    if let Err(error) = &outcome {
        health.enter(Phase::Failed(error.to_string()));
    }
    watcher.close();
    if outcome.is_ok() {
        threads.into_iter().for_each(|thread: JoinHandle<()>| {
            let _ = thread.join();
        });
    }
    outcome
}

/// Starts the threads that make links to the other nodes.
fn dial(
    node: &Node,
    listener: TcpListener,
    deliver: Deliver,
    reread: Reread,
) -> Result<Dialing, ServeError> {
    let failed = |(action, error)| ServeError::from(OpenError::System { action, error });
    listener
        .set_nonblocking(false)
        .map_err(system("prepare the address of links"))?;
    let (file, me) = node.cluster().expect("it has an address for links");
    let address = listener
        .local_addr()
        .map_err(system("read the address of links"))?;
    let others = file.nodes.len() - 1;
    tell!(
        "cluster      node {}, with {others} other{}, links on {address}",
        me.node,
        if others == 1 { "" } else { "s" }
    );
    if node.config.cluster_new && me.start.incarnation > 1 {
        warn!(
            "--cluster-new is given, and this directory has been started before: leave it out, so that a lost directory is never taken for that of a new cluster"
        );
    }
    let path = node.config.cluster.clone().expect("it has a cluster");
    let secret = path.with_file_name(&file.secret_file);
    let mode = std::fs::metadata(&secret).map_or(0, |it| it.permissions().mode());
    if mode & 0o007 != 0 {
        warn!(
            path = %secret.display(),
            mode = %format_args!("{:04o}", mode & 0o7777),
            "{} has mode {:04o}: every user of this machine can read the secret of the cluster, and whoever knows it is let in; chmod o= {0}",
            secret.display(),
            mode & 0o7777
        );
    }
    let stats = Arc::clone(&node.stats);
    let data = &node.config.data;
    Dialing::start((path, file), listener, data, me, deliver, stats, reread).map_err(failed)
}

/// How often a start tells how far it has come.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Follows the cores through their life.
#[expect(clippy::too_many_arguments, reason = "what a start has made, once")]
fn conduct(
    shards: u16,
    cores: &[flume::Sender<Letter>],
    reports: &flume::Receiver<Report>,
    shared: SocketAddr,
    own_ports: &[u16],
    config: &Config,
    (began, progress, io): (Instant, &Progress, &str),
    health: &Health,
    supervisor: &Supervisor,
    all_open: impl FnOnce() -> Result<(), ServeError>,
) -> Result<(), ServeError> {
    let (mut opened, mut ready, mut stopped, mut gone) = (0, 0, 0, 0);
    let mut all_open = Some(all_open);
    let mut is_stopping = false;
    let tell_cores =
        |letter: fn() -> Letter| cores.iter().for_each(|core| drop(core.send(letter())));
    let pause = supervisor.feeds_every().unwrap_or(PROGRESS_EVERY);
    let pause = pause.min(PROGRESS_EVERY);
    let mut told = Instant::now();
    loop {
        supervisor.feed(health);
        let report = match reports.recv_timeout(pause) {
            Ok(report) => report,
            Err(flume::RecvTimeoutError::Disconnected) => return Ok(()),
            Err(flume::RecvTimeoutError::Timeout) => {
                if opened < shards && told.elapsed() >= PROGRESS_EVERY {
                    told = Instant::now();
                    let percent = progress.percent();
                    info!(percent, "startup {percent} %");
                    supervisor.starting(percent);
                }
                continue;
            }
        };
        match report {
            Report::Opened { shard, text } => {
                tell!("shard {shard}     {text}");
                opened += 1;
                if opened == shards
                    && let Some(all_open) = all_open.take()
                {
                    all_open()?;
                }
            }
            Report::Ready => {
                ready += 1;
                if ready == shards {
                    tell!(
                        "start        {} ms, {} bytes of segments and snapshots read",
                        began.elapsed().as_millis(),
                        progress.bytes()
                    );
                    let ports: Vec<String> = own_ports.iter().map(u16::to_string).collect();
                    tell!(
                        "listening    {shared} (every shard), ports {} (one each)",
                        ports.join(" ")
                    );
                    tell!(
                        "acks         {} by default; interval loses at most {} ms",
                        config.durability.name(),
                        config.interval_ms
                    );
                    health.enter(Phase::Serving);
                    supervisor.ready();
                    tell!("ready");
                    info!(
                        version = env!("CARGO_PKG_VERSION"),
                        shards,
                        listen = %shared,
                        io,
                        data = %config.data.display(),
                        start_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
                        read_bytes = progress.bytes(),
                        "ready"
                    );
                }
            }
            Report::Refused(error) => return Err(error),
            Report::Fatal(text) => return Err(ServeError::Failed(text)),
            Report::Damaged(text) => return Err(ServeError::Damaged(text)),
            // From the signal watcher before the stop, from the cores during it.
            Report::Stopped if !is_stopping => {
                is_stopping = true;
                health.enter(Phase::Stopping);
                supervisor.stopping();
                tell!("stopping     no more requests; making everything durable");
                info!("stopping: no more requests; making everything durable");
                tell_cores(|| Letter::Stop);
            }
            Report::Stopped => {
                stopped += 1;
                if stopped == shards {
                    tell_cores(|| Letter::Leave);
                }
            }
            Report::Gone => {
                gone += 1;
                if gone == shards {
                    tell!("stopped      everything acknowledged is durable");
                    info!("stopped: everything acknowledged is durable");
                    return Ok(());
                }
            }
        }
    }
}

/// Binds the admin port and starts its thread.
fn open_admin(address: SocketAddr, health: &Arc<Health>) -> Result<Admin, ServeError> {
    let refused = |error| ServeError::ListenAdmin { address, error };
    let listener = TcpListener::bind(address).map_err(refused)?;
    let local = listener.local_addr().map_err(refused)?;
    let admin = Admin::start(listener, Arc::clone(health)).map_err(refused)?;
    tell!("admin        http://{local} (/metrics, /livez, /readyz)");
    Ok(admin)
}

/// Until clients can authenticate, only this machine may be let in without being asked.
fn refuse_open_door(config: &Config) -> Result<(), ServeError> {
    let ip = config.listen.ip();
    if ip.is_loopback() || config.allow_unauthenticated {
        return Ok(());
    }
    Err(OpenError::Option(format!(
        "--listen {} can be reached from other machines, and clients cannot authenticate yet: give --allow-unauthenticated if that is wanted",
        config.listen
    ))
    .into())
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
            base => base.checked_add(shard).ok_or_else(|| OpenError::Option(format!("--shard-ports {base} leaves no port for shard {shard}; at most {} are possible", u16::MAX - base)))?,
        };
        own.push(listen(SocketAddr::new(config.listen.ip(), port), false)?);
    }
    Ok((shared, own))
}

/// For how long an address that is taken is tried: longer than a loaded kernel needs to end a
/// process.
const LISTEN_TRIES: u32 = 100;
const LISTEN_PAUSE: Duration = Duration::from_millis(20);

/// Listens, and waits a while for an address that is taken: the kernel takes down the rings of a
/// process behind its end, and what they accepted from is held until then. A start right behind
/// a crash would be refused.
fn listen(address: SocketAddr, is_shared: bool) -> Result<TcpListener, ServeError> {
    let listened = || -> io::Result<TcpListener> {
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
    let is_taken = |listened: &io::Result<_>| {
        let error = listened.as_ref().err();
        error.is_some_and(|it| it.kind() == io::ErrorKind::AddrInUse)
    };
    let mut tried = listened();
    for _ in 1..LISTEN_TRIES {
        if !is_taken(&tried) {
            break;
        }
        std::thread::sleep(LISTEN_PAUSE);
        tried = listened();
    }
    tried.map_err(|error| ServeError::Listen { address, error })
}

fn port_of(listener: &TcpListener) -> u16 {
    let unknown = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    listener.local_addr().unwrap_or(unknown).port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_becomes_free_is_waited_for_and_one_that_does_not_is_told() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = taken.local_addr().expect("known");
        let told = listen(address, false).expect_err("it is taken").to_string();
        assert!(told.contains("another process does"), "{told}");
        let waiting = std::thread::spawn(move || listen(address, false));
        std::thread::sleep(LISTEN_PAUSE * 2);
        drop(taken);
        waiting.join().expect("no panic").expect("it is free");
    }
}
