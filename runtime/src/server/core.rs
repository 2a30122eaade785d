//! One core: the loop around one shard.
//!
//! Tasks hand what happened to the shard as it comes and mark the turn as due. The turn task is
//! woken by them, so it runs after everything that was ready: it lets the shard end its turn,
//! submits the disk requests with one system call, wakes the writers of connections that have
//! something to send, and delivers mail. No borrow of the core is ever held across an await.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use monoio::net::{TcpListener, UnixStream};
use penstock_shard::{Event, Now, Outbox, SessionId, Shard};
use penstock_storage::io::Completion;

use crate::block::{Arena, ArenaBlock};
use crate::disk::Disk;
use crate::spare::{SpareHandle, SpareOutcome};

use super::connection::{Connection, serve_connection};
use super::stats::{Sample, Stats};
use super::{CoreStart, Letter, Report, ServeError, open};

/// Sockets, timers and tasks of one core.
const RING_ENTRIES: u32 = 4096;
/// How long replies may take to leave after the log was sealed.
const FAREWELL: Duration = Duration::from_secs(2);
/// With more reads in one turn the loop is busy: it hardly sleeps, and watching would only split
/// its batches.
const WATCHED_READS_MAX: u32 = 8;
/// How often a core publishes its numbers while it is busy.
const PUBLISH_US: u64 = 10_000;

/// Runs a core on the calling thread until it is told to leave.
pub(crate) fn run(start: CoreStart) {
    if let Some(core) = start.core {
        core_affinity::set_for_current(core);
    }
    let reports = start.reports.clone();
    let opened = match open::open(&start) {
        Ok(opened) => opened,
        Err(error) => {
            let _ = reports.send(Report::Refused(error));
            return;
        }
    };
    let built = if start.has_uring {
        let mut ring = io_uring06::IoUring::builder();
        ring.setup_single_issuer()
            .setup_coop_taskrun()
            .setup_submit_all()
            .setup_cqsize(4 * RING_ENTRIES);
        monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
            .uring_builder(ring)
            .with_entries(RING_ENTRIES)
            .enable_timer()
            .build()
            .map(|mut runtime| runtime.block_on(core(start, opened)))
    } else {
        monoio::RuntimeBuilder::<monoio::LegacyDriver>::new()
            .enable_timer()
            .build()
            .map(|mut runtime| runtime.block_on(core(start, opened)))
    };
    let last = match built {
        Ok(()) => Report::Gone,
        Err(error) => Report::Refused(ServeError::System {
            action: "set up the ring of a core",
            error,
        }),
    };
    let _ = reports.send(last);
}

/// What the tasks of one core share.
pub(crate) struct Core {
    inner: RefCell<Inner>,
    /// By the index of their session.
    connections: RefCell<Vec<Option<Rc<Connection>>>>,
    turn: Signal,
    spin: Signal,
    spin_until_us: Cell<u64>,
    /// Reads since the last turn ended.
    reads_in_turn: Cell<u32>,
    now: Cell<Now>,
    is_now_stale: Cell<bool>,
    clock: Instant,
    unix_ms_at_start: u64,
    open_connections: Cell<u32>,
    spin_us: u64,
    is_leaving: Cell<bool>,
    leave: Signal,
    received_bytes: Cell<u64>,
    sent_bytes: Cell<u64>,
    shard_number: u16,
    stats: Arc<Stats>,
    reports: flume::Sender<Report>,
    outboxes: Vec<flume::Sender<Letter>>,
    segment_bytes: u64,
    spares: SpareHandle,
    info_head: String,
}

