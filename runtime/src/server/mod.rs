//! The server process: start-up, one thread per core, signals, the end.
//!
//! The order of a start: configuration is resolved, the machine is looked at, the data directory is
//! locked and gets its next incarnation, the ports are bound, every core recovers its own log, and
//! only when all have succeeded does any of them open its ports and serve. The order of a stop:
//! every core stops taking requests and seals its log; when all have, they send what is left and
//! end.

mod admin;
mod audit;
mod channels;
mod client_place;
mod conductor;
mod connection;
mod connection_tasks;
mod core;
mod core_loop;
mod cores;
mod debug_sleep;
mod descriptors;
mod destination;
mod dial;
mod error;
mod expirations;
mod exposition;
mod halves;
mod handshakes;
mod hashing;
mod health;
mod inlet;
mod kept;
mod link;
mod link_tasks;
mod listen;
pub mod logging;
mod lostfound;
mod messages;
mod metrics;
mod network;
mod node_pause;
mod resp_host;
mod resp_tasks;
mod rests;
mod scripts;
mod secured;
mod served_users;
mod signal;
mod signals;
mod stalled_threads;
mod supervisor;
mod tracking;
mod waiting;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use tracing::warn;

use crate::cluster::Reread;
use crate::cluster::plan::home::PlanPlace;
use crate::config::exposure::Exposed;
use crate::config::ports::port_conflict;
use crate::config::{Config, exposed};
use crate::directory::{DirectoryError, DirectoryLock};
use crate::startup::checks;
use crate::startup::node::{Bound, Node, OpenError};
use crate::system::lines::{self, print_line};
use crate::system::{open_files, require_threads};
use crate::tls::{ServedByPort, ServedTls, TlsFiles};

use self::admin::{Admin, Guard};
use self::audit::{Audit, Field};
use self::conductor::{Conductor, Start};
use self::cores::Cores;
use self::dial::{dial, open_link_tls};
pub use self::error::ServeError;
use self::error::system;
use self::health::{Health, Phase, Watched};
use self::listen::{bind, bind_links, bind_resp, port_of, require_free};
use self::logging::Logging;
use self::messages::Report;
use self::served_users::ServedUsers;
use self::signals::{Caught, Reload};
use self::supervisor::Supervisor;

/// Serves until SIGTERM or SIGINT. SIGHUP reloads the log file, the certificate, the cluster's file
/// and the files of the schema, and says so.
///
/// # Errors
/// [`ServeError`], whose text is one line that names the cause and what to do.
pub fn serve(config: Config, logging: &Logging) -> Result<(), ServeError> {
    // Before the first of them is made for something.
    require_threads().map_err(|error| OpenError::Option(error.to_string()))?;
    let outcome = serve_ready(config, logging);
    // Of the banner, whose last line may tell how it ended.
    lines::flush();
    outcome
}

/// Serves, and tells the file of the audit log, if there is one.
fn serve_ready(config: Config, logging: &Logging) -> Result<(), ServeError> {
    let Some(path) = config.audit_file.clone() else {
        return serve_audited(config, logging, &Audit::default());
    };
    let opened = Audit::open(&path).map_err(|error| OpenError::Option(error.to_string()))?;
    // Dropped last: what is queued by then is written.
    let (audit, _writer) = opened;
    let data = config.data.display().to_string();
    let fields = [
        ("version", Field::Text(env!("CARGO_PKG_VERSION"))),
        ("data", Field::Text(&data)),
        ("process", Field::Number(std::process::id().into())),
    ];
    audit.report("start", &fields);
    let outcome = serve_audited(config, logging, &audit);
    match &outcome {
        Ok(()) => audit.report("stop", &[]),
        Err(error) => audit.report("failure", &[("cause", Field::Text(&error.to_string()))]),
    }
    outcome
}

