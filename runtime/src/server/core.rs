//! One core: the state that its tasks share, around one shard.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use penstock_net::auth::Transport;
use penstock_net::pieces::Pieces;
use penstock_net::rights::Rights;
use penstock_shard::replication::LinkId;
use penstock_shard::{Event, Greeting, Network, Now, Outside, SessionId};
use tracing::warn;

use super::audit::Audit;
use super::connection::Connection;
use super::handshakes::Handshakes;
use super::kept::KeptRoom;
use super::link::Link;
use super::messages::{CoreStart, Letter, Report};
use super::rests::Rests;
use super::signal::Signal;
use crate::cluster::lostfound::Found;
use crate::disk::arena::ArenaBlock;
use crate::event_loop::engine::{Engine, Turn};
use crate::event_loop::spin::Spin;
use crate::system::boot_clock::BootClock;
use crate::system::fill_random;
use crate::system::lines::Lately;
use crate::system::wall::WallClock;
use crate::tls::TlsFault;

/// With more reads in one turn the loop is busy: it hardly sleeps, and watching would only split
/// its batches.
const WATCHED_READS_MAX: u32 = 8;

/// What the tasks of one core share.
pub(crate) struct Core {
    pub(super) engine: RefCell<Engine>,
    /// By the index of their session.
    pub(super) connections: RefCell<Vec<Option<Rc<Connection>>>>,
    pub(super) links: RefCell<Vec<Rc<Link>>>,
    /// Empty room for what a link sends.
    pub(super) link_bytes: RefCell<Vec<u8>>,
    /// To the thread that keeps what has diverged, if this is a node of a cluster.
    pub(super) lostfound: Option<flume::Sender<Found>>,
    /// What was said of links.
    pub(super) lately: RefCell<Lately>,
    pub(super) shard: u16,
    pub(super) turn: Signal,
    /// How long to watch before sleeping.
    pub(super) spin: Spin,
    pub(super) spins: Signal,
    pub(super) spin_until_us: Cell<u64>,
    /// Reads since the last turn ended.
    reads_in_turn: Cell<u32>,
    now: Cell<Now>,
    is_now_stale: Cell<bool>,
    pub(super) clock: BootClock,
    wall: WallClock,
    pub(super) open_connections: Arc<AtomicU32>,
    pub(super) handshakes: Handshakes,
    /// Empty room that connections keep.
    pub(super) kept: Rc<KeptRoom>,
    rests: Rests,
    /// Connections that are told why they are turned away.
    pub(super) turned_away: Cell<u32>,
    pub(super) is_leaving: Cell<bool>,
    pub(super) leave: Signal,
    pub(super) reports: flume::Sender<Report>,
    pub(super) outboxes: Vec<flume::Sender<Letter>>,
    pub(super) audit: Audit,
}

impl Core {
    /// Around the engine of a shard; `lostfound` hears what diverges in a cluster.
    pub(super) fn new(
        start: &CoreStart,
        engine: Engine,
        lostfound: Option<flume::Sender<Found>>,
    ) -> Core {
        Core {
            engine: RefCell::new(engine),
            connections: RefCell::default(),
            links: RefCell::default(),
            link_bytes: RefCell::default(),
            lostfound,
            lately: RefCell::default(),
            shard: start.shard.shard,
            turn: Signal::default(),
            spin: Spin::new(Duration::from_micros(start.shard.config.spin_us.into())),
            spins: Signal::default(),
            spin_until_us: Cell::new(0),
            reads_in_turn: Cell::new(0),
            now: Cell::new(Now {
                us: 0,
                unix_ms: start.shard.unix_ms_at_start,
            }),
            is_now_stale: Cell::new(true),
            clock: start.shard.clock,
            wall: WallClock::default(),
            open_connections: Arc::clone(&start.connections),
            handshakes: Handshakes::new(start.handshakes_max),
            kept: Rc::new(KeptRoom::new(start.kept_bytes_max)),
            rests: Rests::default(),
            turned_away: Cell::new(0),
            is_leaving: Cell::new(false),
            leave: Signal::default(),
            reports: start.reports.clone(),
            outboxes: start.outboxes.clone(),
            audit: start.audit.clone(),
        }
    }

