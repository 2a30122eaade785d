//! The loop of one core: its thread, its tasks, and its end.
//!
//! Tasks hand what happened to the shard as it comes and mark the turn as due. The turn task is
//! woken by them, so it runs after everything that was ready: it lets the shard end its turn,
//! submits the disk requests with one system call, wakes the writers of connections that have
//! something to send, and delivers mail. No borrow of the core is ever held across an await.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use monoio::io::{AsyncReadRent, AsyncWriteRent, AsyncWriteRentExt};
use monoio::net::{TcpListener, TcpStream, UnixStream};
use penstock_net::auth::Transport;
use penstock_net::reply::write_error;
use penstock_net::status::Status;
use penstock_shard::Event;
use tracing::{info, warn};

use super::channels::ScriptPublisher;
use super::connection::Connection;
use super::connection_tasks::serve_connection;
use super::core::Core;
use super::descriptors::{Descriptors, refuse_accepted};
use super::error::{ServeError, system};
use super::expirations::ShardExpirations;
use super::halves::halves;
use super::link_tasks::serve_link;
use super::listen;
use super::lostfound::keep_lostfound;
use super::messages::{CoreStart, Letter, Report};
use super::resp_host::RespHost;
use super::resp_tasks::{RespPort, Subscribers, deliver_mail, serve_resp};
use super::scripts::LoggedScripts;
use super::secured::{Secured, shake_hands};
use super::signal::Signal;
use super::tracking::ShardTracker;
use crate::cluster::ProvenLink;
use crate::config::IoMode;
use crate::disk::patiently;
use crate::event_loop::shard_thread::ShardThread;
use crate::startup::node::Opened;
use crate::startup::room::ConnectionBound;
use crate::system::lines::print_line;
use crate::system::open_files;
use crate::tls::{Peer, ServedTls};

/// How often a start looks whether changes over several shards are finished, and how often it says
/// that they are not.
const RESUMING_PAUSE: Duration = Duration::from_millis(2);
const RESUMING_REPORT_EVERY: Duration = Duration::from_secs(1);

/// How long replies may take to leave after the log was sealed.
const FAREWELL: Duration = Duration::from_secs(2);

/// Between two attempts to accept when the system cannot.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What BUSY tells a connection that is turned away, in milliseconds: the most that it may. Nobody
/// knows when a connection ends.
const RETRY_AFTER_MS: u16 = 1000;

/// How long a connection that is turned away may take to read why.
const TURNED_AWAY: Duration = Duration::from_secs(1);

/// Connections of one core that are told so at the same time; others are closed at once.
const TURNED_AWAY_MAX: u32 = 64;

/// Runs a core on the calling thread until it is told to leave.
pub(crate) fn run(start: CoreStart) {
    let thread = ShardThread::on_core(start.shard.core);
    if let Some(home) = thread.home() {
        let _ = start.homes.send((start.shard.shard, home));
    }
    let reports = start.reports.clone();
    let inbox = start.outboxes[usize::from(start.shard.shard)].clone();
    let deliver_spare = Arc::new(move |outcome| drop(inbox.send(Letter::Spare(outcome))));
    let mut opened = match start.shard.open(deliver_spare) {
        Ok(opened) => opened,
        Err(error) => {
            let _ = reports.send(Report::Refused(error.into()));
            return;
        }
    };
    opened.engine.run_on(thread);
    let _ = reports.send(Report::Opened {
        shard: start.shard.shard,
        text: std::mem::take(&mut opened.text),
        log_ms: opened.log_ms,
    });
    if start.may_begin.recv().is_err() {
        return;
    }
    let with_ring = |entries: u32| {
        let mut ring = io_uring06::IoUring::builder();
        ring.setup_single_issuer()
            .setup_coop_taskrun()
            .setup_submit_all()
            .setup_cqsize(4 * entries);
        monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
            .uring_builder(ring)
            .with_entries(entries)
            .enable_timer()
            .build()
    };
    let made = start.socket_entries.map(|it| patiently(|| with_ring(it)));
    let last = match made {
        Some(Ok(mut runtime)) => {
            runtime.block_on(core(start, opened));
            Report::Gone
        }
        // Somebody else has locked the memory since it was tried.
        Some(Err(error)) if start.shard.config.io == IoMode::Uring => {
            Report::Refused(system("set up the ring of a core")(error))
        }
        other => {
            if let Some(Err(error)) = other {
                let shard = start.shard.shard;
                warn!(shard, %error, "shard {shard}: epoll does the work of its sockets' ring: \
                    {error}");
            }
            let without = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().enable_timer();
            match without.build() {
                Ok(mut runtime) => {
                    runtime.block_on(core(start, opened));
                    Report::Gone
                }
                Err(error) => Report::Refused(system("set up the loop of a core")(error)),
            }
        }
    };
    let _ = reports.send(last);
}

