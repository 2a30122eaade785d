//! The run: connections, readiness, the clock, the histogram.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token};

use crate::BenchError;
use crate::args::{BenchArgs, Workload};
use crate::connection::{Account, Connection};
use crate::control::{Control, hello};
use crate::report::{Ledger, Report};
use crate::workload::{Law, Load, STOCK_INITIAL};

/// Shots that an open loop lets a connection have under way; later ones wait and count the wait.
const OPEN_LOOP_AHEAD: usize = 64;
/// How long a run may wait for an answer.
const SILENCE: Duration = Duration::from_secs(30);

/// Drives one run and tells what it measured.
pub(crate) fn drive(args: &BenchArgs) -> Result<Report, BenchError> {
    if let Some(cpu) = args.pin
        && !core_affinity::set_for_current(core_affinity::CoreId { id: cpu })
    {
        return Err(BenchError::Arguments(format!(
            "--pin {cpu}: this process may not run on that CPU"
        )));
    }
    let mut control = if args.raw {
        None
    } else {
        Some(Control::connect(args)?)
    };
    if let Some(control) = &mut control {
        control.prepare(args)?;
    }
    let before = control.as_mut().map(Control::counters).transpose()?;

    let failed = |error: std::io::Error| {
        BenchError::Connection(format!("no connection to {}: {error}", args.addr))
    };
    let poll = Poll::new().map_err(failed)?;
    let law = Law::new(args);
    let mut connections = Vec::new();
    for number in 0..args.connections {
        let stream = std::net::TcpStream::connect(args.addr).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        if !args.raw {
            (&stream).write_all(&hello()).map_err(failed)?;
        }
        stream.set_nonblocking(true).map_err(failed)?;
        let stream = mio::net::TcpStream::from_std(stream);
        let mut connection = Connection::new(
            stream,
            Load::new(args, law.clone(), u64::from(number)),
            args.depth as usize,
            args.raw,
        );
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry()
            .register(connection.stream(), Token(number as usize), interest)
            .map_err(failed)?;
        connections.push(connection);
    }
    let measured = Run {
        args,
        connections,
        poll,
    }
    .run()?;

    let after = control.as_mut().map(Control::counters).transpose()?;
    let server = match (before, after) {
        (Some(before), Some(after)) => after
            .into_iter()
            .map(|(name, value)| {
                (
                    name.clone(),
                    value.saturating_sub(before.get(&name).copied().unwrap_or(0)),
                )
            })
            .collect(),
        _ => Default::default(),
    };
    let ledger = match &mut control {
        Some(control) if args.workload == Workload::Decr => Some(Ledger {
            initial: STOCK_INITIAL,
            left: control.stock()?,
            account: measured.account,
        }),
        _ => None,
    };
    Ok(Report {
        args: args.clone(),
        seconds: measured.seconds,
        operations: measured.operations,
        latency_ns: measured.latency_ns,
        account: measured.account,
        server,
        ledger,
    })
}

struct Run<'a> {
    args: &'a BenchArgs,
    connections: Vec<Connection>,
    poll: Poll,
}

struct Measured {
    seconds: f64,
    operations: u64,
    latency_ns: Histogram<u64>,
    account: Account,
}

impl Run<'_> {
    fn run(mut self) -> Result<Measured, BenchError> {
        let args = self.args;
        let is_open_loop = args.rate.is_some();
        let start = Instant::now();
        let now_ns =
            |at: Instant| u64::try_from(at.duration_since(start).as_nanos()).expect("days fit");
        // A minute of latency is the end of the scale; three digits hold below it.
        let mut latency_ns =
            Histogram::<u64>::new_with_bounds(100, 60_000_000_000, 3).expect("fixed bounds");
        let warmup = Duration::from_secs_f64(args.warmup);
        let end = warmup + Duration::from_secs_f64(args.duration);
        let operations_max = args.requests.unwrap_or(u64::MAX);
        let (mut operations, mut all, mut measured_from) = (0u64, 0u64, None);
        let mut progress = Progress::new(args.json);
        let interval_ns = args
            .rate
            .map(|rate| f64::from(args.depth) * f64::from(args.connections) * 1e9 / rate);
        for (number, connection) in self.connections.iter_mut().enumerate() {
            match interval_ns {
                // Spread over the first interval, so that they do not come in step.
                Some(interval_ns) => {
                    connection.next_due_ns =
                        to_ns(interval_ns * number as f64 / f64::from(args.connections))
                }
                None => connection.shoot(now_ns(Instant::now()))?,
            }
        }
        let mut events = Events::with_capacity(1024);
        let mut last_heard = Instant::now();
        loop {
            let timeout = if is_open_loop {
                Duration::from_micros(100)
            } else {
                Duration::from_millis(100)
            };
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                    return Err(BenchError::Connection(error.to_string()));
                }
                _ => {}
            }
            let elapsed = start.elapsed();
            if elapsed >= warmup && measured_from.is_none() {
                measured_from = Some(elapsed);
                latency_ns.reset();
                operations = 0;
            }
            if elapsed >= end || all >= operations_max {
                let seconds = (elapsed - measured_from.unwrap_or_default())
                    .as_secs_f64()
                    .max(1e-9);
                progress.end();
                self.drain(&mut events)?;
                let account =
                    self.connections
                        .iter()
                        .fold(Account::default(), |sum, connection| Account {
                            acked: sum.acked + connection.account.acked,
                            refused: sum.refused + connection.account.refused,
                            unknown: sum.unknown + connection.account.unknown,
                        });
                return Ok(Measured {
                    seconds,
                    operations,
                    latency_ns,
                    account,
                });
            }
            for event in &events {
                let connection = &mut self.connections[event.token().0];
                if event.is_writable() {
                    connection.flush()?;
                }
                if !event.is_readable() {
                    continue;
                }
                last_heard = Instant::now();
                let arrived_ns = now_ns(last_heard);
                let mut answered = 0;
                connection.receive(|since_ns, items| {
                    latency_ns.saturating_record_n(
                        arrived_ns.saturating_sub(since_ns).max(100),
                        items as u64,
                    );
                    operations += items as u64;
                    all += items as u64;
                    answered += 1;
                })?;
                if !is_open_loop {
                    for _ in 0..answered {
                        connection.shoot(now_ns(Instant::now()))?;
                    }
                }
            }
            if let Some(interval_ns) = interval_ns {
                let now = now_ns(Instant::now());
                for connection in &mut self.connections {
                    while connection.next_due_ns <= now && connection.under_way() < OPEN_LOOP_AHEAD
                    {
                        connection.shoot(connection.next_due_ns)?;
                        connection.next_due_ns += to_ns(interval_ns);
                    }
                }
            }
            if last_heard.elapsed() > SILENCE {
                return Err(BenchError::Connection(format!(
                    "nothing was answered for {SILENCE:?}"
                )));
            }
            progress.tell(elapsed, all);
        }
    }

    /// Takes in what is still under way, so that the accounts close.
    fn drain(&mut self, events: &mut Events) -> Result<(), BenchError> {
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until
            && self
                .connections
                .iter()
                .any(|connection| connection.under_way() > 0)
        {
            let _ = self.poll.poll(events, Some(Duration::from_millis(10)));
            for event in events.iter() {
                let connection = &mut self.connections[event.token().0];
                connection.flush()?;
                connection.receive(|_, _| ())?;
            }
        }
        Ok(())
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

    fn tell(&mut self, elapsed: Duration, operations: u64) {
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