    /// The time of this turn: read once after each turn, and after what needs no turn.
    #[inline]
    pub(crate) fn now(&self) -> Now {
        if self.is_now_stale.take() {
            self.now.set(self.read_clock());
        }
        self.now.get()
    }

    pub(super) fn read_clock(&self) -> Now {
        let us = self.clock.now_us();
        Now {
            us,
            unix_ms: self.wall.at(us, || self.clock.now_us()),
        }
    }

    /// Hands an event to the shard; returns what that returns. What clients ask for is never older
    /// than the time at which it runs, so the clock is read for it.
    #[inline]
    pub(crate) fn step(&self, event: Event<'_, ArenaBlock>) -> usize {
        if matches!(event, Event::Received { .. } | Event::Mail(_)) {
            self.is_now_stale.set(true);
        }
        let now = self.now();
        let consumed = self.engine.borrow_mut().step(now, event);
        self.turn.set();
        consumed
    }

    /// The time at which output is taken: read behind what ran, if leases are to be held against
    /// it.
    #[inline]
    fn now_of_output(&self) -> Now {
        match self.engine.borrow().shard.execution().is_unchecked() {
            true => self.read_clock(),
            false => self.now(),
        }
    }

    pub(crate) fn take_pieces(&self, session: SessionId, into: &mut Pieces) {
        let now = self.now_of_output();
        self.engine
            .borrow_mut()
            .shard
            .take_pieces(now, session, into);
    }

    /// Moves what may be sent to the empty `into`, as one run of bytes.
    pub(crate) fn take_output(&self, session: SessionId, into: &mut Vec<u8>) {
        let now = self.now_of_output();
        self.engine
            .borrow_mut()
            .shard
            .take_output(now, session, into);
    }

    /// Tells the shard what is held for a connection beside its frames. `false` if there is no room
    /// for what its peer has sent.
    pub(crate) fn holds_outside(&self, session: SessionId, held: Outside) -> bool {
        let now = self.now();
        let held = Event::Outside { session, held };
        let has_room = self.engine.borrow_mut().step(now, held) > 0;
        self.is_now_stale.set(true);
        if self.engine.borrow().shard.is_turn_due() {
            self.turn.set();
        }
        has_room
    }

    pub(crate) fn took(&self, session: SessionId, bytes: usize) {
        self.step_aside(Event::Took { session, bytes });
    }

    /// The network took so many bytes that are no replies of the shard.
    pub(crate) fn gave(&self, session: SessionId, bytes: usize) {
        self.step_aside(Event::Gave { session, bytes });
    }

    /// A connection is ended because too much waits for it.
    pub(crate) fn ends_subscriber(&self, id: u64) {
        let text = format!("connection {id} of RESP is ended: too many messages wait for its peer");
        self.warn_lately("subscriber", &text);
    }

    /// A reply has left. No turn ends for that alone: only what waits for its room goes on.
    pub(crate) fn sent(&self, session: SessionId, bytes: usize) {
        self.engine.borrow_mut().traffic.sent_bytes += bytes as u64;
        self.step_aside(Event::Sent { session });
        if self.engine.borrow().shard.is_turn_due() {
            self.turn.set();
        }
    }

    /// Hands an event to the shard that needs no turn. The loop may sleep behind it, so the clock
    /// is read anew for the next event.
    fn step_aside(&self, event: Event<'_, ArenaBlock>) {
        let now = self.now();
        self.engine.borrow_mut().step(now, event);
        self.is_now_stale.set(true);
    }

