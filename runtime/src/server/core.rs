//! One core: the loop around one shard.
//!
//! Tasks hand what happened to the shard as it comes and mark the turn as due. The turn task is
//! woken by them, so it runs after everything that was ready: it lets the shard end its turn,
//! submits the disk requests with one system call, wakes the writers of connections that have
//! something to send, and delivers mail. No borrow of the core is ever held across an await.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use monoio::io::{AsyncReadRent, AsyncWriteRent, AsyncWriteRentExt};
use monoio::net::{TcpListener, TcpStream, UnixStream};
use penstock_net::pieces::Pieces;
use penstock_net::reply::write_error;
use penstock_net::status::Status;
use penstock_shard::linked::LinkOutbox;
use penstock_shard::replication::{LinkId, PartitionId};
use penstock_shard::{Event, Now, SessionId};
use tracing::warn;

use crate::cluster::forks::note_forks;
use crate::cluster::lostfound::Found;
use crate::cluster::{ProvenLink, lostfound};
use crate::config::IoMode;
use crate::disk::arena::ArenaBlock;
use crate::disk::patiently;
use crate::event_loop::engine::{Engine, Turn};
use crate::event_loop::spin::Spin;
use crate::startup::node::Opened;
use crate::system::lines::Lately;
use crate::system::open_files;
use crate::system::wall::WallClock;

use super::connection::{Connection, serve_connection};
use super::descriptors::{Descriptors, refuse_accepted};
use super::link::{Link, serve_link};
use super::{CoreStart, Letter, Report, system};

/// How long replies may take to leave after the log was sealed.
const FAREWELL: Duration = Duration::from_secs(2);
/// Between two attempts to accept when the system cannot.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a connection that is turned away may take to read why.
const TURNED_AWAY: Duration = Duration::from_secs(1);
/// Connections of one core that are told so at the same time; others are closed at once.
const TURNED_AWAY_MAX: u32 = 64;
/// With more reads in one turn the loop is busy: it hardly sleeps, and watching would only split
/// its batches.
const WATCHED_READS_MAX: u32 = 8;