struct Inner {
    shard: Shard<Arena>,
    disk: Disk,
    outbox: Outbox<ArenaBlock>,
    completions: Vec<Completion<ArenaBlock>>,
    turns: u64,
    published_us: u64,
    is_stopped: bool,
    is_dead: bool,
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
            unix_ms: self.unix_ms_at_start + us / 1000,
        }
    }

    /// Hands an event to the shard; returns what [`Shard::step`] returns.
    #[inline]
    pub(crate) fn step(&self, event: Event<'_, ArenaBlock>) -> usize {
        let now = self.now();
        let inner = &mut *self.inner.borrow_mut();
        let consumed = inner.shard.step(now, event, &mut inner.outbox);
        self.turn.set();
        consumed
    }

    pub(crate) fn take_output(&self, session: SessionId, into: &mut Vec<u8>) {
        let now = self.now();
        self.inner
            .borrow_mut()
            .shard
            .take_output(now, session, into);
    }

    pub(crate) fn progressed(&self, session: SessionId) {
        let now = self.now();
        self.inner.borrow_mut().shard.progressed(now, session);
    }

    pub(crate) fn sent(&self, session: SessionId, bytes: usize) {
        self.sent_bytes.set(self.sent_bytes.get() + bytes as u64);
        self.inner.borrow_mut().shard.sent(session);
        self.turn.set();
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received_bytes
            .set(self.received_bytes.get() + bytes as u64);
        self.reads_in_turn.set(self.reads_in_turn.get() + 1);
    }

    /// Keeps the loop awake for a while: what was answered is often asked again at once.
    fn watch(&self, now: Now) {
        if self.spin_us > 0 {
            self.spin_until_us.set(now.us + self.spin_us);
            self.spin.set();
        }
    }

    pub(crate) fn is_finished(&self, session: SessionId) -> bool {
        self.inner.borrow().shard.is_finished(session)
    }

    pub(crate) fn is_paused(&self, session: SessionId) -> bool {
        self.inner.borrow().shard.is_paused(session)
    }

    /// A connection has ended on both sides.
    pub(crate) fn remove(&self, session: SessionId) {
        self.connections.borrow_mut()[session.index()] = None;
        self.open_connections.set(self.open_connections.get() - 1);
        self.step(Event::Closed { session });
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
        let inner = &mut *self.inner.borrow_mut();
        if inner.disk.reap(&mut inner.completions) == 0 {
            return false;
        }
        for completion in inner.completions.drain(..) {
            inner
                .shard
                .step(now, Event::Completed(completion), &mut inner.outbox);
        }
        self.turn.set();
        true
    }

    /// Ends the turn; returns when the next must come at the latest.
    fn end_turn(&self) -> Option<u64> {
        let now = self.read_clock();
        self.now.set(now);
        self.is_now_stale.set(true);
        if (1..=WATCHED_READS_MAX).contains(&self.reads_in_turn.take()) {
            self.watch(now);
        }
        let inner = &mut *self.inner.borrow_mut();
        if inner.is_dead {
            return None;
        }
        inner.turns += 1;
        inner.disk.reap(&mut inner.completions);
        for completion in inner.completions.drain(..) {
            inner
                .shard
                .step(now, Event::Completed(completion), &mut inner.outbox);
        }
        inner.shard.step(now, Event::TurnEnds, &mut inner.outbox);
        let Inner {
            shard,
            disk,
            outbox,
            ..
        } = inner;
        if let Some(fatal) = outbox.fatal {
            inner.is_dead = true;
            let _ = self.reports.send(Report::Fatal(fatal.to_string()));
            return None;
        }
        for io in outbox.io.drain(..) {
            disk.submit(io);
        }
        if let Err(error) = disk.flush() {
            inner.is_dead = true;
            let _ = self.reports.send(Report::Fatal(format!(
                "shard {}: the disk engine is lost: {error}",
                self.shard_number
            )));
            return None;
        }
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
        for (session, _) in outbox.close.drain(..) {
            if let Some(connection) = self.connection(session) {
                connection.shut_down();
            }
        }
        for (to, mail) in outbox.mail.drain(..) {
            // The shards' credits bound what is in a mailbox; a core that is gone needs no mail.
            let _ = self.outboxes[usize::from(to)].send(Letter::Mail(mail));
        }
        for _ in 0..std::mem::take(&mut outbox.spares) {
            let inbox = self.outboxes[usize::from(self.shard_number)].clone();
            self.spares.request(
                self.segment_bytes,
                Box::new(move |outcome| drop(inbox.send(Letter::Spare(outcome)))),
            );
        }
        let is_stopped = outbox.is_stopped;
        let asked = std::mem::take(&mut outbox.info);
        if now.us >= inner.published_us + PUBLISH_US || !asked.is_empty() || is_stopped {
            inner.published_us = now.us;
            let sample = Sample {
                shard: shard.counters(),
                log: shard.store().log().counters(),
                disk: disk.counters(),
                usage: shard.usage(),
                turns: inner.turns,
                received_bytes: self.received_bytes.get(),
                sent_bytes: self.sent_bytes.get(),
            };
            self.stats.publish(self.shard_number, &sample);
        }
        for (session, request_id) in asked {
            let head = format!("{},\"uptime_ms\":{}", self.info_head, now.us / 1000);
            let text = self.stats.json(&head);
            shard.step(
                now,
                Event::Info {
                    session,
                    request_id,
                    text: &text,
                },
                outbox,
            );
            // Told in the next turn.
            self.turn.set();
        }
        if is_stopped && !inner.is_stopped {
            inner.is_stopped = true;
            let _ = self.reports.send(Report::Stopped);
        }
        inner.shard.deadline_us(now)
    }
}