    /// So many bytes stand in the socket of a connection behind what was read.
    pub(crate) fn left_unread(&self, session: SessionId, bytes: u64) {
        let now = self.now();
        let event = Event::Unread { session, bytes };
        self.engine.borrow_mut().step(now, event);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.engine.borrow_mut().traffic.received_bytes += bytes as u64;
        self.reads_in_turn.set(self.reads_in_turn.get() + 1);
    }

    /// Keeps the loop awake for a while: what was answered is often asked again at once.
    pub(super) fn watch(&self, now: Now) {
        let engine = &mut *self.engine.borrow_mut();
        if !engine.is_contended() && self.spin.may_begin() {
            engine.traffic.watches += 1;
            self.watch_on(now);
            self.spins.set();
        }
    }

    pub(super) fn watch_on(&self, now: Now) {
        let limit_us = u64::try_from(self.spin.limit().as_micros()).expect("10 ms at most");
        self.spin_until_us.set(now.us + limit_us);
    }

    pub(crate) fn is_finished(&self, session: SessionId) -> bool {
        self.engine.borrow().shard.front().is_finished(session)
    }

    /// Brings the shard what comes with a connection that was opened just now. `None` if nobody has
    /// to log in, otherwise the transport.
    pub(super) fn greet(&self, session: SessionId, transport: Transport) -> Option<Transport> {
        let now = self.now();
        let shard = &mut self.engine.borrow_mut().shard;
        if !shard.front().needs_logins() {
            return None;
        }
        let mut nonce = [0; 32];
        match fill_random(&mut nonce) {
            Ok(()) => {
                let greeting = Greeting {
                    nonce,
                    transport: transport.clone(),
                };
                shard.front_mut().greet(now, session, greeting);
            }
            // Nobody can log in by a connection that nobody has greeted.
            Err(error) => warn!(shard = self.shard, %error, "no random numbers: {error}"),
        }
        Some(transport)
    }

    /// How far the time of the shard is ahead of the wall clock, in milliseconds.
    #[inline]
    pub(super) fn ahead_ms(&self) -> i64 {
        let engine = self.engine.borrow();
        let store = engine.shard.store();
        store.data().time_ms().cast_signed() - store.data().clock().wall_ms().cast_signed()
    }

    /// Whether a connection may ask.
    pub(crate) fn is_open(&self, session: SessionId) -> bool {
        self.engine.borrow().shard.front().is_open(session)
    }

    /// What the user of a connection may do; `None` is everything.
    pub(crate) fn rights_of(&self, session: SessionId) -> Option<Arc<Rights>> {
        self.engine.borrow().shard.front().rights_of(session)
    }

    pub(crate) fn is_paused(&self, session: SessionId) -> bool {
        self.engine.borrow().shard.front().is_paused(session)
    }

    /// So many connections were turned away for want of descriptors, which is told once in a while.
    pub(super) fn refuse_connections(&self, refused: u64, why: &str) {
        if refused == 0 {
            return;
        }
        self.engine.borrow_mut().traffic.connections_refused += refused;
        self.turn.set();
        if let Some(text) = self.lately.borrow_mut().line("nofile", why, Instant::now()) {
            warn!(
                shard = self.shard,
                refused,
                "shard {}: connections are refused: {text}; raise LimitNOFILE in the systemd \
                 unit, or ulimit -n",
                self.shard
            );
        }
    }

    /// A handshake is over. With the text of what is wrong, it has come to nothing, which is told
    /// once in a while.
    pub(super) fn handshake_ended(&self, peer: &str, problem: Option<&str>) {
        let traffic = &mut self.engine.borrow_mut().traffic;
        match problem {
            None => traffic.tls_handshakes += 1,
            Some(_) => traffic.tls_handshakes_failed += 1,
        }
        self.turn.set();
        if let Some(problem) = problem {
            let text = format!("no handshake of TLS with {peer}: {problem}");
            self.warn_lately(problem, &text);
        }
    }

    /// A connection is closed because too many handshakes are under way.
    pub(super) fn refuse_handshake(&self, peer: &str) {
        self.engine.borrow_mut().traffic.tls_handshakes_refused += 1;
        self.turn.set();
        let text = format!("{peer} is closed: too many handshakes of TLS are under way");
        self.warn_lately("handshakes", &text);
    }