/// Runs a core on the calling thread until it is told to leave.
pub(crate) fn run(start: CoreStart) {
    if let Some(core) = start.shard.core {
        core_affinity::set_for_current(core);
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
    let _ = reports.send(Report::Opened {
        shard: start.shard.shard,
        text: std::mem::take(&mut opened.text),
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
                warn!(shard, %error, "shard {shard}: epoll does the work of its sockets' ring: {error}");
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

/// What the tasks of one core share.
pub(crate) struct Core {
    engine: RefCell<Engine>,
    /// By the index of their session.
    connections: RefCell<Vec<Option<Rc<Connection>>>>,
    links: RefCell<Vec<Rc<Link>>>,
    /// To the thread that keeps what has diverged, if this is a node of a cluster.
    lostfound: Option<flume::Sender<Found>>,
    /// What was said of links.
    lately: RefCell<Lately>,
    shard: u16,
    turn: Signal,
    /// How long to watch before sleeping.
    spin: Spin,
    spins: Signal,
    spin_until_us: Cell<u64>,
    /// Reads since the last turn ended.
    reads_in_turn: Cell<u32>,
    now: Cell<Now>,
    is_now_stale: Cell<bool>,
    clock: Instant,
    wall: WallClock,
    open_connections: Arc<AtomicU32>,
    /// Connections that are told why they are turned away.
    turned_away: Cell<u32>,
    is_leaving: Cell<bool>,
    leave: Signal,
    reports: flume::Sender<Report>,
    outboxes: Vec<flume::Sender<Letter>>,
}

/// Something that one task waits for and others announce.
#[derive(Default)]
pub(crate) struct Signal {
    is_set: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Signal {
    #[inline]
    pub(crate) fn set(&self) {
        if !self.is_set.replace(true)
            && let Some(waker) = self.waker.borrow().as_ref()
        {
            waker.wake_by_ref();
        }
    }

    /// Takes the announcement, or arranges to be woken by the next.
    #[inline]
    pub(crate) fn poll(&self, context: &mut std::task::Context<'_>) -> Poll<()> {
        if self.is_set.take() {
            return Poll::Ready(());
        }
        let mut waker = self.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(context.waker()))
        {
            *waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    pub(crate) async fn wait(&self) {
        poll_fn(|context| self.poll(context)).await;
    }
}

impl Core {
    /// The time of this turn: read once after each turn.
    #[inline]
    pub(crate) fn now(&self) -> Now {
        if self.is_now_stale.take() {
            self.now.set(self.read_clock());
        }
        self.now.get()
    }

    fn read_clock(&self) -> Now {
        let us = u64::try_from(self.clock.elapsed().as_micros()).expect("half a million years");
        Now {
            us,
            unix_ms: self.wall.at(us),
        }
    }

    /// Hands an event to the shard; returns what that returns.
    #[inline]
    pub(crate) fn step(&self, event: Event<'_, ArenaBlock>) -> usize {
        let now = self.now();
        let consumed = self.engine.borrow_mut().step(now, event);
        self.turn.set();
        consumed
    }

    pub(crate) fn take_pieces(&self, session: SessionId, into: &mut Pieces) {
        let now = self.now();
        self.engine
            .borrow_mut()
            .shard
            .take_pieces(now, session, into);
    }

    pub(crate) fn progressed(&self, session: SessionId, bytes: usize) {
        let now = self.now();
        let shard = &mut self.engine.borrow_mut().shard;
        shard.progressed(now, session, bytes);
    }

    pub(crate) fn sent(&self, session: SessionId, bytes: usize) {
        let engine = &mut *self.engine.borrow_mut();
        engine.sent_bytes += bytes as u64;
        engine.shard.sent(session);
        self.turn.set();
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.engine.borrow_mut().received_bytes += bytes as u64;
        self.reads_in_turn.set(self.reads_in_turn.get() + 1);
    }

    /// Keeps the loop awake for a while: what was answered is often asked again at once.
    fn watch(&self, now: Now) {
        if self.spin.may_begin() {
            self.watch_on(now);
            self.spins.set();
        }
    }

    fn watch_on(&self, now: Now) {
        let limit_us = u64::try_from(self.spin.limit().as_micros()).expect("10 ms at most");
        self.spin_until_us.set(now.us + limit_us);
    }

    pub(crate) fn is_finished(&self, session: SessionId) -> bool {
        self.engine.borrow().shard.is_finished(session)
    }

    pub(crate) fn is_paused(&self, session: SessionId) -> bool {
        self.engine.borrow().shard.is_paused(session)
    }

    /// So many connections were turned away for want of descriptors, which is told once in a while.
    fn refuse_connections(&self, refused: u64, why: &str) {
        if refused == 0 {
            return;
        }
        self.engine.borrow_mut().connections_refused += refused;
        self.turn.set();
        if let Some(text) = self.lately.borrow_mut().line("nofile", why, Instant::now()) {
            warn!(
                shard = self.shard,
                refused,
                "shard {}: connections are refused: {text}; raise LimitNOFILE in the systemd unit, or ulimit -n",
                self.shard
            );
        }
    }

    /// A connection has ended on both sides.
    pub(crate) fn remove(&self, session: SessionId) {
        self.connections.borrow_mut()[session.index()] = None;
        self.open_connections.fetch_sub(1, Ordering::Relaxed);
        self.step(Event::Closed { session });
    }

    pub(crate) fn may_read_link(&self, link: LinkId) -> bool {
        self.engine.borrow_mut().shard.may_read_link(link)
    }

    pub(crate) fn take_link_output(&self, link: LinkId, into: &mut Vec<u8>) {
        self.engine.borrow_mut().shard.take_link_output(link, into);
    }

    /// Another turn is due.
    pub(crate) fn take_turn(&self) {
        self.turn.set();
    }

    /// A link has ended on both sides.
    pub(crate) fn remove_link(&self, link: LinkId) {
        self.links.borrow_mut().retain(|it| it.link != link);
        self.step(Event::LinkDown { link });
    }

    /// Does what the shard wants done about its links.
    fn serve_links(&self, outbox: &mut LinkOutbox) {
        for text in outbox.told.drain(..) {
            // A link that is refused is made again, five times in a second.
            let mut lately = self.lately.borrow_mut();
            if let Some(text) = lately.line(&text, &text, Instant::now()) {
                warn!(shard = self.shard, "shard {}: {text}", self.shard);
            }
        }
        let links = self.links.borrow();
        for link in links.iter() {
            link.may_read.set();
        }
        let find = |id: LinkId| links.iter().find(|link| link.link == id);
        for id in outbox.sendable.drain(..) {
            find(id).inspect(|link| link.has_output.set());
        }
        for (id, last_words) in outbox.ended.drain(..) {
            if let Some(link) = find(id) {
                link.end(last_words);
            }
        }
        if let Some(lostfound) = &self.lostfound {
            let mut records = Vec::new();
            for (_, record) in outbox.kept.drain(..) {
                records.extend_from_slice(&record);
            }
            if !records.is_empty() {
                let _ = lostfound.send(Found::Records(records));
            }
            for (partition, link) in outbox.to_sync.drain(..) {
                let _ = lostfound.send(Found::Sync(partition, link));
            }
        }
    }

    fn connection(&self, session: SessionId) -> Option<Rc<Connection>> {
        let connections = self.connections.borrow();
        connections
            .get(session.index())?
            .as_ref()
            .filter(|connection| connection.session == session)
            .cloned()
    }

    /// Gives the shard what the disk has finished. Without a system call.
    fn reap(&self) -> bool {
        let now = self.now();
        let is_any = self.engine.borrow_mut().reap(now);
        if is_any {
            self.turn.set();
        }
        is_any
    }

    /// Ends the turn; returns when the next must come at the latest.
    fn end_turn(&self) -> Option<u64> {
        let now = self.read_clock();
        self.now.set(now);
        self.is_now_stale.set(true);
        if (1..=WATCHED_READS_MAX).contains(&self.reads_in_turn.take()) {
            self.watch(now);
        }
        let engine = &mut *self.engine.borrow_mut();
        match engine.end_turn(now) {
            Turn::Ended {
                is_due_again,
                has_stopped,
            } => {
                if is_due_again {
                    self.turn.set();
                }
                if has_stopped {
                    let _ = self.reports.send(Report::Stopped);
                }
            }
            Turn::Fatal(text) => {
                let _ = self.reports.send(Report::Fatal(text));
                return None;
            }
            Turn::Damaged(text) => {
                let _ = self.reports.send(Report::Damaged(text));
                return None;
            }
            Turn::Dead => return None,
        }
        let is_linked = self.lostfound.is_some();
        let outbox = &mut engine.outbox;
        for session in outbox.sendable.drain(..) {
            if let Some(connection) = self.connection(session) {
                connection.has_output.set();
            }
        }
        for session in outbox.resume.drain(..) {
            if let Some(connection) = self.connection(session) {
                connection.may_resume.set();
            }
        }
        for session in std::mem::take(&mut outbox.looks) {
            if let Some(connection) = self.connection(session) {
                let bytes = connection.unacknowledged_bytes();
                let told = Event::Unacknowledged { session, bytes };
                engine.shard.step(now, told, outbox);
            }
        }
        for (session, _) in outbox.close.drain(..) {
            if let Some(connection) = self.connection(session) {
                connection.shut_down();
            }
        }
        for (to, mail) in outbox.mail.drain(..) {
            // The shards' credits bound what is in a mailbox; a core that is gone needs no mail.
            let _ = self.outboxes[usize::from(to)].send(Letter::Mail(mail));
        }
        if is_linked {
            self.serve_links(&mut outbox.links);
        }
        let publish_us = engine.publish_deadline_us();
        let deadline_us = engine.shard.deadline_us(now);
        Some(deadline_us.map_or(publish_us, |it| it.min(publish_us)))
    }
}

async fn core(start: CoreStart, opened: Opened) {
    let wake = match opened.engine.disk.wake_fd() {
        Ok(wake) => wake,
        Err(error) => {
            let _ = start
                .reports
                .send(Report::Refused(system("watch the disk")(error)));
            return;
        }
    };
    let config = &start.shard.config;
    let lostfound = match start.shard.shard_config.cluster.is_some() {
        true => match keep_lostfound(&start) {
            Ok(sender) => Some(sender),
            Err(error) => {
                let refused = system("start the thread that keeps diverged records")(error);
                let _ = start.reports.send(Report::Refused(refused));
                return;
            }
        },
        false => None,
    };
    let core = Rc::new(Core {
        engine: RefCell::new(opened.engine),
        connections: RefCell::default(),
        links: RefCell::default(),
        lostfound,
        lately: RefCell::default(),
        shard: start.shard.shard,
        turn: Signal::default(),
        spin: Spin::new(Duration::from_micros(config.spin_us.into())),
        spins: Signal::default(),
        spin_until_us: Cell::new(0),
        reads_in_turn: Cell::new(0),
        now: Cell::new(Now {
            us: 0,
            unix_ms: start.shard.unix_ms_at_start,
        }),
        is_now_stale: Cell::new(true),
        clock: start.shard.clock,
        wall: WallClock::new(start.shard.unix_ms_at_start),
        open_connections: Arc::clone(&start.connections),
        turned_away: Cell::new(0),
        is_leaving: Cell::new(false),
        leave: Signal::default(),
        reports: start.reports.clone(),
        outboxes: start.outboxes.clone(),
    });
    let connections_max = config.connections_max;

    monoio::spawn(watch_disk(Rc::clone(&core), wake));
    monoio::spawn(read_mail(Rc::clone(&core), start.inbox.clone()));
    if !core.spin.limit().is_zero() {
        let echo = Rc::new(Signal::default());
        monoio::spawn(spin(Rc::clone(&core), Rc::clone(&echo)));
        monoio::spawn(spin_echo(Rc::clone(&core), echo));
    }
    for listener in start.listeners {
        match TcpListener::from_std(listener) {
            Ok(listener) => {
                monoio::spawn(accept(Rc::clone(&core), listener, connections_max));
            }
            Err(error) => {
                let _ =
                    start
                        .reports
                        .send(Report::Refused(system("take over a listening socket")(
                            error,
                        )));
                return;
            }
        }
    }
    core.turn.set();
    monoio::spawn(turns(Rc::clone(&core)));
    let _ = start.reports.send(Report::Ready);
    core.leave.wait().await;

    // Replies that are still on their way get a moment.
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
        let shard = start.shard.shard;
        warn!(shard, %error, "shard {shard}: {error}");
    }
}

/// Starts the thread that keeps what has diverged on this shard.
fn keep_lostfound(start: &CoreStart) -> std::io::Result<flume::Sender<Found>> {
    let (sender, found) = flume::unbounded();
    let data = start.shard.config.data.clone();
    let shard = start.shard.shard;
    let which = (start.shard.shard_config.hello.incarnation, shard);
    let inbox = start.outboxes[usize::from(shard)].clone();
    let reports = start.reports.clone();
    std::thread::Builder::new()
        .name("penstock-found".into())
        .spawn(move || {
            let kept_all = |partitions: &BTreeSet<PartitionId>| {
                if let Err(error) = note_forks(&data, which, partitions) {
                    warn!(
                        shard,
                        %error,
                        "shard {shard}: what was lost may not be told in units any more: {error}"
                    );
                }
            };
            let synced = |partition, link| drop(inbox.send(Letter::TailKept(partition, link)));
            lostfound::keep(&data, which, &found, kept_all, synced, |error| {
                let text = format!("shard {shard}: lostfound cannot be written: {error}");
                drop(reports.send(Report::Fatal(text)));
            });
        })?;
    Ok(sender)
}

/// Runs the turn whenever something happened, and when the shard's next deadline comes.
async fn turns(core: Rc<Core>) {
    let mut timer: Option<(u64, Pin<Box<monoio::time::Sleep>>)> = None;
    poll_fn(|context| {
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
                let sleep = monoio::time::sleep_until(
                    (core.clock + Duration::from_micros(deadline_us)).into(),
                );
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

/// Takes in what other threads send.
async fn read_mail(core: Rc<Core>, inbox: flume::Receiver<Letter>) {
    while let Ok(first) = inbox.recv_async().await {
        let mut letter = Some(first);
        while let Some(next) = letter {
            match next {
                Letter::Mail(mail) => {
                    core.step(Event::Mail(mail));
                }
                Letter::Spare(outcome) => {
                    let now = core.now();
                    let told = core.engine.borrow_mut().take_spare(now, outcome);
                    if let Some(text) = told {
                        warn!(shard = core.shard, "{text}");
                    }
                    core.turn.set();
                }
                Letter::Plan(plan) => {
                    core.step(Event::Plan(plan));
                }
                Letter::Link(proven) => add_link(&core, *proven),
                Letter::TailKept(partition, link) => {
                    core.step(Event::TailKept { partition, link });
                }
                Letter::Stop => {
                    core.step(Event::Stop);
                }
                Letter::Leave => {
                    core.is_leaving.set(true);
                    core.leave.set();
                }
            }
            letter = inbox.try_recv().ok();
        }
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

/// Takes connections in. One endless task per listener: an accept that is dropped loses its socket.
async fn accept(core: Rc<Core>, listener: TcpListener, connections_max: u32) {
    let mut descriptors = Descriptors::new();
    let no_descriptor = "the process has no file descriptor left (nofile)";
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Some(why) = descriptors.refusal(stream.as_raw_fd()) {
                    core.refuse_connections(1, &why);
                    // At once: while it lingered it would hold what is left for segments.
                    let mut answer = Vec::new();
                    write_error(&mut answer, None, Status::Busy, 0, 0, &why);
                    refuse_accepted(stream, &answer);
                    continue;
                }
                // Counted before it is looked at, so that no two cores take the last place.
                let open = core.open_connections.fetch_add(1, Ordering::Relaxed);
                if core.is_leaving.get() || open >= connections_max {
                    core.open_connections.fetch_sub(1, Ordering::Relaxed);
                    core.engine.borrow_mut().connections_refused += 1;
                    core.turn.set();
                    if !core.is_leaving.get() && core.turned_away.get() < TURNED_AWAY_MAX {
                        core.turned_away.set(core.turned_away.get() + 1);
                        let why = format!(
                            "at most {connections_max} connections are accepted (connections_max), and so many are open"
                        );
                        monoio::spawn(turn_away(Rc::clone(&core), stream, why));
                    }
                    continue;
                }
                let now = core.now();
                let session = core.engine.borrow_mut().shard.open_session(now);
                let (connection, reader, writer) = Connection::new(session, stream);
                let connection = Rc::new(connection);
                {
                    let mut connections = core.connections.borrow_mut();
                    if connections.len() <= session.index() {
                        connections.resize_with(session.index() + 1, || None);
                    }
                    connections[session.index()] = Some(Rc::clone(&connection));
                }
                serve_connection(&core, connection, reader, writer);
            }
            Err(error) if open_files::is_exhausted(&error) => {
                let mut answer = Vec::new();
                write_error(&mut answer, None, Status::Busy, 0, 0, &no_descriptor);
                let refused = descriptors.refuse_waiting(listener.as_raw_fd(), &answer);
                core.refuse_connections(refused, no_descriptor);
                monoio::time::sleep(ACCEPT_PAUSE).await;
            }
            Err(_) => monoio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Tells a connection why it is closed. What its client has sent is read first: a socket that is
/// closed over unread bytes may take back what was written to it.
async fn turn_away(core: Rc<Core>, mut stream: TcpStream, why: String) {
    let mut frame = Vec::new();
    write_error(&mut frame, None, Status::Busy, 0, 0, &why);
    let told = async {
        if stream.write_all(frame).await.0.is_err() || stream.shutdown().await.is_err() {
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
    let _ = monoio::time::timeout(TURNED_AWAY, told).await;
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