/// Serves on the calling thread until the core is told to leave, or tells why it does not.
async fn core(start: CoreStart, opened: Opened) {
    let (reports, shard) = (start.reports.clone(), start.shard.shard);
    match serve(start, opened) {
        Ok(core) => {
            core.leave.wait().await;
            farewell(&core, shard).await;
        }
        Err(error) => drop(reports.send(Report::Refused(error))),
    }
}

/// Begins the tasks of a core.
fn serve(start: CoreStart, opened: Opened) -> Result<Rc<Core>, ServeError> {
    let wake = opened.engine.disk.wake_fd();
    let wake = wake.map_err(system("watch the disk"))?;
    let lostfound = match start.shard.shard_config.cluster.is_some() {
        true => Some(
            keep_lostfound(&start)
                .map_err(system("start the thread that keeps diverged records"))?,
        ),
        false => None,
    };
    let core = Rc::new(Core::new(&start, opened.engine, lostfound));
    if core.audit.is_open() {
        core.engine.borrow_mut().shard.front_mut().begin_audit();
    }
    if let Some(users) = start.users {
        // Before anybody can connect.
        core.step(Event::Users(users));
    }
    let connection_bound = Rc::new(start.connection_bound.clone());
    monoio::spawn(watch_disk(Rc::clone(&core), wake));
    let native = start.listeners.into_iter().map(|it| (it, Speech::Native));
    let mut listeners: Vec<_> = native.collect();
    let mut host = None;
    if let Some(resp) = start.resp {
        let steps_max = start.shard.config.script_steps_max;
        let scripts = LoggedScripts::new(resp.host.script_texts(), steps_max, start.shard.shard);
        let mut engine = core.engine.borrow_mut();
        let execution = engine.shard.execution_mut();
        execution.serve_scripts(Box::new(scripts));
        let publisher = ScriptPublisher(Arc::clone(resp.host.channels()));
        execution.serve_publisher(Box::new(publisher));
        engine.shard.serve_tracker(Box::new(ShardTracker {
            tracking: Arc::clone(resp.host.tracking()),
            expirations: ShardExpirations::new(resp.host.expirations()),
            waiters: Arc::clone(resp.host.waiters()),
            shard: start.shard.shard,
        }));
        drop(engine);
        let entry = Rc::new(
            resp.host
                .of_core(start.shard.shard, start.shard.schema.clone()),
        );
        let subscribers = Rc::new(Subscribers::default());
        let port = |host| RespPort {
            host,
            subscribers: Rc::clone(&subscribers),
        };
        if let Some(own) = resp.own {
            let by_own = entry.by_own_port(start.shard.shard, listen::port_of(&own));
            listeners.push((own, Speech::Resp(port(Rc::new(by_own)))));
        }
        let entry_port = port(Rc::clone(&entry));
        listeners.push((resp.entry, Speech::Resp(entry_port.clone())));
        monoio::spawn(deliver_mail(Rc::clone(&core), entry_port, resp.messages));
        host = Some(entry);
    }
    let post = Rc::new(Post {
        inbox: start.inbox,
        resp: host,
    });
    monoio::spawn(read_mail(Rc::clone(&core), Rc::clone(&post)));
    if !core.spin.limit().is_zero() {
        let echo = Rc::new(Signal::default());
        monoio::spawn(spin(Rc::clone(&core), Rc::clone(&echo)));
        monoio::spawn(spin_echo(Rc::clone(&core), echo));
    }
    core.turn.set();
    monoio::spawn(turns(Rc::clone(&core), post));
    let ports = Ports {
        listeners,
        tls: start.tls,
        connection_bound,
    };
    let (core_of_ports, reports) = (Rc::clone(&core), start.reports);
    monoio::spawn(async move {
        finish_changes(&core_of_ports).await;
        if core_of_ports
            .engine
            .borrow()
            .shard
            .execution()
            .joint
            .is_stopping()
        {
            return;
        }
        let _ = reports.send(match open_ports(&core_of_ports, ports) {
            Ok(()) => Report::Ready,
            Err(error) => Report::Refused(error),
        });
    });
    Ok(core)
}

