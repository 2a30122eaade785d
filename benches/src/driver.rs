//! The run: connections, readiness, the clock, the histogram.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use penstock_client::tls::TlsSession;
use penstock_client::{Client, ClientError, ClientOptions, Verbs};
use penstock_net::level::AckLevel;

use crate::BenchError;
use crate::args::BenchArgs;
use crate::connection::{Account, Connection, Secured};
use crate::control::Control;
use crate::cores::Seats;
use crate::entry::into_parts;
use crate::ledger::Ledger;
use crate::report::Report;
use crate::series::Series;
use crate::workload::{Law, Load, STOCK, STOCK_INITIAL};

/// Shots that an open loop lets a connection have under way; later ones wait and count the wait.
const OPEN_LOOP_AHEAD: usize = 64;
/// How long a run may wait for an answer.
const SILENCE: Duration = Duration::from_secs(30);
/// How long answers may take that are under way when the run ends.
const DRAIN: Duration = Duration::from_secs(10);
/// With a ledger, how long one connection may before another server is asked.
const SILENCE_OF_ONE: Duration = Duration::from_secs(3);
/// The first wait before a connection is made anew; each next one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Drives one run and returns its measurements. With `prepares` it writes the keys first.
pub(crate) fn drive(args: &BenchArgs, prepares: bool) -> Result<Report, BenchError> {
    if let Some(cpu) = args.pin
        && !core_affinity::set_for_current(core_affinity::CoreId { id: cpu })
    {
        return Err(BenchError::Arguments(format!(
            "--pin {cpu}: this process may not run on that CPU"
        )));
    }
    let counter = match args.ledger {
        true => Some(Counter::set(args)?),
        false => None,
    };
    // With a ledger another node may have taken over by the end, and has counted something else.
    let mut control = if args.ports.raw || args.addr.len() > 1 {
        None
    } else {
        Some(Control::connect(args)?)
    };
    if let Some(control) = control.as_mut().filter(|_| prepares) {
        control.prepare(args)?;
    }
    let before = control.as_mut().map(Control::counters).transpose()?;

    let poll = Poll::new().map_err(|error| unreachable_at(args, &error))?;
    let connections = connect(args, &poll)?;
    let away = vec![None; connections.len()];
    let measured = Run {
        args,
        connections,
        away,
        poll,
    }
    .run()?;

    // By a new connection: the first one was idle during the run, and a server closes a connection
    // that is idle for long.
    let counters = || Control::connect(args)?.counters();
    let after = match control {
        None => None,
        // With a ledger the server may be gone for a while.
        Some(_) if args.ledger => counters().ok(),
        Some(_) => Some(counters()?),
    };
    let server = match (before, after) {
        (Some(before), Some(after)) => grown(&before, after),
        _ => Default::default(),
    };
    let ledger = match counter {
        Some(counter) => Some(Ledger {
            initial: STOCK_INITIAL,
            left: counter.left()?,
            account: measured.account,
        }),
        None => None,
    };
    Ok(Report {
        args: args.clone(),
        date: SystemTime::now(),
        seconds: measured.seconds,
        latency_ns: measured.series.all,
        intervals: measured.series.intervals,
        rounds: Vec::new(),
        account: measured.account,
        server,
        ledger,
    })
}

/// Makes the connections of a run, to the first server that answers.
fn connect(args: &BenchArgs, poll: &Poll) -> Result<Vec<Connection>, BenchError> {
    let failed = |error: std::io::Error| unreachable_at(args, &error);
    let law = Law::new(args);
    let access = args.access()?;
    let seats = Seats::of(args, &access)?;
    let mut connections = Vec::new();
    for number in 0..args.connections {
        let seat = seats.seat(number);
        let open = |address: &SocketAddr| match args.ports.raw {
            true => access.connect(*address, SILENCE),
            false => access.enter(*address, SILENCE),
        };
        let others = args.addr.iter().skip(1);
        let mut tried = std::iter::once(&seat.address).chain(others).map(open);
        let made = tried.find(Result::is_ok);
        let stream = made.unwrap_or_else(|| open(&seat.address))?;
        let (stream, session) = into_parts(stream).map_err(failed)?;
        let mut connection = Connection::new(
            stream,
            session.map(Secured::new),
            access.clone(),
            Load::new(args, law.of(seat.slots.clone()), u64::from(number)),
            args.depth as usize,
            args.ports.raw,
        );
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry()
            .register(connection.stream(), Token(number as usize), interest)
            .map_err(failed)?;
        connections.push(connection);
    }
    Ok(connections)
}