    /// The bytes of a connection can no longer be read.
    pub(super) fn tls_failed(&self, fault: &TlsFault) {
        let fault = fault.to_string();
        self.warn_lately(&fault, &format!("a connection through TLS ends: {fault}"));
    }

    /// The bytes of a link can no longer be read.
    pub(super) fn link_failed(&self, fault: &TlsFault) {
        let fault = fault.to_string();
        self.warn_lately(&fault, &format!("a link through TLS ends: {fault}"));
    }

    fn warn_lately(&self, about: &str, text: &str) {
        let line = self.lately.borrow_mut().line(about, text, Instant::now());
        if let Some(text) = line {
            let shard = self.shard;
            warn!(shard, "shard {shard}: {text}");
        }
    }

    /// Bytes that are left for replies of all connections.
    pub(super) fn room_for_replies(&self) -> usize {
        self.engine.borrow().shard.front().room_for_replies()
    }

    /// Gives back what the shard keeps empty for a connection.
    pub(super) fn give_back(&self, session: SessionId) {
        self.engine
            .borrow_mut()
            .shard
            .front_mut()
            .give_back(session);
    }

    /// A connection has ended on both sides.
    pub(crate) fn remove(&self, session: SessionId) {
        self.connections.borrow_mut()[session.index()] = None;
        self.open_connections.fetch_sub(1, Ordering::Relaxed);
        self.step(Event::Closed { session });
    }

    pub(crate) fn may_read_link(&self, link: LinkId) -> bool {
        self.engine.borrow().shard.execution().may_read_link(link)
    }

    pub(crate) fn take_link_output(&self, link: LinkId, into: &mut Vec<u8>) {
        self.engine
            .borrow_mut()
            .shard
            .execution_mut()
            .take_link_output(link, into);
    }

    /// A link has ended on both sides.
    pub(crate) fn remove_link(&self, link: LinkId) {
        self.links.borrow_mut().retain(|it| it.link != link);
        self.step(Event::LinkDown { link });
    }

    pub(super) fn connection(&self, session: SessionId) -> Option<Rc<Connection>> {
        let connections = self.connections.borrow();
        connections
            .get(session.index())?
            .as_ref()
            .filter(|connection| connection.session == session)
            .cloned()
    }

    /// Gives the shard what the disk has finished. Without a system call. The loop may sleep behind
    /// it, so the clock is read anew for the next event.
    pub(super) fn reap(&self) -> bool {
        let now = self.now();
        let is_any = self.engine.borrow_mut().reap(now);
        self.is_now_stale.set(true);
        if is_any {
            self.turn.set();
        }
        is_any
    }

    /// Ends the turn; returns when the next must come at the latest.
    pub(super) fn end_turn(&self) -> Option<u64> {
        let now = self.read_clock();
        self.now.set(now);
        self.is_now_stale.set(true);
        self.handshakes.turn_ended();
        self.rests.turn_ended(now.us, &self.connections.borrow());
        if (1..=WATCHED_READS_MAX).contains(&self.reads_in_turn.take()) {
            self.watch(now);
        }
        let engine = &mut *self.engine.borrow_mut();
        let mut network = self;
        match engine.end_turn(now, || self.read_clock(), &mut network) {
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
        let outbox = &mut engine.outbox;
        for session in std::mem::take(&mut outbox.probes) {
            if let Some(connection) = self.connection(session) {
                let bytes = connection.unacknowledged_bytes();
                let event = Event::Unacknowledged { session, bytes };
                engine.shard.step(now, event, outbox);
            }
        }
        network.close(&mut outbox.close);
        let publish_us = engine.publish_deadline_us();
        let deadline_us = engine.shard.deadline_us(now);
        Some(deadline_us.map_or(publish_us, |it| it.min(publish_us)))
    }
}