/// What a core opens when it serves.
struct Ports {
    listeners: Vec<(std::net::TcpListener, Speech)>,
    tls: Option<Arc<ServedTls>>,
    connection_bound: Rc<ConnectionBound>,
}

/// Waits until the shard has finished what an earlier run decided of changes over several shards.
async fn finish_changes(core: &Core) {
    let mut report_due = Instant::now() + RESUMING_REPORT_EVERY;
    loop {
        let Some(why) = core.engine.borrow().shard.execution().joint.resuming() else {
            break;
        };
        if Instant::now() >= report_due {
            report_due = Instant::now() + RESUMING_REPORT_EVERY;
            let shard = core.shard;
            warn!(
                shard,
                "not ready: changes over several shards are finished first: {why}"
            );
        }
        monoio::time::sleep(RESUMING_PAUSE).await;
    }
    let resumed = core
        .engine
        .borrow()
        .shard
        .execution()
        .joint
        .counters()
        .resumed;
    if resumed > 0 {
        let shard = core.shard;
        print_line!(
            "resumed      shard {shard}: {resumed} changes over several shards are finished"
        );
        info!(
            shard,
            resumed, "shard {shard}: {resumed} changes over several shards finished"
        );
    }
}

/// Takes connections from now on.
fn open_ports(core: &Rc<Core>, ports: Ports) -> Result<(), ServeError> {
    for (listener, speech) in ports.listeners {
        listen::open(&listener)?;
        let listener = TcpListener::from_std(listener);
        let listener = listener.map_err(system("take over a listening socket"))?;
        monoio::spawn(accept(
            Rc::clone(core),
            listener,
            Rc::new(speech),
            ports.tls.clone(),
            Rc::clone(&ports.connection_bound),
        ));
    }
    Ok(())
}

/// Gives replies that are on their way a moment, then ends all connections, links and requests.
async fn farewell(core: &Core, shard: u16) {
    let until = Instant::now() + FAREWELL;
    while Instant::now() < until
        && core
            .connections
            .borrow()
            .iter()
            .flatten()
            .any(|connection| !connection.is_idle())
    {
        monoio::time::sleep(Duration::from_millis(5)).await;
    }
    for connection in core.connections.borrow().iter().flatten() {
        connection.shut_down();
    }
    for link in core.links.borrow().iter() {
        link.shut_down();
    }
    // Nothing that the device may still write into is given back before it is done.
    let drained = core
        .engine
        .borrow_mut()
        .disk
        .drain(&mut Vec::new(), Duration::from_secs(10));
    if let Err(error) = drained {
        warn!(shard, %error, "shard {shard}: {error}");
    }
}

