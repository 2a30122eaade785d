//! The load generator behind `penstock bench`: one thread that drives many connections, checks
//! every answer, and tells throughput and latency.
//!
//! It promises: every reply is matched with its request and every item is counted once; with a rate
//! the latency counts from the moment a request was due, not from when it could be sent (no
//! coordinated omission); a run ends by itself. How figures are taken stands in `METHOD.md`.
//!
//! The generator sees a server only through its protocol. Figures of the server's inside come from
//! INFO.
#![forbid(unsafe_code)]

mod args;
mod compare;
mod connection;
mod control;
mod cores;
mod driver;
mod entry;
mod host;
mod ledger;
mod report;
pub mod sale;
mod series;
mod tls;
mod workload;

pub use args::{BenchArgs, Level, Workload};
pub use report::Report;
pub use tls::{Stream, TlsArgs};

/// Why a run gave no figures.
#[derive(Debug)]
pub enum BenchError {
    /// The arguments contradict each other; the text says how.
    Arguments(String),
    /// The server cannot be reached or closed a connection.
    Connection(String),
    /// The server answered something that no answer to the request may be.
    WrongAnswer(String),
    /// The counter has not lost what was acknowledged, or the ledger of a sale does not hold; the
    /// report is printed.
    NotBalanced(String),
    /// The person has seen enough.
    Interrupted,
}

impl std::fmt::Display for BenchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BenchError::Arguments(text)
            | BenchError::Connection(text)
            | BenchError::WrongAnswer(text)
            | BenchError::NotBalanced(text) => f.write_str(text),
            BenchError::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for BenchError {}

/// Runs what the arguments ask for and prints it.
///
/// # Errors
/// [`BenchError`]; nothing is printed to standard output then, but for [`BenchError::NotBalanced`].
pub fn run(args: &BenchArgs) -> Result<(), BenchError> {
    if let [a, b] = &args.compare[..] {
        print!("{}", compare::compare(a, b)?);
        return Ok(());
    }
    args.check()?;
    if args.levels {
        let reports = compare_levels(args)?;
        report::print(args, &reports);
        clean(args);
        return Ok(());
    }
    let report = driver::drive(args, true)?;
    report::print(args, std::slice::from_ref(&report));
    if let Some(raised) = report.raised() {
        eprintln!("penstock: {raised}");
    }
    if let Some(ledger) = report.ledger
        && args.ledger
        && !ledger.is_balanced()
    {
        return Err(BenchError::NotBalanced(ledger.to_string()));
    }
    clean(args);
    Ok(())
}

/// Deletes the keys of a run, unless others are to find them. Its figures stand without that, so a
/// failure is told and fails nothing.
fn clean(args: &BenchArgs) {
    // A server that only echoes has none.
    if args.keep || args.filled || args.ports.raw {
        return;
    }
    let cleaned = match args.ledger {
        // Another node may have taken over.
        true => driver::Counter::reach(args).and_then(|counter| counter.remove()),
        false => control::Control::connect(args).and_then(|mut control| control.clean(args)),
    };
    if let Err(error) = cleaned {
        eprintln!("penstock: the keys of this run stay: {error}");
    }
}

const LEVELS: [Level; 3] = [Level::None, Level::Interval, Level::Disk];

/// Runs the levels in turn, each round in another order, so that what changes on the machine
/// meanwhile meets all.
fn compare_levels(args: &BenchArgs) -> Result<Vec<Report>, BenchError> {
    let of_level = |level| BenchArgs {
        level,
        duration: args.duration / f64::from(args.rounds),
        requests: args.requests.map(|all| all.div_ceil(args.rounds.into())),
        ..args.clone()
    };
    let mut control = control::Control::connect(args)?;
    for level in LEVELS {
        let reached = control.level_of(&of_level(level))?;
        if reached != level.wire() {
            return Err(BenchError::Arguments(format!(
                "--levels compares nothing: level {} is raised to {} by this server. Start it \
                 with `penstock serve --durability none`, and look at the keyspaces of its keys",
                level.wire().name(),
                reached.name()
            )));
        }
    }
    drop(control);
    let mut reports: Vec<Option<Report>> = LEVELS.map(|_| None).into();
    for round in 0..args.rounds {
        for turn in 0..LEVELS.len() {
            let number = (turn + round as usize) % LEVELS.len();
            let is_first = round == 0 && turn == 0;
            let report = driver::drive(&of_level(LEVELS[number]), is_first)?;
            match &mut reports[number] {
                None => reports[number] = Some(report),
                Some(before) => before.add(report, round),
            }
        }
    }
    Ok(reports.into_iter().flatten().collect())
}