fn unreachable_at(args: &BenchArgs, error: &std::io::Error) -> BenchError {
    BenchError::Connection(format!("no connection to {}: {error}", args.addr[0]))
}

/// By how much each counter of the server has grown.
fn grown(before: &BTreeMap<String, u64>, after: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let grown = |(name, value): (String, u64)| {
        let before = before.get(&name).copied().unwrap_or(0);
        (name, value.saturating_sub(before))
    };
    after.into_iter().map(grown).collect()
}

struct Run<'a> {
    args: &'a BenchArgs,
    connections: Vec<Connection>,
    /// Those that are not to be used now: from when on another one is to be made, and where to.
    away: Vec<Option<Away>>,
    poll: Poll,
}

/// A connection that has ended, or is being made.
#[derive(Clone, Copy, Debug)]
struct Away {
    to: SocketAddr,
    at: Instant,
    /// It is being made, and until then must be answered.
    until: Option<Instant>,
    /// How often it was tried.
    tries: u32,
}

struct Measured {
    seconds: f64,
    series: Series,
    account: Account,
}

/// What a run has measured so far.
struct Meter {
    start: Instant,
    warmup: Duration,
    end: Duration,
    operations_max: u64,
    /// Operations that were answered, those of the warmup included.
    operations: u64,
    /// The end of the warmup.
    measured_from: Option<Duration>,
    series: Series,
    progress: Progress,
    /// When the last bytes came.
    last_received: Instant,
}

impl Meter {
    fn new(args: &BenchArgs) -> Meter {
        let warmup = Duration::from_secs_f64(args.warmup);
        let start = Instant::now();
        Meter {
            start,
            warmup,
            end: warmup + Duration::from_secs_f64(args.duration),
            operations_max: args.requests.unwrap_or(u64::MAX),
            operations: 0,
            measured_from: None,
            series: Series::new(Duration::from_secs_f64(args.interval)),
            progress: Progress::new(args.json || args.csv),
            last_received: start,
        }
    }

    /// A time as nanoseconds since the start.
    fn ns_at(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.start).as_nanos()).expect("days fit")
    }

    fn now_ns(&self) -> u64 {
        self.ns_at(Instant::now())
    }

    /// Notes that time has passed; whether the run is over.
    fn pass(&mut self, elapsed: Duration) -> bool {
        if elapsed >= self.warmup && self.measured_from.is_none() {
            self.measured_from = Some(elapsed);
            self.series.begin();
        }
        if let Some(from) = self.measured_from {
            self.series.passed(elapsed - from);
        }
        elapsed >= self.end || self.operations >= self.operations_max
    }

    /// Ends the measurement; the time that was measured.
    fn finish(&mut self, elapsed: Duration) -> Duration {
        let time = elapsed - self.measured_from.unwrap_or_default();
        self.series.end(time);
        self.progress.end();
        time
    }
}