/// Runs the turn whenever something happened, and when the shard's next deadline comes.
///
/// Another thread wakes a task of this one when the loop rests, and not before: while tasks are
/// ready all the time, [`read_mail`] would never run. So each round takes the mail in, too.
async fn turns(core: Rc<Core>, post: Rc<Post>) {
    let mut timer: Option<(u64, Pin<Box<monoio::time::Sleep>>)> = None;
    poll_fn(|context| {
        post.take_all(&core);
        loop {
            let is_due = core.turn.poll(context).is_ready();
            let is_late = timer
                .as_mut()
                .is_some_and(|(_, sleep)| sleep.as_mut().poll(context).is_ready());
            if is_late {
                timer = None;
            }
            if !is_due && !is_late {
                return Poll::<()>::Pending;
            }
            let Some(deadline_us) = core.end_turn() else {
                continue;
            };
            // A timer that comes too early only ends one turn more.
            if timer
                .as_ref()
                .is_none_or(|(armed_us, _)| *armed_us > deadline_us)
            {
                // The timer is of another clock, which stands still while the machine is suspended.
                let sleep = monoio::time::sleep(core.clock.until(deadline_us));
                timer = Some((deadline_us, Box::pin(sleep)));
            }
        }
    })
    .await;
}

/// Wakes when the disk has finished something.
async fn watch_disk(core: Rc<Core>, wake: OwnedFd) {
    // monoio can wait for a descriptor to become readable only as a socket; nothing is read from
    // it.
    let wake = match UnixStream::from_std(std::os::unix::net::UnixStream::from(wake)) {
        Ok(wake) => wake,
        Err(error) => {
            let _ = core.reports.send(Report::Fatal(format!(
                "the disk cannot be watched: {error}"
            )));
            return;
        }
    };
    loop {
        if let Err(error) = wake.readable(false).await {
            let _ = core.reports.send(Report::Fatal(format!(
                "fd {} cannot be watched: {error}",
                wake.as_raw_fd()
            )));
            return;
        }
        core.engine.borrow_mut().disk.clear_wake();
        core.reap();
    }
}

/// What other threads send to a core.
struct Post {
    inbox: flume::Receiver<Letter>,
    resp: Option<Rc<RespHost>>,
}

impl Post {
    /// Takes in what is there.
    fn take_all(&self, core: &Rc<Core>) {
        let most = self.inbox.len();
        for letter in self.inbox.try_iter().take(most) {
            self.take(core, letter);
        }
    }

    fn take(&self, core: &Rc<Core>, letter: Letter) {
        match letter {
            Letter::Mail(mail) => {
                core.step(Event::Mail(mail));
            }
            Letter::Spare(outcome) => {
                let now = core.now();
                let answer = core.engine.borrow_mut().take_spare(now, outcome);
                if let Some(text) = answer {
                    warn!(shard = core.shard, "{text}");
                }
                core.turn.set();
            }
            Letter::Plan(plan) => {
                core.step(Event::Plan(plan));
            }
            Letter::Schema(schema) => {
                if let Some(host) = &self.resp {
                    host.serve_schema(Arc::clone(&schema));
                }
                core.step(Event::Schema(schema));
            }
            Letter::Users(users) => {
                core.step(Event::Users(users));
            }
            Letter::Link(proven) => add_link(core, *proven),
            Letter::TailKept(partition, link) => {
                core.step(Event::DivergedKept { partition, link });
            }
            Letter::Stop => {
                core.step(Event::Stop);
            }
            Letter::Leave => {
                core.is_leaving.set(true);
                core.leave.set();
            }
        }
    }
}

/// Takes in what other threads send.
async fn read_mail(core: Rc<Core>, post: Rc<Post>) {
    while let Ok(first) = post.inbox.recv_async().await {
        post.take(&core, first);
        post.take_all(&core);
        core.watch(core.now());
    }
}

fn add_link(core: &Rc<Core>, proven: ProvenLink) {
    if core.is_leaving.get() {
        return;
    }
    match serve_link(core, proven) {
        Ok(link) => core.links.borrow_mut().push(link),
        Err(error) => {
            let shard = core.shard;
            warn!(shard, %error, "shard {shard}: a link is not served: {error}");
        }
    }
}