async fn core(start: CoreStart, opened: open::Opened) {
    let wake = match opened.disk.wake_fd() {
        Ok(wake) => wake,
        Err(error) => {
            let _ = start.reports.send(Report::Refused(ServeError::System {
                action: "watch the disk",
                error,
            }));
            return;
        }
    };
    let config = &start.config;
    let info_head = format!(
        "\"version\":\"{}\",\"shard_count\":{},\"incarnation\":{},\"io\":\"{}\",\"durability\":\"{}\",\"interval_ms\":{},\"segment_bytes\":{},\"pid\":{}",
        env!("CARGO_PKG_VERSION"),
        start.shard_config.topology.shards(),
        start.shard_config.hello.incarnation,
        opened.disk.engine(),
        config.durability.name(),
        config.interval_ms,
        config.segment_bytes,
        std::process::id()
    );
    let core = Rc::new(Core {
        inner: RefCell::new(Inner {
            shard: opened.shard,
            disk: opened.disk,
            outbox: Outbox::default(),
            completions: Vec::new(),
            turns: 0,
            published_us: 0,
            is_stopped: false,
            is_dead: false,
        }),
        connections: RefCell::default(),
        turn: Signal::default(),
        spin: Signal::default(),
        spin_until_us: Cell::new(0),
        reads_in_turn: Cell::new(0),
        now: Cell::new(Now::default()),
        is_now_stale: Cell::new(true),
        clock: start.clock,
        unix_ms_at_start: start.unix_ms_at_start,
        open_connections: Cell::new(0),
        spin_us: u64::from(config.spin_us),
        is_leaving: Cell::new(false),
        leave: Signal::default(),
        received_bytes: Cell::new(0),
        sent_bytes: Cell::new(0),
        shard_number: start.shard,
        stats: Arc::clone(&start.stats),
        reports: start.reports.clone(),
        outboxes: start.outboxes.clone(),
        segment_bytes: config.segment_bytes,
        spares: start.spares.clone(),
        info_head,
    });
    let connections_max = config
        .connections_max
        .div_ceil(u32::from(start.shard_config.topology.shards()));

    monoio::spawn(watch_disk(Rc::clone(&core), wake));
    monoio::spawn(read_mail(Rc::clone(&core), start.inbox.clone()));
    if core.spin_us > 0 {
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
                let _ = start.reports.send(Report::Refused(ServeError::System {
                    action: "take over a listening socket",
                    error,
                }));
                return;
            }
        }
    }
    core.turn.set();
    monoio::spawn(turns(Rc::clone(&core)));
    let _ = start.reports.send(Report::Ready {
        shard: start.shard,
        text: opened.text,
    });
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
    let inner = &mut *core.inner.borrow_mut();
    // Nothing that the device may still write into is given back before it is done.
    if let Err(error) = inner
        .disk
        .drain(&mut inner.completions, Duration::from_secs(10))
    {
        eprintln!("penstock: shard {}: {error}", start.shard);
    }
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
    // monoio can wait for a descriptor to become readable only as a socket; nothing is read from it.
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
        core.inner.borrow_mut().disk.clear_wake();
        core.reap();
    }
}

/// Takes in what other threads send.
async fn read_mail(core: Rc<Core>, inbox: flume::Receiver<Letter>) {
    // The helper tries again each second and tells each time; people are told of changes.
    let mut is_lack_told = false;
    while let Ok(first) = inbox.recv_async().await {
        let mut letter = Some(first);
        while let Some(next) = letter {
            match next {
                Letter::Mail(mail) => {
                    core.step(Event::Mail(mail));
                }
                Letter::Spare(SpareOutcome::Ready(spare)) => {
                    if std::mem::take(&mut is_lack_told) {
                        eprintln!(
                            "penstock: shard {}: segments can be made ready again",
                            core.shard_number
                        );
                    }
                    core.inner.borrow_mut().disk.attach(spare.file, spare.fd);
                    core.step(Event::Spare {
                        file: spare.file,
                        salt: spare.salt,
                        bytes: spare.bytes,
                    });
                }
                Letter::Spare(SpareOutcome::Refused { free_bytes }) => {
                    if !std::mem::replace(&mut is_lack_told, true) {
                        eprintln!(
                            "penstock: shard {}: the disk is full ({free_bytes} bytes free), no segment can be made ready",
                            core.shard_number
                        );
                    }
                    core.step(Event::SpareRefused);
                }
                Letter::Spare(SpareOutcome::Failed(error)) => {
                    if !std::mem::replace(&mut is_lack_told, true) {
                        eprintln!(
                            "penstock: shard {}: no segment can be made ready: {error}",
                            core.shard_number
                        );
                    }
                    core.step(Event::SpareRefused);
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

/// Takes connections in. One endless task per listener: an accept that is dropped loses its socket.
async fn accept(core: Rc<Core>, listener: TcpListener, connections_max: u32) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if core.is_leaving.get() || core.open_connections.get() >= connections_max {
                    continue;
                }
                let now = core.now();
                let session = core.inner.borrow_mut().shard.open_session(now);
                let (connection, reader, writer) = Connection::new(session, stream);
                core.open_connections.set(core.open_connections.get() + 1);
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
            // Out of descriptors: those that wait stay in the kernel's queue.
            Err(_) => monoio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Watches for work for a while before the loop sleeps: a sleep and a wake cost more than a short
/// wait. Two tasks wake each other, because one that wakes itself would go before all others. Each
/// round enters the kernel by giving way to other threads, which lets completions arrive.
async fn spin(core: Rc<Core>, echo: Rc<Signal>) {
    loop {
        core.spin.wait().await;
        while core.read_clock().us < core.spin_until_us.get() {
            std::thread::yield_now();
            if core.reap() {
                core.spin_until_us.set(core.now().us + core.spin_us);
            }
            echo.set();
            core.spin.wait().await;
        }
    }
}

/// The other half of [`spin`].
async fn spin_echo(core: Rc<Core>, echo: Rc<Signal>) {
    loop {
        echo.wait().await;
        core.spin.set();
    }
}