/// Serves, and tells `audit` of what an auditor asks for.
fn serve_audited(config: Config, logging: &Logging, audit: &Audit) -> Result<(), ServeError> {
    refuse_open_door(&config, None)?;
    let (tls, users) = (open_tls(&config)?, ServedUsers::of(&config)?);
    // What a directory needs besides is known when it is open.
    let connections_max = u64::from(config.connections_max);
    open_files::require(1, 0, connections_max).map_err(OpenError::OpenFiles)?;
    // Before any thread: a signal that comes early must not kill a half-started process.
    let signals = Caught::new().map_err(system("watch for signals"))?;
    let supervisor = Arc::new(Supervisor::of_process());
    let reread = Reread::default();
    let plan_place = PlanPlace::of(&config);
    let began = Instant::now();
    let health = Arc::new(Health::new());
    // It answers while the start goes on, and ends when this function does.
    let _admin = open_admin(&config, tls.as_ref(), audit, &health)?;

    let cpus = checks::allowed_cores().len().clamp(1, 256);
    let shards_of_new = u32::try_from(cpus).expect("at most 256");
    let node = Node::open(config, shards_of_new, Bound::Process, lines::out)?;
    let config = Arc::clone(&node.config);
    let open_to_anyone = refuse_open_door(&config, node.links_address())?;
    let link_tls = open_link_tls(&node)?;
    let links = link_tls.as_ref().map(|it| Arc::clone(&it.served));
    let clients = tls.clone();
    let served_tls = ServedByPort { clients, links };
    let shards = node.shards();
    let segments = node.directory.segments().list();
    let segments = segments.map_err(system("list the segments"))?.len() as u64;
    open_files::require(shards.into(), segments, connections_max).map_err(OpenError::OpenFiles)?;
    warn_of_problems(&node);

    let shown = watched(&node, (logging, audit), &served_tls, open_to_anyone.len());
    health.watch(shown);

    let (shared, own) = bind_clients(&node)?;
    let resp = bind_resp(&config, shards)?;
    let resp_at = resp.as_ref().map(|it| (it.address, it.own_ports()));
    let resp_address = resp.as_ref().map(|it| it.address);
    let links = node.links_address().map(bind_links).transpose()?;
    let own_ports: Vec<u16> = own.iter().map(port_of).collect();
    let shared_address = shared[0]
        .local_addr()
        .map_err(system("read the address listened on"))?;
    let (report_sender, reports) = flume::unbounded();
    let let_in = users.as_ref().map(ServedUsers::users);
    let guards = (tls.as_ref(), let_in.as_ref());
    let cores = Cores::start(&node, shared, own, resp, guards, audit, &report_sender)?;
    let _users = users
        .map(|it| it.watch(cores.deliver_users(), audit.clone()))
        .transpose()?;
    let reload = Reload {
        logging: logging.clone(),
        tls: served_tls.clone(),
        audit: audit.clone(),
        plan: plan_place.map(|place| (place, reread.clone())),
        schema: node.schema().map(|schema| (schema, cores.deliver_schema())),
        supervisor: Arc::clone(&supervisor),
    };
    let signal_sender = report_sender.clone();
    let watcher = signals
        .watch(reload, move || signal_sender.send(Report::Stopped).is_ok())
        .map_err(system("start the thread that watches for signals"))?;
    drop(report_sender);

    let start = Start {
        began,
        progress: node.directory.segments().progress(),
        config: &config,
        shared: shared_address,
        own_ports: &own_ports,
        resp: resp_at,
        tls: &served_tls,
        open_to_anyone: &open_to_anyone,
        io: node.rings.io(),
    };
    let mut dialing = None;
    // Nothing is written or linked before it is known that no shard refuses the directory.
    let mut check = node.clock_check();
    let take_time = |log_ms| check.take(log_ms).map_err(|it| OpenError::Time(it).into());
    let all_open = || {
        node.claim_directory()?;
        require_free([Some(shared_address), resp_address])?;
        cores.begin();
        if let Some(listener) = links {
            dialing = Some(dial(&node, (listener, link_tls), cores.links(), reread)?);
        }
        Ok(())
    };
    let conductor = Conductor::new(&cores, start, &health, &supervisor);
    let outcome = conductor.conduct(&reports, take_time, all_open);
    drop(dialing);
    if let Err(error) = &outcome {
        health.enter(Phase::Failed(error.to_string()));
    }
    watcher.close();
    if outcome.is_ok() {
        cores.join();
    }
    outcome
}

/// Logs what is wrong with the directory and the rings, and how to mend each.
fn warn_of_problems(node: &Node) {
    let problems = node.directory.problems();
    for problem in problems.iter().chain(&node.rings.problem) {
        warn!(mend = problem.mend, "{}", problem.cause);
    }
}

/// What is open to anyone who reaches it, because somebody has said so.
fn refuse_open_door(
    config: &Config,
    links: Option<SocketAddr>,
) -> Result<Vec<Exposed>, ServeError> {
    exposed(config, links).map_err(|it| {
        let text = format!("{} {}: {it}", it.listener.option(), it.address);
        OpenError::Option(text).into()
    })
}

/// Takes the ports for native clients, when those of the shards are judged once more: their number
/// is known now.
fn bind_clients(node: &Node) -> Result<(Vec<TcpListener>, Vec<TcpListener>), ServeError> {
    match port_conflict(&node.config, node.shards(), node.links_address()) {
        None => bind(&node.config, node.shards()),
        Some((name, cause)) => Err(OpenError::Option(format!("{name}: {cause}")).into()),
    }
}

/// Reads the certificate, if the ports are to speak TLS.
fn open_tls(config: &Config) -> Result<Option<Arc<ServedTls>>, ServeError> {
    let opened = TlsFiles::of(config).map(ServedTls::open).transpose();
    let opened = opened.map_err(|error| OpenError::Option(error.to_string()))?;
    Ok(opened.map(Arc::new))
}

/// What the admin port shows of a node.
fn watched(
    node: &Node,
    (log, audit): (&Logging, &Audit),
    tls: &ServedByPort,
    open_to_anyone: usize,
) -> Watched {
    Watched {
        stats: Arc::clone(&node.stats),
        data: node.config.data.clone(),
        is_alone: !node.config.is_clustered(),
        segments: node.directory.segments().clone(),
        memory: node.memory(),
        clock: node.clock(),
        unix_ms_at_start: node.unix_ms_at_start(),
        tls: tls.clone(),
        open_to_anyone,
        log: log.queue().clone(),
        audit: audit.clone(),
    }
}

/// Binds the admin port and starts its thread.
fn open_admin(
    config: &Config,
    tls: Option<&Arc<ServedTls>>,
    audit: &Audit,
    health: &Arc<Health>,
) -> Result<Option<Admin>, ServeError> {
    let Some(address) = config.admin_listen else {
        return Ok(None);
    };
    let guard = Guard::of(config, tls, audit);
    let guard = guard.map_err(|error| OpenError::Option(error.to_string()))?;
    let refused = |error| ServeError::ListenAdmin { address, error };
    let listener = TcpListener::bind(address).map_err(|error| {
        // A second start of one directory meets the ports of the first one before its lock.
        match DirectoryLock::find(&config.data) {
            Err(held @ DirectoryError::Locked { .. }) => OpenError::Directory(held).into(),
            _ => refused(error),
        }
    })?;
    let local = listener.local_addr().map_err(refused)?;
    let scheme = if guard.has_tls() { "https" } else { "http" };
    let admin = Admin::start(listener, Arc::clone(health), guard)
        .map_err(system("start the thread of the admin port"))?;
    print_line!("admin        {scheme}://{local} (/metrics, /livez, /readyz)");
    Ok(Some(admin))
}