/// What is spoken on a port.
enum Speech {
    Native,
    Resp(RespPort),
}

impl Speech {
    /// The answer to a connection that is turned away.
    fn refusal(&self, why: &str) -> Vec<u8> {
        match self {
            Speech::Native => {
                let mut answer = Vec::new();
                write_error(&mut answer, None, Status::Busy, RETRY_AFTER_MS, 0, &why);
                answer
            }
            Speech::Resp(_) => format!("-ERR max number of clients reached: {why}\r\n").into(),
        }
    }

    /// Begins to serve a connection, whose handshake is finished if it has TLS.
    fn serve(&self, core: &Rc<Core>, stream: TcpStream, secured: Option<Secured>) {
        let now = core.now();
        let session = {
            let shard = &mut core.engine.borrow_mut().shard;
            match self {
                Speech::Native => shard.front_mut().open_session(now),
                Speech::Resp(port) => shard
                    .front_mut()
                    .open_session_translated(now, port.host.idle_us_max()),
            }
        };
        let transport = transport_of(&stream, secured.as_ref().map(|it| &it.peer));
        let greeted = core.greet(session, transport);
        let addresses = match self {
            Speech::Native => None,
            Speech::Resp(port) => Some((port, stream.peer_addr(), stream.local_addr())),
        };
        let peer = secured.as_ref().map(|it| it.peer.clone());
        let (connection, reader, writer) = Connection::new(session, stream, peer);
        let connection = Rc::new(connection);
        {
            let mut connections = core.connections.borrow_mut();
            if connections.len() <= session.index() {
                connections.resize_with(session.index() + 1, || None);
            }
            connections[session.index()] = Some(Rc::clone(&connection));
        }
        let halves = halves(core, &connection, reader, writer, secured);
        match addresses {
            None => serve_connection(core, connection, halves),
            Some((port, peer, local)) => {
                let text_of = |address: io::Result<SocketAddr>| {
                    address.map_or_else(|_| String::new(), |address| address.to_string())
                };
                let addresses = (&text_of(peer)[..], &text_of(local)[..]);
                serve_resp(core, port, connection, (addresses, greeted), halves);
            }
        }
    }
}

/// What a connection proves by itself; `secured` is what its handshake has proved.
fn transport_of(stream: &TcpStream, secured: Option<&Peer>) -> Transport {
    Transport {
        is_encrypted: secured.is_some(),
        channel_binding: secured.map(|it| it.channel_binding),
        certificate_name: secured.and_then(|it| it.certificate_name.clone()),
        peer: stream.peer_addr().ok().map(|address| address.ip()),
    }
}

