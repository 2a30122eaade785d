//! The load generator behind `penstock bench`: one thread that drives many connections, checks
//! every answer, and tells throughput and latency.
//!
//! It promises: every reply is matched with its request and every item is counted once; with a rate
//! the latency counts from the moment a request was due, not from when it could be sent (no
//! coordinated omission); a run ends by itself. How figures are taken stands in `METHOD.md`.
//!
//! It does not know: the server's insides. What it prints of them comes from INFO.
#![forbid(unsafe_code)]

mod args;
mod connection;
mod control;
mod driver;
mod ledger;
mod report;
mod workload;

pub use args::{BenchArgs, Level, Workload};
pub use report::Report;

/// Why a run gave no figures.
#[derive(Debug)]
pub enum BenchError {
    /// The arguments contradict each other; the text says how.
    Arguments(String),
    /// The server cannot be reached or closed a connection.
    Connection(String),
    /// The server answered something that no answer to the request may be.
    WrongAnswer(String),
    /// The counter has not lost what was acknowledged; the report is printed.
    NotBalanced(String),
}

impl std::fmt::Display for BenchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BenchError::Arguments(text)
            | BenchError::Connection(text)
            | BenchError::WrongAnswer(text)
            | BenchError::NotBalanced(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for BenchError {}

/// Runs what the arguments ask for and prints it.
///
/// # Errors
/// [`BenchError`]; nothing is printed to standard output then, but for [`BenchError::NotBalanced`].
pub fn run(args: &BenchArgs) -> Result<(), BenchError> {
    args.check()?;
    if args.levels {
        let mut reports = Vec::new();
        for level in [Level::None, Level::Interval, Level::Disk] {
            let args = BenchArgs {
                level,
                ..args.clone()
            };
            reports.push(driver::drive(&args)?);
        }
        report::print(args, &reports);
    } else {
        let report = driver::drive(args)?;
        report::print(args, std::slice::from_ref(&report));
        if let Some(ledger) = report.ledger
            && args.ledger
            && !ledger.is_balanced()
        {
            return Err(BenchError::NotBalanced(ledger.to_string()));
        }
    }
    Ok(())
}