impl Run<'_> {
    fn run(mut self) -> Result<Measured, BenchError> {
        let args = self.args;
        let mut meter = Meter::new(args);
        // Of an open loop: the time between two shots of one connection.
        let interval_ns = args
            .rate
            .map(|rate| f64::from(args.depth) * f64::from(args.connections) * 1e9 / rate);
        self.begin(&meter, interval_ns)?;
        let mut events = Events::with_capacity(1024);
        loop {
            self.connect_anew()?;
            let timeout = match interval_ns {
                Some(_) => Duration::from_micros(100),
                None => Duration::from_millis(100),
            };
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                    return Err(BenchError::Connection(error.to_string()));
                }
                _ => {}
            }
            let elapsed = meter.start.elapsed();
            if meter.pass(elapsed) {
                let time = meter.finish(elapsed);
                self.drain(&mut events)?;
                return Ok(Measured {
                    seconds: time.as_secs_f64().max(1e-9),
                    series: meter.series,
                    account: self.account(),
                });
            }
            for event in &events {
                self.serve(event, &mut meter)?;
            }
            if let Some(interval_ns) = interval_ns {
                self.shoot_due(interval_ns, meter.now_ns())?;
            }
            if meter.last_received.elapsed() > SILENCE {
                return Err(BenchError::Connection(format!(
                    "nothing was answered for {SILENCE:?}"
                )));
            }
            meter.progress.show(elapsed, meter.operations);
        }
    }

    /// Shoots first, or says when. The connections of an open loop are spread over the first
    /// interval, so that they do not come in step.
    fn begin(&mut self, meter: &Meter, interval_ns: Option<f64>) -> Result<(), BenchError> {
        let connections = f64::from(self.args.connections);
        for (number, connection) in self.connections.iter_mut().enumerate() {
            match interval_ns {
                Some(interval_ns) => {
                    connection.next_due_ns = to_ns(interval_ns * number as f64 / connections);
                }
                None => connection.shoot(meter.now_ns())?,
            }
        }
        Ok(())
    }

    /// Sends and receives what a connection can, and records the answers. Of a closed loop, each
    /// answer lets the next shot go.
    fn serve(&mut self, event: &Event, meter: &mut Meter) -> Result<(), BenchError> {
        let number = event.token().0;
        let connection = &mut self.connections[number];
        if event.is_writable()
            && let Err(error) = connection.flush()
        {
            return self.lose(number, error);
        }
        if !event.is_readable() {
            return Ok(());
        }
        meter.last_received = Instant::now();
        let arrived_ns = meter.ns_at(meter.last_received);
        let mut answered = 0;
        let received = connection.receive(|since_ns, items| {
            let items = items as u64;
            meter
                .series
                .record(arrived_ns.saturating_sub(since_ns), items);
            meter.operations += items;
            answered += 1;
        });
        if let Err(error) = received {
            return self.lose(number, error);
        }
        let connection = &mut self.connections[number];
        connection.last_received = meter.last_received;
        if self.away[number].is_some() && connection.is_open() {
            self.away[number] = None;
            answered = 1;
            connection.next_due_ns = arrived_ns;
        }
        // What is under way is answered in the same way, but its answer is to be seen.
        if let Some(writer) = connection.elsewhere() {
            if !self.args.ledger {
                return Err(elsewhere(writer));
            }
            if connection.under_way() == 0 {
                self.go_elsewhere(number, writer);
            }
            return Ok(());
        }
        if self.args.rate.is_none() {
            for _ in 0..answered {
                if let Err(error) = self.connections[number].shoot(meter.now_ns()) {
                    return self.lose(number, error);
                }
            }
        }
        Ok(())
    }

    /// Shoots what an open loop owes by now.
    fn shoot_due(&mut self, interval_ns: f64, now_ns: u64) -> Result<(), BenchError> {
        for number in 0..self.connections.len() {
            while self.away[number].is_none()
                && self.connections[number].elsewhere().is_none()
                && self.connections[number].next_due_ns <= now_ns
                && self.connections[number].under_way() < OPEN_LOOP_AHEAD
            {
                let connection = &mut self.connections[number];
                let due_ns = connection.next_due_ns;
                connection.next_due_ns += to_ns(interval_ns);
                if let Err(error) = connection.shoot(due_ns) {
                    self.lose(number, error)?;
                }
            }
        }
        Ok(())
    }

    /// The accounts of all connections.
    fn account(&self) -> Account {
        let connections = self.connections.iter();
        let mut account = connections
            .clone()
            .fold(Account::default(), |sum, it| sum.plus(it.account));
        account.unanswered = connections.map(Connection::items_under_way).sum();
        account
    }

    /// Takes in what is still under way, so that the accounts close.
    fn drain(&mut self, events: &mut Events) -> Result<(), BenchError> {
        // The last events were not looked at, and readiness is told once.
        for number in 0..self.connections.len() {
            if self.away[number].is_none() {
                self.take_in(number)?;
            }
        }
        let until = Instant::now() + DRAIN;
        while Instant::now() < until
            && self
                .connections
                .iter()
                .any(|connection| connection.under_way() > 0)
        {
            let _ = self.poll.poll(events, Some(Duration::from_millis(10)));
            for event in events.iter() {
                self.take_in(event.token().0)?;
            }
        }
        Ok(())
    }

    /// Sends and receives what a connection can, and measures nothing.
    fn take_in(&mut self, number: usize) -> Result<(), BenchError> {
        let connection = &mut self.connections[number];
        let flushed = connection.flush();
        let received = flushed.and_then(|()| connection.receive(|_, _| ()));
        match received {
            Ok(()) => Ok(()),
            Err(error) => self.lose(number, error),
        }
    }

    /// Takes note that a connection has ended. With a ledger a new one is made, to the next server,
    /// and the operations that were under way count as unknown.
    fn lose(&mut self, number: usize, error: BenchError) -> Result<(), BenchError> {
        if !self.args.ledger || matches!(error, BenchError::WrongAnswer(_)) {
            return Err(error);
        }
        let tries = self.away[number].map_or(0, |away| away.tries + 1);
        self.send_away(number, self.next_of(number), tries);
        Ok(())
    }

    /// Another node is to be asked, or the same once more.
    fn go_elsewhere(&mut self, number: usize, writer: Option<SocketAddr>) {
        let to = writer.unwrap_or_else(|| self.peer_of(number));
        self.send_away(number, to, 0);
    }

    fn peer_of(&mut self, number: usize) -> SocketAddr {
        let peer = self.connections[number].stream().peer_addr();
        peer.unwrap_or_else(|_| self.next_of(number))
    }

    /// Of the servers that were named the one behind that of this connection.
    fn next_of(&self, number: usize) -> SocketAddr {
        let tries = self.away[number].map_or(0, |away| away.tries + 1);
        self.args.addr[(number + tries as usize) % self.args.addr.len()]
    }

    fn send_away(&mut self, number: usize, to: SocketAddr, tries: u32) {
        let stream = self.connections[number].stream();
        let _ = self.poll.registry().deregister(stream);
        self.connections[number].abandon();
        let pause = (PAUSE_MIN * (1 << tries.min(10))).min(PAUSE_MAX);
        self.away[number] = Some(Away {
            to,
            at: Instant::now() + pause,
            until: None,
            tries,
        });
    }

    /// Another connection in the place of one that has ended.
    fn made(
        &self,
        number: usize,
        to: SocketAddr,
    ) -> Result<(TcpStream, Option<TlsSession>), BenchError> {
        let (mut stream, session) = self.args.access()?.begin(to)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self
            .poll
            .registry()
            .register(&mut stream, Token(number), interest);
        registered.map_err(|error| BenchError::Connection(error.to_string()))?;
        Ok((stream, session))
    }

    /// Makes the connections that are due, and gives up those that are silent.
    fn connect_anew(&mut self) -> Result<(), BenchError> {
        if !self.args.ledger {
            return Ok(());
        }
        let now = Instant::now();
        for number in 0..self.connections.len() {
            let silent = || BenchError::Connection("the server is silent".into());
            match self.away[number] {
                None => {
                    let connection = &self.connections[number];
                    let is_waiting = connection.under_way() > 0;
                    if is_waiting && now.duration_since(connection.last_received) > SILENCE_OF_ONE {
                        self.lose(number, silent())?;
                    }
                }
                Some(Away {
                    until: Some(until), ..
                }) => {
                    if now > until {
                        self.lose(number, silent())?;
                    }
                }
                Some(away) if away.at <= now => {
                    self.away[number] = Some(Away {
                        until: Some(now + SILENCE_OF_ONE),
                        ..away
                    });
                    let made = self.made(number, away.to);
                    match made {
                        Ok((stream, session)) => {
                            self.connections[number].last_received = now;
                            self.connections[number].reopen(stream, session)?;
                        }
                        Err(error) => {
                            self.lose(number, error)?;
                        }
                    }
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// Figures of what was sent from one node to another would say nothing of either.
fn elsewhere(writer: Option<SocketAddr>) -> BenchError {
    let what = match writer {
        Some(address) => format!("the server at {address} writes this now: name that one alone"),
        None => "no server writes this now".into(),
    };
    BenchError::Connection(format!(
        "{what}; only `decr --ledger` goes on where it is written"
    ))
}

/// The counter that is sold from, wherever it is written.
pub(crate) struct Counter(Client);

fn lost(error: ClientError) -> BenchError {
    BenchError::Connection(error.to_string())
}

impl Counter {
    /// Fills it.
    fn set(args: &BenchArgs) -> Result<Counter, BenchError> {
        let level = args.level.wire().max(AckLevel::Disk);
        let writer = Counter::reach_at(args, level)?;
        let set = writer.0.set(STOCK, &STOCK_INITIAL.to_le_bytes());
        set.wait().map_err(lost)?;
        // By then the node that writes may have no other one that it could wait for.
        Counter::reach(args)
    }

    /// One that was filled before.
    pub(crate) fn reach(args: &BenchArgs) -> Result<Counter, BenchError> {
        Counter::reach_at(args, AckLevel::Disk)
    }

    fn reach_at(args: &BenchArgs, level: AckLevel) -> Result<Counter, BenchError> {
        let addresses: Vec<String> = args.addr.iter().map(SocketAddr::to_string).collect();
        let options = ClientOptions {
            level,
            ..args.access()?.client("penstock bench", SILENCE)
        };
        Client::connect_any(&addresses, options)
            .map(Counter)
            .map_err(lost)
    }

    /// Deletes it.
    pub(crate) fn remove(&self) -> Result<(), BenchError> {
        self.0.del(STOCK).wait().map(drop).map_err(lost)
    }

    /// The counter's value. A read has no effect, so it is repeated if its connection is lost.
    fn left(&self) -> Result<u64, BenchError> {
        let until = Instant::now() + SILENCE;
        let read = loop {
            match self.0.get(STOCK).wait() {
                Err(error) if Instant::now() > until => {
                    return Err(BenchError::Connection(error.to_string()));
                }
                Err(ClientError::Refused(answer)) => {
                    return Err(BenchError::WrongAnswer(answer.status.name().into()));
                }
                Err(_) => std::thread::sleep(PAUSE_MAX),
                Ok(read) => break read,
            }
        };
        let bytes = read.and_then(|value| <[u8; 8]>::try_from(&*value.bytes).ok());
        let left = bytes.map(u64::from_le_bytes);
        left.ok_or(BenchError::WrongAnswer(
            "the counter has no eight bytes".into(),
        ))
    }
}

fn to_ns(ns: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive and below a day"
    )]
    let ns = ns as u64;
    ns.max(1)
}

/// The live line on a terminal.
struct Progress {
    is_shown: bool,
    last: Duration,
    operations: u64,
}

impl Progress {
    fn new(is_quiet: bool) -> Progress {
        Progress {
            is_shown: !is_quiet && std::io::stderr().is_terminal(),
            last: Duration::ZERO,
            operations: 0,
        }
    }

    fn show(&mut self, elapsed: Duration, operations: u64) {
        if self.is_shown && elapsed - self.last >= Duration::from_millis(500) {
            let per_second =
                (operations - self.operations) as f64 / (elapsed - self.last).as_secs_f64();
            eprint!("\r{:6.1} s  {per_second:12.0} op/s ", elapsed.as_secs_f64());
            (self.last, self.operations) = (elapsed, operations);
        }
    }

    fn end(&self) {
        if self.is_shown {
            eprint!("\r                                \r");
        }
    }
}