/// Takes connections in. One endless task per listener: an accept that is dropped loses its socket.
async fn accept(
    core: Rc<Core>,
    listener: TcpListener,
    speech: Rc<Speech>,
    tls: Option<Arc<ServedTls>>,
    bound: Rc<ConnectionBound>,
) {
    // To a client of TLS a text before the handshake is no answer.
    let refusal = |why: &str| match &tls {
        None => speech.refusal(why),
        Some(_) => Vec::new(),
    };
    let mut descriptors = Descriptors::new();
    let no_descriptor = "the process has no file descriptor left (nofile)";
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if let Some(why) = descriptors.refusal(stream.as_raw_fd()) {
                    core.refuse_connections(1, &why);
                    // At once: while it lingered it would hold what is left for segments.
                    refuse_accepted(stream, &refusal(&why));
                    continue;
                }
                // Counted before it is looked at, so that no two cores take the last place.
                let open = core.open_connections.fetch_add(1, Ordering::Relaxed);
                if core.is_leaving.get() || open >= bound.max {
                    core.open_connections.fetch_sub(1, Ordering::Relaxed);
                    core.engine.borrow_mut().traffic.connections_refused += 1;
                    core.turn.set();
                    if !core.is_leaving.get() && core.turned_away.get() < TURNED_AWAY_MAX {
                        core.turned_away.set(core.turned_away.get() + 1);
                        let ConnectionBound { max, reason } = &*bound;
                        let why = format!(
                            "at most {max} connections are accepted ({reason}), and so many are \
                             open"
                        );
                        let refusal_bytes = refusal(&why);
                        monoio::spawn(turn_away(Rc::clone(&core), stream, refusal_bytes));
                    }
                    continue;
                }
                let Some(tls) = &tls else {
                    speech.serve(&core, stream, None);
                    continue;
                };
                if core.handshakes.begin().is_some() {
                    let (core, speech) = (Rc::clone(&core), Rc::clone(&speech));
                    monoio::spawn(serve_secured(core, stream, peer, speech, Arc::clone(tls)));
                } else {
                    core.open_connections.fetch_sub(1, Ordering::Relaxed);
                    core.refuse_handshake(&peer.ip().to_string());
                }
            }
            Err(error) if open_files::is_exhausted(&error) => {
                let answer = refusal(no_descriptor);
                let refused = descriptors.refuse_waiting(listener.as_raw_fd(), &answer);
                core.refuse_connections(refused, no_descriptor);
                monoio::time::sleep(ACCEPT_PAUSE).await;
            }
            Err(_) => monoio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Shakes hands with a connection that has a place for that, and begins to serve it.
async fn serve_secured(
    core: Rc<Core>,
    stream: TcpStream,
    peer: SocketAddr,
    speech: Rc<Speech>,
    tls: Arc<ServedTls>,
) {
    let shaken = shake_hands(&core, stream, tls.config()).await;
    let peer = peer.ip().to_string();
    match shaken {
        Ok((stream, mut secured)) if !core.is_leaving.get() => {
            core.handshake_ended(&peer, None);
            if matches!(*speech, Speech::Resp(..)) {
                secured.tls.carry_secrets();
            }
            speech.serve(&core, stream, Some(secured));
        }
        other => {
            core.open_connections.fetch_sub(1, Ordering::Relaxed);
            if let Err(error) = other {
                core.handshake_ended(&peer, Some(&error.to_string()));
            }
        }
    }
}

/// Tells a connection why it is closed. What its client has sent is read first: a socket that is
/// closed over unread bytes may take back what was written to it.
async fn turn_away(core: Rc<Core>, mut stream: TcpStream, answer: Vec<u8>) {
    let answering = async {
        if stream.write_all(answer).await.0.is_err() || stream.shutdown().await.is_err() {
            return;
        }
        let mut passed_over = vec![0; 4096];
        loop {
            let (result, buffer) = stream.read(passed_over).await;
            passed_over = buffer;
            if !matches!(result, Ok(1..)) {
                return;
            }
        }
    };
    let _ = monoio::time::timeout(TURNED_AWAY, answering).await;
    core.turned_away.set(core.turned_away.get() - 1);
}

/// Watches for work for a while before the loop sleeps: a sleep and a wake cost more than a short
/// wait. Two tasks wake each other, because one that wakes itself would go before all others. Each
/// round enters the kernel by giving way to other threads, which lets completions arrive. Where
/// that shows that somebody else wants the CPU the loop sleeps at once.
async fn spin(core: Rc<Core>, echo: Rc<Signal>) {
    loop {
        core.spins.wait().await;
        let mut is_alone = true;
        while is_alone && core.read_clock().us < core.spin_until_us.get() {
            is_alone = core.spin.give_way();
            if core.reap() {
                core.watch_on(core.now());
            }
            if is_alone {
                echo.set();
                core.spins.wait().await;
            }
        }
        if is_alone {
            core.spin.was_alone();
        }
    }
}

/// The other half of [`spin`].
async fn spin_echo(core: Rc<Core>, echo: Rc<Signal>) {
    loop {
        echo.wait().await;
        core.spins.set();
    }
}
