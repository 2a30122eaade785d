//! Drives the buyers over real connections, and kills the server under them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use crate::BenchError;
use crate::entry::Access;
use crate::sale::Venue;
use crate::sale::book::{Ask, Book, Verdict};
use crate::sale::channel::{Channel, ChannelError, RECONNECT_PAUSE};
use crate::sale::live::{Live, Point, Snapshot, Stage};
use crate::series::{Series, quantiles_us};
use crate::workload::unix_ms;

/// How long nothing may be answered.
const SILENCE: Duration = Duration::from_secs(30);
/// The longest wait for readiness.
const NAP: Duration = Duration::from_millis(20);
/// Between two changes of the snapshot.
const TICK: Duration = Duration::from_millis(250);
/// The most buyers that are shown one by one while the sale runs.
const SHOWN_BUYERS_MAX: u32 = 250_000;
/// An interval of the series.
const INTERVAL: Duration = Duration::from_secs(1);

/// When the server is killed: as soon as one of these is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KillAt {
    /// Units were taken, so many.
    pub(crate) units: u64,
    /// Buyers have come, so many: at most all of them.
    pub(crate) buyers: u64,
}

/// A run over real connections.
pub(crate) struct Driver<'a> {
    book: Book,
    live: &'a Live,
    address: SocketAddr,
    access: Access,
    venue: Option<&'a mut dyn Venue>,
    /// In their order.
    kills: Vec<KillAt>,
    is_interrupted: &'a AtomicBool,
    poll: Poll,
    channels: Vec<Option<Channel>>,
    idle: Vec<usize>,
    /// Connections to make anew, and from when on.
    away: Vec<(Duration, usize)>,
    chunk: Vec<u8>,
    series: Series,
    start: Instant,
    /// Why the last connection broke that nobody cut.
    broken: Option<String>,
    /// When something was answered last.
    last_answer: Instant,
    ticked: Duration,
    ticked_answered: u64,
    /// Nothing was done for a buyer since the last kill.
    is_silent: bool,
}

/// What a run leaves.
pub(crate) struct Driven {
    pub(crate) book: Book,
    pub(crate) series: Series,
    pub(crate) elapsed: Duration,
    /// Where the server is now.
    pub(crate) address: SocketAddr,
}

impl<'a> Driver<'a> {
    pub(crate) fn new(
        book: Book,
        live: &'a Live,
        (address, access): (SocketAddr, Access),
        connections: usize,
        is_interrupted: &'a AtomicBool,
    ) -> Result<Driver<'a>, BenchError> {
        Ok(Driver {
            book,
            live,
            address,
            access,
            venue: None,
            kills: Vec::new(),
            is_interrupted,
            poll: Poll::new().map_err(|error| BenchError::Connection(error.to_string()))?,
            channels: (0..connections).map(|_| None).collect(),
            idle: Vec::new(),
            away: (0..connections)
                .map(|number| (Duration::ZERO, number))
                .collect(),
            chunk: vec![0; 64 << 10],
            series: Series::new(INTERVAL),
            start: Instant::now(),
            broken: None,
            last_answer: Instant::now(),
            ticked: Duration::ZERO,
            ticked_answered: 0,
            is_silent: false,
        })
    }

    /// The same, with kills of the server.
    pub(crate) fn killing(self, venue: &'a mut dyn Venue, mut kills: Vec<KillAt>) -> Driver<'a> {
        kills.reverse();
        Driver {
            venue: Some(venue),
            kills,
            ..self
        }
    }

    /// Runs until every cart has come to its end, and the server was killed as often as asked.
    pub(crate) fn run(mut self) -> Result<Driven, BenchError> {
        let mut events = Events::with_capacity(1024);
        self.start = Instant::now();
        self.last_answer = self.start;
        self.live.set_stage(Stage::Selling);
        loop {
            self.check_interrupted()?;
            let now = self.start.elapsed();
            self.series.passed(now);
            self.tick(now, false);
            self.kill_due()?;
            self.connect_due(now)?;
            self.send_due()?;
            if self.book.is_over() && self.kills.is_empty() {
                break;
            }
            self.wait(&mut events)?;
            for event in &events {
                self.serve(event.token().0)?;
            }
            if self.last_answer.elapsed() > SILENCE && self.idle.len() < self.channels.len() {
                let broken = self.broken.as_deref().unwrap_or("no connection broke");
                return Err(BenchError::Connection(format!(
                    "nothing was answered for {SILENCE:?}; {broken}"
                )));
            }
        }
        let elapsed = self.start.elapsed();
        self.series.end(elapsed);
        self.tick(elapsed, true);
        Ok(Driven {
            book: self.book,
            series: self.series,
            elapsed,
            address: self.address,
        })
    }

    fn check_interrupted(&self) -> Result<(), BenchError> {
        match self.is_interrupted.load(Ordering::Relaxed) {
            true => Err(BenchError::Interrupted),
            false => Ok(()),
        }
    }

    fn wait(&mut self, events: &mut Events) -> Result<(), BenchError> {
        let now = self.start.elapsed();
        let due = self.book.next_due().filter(|_| !self.idle.is_empty());
        let nap = due.map_or(NAP, |at| at.saturating_sub(now).min(NAP));
        match self.poll.poll(events, Some(nap)) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                Err(BenchError::Connection(error.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Kills the server when its time has come, with what is under way, and starts it again.
    fn kill_due(&mut self) -> Result<(), BenchError> {
        let counts = self.book.counts();
        let is_due = |at: &KillAt| counts.units_bought >= at.units || counts.buyers >= at.buyers;
        if !self.kills.last().is_some_and(is_due) {
            return Ok(());
        }
        let Some(venue) = self.venue.as_mut() else {
            return Ok(());
        };
        self.kills.pop();
        let killed = self.start.elapsed();
        venue.kill().map_err(BenchError::Connection)?;
        self.live.killed(killed);
        self.is_silent = true;
        let address = venue.start().map_err(BenchError::Connection)?;
        let now = self.start.elapsed();
        self.live.serves(now, address);
        self.address = address;
        self.last_answer = Instant::now();
        for number in 0..self.channels.len() {
            self.lose(number, now, false);
        }
        Ok(())
    }

    /// Makes the connections that are to be made anew.
    fn connect_due(&mut self, now: Duration) -> Result<(), BenchError> {
        let mut at = 0;
        while at < self.away.len() {
            let (from, number) = self.away[at];
            if from > now {
                at += 1;
                continue;
            }
            self.away.swap_remove(at);
            self.connect(number)?;
        }
        Ok(())
    }

    fn connect(&mut self, number: usize) -> Result<(), BenchError> {
        let failed = |error: std::io::Error| {
            BenchError::Connection(format!("no connection to {}: {error}", self.address))
        };
        let mut channel = Channel::connect(self.address, &self.access)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        registry
            .register(channel.stream(), Token(number), interest)
            .map_err(failed)?;
        self.channels[number] = Some(channel);
        self.idle.push(number);
        Ok(())
    }

    /// Sends what is due, as far as connections are free.
    fn send_due(&mut self) -> Result<(), BenchError> {
        let time_ms = unix_ms();
        while let Some(&number) = self.idle.last() {
            let now = self.start.elapsed();
            let Some(ask) = self.book.due(now, time_ms) else {
                return Ok(());
            };
            self.idle.pop();
            let channel = self.channels[number].as_mut().expect("idle ones are there");
            let sent = channel.send(ask, &mut self.book);
            self.after(number, sent)?;
            self.cut(number, &ask);
        }
        Ok(())
    }

    /// Cuts the connection of a request that its buyer leaves without the answer. What the kernel
    /// has of the request goes to the server all the same.
    fn cut(&mut self, number: usize, ask: &Ask) {
        let is_sent = |channel: &Channel| channel.is_flushed();
        if !self.channels[number].as_ref().is_some_and(is_sent) || !self.book.is_cut(ask) {
            return;
        }
        let now = self.start.elapsed();
        self.lose(number, now, true);
    }

    /// Drops a connection. What was under way is asked again.
    fn lose(&mut self, number: usize, now: Duration, is_cut: bool) {
        let Some(channel) = self.channels[number].take() else {
            return;
        };
        if let Some(ask) = channel.give_up() {
            self.book.again(ask, now, is_cut);
        }
        self.idle.retain(|idle| *idle != number);
        self.away.push((now, number));
    }

    /// Sends and receives what a connection can.
    fn serve(&mut self, number: usize) -> Result<(), BenchError> {
        let Some(channel) = self.channels[number].as_mut() else {
            return Ok(());
        };
        let flushed = channel.flush();
        let received = flushed.and_then(|()| channel.receive(&mut self.chunk, &mut self.book));
        if let Some((ask, verdict)) = self.after(number, received)?.flatten() {
            self.last_answer = Instant::now();
            let now = self.start.elapsed();
            if matches!(verdict, Verdict::Done { .. }) && std::mem::take(&mut self.is_silent) {
                self.live.sells(now);
            }
            let took = now.saturating_sub(ask.since);
            let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.series.record(ns, 1);
            self.book.answered(ask, verdict, now, unix_ms());
            self.idle.push(number);
        }
        Ok(())
    }

    /// Takes a connection away that broke; what was done with one that did not.
    fn after<T>(
        &mut self,
        number: usize,
        outcome: Result<T, ChannelError>,
    ) -> Result<Option<T>, BenchError> {
        match outcome {
            Ok(done) => Ok(Some(done)),
            Err(ChannelError::WrongAnswer(text)) => Err(BenchError::WrongAnswer(text)),
            Err(ChannelError::Broken(error)) => {
                self.broken = Some(error.to_string());
                let now = self.start.elapsed();
                self.lose(number, now, false);
                if let Some((from, _)) = self.away.last_mut() {
                    *from = now + RECONNECT_PAUSE;
                }
                Ok(None)
            }
        }
    }

    /// Tells the others where the sale is.
    fn tick(&mut self, now: Duration, is_last: bool) {
        let passed = now.saturating_sub(self.ticked);
        if passed < TICK && !is_last {
            return;
        }
        let counts = self.book.counts();
        let answered = counts.answered - self.ticked_answered;
        let [p50_us, _, p99_us, ..] = quantiles_us(self.series.latest());
        let is_shown = self.book.plan.buyers <= SHOWN_BUYERS_MAX;
        let buyers = match is_shown {
            true => self.book.buyers(),
            false => String::new(),
        };
        let stock = {
            let mut live = self.live.now();
            let snapshot: &mut Snapshot = &mut live;
            snapshot.seconds = now.as_secs_f64();
            snapshot.counts = counts;
            snapshot.buyers_all = self.book.plan.buyers;
            snapshot.p50_us = p50_us;
            snapshot.p99_us = p99_us;
            snapshot.buyers = buyers;
            snapshot.stock
        };
        self.live.add(Point {
            seconds: now.as_secs_f64(),
            stock,
            refused: counts.refused(),
            per_second: answered as f64 / passed.as_secs_f64().max(1e-3),
            p50_us,
            p99_us,
        });
        self.ticked = now;
        self.ticked_answered = counts.answered;
    }
}
